# When a delayed message is due: what the queue entries of SCHEDULE_TOPIC_XXXX hold instead of a tag
# code (store.md 3.2).
from libc.stdint cimport int32_t, int64_t

from mqcore.layout cimport DELAY_LEVEL_MAX
from mqcore.store.record cimport PropertyItem, RecordView


cdef struct DelayLevels:
    int32_t count                     # levels 1 to count
    int64_t delay_ms[DELAY_LEVEL_MAX + 1]   # by level; [0]: what an unknown level waits

cdef int delay_levels_set(DelayLevels* levels, object delays_ms) except -1
# The delivery time of a record with this DELAY property, in ms since 1970; -1: the record is not one
# of the schedule topic, its entry carries its tag code.
cdef int64_t delivery_time_ms(const DelayLevels* levels, const RecordView* record,
                              const PropertyItem* delay) noexcept nogil
