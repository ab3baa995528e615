"""The thread that holds the log against its checksums for slaves (checked.pxd has the rules)."""
from libc.errno cimport EINTR, EIO, ENOMEM, errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc, realloc

from mqcore.atomics cimport load_i32_acquire, store_i32_release
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
from mqcore.store.io cimport store_io
from mqcore.store.log.checksums cimport CHECKSUM_WRONG, checksum_end, checksum_find
from mqcore.store.log.view cimport (
    log_checksum,
    log_checksums,
    log_next_use,
    log_record_check,
    log_segment,
    log_view_close,
    log_view_open,
)
from mqcore.store.record cimport PARSE_RECORD, RecordView
from mqcore.threads cimport thread_begin, thread_end

cdef extern from "<pthread.h>" nogil:
    int pthread_mutex_init(pthread_mutex_t* lock, const void* attributes)
    int pthread_mutex_lock(pthread_mutex_t* lock)
    int pthread_mutex_unlock(pthread_mutex_t* lock)
    int pthread_cond_init(pthread_cond_t* condition, const void* attributes)
    int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* lock)
    int pthread_cond_signal(pthread_cond_t* condition)

cdef extern from "<fcntl.h>" nogil:
    int posix_fadvise(int fd, long offset, long length, int advice)
    int POSIX_FADV_WILLNEED

cdef extern from "<unistd.h>" nogil:
    ssize_t sys_write "write"(int fd, const void* data, size_t size)
    int close(int fd)
    int dup(int fd)


# -- the thread ------------------------------------------------------------------------------------


cdef bint has_room(Checker* c, int64_t size) noexcept nogil:
    cdef uint8_t* larger
    if size <= c.capacity:
        return True
    larger = <uint8_t*>realloc(c.bytes, size)
    if larger == NULL:
        c.failure = ENOMEM
        return False
    c.bytes = larger
    c.capacity = size
    return True


cdef const uint8_t* window(Checker* c, int64_t at, int64_t size) noexcept nogil:
    """`size` bytes of the segment, good until the next call; NULL: they are not there, or failure."""
    cdef int64_t wanted = min(max(size, <int64_t>CHECK_READ_BYTES), c.end - at)
    cdef ssize_t got
    if c.start <= at and at + size <= c.start + c.have:
        return c.bytes + (at - c.start)
    if wanted < size or not has_room(c, wanted):
        return NULL
    c.start = at
    c.have = 0
    while c.have < wanted:
        got = store_io().read_at(c.file, c.bytes + c.have, wanted - c.have,
                                 at % c.log.segment_size + c.have)
        if got < 0 and errno == EINTR:
            continue
        if got <= 0:                   # the file is shorter than what is published
            c.failure = errno if got < 0 else EIO
            return NULL
        c.have += got
    return c.bytes


cdef int64_t extent(Checker* c, int64_t at, bint* blank) noexcept nogil:
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


cdef int64_t right_size(Checker* c, int64_t at) noexcept nogil:
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


cdef bint leads_to(Checker* c, int64_t* at, int64_t position) noexcept nogil:
    """From record to record, to the one that covers a position; False: no record begins at *at."""
    cdef bint blank
    cdef int64_t size
    while at[0] < position:
        size = extent(c, at[0], &blank)
        if size == 0:
            return False
        if at[0] + size > position:
            break
        at[0] += size
    return True


cdef bint find_record(Checker* c, int64_t* at) noexcept nogil:
    """CK3: by the checksums, and where they lead nowhere from the segment's start on."""
    cdef int64_t position = at[0], base = position - position % c.log.segment_size
    cdef int64_t count, hint = 0
    cdef const uint8_t* entries = log_checksums(&c.log, position, &count)
    at[0] = base
    if entries != NULL:
        checksum_find(entries, count, position - base, &hint)
        if hint:
            at[0] = base + checksum_end(entries, hint - 1)
    if leads_to(c, at, position):
        return True
    at[0] = base
    return c.failure == 0 and leads_to(c, at, position)


cdef int do_job(Checker* c, CheckJob* job, int64_t* position) noexcept nogil:
    cdef int64_t at = job.position, size = 1, stop = at + CHECK_BYTES
    cdef int64_t base = at - at % c.log.segment_size
    c.file = job.file
    c.failure = 0
    c.have = 0
    c.end = min(job.end, base + c.log.segment_size)
    posix_fadvise(c.file, at - base, CHECK_BYTES, POSIX_FADV_WILLNEED)
    log_next_use(&c.log)
    log_segment(&c.log, at)            # for its checksums; what is deleted has none
    if not find_record(c, &at):
        size = 0
    while size and at < min(stop, c.end) and not load_i32_acquire(&c.stop):
        size = right_size(c, at)
        at += size
    log_view_close(&c.log)             # a segment that is deleted meanwhile is not held
    position[0] = c.failure if c.failure else at
    return CHECK_UNREADABLE if c.failure else CHECK_RIGHT if size else CHECK_DAMAGED


