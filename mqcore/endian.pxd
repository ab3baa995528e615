# Big-endian loads and stores at any alignment: RocketMQ's wire and files.
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:
    I32_SIZE = 4
    I64_SIZE = 8

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    static inline uint16_t mq_be16(const void *p) { uint16_t v; memcpy(&v, p, 2); return __builtin_bswap16(v); }
    static inline uint32_t mq_be32(const void *p) { uint32_t v; memcpy(&v, p, 4); return __builtin_bswap32(v); }
    static inline uint64_t mq_be64(const void *p) { uint64_t v; memcpy(&v, p, 8); return __builtin_bswap64(v); }
    static inline void mq_set_be16(void *p, uint16_t v) { v = __builtin_bswap16(v); memcpy(p, &v, 2); }
    static inline void mq_set_be32(void *p, uint32_t v) { v = __builtin_bswap32(v); memcpy(p, &v, 4); }
    static inline void mq_set_be64(void *p, uint64_t v) { v = __builtin_bswap64(v); memcpy(p, &v, 8); }
    #if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    #error "mqcore swaps bytes unconditionally: it needs a little-endian machine"
    #endif
    """
    uint16_t load_u16 "mq_be16"(const void* p) noexcept nogil
    uint32_t load_u32 "mq_be32"(const void* p) noexcept nogil
    uint64_t load_u64 "mq_be64"(const void* p) noexcept nogil
    int16_t load_i16 "(int16_t) mq_be16"(const void* p) noexcept nogil
    int32_t load_i32 "(int32_t) mq_be32"(const void* p) noexcept nogil
    int64_t load_i64 "(int64_t) mq_be64"(const void* p) noexcept nogil
    void store_i16 "mq_set_be16"(void* p, int16_t value) noexcept nogil
    void store_i32 "mq_set_be32"(void* p, int32_t value) noexcept nogil
    void store_i64 "mq_set_be64"(void* p, int64_t value) noexcept nogil
