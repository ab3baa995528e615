# cython: freethreading_compatible=True
"""
From the bodies of pulls to columns, without a Python object for each message.

`scan` checks one body and says which offsets it has; `columns` lays the records of many bodies out
as Arrow's buffers: numbers, a bit for each row that has a value, i32 offsets into bytes.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp, memcpy, memset

from mqcore.endian cimport load_i16, load_i32, load_i64
from mqcore.layout cimport (
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    MAGIC_MESSAGE,
    NAME_SEPARATOR,
    PROPERTY_SEPARATOR,
    RECORD_BODY_AFTER_HOSTS,
    RECORD_BODY_LENGTH_AFTER_HOSTS,
    RECORD_BORN_HOST,
    RECORD_BORN_TIME,
    RECORD_FIXED_SIZE,
    RECORD_FLAG,
    RECORD_LOG_POSITION,
    RECORD_MAGIC,
    RECORD_QUEUE_OFFSET,
    RECORD_RECONSUME_TIMES_AFTER_HOSTS,
    RECORD_SIZE,
    RECORD_STORE_HOST_AFTER_BORN_HOST,
    RECORD_STORE_TIME_AFTER_BORN_HOST,
    RECORD_SYS_FLAG,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_COMPRESSED,
    SYS_FLAG_STORE_HOST_V6,
)

from mqcore.wire.properties import decode_properties, encode_properties
from mqcore.wire.records import RecordError, decompress

cdef enum:
    ITEMS_MAX = 64              # properties that are compared for duplicates one by one
    PROPERTIES_LENGTH_SIZE = 2

cdef struct Row:
    const uint8_t* body
    const uint8_t* properties
    const uint8_t* store_host
    int64_t queue_offset
    int64_t log_position
    int64_t born_ms
    int64_t store_ms
    int32_t body_length
    int32_t properties_length
    int32_t flag
    int32_t sys_flag
    int32_t reconsume_times
    int32_t size                # of the whole record

cdef struct Item:
    const uint8_t* name
    const uint8_t* value
    int32_t name_length
    int32_t value_length

# What the columns of variable length need, in rows' sums.
cdef struct Sizes:
    int64_t body
    int64_t tags
    int64_t keys
    int64_t key_count
    int64_t ids
    int64_t names
    int64_t values
    int64_t items


cdef inline bint read_row(const uint8_t* at, int64_t left, Row* row) noexcept nogil:
    """One record of at most `left` bytes; False when its lengths do not fit."""
    cdef int64_t end, place
    cdef int32_t born_host_size, store_host_size
    if left < RECORD_FIXED_SIZE or load_i32(at + RECORD_MAGIC) != MAGIC_MESSAGE:
        return False
    end = load_i32(at + RECORD_SIZE)
    if end < RECORD_FIXED_SIZE or end > left:
        return False
    row.size = <int32_t>end
    row.flag = load_i32(at + RECORD_FLAG)
    row.queue_offset = load_i64(at + RECORD_QUEUE_OFFSET)
    row.log_position = load_i64(at + RECORD_LOG_POSITION)
    row.sys_flag = load_i32(at + RECORD_SYS_FLAG)
    row.born_ms = load_i64(at + RECORD_BORN_TIME)
    born_host_size = HOST_V6_SIZE if row.sys_flag & SYS_FLAG_BORN_HOST_V6 else HOST_V4_SIZE
    store_host_size = HOST_V6_SIZE if row.sys_flag & SYS_FLAG_STORE_HOST_V6 else HOST_V4_SIZE
    if end < RECORD_FIXED_SIZE + born_host_size + store_host_size - 2 * HOST_V4_SIZE:
        return False
    place = RECORD_BORN_HOST + born_host_size
    row.store_ms = load_i64(at + place + RECORD_STORE_TIME_AFTER_BORN_HOST)
    row.store_host = at + place + RECORD_STORE_HOST_AFTER_BORN_HOST
    place += RECORD_STORE_HOST_AFTER_BORN_HOST + store_host_size
    row.reconsume_times = load_i32(at + place + RECORD_RECONSUME_TIMES_AFTER_HOSTS)
    row.body_length = load_i32(at + place + RECORD_BODY_LENGTH_AFTER_HOSTS)
    place += RECORD_BODY_AFTER_HOSTS
    # after the body at least the topic's length, and that of the properties
    if row.body_length < 0 or row.body_length > end - place - 1 - PROPERTIES_LENGTH_SIZE:
        return False
    row.body = at + place
    place += row.body_length
    place += 1 + at[place]
    if place > end - PROPERTIES_LENGTH_SIZE:
        return False
    row.properties_length = load_i16(at + place)
    row.properties = at + place + PROPERTIES_LENGTH_SIZE
    return row.properties_length == end - place - PROPERTIES_LENGTH_SIZE


cdef inline bint next_item(const uint8_t** at, const uint8_t* end, Item* item) noexcept nogil:
    """The next property that has a name and a value; False at the end."""
    cdef const uint8_t* stop
    cdef const uint8_t* middle
    while at[0] < end:
        item.name = at[0]
        stop = <const uint8_t*>memchr(at[0], PROPERTY_SEPARATOR, end - at[0])
        if stop == NULL:
            stop = end
            at[0] = end
        else:
            at[0] = stop + 1
        middle = <const uint8_t*>memchr(item.name, NAME_SEPARATOR, stop - item.name)
        if middle == NULL or middle == item.name or middle + 1 == stop:
            continue
        item.name_length = <int32_t>(middle - item.name)
        item.value = middle + 1
        item.value_length = <int32_t>(stop - item.value)
        return True
    return False


cdef inline bint is_named(const Item* item, const char* name, int32_t length) noexcept nogil:
    return item.name_length == length and memcmp(item.name, name, length) == 0


cdef inline bint is_ascii(const uint8_t* at, int32_t length) noexcept nogil:
    cdef int32_t index = 0
    cdef uint64_t word
    while index + 8 <= length:
        memcpy(&word, at + index, 8)
        if word & 0x8080808080808080U:
            return False
        index += 8
    while index < length:
        if at[index] & 0x80:
            return False
        index += 1
    return True


cdef inline bint is_plain(const Row* row) noexcept nogil:
    """Whether the properties can be taken as they lie there: ASCII, few, no name twice."""
    cdef Item items[ITEMS_MAX]
    cdef const uint8_t* at = row.properties
    cdef const uint8_t* end = at + row.properties_length
    cdef int count = 0, other
    if not is_ascii(row.properties, row.properties_length):
        return False
    while at < end:
        if count == ITEMS_MAX:
            return False
        if not next_item(&at, end, &items[count]):
            break
        for other in range(count):
            if is_named(&items[other], <const char*>items[count].name, items[count].name_length):
                return False
        count += 1
    return True


# -- one body ---------------------------------------------------------------------------------------


cdef bint wanted(const Row* row, list tags):
    """Whether the TAGS of a record is one of `tags`: the broker compared hashes."""
    cdef const uint8_t* at = row.properties
    cdef const uint8_t* end = at + row.properties_length
    cdef Item item
    found = None
    while next_item(&at, end, &item):
        if is_named(&item, b"TAGS", 4):
            found = item.value[:item.value_length]       # the last duplicate counts
    return found in tags


def scan(bytes body not None, int64_t begin, int64_t stop, bint whole, list tags):
    """
    Check the records of a pull's body: those from `begin` on, below `stop`, in order.

    whole  every offset must be there, from `begin` on: nothing filters
    tags   the encoded tags that are wanted; None = all

    Returns (records, count, next, first_store_ms, missing): the records wanted, end to end; how
    many; the offset after the last one looked at; the store time of the first wanted one, 0 without
    one; the offset that was found where `next` was expected, -1 when nothing is missing.
    Raises RecordError for bytes that are no records, or not in order.
    """
    cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(body)
    cdef int64_t length = len(body), place = 0, expected = begin, first_ms = 0
    cdef int64_t count = 0, kept_from = 0, missing = -1
    cdef Row row
    cdef list parts = None                  # when something between others is left out
    while place < length:
        if not read_row(data + place, length - place, &row):
            raise RecordError(f"byte {place} of {length}: no record")
        if row.queue_offset < expected:
            raise RecordError(f"offset {row.queue_offset}: expected {expected} or more")
        if row.queue_offset >= stop:
            break
        if whole and row.queue_offset != expected:
            missing = row.queue_offset
            break
        expected = row.queue_offset + 1
        if tags is not None and not wanted(&row, tags):
            if parts is None:
                parts = []
            parts.append(body[kept_from:place])
            kept_from = place + row.size
        else:
            if count == 0:
                first_ms = row.store_ms
            count += 1
        place += row.size
    if parts is not None:
        parts.append(body[kept_from:place])
        return b"".join(parts), count, expected, first_ms, missing
    return body if place == length else body[:place], count, expected, first_ms, missing


# -- many bodies ------------------------------------------------------------------------------------


cdef inline bint is_gap(uint8_t byte) noexcept nogil:
    """What separates keys: Java's and Python's blanks that occur in ASCII."""
    return byte == c" " or 9 <= byte <= 13 or 28 <= byte <= 31


cdef int64_t split_keys(
    const Item* item, uint8_t* target, int32_t* ends, int64_t filled, int64_t* bytes_total,
) noexcept nogil:
    """Count the keys of a KEYS value, and write them when there is a target; returns how many."""
    cdef int32_t index = 0, start
    cdef int64_t count = 0
    while index < item.value_length:
        while index < item.value_length and is_gap(item.value[index]):
            index += 1
        start = index
        while index < item.value_length and not is_gap(item.value[index]):
            index += 1
        if index == start:
            break
        if target != NULL:
            memcpy(target + bytes_total[0], item.value + start, index - start)
        bytes_total[0] += index - start
        count += 1
        if ends != NULL:
            ends[filled + count] = <int32_t>bytes_total[0]
    return count


cdef inline int32_t id_length(const Row* row) noexcept nogil:
    """Digits of an offset message id: address, port, position."""
    return 2 * (HOST_V6_SIZE if row.sys_flag & SYS_FLAG_STORE_HOST_V6 else HOST_V4_SIZE) + 16


cdef inline void write_hex(uint8_t* target, const uint8_t* source, int length) noexcept nogil:
    cdef const char* digits = "0123456789ABCDEF"
    cdef int index
    for index in range(length):
        target[2 * index] = digits[source[index] >> 4]
        target[2 * index + 1] = digits[source[index] & 15]


cdef inline void write_id(uint8_t* target, const Row* row) noexcept nogil:
    cdef int host = (id_length(row) - 16) // 2, index
    cdef uint8_t position[8]
    for index in range(8):
        position[index] = <uint8_t>(row.log_position >> (56 - 8 * index))
    write_hex(target, row.store_host, host)
    write_hex(target + 2 * host, position, 8)


cdef void measure(const Row* row, Sizes* sizes) noexcept nogil:
    cdef const uint8_t* at = row.properties
    cdef const uint8_t* end = at + row.properties_length
    cdef Item item
    cdef int32_t id_size = id_length(row)
    sizes.body += row.body_length
    while next_item(&at, end, &item):
        sizes.items += 1
        sizes.names += item.name_length
        sizes.values += item.value_length
        if is_named(&item, b"TAGS", 4):
            sizes.tags += item.value_length
        elif is_named(&item, b"KEYS", 4):
            sizes.key_count += split_keys(&item, NULL, NULL, 0, &sizes.keys)
        elif is_named(&item, b"UNIQ_KEY", 8):
            id_size = item.value_length
    sizes.ids += id_size


cdef bytes room(int64_t size):
    return PyBytes_FromStringAndSize(NULL, size)


cdef class Columns:
    """The buffers of one record batch, by name; `ends` are i32 offsets as Arrow has them."""

    cdef readonly int64_t row_count, key_count, item_count
    cdef readonly bytes queue_offset, log_position, born_ms, store_ms
    cdef readonly bytes flag, sys_flag, reconsume_times
    cdef readonly bytes body, body_ends, tags, tags_ends, tags_there
    cdef readonly bytes keys, keys_ends, keys_rows, ids, ids_ends
    cdef readonly bytes names, names_ends, values, values_ends, items_rows
    cdef readonly int64_t tags_missing

    cdef int fill(self, const Row* rows) except -1:
        cdef int64_t row, key = 0, item_index = 0, n = self.row_count
        cdef int64_t at_body = 0, at_tags = 0, at_keys = 0, at_ids = 0, at_names = 0
        cdef int64_t at_values = 0, missing = 0
        cdef const uint8_t* at
        cdef const uint8_t* end
        cdef const Row* one
        cdef Item item, unique
        cdef bint tagged
        cdef int64_t* queue_offset = <int64_t*>PyBytes_AS_STRING(self.queue_offset)
        cdef int64_t* log_position = <int64_t*>PyBytes_AS_STRING(self.log_position)
        cdef int64_t* born_ms = <int64_t*>PyBytes_AS_STRING(self.born_ms)
        cdef int64_t* store_ms = <int64_t*>PyBytes_AS_STRING(self.store_ms)
        cdef int32_t* flag = <int32_t*>PyBytes_AS_STRING(self.flag)
        cdef int32_t* sys_flag = <int32_t*>PyBytes_AS_STRING(self.sys_flag)
        cdef int32_t* reconsume_times = <int32_t*>PyBytes_AS_STRING(self.reconsume_times)
        cdef uint8_t* body = <uint8_t*>PyBytes_AS_STRING(self.body)
        cdef int32_t* body_ends = <int32_t*>PyBytes_AS_STRING(self.body_ends)
        cdef uint8_t* tags = <uint8_t*>PyBytes_AS_STRING(self.tags)
        cdef int32_t* tags_ends = <int32_t*>PyBytes_AS_STRING(self.tags_ends)
        cdef uint8_t* tags_there = <uint8_t*>PyBytes_AS_STRING(self.tags_there)
        cdef uint8_t* keys = <uint8_t*>PyBytes_AS_STRING(self.keys)
        cdef int32_t* keys_ends = <int32_t*>PyBytes_AS_STRING(self.keys_ends)
        cdef int32_t* keys_rows = <int32_t*>PyBytes_AS_STRING(self.keys_rows)
        cdef uint8_t* ids = <uint8_t*>PyBytes_AS_STRING(self.ids)
        cdef int32_t* ids_ends = <int32_t*>PyBytes_AS_STRING(self.ids_ends)
        cdef uint8_t* names = <uint8_t*>PyBytes_AS_STRING(self.names)
        cdef int32_t* names_ends = <int32_t*>PyBytes_AS_STRING(self.names_ends)
        cdef uint8_t* values = <uint8_t*>PyBytes_AS_STRING(self.values)
        cdef int32_t* values_ends = <int32_t*>PyBytes_AS_STRING(self.values_ends)
        cdef int32_t* items_rows = <int32_t*>PyBytes_AS_STRING(self.items_rows)
        with nogil:
            memset(tags_there, 0, (n + 7) // 8)
            body_ends[0] = tags_ends[0] = keys_ends[0] = keys_rows[0] = ids_ends[0] = 0
            names_ends[0] = values_ends[0] = items_rows[0] = 0
            for row in range(n):
                one = &rows[row]
                queue_offset[row] = one.queue_offset
                log_position[row] = one.log_position
                born_ms[row] = one.born_ms
                store_ms[row] = one.store_ms
                flag[row] = one.flag
                sys_flag[row] = one.sys_flag
                reconsume_times[row] = one.reconsume_times
                memcpy(body + at_body, one.body, one.body_length)
                at_body += one.body_length
                unique.value_length = 0
                unique.value = NULL
                tagged = False
                at = one.properties
                end = at + one.properties_length
                while next_item(&at, end, &item):
                    memcpy(names + at_names, item.name, item.name_length)
                    at_names += item.name_length
                    memcpy(values + at_values, item.value, item.value_length)
                    at_values += item.value_length
                    item_index += 1
                    names_ends[item_index] = <int32_t>at_names
                    values_ends[item_index] = <int32_t>at_values
                    if is_named(&item, b"TAGS", 4):
                        memcpy(tags + at_tags, item.value, item.value_length)
                        at_tags += item.value_length
                        tagged = True
                    elif is_named(&item, b"KEYS", 4):
                        key += split_keys(&item, keys, keys_ends, key, &at_keys)
                    elif is_named(&item, b"UNIQ_KEY", 8):
                        unique = item
                if tagged:
                    tags_there[row >> 3] |= 1 << (row & 7)
                else:
                    missing += 1
                if unique.value_length:
                    memcpy(ids + at_ids, unique.value, unique.value_length)
                    at_ids += unique.value_length
                else:
                    write_id(ids + at_ids, one)
                    at_ids += id_length(one)
                body_ends[row + 1] = <int32_t>at_body
                tags_ends[row + 1] = <int32_t>at_tags
                keys_rows[row + 1] = <int32_t>key
                ids_ends[row + 1] = <int32_t>at_ids
                items_rows[row + 1] = <int32_t>item_index
        self.tags_missing = missing
        return 0


cdef int64_t read_rows(const uint8_t* data, int64_t length, Row* rows, int64_t room_left,
                       uint8_t* special) noexcept nogil:
    """The records of one body into `rows`; how many, -1 for bytes that are no records, or more."""
    cdef int64_t place = 0, count = 0
    while place < length:
        if count == room_left or not read_row(data + place, length - place, &rows[count]):
            return -1
        special[count] = (1 if rows[count].sys_flag & SYS_FLAG_COMPRESSED else 0) | (
            0 if is_plain(&rows[count]) else 2)
        place += rows[count].size
        count += 1
    return count


def columns(list bodies not None, int64_t row_count):
    """
    The columns of the records in `bodies` (bytes each), which are `row_count` together.

    Bodies come out decompressed; of properties whose names or values are no UTF-8 the broken bytes
    are replaced, and of those with one name the last counts. Raises RecordError for bytes that are
    no records, for a body that cannot be decompressed, and for more than 2 GiB in one column.
    """
    cdef Columns made = Columns.__new__(Columns)
    cdef Sizes sizes
    cdef Row* rows
    cdef uint8_t* special
    cdef int64_t filled = 0, count, index, length
    cdef const uint8_t* data
    cdef list held = []                     # what rows point to besides the bodies
    rows = <Row*>malloc(max(row_count, 1) * sizeof(Row))
    special = <uint8_t*>malloc(max(row_count, 1))
    try:
        if rows == NULL or special == NULL:
            raise MemoryError
        for one in bodies:
            data = <const uint8_t*>PyBytes_AS_STRING(<bytes?>one)
            length = len(<bytes>one)
            with nogil:
                count = read_rows(data, length, rows + filled, row_count - filled,
                                  special + filled)
            if count < 0:
                raise RecordError(f"a body of {length} bytes: no records, or more than were counted")
            filled += count
        for index in range(filled):
            if special[index]:
                normalise(&rows[index], special[index], held)
        memset(&sizes, 0, sizeof(Sizes))
        with nogil:
            for index in range(filled):
                measure(&rows[index], &sizes)
        if max(sizes.body, sizes.names, sizes.values, sizes.items) > 0x7FFFFFFF:
            raise RecordError(f"{filled} messages have more than 2 GiB: expected smaller batches")
        made.row_count, made.key_count, made.item_count = filled, sizes.key_count, sizes.items
        made.queue_offset, made.log_position = room(8 * filled), room(8 * filled)
        made.born_ms, made.store_ms = room(8 * filled), room(8 * filled)
        made.flag, made.sys_flag = room(4 * filled), room(4 * filled)
        made.reconsume_times = room(4 * filled)
        made.body, made.body_ends = room(sizes.body), room(4 * (filled + 1))
        made.tags, made.tags_ends = room(sizes.tags), room(4 * (filled + 1))
        made.tags_there = room((filled + 7) // 8)
        made.keys, made.keys_ends = room(sizes.keys), room(4 * (sizes.key_count + 1))
        made.keys_rows = room(4 * (filled + 1))
        made.ids, made.ids_ends = room(sizes.ids), room(4 * (filled + 1))
        made.names, made.names_ends = room(sizes.names), room(4 * (sizes.items + 1))
        made.values, made.values_ends = room(sizes.values), room(4 * (sizes.items + 1))
        made.items_rows = room(4 * (filled + 1))
        made.fill(rows)
    finally:
        free(rows)
        free(special)
    return made


cdef int normalise(Row* row, uint8_t special, list held) except -1:
    """Let a row point to its plain body, and to properties as they are read."""
    cdef bytes other
    if special & 1:
        other = decompress(row.body[:row.body_length], row.sys_flag)
        held.append(other)
        row.body = <const uint8_t*>PyBytes_AS_STRING(other)
        row.body_length = <int32_t>len(other)
    if special & 2:
        other = encode_properties(
            decode_properties(row.properties[:row.properties_length])).encode()
        held.append(other)
        row.properties = <const uint8_t*>PyBytes_AS_STRING(other)
        row.properties_length = <int32_t>len(other)
    return 0
