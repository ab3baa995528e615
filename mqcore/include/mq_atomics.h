/* Memory ordering on words in shared memory: the only place that names an order. */
#ifndef MQ_ATOMICS_H
#define MQ_ATOMICS_H
#include <stdint.h>

static inline int64_t mq_load_i64(const int64_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
static inline void mq_store_i64(int64_t *word, int64_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }
static inline int32_t mq_load_i32(const int32_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
static inline void mq_store_i32(int32_t *word, int32_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }
static inline uint8_t mq_load_u8(const uint8_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
static inline void mq_store_u8(uint8_t *word, uint8_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }
static inline int32_t mq_exchange_i32(int32_t *word, int32_t value) { return __atomic_exchange_n(word, value, __ATOMIC_SEQ_CST); }
/* Puts `value` where `expected` is found; says whether it was. */
static inline int mq_swap_i64(int64_t *word, int64_t expected, int64_t value) {
  return __atomic_compare_exchange_n(word, &expected, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE);
}
/* Store, then load: neither side of "publish, then look whether the other sleeps" may be reordered. */
static inline void mq_full_fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void mq_acquire_fence(void) { __atomic_thread_fence(__ATOMIC_ACQUIRE); }
static inline void mq_release_fence(void) { __atomic_thread_fence(__ATOMIC_RELEASE); }
static inline void mq_pause(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}
#endif
