"""Reads, writes and checks commit log records."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memchr, memcpy

from mqcore.endian cimport load_i32, load_i64, load_u16, load_u32, store_i16, store_i32, store_i64
from mqcore.invariants cimport invariant
from mqcore.layout cimport (
    BLANK_SIZE_MIN,
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    MAGIC_BLANK,
    MAGIC_MESSAGE,
    NAME_SEPARATOR,
    PROPERTIES_LENGTH_MAX,
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
    TOPIC_LENGTH_MAX,
)
from mqcore.store.crc32 cimport body_crc
from mqcore.wire.header cimport Text, text_i64


cdef enum:
    HASH_1 = 31                       # of a Java string's hash, and its powers
    HASH_2 = HASH_1 * HASH_1
    HASH_3 = HASH_1 * HASH_2
    HASH_4 = HASH_1 * HASH_3


cdef inline int32_t host_size(int32_t sys_flag, int32_t bit) noexcept nogil:
    return HOST_V6_SIZE if sys_flag & bit else HOST_V4_SIZE


cdef int record_parse(const uint8_t* at, int64_t available, RecordView* view) noexcept nogil:
    cdef int64_t left
    cdef int32_t length
    cdef const uint8_t* p
    if available < BLANK_SIZE_MIN:
        return PARSE_BAD_SIZE
    if load_i32(at + RECORD_MAGIC) == MAGIC_BLANK:
        view.size = load_i32(at + RECORD_SIZE)
        return PARSE_BLANK
    if load_i32(at + RECORD_MAGIC) != MAGIC_MESSAGE:
        return PARSE_BAD_MAGIC
    view.size = load_i32(at + RECORD_SIZE)
    if view.size < RECORD_FIXED_SIZE or view.size > available:
        return PARSE_BAD_SIZE
    view.body_crc = load_i32(at + RECORD_BODY_CRC)
    view.queue_id = load_i32(at + RECORD_QUEUE_ID)
    view.flag = load_i32(at + RECORD_FLAG)
    view.queue_offset = load_i64(at + RECORD_QUEUE_OFFSET)
    view.log_position = load_i64(at + RECORD_LOG_POSITION)
    view.sys_flag = load_i32(at + RECORD_SYS_FLAG)
    left = RECORD_FIXED_SIZE - 2 * HOST_V4_SIZE + host_size(view.sys_flag, SYS_FLAG_BORN_HOST_V6)
    if view.size < left + host_size(view.sys_flag, SYS_FLAG_STORE_HOST_V6):
        return PARSE_BAD_SIZE
    view.born_time_ms = load_i64(at + RECORD_BORN_TIME)
    p = at + RECORD_BORN_HOST + host_size(view.sys_flag, SYS_FLAG_BORN_HOST_V6)
    view.store_time_ms = load_i64(p + RECORD_STORE_TIME_AFTER_BORN_HOST)
    p += RECORD_STORE_HOST_AFTER_BORN_HOST + host_size(view.sys_flag, SYS_FLAG_STORE_HOST_V6)
    view.prepared_position = load_i64(p + RECORD_PREPARED_POSITION_AFTER_HOSTS)
    length = load_i32(p + RECORD_BODY_LENGTH_AFTER_HOSTS)
    p += RECORD_BODY_AFTER_HOSTS
    left = view.size - (p - at) - 3                # behind the body: two lengths of 1 and 2 bytes
    if length < 0 or length > left:
        return PARSE_BAD_SIZE
    view.body = p
    view.body_length = length
    p += length
    left -= length
    length = p[0]
    if length > TOPIC_LENGTH_MAX or length > left:
        return PARSE_BAD_SIZE
    view.topic = p + 1
    view.topic_length = length
    p += 1 + length
    left -= length
    length = load_u16(p)
    if length != left:
        return PARSE_BAD_SIZE
    view.properties = p + 2
    view.properties_length = length
    return PARSE_RECORD


cdef int record_check(const uint8_t* at, int64_t available, int64_t position,
                      RecordView* view) noexcept nogil:
    cdef int result = record_parse(at, available, view)
    if result != PARSE_RECORD:
        return result
    if view.log_position != position:
        return PARSE_BAD_POSITION
    if body_crc(view.body, view.body_length) != view.body_crc:
        return PARSE_BAD_CRC
    return PARSE_RECORD


cdef void record_head(const RecordView* view, const uint8_t* at, RecordHead* head) noexcept nogil:
    head.queue_id = view.queue_id
    head.flag = view.flag
    head.sys_flag = view.sys_flag
    head.born_time_ms = view.born_time_ms
    head.born_host = at + RECORD_BORN_HOST
    head.born_host_size = host_size(view.sys_flag, SYS_FLAG_BORN_HOST_V6)
    head.store_host = head.born_host + head.born_host_size + RECORD_STORE_HOST_AFTER_BORN_HOST
    head.store_host_size = host_size(view.sys_flag, SYS_FLAG_STORE_HOST_V6)
    head.reconsume_times = load_i32(
        head.store_host + head.store_host_size + RECORD_RECONSUME_TIMES_AFTER_HOSTS)
    head.prepared_position = view.prepared_position


cdef uint8_t* record_begin(uint8_t* at, const RecordHead* head, const uint8_t* body,
                           int32_t body_length, const uint8_t* topic,
                           int32_t topic_length) noexcept nogil:
    cdef int32_t sys_flag = head.sys_flag & ~(SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6)
    cdef uint8_t* p
    if head.born_host_size == HOST_V6_SIZE:
        sys_flag |= SYS_FLAG_BORN_HOST_V6
    if head.store_host_size == HOST_V6_SIZE:
        sys_flag |= SYS_FLAG_STORE_HOST_V6
    store_i32(at + RECORD_MAGIC, MAGIC_MESSAGE)
    store_i32(at + RECORD_BODY_CRC, body_crc(body, body_length))
    store_i32(at + RECORD_QUEUE_ID, head.queue_id)
    store_i32(at + RECORD_FLAG, head.flag)
    store_i64(at + RECORD_QUEUE_OFFSET, 0)
    store_i64(at + RECORD_LOG_POSITION, 0)
    store_i32(at + RECORD_SYS_FLAG, sys_flag)
    store_i64(at + RECORD_BORN_TIME, head.born_time_ms)
    memcpy(at + RECORD_BORN_HOST, head.born_host, head.born_host_size)
    p = at + RECORD_BORN_HOST + head.born_host_size
    store_i64(p + RECORD_STORE_TIME_AFTER_BORN_HOST, 0)
    memcpy(p + RECORD_STORE_HOST_AFTER_BORN_HOST, head.store_host, head.store_host_size)
    p += RECORD_STORE_HOST_AFTER_BORN_HOST + head.store_host_size
    store_i32(p + RECORD_RECONSUME_TIMES_AFTER_HOSTS, head.reconsume_times)
    store_i64(p + RECORD_PREPARED_POSITION_AFTER_HOSTS, head.prepared_position)
    store_i32(p + RECORD_BODY_LENGTH_AFTER_HOSTS, body_length)
    p += RECORD_BODY_AFTER_HOSTS
    memcpy(p, body, body_length)
    p += body_length
    p[0] = <uint8_t>topic_length
    memcpy(p + 1, topic, topic_length)
    return p + 1 + topic_length


cdef uint8_t* record_redirect(uint8_t* at, uint8_t* properties, int32_t topic_was,
                              const RecordHead* head, const uint8_t* topic,
                              int32_t topic_length) noexcept nogil:
    cdef int32_t hosts = SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6
    cdef uint8_t* p = properties - topic_was
    store_i32(at + RECORD_QUEUE_ID, head.queue_id)
    store_i32(at + RECORD_SYS_FLAG,
              (load_i32(at + RECORD_SYS_FLAG) & hosts) | (head.sys_flag & ~hosts))
    p[-1] = <uint8_t>topic_length
    memcpy(p, topic, topic_length)
    return p + topic_length


cdef int32_t record_end(uint8_t* at, uint8_t* properties, int32_t length) noexcept nogil:
    cdef int32_t size = <int32_t>(properties - at) + 2 + length
    invariant("properties' length", length >= 0)
    invariant("properties' length", length <= PROPERTIES_LENGTH_MAX)
    invariant("record's size", size >= RECORD_FIXED_SIZE)
    store_i16(properties, length)
    store_i32(at + RECORD_SIZE, size)
    return size


cdef void record_place(uint8_t* at, int64_t queue_offset, int64_t log_position,
                       int64_t store_time_ms) noexcept nogil:
    store_i64(at + RECORD_QUEUE_OFFSET, queue_offset)
    store_i64(at + RECORD_LOG_POSITION, log_position)
    store_i64(at + RECORD_BORN_HOST + RECORD_STORE_TIME_AFTER_BORN_HOST
              + host_size(load_i32(at + RECORD_SYS_FLAG), SYS_FLAG_BORN_HOST_V6), store_time_ms)


cdef int64_t record_store_time(const uint8_t* at) noexcept nogil:
    return load_i64(at + RECORD_BORN_HOST + RECORD_STORE_TIME_AFTER_BORN_HOST
                    + host_size(load_i32(at + RECORD_SYS_FLAG), SYS_FLAG_BORN_HOST_V6))


cdef bint property_next(const uint8_t** at, const uint8_t* end, PropertyItem* item) noexcept nogil:
    cdef const uint8_t* start
    cdef const uint8_t* stop
    cdef const uint8_t* separator
    while at[0] < end:
        start = at[0]
        stop = <const uint8_t*>memchr(start, PROPERTY_SEPARATOR, end - start)
        if stop == NULL:
            stop = end
        at[0] = stop + 1
        if stop - start < 3:
            continue
        separator = <const uint8_t*>memchr(start, NAME_SEPARATOR, stop - start)
        if separator == NULL or separator == start or separator + 1 == stop:
            continue
        item.key = start
        item.key_length = <int32_t>(separator - start)
        item.value = separator + 1
        item.value_length = <int32_t>(stop - separator - 1)
        return True
    return False


cdef int32_t java_hash(const uint8_t* text, int32_t length, int32_t hash) noexcept nogil:
    """Continues a Java string hash (store.md 3.2) over UTF-8 text, in UTF-16 code units."""
    cdef uint32_t h = <uint32_t>hash
    cdef uint32_t point
    cdef int32_t i = 0, more
    while i < length:
        if length - i >= 4 and (load_u32(text + i) & <uint32_t>0x80808080) == 0:
            # four products side by side, not one behind the other
            h = (HASH_4 * h + HASH_3 * text[i] + HASH_2 * text[i + 1] + HASH_1 * text[i + 2]
                 + text[i + 3])
            i += 4
            continue
        point = text[i]
        i += 1
        if point < 0x80:
            h = 31 * h + point
            continue
        if point >= 0xF0:
            point &= 0x07
            more = 3
        elif point >= 0xE0:
            point &= 0x0F
            more = 2
        else:
            point &= 0x1F
            more = 1
        while more > 0 and i < length and (text[i] & 0xC0) == 0x80:
            point = (point << 6) | (text[i] & 0x3F)
            i += 1
            more -= 1
        if point >= 0x10000:
            point -= 0x10000
            h = 31 * h + (0xD800 + (point >> 10))
            h = 31 * h + (0xDC00 + (point & 0x3FF))
        else:
            h = 31 * h + point
    return <int32_t>h


cdef bint property_number(const PropertyItem* item, int64_t* number) noexcept nogil:
    cdef Text text = Text(start=item.value, length=item.value_length, escaped=False)
    return text_i64(&text, number)


cdef int64_t tag_code(const uint8_t* tags, int32_t length) noexcept nogil:
    return java_hash(tags, length, 0) if length > 0 else 0


def parse(const uint8_t[::1] data, int64_t position=-1) -> dict:
    """
    The first record of `data` as a dict, for tests and tools; position: where it should lie, in
    bytes, or -1 to leave place and CRC unchecked. Raises ValueError naming what is wrong.
    """
    cdef RecordView view
    cdef int result
    if data.shape[0] < BLANK_SIZE_MIN:
        raise ValueError(f"record: {data.shape[0]} bytes are too few")
    if position >= 0:
        result = record_check(&data[0], data.shape[0], position, &view)
    else:
        result = record_parse(&data[0], data.shape[0], &view)
    if result == PARSE_BLANK:
        return {"blank": True, "size": view.size}
    if result != PARSE_RECORD:
        names = {PARSE_BAD_MAGIC: "magic", PARSE_BAD_SIZE: "sizes", PARSE_BAD_CRC: "body CRC",
                 PARSE_BAD_POSITION: "position"}
        raise ValueError(f"record: wrong {names[result]}")
    return {
        "size": view.size, "queueId": view.queue_id, "flag": view.flag,
        "queueOffset": view.queue_offset, "physicalOffset": view.log_position,
        "sysFlag": view.sys_flag, "bornTimestamp": view.born_time_ms,
        "storeTimestamp": view.store_time_ms, "preparedTransactionOffset": view.prepared_position,
        "body": (<const char*>view.body)[:view.body_length],
        "topic": (<const char*>view.topic)[:view.topic_length].decode("utf-8", "surrogateescape"),
        "properties": (<const char*>view.properties)[:view.properties_length],
    }


def tags_code(bytes tags) -> int:
    """The tag code of a TAGS value in UTF-8, for tests."""
    cdef const uint8_t* text = tags
    return tag_code(text, <int32_t>len(tags))
