# What the coordinator answers, through `answers`: frames for connections, parked requests to be run.
# A connection with more than OUT_MAX_BYTES of answers that it does not read is closed
# (transport N2).
#
#   N6  What a connection did not ask for (a question about a transaction) is dropped while it has
#       more than OUT_OFFER_BYTES unread. The coordinator is told who does not read (OUT_HIGH_BYTES),
#       and who reads again, so that it asks others.
#   N23  Parts of a frame follow each other, all but the first marked. A new first part drops the
#        parts gathered before: the coordinator died between two parts. A part without its beginning
#        is dropped.
from libc.stdint cimport int64_t, uint8_t, uint64_t

from mqcore.net.serving.handler cimport RequestHandler
from mqcore.net.serving.forward cimport Forwarding
from mqcore.net.serving.parked cimport Parking
from mqcore.net.transport.transport cimport Transport
from mqcore.shm.ring cimport Ring
from mqcore.shm.segment cimport Shm

cdef struct Answers:
    Transport* transport
    Shm* shm
    Parking* parking
    Forwarding* forwarding
    RequestHandler* handler
    Ring ring                          # `answers`, or `pop_answers` (pops.pxd) ...
    int32_t slot                       # ... of this process
    uint8_t* frame                     # that comes in parts ...
    int64_t length
    int64_t capacity
    uint64_t connection                # ... for this one

cdef void take_answers(Answers* a) noexcept nogil
