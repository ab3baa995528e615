# A load's connection by TLS, as a socket for the few requests around it and natively for the load.
from libc.stdint cimport int64_t, uint8_t

from mqcore.tls.library cimport TlsLibrary

cdef enum:
    TLS_LATER = -1
    TLS_GONE = -2

cdef class TlsSocket:
    cdef const TlsLibrary* library
    cdef void* context
    cdef void* ssl
    cdef object plain

    # Up to `room` bytes, all that has come; up to `length` bytes; TLS_LATER, TLS_GONE.
    cdef int64_t read(self, uint8_t* into, int64_t room) noexcept nogil
    cdef int64_t write(self, const uint8_t* data, int64_t length) noexcept nogil
    cdef int64_t outcome(self, int result) noexcept nogil
