# Dispatch: gives every published record its consume queue entry and its index keys, in log order,
# and tells the serving processes which queues grew (store.md 8).
#
#   D1  `dispatched` moves after all entries and keys below it are written; a dispatcher that starts
#       again repeats what lies behind it, and repeating writes the same bytes or nothing.
#   D2  A queue's max_offset moves after its entries are in the file (consume_queue C2), before
#       anybody is told.
#   D3  A listener is told of a queue when its interest_byte is set; it sets that byte, then looks at
#       max_offset; we store max_offset, then look at the byte: one of us sees the other. A queue's
#       first entries are told to all: pulls may wait for a queue that has no number yet.
#   D4  A record below its queue's restart_position is of a life that was ended: it gets no entry. The
#       writer sets that word, then removals_begun, then publishes further records; we look at
#       `published` first, so the files of the old life are gone before an entry of the new one.
#   D5  With `replicated_only` a record has no entry before others have it (shm/replica_gate.pxd), at who leads and
#       at who follows: who reads by queues never sees what the loss of a host would take back.
#   D6  Where records come one after the other, and no process waits for them, they are dispatched together: behind
#       work it rests for REST_MS at most (shm/segment.pxd). It is hurried by the writer, which looks at the
#       interest bytes of what it has published, and by those who begin to wait or find nothing, when not all
#       that is published is dispatched. Both sides write their flag before they read the other's, so no
#       waiting process is missed. With D5 the dispatcher never rests: slaves move the readable end.
from libc.stdint cimport int32_t, int64_t

from mqcore.layout cimport LISTENER_COUNT
from mqcore.shm.ring cimport Ring
from mqcore.shm.segment cimport Shm
from mqcore.shm.trace cimport Tracer
from mqcore.store.queue.bit_source cimport RecordBits
from mqcore.store.schedule.delivery_time cimport DelayLevels
from mqcore.store.queue.dispatch_queues cimport QueueBatch
from mqcore.store.index.file cimport KeyIndex
from mqcore.store.log.view cimport LogView
from mqcore.store.queue.multi_dispatch cimport MultiReader, NamedQueue
from mqcore.store.queue.extension cimport QueueExtension

cpdef enum DispatchFailure:
    DISPATCH_WELL = 0
    DISPATCH_BAD_RECORD = 1           # failure_position, failure_detail = ParseResult
    DISPATCH_UNKNOWN_QUEUE = 2        # failure_position
    DISPATCH_LOG_UNREADABLE = 3       # failure_detail = errno
    DISPATCH_IO = 4                   # failure_detail = errno; may pass, retried
    DISPATCH_REMOVAL = 5              # no failure: queues have to be removed before it goes on

cdef struct OddRecords:
    int64_t count
    int64_t position                  # where the first of them lies ...
    int64_t end                       # ... and where the last one ends

cdef struct Dispatcher:
    Shm* shm
    LogView log
    QueueBatch batch
    QueueExtension extension
    KeyIndex index
    bint index_enabled
    bint replicated_only              # D5
    DelayLevels delays
    NamedQueue* named                 # of one record
    MultiReader multi
    RecordBits* bits                  # NULL: units have no bit maps
    Ring arrivals[LISTENER_COUNT]     # those that there are; of the others the cursors are NULL
    int32_t removals_seen             # calls of the writer that were answered
    int64_t position
    int64_t batch_store_time_ms       # of the last record of this batch
    int64_t last_store_time_ms        # of the last record whose entries are written: for checkpoints
    int64_t first_store_time_ms       # of the first record of this turn
    int64_t records_count
    int64_t worked_ms                 # steady: when it last found records
    OddRecords odd                    # names O3: records without a queue
    OddRecords forged                 # multi_dispatch M5: that say they are where they cannot be
    int failure
    int failure_detail
    int64_t failure_position
    Tracer tracer

cdef int64_t dispatch_turn(Dispatcher* d) noexcept nogil        # records, or -1: d.failure
cdef bint dispatch_has_work(Dispatcher* d) noexcept nogil
