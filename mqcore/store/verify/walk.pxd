# Verification's walk over a commit log at rest: every record read and checked, and held against the
# consume queues (queues.pxd) and the key index (index.pxd) as it goes by.
#
#   VL1  Where a record cannot be read, the walk looks for the next one that says where it lies, is
#        whole, and is alive: not older than the last one before, or named by its queue. Bytes left
#        behind a cut by a broker that wipes nothing are neither. In the boot of the machine that wrote
#        the log, where only we did, one that is as its checksum says is enough: all that was written
#        is there, and only the last can be torn (recovery/start.pyx, judge_same_boot).
#   VL2  Without such a record the log ends there.
#   VL3  Behind a damaged stretch, or one that was repaired (mqcore/store/repair/records.py),
#        numbers may have gaps.
from libc.stdint cimport int32_t, int64_t

from mqcore.store.verify.findings cimport Findings
from mqcore.store.verify.index cimport KeySet
from mqcore.store.verify.queues cimport QueueSet
from mqcore.store.verify.window cimport LogFiles, LogWindow

cdef struct Walk:
    LogFiles files
    LogWindow window
    LogWindow look                    # ahead, for where reading can go on
    Findings findings
    QueueSet queues
    KeySet keys
    bint keys_checked
    bint same_boot                    # that wrote the log, and only we did
    bint gaps_wanted                  # found in damaged logs too: for a repair
    bint damaged                      # some record could not be read: numbers may have gaps
    int64_t position
    int64_t end                       # behind the last whole record, -1: not there yet
    int end_result                    # ParseResult of what lies there
    int64_t records
    int64_t bytes
    int64_t blanks
    int64_t unqueued                  # prepared and rolled back: they have no entry
    int64_t last_time_ms
    int64_t first_time_ms
    int64_t time_steps_back
    int64_t unknown_side_queues       # multi-dispatch names without a queue

cdef void walk(Walk* w, int64_t bytes_max) noexcept nogil       # until w.end >= 0, or that far
# Where reading goes on behind a position without a record (VL1), or -1: the log ends there.
cdef int64_t walk_further(Walk* w, int64_t position) noexcept nogil
