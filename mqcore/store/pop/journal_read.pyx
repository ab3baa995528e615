"""Reads the journal of POP (journal_read.pxd)."""
from libc.errno cimport ENOMEM, errno
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport malloc
from libc.string cimport memcmp, memcpy

from mqcore.endian cimport load_i16, load_i32, load_i64, load_u32
from mqcore.layout cimport GROUP_LENGTH_MAX, TOPIC_LENGTH_MAX
from mqcore.store.crc32 cimport record_crc
from mqcore.store.io cimport store_io
from mqcore.store.pop.journal cimport close_file
from mqcore.store.pop.journal_format cimport (
    O_CLOEXEC,
    O_CREAT,
    O_RDWR,
    JOURNAL_MODE,
    BATCH_CRC,
    BATCH_HEAD_SIZE,
    BATCH_LENGTH,
    BATCH_STEADY,
    BATCH_WALL,
    HEAD_BOOT,
    HEAD_CRC,
    HEAD_SIZE,
    HEAD_VERSION,
    JOURNAL_ATTEMPT,
    JOURNAL_CLIP,
    JOURNAL_FORGET,
    JOURNAL_MESSAGE,
    JOURNAL_PASS,
    JOURNAL_PENDING_MAX,
    JOURNAL_QUEUE,
    JOURNAL_RAISE,
    JOURNAL_RESET,
    JOURNAL_SETTLED,
    JOURNAL_SIZE_MAX,
    JOURNAL_VERSION,
    MESSAGE_SIZE,
    PASS_POSITION,
    PASS_SIZE,
    QUEUE_SIZE,
    RECORD_ATTEMPTS,
    RECORD_DUE,
    RECORD_GROUP_LENGTH,
    RECORD_INVISIBLE,
    RECORD_LENGTH,
    RECORD_NUMBER,
    RECORD_OFFSET,
    RECORD_POP_TIME,
    RECORD_QUEUE_ID,
    RECORD_RENEWALS,
    RECORD_SIZE,
    RECORD_TOPIC_LENGTH,
    journal_magic,
    padded,
)
from mqcore.store.pop.messages cimport (
    heap_order,
    message_add,
    message_at,
    message_find,
    message_hide,
    message_lift,
    message_settle,
)
from mqcore.store.pop.queues cimport (
    is_named,
    queue_clip,
    queue_make,
    queue_raise,
    queue_remove,
    queue_reset,
)
from mqcore.store.pop.state cimport (
    NO_CLIENT,
    POP_ATTEMPT_ID_MAX,
    POP_BOOT_LENGTH,
    POP_INVISIBLE_MAX_MS,
    POP_OFFSET_MAX,
    POP_PATH_MAX,
    POP_TIME_MAX_MS,
    PopClock,
    PopJournal,
    PopMessage,
    PopQueue,
    PopState,
)

cdef enum Applied:
    APPLIED = 0
    SENSELESS = 1
    TOO_MANY = 2                       # journal PJ5


cdef int apply_queue(PopState* s, const uint8_t* record, int32_t number, int64_t next) noexcept nogil:
    cdef int32_t group = load_i16(record + RECORD_GROUP_LENGTH)
    cdef int32_t topic = load_i16(record + RECORD_TOPIC_LENGTH)
    cdef const uint8_t* names = record + QUEUE_SIZE
    cdef PopQueue* q
    if number >= s.queue_room:
        return TOO_MANY
    q = s.queues[number]
    if q == NULL:
        q = queue_make(s, number, names, group, names + group, topic,
                       load_i32(record + RECORD_QUEUE_ID))
        if q == NULL:
            return SENSELESS
        q.next = next
    elif not is_named(q, names, group, names + group, topic):
        return SENSELESS
    q.fifo = record[RECORD_LENGTH] != 0
    return APPLIED


