# cython: freethreading_compatible=True
"""Sends as frames and batches as bodies, written from their fields without a detour.

The bytes are those of `mqcore.wire.command.encode` for the same fields (remoting.md 4.1, 6.4).
"""
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem, PyDict_Next, PyDict_SetItem
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcpy
from posix.unistd cimport getpid

from mqcore.endian cimport store_i16, store_i32
from mqcore.wire.digits cimport NUMBER_LENGTH_MAX, put_number

from mqcore.client.native.messages cimport _KEYS, _TAGS, _UNIQ_KEY, _WAIT, MessageCore
from mqcore.layout cimport (
    BATCH_ITEM_BODY,
    BATCH_ITEM_FIXED_SIZE,
    FRAME_HEADER,
    FRAME_HEADER_WORD,
    FRAME_LENGTH_SIZE,
    PROPERTIES_LENGTH_MAX,
    PROPERTIES_LENGTH_SIZE,
)

import secrets
from ipaddress import ip_address

from mqcore.client.errors import ConfigError, MessageTooLarge
from mqcore.wire.codes import FRAME_LENGTH_MAX, VERSION_4_9_8
from mqcore.wire.fastjson import quote
from mqcore.wire.ids import local_address, month_start_ms
from mqcore.wire.properties import (
    DELAY,
    TIMER_DELAY_MS,
    TIMER_DELIVER_MS,
    KEYS,
    TAGS,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
    WAIT,
)

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    object PyUnicode_DecodeASCII(const char* text, Py_ssize_t size, const char* errors)

cdef enum:
    ESCAPED_LENGTH_MAX = 6             # of one byte: \u001F
    NUMBERS_LENGTH_MAX = 7 * NUMBER_LENGTH_MAX
    LITERALS_LENGTH_MAX = 128
    COUNTER_MASK = 0xFFFF
    DELTA_MASK = 0x7FFFFFFF
    BYTE_VALUES = 256
    KEY_ROOM = 64                      # its prefix is 44 long at most
    KEY_TAIL_SIZE = 12                 # hexadecimal digits of time and counter
    WAIT_TRUE_LENGTH = 9
    WAIT_FALSE_LENGTH = 10
    TAGS_LENGTH = 4
    KEYS_LENGTH = 4
    UNIQ_KEY_LENGTH = 8

cdef int64_t _FRAME_LENGTH_MAX = FRAME_LENGTH_MAX
cdef int64_t _CLOCK_STEP_BACK_MS = 1_000_000
cdef int64_t _DAYS_32_MS = 32 * 86_400_000
cdef object _DELAY = DELAY
cdef object _TIMER_DELAY_MS = TIMER_DELAY_MS
cdef object _TIMER_DELIVER_MS = TIMER_DELIVER_MS
cdef object _TRANSACTION_PREPARED = TRANSACTION_PREPARED
cdef const char* _DIGITS = b"0123456789ABCDEF"
cdef uint8_t[BYTE_VALUES] _special     # 1: is escaped in JSON


cdef void _mark_special() noexcept nogil:
    cdef int each
    for each in range(BYTE_VALUES):
        _special[each] = each < 0x20 or each == c'"' or each == c'\\'


_mark_special()


# -- properties -----------------------------------------------------------------------------------


cdef bytes _replaced(str text):
    """UTF-8 with `?` for what has none."""
    return text.encode("utf-8", "replace")


cdef object _text_of(object text, const uint8_t** start, Py_ssize_t* size):
    """Points to the UTF-8 of `text`; the object returned owns it."""
    cdef bytes replaced
    if not isinstance(text, str):
        raise ConfigError(f"property {text!r}: expected a str, not {type(text).__name__}")
    try:
        start[0] = <const uint8_t*>PyUnicode_AsUTF8AndSize(text, size)
        return text
    except UnicodeEncodeError:
        replaced = _replaced(text)
        start[0] = <const uint8_t*>PyBytes_AS_STRING(replaced)
        size[0] = PyBytes_GET_SIZE(replaced)
        return replaced


cdef Py_ssize_t _name_size(object name) except -1:
    """The UTF-8 bytes of a property's name; ConfigError."""
    cdef Py_ssize_t size = 0
    cdef const uint8_t* start = NULL
    cdef object owner = _text_of(name, &start, &size)
    if memchr(start, 1, size) != NULL or memchr(start, 2, size) != NULL:
        raise ConfigError(f"property {name!r}: expected no characters 1 and 2")
    return size


