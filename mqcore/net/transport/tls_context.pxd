# The context of a server, or of clients of servers: certificate, key, whom it trusts. Connections
# take it by reference; one that is replaced lives as long as they do.
from libc.stdint cimport int64_t

from mqcore.tls.library cimport TlsLibrary

cdef enum:
    VERIFY_RESULT_SHIFT = 32           # of what a failed handshake tells: OpenSSL's code below it

cdef class OpenSslContext:
    cdef const TlsLibrary* library
    cdef void* context                 # SSL_CTX
    cdef bytes password

    cdef begin(self, void* method, str password)
    cdef load_own(self, bytes certificate, bytes key, str whose)
    cdef load_authorities(self, bytes trust)
    cdef load_crl(self, bytes crl)
    cdef refuse(self, bytes file, str expected)

cdef class TlsContext(OpenSslContext):
    cdef check_time(self, bytes certificate)
    cdef load_trust(self, bytes trust, int clients, bint verify)

cdef class TlsClientContext(OpenSslContext):
    cdef readonly bint verifies_host
