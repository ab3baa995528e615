"""Handshakes of TLS 1.3 (RFC 8446) for loads: messages, secrets, and the cipher of OpenSSL."""
from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memcpy, memmove, memset

from mqcore.text cimport Literal, literal
from mqcore.tls.library import TlsLibraryError, candidates

cdef extern from *:
    """
    #include <dlfcn.h>
    #include <stddef.h>
    #define MQ_CRYPTO(X) \\
      X(int, SHA256_Init, (void *hash)) \\
      X(int, SHA256_Update, (void *hash, const void *data, size_t size)) \\
      X(int, SHA256_Final, (unsigned char *into, void *hash)) \\
      X(void *, EVP_PKEY_new_raw_private_key, (int, void *, const unsigned char *, size_t)) \\
      X(void *, EVP_PKEY_new_raw_public_key, (int, void *, const unsigned char *, size_t)) \\
      X(int, EVP_PKEY_get_raw_public_key, (const void *, unsigned char *, size_t *)) \\
      X(void, EVP_PKEY_free, (void *key)) \\
      X(void *, EVP_PKEY_CTX_new, (void *key, void *engine)) \\
      X(void, EVP_PKEY_CTX_free, (void *context)) \\
      X(int, EVP_PKEY_derive_init, (void *context)) \\
      X(int, EVP_PKEY_derive_set_peer, (void *context, void *peer)) \\
      X(int, EVP_PKEY_derive, (void *context, unsigned char *into, size_t *size)) \\
      X(void *, EVP_CIPHER_CTX_new, (void)) \\
      X(void, EVP_CIPHER_CTX_free, (void *context)) \\
      X(void *, EVP_aes_128_gcm, (void)) \\
      X(int, EVP_CipherInit_ex, (void *, const void *, void *, const unsigned char *, \\
                                 const unsigned char *, int)) \\
      X(int, EVP_CIPHER_CTX_ctrl, (void *context, int what, int number, void *pointer)) \\
      X(int, EVP_CipherUpdate, (void *, unsigned char *, int *, const unsigned char *, int)) \\
      X(int, EVP_CipherFinal_ex, (void *, unsigned char *, int *)) \\
      X(void, ERR_clear_error, (void))
    typedef struct {
    #define MQ_CRYPTO_POINTER(result, name, parameters) result (*name) parameters;
      MQ_CRYPTO(MQ_CRYPTO_POINTER)
    } mq_crypto_t;
    static const char *mq_crypto_find(const char *path, mq_crypto_t *found) {
      void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
      if (!handle) return "not there";
    #define MQ_CRYPTO_FIND(result, name, parameters) \\
      *(void **)&found->name = dlsym(handle, #name); \\
      if (!found->name) { dlclose(handle); return "has no " #name; }
      MQ_CRYPTO(MQ_CRYPTO_FIND)
      return NULL;
    }
    """
    ctypedef struct Crypto "mq_crypto_t":
        int (*SHA256_Init)(void*) noexcept nogil
        int (*SHA256_Update)(void*, const void*, size_t) noexcept nogil
        int (*SHA256_Final)(unsigned char*, void*) noexcept nogil
        void* (*EVP_PKEY_new_raw_private_key)(int, void*, const unsigned char*, size_t) noexcept nogil
        void* (*EVP_PKEY_new_raw_public_key)(int, void*, const unsigned char*, size_t) noexcept nogil
        int (*EVP_PKEY_get_raw_public_key)(const void*, unsigned char*, size_t*) noexcept nogil
        void (*EVP_PKEY_free)(void*) noexcept nogil
        void* (*EVP_PKEY_CTX_new)(void*, void*) noexcept nogil
        void (*EVP_PKEY_CTX_free)(void*) noexcept nogil
        int (*EVP_PKEY_derive_init)(void*) noexcept nogil
        int (*EVP_PKEY_derive_set_peer)(void*, void*) noexcept nogil
        int (*EVP_PKEY_derive)(void*, unsigned char*, size_t*) noexcept nogil
        void* (*EVP_CIPHER_CTX_new)() noexcept nogil
        void (*EVP_CIPHER_CTX_free)(void*) noexcept nogil
        const void* (*EVP_aes_128_gcm)() noexcept nogil
        int (*EVP_CipherInit_ex)(void*, const void*, void*, const unsigned char*,
                                 const unsigned char*, int) noexcept nogil
        int (*EVP_CIPHER_CTX_ctrl)(void*, int, int, void*) noexcept nogil
        int (*EVP_CipherUpdate)(void*, unsigned char*, int*, const unsigned char*,
                                int) noexcept nogil
        int (*EVP_CipherFinal_ex)(void*, unsigned char*, int*) noexcept nogil
        void (*ERR_clear_error)() noexcept nogil
    const char* mq_crypto_find(const char* path, Crypto* found) nogil

