# Columns of text that are made of records: keys, ids, hosts, properties as JSON.
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memcpy, strlen

from mqcore.client.native.rows cimport Item, Row, next_item
from mqcore.endian cimport I64_SIZE, load_i32, store_i64
from mqcore.layout cimport (
    ADDRESS_V4_SIZE,
    ADDRESS_V6_SIZE,
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    SYS_FLAG_STORE_HOST_V6,
)
from mqcore.text cimport put_literal
from mqcore.wire.digits cimport put_number

cdef extern from "<arpa/inet.h>" nogil:
    int AF_INET, AF_INET6
    const char* inet_ntop(int family, const void* source, char* target, unsigned int size)

cdef enum:
    HOST_TEXT_MAX = 56          # [IPv6]:port


cdef inline bint is_gap(uint8_t byte) noexcept nogil:
    """Separators of keys: Java's and Python's blanks that occur in ASCII."""
    return byte == c" " or 9 <= byte <= 13 or 28 <= byte <= 31


cdef inline int64_t split_keys(
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
    cdef uint8_t position[I64_SIZE]
    store_i64(position, row.log_position)
    write_hex(target, row.store_host, host)
    write_hex(target + 2 * host, position, I64_SIZE)


cdef inline int32_t write_host(uint8_t* target, const uint8_t* host, bint is_v6) noexcept nogil:
    """`address:port`, an IPv6 address in brackets; how many bytes."""
    cdef int32_t place = 0
    if is_v6:
        target[place] = c"["
        place += 1
    if inet_ntop(AF_INET6 if is_v6 else AF_INET, host, <char*>target + place,
                 HOST_TEXT_MAX - place) != NULL:
        place += <int32_t>strlen(<char*>target + place)
    if is_v6:
        target[place] = c"]"
        place += 1
    target[place] = c":"
    place += 1
    return place + put_number(
        target + place, load_i32(host + (ADDRESS_V6_SIZE if is_v6 else ADDRESS_V4_SIZE)))


# The host that was written last, and where: most rows have the one of the row before.
cdef struct LastHost:
    const uint8_t* host         # NULL: none yet
    bint is_v6
    int64_t place
    int32_t length


cdef inline int32_t write_host_again(uint8_t* target, int64_t place, const uint8_t* host, bint is_v6,
                                     LastHost* last) noexcept nogil:
    """The same at a place of a column, copied from the row before where it is the same host."""
    cdef int32_t size = HOST_V6_SIZE if is_v6 else HOST_V4_SIZE
    if last.host == NULL or last.is_v6 != is_v6 or memcmp(last.host, host, size) != 0:
        last.length = write_host(target + place, host, is_v6)
        last.host = host
        last.is_v6 = is_v6
    else:
        memcpy(target + place, target + last.place, last.length)
    last.place = place
    return last.length


cdef inline int32_t put_json_byte(uint8_t* target, uint8_t byte) noexcept nogil:
    """One byte of a JSON string; how many it takes, written when there is a target."""
    cdef const char* digits = "0123456789abcdef"
    if byte == c'"' or byte == c"\\":
        if target != NULL:
            target[0] = c"\\"
            target[1] = byte
        return 2
    if byte >= 0x20:
        if target != NULL:
            target[0] = byte
        return 1
    if target != NULL:
        put_literal(target, "\\u00")
        target[4] = digits[byte >> 4]
        target[5] = digits[byte & 15]
    return 6


cdef inline int64_t put_json_string(
    uint8_t* target, const uint8_t* source, int32_t length
) noexcept nogil:
    cdef int64_t place = 1
    cdef int32_t index
    if target != NULL:
        target[0] = c'"'
    for index in range(length):
        place += put_json_byte(NULL if target == NULL else target + place, source[index])
    if target != NULL:
        target[place] = c'"'
    return place + 1


cdef inline int64_t put_json(uint8_t* target, const Row* row) noexcept nogil:
    """The properties as a JSON object; how many bytes, written when there is a target."""
    cdef const uint8_t* at = row.properties
    cdef const uint8_t* end = at + row.properties_length
    cdef Item item
    cdef int64_t place = 0
    cdef uint8_t before = c"{"
    while next_item(&at, end, &item):
        if target != NULL:
            target[place] = before
        before = c","
        place += 1
        place += put_json_string(NULL if target == NULL else target + place, item.name,
                                 item.name_length)
        if target != NULL:
            target[place] = c":"
        place += 1
        place += put_json_string(NULL if target == NULL else target + place, item.value,
                                 item.value_length)
    if place == 0:
        if target != NULL:
            target[0] = c"{"
        place = 1
    if target != NULL:
        target[place] = c"}"
    return place + 1
