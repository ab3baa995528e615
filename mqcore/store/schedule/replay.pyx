"""Searches the log for deliveries (replay.pxd)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from mqcore.atomics cimport load_i64_acquire
from mqcore.store.queue.consume_queue cimport QueueItem
from mqcore.store.log.view cimport log_at, log_next_use
from mqcore.store.record cimport PARSE_BLANK, PARSE_RECORD, RecordView, record_parse
from mqcore.store.schedule.book cimport book_has, book_move_position, book_settle
from mqcore.store.schedule.timer cimport timer_found
from mqcore.store.schedule.levels cimport (
    FLIGHT_MAX,
    NOTE_LOG_BROKEN,
    Scheduler,
    delayed_record,
    level_entry,
    note_skip,
)
from mqcore.store.schedule.record cimport PLACE_KNOWN, RealPlace, real_place, same_message


cdef void replay_begin(Scheduler* s) noexcept nogil:
    s.search_position = max(s.book.state.settled_position, load_i64_acquire(&s.shm.log.first))
    s.search_end = load_i64_acquire(&s.shm.log.published)
    if not s.timer.is_open:
        s.timer.safe_position = min(s.search_position, s.timer.known_position)
        s.timer.begun_position = s.timer.safe_position
    if s.timer.held_second < s.timer.second:
        s.timer.held_position = s.search_position
    s.timer.held_position = min(s.timer.held_position, s.search_position)


cdef bint is_delivery(const RecordView* found, RealPlace* place) noexcept nogil:
    """Whether a record lies in the topic where its own properties say that it belongs."""
    return (real_place(found, place) == PLACE_KNOWN and place.topic_length == found.topic_length
            and memcmp(place.topic, found.topic, found.topic_length) == 0)


cdef bint entry_is(Scheduler* s, int32_t level, int64_t offset, const uint8_t* at,
                   const RecordView* found) noexcept nogil:
    cdef RealPlace place
    return is_delivery(found, &place) and compare(s, level, offset, at, found) == 0


cdef int compare(Scheduler* s, int32_t level, int64_t offset, const uint8_t* at,
                 const RecordView* found) noexcept nogil:
    """0: `found` carries the entry's message; a NoteKind: nothing does; -1: no."""
    cdef RealPlace place
    cdef RecordView delayed
    cdef const uint8_t* delayed_at
    cdef QueueItem item
    cdef int64_t most
    cdef int trouble
    if s.levels[level].queue < 0:
        return -1
    most = load_i64_acquire(&s.shm.queues[s.levels[level].queue].max_offset)
    if offset >= most or not level_entry(s, level, offset, most, &item):
        return -1
    trouble = delayed_record(s, &item, &delayed_at, &delayed, &place)
    if trouble:
        return trouble
    return 0 if same_message(at, found, delayed_at, &delayed) else -1


cdef void settle_delivery(Scheduler* s, const uint8_t* at, const RecordView* found) noexcept nogil:
    """If `found` delivers an entry that is not settled, it is now."""
    cdef RealPlace place
    cdef int64_t offset, limit
    cdef int32_t level
    cdef int trouble
    if not is_delivery(found, &place) or not 1 <= place.level <= s.level_count:
        return
    level = place.level - 1
    if s.levels[level].queue < 0:
        return
    offset = s.book.state.offsets[level]
    limit = min(offset + FLIGHT_MAX,
                load_i64_acquire(&s.shm.queues[s.levels[level].queue].max_offset))
    while offset < limit:
        if not book_has(&s.book, level, offset):
            trouble = compare(s, level, offset, at, found)
            if trouble == 0:
                book_move_position(&s.book, found.log_position + found.size)         # book S3
                book_settle(&s.book, level, offset)
                return
            if trouble > 0 and offset == s.book.state.offsets[level]:
                note_skip(s, trouble, level, offset, -1)
                book_settle(&s.book, level, offset)          # it was skipped: others came after it
        offset += 1


cdef bint replay_step(Scheduler* s, int32_t records_max) noexcept nogil:
    cdef int64_t size = s.log.segment_size, available
    cdef const uint8_t* at
    cdef RecordView record
    cdef int result = PARSE_RECORD
    while s.search_position < s.search_end:
        available = min(s.search_end, (s.search_position // size + 1) * size) - s.search_position
        log_next_use(&s.log)
        at = log_at(&s.log, s.search_position, available, s.search_end)
        if at == NULL:
            note_skip(s, NOTE_LOG_BROKEN, -1, -1, s.search_position)
            return True
        while available > 0:
            if records_max == 0:
                return False
            records_max -= 1
            result = record_parse(at, available, &record)
            if result != PARSE_RECORD:
                break
            if record.properties_length > 0:
                settle_delivery(s, at, &record)
                timer_found(s, &record)
            at += record.size
            available -= record.size
            s.search_position += record.size
        if result == PARSE_BLANK:
            s.search_position = (s.search_position // size + 1) * size
        elif result != PARSE_RECORD:
            note_skip(s, NOTE_LOG_BROKEN, -1, -1, s.search_position)
            return True
    return True
