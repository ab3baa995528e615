# Requests that the coordinator has whole, and owes an answer.
#
#   N16  Requests that a dead coordinator had taken from the ring are answered once by us: whether
#        they were done is not known. Its successor handles the requests still in the ring; it has
#        ORPHAN_LIFE_MS from its start, ASKED_LIFE_MS at most. A frame that was half on its way in
#        parts goes to the successor from its beginning (forward N15).
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.net.transport.transport cimport Connection, Transport
from mqcore.wire.header cimport Header

cdef enum:
    ORPHAN_LIFE_MS = 2000              # of what a coordinator that died had, after the next start

cdef struct Asking:
    Transport* transport
    int64_t number                     # of the newest request that the coordinator owes an answer ...
    int64_t orphaned_number            # ... and of the newest of those that another one was asked
    int64_t orphaned_ms                # steady: when the coordinator was met ...
    int64_t orphans_since_ms           # ... and the first after whom orphans were not looked at; 0: none

# A request went to the coordinator; one whose answer nobody waits for is not kept. Of a connection
# with more than ASKED_MAX the oldest is forgotten.
cdef void asked_add(Asking* a, Connection* c, const Header* header) noexcept nogil
# A frame for the connection came from the coordinator: what it answers is settled; what it asks may be
# answered (forward N24).
cdef void asked_answered(Connection* c, const uint8_t* frame, int64_t length) noexcept nogil
# The coordinator is another one since now.
cdef void asked_orphaned(Asking* a) noexcept nogil
# Answers orphans that are due; running_since_ms: when the coordinator was last seen to be another one
# that runs.
cdef void asked_answer_orphans(Asking* a, int64_t running_since_ms) noexcept nogil
