"""The walk of verification over the records of a log (walk.pxd has its rules)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memset

from mqcore.endian cimport load_i32, load_i64, store_i32
from mqcore.layout cimport (
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    MAGIC_MESSAGE,
    RECORD_BORN_HOST,
    RECORD_FIXED_SIZE,
    RECORD_LOG_POSITION,
    RECORD_MAGIC,
    RECORD_STORE_HOST_AFTER_BORN_HOST,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_COMMIT,
    SYS_FLAG_ROLLBACK,
    SYS_FLAG_STORE_HOST_V6,
    SYS_FLAG_TRANSACTION_MASK,
)
from mqcore.names cimport QUEUE_ID_END, is_folder_name
from mqcore.store.record cimport (
    PARSE_BLANK,
    PARSE_RECORD,
    PropertyItem,
    RecordView,
    item_is,
    property_next,
    tag_code,
)
from mqcore.store.topic_names cimport is_light_name, is_schedule_topic
from mqcore.store.verify.findings cimport (
    FIELD_BORN_PORT,
    FIELD_MULTI_DISPATCH,
    FIELD_QUEUE_ID,
    FIELD_QUEUE_OFFSET,
    FIELD_RECONSUME_TIMES,
    FIELD_STORE_PORT,
    FIELD_STORE_TIME,
    FIELD_SYS_FLAG,
    FIELD_TOPIC,
    FOUND_BAD_RECORD,
    FOUND_BLANK_SIZE,
    FOUND_FIELD,
    FOUND_NO_BLANK,
    FOUND_OFFSET_GAP,
    FOUND_UNREADABLE,
    find,
)
from mqcore.store.verify.index cimport keys_expect, keys_note, keys_pass
from mqcore.store.verify.queues cimport (
    Expected,
    QueueCheck,
    QueueSet,
    queue_expect,
    queue_number,
    queue_vouches,
)
from mqcore.store.verify.window cimport (
    READ_FAILED,
    segment_of,
    window_at,
    window_length,
    window_nonzero,
    window_record,
    window_vouched,
)
from mqcore.text cimport is_digit

cdef extern from "<string.h>" nogil:
    void* memmem(const void* text, size_t length, const void* part, size_t part_length)

cdef enum:
    SYS_FLAGS_KNOWN = 0x7FF
    PORT_MAX = 65535
    UNREADABLE_STEP = 4096
    DELAY_UNKNOWN_MS = 1000           # what an unknown level waits (store.md 3.2)

cdef struct Properties:
    PropertyItem tags
    PropertyItem unique
    PropertyItem keys
    PropertyItem delay
    PropertyItem names
    PropertyItem offsets


cdef void properties_of(const RecordView* record, Properties* p) noexcept nogil:
    cdef const uint8_t* at = record.properties
    cdef PropertyItem item
    memset(p, 0, sizeof(Properties))
    while property_next(&at, record.properties + record.properties_length, &item):
        if item_is(&item, "TAGS"):
            p.tags = item
        elif item_is(&item, "KEYS"):
            p.keys = item
        elif item_is(&item, "UNIQ_KEY"):
            p.unique = item
        elif item_is(&item, "DELAY"):
            p.delay = item
        elif item_is(&item, "INNER_MULTI_DISPATCH"):
            p.names = item
        elif item_is(&item, "INNER_MULTI_QUEUE_OFFSET"):
            p.offsets = item


# -- the record by itself --------------------------------------------------------------------------

cdef void check_fields(Walk* w, const uint8_t* at, const RecordView* record) noexcept nogil:
    """The rules that a record's fields have to keep, whatever wrote it (store.md 2)."""
    cdef int32_t born_size = (HOST_V6_SIZE if record.sys_flag & SYS_FLAG_BORN_HOST_V6
                              else HOST_V4_SIZE)
    cdef int32_t store_size = (HOST_V6_SIZE if record.sys_flag & SYS_FLAG_STORE_HOST_V6
                               else HOST_V4_SIZE)
    cdef const uint8_t* p = at + RECORD_BORN_HOST + born_size
    cdef int32_t kind = record.sys_flag & SYS_FLAG_TRANSACTION_MASK
    cdef int32_t port
    port = load_i32(p - 4)
    if port < 0 or port > PORT_MAX:
        find(&w.findings, FOUND_FIELD, 0, w.position, FIELD_BORN_PORT, PORT_MAX, port)
    p += RECORD_STORE_HOST_AFTER_BORN_HOST + store_size
    port = load_i32(p - 4)
    if port < 0 or port > PORT_MAX:
        find(&w.findings, FOUND_FIELD, 0, w.position, FIELD_STORE_PORT, PORT_MAX, port)
    if load_i32(p) < 0:
        find(&w.findings, FOUND_FIELD, 0, w.position, FIELD_RECONSUME_TIMES, 0, load_i32(p))
    if not 0 <= record.queue_id < QUEUE_ID_END:
        find(&w.findings, FOUND_FIELD, 0, w.position, FIELD_QUEUE_ID, 0, record.queue_id)
    if record.sys_flag & ~SYS_FLAGS_KNOWN:
        find(&w.findings, FOUND_FIELD, 0, w.position, FIELD_SYS_FLAG, SYS_FLAGS_KNOWN,
             record.sys_flag)
    if record.store_time_ms <= 0:
        find(&w.findings, FOUND_FIELD, 0, w.position, FIELD_STORE_TIME, 1, record.store_time_ms)
    if record.queue_offset < 0 or (record.queue_offset and kind and kind != SYS_FLAG_COMMIT):
        find(&w.findings, FOUND_FIELD, 0, w.position, FIELD_QUEUE_OFFSET, 0, record.queue_offset)
    if not is_folder_name(record.topic, record.topic_length):
        find(&w.findings, FOUND_FIELD, 0, w.position, FIELD_TOPIC, 0, record.topic_length)