cdef CheckJob* next_job(Checker* c) noexcept nogil:
    """The oldest; NULL: none waits. Under the lock."""
    cdef CheckJob* found = NULL
    cdef int i
    for i in range(CHECK_PLACES):
        if c.jobs[i].state == CHECK_ASKED and (found == NULL or c.jobs[i].number < found.number):
            found = &c.jobs[i]
    return found


cdef void* run(void* argument) noexcept nogil:
    cdef Checker* c = <Checker*>argument
    cdef CheckJob* job
    cdef int64_t position = 0, one = 1
    cdef int state
    pthread_mutex_lock(&c.lock)
    while not load_i32_acquire(&c.stop):
        job = next_job(c)
        if job == NULL:
            pthread_cond_wait(&c.some, &c.lock)
            continue
        job.state = CHECK_RUNS
        pthread_mutex_unlock(&c.lock)
        state = do_job(c, job, &position)
        close(job.file)
        pthread_mutex_lock(&c.lock)
        job.state = CHECK_NONE if job.state == CHECK_LEFT else state
        job.position = position
        # a full counter (EAGAIN) means that the bell is rung already: nothing is lost
        sys_write(c.bell, &one, sizeof(one))
    pthread_mutex_unlock(&c.lock)
    return NULL


# -- the loop --------------------------------------------------------------------------------------


cdef Checker* checker_open(LogState* state, const char* folders, int64_t segment_size,
                           int bell) noexcept nogil:
    cdef Checker* c = <Checker*>calloc(1, sizeof(Checker))
    if c == NULL:
        return NULL
    c.bell = bell
    c.bytes = <uint8_t*>malloc(CHECK_READ_BYTES)
    c.capacity = CHECK_READ_BYTES
    log_view_open(&c.log, state, folders, segment_size)
    pthread_mutex_init(&c.lock, NULL)
    pthread_cond_init(&c.some, NULL)
    if c.bytes == NULL or thread_begin(&c.thread, run, c) != 0:
        free(c.bytes)
        free(c)
        return NULL
    return c


cdef void checker_close(Checker* c) noexcept nogil:
    cdef int i
    if c == NULL:
        return
    store_i32_release(&c.stop, 1)
    pthread_mutex_lock(&c.lock)
    pthread_cond_signal(&c.some)
    pthread_mutex_unlock(&c.lock)
    thread_end(c.thread)
    for i in range(CHECK_PLACES):
        if c.jobs[i].state == CHECK_ASKED:
            close(c.jobs[i].file)
    free(c.bytes)
    free(c)


cdef bint checker_ask(Checker* c, int place, int file, int64_t position, int64_t end) noexcept nogil:
    cdef CheckJob* job = &c.jobs[place]
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
        job.state = CHECK_ASKED if copy >= 0 else CHECK_UNREADABLE
        pthread_cond_signal(&c.some)
    pthread_mutex_unlock(&c.lock)
    if not is_free and copy >= 0:
        close(copy)
    return is_free


cdef int checker_take(Checker* c, int place, int64_t* position) noexcept nogil:
    cdef CheckJob* job = &c.jobs[place]
    cdef int state
    pthread_mutex_lock(&c.lock)
    state = job.state
    if state >= CHECK_RIGHT:
        position[0] = job.position
        job.state = CHECK_NONE
    pthread_mutex_unlock(&c.lock)
    return state


cdef void checker_leave(Checker* c, int place) noexcept nogil:
    cdef CheckJob* job = &c.jobs[place]
    pthread_mutex_lock(&c.lock)
    if job.state == CHECK_ASKED:
        close(job.file)
    job.state = CHECK_LEFT if job.state in (CHECK_RUNS, CHECK_LEFT) else CHECK_NONE
    pthread_mutex_unlock(&c.lock)


cdef bint checker_ready(Checker* c, int place) noexcept nogil:
    cdef int state
    pthread_mutex_lock(&c.lock)
    state = c.jobs[place].state
    pthread_mutex_unlock(&c.lock)
    return state == CHECK_NONE or state >= CHECK_RIGHT
