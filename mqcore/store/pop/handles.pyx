"""Writes and reads receipt handles (handles.pxd)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from mqcore.layout cimport QUEUE_ID_END
from mqcore.store.pop.state cimport POP_INVISIBLE_MAX_MS, POP_OFFSET_MAX, POP_TIME_MAX_MS
from mqcore.text cimport is_digit
from mqcore.wire.digits cimport put_number

cdef enum:
    FIELD_DIGITS_MAX = 19


cdef uint8_t* put_field(uint8_t* out, int64_t value) noexcept nogil:
    out += put_number(out, value)
    out[0] = c' '
    return out + 1


cdef int32_t receipt_write(const Receipt* receipt, uint8_t* into) noexcept nogil:
    cdef uint8_t* out = put_field(into, receipt.start_offset)
    out = put_field(out, receipt.pop_ms)
    out = put_field(out, receipt.invisible_ms)
    out = put_field(out, receipt.revive_queue)
    out = put_field(out, receipt.topic_kind)
    memcpy(out, receipt.broker, receipt.broker_length)
    out += receipt.broker_length
    out[0] = c' '
    out = put_field(out + 1, receipt.queue_id)
    out = put_field(out, receipt.offset)
    if receipt.log_position >= 0:
        out = put_field(out, receipt.log_position)
    return <int32_t>(out - 1 - into)   # without the last blank


cdef bint take_number(const uint8_t** at, const uint8_t* end, int64_t most,
                      int64_t* value) noexcept nogil:
    """A number and the blank behind it, if it is not the last."""
    cdef const uint8_t* digit = at[0]
    cdef int64_t number = 0
    while digit < end and is_digit(digit[0]):
        if digit - at[0] == FIELD_DIGITS_MAX - 1 and number > most // 10:
            return False
        if digit - at[0] >= FIELD_DIGITS_MAX:
            return False
        number = number * 10 + (digit[0] - c'0')
        digit += 1
    if digit == at[0] or number > most or (digit < end and digit[0] != c' '):
        return False
    value[0] = number
    at[0] = digit + 1 if digit < end else digit
    return digit == end or digit + 1 < end


cdef bint receipt_parse(const uint8_t* text, int32_t length, Receipt* receipt) noexcept nogil:
    cdef const uint8_t* at = text
    cdef const uint8_t* end = text + length
    cdef int64_t invisible_ms, revive_queue, kind, queue_id
    if not 0 < length <= RECEIPT_MAX:
        return False
    if not (take_number(&at, end, POP_OFFSET_MAX, &receipt.start_offset)
            and take_number(&at, end, POP_TIME_MAX_MS, &receipt.pop_ms)
            and take_number(&at, end, POP_INVISIBLE_MAX_MS, &invisible_ms)
            and take_number(&at, end, QUEUE_ID_END, &revive_queue)
            and take_number(&at, end, TOPIC_RETRY_V2, &kind)):
        return False
    receipt.broker = at
    while at < end and at[0] != c' ':
        at += 1
    receipt.broker_length = <int32_t>(at - receipt.broker)
    if not 0 < receipt.broker_length <= HANDLE_BROKER_MAX or at == end:
        return False
    at += 1
    if not (take_number(&at, end, QUEUE_ID_END - 1, &queue_id)
            and take_number(&at, end, POP_OFFSET_MAX, &receipt.offset)):
        return False
    receipt.log_position = NO_LOG_POSITION
    if at < end and not take_number(&at, end, POP_OFFSET_MAX, &receipt.log_position):
        return False
    receipt.invisible_ms = <int32_t>invisible_ms
    receipt.revive_queue = <int32_t>revive_queue
    receipt.topic_kind = <int32_t>kind
    receipt.queue_id = <int32_t>queue_id
    return at == end
