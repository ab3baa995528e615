# The one shared memory segment of a run: who finds what where.
#
# The supervisor creates and unlinks it; every other process inherits the mapping by fork, or attaches
# by name (tools). Where its memory lies: memory.py; how its tables get their pages: reserve.pxd. Nothing in it is trusted further than its owner (layout.pxd names them).
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from mqcore.atomics cimport load_i32_acquire
from mqcore.layout cimport (
    REFUSAL_NONE,
    SLOT_COUNT,
    FilterEntry,
    GroupEntry,
    Latency,
    Leadership,
    LimitPlace,
    LiveSettings,
    LogState,
    MasterPlace,
    QueueEntry,
    ReplicaGate,
    RingPlace,
    ScheduleState,
    ShmHead,
    StoreClock,
    SubscriptionEntry,
    TopicEntry,
    Trace,
    TraceRing,
    TransactionState,
    WorkerSlot,
)
from mqcore.shm.ring cimport Ring


cdef struct Shm:                  # resolved addresses in one process
    uint8_t* base
    ShmHead* head
    WorkerSlot* slots
    Latency* latencies            # by latency_of (latency.pxd)
    LogState* log
    StoreClock* clock
    TopicEntry* topics
    int32_t* topic_index
    GroupEntry* groups
    int32_t* group_index
    SubscriptionEntry* subscriptions
    int32_t* subscription_index
    QueueEntry* queues
    int32_t* queue_index
    uint8_t* interest             # by interest_byte
    ReplicaGate* replica_gate
    ScheduleState* schedule
    TransactionState* transactions
    LiveSettings* live_settings
    LiveSettings* said_settings
    MasterPlace* master_place
    Leadership* leadership
    LimitPlace* limits
    FilterEntry* filters
    uint8_t* filter_arena
    Trace* trace
    TraceRing* trace_rings        # the writer's, the dispatcher's, then those of serving processes
    int memory                    # descriptor of named memory, whose pages are asked for; else -1
    uint32_t limits_granted       # parts of `limits` whose pages this process knows of; limits.pyx


cdef class Segment:
    cdef Shm shm
    cdef object mapping
    cdef readonly str name
    cdef readonly bint owner
    cdef readonly bint named          # in /dev/shm; else in a memfd (memory.py)
    cdef int descriptor               # of the memory; -1: closed
    cdef int bells_of                 # the process that made the bells closes its copies; 0: nobody
    cdef int bells[SLOT_COUNT]


# Whether the log takes no writes now, by any of the words that say so.
cdef inline bint log_refuses(const LogState* log) noexcept nogil:
    return (load_i32_acquire(&log.refusal) != REFUSAL_NONE
            or load_i32_acquire(&log.disk_full_percent) != 0
            or load_i32_acquire(&log.unreadable) != 0
            or load_i32_acquire(&log.elsewhere) != 0)

cdef void shm_producer(Shm* shm, RingPlace* place, Ring* ring) noexcept nogil
cdef void shm_consumer(Shm* shm, RingPlace* place, Ring* ring) noexcept nogil

# -- doorbells: sleep and wake ----------------------------------------------------------------------
#    A process that is about to sleep calls doorbell_arm, looks at its rings once more, and sleeps in
#    epoll on its eventfd. Who has published something for it calls doorbell_ring: a system call only
#    if the other sleeps, and only one of several callers makes it.
#
#    A process *rests* when more to do is no reason to wake it: it looks by itself in a moment, or has
#    no use for it. doorbell_hurry says that a process waits for what was published before: a process that is
#    about to rest looks at that word in place of its rings, and takes it back before it looks at what there
#    is to do.
cdef void doorbell_arm(WorkerSlot* slot) noexcept nogil
cdef void doorbell_rest(WorkerSlot* slot) noexcept nogil
cdef void doorbell_disarm(WorkerSlot* slot) noexcept nogil
cdef void doorbell_ring(WorkerSlot* slot) noexcept nogil
cdef void doorbell_grew(WorkerSlot* slot) noexcept nogil          # as doorbell_ring, but who rests rests on
cdef void doorbell_hurry(WorkerSlot* slot) noexcept nogil
cdef bint doorbell_hurried(WorkerSlot* slot) noexcept nogil
cdef void doorbell_take_hurry(WorkerSlot* slot) noexcept nogil
cdef void followers_ring(Shm* shm) noexcept nogil          # all that follow the log: it has grown
cdef void dispatch_hurry(Shm* shm) noexcept nogil          # a process waits for what is published

# Where a listener says whether it wants to hear of a queue
cdef inline uint8_t* interest_byte(Shm* shm, int listener, int32_t queue) noexcept nogil:
    return &shm.interest[<int64_t>shm.head.listener_row[listener] * shm.head.queue_capacity + queue]
