# The two clocks, asked once a turn by the native loops; everything below them takes now_ms. Only what
# measures how long a turn takes asks once more. The steady clock says how long something waits, the wall
# clock is for times that leave the process (docs/clocks.md).
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
    static inline int64_t mq_clock_ns(clockid_t clock) {
      struct timespec t;
      clock_gettime(clock, &t);
      return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    }
    /* Both at one instant: again if this process lost its core between the two. The wall clock is
       rounded so that their difference stays the same, and up: never below what others read before. */
    static inline void mq_clocks(int64_t *wall, int64_t *steady_us) {
      int64_t before, between, after, apart;
      int tries = 0;
      do {
        before = mq_clock_ns(CLOCK_MONOTONIC);
        between = mq_clock_ns(CLOCK_REALTIME);
        after = mq_clock_ns(CLOCK_MONOTONIC);
      } while (after - before > 500000 && ++tries < 10);
      apart = between - before;
      *steady_us = before / 1000;
      *wall = before / 1000000 + (apart + 999999) / 1000000;
    }
    static inline void mq_clocks_ms(int64_t *wall, int64_t *steady) {
      mq_clocks(wall, steady);
      *steady /= 1000;
    }
    #define mq_wall_ms() mq_clock_ms(CLOCK_REALTIME)
    #define mq_steady_ms() mq_clock_ms(CLOCK_MONOTONIC)
    #define mq_steady_us() mq_clock_us(CLOCK_MONOTONIC)
    #define mq_boot_ns() mq_clock_ns(CLOCK_BOOTTIME)
    """
    int64_t wall_ms "mq_wall_ms"() noexcept nogil
    int64_t steady_ms "mq_steady_ms"() noexcept nogil
    int64_t steady_us "mq_steady_us"() noexcept nogil
    int64_t boot_ns "mq_boot_ns"() noexcept nogil        # as the steady clock, and goes on while the host sleeps
    void clocks "mq_clocks"(int64_t* wall_ms, int64_t* steady_us) noexcept nogil
    void clocks_ms "mq_clocks_ms"(int64_t* wall, int64_t* steady) noexcept nogil
