# cython: freethreading_compatible=True
"""
From Arrow's columns to the bodies of batched sends, without a Python object for each row.

A body is that of SEND_BATCH_MESSAGE (remoting.md 4.1): items of size, magic, CRC, flag, body,
properties.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp, memcpy

from mqcore.endian cimport store_i16, store_i32
from mqcore.layout cimport (
    BATCH_ITEM_BODY,
    NAME_SEPARATOR,
    PROPERTIES_LENGTH_MAX,
    PROPERTIES_LENGTH_SIZE,
    PROPERTY_SEPARATOR,
)
from mqcore.text cimport Literal, is_literal, literal

from mqcore.client.errors import ConfigError, MessageTooLarge
from mqcore.wire.properties import RESERVED

cdef enum:
    ID_SIZE = 32                        # of a UNIQ_KEY: a prefix, and a number
    ID_PREFIX_SIZE = 20
    ID_DIGITS = 12
    LEFT_OUT_MAX = 64

cdef bytes _FIXED = b"WAIT\x01true\x02UNIQ_KEY\x01"
cdef const uint8_t* _fixed = <const uint8_t*>PyBytes_AS_STRING(_FIXED)
cdef Py_ssize_t _fixed_size = len(_FIXED)
cdef list _LEFT_OUT = sorted([name.encode() for name in RESERVED])   # those two have columns
cdef int _left_out_count = min(len(_LEFT_OUT), LEFT_OUT_MAX)
cdef const char* _left_out[LEFT_OUT_MAX]
cdef Py_ssize_t _left_out_size[LEFT_OUT_MAX]
for _index in range(_left_out_count):
    _left_out[_index] = PyBytes_AS_STRING(_LEFT_OUT[_index])
    _left_out_size[_index] = len(_LEFT_OUT[_index])


# One column of texts, or bytes: Arrow's buffers.
cdef struct Texts:
    const uint8_t* there                # a bit for each; NULL: all are
    const int32_t* ends
    const uint8_t* data
    int64_t offset
    bint is_given

cdef struct Cell:
    const uint8_t* start
    int64_t size


cdef inline bint is_there(const uint8_t* bits, int64_t index) noexcept nogil:
    return bits == NULL or (bits[index >> 3] >> (index & 7)) & 1


cdef inline Cell cell_of(const Texts* texts, int64_t row) noexcept nogil:
    """The text of a row; an empty one where there is none."""
    cdef Cell cell
    cdef int64_t at = texts.offset + row
    cell.start = texts.data
    cell.size = 0
    if texts.is_given and is_there(texts.there, at):
        cell.start = texts.data + texts.ends[at]
        cell.size = texts.ends[at + 1] - texts.ends[at]
    return cell


cdef inline bint is_left_out(const Cell* name) noexcept nogil:
    """Whether a property is the clients' or brokers' own."""
    cdef int index
    for index in range(_left_out_count):
        if _left_out_size[index] == name.size and (
                memcmp(_left_out[index], name.start, name.size) == 0):
            return True
    return False


cdef inline uint8_t* put(uint8_t* at, const void* start, int64_t size) noexcept nogil:
    memcpy(at, start, size)
    return at + size


cdef inline int64_t put_item(
    uint8_t* target, Literal name, const Cell* value
) noexcept nogil:
    """One more property; its bytes, written when there is a target."""
    if target != NULL:
        target[0] = PROPERTY_SEPARATOR
        target = put(target + 1, name.text, name.length)
        target[0] = NAME_SEPARATOR
        put(target + 1, value.start, value.size)
    return 2 + name.length + value.size


cdef class ArrowRows:
    """The rows of one record batch as messages of one topic."""

    cdef readonly int64_t count
    cdef Texts _body, _tags, _key, _names, _values
    cdef const uint8_t* _keys_there             # of lists of keys
    cdef const int32_t* _keys_ends
    cdef int64_t _keys_offset
    cdef const uint8_t* _map_there
    cdef const int32_t* _map_ends
    cdef int64_t _map_offset
    cdef const int32_t* _flags
    cdef bint _verbatim
    cdef list _held

    def __init__(self, int64_t count, object body, *, object tags=None, object keys=None,
                 object keys_rows=None, object names=None, object values=None, object map_rows=None,
                 object flags=None, bint verbatim=False):
        """
        Columns as (validity or None, i32 ends, data or None, offset): buffers, and the first row.

        keys, keys_rows         all keys, and the lists of rows; without the latter: one text a row
        names, values, map_rows of the properties
        flags                   (validity or None, i32 values, None, offset) without nulls
        verbatim                the properties are all that messages have: none is left out, and no
                                id is made
        """
        self._held = []
        self._verbatim = verbatim
        self.count = count
        self.hold(body, &self._body)
        self.hold(tags, &self._tags)
        self.hold(keys, &self._key)
        self.hold(names, &self._names)
        self.hold(values, &self._values)
        cdef Texts rows
        self.hold(keys_rows, &rows)
        self._keys_there, self._keys_ends, self._keys_offset = rows.there, rows.ends, rows.offset
        self.hold(map_rows, &rows)
        self._map_there, self._map_ends, self._map_offset = rows.there, rows.ends, rows.offset
        self.hold(flags, &rows)
        self._flags = rows.ends + rows.offset if rows.is_given else NULL

    cdef int hold(self, object column, Texts* texts) except -1:
        texts.is_given = column is not None
        texts.there = texts.data = NULL
        texts.ends = NULL
        texts.offset = 0
        if column is not None:
            there, ends, data, texts.offset = column
            texts.there = self.buffer(there)
            texts.ends = <const int32_t*>self.buffer(ends)
            texts.data = self.buffer(data)
        return 0

    cdef const uint8_t* buffer(self, object one) except? NULL:
        cdef const uint8_t[::1] view
        if one is None or len(one) == 0:
            return NULL
        view = one
        self._held.append(view)
        return &view[0]

    cdef int64_t properties(self, int64_t row, uint8_t* target) except -1:
        """
        All but the fixed ones, a separator before each; their bytes, written when there is a
        target. Tags and keys are those of their columns, where a null means none; without the
        column, those of the map. ConfigError.
        """
        cdef int64_t total = 0, at, first, last
        cdef Cell tags = cell_of(&self._tags, row), keys, name, value
        cdef Literal text
        if tags.size:
            total += put_item(target, literal("TAGS"), &tags)
        if self._keys_ends != NULL:
            at = self._keys_offset + row
            if is_there(self._keys_there, at):
                first, last = self._keys_ends[at], self._keys_ends[at + 1]
                total += self.joined(first, last, NULL if target == NULL else target + total)
        else:
            keys = cell_of(&self._key, row)
            if keys.size:
                total += put_item(NULL if target == NULL else target + total, literal("KEYS"), &keys)
        if self._map_ends == NULL or not is_there(self._map_there, self._map_offset + row):
            return total
        at = self._map_offset + row
        for at in range(self._map_ends[at], self._map_ends[at + 1]):
            name, value = cell_of(&self._names, at), cell_of(&self._values, at)
            if not value.size:
                continue
            if not self._verbatim and is_left_out(&name) and not (
                    (not self._tags.is_given and is_literal(name.start, name.size, "TAGS"))
                    or (not self._key.is_given and is_literal(name.start, name.size, "KEYS"))):
                continue
            if target == NULL:
                self.check(row, &name, &value)
            text.text, text.length = <const char*>name.start, <int32_t>name.size
            total += put_item(NULL if target == NULL else target + total, text, &value)
        return total

    cdef int64_t joined(self, int64_t first, int64_t last, uint8_t* target) noexcept nogil:
        """Keys of a list, parted by blanks, as one property; its bytes. Nulls are none."""
        cdef int64_t total = 0, at
        cdef Cell key, none
        none.start = NULL
        none.size = 0
        for at in range(first, last):
            key = cell_of(&self._key, at)
            if not key.size:
                continue
            if total == 0:
                total = put_item(target, literal("KEYS"), &none)
            else:
                if target != NULL:
                    target[total] = c" "
                total += 1
            if target != NULL:
                put(target + total, key.start, key.size)
            total += key.size
        return total

    cdef int check(self, int64_t row, const Cell* name, const Cell* value) except -1:
        if not name.size or memchr(name.start, NAME_SEPARATOR, name.size) != NULL or (
                memchr(name.start, PROPERTY_SEPARATOR, name.size) != NULL) or (
                memchr(value.start, PROPERTY_SEPARATOR, value.size) != NULL):
            raise ConfigError(f"properties of row {row}: expected names, and no characters 1 and 2")
        return 0

    cdef int64_t properties_size(self, int64_t row) except -1:
        """Bytes of all properties of a row. Raises ConfigError."""
        cdef int64_t size = self.properties(row, NULL)
        return max(size - 1, 0) if self._verbatim else _fixed_size + ID_SIZE + size

    def encode(self, int64_t first, int64_t count_max, int64_t size_max, bytes prefix not None,
               int64_t number) -> tuple:
        """
        The batch of rows from `first` on: (its bytes, the row behind its last one).

        As many as fit into `count_max` and `size_max` bytes, at least one. The row at `first` has
        the id of 20 digits `prefix` and `number` in 12 hexadecimal ones; each row after it one
        more; `verbatim` rows have what their properties say. Raises ConfigError for a row without a
        body, MessageTooLarge.
        """
        cdef int64_t row = first, size = 0, item_size, end = min(self.count, first + count_max)
        cdef int64_t properties_size, index
        cdef Cell body
        cdef const char* digits = "0123456789ABCDEF"
        cdef bytes made
        cdef uint8_t* at
        if not self._verbatim and len(prefix) != ID_PREFIX_SIZE:
            raise ConfigError(f"prefix {prefix!r}: expected {ID_PREFIX_SIZE} digits")
        while row < end:
            body = cell_of(&self._body, row)
            if not body.size:
                raise ConfigError("a row has no body: brokers take no empty messages")
            properties_size = self.properties_size(row)
            if properties_size > PROPERTIES_LENGTH_MAX:
                raise MessageTooLarge(f"properties of {properties_size} bytes: expected at most"
                                      f" {PROPERTIES_LENGTH_MAX}")
            item_size = BATCH_ITEM_BODY + body.size + PROPERTIES_LENGTH_SIZE + properties_size
            if row > first and size + item_size > size_max:
                break
            size += item_size
            row += 1
        end = row
        made = PyBytes_FromStringAndSize(NULL, size)
        at = <uint8_t*>PyBytes_AS_STRING(made)
        for row in range(first, end):
            body = cell_of(&self._body, row)
            properties_size = self.properties_size(row)
            store_i32(at, <int32_t>(BATCH_ITEM_BODY + body.size + PROPERTIES_LENGTH_SIZE
                                    + properties_size))
            store_i32(at + 4, 0)
            store_i32(at + 8, 0)
            store_i32(at + 12, 0 if self._flags == NULL else self._flags[row])
            store_i32(at + 16, <int32_t>body.size)
            at = put(at + BATCH_ITEM_BODY, body.start, body.size)
            if self._verbatim:              # the first separator lies where the length comes then
                self.properties(row, at + PROPERTIES_LENGTH_SIZE - 1)
                store_i16(at, <int16_t>properties_size)
                at += PROPERTIES_LENGTH_SIZE + properties_size
                continue
            store_i16(at, <int16_t>properties_size)
            at = put(at + PROPERTIES_LENGTH_SIZE, _fixed, _fixed_size)
            at = put(at, PyBytes_AS_STRING(prefix), ID_PREFIX_SIZE)
            for index in range(ID_DIGITS):
                at[index] = digits[((number + row - first) >> (4 * (ID_DIGITS - 1 - index))) & 15]
            at += ID_DIGITS
            at += self.properties(row, at)
        return made, end
