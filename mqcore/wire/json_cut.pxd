# Where a long JSON text can be cut, so that its parts are read one after the other. Nothing is
# judged: brackets are counted, of whichever kind, and what was no JSON is none in its parts.
from libc.stdint cimport uint8_t

cpdef enum:
    CUT_ENDS = 0                  # behind members of the container, at a comma
    CUT_CLOSES = 1                # behind its last ones, at its bracket
    CUT_OPENS = 2                 # in its next member, which is long, at that one's own bracket
    CUT_NOWHERE = 3               # the text ends in it, or nothing ends within `most` bytes

cdef struct Cut:
    size_t place
    int how
    size_t values                 # that there are before `place`, at most

# text[at] lies behind a container's bracket, or behind a comma in it; wanted: bytes of its members,
# about; one string or number may have more, but not more than `most`.
cdef Cut next_cut(
    const uint8_t* text, size_t at, size_t length, size_t wanted, size_t most) noexcept nogil
