# The flush service of the async modes: one thread of the writer process that brings the commit log
# to disk behind the appends.
#
#   F1  The appender hands over descriptors for each segment it begins and for its checksums, in order;
#       the service closes them. The checksums reach the disk before the segment (checksums.pxd, CS3).
#   F2  `flushed` only follows a successful sync of every byte below it. A failed sync is final:
#       the log refuses writes from then on, and nothing is retried (store.md 7).
#   F3  Store times never run ahead of the positions they belong to: who publishes stores `published`
#       first, who flushes reads the time first. A checkpoint may say too early a time, never too late.
#   F4  It also makes the segment behind the one that was begun last, so that the appender finds it made
#       (store.md 6.3). One that is never used goes at a clean stop, or in the next recovery.
from libc.stdint cimport int32_t, int64_t

from mqcore.layout cimport Latency, LogState

cdef enum:
    HANDOVER_PLACES = 16

cdef struct Handover:
    int fd
    int checksums_fd
    int64_t base

cdef struct FlushService:
    LogState* state
    Latency* times                    # of its syncs
    int64_t segment_size
    int64_t interval_ms
    int64_t least_bytes
    int64_t thorough_interval_ms
    char* folders                     # see log_folders.pxd
    int64_t made                      # start of the last segment that was made ahead. The service
    Handover segments[HANDOVER_PLACES]
    int32_t handed                    # the appender
    int32_t consumed                     # the service
    int32_t hurry                     # no room for a segment: sync now. Who hands over
    int32_t stop                      # the process; then it writes to the bell
    int bell                          # eventfd that ends a sleep
    int64_t flushes
    int32_t failure                   # errno of the sync that failed

# Why writes are refused, in the one order that a failed flush survives (F2). service: NULL in sync mode
cdef void refusal_set(LogState* state, FlushService* service, int32_t refusal) noexcept nogil
cdef void flush_service_open(FlushService* service, LogState* state, Latency* times,
                             const char* folders, int64_t segment_size, int64_t interval_ms, int64_t least_bytes,
                             int64_t thorough_interval_ms) noexcept nogil
# Copies of both descriptors are handed over. 0, EAGAIN: no room, the disk is far behind; or errno.
cdef int flush_hand_over(FlushService* service, int fd, int checksums_fd,
                         int64_t base) noexcept nogil
cdef void flush_run(FlushService* service) noexcept nogil           # until stop; then a last sync
cdef void flush_configure(FlushService* service, int64_t interval_ms, int64_t least_bytes,
                          int64_t thorough_interval_ms) noexcept nogil      # while it runs
cdef void flush_stop(FlushService* service) noexcept nogil
cdef void flush_service_close(FlushService* service) noexcept nogil  # nothing of it runs any more
