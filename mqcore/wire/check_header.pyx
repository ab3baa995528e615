"""Writes the header of a question about a transaction."""
from libc.stdint cimport int32_t, uint8_t

from mqcore.text cimport put_literal
from mqcore.wire.digits cimport put_message_id, put_number


cdef uint8_t* put_escaped(uint8_t* at, const uint8_t* text, int32_t length) noexcept nogil:
    """As the inside of a JSON string."""
    cdef const char* digits = "0123456789abcdef"
    cdef int32_t i
    for i in range(length):
        if text[i] == c'"' or text[i] == c'\\':
            at[0] = c'\\'
            at[1] = text[i]
            at += 2
        elif text[i] < c' ':
            at = put_literal(at, "\\u00")
            at[0] = digits[text[i] >> 4]
            at[1] = digits[text[i] & 15]
            at += 2
        else:
            at[0] = text[i]
            at += 1
    return at


cdef uint8_t* put_check_header(uint8_t* at, const CheckedMessage* m, int32_t opaque) noexcept nogil:
    at = put_literal(at, '{"code":39,"extFields":{"commitLogOffset":"')
    at += put_number(at, m.log_position)
    at = put_literal(at, '","tranStateTableOffset":"')
    at += put_number(at, m.queue_offset)
    at = put_literal(at, '","offsetMsgId":"')
    put_message_id(at, m.store_host, m.store_host_size, m.log_position)
    at += 2 * m.store_host_size + 16
    if m.unique_key_length > 0:
        at = put_literal(at, '","msgId":"')
        at = put_escaped(at, m.unique_key, m.unique_key_length)
        at = put_literal(at, '","transactionId":"')
        at = put_escaped(at, m.unique_key, m.unique_key_length)
    at = put_literal(at, '"},"flag":2,"language":"JAVA","opaque":')
    at += put_number(at, opaque)
    return put_literal(at, ',"serializeTypeCurrentRPC":"JSON","version":409}')
