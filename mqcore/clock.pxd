# The two clocks, asked once a turn by the native loops; everything below them takes now_ms. Only what
# measures how long a turn takes asks once more.
from libc.stdint cimport int64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <time.h>
    static inline int64_t mq_clock_ms(clockid_t clock) {
      struct timespec t;
      clock_gettime(clock, &t);
      return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
    }
    static inline int64_t mq_clock_us(clockid_t clock) {
      struct timespec t;
      clock_gettime(clock, &t);
      return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
    }
    #define mq_wall_ms() mq_clock_ms(CLOCK_REALTIME)
    #define mq_steady_ms() mq_clock_ms(CLOCK_MONOTONIC)
    #define mq_steady_us() mq_clock_us(CLOCK_MONOTONIC)
    """
    int64_t wall_ms "mq_wall_ms"() noexcept nogil
    int64_t steady_ms "mq_steady_ms"() noexcept nogil
    int64_t steady_us "mq_steady_us"() noexcept nogil
