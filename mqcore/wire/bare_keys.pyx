"""Quotes the bare integer keys of a JSON text in one pass (remoting.md 5.1, store.md 12.1)."""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from mqcore.text cimport is_digit


cdef inline bint is_space(uint8_t character) noexcept nogil:
    return character == c' ' or c'\t' <= character <= c'\r'


cdef inline size_t past_string(const uint8_t* source, size_t at, size_t length) noexcept nogil:
    """The place behind the string that begins at `at`; the end when it does not end."""
    at += 1
    while at < length and source[at] != c'"':
        at += 2 if source[at] == c'\\' else 1
    return at + 1 if at < length else length


cdef inline size_t past_key(const uint8_t* source, size_t at, size_t length) noexcept nogil:
    """The place behind the integer key that begins at `at`; `at` when there is none."""
    cdef size_t start = at
    if at < length and source[at] == c'-':
        at += 1
    cdef size_t digits = at
    while at < length and is_digit(source[at]):
        at += 1
    if at == digits:
        return start
    cdef size_t end = at
    while at < length and is_space(source[at]):
        at += 1
    return end if at < length and source[at] == c':' else start


cdef size_t quote_keys(
    const uint8_t* source, size_t length, uint8_t* target, uint8_t mark
) noexcept nogil:
    cdef size_t at = 0
    cdef size_t written = 0
    cdef size_t end
    while at < length:
        if source[at] == c'"':
            end = past_string(source, at, length)
            memcpy(target + written, source + at, end - at)
            written += end - at
            at = end
            continue
        target[written] = source[at]
        written += 1
        at += 1
        if source[at - 1] != c'{' and source[at - 1] != c',':
            continue
        while at < length and is_space(source[at]):
            target[written] = source[at]
            written += 1
            at += 1
        end = past_key(source, at, length)
        if end == at:
            continue
        target[written] = c'"'
        written += 1
        if mark:
            target[written] = mark
            written += 1
        memcpy(target + written, source + at, end - at)
        written += end - at
        target[written] = c'"'
        written += 1
        at = end
    return written


def quoted(const uint8_t[::1] text not None, int mark=0):
    """The text with quotes around its bare integer keys, and `mark` (a byte) before their digits."""
    cdef size_t length = text.shape[0]
    if length == 0:
        return b""
    cdef size_t written
    cdef uint8_t* target = <uint8_t*>malloc((1 + BARE_KEY_GROWTH) * (length // 3 + 1) + length)
    if target == NULL:
        raise MemoryError
    try:
        with nogil:
            written = quote_keys(&text[0], length, target, <uint8_t>mark)
        return PyBytes_FromStringAndSize(<char*>target, written)
    finally:
        free(target)
