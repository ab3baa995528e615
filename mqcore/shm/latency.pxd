# How long things took: a histogram of each process and kind, on cache lines of its own
# (mqcore/figures.py, LATENCIES).
#
# Buckets are log-linear: below 4 us one for each microsecond, then four for each power of two. The
# process is the only writer of its histograms, and one thread of it; readers add the buckets up, so
# that no count is kept. Times in ms are put in the middle of their millisecond.
from libc.stdint cimport int64_t

from mqcore.layout cimport LATENCY_BUCKETS, LATENCY_COUNT, Latency

cdef extern from *:
    """
    #include <stdint.h>
    static inline int mq_latency_bucket(int64_t us, int buckets) {
      int power, bucket;
      if (us < 4) return us < 0 ? 0 : (int)us;
      power = 63 - __builtin_clzll((unsigned long long)us);
      bucket = 4 * (power - 1) + (int)((us >> (power - 2)) & 3);
      return bucket < buckets ? bucket : buckets - 1;
    }
    """
    int latency_bucket "mq_latency_bucket"(int64_t us, int buckets) noexcept nogil


cdef inline Latency* latency_of(Latency* latencies, int slot, int kind) noexcept nogil:
    """latencies: of the segment; kind: a LATENCY_ constant."""
    return &latencies[slot * LATENCY_COUNT + kind]


cdef inline void latency_add(Latency* latency, int64_t us, int64_t count) noexcept nogil:
    """`count` things took so long each; a clock's step back counts as 0."""
    latency.counts[latency_bucket(us, LATENCY_BUCKETS)] += count
    latency.sum_us += max(us, 0) * count


cdef inline void latency_add_ms(Latency* latency, int64_t ms) noexcept nogil:
    latency_add(latency, 1000 * max(ms, 0) + 500, 1)
