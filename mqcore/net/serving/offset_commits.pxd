# Offsets that came with pulls, until they go to the coordinator, many in one record.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.layout cimport OffsetCommit
from mqcore.net.serving.requests_ring cimport RequestsRing

cdef enum:
    OFFSET_COMMITS_MAX = 256

cdef struct OffsetCommits:
    OffsetCommit[OFFSET_COMMITS_MAX] entries
    int32_t count
    RequestsRing* requests

cdef void send_offset_commits(OffsetCommits* k) noexcept nogil                      # if there is room
cdef void note_offset_commit(OffsetCommits* k, const uint8_t* group, int32_t group_length, const uint8_t* topic,
                      int32_t topic_length, int32_t queue_id, int64_t offset) noexcept nogil
