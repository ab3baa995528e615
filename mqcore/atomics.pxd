# Memory ordering on shared words. Loads acquire, stores release; everything stronger is named.
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef extern from "mq_atomics.h" nogil:
    int64_t load_i64_acquire "mq_load_i64"(const int64_t* word) noexcept
    void store_i64_release "mq_store_i64"(int64_t* word, int64_t value) noexcept
    int32_t load_i32_acquire "mq_load_i32"(const int32_t* word) noexcept
    void store_i32_release "mq_store_i32"(int32_t* word, int32_t value) noexcept
    uint8_t load_u8_acquire "mq_load_u8"(const uint8_t* word) noexcept
    void store_u8_release "mq_store_u8"(uint8_t* word, uint8_t value) noexcept
    int32_t exchange_i32 "mq_exchange_i32"(int32_t* word, int32_t value) noexcept
    bint swap_i64 "mq_swap_i64"(int64_t* word, int64_t expected, int64_t value) noexcept
    void full_fence "mq_full_fence"() noexcept
    void acquire_fence "mq_acquire_fence"() noexcept
    void release_fence "mq_release_fence"() noexcept
    void cpu_pause "mq_pause"() noexcept
