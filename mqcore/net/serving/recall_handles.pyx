"""Makes recall handles (recall_handles.pxd)."""
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc
from libc.string cimport memcpy

from mqcore.text cimport put_literal
from mqcore.wire.digits cimport put_number

cdef enum:
    SIXTY_FOUR = 0x3F
    SECOND_OF_HANDLE_MS = 1000

cdef const char* URL_SAFE = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


cdef TimedSend* timed_send_add(TimedSends* sends) noexcept nogil:
    if sends.at == NULL:
        sends.at = <TimedSend*>calloc(TIMED_SENDS_MAX, sizeof(TimedSend))
    if sends.at == NULL or sends.count == TIMED_SENDS_MAX:
        return NULL
    sends.count += 1
    return &sends.at[(sends.first + sends.count - 1) % TIMED_SENDS_MAX]


cdef const TimedSend* timed_send_take(TimedSends* sends, uint64_t connection,
                                      int32_t opaque) noexcept nogil:
    cdef const TimedSend* send
    while sends.count > 0:
        send = &sends.at[sends.first]
        sends.first = (sends.first + 1) % TIMED_SENDS_MAX
        sends.count -= 1
        if send.connection == connection and send.opaque == opaque:
            return send
    return NULL


cdef int32_t encode_url_safe(const uint8_t* text, int32_t length, uint8_t* into) noexcept nogil:
    """Base64 with padding (RFC 4648, 5)."""
    cdef uint8_t* out = into
    cdef uint32_t bits
    cdef int32_t i = 0, j, left
    while i < length:
        left = min(length - i, 3)
        bits = <uint32_t>text[i] << 16
        if left > 1:
            bits |= <uint32_t>text[i + 1] << 8
        if left > 2:
            bits |= text[i + 2]
        for j in range(4):
            out[j] = URL_SAFE[(bits >> (18 - 6 * j)) & SIXTY_FOUR] if j <= left else c'='
        out += 4
        i += 3
    return <int32_t>(out - into)


cdef int32_t recall_handle(const TimedSend* send, const uint8_t* broker, int32_t broker_length,
                           uint8_t* into) noexcept nogil:
    cdef uint8_t[HANDLE_TEXT_MAX] text
    cdef uint8_t* out = put_literal(text, "v1 ")
    memcpy(out, send.topic, send.topic_length)
    out += send.topic_length
    out[0] = c' '
    memcpy(out + 1, broker, broker_length)
    out += 1 + broker_length
    out[0] = c' '
    out += 1 + put_number(out + 1, (send.due_ms - 1) // SECOND_OF_HANDLE_MS * SECOND_OF_HANDLE_MS + 1)
    out[0] = c' '
    memcpy(out + 1, send.key, send.key_length)
    out += 1 + send.key_length
    return encode_url_safe(text, <int32_t>(out - text), into)
