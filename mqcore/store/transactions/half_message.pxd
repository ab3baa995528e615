# What a half message says of itself, and what its copies are (broker.md 5.5, 5.6).
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.store.record cimport PropertyItem, RecordHead, RecordView

cdef enum:
    NOT_SAID = -3
    OWN_TIME = -2                      # -1, no number: the broker's own time (broker.md 5.4 step f)

cdef struct HalfNotes:                 # what a half message says of itself
    PropertyItem group
    PropertyItem real_topic
    PropertyItem unique_key
    int64_t real_queue_id
    int64_t check_times                # -1: never checked
    int64_t immune_ms                  # or NOT_SAID, OWN_TIME
    int64_t original                   # the half offset that it is a copy of; below 0: of none

cdef void read_notes(const RecordView* record, HalfNotes* notes) noexcept nogil
# Its properties with the number of checks (-1: none), and for an immune one (original >= 0) with its
# first offset; returns their length. They grow by at most CHANGES_LENGTH_MAX.
cdef enum:
    CHANGES_LENGTH_MAX = 160
cdef int32_t copy_properties(const RecordView* record, int64_t check_times, int64_t original,
                             uint8_t* into) noexcept nogil
# Who made and stored it; queue_id is the caller's, flag and reconsume times are not copied.
cdef void copy_head(const RecordView* record, const uint8_t* bytes, RecordHead* head) noexcept nogil
