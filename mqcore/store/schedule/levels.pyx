"""Queues, entries and records of delayed messages (levels.pxd)."""
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint64_t

from mqcore.atomics cimport full_fence, load_i32_acquire, load_i64_acquire, store_u8_release
from mqcore.layout cimport (
    CQ_ENTRY_SIZE,
    CQ_FILLER_RECORD_SIZE,
    FIGURE_SKIPPED,
    LISTENER_SCHEDULER,
    REQUEST_WAITS,
    SYS_FLAG_TRANSACTION_MASK,
    AppendHead,
    QueueEntry,
)
from mqcore.store.log.append_end cimport append_finish
from mqcore.shm.segment cimport dispatch_hurry, interest_byte
from mqcore.shm.tables cimport name_hash, queue_find, queue_hash
from mqcore.store.queue.consume_queue cimport QueueItem, entry_decode, queue_read
from mqcore.store.log.view cimport log_at, log_next_use, log_record
from mqcore.store.queue.extension cimport is_extension_address
from mqcore.store.record cimport PARSE_RECORD, RecordView, record_parse
from mqcore.store.schedule.book cimport Book, book_move
from mqcore.store.schedule.record cimport PLACE_HALF, PLACE_KNOWN, RealPlace, real_place
from mqcore.store.topic_names cimport SCHEDULE_TOPIC, SCHEDULE_TOPIC_LENGTH


cdef void note_skip(Scheduler* s, int kind, int32_t level, int64_t offset,
                        int64_t position) noexcept nogil:
    if kind != NOTE_LOG_BROKEN:
        s.slot.figures[FIGURE_SKIPPED] += 1
    if s.notes_count == LEVEL_NOTES_MAX:
        s.notes_lost += 1
        return
    s.notes[s.notes_count].kind = kind
    s.notes[s.notes_count].level = level + 1
    s.notes[s.notes_count].offset = offset
    s.notes[s.notes_count].position = position
    s.notes_count += 1


cdef void level_begin(const Book* book, Level* level, int32_t number) noexcept nogil:
    level.next = book.state.offsets[number]
    level.limit = INT64_MAX
    level.failed = False
    level.retry_ms = 0
    level.seen_end = 0
    level.cached_count = 0


cdef void levels_find_queues(Scheduler* s) noexcept nogil:
    cdef uint64_t topic = name_hash(<const uint8_t*>SCHEDULE_TOPIC, SCHEDULE_TOPIC_LENGTH, 0)
    cdef int32_t i
    for i in range(s.level_count):
        if s.levels[i].queue < 0:
            s.levels[i].queue = queue_find(s.shm, <const uint8_t*>SCHEDULE_TOPIC,
                                           SCHEDULE_TOPIC_LENGTH, i, queue_hash(topic, i))
            if s.levels[i].queue >= 0:
                s.levels[i].life = load_i32_acquire(
                    &s.shm.queues[s.levels[i].queue].removal_done)


cdef bint set_interest(Scheduler* s, const Level* level, uint8_t value) noexcept nogil:
    """Whether it was another one."""
    cdef uint8_t* byte = interest_byte(s.shm, LISTENER_SCHEDULER, level.queue)
    if byte[0] == value:
        return False
    store_u8_release(byte, value)
    return True


cdef int64_t level_end(Scheduler* s, const Level* level) noexcept nogil:
    """Up to where the level's queue has entries (delivery S7)."""
    cdef QueueEntry* queue = &s.shm.queues[level.queue]
    cdef int64_t most = load_i64_acquire(&queue.max_offset)
    cdef bint begins
    if level.next < most:
        set_interest(s, level, 0)
        return most
    begins = set_interest(s, level, 1)
    full_fence()
    most = load_i64_acquire(&queue.max_offset)
    if begins and level.next >= most:
        dispatch_hurry(s.shm)                                            # dispatch D6
    return most


cdef void level_keep_in_range(Scheduler* s, int32_t number) noexcept nogil:
    """Where the queue's range ends, the level's offset does (broker.md 4.4 step 2)."""
    cdef Level* level = &s.levels[number]
    cdef QueueEntry* queue = &s.shm.queues[level.queue]
    cdef int64_t offset = s.book.state.offsets[number]
    cdef int64_t least = load_i64_acquire(&queue.min_offset)
    cdef int64_t most = load_i64_acquire(&queue.max_offset)
    cdef int32_t life = load_i32_acquire(&queue.removal_done)
    if level.life != life:
        level.life = life
        level.cached_count = 0
        offset = -1
    if not least <= offset <= most:
        level.next = least if offset < least else most
        book_move(&s.book, number, level.next)


