# The consume queues of a store at rest, checked against the records that a walk over the log meets.
#
#   VQ1  Every record that belongs in a queue asks for its entry (queue_expect): it is there with
#        the record's position, size and tag code, or it is missing, or it is wrong.
#   VQ2  An entry has one position, so each matched record has an entry of its own: a queue whose
#        live entries are as many as its matched records has no other entries (queue_scan).
#   VQ3  A topic that was removed and made again starts its numbers anew: a record whose entry
#        belongs to a later record of the same number is superseded, not missing. So is one without
#        an entry whose queue's life a marker ends (lives QL1), whatever comes behind it.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from mqcore.layout cimport DELAY_LEVEL_MAX, TOPIC_LENGTH_MAX
from mqcore.store.log.view cimport LOG_PATH_MAX
from mqcore.store.record cimport RecordView
from mqcore.store.verify.findings cimport Findings
from mqcore.store.verify.window cimport LogFiles, LogWindow

cdef enum:
    QUEUES_MAX = 1 << 20

cdef struct QueueCheck:
    uint8_t topic[TOPIC_LENGTH_MAX + 1]
    int32_t topic_length
    int32_t queue_id
    uint64_t hash
    bint on_disk
    int64_t first                     # queue offset of the first entry of its first file
    int64_t limit                     # behind its last file
    int64_t ext_size                  # bytes of an ext file, 0: none
    uint8_t* entries                  # a window: entries [entries_first, + entries_count)
    int64_t entries_first
    int32_t entries_count
    # from the walk over the log
    int64_t records
    int64_t bytes
    int64_t body_bytes
    int64_t first_time_ms
    int64_t last_time_ms
    int64_t next_offset               # that the next record should have, -1: none seen
    int64_t last_position             # of the record before, in the log
    int64_t matched
    int64_t missing                   # records without an entry
    int64_t missing_first             # the lowest of their queue offsets
    int64_t superseded
    # from the scan over its files
    int64_t end                       # behind its last entry
    int64_t first_live                # first entry that points into the log, -1: none
    int64_t live
    int64_t expired                   # entries of records that are gone
    int64_t fillers
    int64_t holes
    int64_t beyond                    # entries at or behind the log's end

cdef struct QueueSet:
    QueueCheck* queues
    int32_t count
    int32_t capacity
    int32_t* index                    # open addressing, queue number + 1
    int32_t index_mask
    int64_t file_entries              # entries of a file
    Findings* findings
    LogWindow peek                    # for records out of turn
    int64_t log_first
    int64_t delay_ms[DELAY_LEVEL_MAX] # by level, from 1
    int32_t delay_levels
    int64_t plain_delays              # delay entries that carry the plain tag code (store.md 9.1)
    char folder[LOG_PATH_MAX]
    char ext_folder[LOG_PATH_MAX]

cdef struct Expected:                 # what the dispatcher derives from a record
    int64_t tag_code
    int64_t delivery_ms               # of a delayed record, else -1

cdef int queues_open(QueueSet* s, const LogFiles* files, Findings* findings, const char* folder,
                     const char* ext_folder, int64_t file_entries) noexcept nogil
cdef void queues_close(QueueSet* s) noexcept nogil
cdef int32_t queue_number(QueueSet* s, const uint8_t* topic, int32_t length, int32_t queue_id,
                          bint add) noexcept nogil                        # -1: none, -2: too many
cdef void queue_expect(QueueSet* s, int32_t number, int64_t offset, const RecordView* record,
                       const Expected* expected) noexcept nogil
cdef void queue_scan(QueueSet* s, int32_t number, int64_t log_end) noexcept nogil
# Whether the record at a position has an entry that says so: it was stored for good.
cdef bint queue_vouches(QueueSet* s, const RecordView* record) noexcept nogil
