"""Reads whole and floating-point numbers from property texts, exactly and in linear time."""
from libc.math cimport INFINITY, NAN
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport strtod

from mqcore.text cimport SMALL_LETTER, is_digit, is_literal

cdef enum:
    EXACT_DIGITS_MAX = 19                  # fit an unsigned 64-bit integer
    EXACT_POWER_MAX = 22                   # the largest power of ten that a double holds exactly
    HEX_DIGITS_MAX = 32
    EXPONENT_TEXT_MAX = 100_000_000        # times ten at most: more than digits can make good
    BUFFER_SIZE = REAL_DIGITS_MAX + 40
    ZEROS_COUNT = 36

# The zero of each block of decimal digits in the basic plane, beside ASCII: whole numbers may be
# written with them.
cdef uint32_t[ZEROS_COUNT] ZEROS = [
    0x0660, 0x06F0, 0x07C0, 0x0966, 0x09E6, 0x0A66, 0x0AE6, 0x0B66, 0x0BE6, 0x0C66, 0x0CE6,
    0x0D66, 0x0DE6, 0x0E50, 0x0ED0, 0x0F20, 0x1040, 0x1090, 0x17E0, 0x1810, 0x1946, 0x19D0,
    0x1A80, 0x1A90, 0x1B50, 0x1BB0, 0x1C40, 0x1C50, 0xA620, 0xA8D0, 0xA900, 0xA9D0, 0xA9F0,
    0xAA50, 0xABF0, 0xFF10,
]

cdef double[EXACT_POWER_MAX + 1] POWERS = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
]


cdef struct Scan:                          # a number's digits, collected
    const uint8_t* at
    const uint8_t* end
    int32_t count                          # of significant digits in the buffer
    bint any_digit
    bint more                              # a digit that is not zero was left out
    int64_t scale                          # how far the point is to the right of the last digit
    char[BUFFER_SIZE] buffer


cdef inline bint is_continuation(uint8_t byte) noexcept nogil:
    return byte & 0xC0 == 0x80


cdef int other_digit(const uint8_t** at, const uint8_t* end) noexcept nogil:
    """The value of a digit outside ASCII, two or three bytes of UTF-8; -1 when it is none."""
    cdef const uint8_t* text = at[0]
    cdef uint32_t point
    cdef int i
    if text[0] & 0xE0 == 0xC0 and end - text >= 2 and is_continuation(text[1]):
        point = (<uint32_t>text[0] & 0x1F) << 6 | (text[1] & 0x3F)
        at[0] += 2
    elif text[0] & 0xF0 == 0xE0 and end - text >= 3 and is_continuation(text[1]) and is_continuation(text[2]):
        point = ((<uint32_t>text[0] & 0x0F) << 12 | (<uint32_t>text[1] & 0x3F) << 6
                 | (text[2] & 0x3F))
        at[0] += 3
        if point < 0x800:
            return -1                      # longer than need be: no UTF-8
    else:
        return -1
    for i in range(ZEROS_COUNT):
        if point >= ZEROS[i] and point <= ZEROS[i] + 9:
            return <int>(point - ZEROS[i])
    return -1


cdef bint parse_whole(const uint8_t* text, int32_t length, int64_t* value) noexcept nogil:
    cdef const uint8_t* end = text + length
    cdef bint negative = False
    cdef uint64_t total = 0
    cdef uint64_t limit
    cdef int digit
    if text < end and (text[0] == c'-' or text[0] == c'+'):
        negative = text[0] == c'-'
        text += 1
    if text == end:
        return False
    limit = (<uint64_t>1 << 63) - (0 if negative else 1)
    while text < end:
        if text[0] < 0x80:
            digit = text[0] - c'0'
            text += 1
        else:
            digit = other_digit(&text, end)
        if digit < 0 or digit > 9:
            return False
        if total > (limit - <uint64_t>digit) // 10:
            return False
        total = total * 10 + <uint64_t>digit
    value[0] = <int64_t>(<uint64_t>0 - total) if negative else <int64_t>total
    return True


cdef inline int digit_of(uint8_t letter, int base) noexcept nogil:
    if c'0' <= letter <= c'9':
        return letter - c'0'
    if base == 16:
        letter = letter | SMALL_LETTER
        if c'a' <= letter <= c'f':
            return letter - c'a' + 10
    return -1


cdef void scan_digits(Scan* scan, int base, int32_t count_max) noexcept nogil:
    """Collects digits around at most one point; `scale` counts digits."""
    cdef bint fraction = False
    cdef int digit
    while scan.at < scan.end:
        digit = digit_of(scan.at[0], base)
        if digit < 0:
            if scan.at[0] != c'.' or fraction:
                return
            fraction = True
            scan.at += 1
            continue
        scan.any_digit = True
        if scan.count == 0 and digit == 0:
            scan.scale -= fraction
        elif scan.count < count_max:
            scan.buffer[scan.count] = <char>scan.at[0]
            scan.count += 1
            scan.scale -= fraction
        else:
            scan.more = scan.more or digit != 0
            scan.scale += not fraction
        scan.at += 1