cdef Py_ssize_t _value_size(object name, object value) except -1:
    """The UTF-8 bytes of a property's value; ConfigError."""
    cdef Py_ssize_t size = 0
    cdef const uint8_t* start = NULL
    cdef object owner = _text_of(value, &start, &size)
    if memchr(start, 2, size) != NULL:
        raise ConfigError(f"property {name!r}: expected no characters 1 and 2")
    return size


cdef Py_ssize_t _checked_size(Py_ssize_t total) except -1:
    """That of a properties string; `total` counts a mark behind its last item."""
    if total:
        total -= 1
    if total > PROPERTIES_LENGTH_MAX:
        raise MessageTooLarge(
            f"properties of {total} bytes: expected at most {PROPERTIES_LENGTH_MAX}")
    return total


cdef Py_ssize_t _properties_size(dict properties) except -1:
    """The length of the properties string; MessageTooLarge, ConfigError."""
    cdef Py_ssize_t position = 0, total = 0
    cdef PyObject* name_at
    cdef PyObject* value_at
    while PyDict_Next(properties, &position, &name_at, &value_at):
        if <object>value_at is not None:
            total += (_name_size(<object>name_at) + _value_size(<object>name_at, <object>value_at)
                      + 2)
    return _checked_size(total)


cdef inline Py_ssize_t _item_size(object name, Py_ssize_t name_size, object value) except -1:
    """The bytes of an item that a message keeps without a dict; 0 without a value."""
    return 0 if value is None else name_size + _value_size(name, value) + 2


cdef Py_ssize_t _size_of(MessageCore message) except -1:
    """The length of a message's properties string; MessageTooLarge, ConfigError."""
    if message.kept is not None:
        return _properties_size(<dict?>message.kept)
    return _checked_size(
        (WAIT_TRUE_LENGTH if message.waits else WAIT_FALSE_LENGTH) + 1
        + _item_size(_TAGS, TAGS_LENGTH, message.tags_text)
        + _item_size(_KEYS, KEYS_LENGTH, message.keys_text)
        + _item_size(_UNIQ_KEY, UNIQ_KEY_LENGTH, message.unique))


cdef uint8_t* _put_escaped(uint8_t* at, const uint8_t* start, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t each
    cdef uint8_t character
    for each in range(size):
        character = start[each]
        if not _special[character]:
            at[0] = character
            at += 1
            continue
        at[0] = c'\\'
        if character == c'"' or character == c'\\':
            at[1] = character
        elif character == c'\n':
            at[1] = c'n'
        elif character == c'\t':
            at[1] = c't'
        elif character == c'\r':
            at[1] = c'r'
        elif character == c'\b':
            at[1] = c'b'
        elif character == c'\f':
            at[1] = c'f'
        else:
            at[1] = c'u'
            at[2] = c'0'
            at[3] = c'0'
            at[4] = _DIGITS[character >> 4]
            at[5] = _DIGITS[character & 15]
            at += 4
        at += 2
    return at


cdef uint8_t* _put_bytes(uint8_t* at, const uint8_t* start, Py_ssize_t size) noexcept nogil:
    memcpy(at, start, size)
    return at + size


cdef uint8_t* _put_mark(uint8_t* at, uint8_t mark, bint escaped) noexcept nogil:
    return _put_escaped(at, &mark, 1) if escaped else _put_bytes(at, &mark, 1)


cdef uint8_t* _put_properties(uint8_t* at, dict properties, bint escaped) except NULL:
    """The properties string, in JSON's escapes or raw."""
    cdef Py_ssize_t position = 0, size = 0
    cdef PyObject* name_at
    cdef PyObject* value_at
    cdef const uint8_t* start = NULL
    cdef object owner
    cdef bint is_first = True
    while PyDict_Next(properties, &position, &name_at, &value_at):
        if <object>value_at is None:
            continue
        if not is_first:
            at = _put_mark(at, 2, escaped)
        is_first = False
        owner = _text_of(<object>name_at, &start, &size)
        at = _put_escaped(at, start, size) if escaped else _put_bytes(at, start, size)
        at = _put_mark(at, 1, escaped)
        owner = _text_of(<object>value_at, &start, &size)
        at = _put_escaped(at, start, size) if escaped else _put_bytes(at, start, size)
    return at


cdef inline uint8_t* _put_item(
        uint8_t* at, const char* name, Py_ssize_t name_size, object value) except NULL:
    """A mark and an item behind others, raw; nothing without a value."""
    cdef Py_ssize_t size = 0
    cdef const uint8_t* start = NULL
    cdef object owner
    if value is None:
        return at
    at[0] = 2
    at = _put_bytes(at + 1, <const uint8_t*>name, name_size)
    at[0] = 1
    owner = _text_of(value, &start, &size)
    return _put_bytes(at + 1, start, size)


cdef uint8_t* _put_of(uint8_t* at, MessageCore message) except NULL:
    """A message's raw properties string."""
    if message.kept is not None:
        return _put_properties(at, <dict>message.kept, False)
    if message.waits:
        at = _put_bytes(at, <const uint8_t*>b"WAIT\x01true", WAIT_TRUE_LENGTH)
    else:
        at = _put_bytes(at, <const uint8_t*>b"WAIT\x01false", WAIT_FALSE_LENGTH)
    at = _put_item(at, b"TAGS", TAGS_LENGTH, message.tags_text)
    at = _put_item(at, b"KEYS", KEYS_LENGTH, message.keys_text)
    return _put_item(at, b"UNIQ_KEY", UNIQ_KEY_LENGTH, message.unique)


cdef inline uint8_t* _put(uint8_t* at, bytes text) noexcept:
    return _put_bytes(at, <const uint8_t*>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))


