"""The thread that holds the log against its checksums for slaves (verifier.pxd has the rules)."""
from libc.errno cimport EINTR, EIO, errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc

from mqcore.atomics cimport load_i32_acquire, load_i64_acquire, store_i32_release
from mqcore.clock cimport steady_us
from mqcore.endian cimport load_i32
from mqcore.layout cimport (
    BLANK_SIZE_MIN,
    MAGIC_BLANK,
    MAGIC_MESSAGE,
    RECORD_FIXED_SIZE,
    RECORD_MAGIC,
    RECORD_SIZE,
    LogState,
)
from mqcore.store.io cimport PAGE, store_io
from mqcore.store.log.checksums cimport CHECKSUM_WRONG, checksum_end, checksum_find
from mqcore.store.log.view cimport (
    LOG_VIEW_PLACES,
    MappedSegment,
    log_checksum,
    log_checksums,
    log_next_use,
    log_record_check,
    log_segment,
    log_view_close,
    log_view_open,
)
from mqcore.store.record cimport PARSE_RECORD, RecordView
from mqcore.threads cimport (
    pthread_cond_init,
    pthread_cond_signal,
    pthread_cond_wait,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    thread_begin,
    thread_end,
)

cdef extern from "<fcntl.h>" nogil:
    int posix_fadvise(int fd, long offset, long length, int advice)
    int POSIX_FADV_WILLNEED

cdef extern from "<sys/mman.h>" nogil:
    void* mmap(void* address, size_t length, int protection, int flags, int fd, long offset)
    int munmap(void* address, size_t length)
    int madvise(void* address, size_t length, int advice)
    int PROT_READ
    int MAP_SHARED

cdef extern from *:
    """
    #include <sys/mman.h>
    #ifndef MADV_POPULATE_READ
    #define MADV_POPULATE_READ 22      /* since Linux 5.14; before it the call is refused */
    #endif
    """
    int MADV_POPULATE_READ

cdef extern from "<unistd.h>" nogil:
    ssize_t sys_write "write"(int fd, const void* data, size_t size)
    int close(int fd)
    int dup(int fd)
    int usleep(unsigned int microseconds)


# -- the thread ------------------------------------------------------------------------------------


cdef int read_in(LogVerifier* c, uint8_t* into, int64_t offset, int64_t size) noexcept nogil:
    """These bytes of the segment; 0 or errno."""
    cdef int64_t done = 0
    cdef ssize_t got
    while done < size:
        got = store_io().read_at(c.file, into + done, size - done, offset + done)
        if got < 0 and errno == EINTR:
            continue
        if got <= 0:
            return errno if got < 0 else EIO
        done += got
    return 0


cdef int bring(LogVerifier* c, int64_t offset, int64_t size) noexcept nogil:
    """These bytes of the map can be touched without the disk, and without a signal; 0 or errno."""
    cdef int64_t page = offset - offset % PAGE, done = 0, part
    cdef int error
    if madvise(<void*>(c.map + page), offset + size - page, MADV_POPULATE_READ) == 0:
        return 0
    while done < size:                 # an older kernel, or something is wrong: what, a read says
        part = min(size - done, <int64_t>CHECK_READ_BYTES)
        error = read_in(c, c.bytes, offset + done, part)
        if error:
            return error
        done += part
    return 0


cdef const uint8_t* mapped(LogVerifier* c, int64_t offset, int64_t size) noexcept nogil:
    """What is longer than `bytes`; NULL: failure."""
    cdef void* map
    c.have = 0
    if c.map == NULL:
        map = mmap(NULL, c.log.segment_size, PROT_READ, MAP_SHARED, c.file, 0)
        if <long>map == -1:
            c.failure = errno
            return NULL
        c.map = <const uint8_t*>map
    c.failure = bring(c, offset, size)
    if c.failure:
        return NULL
    return c.map + offset


cdef void keep_no_gap(LogVerifier* c, int64_t at, int64_t size) noexcept nogil:
    """CK7: what is read from a position on is not kept where it would leave a gap, or has no room."""
    cdef Kept* k = c.keeps
    if k == NULL:
        return
    if not k.start <= at <= k.end or size > CHECK_READ_BYTES or (
            at + CHECK_READ_BYTES > k.start + KEPT_BYTES):
        k.end = max(min(k.end, at), k.start)
        c.keeps = NULL


