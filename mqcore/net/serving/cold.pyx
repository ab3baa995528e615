"""The thread that reads ahead for pulls of old messages (cold.pxd)."""
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport strcpy, strlen

from mqcore.atomics cimport load_i32_acquire, store_i32_release
from mqcore.store.io cimport PAGE
from mqcore.store.log.log_folders cimport log_open
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
    int c_open "open"(const char* path, int flags)
    int posix_fadvise(int fd, long offset, long length, int advice)
    int O_RDONLY
    int O_CLOEXEC
    int POSIX_FADV_WILLNEED

cdef extern from "<unistd.h>" nogil:
    ssize_t c_pread "pread"(int fd, void* into, size_t size, long offset)
    ssize_t sys_write "write"(int fd, const void* data, size_t size)
    int c_close "close"(int fd)

cdef extern from "<sys/mman.h>" nogil:
    int mincore(void* address, size_t length, unsigned char* pages)

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <errno.h>
    #include <sys/types.h>
    #include <sys/uio.h>
    /* What can be read without waiting. */
    static ssize_t mq_read_now(int fd, void *into, size_t size, off_t offset) {
    #ifdef RWF_NOWAIT
      struct iovec part = {into, size};
      return preadv2(fd, &part, 1, offset, RWF_NOWAIT);
    #else
      errno = EOPNOTSUPP;
      return -1;
    #endif
    }
    """
    ssize_t mq_read_now(int fd, void* into, size_t size, long offset) noexcept nogil

cdef enum:
    CHUNK_PAGES = 64                  # of COLD_CHUNK_BYTES
    BELIEVED_MS = 1000
    BUFFER_BYTES = 128 << 10


cdef void read_job(ColdReader* reader, const ColdJob* job) noexcept nogil:
    cdef int64_t at = job.offset
    cdef int64_t end = job.offset + job.length
    cdef ssize_t got
    cdef int fd
    if job.base < 0:
        fd = c_open(job.path, O_RDONLY | O_CLOEXEC)
    else:
        fd = log_open(job.path, job.base, O_RDONLY | O_CLOEXEC)
    if fd < 0:                         # deleted: the pull will see that too (J1)
        return
    posix_fadvise(fd, at, job.length, POSIX_FADV_WILLNEED)
    while at < end and not load_i32_acquire(&reader.stop):
        got = c_pread(fd, reader.buffer, min(end - at, <int64_t>BUFFER_BYTES), at)
        if got < 0 and errno == EINTR:
            continue
        if got <= 0:
            break
        at += got
    c_close(fd)


cdef void* run(void* argument) noexcept nogil:
    cdef ColdReader* reader = <ColdReader*>argument
    cdef ColdJob* job
    cdef int64_t one = 1
    pthread_mutex_lock(&reader.lock)
    while not load_i32_acquire(&reader.stop):
        if reader.finished == reader.asked:
            pthread_cond_wait(&reader.some, &reader.lock)
            continue
        job = &reader.jobs[(reader.finished + 1) % COLD_JOBS_MAX]
        pthread_mutex_unlock(&reader.lock)
        read_job(reader, job)
        pthread_mutex_lock(&reader.lock)
        reader.finished += 1
        # a full counter (EAGAIN) means that the bell is rung already: nothing is lost
        sys_write(reader.bell, &one, sizeof(one))
    pthread_mutex_unlock(&reader.lock)
    return NULL


cdef ColdReader* cold_open(int bell) noexcept nogil:
    cdef ColdReader* reader = <ColdReader*>calloc(1, sizeof(ColdReader))
    if reader == NULL:
        return NULL
    reader.bell = bell
    reader.buffer = <uint8_t*>malloc(BUFFER_BYTES)
    pthread_mutex_init(&reader.lock, NULL)
    pthread_cond_init(&reader.some, NULL)
    if reader.buffer == NULL or thread_begin(&reader.thread, run, reader) != 0:
        free(reader.buffer)
        free(reader)
        return NULL
    return reader


cdef void cold_close(ColdReader* reader) noexcept nogil:
    if reader == NULL:
        return
    store_i32_release(&reader.stop, 1)
    pthread_mutex_lock(&reader.lock)
    pthread_cond_signal(&reader.some)
    pthread_mutex_unlock(&reader.lock)
    thread_end(reader.thread)
    free(reader.buffer)
    free(reader)


cdef int64_t cold_ask(ColdReader* reader, const char* path, int64_t base, int64_t offset,
                      int64_t length) noexcept nogil:
    cdef int64_t number = 0
    cdef ColdJob* job
    if strlen(path) >= COLD_PATH_MAX:
        return 0
    pthread_mutex_lock(&reader.lock)
    if reader.asked - reader.finished < COLD_JOBS_MAX:                   # J2
        number = reader.asked + 1
        job = &reader.jobs[number % COLD_JOBS_MAX]
        strcpy(job.path, path)
        job.base = base
        job.offset = offset
        job.length = length
        reader.asked = number
        pthread_cond_signal(&reader.some)
    pthread_mutex_unlock(&reader.lock)
    return number


cdef int64_t cold_finished(ColdReader* reader) noexcept nogil:
    cdef int64_t number
    pthread_mutex_lock(&reader.lock)
    number = reader.finished
    pthread_mutex_unlock(&reader.lock)
    return number


cdef bint pages_resident(const unsigned char* pages, int64_t first, int64_t end) noexcept nogil:
    while first < end:
        if not pages[first] & 1:
            return False
        first += 1
    return True


cdef bint cold_resident(ColdReader* reader, const uint8_t* at, int64_t position, int64_t size,
                        int64_t segment_size, int64_t now_ms) noexcept nogil:
    cdef unsigned char pages[CHUNK_PAGES]
    cdef int64_t base = position // segment_size * segment_size
    cdef int64_t here = position, number, start, stop
    cdef ColdChunk* chunk
    while here < position + size:
        number = here // COLD_CHUNK_BYTES
        chunk = &reader.known[number & (COLD_KNOWN_COUNT - 1)]
        start = max(number * COLD_CHUNK_BYTES, base)
        stop = min((number + 1) * COLD_CHUNK_BYTES, base + segment_size)
        if chunk.number_plus_one != number + 1 or now_ms - chunk.since_ms > BELIEVED_MS:
            if mincore(<void*>(at + (start - position)), stop - start, pages) != 0:
                return True            # the kernel does not say: then just read
            if pages_resident(pages, 0, (stop - start) // PAGE):
                chunk.number_plus_one = number + 1
                chunk.since_ms = now_ms
            elif not pages_resident(pages, (here - start) // PAGE,
                                    (min(stop, position + size) - start + PAGE - 1) // PAGE):
                return False
        here = stop
    return True


cdef int64_t cold_read(int fd, uint8_t* into, int64_t length, int64_t offset) noexcept nogil:
    cdef ssize_t got = mq_read_now(fd, into, length, offset)
    if got < 0:
        return -1 if errno == EAGAIN else -2
    return got if got == length else -1
