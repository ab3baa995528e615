# Where things stand in an index file (store.md 4.1): layout.pxd has the numbers, this the arithmetic.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.endian cimport load_i32, load_i64, store_i32, store_i64
from mqcore.layout cimport (
    INDEX_BEGIN_POSITION,
    INDEX_BEGIN_TIME,
    INDEX_END_POSITION,
    INDEX_END_TIME,
    INDEX_ENTRY_KEY_HASH,
    INDEX_ENTRY_LOG_POSITION,
    INDEX_ENTRY_PREVIOUS,
    INDEX_ENTRY_SECONDS,
    INDEX_ENTRY_SIZE,
    INDEX_HEADER_SIZE,
    INDEX_NEXT_ENTRY,
    INDEX_SLOT_SIZE,
    INDEX_SLOTS_USED,
)


cdef struct IndexHeader:
    int64_t begin_time_ms             # of the first entry's record
    int64_t end_time_ms
    int64_t begin_position
    int64_t end_position
    int32_t slots_used
    int32_t next_entry

cdef struct IndexEntry:
    int32_t key_hash
    int64_t log_position
    int32_t seconds                   # since the header's begin time
    int32_t previous                  # number of the slot's entry before this one, 0: none


cdef inline int64_t index_entry_start(int32_t slots, int32_t number) noexcept nogil:
    return (INDEX_HEADER_SIZE + <int64_t>slots * INDEX_SLOT_SIZE
            + <int64_t>number * INDEX_ENTRY_SIZE)


cdef inline int64_t index_file_size(int32_t slots, int32_t entries) noexcept nogil:
    return index_entry_start(slots, entries)


cdef inline int64_t index_slot_start(int32_t slot) noexcept nogil:
    return INDEX_HEADER_SIZE + <int64_t>slot * INDEX_SLOT_SIZE


cdef inline IndexHeader index_header_decode(const uint8_t* file) noexcept nogil:
    return IndexHeader(
        begin_time_ms=load_i64(file + INDEX_BEGIN_TIME),
        end_time_ms=load_i64(file + INDEX_END_TIME),
        begin_position=load_i64(file + INDEX_BEGIN_POSITION),
        end_position=load_i64(file + INDEX_END_POSITION),
        slots_used=load_i32(file + INDEX_SLOTS_USED),
        next_entry=load_i32(file + INDEX_NEXT_ENTRY),
    )


cdef inline IndexEntry index_entry_decode(const uint8_t* entry) noexcept nogil:
    return IndexEntry(
        key_hash=load_i32(entry + INDEX_ENTRY_KEY_HASH),
        log_position=load_i64(entry + INDEX_ENTRY_LOG_POSITION),
        seconds=load_i32(entry + INDEX_ENTRY_SECONDS),
        previous=load_i32(entry + INDEX_ENTRY_PREVIOUS),
    )


cdef inline void index_entry_encode(uint8_t* at, const IndexEntry* entry) noexcept nogil:
    store_i32(at + INDEX_ENTRY_KEY_HASH, entry.key_hash)
    store_i64(at + INDEX_ENTRY_LOG_POSITION, entry.log_position)
    store_i32(at + INDEX_ENTRY_SECONDS, entry.seconds)
    store_i32(at + INDEX_ENTRY_PREVIOUS, entry.previous)
