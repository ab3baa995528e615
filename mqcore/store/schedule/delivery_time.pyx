"""Delivery times of delayed messages (delivery_time.pxd)."""
from libc.stdint cimport int32_t, int64_t

from mqcore.layout cimport DELAY_LEVEL_MAX
from mqcore.store.record cimport PropertyItem, RecordView
from mqcore.store.topic_names cimport is_schedule_topic
from mqcore.text cimport is_digit

cdef enum:
    UNKNOWN_LEVEL_MS = 1000
    LEVEL_DIGITS_MAX = 9


cdef int delay_levels_set(DelayLevels* levels, object delays_ms) except -1:
    """delays_ms: of level 1, 2, ... in ms, as parse_delay_levels gives them."""
    cdef int32_t level
    if len(delays_ms) > DELAY_LEVEL_MAX:
        raise ValueError(f"{len(delays_ms)} delay levels: expected at most {DELAY_LEVEL_MAX}")
    levels.count = <int32_t>len(delays_ms)
    levels.delay_ms[0] = UNKNOWN_LEVEL_MS
    for level in range(levels.count):
        levels.delay_ms[level + 1] = delays_ms[level]
    return 0


cdef int64_t delivery_time_ms(const DelayLevels* levels, const RecordView* record,
                              const PropertyItem* delay) noexcept nogil:
    cdef int64_t level = 0
    cdef int32_t i
    if delay.value_length == 0 or not is_schedule_topic(record.topic, record.topic_length):
        return -1
    for i in range(min(delay.value_length, LEVEL_DIGITS_MAX)):
        if not is_digit(delay.value[i]):
            level = 0                              # no number: an unknown level
            break
        level = level * 10 + delay.value[i] - c'0'
    return record.store_time_ms + levels.delay_ms[min(level, <int64_t>levels.count)]
