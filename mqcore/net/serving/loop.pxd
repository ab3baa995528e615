# One serving process: its rooms put together, and their turns.
from libc.stdint cimport int32_t, int64_t

from mqcore.layout cimport WorkerSlot
from mqcore.net.identity cimport Identity
from mqcore.net.remoting.access cimport AccessGuard
from mqcore.net.remoting.say cimport Voice
from mqcore.net.requests cimport Front
from mqcore.net.serving.answers cimport Answers
from mqcore.net.serving.appends cimport Appends
from mqcore.net.serving.offset_commits cimport OffsetCommits
from mqcore.net.serving.handler cimport RequestHandler
from mqcore.net.serving.forward cimport Forwarding
from mqcore.net.serving.held_places cimport HeldPulls
from mqcore.net.serving.limits cimport Limits
from mqcore.net.serving.parked cimport Parking
from mqcore.net.serving.pops cimport PopDoor
from mqcore.net.serving.pull cimport Pulls
from mqcore.net.serving.requests_ring cimport RequestsRing
from mqcore.net.serving.scan cimport StoreReader
from mqcore.net.serving.send cimport Sends
from mqcore.net.serving.transaction cimport Ends
from mqcore.net.serving.wanted cimport Wants
from mqcore.net.transport.tls_context cimport TlsContext
from mqcore.net.transport.transport cimport Transport
from mqcore.shm.segment cimport Segment, Shm
from mqcore.shm.trace cimport Tracer

cdef enum:                             # kinds of listeners
    KIND_MAIN = 0
    KIND_FAST = 1                      # the port beside it that takes no pulls (broker.md 1.1)
    KIND_OTHER = 2                     # of another front
    KINDS = 3

cdef struct Server:
    Shm* shm
    WorkerSlot* slot
    Front[KINDS] fronts                # by kind of listener
    Identity identity
    Transport transport
    Tracer tracer
    Voice voice
    Limits limits
    AccessGuard guard
    Appends appends
    Sends sends
    Ends ends
    Wants wants
    StoreReader reader
    HeldPulls held
    Pulls pulls
    RequestsRing requests
    OffsetCommits offset_commits
    Parking parking
    Forwarding forwarding
    PopDoor pops
    RequestHandler handler
    Answers answers
    Answers pop_answers
    int32_t writer_incarnation
    int32_t dispatcher_incarnation
    int32_t coordinator_incarnation    # that was seen to run
    bint slave                         # of a run in which nobody is elected (leadership.pxd)
    int64_t tick_ms                    # steady: when timers were looked at last
    int64_t front_due_ms               # steady: when another front wants a turn
    int32_t trim_waits                 # seconds since freed pages could be given back


cdef class ServingLoop:
    cdef Segment segment
    cdef Server* s
    cdef object listeners
    cdef TlsContext tls_context
    cdef int32_t trims_seen

    cdef connect(self)
    cdef limit(self, tuple address, tuple account, tuple exempt)
    cdef fill_identity(self, tuple store_address, str cluster, str broker_name)
    cdef open_store(self, bytes log_folder, bytes queue_folder, bytes extension_folder,
                    int64_t file_entries, int64_t extension_file_bytes, int32_t queue_files_max,
                    int32_t extension_files_max)
    cdef void forget_deleted(self) noexcept nogil
