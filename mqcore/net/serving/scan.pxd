# One look at a queue for a pull: entries and records that match, and the answer that carries them.
#
#   N10  One look at a queue ends when its allowance is used up, after one entry at least. The
#        messages found so far are the answer. A pull that found nothing is answered with the next
#        offset (code 20); a held pull continues from its cursor when its connection's turn comes
#        again.
#   N18  An answer brings one message, or messages within the limits for what is in memory, for what
#        is on the disk, or for replays; these only while memory is not short (memory N13).
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.layout cimport Latency
from mqcore.net.requests cimport Asker
from mqcore.net.serving.cold cimport ColdReader
from mqcore.net.serving.wanted cimport Match, Wants
from mqcore.net.transport.transport cimport Connection, Transport
from mqcore.shm.pull_counts cimport PullCounts
from mqcore.shm.segment cimport Shm
from mqcore.shm.trace cimport Tracer
from mqcore.store.log.view cimport LogView
from mqcore.store.queue.consume_queue cimport QueueFiles
from mqcore.store.queue.extension cimport QueueExtension

cdef enum:
    PULL_RANGES_MAX = 1024             # messages of one answer
    SCAN_ENTRIES_MAX = 1024            # queue entries that are read at once
    DAMAGED_MAX = 64

cdef struct StoreReader:                   # what this process reads of the store
    Transport* transport
    Shm* shm
    Wants* wants
    LogView log
    QueueFiles queues
    QueueExtension extension
    ColdReader* cold_reader            # NULL: the loop reads by itself
    PullCounts pull_counts
    Latency* pull_times
    Latency* delivery_times
    Tracer* tracer
    int64_t damaged[DAMAGED_MAX]       # positions of messages that are not handed out, each once
    int32_t damaged_count
    bint damaged_more                  # than there is room for
    uint8_t* entries                   # SCAN_ENTRIES_MAX consume queue entries
    int64_t memory_bytes               # records nearer to the log's end count as in memory
    int32_t memory_count_max
    int32_t memory_bytes_max
    int32_t disk_count_max
    int32_t disk_bytes_max
    int32_t replay_count_max
    int32_t replay_bytes_max

cdef struct Portion:                   # what one answer may bring
    int32_t count_max                  # at most PULL_RANGES_MAX
    bint replays                       # by the limits for replays (N18)

cdef struct Puller:                    # how a pull is answered
    Asker asker
    int32_t broker_near                # where to read from next ...
    int32_t broker_far                 # ... and when what was read is far behind the log's end
    int32_t group                      # number in the group table, -1: it has none
    int64_t since_us                   # steady clock: when it was taken up, from the beginning or anew
    bint waited                        # anew: it waited for messages

cdef struct Found:                    # what one look at a queue gave
    int32_t queue                     # number in the queue table
    int32_t count
    int64_t bytes
    int64_t examined                  # entries looked at
    bint gone                         # the last one that is left out was deleted already
    bint unreadable                   # a file cannot be read now, or is missing: nothing is skipped
    int64_t damaged                   # the walk ended at a message that is not whole, there; -1: no
    bint far                          # the last entry lies far behind the log's end (broker.md 6.2)
    int64_t cold_job                  # nothing was found yet, and this job has to be finished first
    const uint8_t* records[PULL_RANGES_MAX]
    int32_t sizes[PULL_RANGES_MAX]

# Walk the queue from `offset` on, up to `end`, until the batch is full or enough was looked at.
# patient: what is not in memory is asked for (cold.pxd), and the walk ends before it.
cdef void scan(StoreReader* reader, int32_t queue, int64_t offset, int64_t end, const Portion* portion,
               const Match* match, bint patient, Found* found) noexcept nogil
# Why a pull that has found nothing is answered with an error: `unreadable` or `damaged` is set.
cdef const char* scan_trouble(const Found* found) noexcept nogil
cdef void answer_pull(StoreReader* reader, Connection* c, const Puller* puller, int32_t code,
                      const char* remark, int64_t next_offset, int64_t min_offset,
                      int64_t max_offset, const Found* found) noexcept nogil
