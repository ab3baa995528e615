# The transient pool (store.md 6.8, 7.2): records are acknowledged as soon as they are in a circle of
# locked memory; a thread of its own, the commit thread, brings them to the segment files.
#
# The byte of log position p lies at bytes[p % capacity]. The memory is mapped twice, end to end, so
# that no record is cut in two at the circle's end.
#
#   K1  committed <= written <= committed + capacity: a byte is reused only after it is in the file.
#   K2  The appender stores `written` (release) behind whole records, and before it, where it left a
#       segment, that segment's end: the commit thread writes nothing of a tail that holds no record.
#   K3  The commit thread moves `published` after the write, over whole records only. Until then nobody
#       reads them: what was not committed when the process is killed is lost.
#   K4  A write that failed is repeated, its bytes stay in the pool; meanwhile the log refuses new ones.
#       At a stop too, until it succeeds or the process says that it gives up.
#   K5  The commit thread is the only one that opens segments in this mode and hands them to the flush
#       service (flush F1). At a stop it ends after the last commit, then lets the flush service
#       end.
#   K6  It writes when least_bytes wait, or anything if the last commit is thorough_interval_ms ago
#       (store.md 7.2), and not again within GATHER_MS: under load each write takes what has gathered.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.shm.segment cimport Shm
from mqcore.store.log.checksums cimport ChecksumFile
from mqcore.store.log.flush cimport FlushService
from mqcore.store.log.prepare cimport PrepareService

cdef enum:
    POOL_ENDS = 64
    STOP_ASKED = 1                    # when all is in the files
    STOP_NOW = 2

cdef struct SegmentEnd:
    int64_t base
    int64_t end                       # behind its blank record

cdef struct TransientPool:
    Shm* shm
    FlushService* service
    PrepareService* prepare           # NULL: nobody writes zeros ahead
    uint8_t* bytes
    int64_t capacity                  # a multiple of the page size
    int64_t segment_size
    bint locked                       # the memory is never swapped
    int64_t least_bytes
    int64_t interval_ms
    int64_t thorough_interval_ms
    char* folders                     # see log_folders.pxd
    SegmentEnd ends[POOL_ENDS]
    # the appender's words
    int64_t written                   # end of the whole records in the pool
    int64_t store_time_ms             # of the last of them; after written
    int32_t ends_put
    int32_t hurry                     # commit whatever there is, now
    uint8_t appender_pad[104]
    # the commit thread's words
    int64_t committed                 # in the file below it
    int32_t ends_taken
    int32_t failure                   # errno of the last write or open that failed, 0: none since
    int64_t commits
    int64_t failed_writes             # that were repeated
    uint8_t commit_pad[96]
    int64_t wanted                    # it sleeps: ring when `written` reaches this. Who takes it rings
    int32_t appender_waits            # for room; who takes it rings the writer's bell
    int32_t stop                      # STOP_ASKED, STOP_NOW; the process
    int bell
    int fd
    int64_t base                      # of the segment that is open; -1: none
    ChecksumFile checksums            # of that segment
    int64_t summed                    # its checksums are written below it, behind whole records

# Memory and words; a capacity that holds at least two of the longest requests. 0 or errno.
cdef int pool_open(TransientPool* pool, Shm* shm, FlushService* service, const char* folders,
                   int64_t capacity, int64_t end) noexcept nogil
cdef void pool_close(TransientPool* pool) noexcept nogil

# -- the appender ----------------------------------------------------------------------------------
cdef inline uint8_t* pool_at(TransientPool* pool, int64_t position) noexcept nogil:
    return pool.bytes + position % pool.capacity
cdef bint pool_has_room(TransientPool* pool, int64_t end) noexcept nogil        # up to position end
cdef bint pool_end_segment(TransientPool* pool, int64_t base, int64_t end) noexcept nogil
cdef void pool_put(TransientPool* pool, int64_t end, int64_t store_time_ms) noexcept nogil
cdef bint pool_drain(TransientPool* pool, int64_t wait_ms) noexcept nogil      # all committed?

# -- the commit thread -----------------------------------------------------------------------------
cdef void pool_run(TransientPool* pool) noexcept nogil                          # until stop
cdef void pool_configure(TransientPool* pool, int64_t interval_ms, int64_t least_bytes,
                         int64_t thorough_interval_ms) noexcept nogil       # while it runs
cdef void pool_stop(TransientPool* pool) noexcept nogil
cdef void pool_give_up(TransientPool* pool) noexcept nogil       # ends without what no write takes
