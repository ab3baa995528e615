# Pulls: checked, looked up, filtered, answered from the mapped log; or held (held.pxd).
from libc.stdint cimport int64_t

from mqcore.net.requests cimport PullRequest
from mqcore.net.serving.offset_commits cimport OffsetCommits
from mqcore.net.serving.held_places cimport HeldPulls
from mqcore.net.serving.scan cimport StoreReader
from mqcore.net.serving.wanted cimport Wants
from mqcore.net.transport.transport cimport Connection, Transport
from mqcore.shm.segment cimport Shm

cdef struct Pulls:
    Transport* transport
    Shm* shm
    StoreReader* reader
    Wants* wants
    HeldPulls* held
    OffsetCommits* offset_commits
    bint light_queues                  # topics and groups %LMQ%... need no entry in the tables
    bint long_polling
    int64_t short_polling_ms
    bint slave_read                    # slaveReadEnable
    bint slave                         # this is one
    bint taking_over                   # it leads, and does not yet show its whole log (leadership FO10)

# decided: the coordinator has looked at it. Handled.
cdef int serve_pull(Pulls* p, Connection* c, const PullRequest* request, bint decided) noexcept nogil
