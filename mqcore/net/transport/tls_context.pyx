"""Certificates, keys and trust for both ends of TLS."""
import os

from libc.stdint cimport int64_t
from libc.string cimport memcpy

from mqcore.tls.library cimport (
    CTRL_MODE,
    CTRL_READ_AHEAD,
    MODE_MOVING_BUFFER,
    MODE_PARTIAL_WRITE,
    MODE_RELEASE_BUFFERS,
    tls_library,
)

cdef enum:                             # of OpenSSL
    FILETYPE_PEM = 1
    PKEY_EC = 408
    TEXT_UTF8 = 0x1000
    VERIFY_NONE = 0
    VERIFY_PEER = 1
    VERIFY_FAIL_IF_NO_PEER_CERT = 2
    VERIFY_CRL_CHECK = 0x4
    CTRL_SESS_CACHE_MODE = 44
    CTRL_MIN_PROTO_VERSION = 123
    TLS1_2 = 0x0303
    PEM_BYTES_MAX = 16384
    ALPN_CHOSEN = 0
    ALPN_NOT_CHOSEN = 3

OP_NO_TICKET = 1 << 14
OP_NO_COMPRESSION = 1 << 17
OP_SERVER_PREFERENCE = 1 << 22
OP_NO_RENEGOTIATION = 1 << 30
# AES with 128 bits first: the hardware does it, and it is what a broker spends most time on.
cdef const char* SUITES = b"TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"
cdef const char* CIPHERS = (b"ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:"
           b"ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:"
           b"ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305")
cdef const unsigned char* SESSION_NAME = b"mqcore"
CLIENTS = ("none", "optional", "require")
AUTHORITIES = "a PEM file with the certificates of authorities"
DAY_S = 86_400


class TlsContextError(ValueError):
    """A certificate, key or trust file cannot be used: the text names it and what was expected."""


cdef int tell_password(char* into, int room, int writing, void* asked) noexcept with gil:
    cdef bytes password = (<OpenSslContext>asked).password
    if len(password) > room:
        return 0
    memcpy(into, <const char*>password, len(password))
    return <int>len(password)


cdef int any_client(int good, void* store) noexcept nogil:
    return 1


cdef int choose_http2(void* ssl, const unsigned char** chosen, unsigned char* chosen_length,
                      const unsigned char* offered, unsigned int length, void* asked) noexcept nogil:
    """Clients of gRPC offer h2 (ALPN), and want it said; others are told nothing."""
    cdef unsigned int at = 0
    while at < length:
        if offered[at] == 2 and length - at > 2 and offered[at + 1] == c'h' and offered[at + 2] == c'2':
            chosen[0] = offered + at + 1
            chosen_length[0] = 2
            return ALPN_CHOSEN
        at += 1 + offered[at]
    return ALPN_NOT_CHOSEN


cdef class OpenSslContext:
    """The common part of the contexts of both ends."""

    cdef begin(self, void* method, str password):
        cdef const TlsLibrary* library = tls_library()
        cdef int mode = MODE_PARTIAL_WRITE | MODE_MOVING_BUFFER | MODE_RELEASE_BUFFERS
        self.library = library
        self.password = password.encode()
        self.context = library.SSL_CTX_new(method)
        if self.context == NULL:
            raise MemoryError
        library.ERR_clear_error()
        library.SSL_CTX_ctrl(self.context, CTRL_MIN_PROTO_VERSION, TLS1_2, NULL)         # tls TL2
        library.SSL_CTX_set_options(
            self.context, OP_NO_COMPRESSION | OP_SERVER_PREFERENCE | OP_NO_RENEGOTIATION)
        library.SSL_CTX_ctrl(self.context, CTRL_SESS_CACHE_MODE, 0, NULL)
        library.SSL_CTX_ctrl(self.context, CTRL_MODE, mode, NULL)
        library.SSL_CTX_ctrl(self.context, CTRL_READ_AHEAD, 1, NULL)
        if not (library.SSL_CTX_set_cipher_list(self.context, CIPHERS)
                and library.SSL_CTX_set_ciphersuites(self.context, SUITES)):
            raise TlsContextError(f"{library.OpenSSL_version(0).decode()} has none of the ciphers "
                                  "that are wanted")

    def __dealloc__(self):
        if self.context != NULL:
            self.library.SSL_CTX_free(self.context)

    cdef load_own(self, bytes certificate, bytes key, str whose):
        cdef const TlsLibrary* library = self.library
        look(certificate, f"a PEM file with the {whose}'s certificate and those above it")
        look(key, f"a PEM file with the {whose}'s private key")
        library.SSL_CTX_set_default_passwd_cb(self.context, <void*>tell_password)
        library.SSL_CTX_set_default_passwd_cb_userdata(self.context, <void*>self)
        if library.SSL_CTX_use_certificate_chain_file(self.context, certificate) != 1:
            self.refuse(certificate,
                        f"a PEM file with the {whose}'s certificate and those above it")
        if library.SSL_CTX_use_PrivateKey_file(self.context, key, FILETYPE_PEM) != 1:
            self.refuse(key, "a PEM file with the private key of the certificate "
                        f"{os.fsdecode(certificate)}, and its password if it is encrypted")
        if library.SSL_CTX_check_private_key(self.context) != 1:
            self.refuse(key, f"the private key of the certificate {os.fsdecode(certificate)}")

    cdef load_authorities(self, bytes trust):
        look(trust, AUTHORITIES)
        if self.library.SSL_CTX_load_verify_locations(self.context, trust, NULL) != 1:
            self.refuse(trust, AUTHORITIES)

    cdef load_crl(self, bytes crl):
        cdef const TlsLibrary* library = self.library
        look(crl, "a PEM file with the revocation lists of authorities")
        if library.SSL_CTX_load_verify_locations(self.context, crl, NULL) != 1:
            self.refuse(crl, "a PEM file with the revocation lists of authorities")
        library.X509_VERIFY_PARAM_set_flags(library.SSL_CTX_get0_param(self.context),
                                            VERIFY_CRL_CHECK)

    cdef refuse(self, bytes file, str expected):
        cdef unsigned long code = self.library.ERR_peek_last_error()
        self.library.ERR_clear_error()
        why = f" ({reason(code)})" if code else ""
        raise TlsContextError(f"{os.fsdecode(file)}: expected {expected}{why}")


