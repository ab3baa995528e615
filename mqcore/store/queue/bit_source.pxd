# Where dispatch gets the bit maps of extension units from: filters lie above the store, and give
# it two functions (mqcore/filter/filter_bits.pyx).
from libc.stdint cimport int32_t, uint8_t

from mqcore.store.record cimport RecordView


cdef struct RecordBits:
    void* context
    void (*begin)(void* context) noexcept nogil                # before each batch of records
    # The record's bit map and its length in bytes, 0: it has none. Good until the next call.
    const uint8_t* (*of_record)(void* context, const RecordView* record,
                                int32_t* length) noexcept nogil

cdef class BitSource:
    cdef RecordBits calls              # as long as the object lives
    cdef readonly int32_t map_size     # no map has more bytes
