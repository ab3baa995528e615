# Text in native code: what stands in the code itself has the length that the compiler counts, so
# that no number is written beside it; characters are named by themselves, as c'0'.
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef extern from "mq_text.h" nogil:
    ctypedef struct Literal "mq_literal_t":
        const char* text
        int32_t length
    # `literal` is a text in the code, or one that is #defined: a pointer does not compile.
    Literal literal "mq_literal"(const char* literal) noexcept
    int32_t literal_length "mq_literal_length"(const char* literal) noexcept
    bint is_literal "mq_is_literal"(const uint8_t* at, int64_t length, const char* literal) noexcept
    bint starts_with "mq_starts_with"(const uint8_t* at, int64_t length, const char* literal) noexcept
    # Returns the place behind it.
    uint8_t* put_literal "mq_put_literal"(uint8_t* at, const char* literal) noexcept
    # Of bytes that are few mostly: nothing is called for up to 32.
    uint8_t* put_short "mq_put_short"(uint8_t* into, const uint8_t* data, size_t length) noexcept

cdef enum:
    SMALL_LETTER = 0x20                # the bit that tells a small letter from a capital one


cdef inline bint is_digit(uint8_t character) noexcept nogil:
    return c'0' <= character <= c'9'
