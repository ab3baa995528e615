# The rings of POP over remoting at their owner (remote RM1).
from mqcore.net.grpc.calls cimport Grpc

cdef bint links_open(Grpc* g) noexcept nogil                   # False: no memory
cdef void links_end(Grpc* g) noexcept nogil
# Whether a frame has come.
cdef bint links_wait(Grpc* g) noexcept nogil
cdef void links_take(Grpc* g) noexcept nogil
# Answers go into the rings, as far as there is room.
cdef void links_give(Grpc* g) noexcept nogil
