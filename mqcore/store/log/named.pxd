# Records at positions that peers name. A body may hold a whole record of somebody's making, and its
# place in the log is easily told; so what lies at a named position is believed only if it is known
# that a record begins there.
#
#   O6  The entry at the record's own place in its queue points to it, with its size; or it is not
#       dispatched yet, and the log's records from the dispatched position on lead to it. Before
#       that, nothing that it says is used.
#   O7  Records behind the dispatched position are passed by once: where they begin is remembered, one
#       for each 64 KiB. One look passes at most NAMED_RECORDS_MAX of them.
#   O8  Entries are read NAMED_ENTRIES at a time and remembered: what an entry said once stays true in
#       a run, since no log position that was dispatched is written again. One that was read before it
#       was written is read again.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.layout cimport CQ_ENTRY_SIZE
from mqcore.shm.segment cimport Shm
from mqcore.store.log.view cimport LogView
from mqcore.store.queue.consume_queue cimport QueueFiles
from mqcore.store.record cimport RecordView

cdef enum:
    NAMED_RECORDS_MAX = 4096
    NAMED_ENTRIES = 128

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
    int32_t entries_queue              # O8: whose entries are remembered, -1: nobody's ...
    int64_t entries_first              # ... from this queue offset on
    uint8_t[NAMED_ENTRIES * CQ_ENTRY_SIZE] entries

cdef void named_open(NamedRecords* n, Shm* shm, LogView* log, QueueFiles* queues) noexcept nogil
cdef void named_close(NamedRecords* n) noexcept nogil
# NamedResult; *bytes: the whole record, good as log_at says.
cdef int named_record(NamedRecords* n, int64_t position, RecordView* record,
                      const uint8_t** bytes) noexcept nogil
