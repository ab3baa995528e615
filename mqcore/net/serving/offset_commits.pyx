"""Keeps the newest offset of each queue."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memcpy

from mqcore.layout cimport FORWARD_OFFSETS
from mqcore.net.serving.requests_ring cimport requests_claim, requests_publish
from mqcore.shm.ring cimport ring_finish


cdef void send_offset_commits(OffsetCommits* k) noexcept nogil:
    cdef uint8_t* place
    cdef int32_t size = k.count * <int32_t>sizeof(OffsetCommit)
    if k.count == 0:
        return
    place = requests_claim(k.requests, size)
    if place == NULL:                  # kept; the next ones replace them queue by queue
        return
    memcpy(place, k.entries, size)
    ring_finish(&k.requests.ring, FORWARD_OFFSETS, size)
    requests_publish(k.requests)
    k.count = 0


cdef void note_offset_commit(OffsetCommits* k, const uint8_t* group, int32_t group_length, const uint8_t* topic,
                      int32_t topic_length, int32_t queue_id, int64_t offset) noexcept nogil:
    cdef OffsetCommit* commit
    cdef int32_t i
    for i in range(k.count):
        commit = &k.entries[i]
        if (commit.queue_id == queue_id and commit.group_length == group_length
                and commit.topic_length == topic_length
                and memcmp(commit.group, group, group_length) == 0
                and memcmp(commit.topic, topic, topic_length) == 0):
            commit.offset = offset
            return
    if k.count == OFFSET_COMMITS_MAX:
        send_offset_commits(k)
        if k.count == OFFSET_COMMITS_MAX:
            return                     # clients commit again within five seconds
    commit = &k.entries[k.count]
    k.count += 1
    commit.offset = offset
    commit.queue_id = queue_id
    commit.group_length = <uint8_t>group_length
    commit.topic_length = <uint8_t>topic_length
    memcpy(commit.group, group, group_length)
    memcpy(commit.topic, topic, topic_length)