cdef class TlsContext(OpenSslContext):
    """
    What connections of servers are made with.

    certificate   file: the server's certificate, then those that lead to its authority, in PEM
    key           file: its private key, in PEM
    password      of the key, when it is encrypted
    trust         file: authorities of clients' certificates, in PEM; "" none
    clients       "none", "optional" or "require": whether clients show a certificate
    verify        theirs has to be signed by one of `trust`; False: any will do
    crl           file: revocation lists of these authorities, in PEM, and nothing else: certificates
                  in it would be trusted; "" none: nobody looks whether a certificate was revoked
    any_time      the server's certificate may have expired, or not be valid yet

    Raises TlsContextError; TlsLibraryError when there is no OpenSSL.
    """

    def __cinit__(self, *, str certificate, str key, str password="", str trust="",
                  str clients="none", bint verify=True, str crl="", bint any_time=False):
        self.begin(tls_library().TLS_server_method(), password)
        self.library.SSL_CTX_set_num_tickets(self.context, 1)
        self.library.SSL_CTX_set_session_id_context(self.context, SESSION_NAME, 6)
        self.library.SSL_CTX_set_alpn_select_cb(self.context, <void*>choose_http2, NULL)
        self.load_own(os.fsencode(certificate), os.fsencode(key), "server")
        if not any_time:
            self.check_time(os.fsencode(certificate))
        self.load_trust(os.fsencode(trust), CLIENTS.index(clients), verify)
        if crl:
            self.load_crl(os.fsencode(crl))

    cdef check_time(self, bytes certificate):
        cdef const TlsLibrary* library = self.library
        cdef void* own = library.SSL_CTX_get0_certificate(self.context)
        if library.X509_cmp_current_time(library.X509_getm_notAfter(own)) <= 0:
            self.refuse(certificate, "a certificate that has not expired")
        if library.X509_cmp_current_time(library.X509_getm_notBefore(own)) >= 0:
            self.refuse(certificate, "a certificate that is valid already")

    cdef load_trust(self, bytes trust, int clients, bint verify):
        cdef const TlsLibrary* library = self.library
        cdef int mode = VERIFY_NONE
        cdef void* names
        if trust:
            self.load_authorities(trust)
            names = library.SSL_load_client_CA_file(trust)
            if names == NULL:
                self.refuse(trust, AUTHORITIES)
            library.SSL_CTX_set_client_CA_list(self.context, names)
        if clients:                    # who shows a certificate shows it each time: it may expire
            library.SSL_CTX_set_options(self.context, OP_NO_TICKET)
            library.SSL_CTX_set_num_tickets(self.context, 0)
            mode = VERIFY_PEER | (VERIFY_FAIL_IF_NO_PEER_CERT if clients == 2 else 0)
        library.SSL_CTX_set_verify(self.context, mode, NULL if verify else <void*>any_client)


