# What verification asks of a record by itself: impossible fields, the properties that queues and index
# go by, the time of delivery.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.store.record cimport PropertyItem, RecordView
from mqcore.store.verify.findings cimport Findings

cdef struct Properties:
    PropertyItem tags
    PropertyItem unique
    PropertyItem keys
    PropertyItem delay
    PropertyItem names
    PropertyItem offsets

cdef void properties_of(const RecordView* record, Properties* p) noexcept nogil
# The rules that a record's fields have to keep, whatever wrote it (store.md 2).
cdef void check_fields(Findings* f, const uint8_t* at, const RecordView* record) noexcept nogil
# When a record of the schedule topic is due (store.md 3.2), or -1: it carries a tag code. delay_ms:
# by level, from 1 to `levels`.
cdef int64_t delivery_ms(const int64_t* delay_ms, int32_t levels, const RecordView* record,
                         const PropertyItem* delay) noexcept nogil
