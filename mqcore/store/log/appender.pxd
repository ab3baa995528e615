# What the append service knows (append.pxd has its rules).
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.layout cimport PRODUCER_COUNT
from mqcore.shm.ring cimport Ring
from mqcore.shm.segment cimport Shm
from mqcore.shm.trace cimport Tracer
from mqcore.store.log.checksums cimport ChecksumFile
from mqcore.store.log.flush cimport FlushService
from mqcore.store.log.group_commit cimport GroupCommit
from mqcore.store.queue.multi_dispatch cimport MultiDispatch
from mqcore.store.log.prepare cimport PrepareService
from mqcore.store.log.replica_gate cimport Gate
from mqcore.store.log.transient_pool cimport TransientPool

cdef enum FlushMode:
    FLUSH_ASYNC = 0
    FLUSH_SYNC = 1
    FLUSH_TRANSIENT_POOL = 2

cdef enum:
    TURN_BYTES_MAX = 1 << 20          # what one turn stages before it writes
    GROWN_MAX = 1024

cdef struct UsedOffset:
    int32_t queue
    int64_t offset                    # what next_offset was before

cdef struct RawRecord:                # of raw bytes that were looked at (raw.pxd)
    int32_t start                     # from their first byte
    int32_t topic                     # the same; its length is the byte before
    int32_t queue                     # number in the queue table, below 0: none
    bint may_name                     # queues besides its own

cdef struct QueueLook:                # of a request of raw bytes (raw.pxd, A7)
    int64_t next                      # the offset that comes next in the queue, if this ...
    int64_t request                   # ... is the request

cdef struct Appender:
    Shm* shm
    FlushService* service             # NULL in sync mode
    GroupCommit* group                # NULL in the async modes
    TransientPool* pool               # NULL in the other modes; then there is neither file nor staging
    PrepareService* prepare           # NULL: nobody writes zeros ahead, or not for the appender
    MultiDispatch* multi
    Gate* gate                        # NULL: results wait for no others (replica_gate.pxd)
    int flush_mode
    bint follows_only                 # raw A10
    int64_t queue_gap_max             # raw A7: offsets that raw bytes may leave out in a queue
    QueueLook* looks                  # by queue number
    int64_t look                      # counts requests of raw bytes
    bint shows_unflushed              # sync mode: append A2 is as in stock
    int64_t segment_size
    int fd                            # of the segment that is written, -1: none yet
    int folder_fd                     # sync mode: its folder until the name is on disk, else -1
    ChecksumFile checksums            # of that segment
    int64_t base                      # where that segment starts
    int64_t position                  # end of what is in the file
    uint8_t* staging
    int64_t staging_capacity
    int64_t staged                    # bytes that are to be written at position
    const uint8_t* in_ring            # where they lie when they are one raw request as it came, else NULL
    RawRecord* raw_records
    int64_t pool_wanted               # transient-pool: where a request ends that has no room, or 0 ...
    int64_t pool_full_ms              # ... and since when (steady clock)
    int64_t last_store_time_ms        # never back; what new records get
    int64_t stored_ms                 # store time of the last staged record
    int64_t probe_ms                  # when a disk that refused is looked at again
    int64_t unwiped                   # behind position, up to here, a failed write may have left bytes
    int64_t failed_writes             # that were tried again
    int failed_write                  # errno of the last of them
    UsedOffset* used
    int32_t used_count
    int32_t used_capacity
    # queues that grew since followers were told, some more than once (dispatch D6)
    int32_t grown[GROWN_MAX]
    int32_t grown_count               # up to GROWN_MAX; beyond that a reader counts as waiting
    int64_t wall_ms                   # the clocks as the turn began
    int64_t steady_us
    int64_t steady_ms
    int64_t waiting                   # results of this turn whose request waits for its flush
    int producers
    int producer[PRODUCER_COUNT]      # number of each producer that there is
    Ring appends[PRODUCER_COUNT]
    Ring results[PRODUCER_COUNT]
    int64_t result_kept[PRODUCER_COUNT]     # results below it belong to records that are in the file
    int32_t last_status[PRODUCER_COUNT]     # of each producer's last request
    int32_t result_wanted[PRODUCER_COUNT]   # the length of a result that found no room; 0: none
    int failure                       # errno of the last write, sync or file that failed
    int64_t appends_count
    int64_t bytes_count
    int64_t batches_count
    int64_t flushes_count
    Tracer tracer
    char* folders                     # see log_folders.pxd
