"""Finds where a long JSON text can be cut, so that its parts are read one after the other."""
from libc.stdint cimport uint8_t


cdef Cut next_cut(
    const uint8_t* text, size_t at, size_t length, size_t wanted, size_t most
) noexcept nogil:
    cdef size_t start = at
    length = min(length, start + most)
    cdef Cut found = Cut(length, CUT_NOWHERE, 0)
    cdef size_t opened = length       # the first bracket of the first member
    cdef size_t depth = 0
    cdef size_t values = 0
    cdef size_t end
    cdef uint8_t character
    while at < length:
        if at - start >= wanted:
            if found.how == CUT_ENDS:
                return found
            if depth:
                return Cut(opened, CUT_OPENS, 0)
        character = text[at]
        if character == c'"':
            end = length if depth == 0 and found.how != CUT_ENDS else min(length, start + wanted)
            at += 1
            while at < end and text[at] != c'"':
                at += 2 if text[at] == c'\\' else 1
            if end <= at < length:
                continue                       # as far as it need be read now: cut before it
        elif character == c'{' or character == c'[':
            opened = min(opened, at)
            depth += 1
            values += 1
        elif character == c'}' or character == c']':
            if depth == 0:
                return Cut(at, CUT_CLOSES, values)
            depth -= 1
        elif character == c',':
            values += 1
            if depth == 0:
                found = Cut(at, CUT_ENDS, values)
        at += 1
    return found


def cut(const uint8_t[::1] text not None, size_t at, size_t wanted, size_t most):
    """
    (place, how, values) of the next cut, as `next_cut` says; how is one of CUT_ENDS, CUT_CLOSES,
    CUT_OPENS, CUT_NOWHERE.
    """
    cdef size_t length = text.shape[0]
    cdef Cut found
    if at >= length:
        return length, CUT_NOWHERE, 0
    with nogil:
        found = next_cut(&text[0], at, length, wanted, most)
    return found.place, found.how, found.values


def past_space(const uint8_t[::1] text not None, size_t at, size_t most) -> int:
    """
    The place of the first character from `at` on that is no white space of JSON, or `most` behind
    `at` if there are more.
    """
    cdef size_t length = min(<size_t>text.shape[0], at + most)
    while at < length and text[at] in (c' ', c'\t', c'\r', c'\n'):
        at += 1
    return at