# -- the record in its queues ----------------------------------------------------------------------

cdef int64_t delivery_ms(const QueueSet* s, const RecordView* record,
                         const PropertyItem* delay) noexcept nogil:
    """When a record of the schedule topic is due (store.md 3.2), or -1: it carries a tag code."""
    cdef int64_t level = 0
    cdef int32_t i
    if delay.value_length == 0 or not is_schedule_topic(record.topic, record.topic_length):
        return -1
    for i in range(min(delay.value_length, 9)):
        if not is_digit(delay.value[i]):
            return -1
        level = level * 10 + delay.value[i] - c'0'
    if level <= 0:
        return -1
    level = min(level, <int64_t>s.delay_levels)
    return record.store_time_ms + (s.delay_ms[level] if level else DELAY_UNKNOWN_MS)


cdef void note_numbers(Walk* w, QueueCheck* queue, int32_t number,
                       const RecordView* record) noexcept nogil:
    """Statistics of the queue, and whether its numbers go on without a gap."""
    if queue.records == 0:
        queue.first_time_ms = record.store_time_ms
    queue.records += 1
    queue.bytes += record.size
    queue.body_bytes += record.body_length
    queue.last_time_ms = record.store_time_ms
    if queue.next_offset >= 0 and record.queue_offset > queue.next_offset and (
            not w.damaged or w.gaps_wanted):
        find(&w.findings, FOUND_OFFSET_GAP, number, w.position, queue.last_position,
             queue.next_offset, record.queue_offset)
    elif 0 <= record.queue_offset < queue.next_offset:
        queue.superseded += queue.missing                       # VQ3: the topic was made again
        queue.missing = 0
    queue.next_offset = record.queue_offset + 1
    queue.last_position = w.position


