"""
CRC-32 as RocketMQ stores it, folded with carry-less multiplication where the processor has it, and
CRC-32C of whole records, with the processor's own instruction where it has one.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

cdef extern from "mq_crc32.h" nogil:
    void mq_crc32_init() noexcept
    uint32_t mq_crc32(const uint8_t* data, size_t length) noexcept
    uint32_t mq_crc32_tables(uint32_t crc, const uint8_t* data, size_t length) noexcept
    int mq_crc_folds

cdef extern from "mq_crc32c.h" nogil:
    void mq_crc32c_init() noexcept
    uint32_t mq_crc32c(const uint8_t* data, size_t length) noexcept
    uint32_t mq_crc32c_by(int way, const uint8_t* data, size_t length) noexcept
    uint32_t mq_crc32c_table[8][256]
    int mq_crc32c_way

cdef enum:
    BYTE_BITS = 8

mq_crc32_init()
mq_crc32c_init()


cdef int32_t body_crc(const uint8_t* body, int32_t length) noexcept nogil:
    if length <= 0:
        return 0
    return <int32_t>(mq_crc32(body, length) & 0x7FFFFFFF)


cdef uint32_t record_crc(const uint8_t* record, int64_t length) noexcept nogil:
    return mq_crc32c(record, length)


def crc32(const uint8_t[::1] data, *, bint tables_only=False) -> int:
    """The whole 32-bit CRC of `data`, for tests. tables_only: without the folding instructions."""
    cdef const uint8_t* start = &data[0] if data.shape[0] else NULL
    if tables_only:
        return ~mq_crc32_tables(0xFFFFFFFF, start, data.shape[0]) & 0xFFFFFFFF
    return mq_crc32(start, data.shape[0])


def folds() -> bool:
    """Whether this processor's carry-less multiplication is used."""
    return mq_crc_folds != 0


def crc32c(const uint8_t[::1] data, *, int way=2) -> int:
    """
    CRC-32C of `data`. way, for tests, at most: 0 tables, 1 the processor's instruction, 2 three parts
    of a block side by side.
    """
    cdef const uint8_t* start = &data[0] if data.shape[0] else NULL
    return mq_crc32c_by(min(way, mq_crc32c_way), start, data.shape[0])


def flipped_bit(const uint8_t[::1] data not None, uint32_t crc):
    """
    The one bit (8 * byte + bit) that has to change so that `data` has this CRC-32C; -1: it is a bit
    of `crc` itself, None: one bit is not enough. (Two different bits never look alike: the code
    tells all double errors in 2 ** 31 bits.)
    """
    cdef uint32_t change[BYTE_BITS]
    cdef uint32_t wrong
    cdef int64_t at
    cdef int bit
    if data.shape[0] == 0:
        return None
    wrong = mq_crc32c(&data[0], data.shape[0]) ^ crc
    if wrong and wrong & (wrong - 1) == 0:
        return -1
    for bit in range(BYTE_BITS):
        change[bit] = mq_crc32c_table[0][1 << bit]
    for at in range(data.shape[0] - 1, -1, -1):
        for bit in range(BYTE_BITS):
            if change[bit] == wrong:
                return BYTE_BITS * at + bit
            change[bit] = (change[bit] >> BYTE_BITS) ^ mq_crc32c_table[0][change[bit] & 255]
    return None


def crc32c_way() -> int:
    """How this processor does it, as `crc32c` counts the ways."""
    return mq_crc32c_way
