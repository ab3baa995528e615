# The half queue and the op queue of transactions, read together (broker.md 5.3, 5.4).
#
# A half message is settled when an op record names it, or when it was put back, revived elsewhere or
# given up. Two bits each say so, from the first unsettled on: a million pending half messages are
# 256 KiB here. Of op records only the highest half offset of each block is kept.
#
#   U1  Every half message below half_offset is settled. Every op record below op_offset names a half
#       message below half_offset: after a restart from the two nothing is forgotten.
#   U2  half_offset and op_offset never go back.
#   U3  An op record for a half message that was put back also settles its copy, if the copy is among
#       the newest MOVED_PLACES: the copy is not checked again.
#   U4  A half message is gone only when its queue or the log says so; what cannot be read now is
#       neither gone nor settled.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.shm.segment cimport Shm
from mqcore.store.queue.consume_queue cimport QueueFiles
from mqcore.store.log.view cimport LogView
from mqcore.store.record cimport RecordView

cdef enum:
    OPS_AT_ONCE = 1024
    OP_BLOCKS = 1 << 12                # when they are too few, blocks of twice the length are made
    OP_BLOCK_START = 64                # op records
    MOVED_PLACES = 1 << 16

cdef enum HalfState:
    HALF_FOUND = 0
    HALF_GONE = 1                      # expired, or nothing that could be read ever
    HALF_UNREADABLE = 2                # now

cdef struct Moved:                     # a half message and its copy
    int64_t before                     # the half message's offset and one more; 0: this place is empty
    int64_t new

cdef struct HalfQueue:
    Shm* shm
    LogView log
    QueueFiles queues
    int32_t half_number                # in the queue table, -1: the queue is not born yet
    int32_t op_number
    int64_t half_offset
    int64_t op_offset
    int64_t op_read                    # op records below it were looked at
    int64_t strange                    # records that name nothing or say nothing: they settle nothing
    uint8_t* settled                   # a bit by half offset, from settled_base on
    uint8_t* ended                     # as `settled`: an op record names it
    int64_t settled_base               # a multiple of eight
    int64_t settled_capacity           # bytes
    int64_t settled_count              # bits set at or above half_offset
    int64_t* op_halves                 # highest half offset that a block of op records settles
    int64_t op_block                   # op records in a block; a power of two
    Moved* moved
    bint moves                         # at least one is not empty
    uint8_t* entries
    int64_t entries_first              # half offset of the entries that are in `entries`
    int32_t entries_count

# 0 or errno; folders as for log_view_open and queue_files_open.
cdef int half_queue_open(HalfQueue* h, Shm* shm, const char* log_folder, const char* queue_folder,
                         int64_t file_entries) noexcept nogil
cdef void half_queue_close(HalfQueue* h) noexcept nogil
# Where an earlier process stood; corrected to what the queues have.
cdef void half_queue_seek(HalfQueue* h, int64_t half_offset, int64_t op_offset) noexcept nogil
cdef int64_t half_queue_end(HalfQueue* h) noexcept nogil
cdef int64_t half_queue_first(HalfQueue* h) noexcept nogil    # of what has not expired
cdef bint half_ops_wait(HalfQueue* h) noexcept nogil       # op records that were not looked at
# Looks at up to OPS_AT_ONCE of them; returns how many, -1: no memory or not readable now.
cdef int32_t half_read_ops(HalfQueue* h) noexcept nogil
cdef bint half_is_settled(HalfQueue* h, int64_t offset) noexcept nogil
# Whether an op record names it, of those from half_offset on.
cdef bint half_is_ended(HalfQueue* h, int64_t offset) noexcept nogil
cdef bint half_settle(HalfQueue* h, int64_t offset) noexcept nogil             # False: no memory
cdef int64_t half_next(HalfQueue* h, int64_t offset, int64_t end) noexcept nogil    # unsettled, or end
# A half message is stored again; original: what it is a copy of, -1: of none (U3). False: no memory.
cdef bint half_moved(HalfQueue* h, int64_t old, int64_t original, int64_t new) noexcept nogil
# U1; half messages from `limit` on stay, whatever is known of them.
cdef void half_advance(HalfQueue* h, int64_t limit) noexcept nogil
cdef void half_pass_expired(HalfQueue* h) noexcept nogil
# The record at a half offset: HalfState; NULL unless it is found.
cdef int half_record(HalfQueue* h, int64_t offset, RecordView* record,
                     const uint8_t** bytes) noexcept nogil