cdef void expect_side_queues(Walk* w, const RecordView* record, const Properties* p,
                             const Expected* expected) noexcept nogil:
    """The queues that a multi-dispatch list names, with the offsets beside it (store.md 2.11)."""
    cdef const uint8_t* name = p.names.value
    cdef const uint8_t* names_end = name + p.names.value_length
    cdef const uint8_t* digits = p.offsets.value
    cdef const uint8_t* digits_end = digits + p.offsets.value_length
    cdef const uint8_t* stop
    cdef const uint8_t* digit
    cdef int64_t offset
    cdef int32_t number
    while name < names_end:
        stop = name
        while stop < names_end and stop[0] != c',':
            stop += 1
        digit = digits
        offset = 0
        while digit < digits_end and is_digit(digit[0]) and offset < (<int64_t>1 << 58):
            offset = offset * 10 + digit[0] - c'0'
            digit += 1
        if digit == digits or (digit < digits_end and digit[0] != c','):
            find(&w.findings, FOUND_FIELD, 0, w.position, FIELD_MULTI_DISPATCH, 0, 0)
            return
        number = -1
        if is_light_name(name, <int32_t>(stop - name)):
            number = queue_number(&w.queues, name, <int32_t>(stop - name), 0, False)
        if number < 0:
            number = queue_number(&w.queues, name, <int32_t>(stop - name), record.queue_id, False)
        if number < 0:
            w.unknown_side_queues += 1
        else:
            queue_expect(&w.queues, number, offset, record, expected)
            w.queues.queues[number].next_offset = max(w.queues.queues[number].next_offset,
                                                      offset + 1)
        name = stop + 1
        digits = digit + 1


cdef void take(Walk* w, const uint8_t* at, const RecordView* record) noexcept nogil:
    cdef int32_t kind = record.sys_flag & SYS_FLAG_TRANSACTION_MASK
    cdef Properties p
    cdef Expected expected
    cdef int32_t number, start, i
    w.bytes += record.size
    if w.records == 0:
        w.first_time_ms = record.store_time_ms
    w.records += 1
    if record.store_time_ms < w.last_time_ms:
        w.time_steps_back += 1
    else:
        w.last_time_ms = record.store_time_ms
    check_fields(w, at, record)
    properties_of(record, &p)
    if kind == 0 or kind == SYS_FLAG_COMMIT:
        expected.tag_code = tag_code(p.tags.value, p.tags.value_length)
        expected.delivery_ms = delivery_ms(&w.queues, record, &p.delay)
        number = queue_number(&w.queues, record.topic, record.topic_length, record.queue_id, True)
        if number >= 0:
            note_numbers(w, &w.queues.queues[number], number, record)
            queue_expect(&w.queues, number, record.queue_offset, record, &expected)
        if p.names.value_length and p.offsets.value_length:
            expect_side_queues(w, record, &p, &expected)
    else:
        w.unqueued += 1
        if kind == SYS_FLAG_ROLLBACK and record.topic_length <= 11 and memcmp(
                record.topic, <const char*>b"MQCORE_LOST", record.topic_length) == 0:
            w.damaged = True                   # a repair put it here: records are gone (VL3)
    if not w.keys_checked:
        return
    if kind != SYS_FLAG_ROLLBACK:
        if p.unique.value_length:
            keys_note(&w.keys, record, p.unique.value, p.unique.value_length)
        start = 0
        for i in range(p.keys.value_length + 1 if p.keys.value_length else 0):
            if i < p.keys.value_length and p.keys.value[i] != c' ':
                continue
            if i > start:
                keys_note(&w.keys, record, p.keys.value + start, i - start)
            start = i + 1
    keys_expect(&w.keys, record)


# -- where records end -----------------------------------------------------------------------------

cdef bint alive(Walk* w, const RecordView* record) noexcept nogil:
    return record.store_time_ms >= w.last_time_ms or queue_vouches(&w.queues, record)