cdef class TlsClientContext(OpenSslContext):
    """
    The context of connections to servers.

    trust          file: authorities of servers' certificates, in PEM; "" the system's
    certificate    file: what is shown when a server asks for one, in PEM, "" nothing; key, password
                   as in TlsContext
    verify         the server's certificate has to be signed by an authority ...
    verify_host    ... and to name the host that was asked for
    crl            as in TlsContext, of the servers' authorities

    Raises TlsContextError; TlsLibraryError when there is no OpenSSL.
    """

    def __cinit__(self, *, str trust="", str certificate="", str key="", str password="",
                  bint verify=True, bint verify_host=True, str crl=""):
        self.begin(tls_library().TLS_client_method(), password)
        self.verifies_host = verify and verify_host
        if trust:
            self.load_authorities(os.fsencode(trust))
        elif verify and self.library.SSL_CTX_set_default_verify_paths(self.context) != 1:
            raise TlsContextError("the system's authorities cannot be read: expected "
                                  "tls.client_trust")
        if certificate:
            self.load_own(os.fsencode(certificate), os.fsencode(key), "client")
        if crl:
            self.load_crl(os.fsencode(crl))
        self.library.SSL_CTX_set_verify(self.context, VERIFY_PEER if verify else VERIFY_NONE, NULL)


def look(bytes file, str expected) -> None:
    """Raises TlsContextError for a file that cannot be read."""
    try:
        with open(file, "rb") as opened:
            opened.read(1)
    except OSError as error:
        raise TlsContextError(f"{os.fsdecode(file)}: cannot be read: {error.strerror}; expected "
                              f"{expected}") from None


def reason(unsigned long code) -> str:
    """OpenSSL's words for one of its codes: "certificate expired"."""
    cdef const char* said = tls_library().ERR_reason_error_string(code)
    return said.decode() if said != NULL else f"code {code:#x}"


def trouble(int64_t detail) -> str:
    """What a failed handshake tells (CLOSE_TLS_FAILED): "certificate verify failed: ..."."""
    cdef long result = <long>(detail >> VERIFY_RESULT_SHIFT)
    said = reason(<unsigned long>(detail & 0xFFFFFFFF))
    if result == 0 or said != "certificate verify failed":
        return said
    return f"{said}: {tls_library().X509_verify_cert_error_string(result).decode()}"


def self_signed(str name, int days=365) -> bytes:
    """
    A certificate that signs itself, and its key, in PEM: for tests, since nobody can verify it.

    name   its common name. Raises TlsLibraryError, MemoryError.
    """
    cdef const TlsLibrary* library = tls_library()
    cdef void* making = library.EVP_PKEY_CTX_new_id(PKEY_EC, NULL)
    cdef void* key = NULL
    cdef void* made = library.X509_new()
    cdef void* text = library.BIO_new(library.BIO_s_mem())
    cdef void* subject
    cdef char[PEM_BYTES_MAX] pem
    cdef bytes common = name.encode()
    cdef int length = -1
    if making != NULL and made != NULL and text != NULL and (
            library.EVP_PKEY_keygen_init(making) == 1
            and library.EVP_PKEY_CTX_ctrl_str(making, "ec_paramgen_curve", "P-256") == 1
            and library.EVP_PKEY_keygen(making, &key) == 1):
        library.X509_set_version(made, 2)
        library.ASN1_INTEGER_set(library.X509_get_serialNumber(made),
                                 int.from_bytes(os.urandom(7), "big") | 1)
        library.X509_gmtime_adj(library.X509_getm_notBefore(made), -DAY_S)
        library.X509_gmtime_adj(library.X509_getm_notAfter(made), days * DAY_S)
        subject = library.X509_get_subject_name(made)
        library.X509_NAME_add_entry_by_txt(subject, "CN", TEXT_UTF8, common, <int>len(common),
                                           -1, 0)
        library.X509_set_issuer_name(made, subject)
        if (library.X509_set_pubkey(made, key) == 1
                and library.X509_sign(made, key, library.EVP_sha256()) > 0
                and library.PEM_write_bio_X509(text, made) == 1
                and library.PEM_write_bio_PrivateKey(text, key, NULL, NULL, 0, NULL, NULL) == 1):
            length = library.BIO_read(text, pem, PEM_BYTES_MAX)
    library.EVP_PKEY_free(key)
    library.EVP_PKEY_CTX_free(making)
    library.X509_free(made)
    library.BIO_free(text)
    library.ERR_clear_error()
    if length <= 0:
        raise MemoryError("no certificate could be made")
    return (<const char*>pem)[:length]