cdef inline uint8_t* _put_field(uint8_t* at, const char* name, int64_t value) noexcept nogil:
    """`"x":"12",`"""
    at[0] = at[2] = at[4] = c'"'
    at[1] = name[0]
    at[3] = c':'
    at += 5
    at += put_number(at, value)
    at[0] = c'"'
    at[1] = c','
    return at + 2


# -- frames ---------------------------------------------------------------------------------------


cdef class SendFrames:
    """Writes sends of one group to one topic on one broker.

    The values of the fields a, b, c, d, k and n of SEND_MESSAGE_V2 are quoted once.
    """

    cdef bytes _names, _unit, _plain_end, _batch_end, _before_opaque, _after_opaque

    def __init__(self, group: str, topic: str, broker_name: str, *, default_topic: str,
                 default_queue_count: int, language: str, unit_mode: bool = False):
        names = {"a": group, "b": topic, "c": default_topic, "d": str(default_queue_count)}
        self._names = "".join([f'"{key}":{quote(text)},' for key, text in names.items()]).encode()
        self._unit = f'","j":"0","k":"{"true" if unit_mode else "false"}","m":"'.encode()
        tail = f'","n":{quote(broker_name)}}},"flag":'
        self._plain_end = f"false{tail}".encode()
        self._batch_end = f"true{tail}".encode()
        self._before_opaque = f',"language":"{language}","opaque":'.encode()
        self._after_opaque = (
            f',"serializeTypeCurrentRPC":"JSON","version":{VERSION_4_9_8:d}}}').encode()

    def put(self, bytearray out, int32_t code, int32_t opaque, int32_t queue_id, int32_t sys_flag,
            int64_t born_ms, int32_t flag, dict properties, bytes body, bint is_batch,
            bint is_oneway) -> int:
        """Append one frame to `out`; returns its bytes.

        Raises MessageTooLarge for properties or a frame beyond the limits, ConfigError for a
        property that is no text; `out` is unchanged then.
        """
        cdef Py_ssize_t properties_size = _properties_size(properties)
        cdef Py_ssize_t before = PyByteArray_GET_SIZE(out)
        cdef Py_ssize_t body_size = PyBytes_GET_SIZE(body)
        cdef bytes tail = self._batch_end if is_batch else self._plain_end
        cdef Py_ssize_t room = (
            FRAME_HEADER + LITERALS_LENGTH_MAX + NUMBERS_LENGTH_MAX + PyBytes_GET_SIZE(self._names)
            + PyBytes_GET_SIZE(self._unit) + PyBytes_GET_SIZE(tail)
            + PyBytes_GET_SIZE(self._before_opaque) + PyBytes_GET_SIZE(self._after_opaque)
            + ESCAPED_LENGTH_MAX * properties_size + body_size)
        cdef uint8_t* start
        cdef uint8_t* at
        cdef Py_ssize_t length
        if room > _FRAME_LENGTH_MAX + ESCAPED_LENGTH_MAX * PROPERTIES_LENGTH_MAX:
            raise MessageTooLarge(f"frame of {room} bytes: expected at most {_FRAME_LENGTH_MAX}")
        PyByteArray_Resize(out, before + room)
        start = <uint8_t*>PyByteArray_AS_STRING(out) + before
        at = _put_bytes(start + FRAME_HEADER, <const uint8_t*>b'{"code":', 8)
        at += put_number(at, code)
        at = _put_bytes(at, <const uint8_t*>b',"extFields":{', 14)
        at = _put(at, self._names)
        at = _put_field(at, b"e", queue_id)
        at = _put_field(at, b"f", sys_flag)
        at = _put_field(at, b"g", born_ms)
        at = _put_field(at, b"h", flag)
        at = _put_bytes(at, <const uint8_t*>b'"i":"', 5)
        at = _put_properties(at, properties, True)
        at = _put(at, self._unit)
        at = _put(at, tail)
        at += put_number(at, 2 if is_oneway else 0)
        at = _put(at, self._before_opaque)
        at += put_number(at, opaque)
        at = _put(at, self._after_opaque)
        length = at - start - FRAME_HEADER             # of the header
        if FRAME_HEADER_WORD + length + body_size > _FRAME_LENGTH_MAX:
            PyByteArray_Resize(out, before)
            raise MessageTooLarge(
                f"frame of {FRAME_HEADER_WORD + length + body_size} bytes: expected at most"
                f" {_FRAME_LENGTH_MAX}")
        store_i32(start, <int32_t>(FRAME_HEADER_WORD + length + body_size))
        store_i32(start + FRAME_LENGTH_SIZE, <int32_t>length)
        at = _put(at, body)
        length = at - start
        PyByteArray_Resize(out, before + length)
        return length


