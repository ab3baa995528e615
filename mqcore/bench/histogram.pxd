# Log-linear latency histogram of the load generator: fixed memory, one increment per value.
#
# A value v (ns) below 2 * SUB counts exactly; above, each power of two has SUB equal slots, so a
# slot's upper end is at most 1 / SUB (1.6 %) above the value. Values past VALUE_MAX count as it.
from libc.stdint cimport int32_t, int64_t, uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    static inline int mq_top_bit(uint64_t v) { return 63 - __builtin_clzll(v); }
    """
    int top_bit "mq_top_bit"(uint64_t value) noexcept nogil      # value must not be 0

cdef enum:
    HISTOGRAM_SUB_BITS = 6
    HISTOGRAM_SUB = 1 << HISTOGRAM_SUB_BITS
    HISTOGRAM_TOP_BIT_MAX = 41                     # 2 ** 42 ns: more than an hour
    HISTOGRAM_SLOTS = (HISTOGRAM_TOP_BIT_MAX - HISTOGRAM_SUB_BITS + 2) * HISTOGRAM_SUB

cdef struct Histogram:
    int64_t count
    int64_t total_ns
    int64_t max_ns
    int64_t slots[HISTOGRAM_SLOTS]


cdef inline int32_t histogram_slot(int64_t value_ns) noexcept nogil:
    cdef int shift
    if value_ns < 2 * HISTOGRAM_SUB:
        return <int32_t>value_ns if value_ns > 0 else 0
    if value_ns >> (HISTOGRAM_TOP_BIT_MAX + 1):
        return HISTOGRAM_SLOTS - 1
    shift = top_bit(<uint64_t>value_ns) - HISTOGRAM_SUB_BITS
    return (shift << HISTOGRAM_SUB_BITS) + <int32_t>(value_ns >> shift)


cdef inline void histogram_record(Histogram* histogram, int64_t value_ns) noexcept nogil:
    histogram.slots[histogram_slot(value_ns)] += 1
    histogram.count += 1
    histogram.total_ns += value_ns
    if value_ns > histogram.max_ns:
        histogram.max_ns = value_ns


cdef void histogram_clear(Histogram* histogram) noexcept nogil
cdef int64_t histogram_percentile(const Histogram* histogram, double percent) noexcept nogil
cdef dict histogram_summary(const Histogram* histogram)