cdef const uint8_t* window(LogVerifier* c, int64_t at, int64_t size) noexcept nogil:
    """`size` bytes of the segment, until the next call; NULL: they are not there, or failure."""
    cdef int64_t offset = at % c.log.segment_size
    cdef uint8_t* into = c.bytes
    if c.start <= at and at + size <= c.start + c.have:
        return c.window + (at - c.start)
    if size > c.end - at:
        return NULL
    keep_no_gap(c, at, size)
    if size > CHECK_READ_BYTES:
        return mapped(c, offset, size)
    c.start = at
    c.have = min(<int64_t>CHECK_READ_BYTES, c.end - at)
    if c.keeps != NULL:
        into = c.keeps.bytes + (at - c.keeps.start)
        c.keeps.end = max(c.keeps.end, at + c.have)
    c.window = into
    c.failure = read_in(c, into, offset, c.have)
    if c.failure:
        c.have = 0
        return NULL
    return c.window


cdef int64_t extent(LogVerifier* c, int64_t at, bint* blank) noexcept nogil:
    """Bytes from the record that begins there to the next one, by its head; 0: none begins there."""
    cdef const uint8_t* head = window(c, at, BLANK_SIZE_MIN)
    cdef int64_t size
    if head == NULL:
        return 0
    blank[0] = load_i32(head + RECORD_MAGIC) == MAGIC_BLANK
    if blank[0]:
        return c.log.segment_size - at % c.log.segment_size
    size = load_i32(head + RECORD_SIZE)
    if load_i32(head + RECORD_MAGIC) != MAGIC_MESSAGE or not RECORD_FIXED_SIZE <= size <= c.end - at:
        return 0
    return size


cdef int64_t right_size(LogVerifier* c, int64_t at) noexcept nogil:
    """The same of one that is as it was written (CK2)."""
    cdef bint blank = False
    cdef int64_t size = extent(c, at, &blank)
    cdef const uint8_t* record
    cdef RecordView view
    if size == 0:
        return 0
    record = window(c, at, <int64_t>BLANK_SIZE_MIN if blank else size)
    if record == NULL:
        return 0
    if blank:
        return 0 if log_checksum(
            &c.log, record, BLANK_SIZE_MIN, at, at + size) == CHECKSUM_WRONG else size
    return size if log_record_check(&c.log, record, size, at, &view) == PARSE_RECORD else 0


cdef bint leads_to(LogVerifier* c, int64_t* at, int64_t position) noexcept nogil:
    """From record to record, to the one that covers a position; False: no record begins at *at."""
    cdef bint blank
    cdef int64_t size
    while at[0] < position and not load_i32_acquire(&c.stop):
        size = extent(c, at[0], &blank)
        if size == 0:
            return False
        if at[0] + size > position:
            break
        at[0] += size
    return True


cdef bint find_record(LogVerifier* c, int64_t* at) noexcept nogil:
    """CK3: at once, by the checksums, and where they lead nowhere from the segment's start on."""
    cdef int64_t position = at[0], base = position - position % c.log.segment_size
    cdef int64_t count, hint = 0
    cdef const uint8_t* entries = log_checksums(&c.log, position, &count)
    cdef const uint8_t* head
    if position > base:                # it says its own position: what lies before it is not asked
        head = window(c, position, BLANK_SIZE_MIN)
        if head != NULL and load_i32(head + RECORD_MAGIC) == MAGIC_MESSAGE and (
                right_size(c, position)):
            return True
        if c.failure:
            return False
    at[0] = base
    if entries != NULL:
        checksum_find(entries, count, position - base, &hint)
        if hint:
            at[0] = base + checksum_end(entries, hint - 1)
    if leads_to(c, at, position):
        return True
    at[0] = base
    return c.failure == 0 and leads_to(c, at, position)


cdef int judge(LogVerifier* c, int64_t* at) noexcept nogil:
    """From *at on; where it ends, and CHECK_RIGHT or CHECK_DAMAGED."""
    cdef int64_t size = 1, stop = min(at[0] + CHECK_BYTES, c.end)
    if not find_record(c, at):
        return CHECK_DAMAGED
    while at[0] < stop and not load_i32_acquire(&c.stop):
        size = right_size(c, at[0])
        if size == 0:
            return CHECK_DAMAGED
        at[0] += size
    return CHECK_RIGHT


