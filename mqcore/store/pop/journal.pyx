"""Writes the journal of POP, and a new one when it is due (journal.pxd)."""
from libc.errno cimport ENOMEM, errno
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from mqcore.endian cimport store_i16, store_i32, store_i64
from mqcore.store.crc32 cimport record_crc
from mqcore.store.io cimport store_io, write_all_at
from mqcore.store.pop.journal_format cimport (
    O_CLOEXEC,
    O_CREAT,
    O_RDWR,
    O_TRUNC,
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
    JOURNAL_KEPT,
    JOURNAL_MESSAGE,
    JOURNAL_PASS,
    JOURNAL_PENDING_MAX,
    JOURNAL_QUEUE,
    JOURNAL_RAISE,
    JOURNAL_RESET,
    JOURNAL_RETRY_MS,
    JOURNAL_SETTLED,
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
from mqcore.store.pop.messages cimport committed_of, message_at, message_due
from mqcore.store.pop.state cimport (
    POP_ATTEMPT_ID_MAX,
    POP_BOOT_LENGTH,
    POP_PATH_MAX,
    READY_AGAIN,
    UNKNOWN_POSITION,
    PopClock,
    PopFile,
    PopJournal,
    PopMessage,
    PopQueue,
    PopState,
)

cdef extern from "<stdio.h>" nogil:
    int rename(const char* old, const char* new)

cdef extern from "<unistd.h>" nogil:
    int unlink(const char* path)

cdef enum:
    QUEUE_BYTES = 128                  # of a queue in a new file, about
    RECORD_MAX = 512                   # the largest record: a queue with its names

cdef const char* NEW = ".new"


# -- batches ---------------------------------------------------------------------------------------


cdef int write_pending(PopJournal* j, PopFile* file) noexcept nogil:
    cdef uint8_t* head = file.pending
    cdef int32_t size = BATCH_HEAD_SIZE + file.pending_length
    cdef int error
    if file.pending_length == 0:
        return 0
    store_i32(head + BATCH_LENGTH, file.pending_length)
    store_i64(head + BATCH_STEADY, j.last_steady_ms)
    store_i64(head + BATCH_WALL, j.last_wall_ms)
    store_i32(head + BATCH_CRC, <int32_t>record_crc(head + BATCH_STEADY, size - BATCH_STEADY))
    error = write_all_at(file.fd, head, size, file.size)
    if error == 0:
        file.size += size
        file.pending_length = 0
    return error


cdef int put(PopJournal* j, PopFile* file, const uint8_t* record, int32_t size) noexcept nogil:
    cdef int error
    if file.pending_length + size > JOURNAL_PENDING_MAX:
        error = write_pending(j, file)
        if error:
            return error
    memcpy(file.pending + BATCH_HEAD_SIZE + file.pending_length, record, size)
    file.pending_length += size
    return 0


cdef void close_file(PopFile* file) noexcept nogil:
    if file.fd >= 0:
        store_io().close_file(file.fd)
    file.fd = -1
    free(file.pending)
    file.pending = NULL
    file.pending_length = 0


cdef void new_path(const PopJournal* j, char* path) noexcept nogil:
    snprintf(path, POP_PATH_MAX + 8, b"%s%s", j.path, NEW)


cdef void give_up_new(PopJournal* j) noexcept nogil:
    cdef char path[POP_PATH_MAX + 8]
    if j.new.fd < 0:
        return
    close_file(&j.new)
    new_path(j, path)
    unlink(path)


cdef void note(PopState* s, const PopQueue* q, const uint8_t* record, int32_t size) noexcept nogil:
    cdef PopJournal* j = &s.journal
    if j.now.fd < 0:
        return
    if not j.behind and put(j, &j.now, record, size):
        j.behind = True                                                                   # PJ3
        give_up_new(j)
    if j.new.fd >= 0 and q.snapshot == j.snapshot and put(j, &j.new, record, size):
        give_up_new(j)


# -- records ---------------------------------------------------------------------------------------


cdef inline void head_of(uint8_t* record, int kind, const PopQueue* q, int64_t offset) noexcept nogil:
    memset(record, 0, RECORD_SIZE)
    record[0] = <uint8_t>kind
    store_i32(record + RECORD_NUMBER, q.number)
    store_i64(record + RECORD_OFFSET, offset)


cdef void note_plain(PopState* s, const PopQueue* q, int kind, int64_t offset) noexcept nogil:
    cdef uint8_t record[RECORD_SIZE]
    head_of(record, kind, q, offset)
    note(s, q, record, RECORD_SIZE)


cdef int32_t queue_record(const PopQueue* q, int64_t next, uint8_t* record) noexcept nogil:
    cdef int32_t names = q.group_length + q.topic_length, size = padded(QUEUE_SIZE + names)
    memset(record, 0, size)
    head_of(record, JOURNAL_QUEUE, q, next)
    record[RECORD_LENGTH] = q.fifo
    store_i32(record + RECORD_QUEUE_ID, q.queue_id)
    store_i16(record + RECORD_GROUP_LENGTH, <short>q.group_length)
    store_i16(record + RECORD_TOPIC_LENGTH, <short>q.topic_length)
    memcpy(record + QUEUE_SIZE, q.names, names)
    return size


cdef void message_record(const PopState* s, const PopQueue* q, int32_t message,
                         uint8_t* record) noexcept nogil:
    cdef const PopMessage* m = message_at(s, message)
    head_of(record, JOURNAL_MESSAGE, q, m.offset)
    store_i16(record + RECORD_ATTEMPTS, m.attempts)
    store_i64(record + RECORD_POP_TIME, m.pop_ms)
    store_i64(record + RECORD_DUE, 0 if m.place == READY_AGAIN else message_due(s, message))
    store_i32(record + RECORD_INVISIBLE, m.invisible_ms)
    store_i32(record + RECORD_RENEWALS, m.renewals)


cdef int32_t attempt_record(const PopQueue* q, uint8_t* record) noexcept nogil:
    cdef int32_t size = padded(RECORD_SIZE + q.attempt_length)
    memset(record, 0, size)
    head_of(record, JOURNAL_ATTEMPT, q, q.batch_end)
    record[RECORD_LENGTH] = <uint8_t>q.attempt_length
    memcpy(record + RECORD_SIZE, q.attempt_id, q.attempt_length)
    return size


cdef void pass_record(const PopQueue* q, uint8_t* record) noexcept nogil:
    head_of(record, JOURNAL_PASS, q, q.next)
    store_i64(record + PASS_POSITION,
              q.proof_position if q.proof_offset == q.next - 1 else UNKNOWN_POSITION)


cdef void note_queue(PopState* s, PopQueue* q) noexcept nogil:
    cdef uint8_t record[RECORD_MAX]
    if s.journal.now.fd >= 0:
        note(s, q, record, queue_record(q, committed_of(s, q), record))


cdef void note_forget(PopState* s, PopQueue* q) noexcept nogil:
    note_plain(s, q, JOURNAL_FORGET, 0)


cdef void note_message(PopState* s, PopQueue* q, int32_t message) noexcept nogil:
    cdef uint8_t record[MESSAGE_SIZE]
    if s.journal.now.fd >= 0:
        message_record(s, q, message, record)
        note(s, q, record, MESSAGE_SIZE)


cdef void note_attempt(PopState* s, PopQueue* q) noexcept nogil:
    cdef uint8_t record[RECORD_SIZE + POP_ATTEMPT_ID_MAX]
    if s.journal.now.fd >= 0:
        note(s, q, record, attempt_record(q, record))


cdef void note_settled(PopState* s, PopQueue* q, int64_t offset) noexcept nogil:
    note_plain(s, q, JOURNAL_SETTLED, offset)


cdef void note_pass(PopState* s, PopQueue* q) noexcept nogil:
    cdef uint8_t record[PASS_SIZE]
    pass_record(q, record)
    note(s, q, record, PASS_SIZE)


cdef void note_raise(PopState* s, PopQueue* q, int64_t least) noexcept nogil:
    note_plain(s, q, JOURNAL_RAISE, least)


cdef void note_clip(PopState* s, PopQueue* q, int64_t end) noexcept nogil:
    note_plain(s, q, JOURNAL_CLIP, end)


cdef void note_reset(PopState* s, PopQueue* q, int64_t next) noexcept nogil:
    note_plain(s, q, JOURNAL_RESET, next)


# -- a new file (PJ3) ------------------------------------------------------------------------------


cdef int begin_new(PopState* s) noexcept nogil:
    cdef PopJournal* j = &s.journal
    cdef char path[POP_PATH_MAX + 8]
    cdef uint8_t head[HEAD_SIZE]
    cdef int error
    j.new.pending = <uint8_t*>malloc(BATCH_HEAD_SIZE + JOURNAL_PENDING_MAX)
    if j.new.pending == NULL:
        return ENOMEM
    new_path(j, path)
    j.new.fd = store_io().open_file(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, JOURNAL_MODE)
    if j.new.fd < 0:
        error = errno
        close_file(&j.new)
        return error
    memset(head, 0, HEAD_SIZE)
    memcpy(head, journal_magic, HEAD_VERSION)
    store_i32(head + HEAD_VERSION, JOURNAL_VERSION)
    memcpy(head + HEAD_BOOT, j.boot, POP_BOOT_LENGTH)
    store_i32(head + HEAD_CRC, <int32_t>record_crc(head, HEAD_CRC))
    error = write_all_at(j.new.fd, head, HEAD_SIZE, 0)
    if error:
        give_up_new(j)
        return error
    j.new.size = HEAD_SIZE
    j.snapshot += 1
    j.cursor = 0
    return 0


cdef int write_queue(PopState* s, PopQueue* q) noexcept nogil:
    cdef PopJournal* j = &s.journal
    cdef uint8_t record[RECORD_MAX]
    cdef int32_t message = q.first
    cdef int error = put(j, &j.new, record, queue_record(q, committed_of(s, q), record))
    while message >= 0 and not error:
        message_record(s, q, message, record)
        error = put(j, &j.new, record, MESSAGE_SIZE)
        message = message_at(s, message).next
    if not error:
        pass_record(q, record)
        error = put(j, &j.new, record, PASS_SIZE)
    if not error and q.fifo:
        error = put(j, &j.new, record, attempt_record(q, record))
    q.snapshot = j.snapshot
    return error


cdef int end_new(PopState* s) noexcept nogil:
    cdef PopJournal* j = &s.journal
    cdef char path[POP_PATH_MAX + 8]
    cdef int error = write_pending(j, &j.new)
    if error:
        return error
    new_path(j, path)
    if rename(path, j.path):
        return errno
    close_file(&j.now)
    j.now = j.new
    j.new.fd = -1
    j.new.pending = NULL
    j.behind = False
    return 0


cdef int step_new(PopState* s, int64_t most) noexcept nogil:
    """Queues of about so many bytes; with the last one the new file is the file."""
    cdef PopJournal* j = &s.journal
    cdef PopQueue* q
    cdef int error = 0
    while j.cursor < s.queue_room and most > 0 and not error:
        q = s.queues[j.cursor]
        j.cursor += 1
        if q != NULL and q.snapshot != j.snapshot:
            most -= QUEUE_BYTES + <int64_t>q.count * MESSAGE_SIZE
            error = write_queue(s, q)
    if not error and j.cursor == s.queue_room:
        error = end_new(s)
    if error:
        give_up_new(j)
    return error


cdef void pop_compact(PopState* s, const PopClock* clock, int64_t most) noexcept nogil:
    cdef PopJournal* j = &s.journal
    cdef int64_t useful = HEAD_SIZE + <int64_t>s.queue_count * QUEUE_BYTES + (
        <int64_t>s.count * MESSAGE_SIZE)
    if j.now.fd < 0 or j.behind or clock.steady_ms < j.retry_ms:
        return
    if j.new.fd < 0 and (j.now.size <= max(2 * useful, <int64_t>JOURNAL_KEPT) or begin_new(s)):
        return
    if step_new(s, most):
        j.retry_ms = clock.steady_ms + JOURNAL_RETRY_MS


cdef int pop_flush(PopState* s, const PopClock* clock) noexcept nogil:
    cdef PopJournal* j = &s.journal
    cdef int error
    if j.now.fd < 0:
        return 0
    j.last_steady_ms = clock.steady_ms
    j.last_wall_ms = clock.wall_ms
    if j.behind:
        error = begin_new(s) if j.new.fd < 0 else 0
        return error if error else step_new(s, INT64_MAX)
    error = write_pending(j, &j.now)
    if j.new.fd >= 0 and write_pending(j, &j.new):
        give_up_new(j)
    return error


# -- an end ----------------------------------------------------------------------------------------


cdef void pop_journal_close(PopState* s) noexcept nogil:
    give_up_new(&s.journal)
    close_file(&s.journal.now)
