# Numbers in property texts, read as the stock broker's platform reads them (docs/sql92.md).
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    # A double's rounding never depends on more than 767 digits: what follows only has to be known
    # as zero or not.
    REAL_DIGITS_MAX = 800
    REAL_EXPONENT_MAX = 20_000             # with that many digits: zero or infinity for certain

# Both return False for a text that is no number; *value is untouched then. No limit on `length`.
cdef bint parse_whole(const uint8_t* text, int32_t length, int64_t* value) noexcept nogil
cdef bint parse_real(const uint8_t* text, int32_t length, double* value) noexcept nogil
