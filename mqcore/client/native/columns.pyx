# cython: freethreading_compatible=True
"""
From the bodies of pulls to columns, without a Python object for each message.

`scan` checks one body and says which offsets it has; `columns` lays the records of many bodies out
as Arrow's buffers: numbers, a bit for each row that has a value, i32 offsets into bytes.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from mqcore.client.native.rows cimport (
    Item,
    Row,
    is_ascii,
    is_plain,
    next_item,
    read_row,
)
from mqcore.client.native.texts cimport (
    HOST_TEXT_MAX,
    LastHost,
    id_length,
    put_json,
    split_keys,
    write_host_again,
    write_id,
)
from mqcore.layout cimport SYS_FLAG_BORN_HOST_V6, SYS_FLAG_COMPRESSED, SYS_FLAG_STORE_HOST_V6
from mqcore.text cimport is_literal

from mqcore.wire.properties import decode_properties, encode_properties
from mqcore.wire.records import BrokenBody, RecordError, decompress

# The bytes of the columns of variable length, summed over the rows.
cdef struct Sizes:
    int64_t body
    int64_t tags
    int64_t keys
    int64_t key_count
    int64_t ids
    int64_t names
    int64_t values
    int64_t items
    int64_t json
    int64_t topics

cpdef enum Want:
    """Which columns of variable length are made; those of numbers always are."""

    WANT_BODY = 1
    WANT_TAGS = 2
    WANT_KEYS = 4
    WANT_IDS = 8
    WANT_PROPERTIES = 16
    WANT_JSON = 32
    WANT_TOPICS = 64
    WANT_HOSTS = 128

cdef enum:
    WANT_ITEMS = WANT_TAGS | WANT_KEYS | WANT_IDS | WANT_PROPERTIES
    WANTED_BY_READERS = WANT_BODY | WANT_ITEMS
    INFLATED_BYTES_MAX = 256 << 20


# -- one body ---------------------------------------------------------------------------------------


cdef bint wanted(const Row* row, list tags):
    """Whether the TAGS of a record is one of `tags`: the broker compared hashes."""
    cdef const uint8_t* at = row.properties
    cdef const uint8_t* end = at + row.properties_length
    cdef Item item
    found = None
    while next_item(&at, end, &item):
        if is_literal(item.name, item.name_length, "TAGS"):
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


cdef void measure(const Row* row, int want, Sizes* sizes) noexcept nogil:
    cdef const uint8_t* at = row.properties
    cdef const uint8_t* end = at + row.properties_length
    cdef Item item
    cdef int32_t id_size = id_length(row)
    if want & WANT_BODY:
        sizes.body += row.body_length
    if want & WANT_TOPICS:
        sizes.topics += row.topic_length
    if want & WANT_JSON:
        sizes.json += put_json(NULL, row)
    if not want & WANT_ITEMS:
        return
    while next_item(&at, end, &item):
        sizes.items += 1
        sizes.names += item.name_length
        sizes.values += item.value_length
        if is_literal(item.name, item.name_length, "TAGS"):
            sizes.tags += item.value_length
        elif is_literal(item.name, item.name_length, "KEYS"):
            sizes.key_count += split_keys(&item, NULL, NULL, 0, &sizes.keys)
        elif is_literal(item.name, item.name_length, "UNIQ_KEY"):
            id_size = item.value_length
    sizes.ids += id_size


cdef bytes room(int64_t size):
    return PyBytes_FromStringAndSize(NULL, size)


cdef class Columns:
    """The buffers of one record batch, by name; `ends` are i32 offsets as Arrow has them."""

    cdef readonly int64_t row_count, key_count, item_count
    cdef readonly bytes queue_offset, log_position, born_time, store_time, prepared_position
    cdef readonly bytes flag, sys_flag, reconsume_times, queue_id, body_crc
    cdef readonly bytes body, body_ends, tags, tags_ends, tags_there
    cdef readonly bytes keys, keys_ends, keys_rows, ids, ids_ends
    cdef readonly bytes names, names_ends, values, values_ends, items_rows
    cdef readonly bytes json, json_ends, topics, topics_ends
    cdef readonly bytes born_hosts, born_hosts_ends, store_hosts, store_hosts_ends
    cdef readonly int64_t tags_missing
    cdef readonly bytes body_there          # None: all are
    cdef readonly int64_t body_missing

    cdef int fill(self, const Row* rows, int want, int64_t ticks) except -1:
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
        cdef int64_t* born_time = <int64_t*>PyBytes_AS_STRING(self.born_time)
        cdef int64_t* store_time = <int64_t*>PyBytes_AS_STRING(self.store_time)
        cdef int64_t* prepared = <int64_t*>PyBytes_AS_STRING(self.prepared_position)
        cdef int32_t* queue_id = <int32_t*>PyBytes_AS_STRING(self.queue_id)
        cdef int32_t* body_crc = <int32_t*>PyBytes_AS_STRING(self.body_crc)
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
                born_time[row] = one.born_ms * ticks
                store_time[row] = one.store_ms * ticks
                prepared[row] = one.prepared_position
                queue_id[row] = one.queue_id
                body_crc[row] = one.body_crc
                flag[row] = one.flag
                sys_flag[row] = one.sys_flag
                reconsume_times[row] = one.reconsume_times
                if want & WANT_BODY:
                    memcpy(body + at_body, one.body, one.body_length)
                    at_body += one.body_length
                body_ends[row + 1] = <int32_t>at_body
                if not want & WANT_ITEMS:
                    continue
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
                    if is_literal(item.name, item.name_length, "TAGS"):
                        memcpy(tags + at_tags, item.value, item.value_length)
                        at_tags += item.value_length
                        tagged = True
                    elif is_literal(item.name, item.name_length, "KEYS"):
                        key += split_keys(&item, keys, keys_ends, key, &at_keys)
                    elif is_literal(item.name, item.name_length, "UNIQ_KEY"):
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
                tags_ends[row + 1] = <int32_t>at_tags
                keys_rows[row + 1] = <int32_t>key
                ids_ends[row + 1] = <int32_t>at_ids
                items_rows[row + 1] = <int32_t>item_index
        self.tags_missing = missing
        return 0

    cdef int fill_texts(self, const Row* rows, int want) except -1:
        """The columns that only some readers want."""
        cdef int64_t row, n = self.row_count, at_json = 0, at_topics = 0, at_born = 0, at_store = 0
        cdef LastHost last_born, last_store
        cdef const Row* one
        cdef uint8_t* json = <uint8_t*>PyBytes_AS_STRING(self.json)
        cdef int32_t* json_ends = <int32_t*>PyBytes_AS_STRING(self.json_ends)
        cdef uint8_t* topics = <uint8_t*>PyBytes_AS_STRING(self.topics)
        cdef int32_t* topics_ends = <int32_t*>PyBytes_AS_STRING(self.topics_ends)
        cdef uint8_t* born = <uint8_t*>PyBytes_AS_STRING(self.born_hosts)
        cdef int32_t* born_ends = <int32_t*>PyBytes_AS_STRING(self.born_hosts_ends)
        cdef uint8_t* store = <uint8_t*>PyBytes_AS_STRING(self.store_hosts)
        cdef int32_t* store_ends = <int32_t*>PyBytes_AS_STRING(self.store_hosts_ends)
        last_born.host = last_store.host = NULL
        with nogil:
            json_ends[0] = topics_ends[0] = born_ends[0] = store_ends[0] = 0
            for row in range(n):
                one = &rows[row]
                if want & WANT_JSON:
                    at_json += put_json(json + at_json, one)
                if want & WANT_TOPICS:
                    memcpy(topics + at_topics, one.topic, one.topic_length)
                    at_topics += one.topic_length
                if want & WANT_HOSTS:
                    at_born += write_host_again(born, at_born, one.born_host, (
                        one.sys_flag & SYS_FLAG_BORN_HOST_V6) != 0, &last_born)
                    at_store += write_host_again(store, at_store, one.store_host, (
                        one.sys_flag & SYS_FLAG_STORE_HOST_V6) != 0, &last_store)
                json_ends[row + 1] = <int32_t>at_json
                topics_ends[row + 1] = <int32_t>at_topics
                born_ends[row + 1] = <int32_t>at_born
                store_ends[row + 1] = <int32_t>at_store
        return 0


cdef int64_t read_rows(const uint8_t* data, int64_t length, Row* rows, int64_t room_left,
                       uint8_t* special, int want) noexcept nogil:
    """The records of one body into `rows`; how many, -1 for bytes that are no records, or more."""
    cdef int64_t place = 0, count = 0
    while place < length:
        if count == room_left or not read_row(data + place, length - place, &rows[count]):
            return -1
        special[count] = (1 if rows[count].sys_flag & SYS_FLAG_COMPRESSED else 0) | (
            0 if not want & (WANT_ITEMS | WANT_JSON) or is_plain(&rows[count]) else 2) | (
            0 if is_ascii(rows[count].topic, rows[count].topic_length) else 4)
        place += rows[count].size
        count += 1
    return count


cdef bytes bits_without(const uint8_t* special, int64_t count, int which):
    """A bit for each row, 0 for those of a kind."""
    cdef bytes made = room((count + 7) // 8)
    cdef uint8_t* bits = <uint8_t*>PyBytes_AS_STRING(made)
    cdef int64_t index
    memset(bits, 0, (count + 7) // 8)
    for index in range(count):
        if not special[index] & which:
            bits[index >> 3] |= <uint8_t>(1 << (index & 7))
    return made


class TooMuch(RecordError):
    """Several messages whose bodies are too much together: cut fewer at a time."""


def columns(list bodies not None, int64_t row_count, int want=WANTED_BY_READERS,
            int64_t ticks=1, int64_t inflated_max=INFLATED_BYTES_MAX, bint broken_is_null=False,
            bint broken_stays=False):
    """
    The columns of the records in `bodies` (buffers), which are `row_count` together.

    want   a sum of Want; columns that are not wanted have no bytes
    ticks  of the times, in a millisecond
    inflated_max  bytes of bodies that were compressed, together; a single one may have more
    broken_is_null  a body that cannot be decompressed is missing (body_there), and no error
    broken_stays    its stored bytes are there, though it counts as missing

    Bodies come out decompressed; of properties whose names or values are no UTF-8 the broken bytes
    are replaced, and the last of several with one name counts. Raises RecordError for bytes that are
    no records, and for a body that cannot be decompressed; TooMuch for more than `inflated_max`, or
    2 GiB in one column.
    """
    cdef Columns made = Columns.__new__(Columns)
    cdef Sizes sizes
    cdef Row* rows
    cdef uint8_t* special
    cdef int64_t filled = 0, count, index, length, inflated = 0
    cdef const uint8_t* data
    cdef const uint8_t[::1] view
    cdef list held = []                     # what rows point to besides the bodies
    rows = <Row*>malloc(max(row_count, 1) * sizeof(Row))
    special = <uint8_t*>malloc(max(row_count, 1))
    try:
        if rows == NULL or special == NULL:
            raise MemoryError
        for one in bodies:
            view = one
            length = view.shape[0]
            if length == 0:
                continue
            held.append(view)
            data = &view[0]
            with nogil:
                count = read_rows(data, length, rows + filled, row_count - filled,
                                  special + filled, want)
            if count < 0:
                raise RecordError(f"a body of {length} bytes: no records, or more than were counted")
            filled += count
        for index in range(filled):
            if not want & WANT_BODY:
                special[index] &= ~1
            if special[index]:
                try:
                    normalise(&rows[index], special[index], held)
                except BrokenBody:
                    if not broken_is_null:
                        raise
                    if not broken_stays:
                        rows[index].body_length = 0
                    special[index] = special[index] & ~1 | 8
                    made.body_missing += 1
                if special[index] & 1:
                    inflated += rows[index].body_length
                    if inflated > inflated_max and filled > 1:
                        raise TooMuch(f"{index + 1} of {filled} messages have {inflated} bytes")
        memset(&sizes, 0, sizeof(Sizes))
        with nogil:
            for index in range(filled):
                measure(&rows[index], want, &sizes)
        if max(sizes.body, sizes.names, sizes.values, sizes.items, sizes.json,
               HOST_TEXT_MAX * filled) > 0x7FFFFFFF:
            raise TooMuch(f"{filled} messages have more than 2 GiB: expected smaller batches")
        made.row_count, made.key_count, made.item_count = filled, sizes.key_count, sizes.items
        made.body_there = bits_without(special, filled, 8) if made.body_missing else None
        made.queue_offset, made.log_position = room(8 * filled), room(8 * filled)
        made.born_time, made.store_time = room(8 * filled), room(8 * filled)
        made.prepared_position = room(8 * filled)
        made.queue_id, made.body_crc = room(4 * filled), room(4 * filled)
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
        made.fill(rows, want, ticks)
        if want & (WANT_JSON | WANT_TOPICS | WANT_HOSTS):
            length = HOST_TEXT_MAX * filled if want & WANT_HOSTS else 0
            made.json, made.json_ends = room(sizes.json), room(4 * (filled + 1))
            made.topics, made.topics_ends = room(sizes.topics), room(4 * (filled + 1))
            made.born_hosts, made.born_hosts_ends = room(length), room(4 * (filled + 1))
            made.store_hosts, made.store_hosts_ends = room(length), room(4 * (filled + 1))
            made.fill_texts(rows, want)
    finally:
        free(rows)
        free(special)
    return made


cdef int normalise(Row* row, uint8_t special, list held) except -1:
    """Let a row point to properties and a topic as readers see them, and last to its plain body."""
    cdef bytes other
    if special & 2:
        other = encode_properties(
            decode_properties(row.properties[:row.properties_length])).encode()
        held.append(other)
        row.properties = <const uint8_t*>PyBytes_AS_STRING(other)
        row.properties_length = <int32_t>len(other)
    if special & 4:
        other = row.topic[:row.topic_length].decode("utf-8", "replace").encode()
        held.append(other)
        row.topic = <const uint8_t*>PyBytes_AS_STRING(other)
        row.topic_length = <int32_t>len(other)
    if special & 1:
        other = decompress(row.body[:row.body_length], row.sys_flag)
        held.append(other)
        row.body = <const uint8_t*>PyBytes_AS_STRING(other)
        row.body_length = <int32_t>len(other)
    return 0
