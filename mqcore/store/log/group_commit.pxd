# The group commit of sync mode: one sync for all who wait together, in the writer's own thread, and a
# watcher thread that answers for it when the disk takes too long (store.md 7.2, 7.3).
#
#   G1  Who answers the results of a sync: the writer's thread when it ends in time, else the watcher.
#       `phase` decides, by compare-and-swap: SYNCING -> IDLE is the writer's move, SYNCING -> TAKEN the
#       watcher's; the number of the sync in it keeps a late swap from hitting the next one.
#   G2  From TAKEN to ANSWERED the result rings are the watcher's. The writer's thread is inside
#       group_sync then, and leaves it only after it has seen ANSWERED.
#   G3  The watcher publishes results, those who wait marked PUT_FLUSH_TIMEOUT (what waits for others from
#       an earlier sync: as replica_gate G8 says), and nothing else: no position moves before the
#       sync has ended well, and what it failed for is not taken back.
#   G4  The watcher looks when a deadline may have come, never in between: a sync that begins after a
#       look has its deadline at least a whole time-out later.
from libc.stdint cimport int32_t, int64_t

from mqcore.shm.ring cimport Ring
from mqcore.shm.segment cimport Shm
from mqcore.store.log.checksums cimport ChecksumFile
from mqcore.store.log.replica_gate cimport Gate

cdef struct GroupCommit:
    Shm* shm
    Ring* results                     # of the appender, one for each producer that there is
    const int* producer               # their numbers
    Gate* gate                        # NULL: results wait for no others (replica_gate.pxd, G8)
    int producers
    int64_t timeout_ms
    int64_t phase                     # number of the sync, and in the last two bits its phase
    int64_t deadline_ms               # steady clock; before SYNCING. The writer's thread
    int64_t synced_us                 # steady clock: the end of the last sync. The writer's thread
    int64_t timeouts                  # answers that said so. The watcher
    int32_t stop                      # the process; then it rings the bell
    int bell

cdef void group_commit_open(GroupCommit* group, Shm* shm, Ring* results, const int* producer,
                            int producers, int64_t timeout_ms) noexcept nogil
cdef void group_commit_close(GroupCommit* group) noexcept nogil        # its watcher has ended
# checksums: those of the segment `fd`, on the disk with it (checksums.pxd, CS4); NULL: none. 0 or errno.
cdef int group_sync(GroupCommit* group, int fd, ChecksumFile* checksums) noexcept nogil
cdef void group_watch(GroupCommit* group) noexcept nogil             # the watcher's life, until stop
cdef void group_configure(GroupCommit* group, int64_t timeout_ms) noexcept nogil   # while it runs
cdef void group_stop(GroupCommit* group) noexcept nogil
