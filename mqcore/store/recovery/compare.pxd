# What the consume queues have to hold at a start; queues.pxd has the rules.
from libc.stdint cimport int32_t, int64_t

from mqcore.store.record cimport RecordView
from mqcore.store.recovery.cut cimport QueueCutting
from mqcore.store.queue.consume_queue cimport QueueItem

cdef int64_t NO_LIFE                  # no log position


cdef class QueueComparison(QueueCutting):
    cdef int64_t stretch_bytes
    cdef int64_t missing              # log position from which entries are missing

    cdef bint as_known(self, int32_t number, int64_t unchanged_ns, bint in_place) noexcept nogil
    cdef bint read_entry(self, int32_t number, int64_t offset, QueueItem* item) noexcept nogil
    cdef bint read_record(self, const QueueItem* item, int64_t limit,
                          RecordView* record) noexcept nogil
    cdef bint last_is_right(self, int32_t number) noexcept nogil
    cdef int64_t first_wrong(self, int32_t number) noexcept nogil
    cdef int64_t boundary(self, int64_t low, int64_t end)
    cdef int compare(self, int64_t position, int64_t limit, dict strangers) except -1
    cdef bint is_held(self, RecordView* record, int64_t position) noexcept nogil
