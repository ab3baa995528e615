# Takes an input apart: numbers from its end, so that what is left begins where it began, and a seed
# is the thing itself with numbers behind it.
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

cdef struct Input:
    const uint8_t* at
    int64_t left


cdef inline Input input_of(const uint8_t* data, size_t size) noexcept nogil:
    return Input(at=data, left=<int64_t>size)


cdef inline uint8_t take_byte(Input* data) noexcept nogil:
    if data.left == 0:
        return 0
    data.left -= 1
    return data.at[data.left]


cdef inline int32_t take_i32(Input* data) noexcept nogil:
    cdef int32_t number = 0, i
    for i in range(4):
        number = number << 8 | take_byte(data)
    return number


cdef inline int64_t take_i64(Input* data) noexcept nogil:
    cdef int64_t number = 0
    cdef int i
    for i in range(8):
        number = number << 8 | take_byte(data)
    return number


cdef inline int64_t take_part(Input* data) noexcept nogil:
    """A length by a byte, in steps of four: at most what is left."""
    cdef int64_t wanted = 4 * <int64_t>take_byte(data)
    return min(wanted, data.left)


# Ends the process if a rule does not hold: a finding.
cdef extern from *:
    """
    #include <stdio.h>
    #include <stdlib.h>
    static void mq_hold(int holds, const char *rule) {
      if (!holds) {
        fprintf(stderr, "fuzz: not so: %s\\n", rule);
        abort();
      }
    }
    """
    void hold "mq_hold"(bint holds, const char* rule) noexcept nogil
