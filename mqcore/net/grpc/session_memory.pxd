# Memory of HTTP/2 sessions: what nghttp2 allocates, and the buffers of calls (session HT3).
from libc.stdint cimport int64_t, uint8_t

from mqcore.net.nghttp2 cimport Http2Memory
from mqcore.net.grpc.streams cimport Session

cdef void session_memory(Session* s, Http2Memory* memory) noexcept nogil
# A buffer of `needed` bytes and more; most: what it can need at all, 0: not known. False: no memory.
cdef bint session_grow(Session* s, uint8_t** buffer, int64_t* capacity, int64_t needed,
                       int64_t most) noexcept nogil
