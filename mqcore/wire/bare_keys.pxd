# Bare integer keys, as Java writes them (`{0:12,3:99}`, remoting.md 5.1), made into strings, so that
# a strict and fast JSON reader takes the text. Nothing between quotes is touched, and nothing is
# judged: what was no JSON is none afterwards.
from libc.stdint cimport uint8_t

cdef enum:
    BARE_KEY_GROWTH = 3           # bytes that one key gains: two quotes and the mark


# target has room for BARE_KEY_GROWTH more bytes for each three of the source; mark 0: none.
# Returns the bytes written.
cdef size_t quote_keys(
    const uint8_t* source, size_t length, uint8_t* target, uint8_t mark) noexcept nogil
