# A client's part of a whole handshake of TLS 1.3, as little of it as a peer that floods would do: one
# key share for all, X25519 and AES-128-GCM, and no look at the certificate. OpenSSL's own client takes
# three times the server's time for it, most of that to read the certificate's key.
#
#     shake_begin(client, shake)                  client.hello goes to the server
#     shake_came(client, shake, count)            what came stands behind `length`
#     SHAKEN: shake.finished goes to the server, and the handshake is whole
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

cdef enum:
    HASH_BYTES = 32
    HELLO_MAX = 256
    FLIGHT_MAX = 16 << 10              # what the server says, certificates and all
    FINISHED_BYTES = 5 + 4 + HASH_BYTES + 1 + 16

cdef enum:
    SHA256_WORDS = 32
    KEY_BYTES = 16
    IV_BYTES = 12

cdef enum ShakeState:
    SHAKE_WAITS = 0                    # for more bytes
    SHAKEN = 1
    SHAKE_BROKEN = -1                  # what came is no answer to the hello

cdef struct Sha256:                    # OpenSSL's own fields, with room to spare
    uint32_t[SHA256_WORDS] words

cdef struct Direction:                 # what one side writes
    uint8_t[KEY_BYTES] key
    uint8_t[IV_BYTES] iv
    uint64_t count                     # records

cdef struct Shake:                     # of one connection
    Sha256 transcript
    Direction server
    uint8_t[HASH_BYTES] own_secret
    bint secret                        # the keys are made
    int32_t length                     # bytes of `flight` that are no whole record yet
    int32_t plain                      # and of `messages` that are no whole message
    uint8_t[FLIGHT_MAX] flight
    uint8_t[FLIGHT_MAX] messages
    uint8_t[FINISHED_BYTES] finished

cdef struct ShakeClient:               # of all connections of a thread
    void* key                          # EVP_PKEY
    void* deriving                     # EVP_PKEY_CTX, secrets with it
    void* cipher                       # EVP_CIPHER_CTX, AES-128-GCM
    int32_t hello_length
    uint8_t[HELLO_MAX] hello
    Sha256 began                       # the transcript with the hello
    uint8_t[HASH_BYTES] derived        # what each handshake's secret is extracted with
    uint8_t[HASH_BYTES] nothing        # hash of no bytes

cdef bint shake_client_open(ShakeClient* client) except False   # raises TlsLibraryError, MemoryError
cdef void shake_client_close(ShakeClient* client) noexcept nogil
cdef void shake_begin(const ShakeClient* client, Shake* shake) noexcept nogil
cdef ShakeState shake_came(ShakeClient* client, Shake* shake, int32_t count) noexcept nogil
