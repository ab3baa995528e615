"""Latency histogram with bounded memory and a relative error of at most 1.6 %."""
from libc.string cimport memset

PERCENTS = (50.0, 90.0, 99.0, 99.9, 99.99)


cdef int64_t _slot_upper_end(int32_t slot) noexcept nogil:
    cdef int shift
    if slot < 2 * HISTOGRAM_SUB:
        return slot
    shift = (slot >> HISTOGRAM_SUB_BITS) - 1
    return ((<int64_t>(slot - (shift << HISTOGRAM_SUB_BITS)) + 1) << shift) - 1


cdef void histogram_clear(Histogram* histogram) noexcept nogil:
    memset(histogram, 0, sizeof(Histogram))


cdef int64_t histogram_percentile(const Histogram* histogram, double percent) noexcept nogil:
    cdef int64_t seen = 0
    cdef int64_t wanted = <int64_t>(histogram.count * percent / 100.0 + 0.5)
    cdef int32_t slot
    if histogram.count == 0:
        return 0
    if wanted < 1:
        wanted = 1
    for slot in range(HISTOGRAM_SLOTS):
        seen += histogram.slots[slot]
        if seen >= wanted:
            return min(_slot_upper_end(slot), histogram.max_ns)
    return histogram.max_ns


cdef dict histogram_summary(const Histogram* histogram):
    result = {"count": histogram.count, "max_us": histogram.max_ns / 1000.0}
    result["mean_us"] = histogram.total_ns / 1000.0 / histogram.count if histogram.count else 0.0
    for percent in PERCENTS:
        result[f"p{percent:g}_us"] = histogram_percentile(histogram, percent) / 1000.0
    return result


cdef class LatencyHistogram:
    """The histogram for tests and tools; values are nanoseconds."""

    cdef Histogram _histogram

    def __cinit__(self):
        histogram_clear(&self._histogram)

    def record(self, int64_t value_ns) -> None:
        """Count one value; a negative one counts as 0."""
        histogram_record(&self._histogram, value_ns if value_ns > 0 else 0)

    def percentile_ns(self, double percent) -> int:
        """The value that `percent` of all values do not exceed; 0 when there are none."""
        return histogram_percentile(&self._histogram, percent)

    def summary(self) -> dict:
        """count, mean, max and percentiles in microseconds."""
        return histogram_summary(&self._histogram)
