# Where the lives of queues begin, by the log, so that each copy of a log has the same queues.
#
#   QL1  A marker is a record of LIVES_TOPIC with LIVES_SEAL as its prepared position: only a broker
#       can store such a record. Its body is a list of queues, `topic@queueId` and a newline each, whose
#       lives end there: their records below the marker get no entry.
#   QL2  A record with queue offset 0 whose queue has had records ends the life of that queue, too, just
#       before itself. A stock master says nothing else of a removal.
#   QL3  The writer ends lives when the record is in the file, and before a later record takes an offset:
#       where it appends, and where it follows. A recovery does the same as it walks over the log.
#   QL4  A life that began at or behind a record is not ended by it: a record may be read twice.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.layout cimport QueueEntry
from mqcore.shm.segment cimport Shm
from mqcore.store.record cimport RecordView

cdef struct MarkedQueue:               # of one line of a marker
    const uint8_t* topic
    int32_t topic_length
    int32_t queue_id                   # -1: the line names no queue

cdef bint is_lives_topic(const uint8_t* topic, int32_t length) noexcept nogil
# A record whose topic is LIVES_TOPIC.
cdef bint is_marker(const RecordView* record) noexcept nogil
# The queue that the marker's line at `at` names, up to `end`, where the body ends; returns where the
# next line begins.
cdef const uint8_t* marker_line(const uint8_t* at, const uint8_t* end,
                                MarkedQueue* found) noexcept nogil
# Whether a life of the queue ended at `position` (QL4). is_running: the dispatcher is to delete its
# files (retention.pyx, Q3), and hears by lives_tell.
cdef bint life_end(QueueEntry* queue, int64_t position, bint is_running) noexcept nogil
# How many lives a marker has ended. adds: queues without a place in the table get one.
cdef int32_t lives_end(Shm* shm, const RecordView* marker, bint is_running, bint adds) noexcept nogil
cdef void lives_tell(Shm* shm) noexcept nogil
