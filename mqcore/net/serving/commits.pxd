# Offsets that came with pulls, until they go to the coordinator, many in one record.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.layout cimport OffsetCommit
from mqcore.net.serving.requests_ring cimport RequestsRing

cdef enum:
    COMMITS_MAX = 256

cdef struct Commits:
    OffsetCommit[COMMITS_MAX] entries
    int32_t count
    RequestsRing* requests

cdef void commits_send(Commits* k) noexcept nogil                      # if there is room
cdef void note_commit(Commits* k, const uint8_t* group, int32_t group_length, const uint8_t* topic,
                      int32_t topic_length, int32_t queue_id, int64_t offset) noexcept nogil