def batch_item_size(MessageCore message not None) -> int:
    """The bytes that a message takes in a batch; raises MessageTooLarge, ConfigError."""
    cdef bytes body = message.body
    return BATCH_ITEM_FIXED_SIZE + PyBytes_GET_SIZE(body) + _size_of(message)


def first_unlike(list messages, Py_ssize_t body_size_max) -> int:
    """The index of the first that is not of the kind of the first message: another topic, or WAIT,
    or no body of 1 to `body_size_max` bytes, or no message at all; their number without one."""
    cdef Py_ssize_t index
    cdef MessageCore first = None, message
    cdef object wait = None, body
    for index in range(len(messages)):
        if not isinstance(messages[index], MessageCore):
            return index
        message = <MessageCore>messages[index]
        if first is None:
            first, wait = message, message.text(_WAIT)
        elif message.topic is not first.topic and message.topic != first.topic:
            return index
        elif message.kept is None and first.kept is None:
            if message.waits != first.waits:
                return index
        elif message.text(_WAIT) != wait:
            return index
        body = message.body
        if type(body) is not bytes or not 0 < PyBytes_GET_SIZE(body) <= body_size_max:
            return index
    return len(messages)


cdef bint _ends_batch(MessageCore message) except -1:
    """Whether no batch may hold it."""
    return message.kept is not None and (
        _DELAY in <dict?>message.kept or _TRANSACTION_PREPARED in <dict>message.kept
        or _TIMER_DELAY_MS in <dict>message.kept or _TIMER_DELIVER_MS in <dict>message.kept)


def batch_body(list messages, Py_ssize_t first, Py_ssize_t count_max, Py_ssize_t size_max) -> tuple:
    """The batch of messages from index `first` on: (its bytes, index behind its last message).

    As many as fit into `count_max` and `size_max` bytes, up to one that no batch may hold: with a
    delay, or of a transaction. At least one, whatever it is. Raises MessageTooLarge, ConfigError.
    """
    cdef Py_ssize_t last = first, size = 0, item_size, properties_size, index
    cdef Py_ssize_t count = min(<Py_ssize_t>len(messages), first + count_max)
    cdef Py_ssize_t* sizes = <Py_ssize_t*>PyMem_Malloc(
        max(count - first, 1) * sizeof(Py_ssize_t))
    cdef MessageCore message
    cdef bytes body, made
    cdef uint8_t* at
    if sizes == NULL:
        raise MemoryError
    try:
        while last < count:
            message = <MessageCore?>messages[last]
            body = message.body
            if last > first and _ends_batch(message):
                break
            properties_size = _size_of(message)
            item_size = BATCH_ITEM_FIXED_SIZE + PyBytes_GET_SIZE(body) + properties_size
            if size + item_size > size_max and last > first:
                break
            size += item_size
            sizes[last - first] = properties_size
            last += 1
        made = PyBytes_FromStringAndSize(NULL, size)
        at = <uint8_t*>PyBytes_AS_STRING(made)
        for index in range(first, last):
            message = <MessageCore>messages[index]
            body = message.body
            properties_size = sizes[index - first]
            store_i32(at, <int32_t>(
                BATCH_ITEM_FIXED_SIZE + PyBytes_GET_SIZE(body) + properties_size))
            store_i32(at + 4, 0)
            store_i32(at + 8, 0)
            store_i32(at + 12, message.flag)
            store_i32(at + 16, <int32_t>PyBytes_GET_SIZE(body))
            at = _put(at + BATCH_ITEM_BODY, body)
            store_i16(at, <int16_t>properties_size)
            at = _put_of(at + PROPERTIES_LENGTH_SIZE, message)
    finally:
        PyMem_Free(sizes)
    return made, last