cdef enum:
    PKEY_X25519 = 1034                 # of OpenSSL
    CTRL_GET_TAG = 0x10
    CTRL_SET_TAG = 0x11
    TAG_BYTES = 16
    SHARE_BYTES = 32
    BLOCK_BYTES = 64                   # of SHA-256
    RECORD_HEAD_BYTES = 5
    MESSAGE_HEAD_BYTES = 4
    RECORD_CHANGE = 20                 # says nothing in TLS 1.3
    RECORD_HANDSHAKE = 22
    RECORD_DATA = 23
    MESSAGE_SERVER_HELLO = 2
    MESSAGE_FINISHED = 20
    EXTENSION_KEY_SHARE = 51
    RANDOM_AT = 2                      # in the server's hello: version, random, session, suite,
    SESSION_AT = RANDOM_AT + 32        # compression, extensions
    LABEL_MAX = 64

# -- the hello, up to its key share: what a client says that knows one group and one suite
cdef bytes HELLO = bytes.fromhex(
    "1603010000" "01000000" "0303") + bytes(range(32)) + bytes.fromhex(
    "00" "00021301" "0100" "0000"
    "000a0004" "0002001d"                          # groups: x25519
    "000d000c" "000a" "0403" "0804" "0805" "0806" "0401"       # signatures
    "002b0003" "020304"                            # versions: 1.3
    "002d0002" "0101"                              # sessions are resumed with new keys
    "00330026" "0024" "001d0020")                  # the share follows
cdef enum:
    HELLO_EXTENSIONS_AT = 5 + 4 + 2 + 32 + 1 + 4 + 2

cdef Literal DERIVED_LABEL = literal(b"tls13 derived")
cdef Literal OWN_LABEL = literal(b"tls13 c hs traffic")
cdef Literal SERVER_LABEL = literal(b"tls13 s hs traffic")
cdef Literal KEY_LABEL = literal(b"tls13 key")
cdef Literal IV_LABEL = literal(b"tls13 iv")
cdef Literal FINISHED_LABEL = literal(b"tls13 finished")

cdef Crypto crypto
cdef bint is_found = False


cdef bint find_crypto() except False:
    global is_found
    cdef const char* trouble
    if is_found:
        return True
    tried = []
    for name in candidates():
        path = name.encode()
        trouble = mq_crypto_find(<const char*>path if path else NULL, &crypto)
        if trouble == NULL:
            is_found = True
            return True
        tried.append(f"{name or 'the interpreter itself'} ({trouble.decode()})")
    raise TlsLibraryError("a load of handshakes needs OpenSSL, and none can be used here: "
                          + ", ".join(tried))


cdef inline int32_t load_u16(const uint8_t* at) noexcept nogil:
    return at[0] << 8 | at[1]


cdef inline void store_u16(uint8_t* at, int32_t value) noexcept nogil:
    at[0] = <uint8_t>(value >> 8)
    at[1] = <uint8_t>value


# -- secrets -----------------------------------------------------------------------------------------

