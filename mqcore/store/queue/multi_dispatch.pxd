# Multi-dispatch: one record in more queues than its own (store.md 2.11). The property
# INNER_MULTI_DISPATCH names them; the writer gives the record an offset in each, in the property
# INNER_MULTI_QUEUE_OFFSET, and the dispatcher puts it there.
#
#   M1  An entry is made only for offsets that the writer gave: it takes whatever else a client sent
#       as INNER_MULTI_QUEUE_OFFSET out of the record.
#   M2  A named queue's next_offset moves when the record is staged, and back when its write fails
#       (append.pxd, A4). Preparing a request moves nothing: it may be done again.
#   M3  What waits somewhere first (delayed and half messages, copies for retries, dead letters) is
#       in its own queue only: the message that comes of it is put into the named ones. Batches too
#       are in their own queue only.
#   M4  A delayed message is acknowledged before it is put into named queues. If that cannot be (a
#       name that no queue can have, no room for one more), it is delivered to its own queue alone.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.layout cimport AppendHead
from mqcore.shm.segment cimport Shm
from mqcore.store.record cimport RecordView

cdef enum:
    MULTI_NAMES_MAX = 8192            # what 32,767 bytes of properties can name, with offsets

cdef struct NamedQueue:
    int32_t queue                     # number in the queue table
    int64_t offset                    # of the record there

# -- the writer -----------------------------------------------------------------------------------
cdef struct MultiDispatch:
    Shm* shm
    bint light_queues                 # else %LMQ%... are names like others
    int32_t light_count_max
    int32_t light_count               # at least as many as there are
    int32_t light_added               # by the request that is being prepared
    int64_t counted_ms                # when they were counted
    uint8_t* request                  # the request that was prepared: its head, then its records
    int64_t capacity
    NamedQueue* named                 # of its record; the caller moves their next_offset
    int32_t named_count

cdef int multi_open(MultiDispatch* m, Shm* shm, bint light_queues,
                    int32_t light_count_max) noexcept nogil              # 0 or errno
cdef void multi_close(MultiDispatch* m) noexcept nogil
# Offsets into the records of a request, before they are staged; *head and *records then point to
# the copy that is to be staged. PutStatus.
cdef int multi_prepare(MultiDispatch* m, const AppendHead** head,
                       const uint8_t** records) noexcept nogil

# -- who reads records ----------------------------------------------------------------------------
# The queues that a record was put in besides its own, at most MULTI_NAMES_MAX; how many. Adds those
# that the queue table does not have yet if `add`, else leaves them out.
cdef int32_t multi_queues(Shm* shm, bint light_queues, const RecordView* record, bint add,
                          NamedQueue* named) noexcept nogil
