# Takes reads of the disk off the loop: a thread that brings parts of files into the page cache.
#
#   J1  The loop asks by path and range, never by address: a file that is deleted meanwhile is a
#       failed open for the thread, and no fault.
#   J2  At most COLD_JOBS_MAX jobs wait; a further one is refused, and the loop reads by itself.
#   J3  Jobs are finished in the order of their numbers; after each the thread rings the loop's bell.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.threads cimport pthread_cond_t, pthread_mutex_t, pthread_t

cdef enum:
    COLD_JOBS_MAX = 256
    COLD_PATH_MAX = 4096
    COLD_KNOWN_COUNT = 1024            # a power of two
    COLD_READ_BYTES = 512 << 10        # one job
    COLD_CHUNK_BYTES = 256 << 10
    COLD_BEHIND_BYTES = 16 << 20       # nearer to the end, this run's records are in memory

cdef struct ColdJob:
    int64_t base                       # of a commit log segment in the folders `path`; -1: a file
    int64_t offset
    int64_t length
    char path[COLD_PATH_MAX]

cdef struct ColdChunk:                 # COLD_CHUNK_BYTES of the log that were found in memory
    int64_t number_plus_one
    int64_t since_ms                   # steady clock

cdef struct ColdReader:
    pthread_t thread
    pthread_mutex_t lock
    pthread_cond_t some
    int bell
    int32_t stop                       # the loop
    int64_t asked                      # job n is in place n % COLD_JOBS_MAX; under the lock
    int64_t finished                   # under the lock
    uint8_t* buffer                    # the thread's
    ColdChunk known[COLD_KNOWN_COUNT]  # the loop's; by number
    ColdJob jobs[COLD_JOBS_MAX]

cdef ColdReader* cold_open(int bell) noexcept nogil                     # NULL: no memory or no thread
cdef void cold_close(ColdReader* reader) noexcept nogil
# Read `length` bytes at `offset` of the file `path`, or of the segment `base` in the folders `path`
# (log_folders.pxd); the job's number (from 1 on), or 0 (J2).
cdef int64_t cold_ask(ColdReader* reader, const char* path, int64_t base, int64_t offset,
                      int64_t length) noexcept nogil
cdef int64_t cold_finished(ColdReader* reader) noexcept nogil           # number of the last one done
# Whether `size` bytes at log position `position`, mapped at `at`, are in memory. The answer
# is believed for a second.
cdef bint cold_resident(ColdReader* reader, const uint8_t* at, int64_t position, int64_t size,
                        int64_t segment_size, int64_t now_ms) noexcept nogil
# Bytes at `offset` of a descriptor that can be read without the disk: how many, or -1: not all of
# them. -2: the kernel does not say.
cdef int64_t cold_read(int fd, uint8_t* into, int64_t length, int64_t offset) noexcept nogil