cdef inline MappedSegment* place_in_view(LogVerifier* c, int64_t position) noexcept nogil:
    return &c.log.places[position // c.log.segment_size & (LOG_VIEW_PLACES - 1)]


cdef void go_on_with_checksums(LogVerifier* c, int64_t position) noexcept nogil:
    """Where the job before ended there, its last entry is known: none is searched in pages that are not mapped."""
    cdef int64_t count
    if log_checksums(&c.log, position, &count) != NULL and c.hint_position == position:
        place_in_view(c, position).checksums_hint = c.hint


cdef Kept* begin_piece(LogVerifier* c, VerifyJob* job) noexcept nogil:
    """CK7; NULL: nothing is kept."""
    cdef Kept* k
    if job.piece < 0:
        return NULL
    k = &c.kept[job.piece]
    k.start = k.end = job.position
    if k.bytes == NULL:
        k.bytes = <uint8_t*>malloc(KEPT_BYTES)
    return k if k.bytes != NULL else NULL


cdef int do_job(LogVerifier* c, VerifyJob* job, int64_t* position) noexcept nogil:
    """What has become of it, and the position that says so (CheckState)."""
    cdef int64_t at = job.position, segment_size = c.log.segment_size
    cdef int64_t base = at - at % segment_size
    cdef int state
    position[0] = EIO
    c.end = min(job.end, base + segment_size)
    c.file = job.file
    c.map = NULL
    c.failure = 0
    c.have = 0
    c.keeps = begin_piece(c, job)
    posix_fadvise(c.file, at - base, CHECK_BYTES, POSIX_FADV_WILLNEED)
    log_next_use(&c.log)
    log_segment(&c.log, at)            # for its checksums; what is deleted has none
    go_on_with_checksums(c, at)
    state = judge(c, &at)
    c.hint_position = at
    c.hint = place_in_view(c, job.position).checksums_hint
    log_view_close(&c.log)             # a segment that is deleted meanwhile is not held
    if c.map != NULL:
        munmap(<void*>c.map, segment_size)
    if job.piece >= 0:                 # of a record that is wrong, or was not judged, nothing
        c.kept[job.piece].end = min(c.kept[job.piece].end, at)
    position[0] = c.failure if c.failure else at
    return CHECK_UNREADABLE if c.failure else state


cdef void keep_to_rate(LogVerifier* c, int64_t size, int64_t began_us) noexcept nogil:
    """CK6, behind a job of `size` bytes."""
    cdef int64_t rate = load_i64_acquire(&c.rate), left_us
    if rate <= 0 or size <= 0:
        return
    left_us = size * 1000000 // rate - (steady_us() - began_us)
    if left_us > 0:
        usleep(<unsigned int>min(left_us, <int64_t>CHECK_PAUSE_US_MAX))


cdef VerifyJob* next_job(LogVerifier* c) noexcept nogil:
    """The oldest; NULL: none waits. Under the lock."""
    cdef VerifyJob* found = NULL
    cdef int i
    for i in range(VERIFY_PLACES):
        if c.jobs[i].state == CHECK_ASKED and (found == NULL or c.jobs[i].number < found.number):
            found = &c.jobs[i]
    return found


cdef void free_piece(LogVerifier* c, VerifyJob* job) noexcept nogil:
    """Under the lock."""
    if job.piece >= 0:
        c.kept[job.piece].in_use = False
    job.piece = -1


cdef void* run(void* argument) noexcept nogil:
    cdef LogVerifier* c = <LogVerifier*>argument
    cdef VerifyJob* job
    cdef int64_t position = 0, one = 1, began_us, begin
    cdef int state
    pthread_mutex_lock(&c.lock)
    while not load_i32_acquire(&c.stop):
        job = next_job(c)
        if job == NULL:
            pthread_cond_wait(&c.some, &c.lock)
            continue
        job.state = CHECK_RUNS
        begin = job.position
        pthread_mutex_unlock(&c.lock)
        began_us = steady_us()
        state = do_job(c, job, &position)
        close(job.file)
        pthread_mutex_lock(&c.lock)
        if job.state == CHECK_LEFT:
            free_piece(c, job)
        job.state = CHECK_NONE if job.state == CHECK_LEFT else state
        job.position = position
        # a full counter (EAGAIN) means that the bell is rung already: nothing is lost
        sys_write(c.bell, &one, sizeof(one))
        pthread_mutex_unlock(&c.lock)
        if state == CHECK_RIGHT:
            keep_to_rate(c, position - begin, began_us)
        pthread_mutex_lock(&c.lock)
    pthread_mutex_unlock(&c.lock)
    return NULL


# -- the loop --------------------------------------------------------------------------------------


cdef LogVerifier* verifier_open(LogState* state, const char* folders, int64_t segment_size,
                           int bell) noexcept nogil:
    cdef LogVerifier* c = <LogVerifier*>calloc(1, sizeof(LogVerifier))
    if c == NULL:
        return NULL
    c.bell = bell
    c.bytes = <uint8_t*>malloc(CHECK_READ_BYTES)
    log_view_open(&c.log, state, folders, segment_size)
    pthread_mutex_init(&c.lock, NULL)
    pthread_cond_init(&c.some, NULL)
    if c.bytes == NULL or thread_begin(&c.thread, run, c) != 0:
        free(c.bytes)
        free(c)
        return NULL
    return c


cdef void verifier_close(LogVerifier* c) noexcept nogil:
    cdef int i
    if c == NULL:
        return
    store_i32_release(&c.stop, 1)
    pthread_mutex_lock(&c.lock)
    pthread_cond_signal(&c.some)
    pthread_mutex_unlock(&c.lock)
    thread_end(c.thread)
    for i in range(VERIFY_PLACES):
        if c.jobs[i].state == CHECK_ASKED:
            close(c.jobs[i].file)
    for i in range(KEPT_MAX):
        free(c.kept[i].bytes)
    free(c.bytes)
    free(c)


cdef int take_piece(LogVerifier* c) noexcept nogil:
    """Its number; -1: none is free. Under the lock."""
    cdef int i
    for i in range(KEPT_MAX):
        if not c.kept[i].in_use:
            c.kept[i].in_use = True
            return i
    return -1


cdef bint verifier_ask(LogVerifier* c, int place, int file, int64_t position, int64_t end,
                      bint keep) noexcept nogil:
    cdef VerifyJob* job = &c.jobs[place]
    cdef int copy = dup(file), error = errno
    cdef bint is_free
    pthread_mutex_lock(&c.lock)
    is_free = job.state == CHECK_NONE
    if is_free:
        c.asked += 1
        job.number = c.asked
        job.file = copy
        job.position = position if copy >= 0 else error
        job.end = end
        job.piece = take_piece(c) if keep and copy >= 0 else -1
        job.state = CHECK_ASKED if copy >= 0 else CHECK_UNREADABLE
        pthread_cond_signal(&c.some)
    pthread_mutex_unlock(&c.lock)
    if not is_free and copy >= 0:
        close(copy)
    return is_free


cdef int verifier_take(LogVerifier* c, int place, int64_t* position, int* piece) noexcept nogil:
    cdef VerifyJob* job = &c.jobs[place]
    cdef int state
    piece[0] = -1
    pthread_mutex_lock(&c.lock)
    state = job.state
    if state >= CHECK_RIGHT:
        position[0] = job.position
        piece[0] = job.piece
        job.state = CHECK_NONE
    pthread_mutex_unlock(&c.lock)
    return state


cdef void verifier_leave(LogVerifier* c, int place) noexcept nogil:
    cdef VerifyJob* job = &c.jobs[place]
    pthread_mutex_lock(&c.lock)
    if job.state == CHECK_ASKED:
        close(job.file)
    if job.state not in (CHECK_NONE, CHECK_RUNS, CHECK_LEFT):
        free_piece(c, job)
    job.state = CHECK_LEFT if job.state in (CHECK_RUNS, CHECK_LEFT) else CHECK_NONE
    pthread_mutex_unlock(&c.lock)


cdef bint verifier_ready(LogVerifier* c, int place) noexcept nogil:
    cdef int state
    pthread_mutex_lock(&c.lock)
    state = c.jobs[place].state
    pthread_mutex_unlock(&c.lock)
    return state == CHECK_NONE or state >= CHECK_RIGHT


cdef void verifier_give_back(LogVerifier* c, int piece) noexcept nogil:
    pthread_mutex_lock(&c.lock)
    c.kept[piece].in_use = False
    pthread_mutex_unlock(&c.lock)


cdef int verifier_pieces(LogVerifier* c) noexcept nogil:
    cdef int i, count = 0
    pthread_mutex_lock(&c.lock)
    for i in range(KEPT_MAX):
        count += c.kept[i].in_use
    pthread_mutex_unlock(&c.lock)
    return count
