# The door to the process that has the state of POP: frames go there as they came, through the ring `pops`;
# their answers come back through `pop_answers` (Answers). The owner has neither ring.
#
#   PD1  The owner hears of the end of every connection that it has had a frame of, so that nothing is
#        delivered to it later.
#   PD2  A frame that finds no room stays in its connection's buffer (transport N3). Frames that the owner had
#        when it died have no answer: a consumer asks again when its time is over, and what it had not
#        acknowledged comes again.
from libc.stdint cimport int32_t, uint64_t

from mqcore.net.remoting.frames cimport Request
from mqcore.net.transport.transport cimport Connection, Transport
from mqcore.shm.ring cimport Ring
from mqcore.shm.segment cimport Shm

cdef enum:
    POP_FRAME_MAX = 256 << 10

cdef struct PopDoor:
    Transport* transport
    Shm* shm
    bint on                            # another process is the owner
    Ring ring
    uint64_t* gone                     # PD1: connections whose end has found no room yet
    int32_t gone_count

# index: of this serving process. False: no memory.
cdef bint pops_connect(PopDoor* d, int index) noexcept nogil
cdef int pop_frame(PopDoor* d, Connection* c, const Request* request) noexcept nogil     # Handled
cdef void pops_closed(PopDoor* d, Connection* c) noexcept nogil
cdef void pops_say_gone(PopDoor* d) noexcept nogil
