"""CRC-32 as RocketMQ stores it, folded with carry-less multiplication where the processor has it."""
from libc.stdint cimport int32_t, uint8_t, uint32_t

cdef extern from "mq_crc32.h" nogil:
    void mq_crc32_init() noexcept
    uint32_t mq_crc32(const uint8_t* data, size_t length) noexcept
    uint32_t mq_crc32_tables(uint32_t crc, const uint8_t* data, size_t length) noexcept
    int mq_crc_folds

mq_crc32_init()


cdef int32_t body_crc(const uint8_t* body, int32_t length) noexcept nogil:
    if length <= 0:
        return 0
    return <int32_t>(mq_crc32(body, length) & 0x7FFFFFFF)


def crc32(const uint8_t[::1] data, *, bint tables_only=False) -> int:
    """The whole 32-bit CRC of `data`, for tests. tables_only: without the folding instructions."""
    cdef const uint8_t* start = &data[0] if data.shape[0] else NULL
    if tables_only:
        return ~mq_crc32_tables(0xFFFFFFFF, start, data.shape[0]) & 0xFFFFFFFF
    return mq_crc32(start, data.shape[0])


def folds() -> bool:
    """Whether this processor's carry-less multiplication is used."""
    return mq_crc_folds != 0
