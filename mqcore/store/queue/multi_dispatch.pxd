# Multi-dispatch: one record in more queues than its own (store.md 2.11). The property
# INNER_MULTI_DISPATCH names them; the writer gives the record an offset in each, in the property
# INNER_MULTI_QUEUE_OFFSET, and the dispatcher puts it there.
#
#   M1  An entry is made only for offsets that the writer gave: it takes whatever else a client sent
#       as INNER_MULTI_QUEUE_OFFSET out of the record, whether it gives offsets now or not.
#   M2  A named queue's next_offset moves when the record is staged, and back when its write fails
#       (append.pxd, A4). Preparing a request moves nothing: it may be done again.
#   M3  What waits somewhere first (delayed and half messages, copies for retries, dead letters) is
#       in its own queue only: the message that comes of it is put into the named ones. Batches too
#       are in their own queue only.
#   M4  A delayed message is acknowledged before it is put into named queues. If that cannot be (a
#       name that no queue can have, no room for one more), it is delivered to its own queue alone.
#   M5  What the log says is believed as far as the writer can have written it: an offset is the
#       queue's next one, or there already. A log of another writer may say more; that is passed over,
#       by the recovery and the dispatcher alike, who both read in the log's order.
#   M6  While multi-dispatch is off, and whether %LMQ%... are light queues or not, the light queues that
#       there are keep the entries of the log: a start after a kill writes them again.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.layout cimport AppendHead
from mqcore.shm.segment cimport Shm
from mqcore.store.record cimport PropertyItem, RecordView

cdef enum:
    MULTI_NAMES_MAX = 8192            # what 32,767 bytes of properties can name, with offsets

cdef struct NamedQueue:
    int32_t queue                     # number in the queue table
    int64_t offset                    # of the record there

# -- the writer -----------------------------------------------------------------------------------
cdef struct MultiDispatch:
    Shm* shm
    bint enabled                      # else records are in their own queues only
    bint light_queues                 # else %LMQ%... are names like others
    int32_t light_count_max
    int32_t light_count               # at least as many as there are
    int32_t light_added               # by the request that is being prepared
    int64_t counted_ms                # when they were counted
    uint8_t* request                  # the request that was prepared: its head, then its records
    int64_t capacity
    NamedQueue* named                 # of its record; the caller moves their next_offset
    int32_t named_count

cdef int multi_open(MultiDispatch* m, Shm* shm) noexcept nogil            # 0 or errno
# From now on records get offsets in the queues that they name.
cdef void multi_enable(MultiDispatch* m, bint light_queues, int32_t light_count_max) noexcept nogil
cdef void multi_close(MultiDispatch* m) noexcept nogil
# Offsets into the records of a request, before they are staged; *head and *records then point to
# the copy that is to be staged. PutStatus.
cdef int multi_prepare(MultiDispatch* m, const AppendHead** head,
                       const uint8_t** records) noexcept nogil

# -- who reads records ----------------------------------------------------------------------------
# The offset that a queue's next entry gets, as far as this reader has come.
ctypedef int64_t (*NextOffset)(void* context, int32_t queue) noexcept nogil

cdef struct MultiReader:
    Shm* shm
    bint enabled
    bint light_queues
    bint adds                         # queues that the table does not have yet; else they are left out
    NextOffset next_offset
    void* context

# One that has read all that the writer has staged: the queue table's own next_offset; context: Shm.
cdef int64_t table_next(void* shm, int32_t queue) noexcept nogil
# False: a record has no offsets in queues besides its own. What most records say, and soon.
cdef bint multi_may_name(const RecordView* record) noexcept nogil
# Whether a record has offsets in queues besides its own, and how many names it has then, at least 1.
cdef int32_t multi_names(const RecordView* record, PropertyItem* names,
                         PropertyItem* offsets) noexcept nogil
# The queues that a record was put in besides its own, at most MULTI_NAMES_MAX; how many. impossible:
# set where it says more than the writer can have written (M5).
cdef int32_t multi_queues(const MultiReader* reader, const RecordView* record, NamedQueue* named,
                          bint* impossible) noexcept nogil
