# Sends: checked, encoded as records into the `appends` ring, answered when their results come.
#
#   N7  While the coordinator is asked about a send, later sends of its connection to the same topic
#       do not pass it: they are asked about as well, or wait as in transport N3.
from libc.stdint cimport int32_t, int64_t, uint64_t

from mqcore.net.identity cimport Identity
from mqcore.net.requests cimport SendRequest
from mqcore.net.serving.appends cimport Appends
from mqcore.net.serving.limits cimport Limits
from mqcore.net.transport.transport cimport Connection
from mqcore.layout cimport StoreClock
from mqcore.shm.segment cimport Shm

cdef struct Sends:
    Appends* appends
    const Identity* identity
    Limits* limits
    Shm* shm
    bint light_queues                  # topics %LMQ%... need no entry in the topic table
    int32_t delay_level_count
    bint transactions_refused          # rejectTransactionMessage
    bint timers_refused                # messages that ask for a time of delivery
    int64_t timer_max_ms               # how far it may be ahead; 0: they are delivered at once
    StoreClock clock                   # our copy of the run's
    int64_t accept_from_ms             # startAcceptSendRequestTimeStamp
    uint64_t random

# decided: the coordinator has looked at it. Handled.
cdef int serve_send(Sends* s, Connection* c, const SendRequest* request, bint decided) noexcept nogil