cdef int apply_message(PopState* s, PopQueue* q, const uint8_t* record,
                       int64_t offset) noexcept nogil:
    cdef int64_t pop_ms = load_i64(record + RECORD_POP_TIME), due_ms = load_i64(record + RECORD_DUE)
    cdef int32_t invisible_ms = load_i32(record + RECORD_INVISIBLE)
    cdef int32_t renewals = load_i32(record + RECORD_RENEWALS)
    cdef int32_t attempts = load_i16(record + RECORD_ATTEMPTS)
    cdef int32_t message = message_find(s, q, offset)
    cdef PopMessage* m
    if not 0 <= pop_ms <= POP_TIME_MAX_MS or not 0 <= due_ms <= POP_TIME_MAX_MS or attempts < 1 or (
            not 0 <= invisible_ms <= POP_INVISIBLE_MAX_MS) or renewals < 0 or (
            renewals > POP_INVISIBLE_MAX_MS):
        return SENSELESS
    if message < 0:
        if offset < q.next or offset == POP_OFFSET_MAX:
            return SENSELESS
        message = message_add(s, q, offset)
        if message < 0:
            return TOO_MANY
        q.next = offset + 1
    else:
        message_lift(s, q, message)
    m = message_at(s, message)
    m.attempts = <int16_t>attempts
    m.pop_ms = pop_ms
    m.invisible_ms = invisible_ms
    m.renewals = renewals > 0
    s.stamp_ms = max(s.stamp_ms, pop_ms)
    s.freed_ms = max(s.freed_ms, pop_ms)
    message_hide(s, q, message, due_ms, NO_CLIENT)
    return APPLIED


cdef int apply_one(PopState* s, PopQueue* q, const uint8_t* record, int64_t offset) noexcept nogil:
    cdef int kind = record[0]
    cdef int32_t message
    if kind == JOURNAL_MESSAGE:
        return apply_message(s, q, record, offset)
    if kind == JOURNAL_SETTLED:
        message = message_find(s, q, offset)
        if message >= 0:
            message_settle(s, q, message)
    elif kind == JOURNAL_PASS:
        q.next = max(q.next, offset)
        if load_i64(record + PASS_POSITION) >= 0:
            q.proof_offset = offset - 1
            q.proof_position = load_i64(record + PASS_POSITION)
    elif kind == JOURNAL_RAISE:
        queue_raise(s, q, offset)
    elif kind == JOURNAL_CLIP:
        queue_clip(s, q, offset)
    elif kind == JOURNAL_RESET:
        queue_reset(s, q, offset)
    elif kind == JOURNAL_ATTEMPT:
        q.attempt_length = record[RECORD_LENGTH]
        memcpy(q.attempt_id, record + RECORD_SIZE, q.attempt_length)
        q.batch_end = offset
    elif kind == JOURNAL_FORGET:
        queue_remove(s, q)
    else:
        return SENSELESS
    return APPLIED


cdef int32_t size_of(const uint8_t* record, int32_t left) noexcept nogil:
    """Of the record that begins there, 0: it has no sense."""
    cdef int32_t size = RECORD_SIZE, group, topic
    if left < RECORD_SIZE:
        return 0
    if record[0] == JOURNAL_MESSAGE:
        size = MESSAGE_SIZE
    elif record[0] == JOURNAL_PASS:
        size = PASS_SIZE
    elif record[0] == JOURNAL_ATTEMPT:
        if record[RECORD_LENGTH] > POP_ATTEMPT_ID_MAX:
            return 0
        size = padded(RECORD_SIZE + record[RECORD_LENGTH])
    elif record[0] == JOURNAL_QUEUE:
        if left < QUEUE_SIZE:
            return 0
        group = load_i16(record + RECORD_GROUP_LENGTH)
        topic = load_i16(record + RECORD_TOPIC_LENGTH)
        if not 1 <= group <= GROUP_LENGTH_MAX or not 1 <= topic <= TOPIC_LENGTH_MAX:
            return 0
        size = padded(QUEUE_SIZE + group + topic)
    return size if size <= left else 0


cdef int apply_all(PopState* s, const uint8_t* records, int32_t length) noexcept nogil:
    cdef int32_t at = 0, size, number
    cdef int64_t offset
    cdef int outcome = APPLIED
    while at < length and outcome == APPLIED:
        size = size_of(records + at, length - at)
        number = load_i32(records + at + RECORD_NUMBER) if size else -1
        if number < 0:
            return SENSELESS
        offset = load_i64(records + at + RECORD_OFFSET)
        if not 0 <= offset <= POP_OFFSET_MAX:
            return SENSELESS
        if records[at] == JOURNAL_QUEUE:
            outcome = apply_queue(s, records + at, number, offset)
        elif number >= s.queue_room or s.queues[number] == NULL:
            return SENSELESS
        else:
            outcome = apply_one(s, s.queues[number], records + at, offset)
        at += size
    return outcome


cdef bint journal_apply(PopState* s, const uint8_t* records, int32_t length) noexcept nogil:
    cdef int32_t i
    cdef int outcome = apply_all(s, records, length)
    if outcome == TOO_MANY:
        for i in range(s.queue_room):
            if s.queues[i] != NULL:
                queue_remove(s, s.queues[i])
    return outcome == APPLIED