cdef int64_t due_by_record(Scheduler* s, const Level* level,
                           const QueueItem* item) noexcept nogil:
    """
    When an entry is due whose tag code is an extension address: by its record, as stock does when
    the unit is gone (store.md 3.6). An unreadable one is due at once, and then noted as such.
    """
    cdef const uint8_t* at
    cdef RecordView record
    if not 0 < item.record_size < CQ_FILLER_RECORD_SIZE:
        return 0
    log_next_use(&s.log)
    at = log_at(&s.log, item.log_position, item.record_size,
                load_i64_acquire(&s.shm.log.published))
    if at == NULL or record_parse(at, item.record_size, &record) != PARSE_RECORD:
        return 0
    return record.store_time_ms + level.delay_ms


cdef bint entry_at(Scheduler* s, Level* level, int64_t offset, int64_t most,
                   QueueItem* item) noexcept nogil:
    cdef int64_t index = offset - level.cached_first
    cdef int32_t got
    if not 0 <= index < level.cached_count:
        got = queue_read(&s.queues, level.queue, offset,
                         <int32_t>min(<int64_t>CACHED_ENTRIES, most - offset), level.entries)
        level.cached_first = offset
        level.cached_count = max(got, 0)
        index = 0
        if got <= 0:
            return False
    item[0] = entry_decode(level.entries + index * CQ_ENTRY_SIZE)
    return True


cdef bint level_entry(Scheduler* s, int32_t number, int64_t offset, int64_t most,
                      QueueItem* item) noexcept nogil:
    cdef Level* level = &s.levels[number]
    if not entry_at(s, level, offset, most, item):
        return False
    if is_extension_address(item.tag_code):
        item.tag_code = due_by_record(s, level, item)
    return True


cdef const uint8_t* record_at(Scheduler* s, int64_t position, RecordView* record) noexcept nogil:
    cdef int64_t published = load_i64_acquire(&s.shm.log.published)
    cdef int64_t size = s.log.segment_size
    cdef int64_t available = min(published, (position // size + 1) * size) - position
    cdef const uint8_t* at
    if available <= 0:
        return NULL
    at = log_at(&s.log, position, available, published)
    if at == NULL or record_parse(at, available, record) != PARSE_RECORD:
        return NULL
    return at


cdef int checked_record(Scheduler* s, int64_t position, int64_t size, const uint8_t** at,
                        RecordView* record) noexcept nogil:
    """A segment that could not be mapped: if it is still part of the log, it may be later."""
    s.log.failure = 0
    at[0] = log_at(&s.log, position, size, load_i64_acquire(&s.shm.log.published))
    if at[0] == NULL:
        if s.log.failure and position >= load_i64_acquire(&s.shm.log.first):
            return RECORD_LATER
        return NOTE_UNREADABLE
    if log_record(&s.log, at[0], size, position, record) != PARSE_RECORD:
        return NOTE_UNREADABLE
    return 0


cdef void hand_in(Scheduler* s, AppendHead* head, int32_t number, int64_t name, int32_t size,
                  int32_t sys_flag) noexcept nogil:
    s.sent = (s.sent + 1) & DELIVERY_NUMBER_MASK
    head.connection = <uint64_t>s.sent << DELIVERY_NAME_BITS | <uint64_t>name
    head.answer_queue_id = number
    head.bytes_total = size
    head.request_flags = REQUEST_WAITS                       # settled when it is durable
    head.transaction_type = <uint8_t>(sys_flag & SYS_FLAG_TRANSACTION_MASK)
    append_finish(&s.appends, head)
    s.levels[number].flying += 1
    s.flying += 1


cdef int delayed_record(Scheduler* s, const QueueItem* item, const uint8_t** at,
                        RecordView* delayed, RealPlace* place) noexcept nogil:
    cdef int found
    if not 0 < item.record_size < CQ_FILLER_RECORD_SIZE:
        return NOTE_UNREADABLE
    found = checked_record(s, item.log_position, item.record_size, at, delayed)
    if found:
        return found
    found = real_place(delayed, place)
    if found == PLACE_KNOWN:
        return 0
    return NOTE_HALF if found == PLACE_HALF else NOTE_NO_PLACE