cdef bint scan_exponent(Scan* scan, int64_t* exponent) noexcept nogil:
    """Behind the letter: an optional sign and at least one digit."""
    cdef bint negative = False
    cdef int64_t total = 0
    cdef const uint8_t* first
    if scan.at < scan.end and (scan.at[0] == c'-' or scan.at[0] == c'+'):
        negative = scan.at[0] == c'-'
        scan.at += 1
    first = scan.at
    while scan.at < scan.end and is_digit(scan.at[0]):
        if total < <int64_t>EXPONENT_TEXT_MAX:
            total = total * 10 + (scan.at[0] - c'0')
        scan.at += 1
    exponent[0] = -total if negative else total
    return scan.at > first


cdef bint scan_end(Scan* scan) noexcept nogil:
    """At most one type letter may follow the number."""
    if scan.at < scan.end and (scan.at[0] | SMALL_LETTER == c'f' or scan.at[0] | SMALL_LETTER == c'd'):
        scan.at += 1
    return scan.at == scan.end


cdef double exact_or_parsed(Scan* scan, int64_t exponent, const char* prefix,
                            char letter) noexcept nogil:
    """The double nearest to the collected digits times the base's power."""
    cdef char[BUFFER_SIZE + 40] text
    cdef uint64_t total = 0
    cdef int32_t i
    cdef int length
    if letter == c'e' and not scan.more and scan.count <= EXACT_DIGITS_MAX:
        for i in range(scan.count):
            total = total * 10 + <uint64_t>(scan.buffer[i] - c'0')
        if total <= <uint64_t>1 << 53 and -EXACT_POWER_MAX <= exponent <= EXACT_POWER_MAX:
            if exponent < 0:
                return <double>total / POWERS[-exponent]
            return <double>total * POWERS[exponent]
    exponent = max(-REAL_EXPONENT_MAX, min(REAL_EXPONENT_MAX, exponent))
    # Without a point, so that no locale matters
    length = snprintf(text, sizeof(text), b"%s%.*s%c%d", prefix, <int>scan.count, scan.buffer,
                      <int>letter, <int>exponent)
    text[length] = 0
    return strtod(text, NULL)


cdef bint parse_decimal(Scan* scan, double* value) noexcept nogil:
    cdef int64_t exponent = 0
    scan_digits(scan, 10, REAL_DIGITS_MAX)
    if not scan.any_digit:
        return False
    if scan.at < scan.end and scan.at[0] | SMALL_LETTER == c'e':
        scan.at += 1
        if not scan_exponent(scan, &exponent):
            return False
    if not scan_end(scan):
        return False
    exponent += scan.scale
    if scan.more:                          # one digit stands for all that were left out
        scan.buffer[scan.count] = c'1'
        scan.count += 1
        exponent -= 1
    value[0] = exact_or_parsed(scan, exponent, b"", c'e') if scan.count else 0.0
    return True


cdef bint parse_hexadecimal(Scan* scan, double* value) noexcept nogil:
    """0x and digits; the exponent, a power of two, is not optional."""
    cdef int64_t exponent = 0
    scan.at += 2
    scan_digits(scan, 16, HEX_DIGITS_MAX)
    if not scan.any_digit or scan.at == scan.end or scan.at[0] | SMALL_LETTER != c'p':
        return False
    scan.at += 1
    if not scan_exponent(scan, &exponent) or not scan_end(scan):
        return False
    exponent += 4 * scan.scale
    if scan.more:
        scan.buffer[scan.count] = c'1'
        scan.count += 1
        exponent -= 4
    value[0] = exact_or_parsed(scan, exponent, b"0x", c'p') if scan.count else 0.0
    return True


cdef bint parse_real(const uint8_t* text, int32_t length, double* value) noexcept nogil:
    cdef Scan scan
    cdef bint negative = False
    cdef bint good
    cdef double found
    scan.at = text
    scan.end = text + length
    while scan.at < scan.end and scan.at[0] <= c' ':
        scan.at += 1
    while scan.at < scan.end and (scan.end - 1)[0] <= c' ':
        scan.end -= 1
    if scan.at < scan.end and (scan.at[0] == c'-' or scan.at[0] == c'+'):
        negative = scan.at[0] == c'-'
        scan.at += 1
    scan.count = 0
    scan.any_digit = scan.more = False
    scan.scale = 0
    if is_literal(scan.at, scan.end - scan.at, "NaN"):
        found, good = NAN, True
    elif is_literal(scan.at, scan.end - scan.at, "Infinity"):
        found, good = INFINITY, True
    elif scan.end - scan.at > 2 and scan.at[0] == c'0' and scan.at[1] | SMALL_LETTER == c'x':
        good = parse_hexadecimal(&scan, &found)
    else:
        good = parse_decimal(&scan, &found)
    if good:
        value[0] = -found if negative else found
    return good


def whole(const uint8_t[::1] text) -> int | None:
    """The whole number in `text`, as a filter reads it, or None; for tests."""
    cdef int64_t value = 0
    cdef const uint8_t* start = &text[0] if text.shape[0] else NULL
    return value if parse_whole(start, <int32_t>text.shape[0], &value) else None


def real(const uint8_t[::1] text) -> float | None:
    """The floating-point number in `text`, as a filter reads it, or None; for tests."""
    cdef double value = 0
    cdef const uint8_t* start = &text[0] if text.shape[0] else NULL
    return value if parse_real(start, <int32_t>text.shape[0], &value) else None