cdef void hmac(const uint8_t* key, const uint8_t* data, size_t size, uint8_t* into) noexcept nogil:
    """HMAC-SHA-256 with a key of HASH_BYTES."""
    cdef Sha256 hash
    cdef uint8_t[BLOCK_BYTES] pad
    cdef int i
    memset(pad, 0x36, BLOCK_BYTES)
    for i in range(HASH_BYTES):
        pad[i] ^= key[i]
    crypto.SHA256_Init(&hash)
    crypto.SHA256_Update(&hash, pad, BLOCK_BYTES)
    crypto.SHA256_Update(&hash, data, size)
    crypto.SHA256_Final(into, &hash)
    for i in range(BLOCK_BYTES):
        pad[i] ^= 0x36 ^ 0x5C
    crypto.SHA256_Init(&hash)
    crypto.SHA256_Update(&hash, pad, BLOCK_BYTES)
    crypto.SHA256_Update(&hash, into, HASH_BYTES)
    crypto.SHA256_Final(into, &hash)


cdef void expand(const uint8_t* secret, Literal label, const uint8_t* context, int context_bytes,
                 uint8_t* into, int size) noexcept nogil:
    """HKDF-Expand-Label of at most HASH_BYTES."""
    cdef uint8_t[2 + 1 + LABEL_MAX + 1 + HASH_BYTES + 1] info
    cdef uint8_t[HASH_BYTES] out
    cdef int at = 3 + label.length
    store_u16(info, size)
    info[2] = <uint8_t>label.length
    memcpy(info + 3, label.text, label.length)
    info[at] = <uint8_t>context_bytes
    memcpy(info + at + 1, context, context_bytes)
    at += 1 + context_bytes
    info[at] = 1
    hmac(secret, info, at + 1, out)
    memcpy(into, out, size)


cdef void transcript_hash(const Shake* shake, uint8_t* into) noexcept nogil:
    cdef Sha256 copy = shake.transcript
    crypto.SHA256_Final(into, &copy)


cdef void write_keys(const uint8_t* secret, Direction* direction) noexcept nogil:
    expand(secret, KEY_LABEL, NULL, 0, direction.key, KEY_BYTES)
    expand(secret, IV_LABEL, NULL, 0, direction.iv, IV_BYTES)
    direction.count = 0


cdef bint share_secret(void* deriving, const uint8_t* share, uint8_t* into) noexcept nogil:
    cdef void* peer = crypto.EVP_PKEY_new_raw_public_key(PKEY_X25519, NULL, share, SHARE_BYTES)
    cdef size_t size = SHARE_BYTES
    cdef bint done = (peer != NULL and crypto.EVP_PKEY_derive_set_peer(deriving, peer) == 1
                      and crypto.EVP_PKEY_derive(deriving, into, &size) == 1)
    crypto.EVP_PKEY_free(peer)
    return done


# -- records -----------------------------------------------------------------------------------------

cdef bint seal(ShakeClient* client, Direction* direction, bint sending, const uint8_t* head,
               uint8_t* data, int32_t size) noexcept nogil:
    """Encrypts a record's bytes in place, its tag behind them; or decrypts them, and checks it."""
    cdef uint8_t[IV_BYTES] nonce
    cdef int done, i
    memcpy(nonce, direction.iv, IV_BYTES)
    for i in range(8):
        nonce[IV_BYTES - 1 - i] ^= <uint8_t>(direction.count >> (8 * i))
    direction.count += 1
    if crypto.EVP_CipherInit_ex(client.cipher, NULL, NULL, direction.key, nonce, sending) != 1:
        return False
    if not sending:
        crypto.EVP_CIPHER_CTX_ctrl(client.cipher, CTRL_SET_TAG, TAG_BYTES, data + size)
    if (crypto.EVP_CipherUpdate(client.cipher, NULL, &done, head, RECORD_HEAD_BYTES) != 1
            or crypto.EVP_CipherUpdate(client.cipher, data, &done, data, size) != 1
            or crypto.EVP_CipherFinal_ex(client.cipher, data + size, &done) != 1):
        crypto.ERR_clear_error()
        return False
    if sending:
        crypto.EVP_CIPHER_CTX_ctrl(client.cipher, CTRL_GET_TAG, TAG_BYTES, data + size)
    return True


