# The end of a transaction (37; broker.md 5.2, 5.3): a commit stores the final message and then the op
# record that settles the half message, a rollback the op record alone.
#
#   E1  The op record is stored only if the final message is: it follows in the same ring and says
#       REQUEST_AFTER_PREVIOUS, and the log keeps their order over any crash.
#   E2  Only a half message is ended: one that the half queue's entry at tranStateTableOffset points
#       to, or that the log leads to while it has none yet (mqcore/store/log/named.pxd, O6). Bytes of
#       a body that look like one are refused, and so is a real topic that no queue can have.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.layout cimport StoreClock
from mqcore.net.remoting.access cimport AccessGuard
from mqcore.net.requests cimport EndRequest
from mqcore.net.serving.appends cimport Appends
from mqcore.net.transport.transport cimport Connection
from mqcore.store.log.named cimport NamedRecords

cdef struct Ends:
    Appends* appends
    NamedRecords named                 # what peers name by its log position
    const AccessGuard* guard
    const uint8_t* denied              # HANDLE_DENIED: the topic that was not to be published to
    int32_t denied_length
    int64_t timer_max_ms               # as in Sends
    StoreClock clock                   # our copy of the run's

# Handled; HANDLE_FORWARD: there is no such decision; HANDLE_DENIED: see `denied`.
cdef int serve_end(Ends* s, Connection* c, const EndRequest* request) noexcept nogil