# -- unique keys ----------------------------------------------------------------------------------


cdef inline void _put_hex(char* at, int64_t value, int digits) noexcept nogil:
    cdef int each
    for each in range(digits):
        at[digits - 1 - each] = _DIGITS[value & 15]
        value >>= 4


cdef class KeySource:
    """Makes UNIQ_KEYs as `mqcore.wire.ids.UniqueKeys` does; one of a process, for all threads."""

    cdef bytes _prefix
    cdef int _pid
    cdef int64_t _counter, _month_ms, _month_end_ms

    def __init__(self):
        self._pid = 0

    cdef int _begin(self) except -1:
        """A prefix of this process's own: after the first use, and after a fork."""
        self._pid = getpid()
        raw = (ip_address(local_address()).packed + (self._pid & 0xFFFF).to_bytes(2, "big")
               + secrets.token_bytes(4))
        self._prefix = raw.hex().upper().encode()
        self._counter = self._month_end_ms = 0
        return 0

    cdef object _next(self, int64_t now_ms):
        cdef char[KEY_ROOM] key
        cdef Py_ssize_t size
        cdef int64_t delta_ms
        if now_ms >= self._month_end_ms:
            self._month_ms = month_start_ms(now_ms)
            self._month_end_ms = month_start_ms(self._month_ms + _DAYS_32_MS)
        delta_ms = now_ms - self._month_ms
        if -_CLOCK_STEP_BACK_MS < delta_ms < 0:
            delta_ms = 0
        size = PyBytes_GET_SIZE(self._prefix)
        memcpy(key, PyBytes_AS_STRING(self._prefix), size)
        _put_hex(key + size, delta_ms & DELTA_MASK, 8)
        _put_hex(key + size + 8, self._counter & COUNTER_MASK, 4)
        self._counter += 1
        return PyUnicode_DecodeASCII(key, size + KEY_TAIL_SIZE, NULL)

    def next(self, int64_t now_ms) -> str:
        """A fresh key; `now_ms` is epoch ms."""
        if self._pid != getpid():
            self._begin()
        return self._next(now_ms)

    cdef object _give(self, MessageCore message, int64_t now_ms):
        cdef PyObject* found
        cdef dict properties
        if message.kept is None:
            if message.unique is None:
                message.unique = self._next(now_ms)
            return message.unique
        properties = <dict?>message.kept
        found = PyDict_GetItem(properties, _UNIQ_KEY)
        if found != NULL:
            return <object>found
        key = self._next(now_ms)
        PyDict_SetItem(properties, _UNIQ_KEY, key)
        return key

    def give(self, MessageCore message not None, int64_t now_ms) -> str:
        """The key of a message; it gets one unless it has one."""
        if self._pid != getpid():
            self._begin()
        return self._give(message, now_ms)

    def give_all(self, list messages, int64_t now_ms) -> list:
        """The same of many messages: their keys in order.

        Raises ConfigError, MessageTooLarge for one whose flag or properties cannot be sent.
        """
        cdef list keys = []
        cdef MessageCore message
        cdef int32_t flag
        if self._pid != getpid():
            self._begin()
        for each in messages:
            message = <MessageCore?>each
            try:
                flag = message.flag
            except (TypeError, OverflowError):
                raise ConfigError(
                    f"flag {message.flag!r}: expected a whole number of 32 bits") from None
            keys.append(self._give(message, now_ms))
            _size_of(message)
        return keys