cdef const uint8_t* find_share(const uint8_t* body, int32_t size) noexcept nogil:
    """The server's key share in its hello; NULL: there is none."""
    cdef int32_t at = SESSION_AT
    cdef int32_t end
    if size <= at:
        return NULL
    at += 1 + body[at] + 2 + 1
    if at + 2 > size:
        return NULL
    end = min(at + 2 + load_u16(body + at), size)
    at += 2
    while at + 4 <= end:
        if load_u16(body + at) == EXTENSION_KEY_SHARE:
            at += 4
            return body + at + 4 if at + 4 + SHARE_BYTES <= end else NULL
        at += 4 + load_u16(body + at + 2)
    return NULL


cdef bint make_secrets(ShakeClient* client, Shake* shake, const uint8_t* body,
                       int32_t size) noexcept nogil:
    cdef const uint8_t* share = find_share(body, size)
    cdef uint8_t[HASH_BYTES] shared
    cdef uint8_t[HASH_BYTES] secret
    cdef uint8_t[HASH_BYTES] hash
    if share == NULL or not share_secret(client.deriving, share, shared):
        return False
    hmac(client.derived, shared, SHARE_BYTES, secret)
    transcript_hash(shake, hash)
    expand(secret, OWN_LABEL, hash, HASH_BYTES, shake.own_secret, HASH_BYTES)
    expand(secret, SERVER_LABEL, hash, HASH_BYTES, secret, HASH_BYTES)
    write_keys(secret, &shake.server)
    shake.secret = True
    return True


cdef bint finish(ShakeClient* client, Shake* shake) noexcept nogil:
    """Makes the client's last record."""
    cdef Direction own
    cdef uint8_t[HASH_BYTES] key
    cdef uint8_t[HASH_BYTES] hash
    cdef uint8_t* message = shake.finished + RECORD_HEAD_BYTES
    cdef int32_t size = MESSAGE_HEAD_BYTES + HASH_BYTES + 1
    shake.finished[0] = RECORD_DATA
    store_u16(shake.finished + 1, 0x0303)
    store_u16(shake.finished + 3, size + TAG_BYTES)
    memset(message, 0, MESSAGE_HEAD_BYTES)
    message[0] = MESSAGE_FINISHED
    message[3] = HASH_BYTES
    transcript_hash(shake, hash)
    expand(shake.own_secret, FINISHED_LABEL, NULL, 0, key, HASH_BYTES)
    hmac(key, hash, HASH_BYTES, message + MESSAGE_HEAD_BYTES)
    message[size - 1] = RECORD_HANDSHAKE
    write_keys(shake.own_secret, &own)
    return seal(client, &own, True, shake.finished, message, size)


# -- what came ---------------------------------------------------------------------------------------

cdef ShakeState messages_came(ShakeClient* client, Shake* shake) noexcept nogil:
    cdef uint8_t* at = shake.messages
    cdef uint8_t* end = at + shake.plain
    cdef int32_t size
    while end - at >= MESSAGE_HEAD_BYTES:
        size = MESSAGE_HEAD_BYTES + (at[1] << 16 | load_u16(at + 2))
        if end - at < size:
            break
        crypto.SHA256_Update(&shake.transcript, at, size)
        if at[0] == MESSAGE_FINISHED:
            return SHAKEN if shake.secret and finish(client, shake) else SHAKE_BROKEN
        if at[0] == MESSAGE_SERVER_HELLO and (
                shake.secret or not make_secrets(client, shake, at + MESSAGE_HEAD_BYTES,
                                                 size - MESSAGE_HEAD_BYTES)):
            return SHAKE_BROKEN
        at += size
    shake.plain = <int32_t>(end - at)
    memmove(shake.messages, at, shake.plain)
    return SHAKE_WAITS


