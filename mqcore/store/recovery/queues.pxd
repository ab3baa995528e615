# The consume queues at a start: what their files hold, what the last run left there, what has to go.
#
#   Y1  A queue is `as known` when every file from its first to its last is there, whole and not
#       changed since the last clean stop, the last entry is an entry, and zeros follow it.
#   Y2  Files of a queue are contiguous and all but the last are full; what lies behind a gap goes.
#   Y3  Nothing is believed of a queue's files that the log cannot give again: to delete them is safe.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.layout cimport QueueEntry
from mqcore.shm.segment cimport Segment, Shm
from mqcore.store.queue.consume_queue cimport QueueItem
from mqcore.store.log.view cimport LogView

cdef enum:
    CHUNK_ENTRIES = 1024              # read at a time

cdef struct FoundQueue:               # by queue number
    int64_t known_min
    int64_t known_max                 # as the last run left it; 0: it had no entries, or not known
    int64_t first_file                # queue offset at which the files begin, -1: there are none
    int64_t first_position            # log position of entry min_offset, -1: none
    int64_t last_end                  # end of the last entry's record, 0: no entry
    bint known                        # Y1: nothing more is to be looked at
    bint tidy                         # files in order, and nothing behind the last entry
    bint late                         # the log has records before its first entry
    bint moved                # it is as known, but folders above it have changed since (as_left Y4)
    bint doubted                # its files are younger than the stop that was believed (as_left Y4)
    bint cut                          # entries were there that dispatch is going to write again


cdef class QueueRecovery:
    cdef Segment segment
    cdef Shm* shm
    cdef LogView* log                 # the recovery's
    cdef readonly str folder
    cdef bytes folder_path
    cdef const char* folder_text      # of folder_path
    cdef int64_t file_entries
    cdef int64_t limit                # of the log, in bytes: entries that point behind it go
    cdef int64_t log_end              # no record lies behind it
    cdef int64_t beyond               # where an entry points behind all segments, 0: none was met
    cdef int64_t known_first           # as the last run left the log
    cdef int64_t known_end            # of the log when the last run left the queues so, 0: not known
    cdef FoundQueue* found

    cdef void use_log(self, LogView* log)
    cdef QueueEntry* enter(self, bytes topic, int32_t queue_id) except NULL
    cdef bint is_full(self, str path) except -1
    cdef int64_t read_entries(self, const char* path, int64_t first, int64_t count,
                              uint8_t* entries) noexcept nogil
    cdef int64_t search_end(self, int fd, QueueItem* last, bint* zeros_behind) noexcept nogil
    cdef bint entry_is_right(self, int32_t number, int64_t offset,
                             const QueueItem* item) noexcept nogil