cdef int64_t next_in_segment(Walk* w, int64_t low, int64_t segment_end) noexcept nogil:
    """The first whole, live record at or behind a position of this segment, or -1."""
    cdef uint8_t magic[4]
    cdef const uint8_t* at
    cdef const uint8_t* hit
    cdef RecordView record
    cdef int64_t length, place, data
    store_i32(magic, MAGIC_MESSAGE)
    while True:
        data = window_nonzero(&w.look, low, segment_end)
        if data < 0:
            return -1
        low = max(low, data - RECORD_MAGIC)            # a size begins with zeros
        if segment_end - low < RECORD_FIXED_SIZE:
            return -1
        at = window_at(&w.look, low, RECORD_FIXED_SIZE)
        if at == NULL:
            low += UNREADABLE_STEP
            continue
        length = min(window_length(&w.look, low), segment_end - low)
        hit = <const uint8_t*>memmem(at + RECORD_MAGIC, length - RECORD_MAGIC, magic, 4)
        if hit == NULL:
            low += length - RECORD_MAGIC - 3           # the magic may begin in the last three
            continue
        place = low + (hit - at) - RECORD_MAGIC
        low = place + 1
        if segment_end - place < RECORD_FIXED_SIZE:
            return -1
        at = window_at(&w.look, place, RECORD_FIXED_SIZE)
        if (at != NULL and load_i64(at + RECORD_LOG_POSITION) == place
                and window_record(&w.look, place, True, &record) == PARSE_RECORD
                and alive(w, &record)):
            return place


cdef int64_t next_record(Walk* w, int64_t position) noexcept nogil:
    """Where reading can go on behind a position without a record, or -1: the log ends there."""
    cdef int32_t s = segment_of(&w.files, position)
    cdef int64_t found, base
    cdef RecordView record
    while 0 <= s < w.files.count:
        base = w.files.segments[s].base
        if (base > position and window_record(&w.look, base, True, &record) == PARSE_RECORD
                and alive(w, &record)):
            return base
        found = next_in_segment(w, max(base, position) + 1, base + w.files.segments[s].size)
        if found >= 0:
            return found
        s += 1
    return -1


cdef void leave_segment(Walk* w) noexcept nogil:
    """To the next segment, or the end of the log behind the last."""
    cdef int32_t s = segment_of(&w.files, w.position)
    if s < 0:                          # exactly behind its last byte
        s = segment_of(&w.files, w.position - 1)
    w.position = w.files.segments[s].base + w.files.segments[s].size
    if s + 1 < w.files.count:
        w.position = w.files.segments[s + 1].base
    else:
        w.end = w.position
        w.end_result = PARSE_BLANK


cdef void not_a_record(Walk* w, int result) noexcept nogil:
    cdef int64_t further = next_record(w, w.position)
    cdef int64_t vouched = window_vouched(&w.look, w.position) if w.same_boot else -1
    if vouched >= 0 and (further < 0 or vouched < further):
        further = vouched
    if further < 0:
        w.end = w.position
        w.end_result = result
        return
    if result == READ_FAILED:
        find(&w.findings, FOUND_UNREADABLE, 0, w.position, 0, further, w.window.failure)
    else:
        find(&w.findings, FOUND_BAD_RECORD, 0, w.position, 0, further, result)
    w.damaged = True
    w.position = further
    keys_pass(&w.keys, further)


cdef void walk(Walk* w, int64_t bytes_max) noexcept nogil:
    cdef int64_t stop = w.position + bytes_max
    cdef int64_t left
    cdef int32_t s
    cdef RecordView record
    cdef int result
    while w.end < 0 and w.position < stop:
        result = window_record(&w.window, w.position, True, &record)
        if result == PARSE_RECORD:
            take(w, window_at(&w.window, w.position, record.size), &record)
            w.position += record.size
            s = segment_of(&w.files, w.position)
            if s < 0 or w.files.segments[s].base == w.position:
                find(&w.findings, FOUND_NO_BLANK, 0, w.position, 0, 0, 0)
                leave_segment(w)
        elif result == PARSE_BLANK:
            s = segment_of(&w.files, w.position)
            left = w.files.segments[s].base + w.files.segments[s].size - w.position
            if record.size != left:
                find(&w.findings, FOUND_BLANK_SIZE, 0, w.position, 0, left, record.size)
            w.blanks += 1
            leave_segment(w)
        else:
            not_a_record(w, result)