cdef ShakeState record_came(ShakeClient* client, Shake* shake, uint8_t* record,
                            int32_t size) noexcept nogil:
    cdef uint8_t* data = record + RECORD_HEAD_BYTES
    if record[0] == RECORD_CHANGE:
        return SHAKE_WAITS
    if shake.secret:
        size -= TAG_BYTES
        if record[0] != RECORD_DATA or size <= 0 or not seal(
                client, &shake.server, False, record, data, size):
            return SHAKE_BROKEN
        while size > 0 and data[size - 1] == 0:
            size -= 1
        size -= 1
        if size < 0 or data[size] != RECORD_HANDSHAKE:
            return SHAKE_BROKEN
    elif record[0] != RECORD_HANDSHAKE:
        return SHAKE_BROKEN
    if shake.plain + size > FLIGHT_MAX:
        return SHAKE_BROKEN
    memcpy(shake.messages + shake.plain, data, size)
    shake.plain += size
    return messages_came(client, shake)


cdef ShakeState shake_came(ShakeClient* client, Shake* shake, int32_t count) noexcept nogil:
    cdef uint8_t* at = shake.flight
    cdef uint8_t* end = at + shake.length + count
    cdef ShakeState state = SHAKE_WAITS
    cdef int32_t size
    while state == SHAKE_WAITS and end - at >= RECORD_HEAD_BYTES:
        size = load_u16(at + 3)
        if end - at < RECORD_HEAD_BYTES + size:
            break
        state = record_came(client, shake, at, size)
        at += RECORD_HEAD_BYTES + size
    shake.length = <int32_t>(end - at)
    memmove(shake.flight, at, shake.length)
    if state == SHAKE_WAITS and shake.length == FLIGHT_MAX:
        return SHAKE_BROKEN
    return state


cdef void shake_begin(const ShakeClient* client, Shake* shake) noexcept nogil:
    shake.transcript = client.began
    shake.secret = False
    shake.length = shake.plain = 0


# -- a load's own ------------------------------------------------------------------------------------

cdef bint shake_client_open(ShakeClient* client) except False:
    cdef uint8_t[HASH_BYTES] secret
    cdef size_t size = SHARE_BYTES
    cdef int32_t length = <int32_t>len(HELLO) + SHARE_BYTES
    cdef Sha256 empty
    find_crypto()
    client.cipher = crypto.EVP_CIPHER_CTX_new()
    client.key = crypto.EVP_PKEY_new_raw_private_key(PKEY_X25519, NULL, <const uint8_t*>HELLO,
                                                     SHARE_BYTES)
    client.deriving = crypto.EVP_PKEY_CTX_new(client.key, NULL) if client.key != NULL else NULL
    if client.deriving == NULL or client.cipher == NULL or not (
            crypto.EVP_PKEY_derive_init(client.deriving) == 1 and crypto.EVP_CipherInit_ex(
                client.cipher, crypto.EVP_aes_128_gcm(), NULL, NULL, NULL, 0) == 1):
        raise MemoryError
    memcpy(client.hello, <const uint8_t*>HELLO, len(HELLO))
    crypto.EVP_PKEY_get_raw_public_key(client.key, client.hello + len(HELLO), &size)
    client.hello_length = length
    store_u16(client.hello + 3, length - RECORD_HEAD_BYTES)
    store_u16(client.hello + 7, length - RECORD_HEAD_BYTES - MESSAGE_HEAD_BYTES)
    store_u16(client.hello + HELLO_EXTENSIONS_AT, length - HELLO_EXTENSIONS_AT - 2)
    crypto.SHA256_Init(&client.began)
    crypto.SHA256_Update(&client.began, client.hello + RECORD_HEAD_BYTES, length - RECORD_HEAD_BYTES)
    crypto.SHA256_Init(&empty)
    crypto.SHA256_Final(client.nothing, &empty)
    memset(secret, 0, HASH_BYTES)
    hmac(secret, secret, HASH_BYTES, secret)       # the secret of who shares none beforehand
    expand(secret, DERIVED_LABEL, client.nothing, HASH_BYTES, client.derived, HASH_BYTES)
    return True


cdef void shake_client_close(ShakeClient* client) noexcept nogil:
    if client.cipher != NULL:
        crypto.EVP_CIPHER_CTX_free(client.cipher)
    if client.deriving != NULL:
        crypto.EVP_PKEY_CTX_free(client.deriving)
    if client.key != NULL:
        crypto.EVP_PKEY_free(client.key)
