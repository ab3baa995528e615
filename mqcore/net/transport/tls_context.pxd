# A server's context: certificate, key, whom it trusts. Connections take it by reference; one that is
# replaced lives as long as they do.
from libc.stdint cimport int64_t

from mqcore.tls.library cimport TlsLibrary

cdef enum:
    VERIFY_RESULT_SHIFT = 32           # of what a failed handshake tells: OpenSSL's code below it

cdef class TlsContext:
    cdef const TlsLibrary* library
    cdef void* context                 # SSL_CTX
    cdef bytes password

    cdef load_own(self, bytes certificate, bytes key)
    cdef check_time(self, bytes certificate)
    cdef load_trust(self, bytes trust, int clients, bint verify)
    cdef load_crl(self, bytes crl)
    cdef refuse(self, bytes file, str expected)
