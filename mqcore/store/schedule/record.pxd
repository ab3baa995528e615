# A delayed record, and the record that delivers it (store.md 2.12): the same message in the topic
# and the queue that its REAL_TOPIC and REAL_QID name, with all properties as they are.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.store.record cimport RecordView


cdef struct RealPlace:             # what a delayed record's properties say
    const uint8_t* topic           # inside the record's properties
    int32_t topic_length
    int32_t queue_id
    int32_t level                  # DELAY; 0: none

cdef enum PlaceResult:
    PLACE_KNOWN = 0
    PLACE_MISSING = 1              # no REAL_TOPIC or REAL_QID, or one that no record can have
    PLACE_HALF = 2                 # the half topic: such a message is dropped (broker.md 4.4)

cdef int real_place(const RecordView* delayed, RealPlace* place) noexcept nogil     # PlaceResult
cdef int32_t delivery_size(const RecordView* delayed, const RealPlace* place) noexcept nogil
# The delivering record into `into`, delivery_size bytes; it is stored at now_ms at the earliest,
# the rest of what the writer fills in is not set. Returns where its topic begins, from its start.
cdef int32_t delivery_write(const uint8_t* at, const RecordView* delayed, const RealPlace* place,
                            int64_t now_ms, uint8_t* into) noexcept nogil
# Whether two records carry one message: all is equal but place, topic, store time, and what the
# writer gives and takes for multi-dispatch.
cdef bint same_message(const uint8_t* one_at, const RecordView* one, const uint8_t* other_at,
                       const RecordView* other) noexcept nogil
