"""The walk of verification over the records of a log (walk.pxd has its rules)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from mqcore.endian cimport I32_SIZE, load_i64, store_i32
from mqcore.layout cimport (
    MAGIC_MESSAGE,
    RECORD_FIXED_SIZE,
    RECORD_LOG_POSITION,
    RECORD_MAGIC,
    SYS_FLAG_COMMIT,
    SYS_FLAG_ROLLBACK,
    SYS_FLAG_TRANSACTION_MASK,
)
from mqcore.store.queue.lives cimport MarkedQueue, is_marker, marker_line
from mqcore.store.record cimport (
    PARSE_BLANK,
    PARSE_RECORD,
    RecordView,
    tag_code,
)
from mqcore.store.topic_names cimport is_light_name
from mqcore.store.verify.fields cimport Properties, check_fields, delivery_ms, properties_of
from mqcore.store.verify.findings cimport (
    FIELD_MULTI_DISPATCH,
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
    UNREADABLE_STEP = 4096

# -- the record in its queues ----------------------------------------------------------------------

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
        queue.superseded += queue.missing                     # queues VQ3: the topic was made again
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


cdef void end_lives(Walk* w, const RecordView* marker) noexcept nogil:
    """Records before a marker that have no entry miss none (queues VQ3)."""
    cdef const uint8_t* at = marker.body
    cdef const uint8_t* end = marker.body + marker.body_length
    cdef MarkedQueue found
    cdef QueueCheck* queue
    cdef int32_t number
    while at < end:
        at = marker_line(at, end, &found)
        number = -1
        if found.queue_id >= 0:
            number = queue_number(&w.queues, found.topic, found.topic_length, found.queue_id, False)
        if number < 0:
            continue
        queue = &w.queues.queues[number]
        queue.superseded += queue.missing
        queue.missing = 0
        queue.next_offset = 0


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
    check_fields(&w.findings, at, record)
    properties_of(record, &p)
    if kind == 0 or kind == SYS_FLAG_COMMIT:
        expected.tag_code = tag_code(p.tags.value, p.tags.value_length)
        expected.delivery_ms = delivery_ms(w.queues.delay_ms, w.queues.delay_levels,
                                           record, &p.delay)
        number = queue_number(&w.queues, record.topic, record.topic_length, record.queue_id, True)
        if number >= 0:
            note_numbers(w, &w.queues.queues[number], number, record)
            queue_expect(&w.queues, number, record.queue_offset, record, &expected)
        if is_marker(record):
            end_lives(w, record)
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
    cdef uint8_t magic[I32_SIZE]
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


cdef int64_t walk_further(Walk* w, int64_t position) noexcept nogil:
    cdef int64_t further = next_record(w, position)
    cdef int64_t vouched = window_vouched(&w.look, position) if w.same_boot else -1
    return vouched if vouched >= 0 and (further < 0 or vouched < further) else further


cdef void not_a_record(Walk* w, int result) noexcept nogil:
    cdef int64_t further = walk_further(w, w.position)
    if result == READ_FAILED:
        find(&w.findings, FOUND_UNREADABLE, 0, w.position, 0, further, w.window.failure)
    if further < 0:
        w.end = w.position
        w.end_result = result
        return
    if result != READ_FAILED:
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
