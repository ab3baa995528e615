# Protocol buffers (proto3), as far as the service needs them: fields are read in the order in which
# they came and unknown ones are passed over; messages are written into a buffer that grows.
#
#   PB1  A reader never looks behind its end; what does not fit there makes it `broken`, and it says
#        no further field.
#   PB2  The length of a message inside another one takes LENGTH_ROOM bytes until it is known; then
#        what follows moves up.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

cdef enum PbKind:                      # wire types
    PB_VARINT = 0
    PB_I64 = 1
    PB_BYTES = 2
    PB_I32 = 5

cdef struct PbReader:
    const uint8_t* at
    const uint8_t* end
    bint broken
    # the field at hand
    int32_t number
    int kind                           # PbKind
    uint64_t value                     # of PB_VARINT, PB_I64 and PB_I32
    const uint8_t* bytes               # of PB_BYTES
    int32_t length

cdef struct PbWriter:
    uint8_t* start
    int64_t length
    int64_t capacity
    bint lacks_memory                  # then nothing more is written

cdef void pb_open(PbReader* r, const uint8_t* bytes, int64_t length) noexcept nogil
cdef bint pb_next(PbReader* r) noexcept nogil                  # False: the end, or broken
# A reader of the field at hand, which is of kind PB_BYTES (else an empty one).
cdef PbReader pb_inside(const PbReader* r) noexcept nogil

cdef void pb_close(PbWriter* w) noexcept nogil                 # frees its buffer
cdef void pb_put_number(PbWriter* w, int32_t number, int64_t value) noexcept nogil
cdef void pb_put_bytes(PbWriter* w, int32_t number, const void* bytes,
                       int64_t length) noexcept nogil
cdef void pb_put_raw(PbWriter* w, const void* bytes, int64_t length) noexcept nogil
cdef int64_t pb_begin(PbWriter* w, int32_t number) noexcept nogil      # a message inside ...
cdef void pb_end(PbWriter* w, int64_t begun) noexcept nogil            # ... to here
