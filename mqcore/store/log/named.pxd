# Records at positions that peers name. A body may hold a whole record of somebody's making, and its
# place in the log is easily told; so what lies at a named position is believed only if it is known
# that a record begins there.
#
#   O6  The entry at the record's own place in its queue points to it, with its size; or it is not
#       dispatched yet, and the log's records from the dispatched position on lead to it. Before
#       that, nothing that it says is used.
#   O7  Records behind the dispatched position are passed by once: where they begin is remembered, one
#       for each 64 KiB. One look passes at most NAMED_RECORDS_MAX of them.
from libc.stdint cimport int64_t, uint8_t

from mqcore.shm.segment cimport Shm
from mqcore.store.log.view cimport LogView
from mqcore.store.queue.consume_queue cimport QueueFiles
from mqcore.store.record cimport RecordView

cdef enum:
    NAMED_RECORDS_MAX = 4096

cdef enum NamedResult:
    NAMED_RECORD = 0
    NAMED_NOTHING = 1                  # no record lies there, or none that can be read
    NAMED_FALSE = 2                    # bytes that look like one
    NAMED_LATER = 3                    # not known yet: look again

cdef struct NamedRecords:
    Shm* shm
    LogView* log
    QueueFiles* queues
    int64_t* begins                    # where a record begins, by 64 KiB of the log; NULL: none known

cdef void named_open(NamedRecords* n, Shm* shm, LogView* log, QueueFiles* queues) noexcept nogil
cdef void named_close(NamedRecords* n) noexcept nogil
# NamedResult; *bytes: the whole record, good as log_at says.
cdef int named_record(NamedRecords* n, int64_t position, RecordView* record,
                      const uint8_t** bytes) noexcept nogil
