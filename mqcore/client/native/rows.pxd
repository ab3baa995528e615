# Records as pulls and stores hold them, taken apart without Python objects.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

from mqcore.endian cimport load_i16, load_i32, load_i64
from mqcore.layout cimport (
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    MAGIC_MESSAGE,
    NAME_SEPARATOR,
    PROPERTIES_LENGTH_SIZE,
    PROPERTY_SEPARATOR,
    RECORD_BODY_AFTER_HOSTS,
    RECORD_BODY_CRC,
    RECORD_BODY_LENGTH_AFTER_HOSTS,
    RECORD_BORN_HOST,
    RECORD_BORN_TIME,
    RECORD_FIXED_SIZE,
    RECORD_FLAG,
    RECORD_LOG_POSITION,
    RECORD_MAGIC,
    RECORD_PREPARED_POSITION_AFTER_HOSTS,
    RECORD_QUEUE_ID,
    RECORD_QUEUE_OFFSET,
    RECORD_RECONSUME_TIMES_AFTER_HOSTS,
    RECORD_SIZE,
    RECORD_STORE_HOST_AFTER_BORN_HOST,
    RECORD_STORE_TIME_AFTER_BORN_HOST,
    RECORD_SYS_FLAG,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_STORE_HOST_V6,
)


cdef enum:
    ITEMS_MAX = 64              # properties that are compared for duplicates one by one

cdef struct Row:
    const uint8_t* body
    const uint8_t* properties
    const uint8_t* born_host
    const uint8_t* store_host
    const uint8_t* topic
    int64_t queue_offset
    int64_t log_position
    int64_t born_ms
    int64_t store_ms
    int64_t prepared_position
    int32_t body_length
    int32_t properties_length
    int32_t flag
    int32_t sys_flag
    int32_t reconsume_times
    int32_t queue_id
    int32_t body_crc
    int32_t topic_length
    int32_t size                # of the whole record

cdef enum RowTrouble:           # what a record is not
    ROW_IS_WHOLE = 0
    ROW_IS_CUT                  # its fixed fields are not there
    ROW_HAS_NO_MAGIC
    ROW_HAS_WRONG_SIZE
    ROW_HAS_WRONG_FIELDS        # their lengths do not add up to its size

cdef struct Item:
    const uint8_t* name
    const uint8_t* value
    int32_t name_length
    int32_t value_length


cdef inline RowTrouble cut_row(const uint8_t* at, int64_t left, Row* row) noexcept nogil:
    """One record of at most `left` bytes, taken apart."""
    cdef int64_t end, place
    cdef int32_t born_host_size, store_host_size
    if left < RECORD_FIXED_SIZE:
        return ROW_IS_CUT
    if load_i32(at + RECORD_MAGIC) != MAGIC_MESSAGE:
        return ROW_HAS_NO_MAGIC
    end = load_i32(at + RECORD_SIZE)
    if end < RECORD_FIXED_SIZE or end > left:
        return ROW_HAS_WRONG_SIZE
    row.size = <int32_t>end
    row.body_crc = load_i32(at + RECORD_BODY_CRC)
    row.queue_id = load_i32(at + RECORD_QUEUE_ID)
    row.flag = load_i32(at + RECORD_FLAG)
    row.queue_offset = load_i64(at + RECORD_QUEUE_OFFSET)
    row.log_position = load_i64(at + RECORD_LOG_POSITION)
    row.sys_flag = load_i32(at + RECORD_SYS_FLAG)
    row.born_ms = load_i64(at + RECORD_BORN_TIME)
    born_host_size = HOST_V6_SIZE if row.sys_flag & SYS_FLAG_BORN_HOST_V6 else HOST_V4_SIZE
    store_host_size = HOST_V6_SIZE if row.sys_flag & SYS_FLAG_STORE_HOST_V6 else HOST_V4_SIZE
    if end < RECORD_FIXED_SIZE + born_host_size + store_host_size - 2 * HOST_V4_SIZE:
        return ROW_HAS_WRONG_FIELDS
    row.born_host = at + RECORD_BORN_HOST
    place = RECORD_BORN_HOST + born_host_size
    row.store_ms = load_i64(at + place + RECORD_STORE_TIME_AFTER_BORN_HOST)
    row.store_host = at + place + RECORD_STORE_HOST_AFTER_BORN_HOST
    place += RECORD_STORE_HOST_AFTER_BORN_HOST + store_host_size
    row.reconsume_times = load_i32(at + place + RECORD_RECONSUME_TIMES_AFTER_HOSTS)
    row.prepared_position = load_i64(at + place + RECORD_PREPARED_POSITION_AFTER_HOSTS)
    row.body_length = load_i32(at + place + RECORD_BODY_LENGTH_AFTER_HOSTS)
    place += RECORD_BODY_AFTER_HOSTS
    # after the body at least the topic's length, and that of the properties
    if row.body_length < 0 or row.body_length > end - place - 1 - PROPERTIES_LENGTH_SIZE:
        return ROW_HAS_WRONG_FIELDS
    row.body = at + place
    place += row.body_length
    row.topic_length = at[place]
    row.topic = at + place + 1
    place += 1 + row.topic_length
    if place > end - PROPERTIES_LENGTH_SIZE:
        return ROW_HAS_WRONG_FIELDS
    row.properties_length = load_i16(at + place)
    row.properties = at + place + PROPERTIES_LENGTH_SIZE
    if row.properties_length != end - place - PROPERTIES_LENGTH_SIZE:
        return ROW_HAS_WRONG_FIELDS
    return ROW_IS_WHOLE


cdef inline bint read_row(const uint8_t* at, int64_t left, Row* row) noexcept nogil:
    """One record of at most `left` bytes; False when its lengths do not fit."""
    return cut_row(at, left, row) == ROW_IS_WHOLE


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
