# One look at a queue for a pull: entries and records that match, and the answer that carries them.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.net.server cimport Asker, Connection, Match, Server

cdef struct Found:                    # what one look at a queue gave
    int32_t queue                     # number in the queue table
    int32_t count
    int64_t bytes
    int64_t examined                  # entries looked at
    bint gone                         # the last one that is left out was deleted already
    bint unreadable                   # a file is there and cannot be read now: nothing is skipped
    int64_t damaged                   # the walk ended at a message that is not whole, there; -1: no
    bint far                          # the last entry lies far behind the log's end (broker.md 6.2)
    int64_t cold_job                  # nothing was found yet, and this job has to be finished first
    const uint8_t* records[1024]
    int32_t sizes[1024]

cdef enum PullCodes:
    CODE_FOUND = 0
    CODE_SYSTEM_ERROR = 1
    CODE_NOT_SUPPORTED = 3
    CODE_NOT_FOUND = 19
    CODE_RETRY_IMMEDIATELY = 20
    CODE_OFFSET_MOVED = 21

# Walk the queue from `offset` on, up to `end`, until the batch is full or enough was looked at.
# patient: what is not in memory is asked for (cold.pxd), and the walk ends before it.
cdef void scan(Server* s, int32_t queue, int64_t offset, int64_t end, int32_t count_max,
               const Match* match, bint patient, Found* found) noexcept nogil
# Why a pull that has found nothing is answered with an error: `unreadable` or `damaged` is set.
cdef const char* scan_trouble(const Found* found) noexcept nogil
cdef void answer_pull(Server* s, Connection* c, const Asker* asker, int32_t code, const char* remark,
                      int64_t next_offset, int64_t min_offset, int64_t max_offset,
                      const Found* found) noexcept nogil
