# Work of receives beside their requests: the state's file, the end of each turn, clients that left.
from libc.stdint cimport int32_t, int64_t

from mqcore.net.grpc.calls cimport Grpc
from mqcore.net.grpc.streams cimport Call

cdef enum:
    LEAVE_MS = 30_000                  # until a client whose connection ended is given up ...
    TERMINATED_MS = 0                  # ... and one that says that it ends (pop PO7: 1 s later)

cdef bint pops_open(Grpc* g, const char* journal) noexcept nogil            # False: no memory
cdef void pops_close(Grpc* g) noexcept nogil
cdef void pops_turn(Grpc* g) noexcept nogil
cdef void queue_arrived(void* top, int32_t queue) noexcept nogil
cdef void receive_gone(Call* call) noexcept nogil
# A place of `leaving` is free: the messages of the client that had it are visible soon.
cdef void give_up_first(Grpc* g) noexcept nogil
