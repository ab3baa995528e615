# A server's context: certificate, key, whom it trusts. Connections take it by reference; one that is
# replaced lives as long as they do.
from libc.stdint cimport int64_t

from mqcore.tls.library cimport TlsLibrary

cdef class TlsContext:
    cdef const TlsLibrary* library
    cdef void* context                 # SSL_CTX
    cdef readonly int64_t answer_work  # of answering one hello, in units of work (N9)
    cdef bytes password

    cdef load_own(self, bytes certificate, bytes key)
    cdef load_trust(self, bytes trust, int clients, bint verify)
    cdef refuse(self, bytes file, str expected)