cdef inline bint read_part(int fd, uint8_t* into, int32_t size, int64_t at) noexcept nogil:
    cdef int32_t done = 0
    cdef ssize_t part
    while done < size:
        part = store_io().read_at(fd, into + done, size - done, at + done)
        if part <= 0:
            return False
        done += <int32_t>part
    return True


cdef void journal_read(PopState* s, uint8_t* buffer, bint* same_boot) noexcept nogil:
    cdef PopJournal* j = &s.journal
    cdef int64_t at = HEAD_SIZE, steady_ms, wall_ms
    cdef int32_t length
    cdef int fd = j.now.fd
    j.now.size = 0
    if store_io().read_at(fd, buffer, 1, 0) == 0:
        return                         # a new file: it is written whole (journal PJ3)
    j.torn_at = 0
    if not read_part(fd, buffer, HEAD_SIZE, 0) or memcmp(buffer, journal_magic, HEAD_VERSION) or (
            load_i32(buffer + HEAD_VERSION) != JOURNAL_VERSION) or (
            load_u32(buffer + HEAD_CRC) != record_crc(buffer, HEAD_CRC)):
        return
    same_boot[0] = memcmp(buffer + HEAD_BOOT, j.boot, POP_BOOT_LENGTH) == 0
    while at < JOURNAL_SIZE_MAX:
        j.torn_at = at
        if store_io().read_at(fd, buffer, 1, at) == 0:
            j.torn_at = -1             # it ends here
            break
        if not read_part(fd, buffer, BATCH_HEAD_SIZE, at):
            break
        length = load_i32(buffer + BATCH_LENGTH)
        if not RECORD_SIZE <= length <= JOURNAL_PENDING_MAX or not read_part(
                fd, buffer + BATCH_HEAD_SIZE, length, at + BATCH_HEAD_SIZE) or (
                load_u32(buffer + BATCH_CRC) != record_crc(
                    buffer + BATCH_STEADY, BATCH_HEAD_SIZE - BATCH_STEADY + length)):
            break
        steady_ms, wall_ms = load_i64(buffer + BATCH_STEADY), load_i64(buffer + BATCH_WALL)
        if not 0 <= steady_ms <= POP_TIME_MAX_MS or not 0 <= wall_ms <= POP_TIME_MAX_MS or (
                not journal_apply(s, buffer + BATCH_HEAD_SIZE, length)):
            break
        j.last_steady_ms = steady_ms
        j.last_wall_ms = wall_ms
        at += BATCH_HEAD_SIZE + length
    j.now.size = at


cdef void set_due(PopState* s, int64_t shift_ms, const PopClock* clock) noexcept nogil:      # journal PJ4
    cdef int32_t i
    cdef PopMessage* m
    cdef int64_t due_ms
    for i in range(s.heap_count):
        m = message_at(s, s.heap[i].message)
        due_ms = s.heap[i].due_ms + shift_ms
        if m.renewals > 0:             # its client may live, and has not said so again yet
            due_ms = INT64_MAX
            s.journal.behind = True
        s.heap[i].due_ms = min(due_ms, clock.steady_ms + m.invisible_ms)
        m.renewals = 0
    heap_order(s)


cdef int pop_journal_open(PopState* s, const char* path, const char* boot,
                          const PopClock* clock) noexcept nogil:
    cdef PopJournal* j = &s.journal
    cdef bint same_boot = False
    cdef int64_t passed_ms, shift_ms = 0
    if snprintf(j.path, POP_PATH_MAX, b"%s", path) >= POP_PATH_MAX:
        return ENOMEM
    memcpy(j.boot, boot, POP_BOOT_LENGTH)
    j.now.fd = store_io().open_file(path, O_RDWR | O_CREAT | O_CLOEXEC, JOURNAL_MODE)
    if j.now.fd < 0:
        return errno
    j.now.pending = <uint8_t*>malloc(BATCH_HEAD_SIZE + JOURNAL_PENDING_MAX)
    if j.now.pending == NULL:
        close_file(&j.now)
        return ENOMEM
    j.last_steady_ms = clock.steady_ms
    j.last_wall_ms = clock.wall_ms
    journal_read(s, j.now.pending, &same_boot)
    if not same_boot:
        passed_ms = max(clock.wall_ms - j.last_wall_ms, 0)
        shift_ms = clock.steady_ms - passed_ms - j.last_steady_ms
        j.behind = True
    if j.torn_at >= 0:
        j.behind = True
    set_due(s, shift_ms, clock)
    return 0
