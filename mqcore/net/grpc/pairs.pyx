"""Pairs of group and topic, found by their names."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from mqcore.layout cimport TOPIC_LENGTH_MAX
from mqcore.shm.tables cimport name_hash


cdef inline uint64_t pair_hash(const uint8_t* group, int32_t group_length, uint64_t topic) noexcept nogil:
    return name_hash(group, group_length, topic)


cdef Pair* pair_find(const Pairs* pairs, const uint8_t* group, int32_t group_length,
                     const uint8_t* topic, int32_t topic_length) noexcept nogil:
    cdef uint64_t hash = pair_hash(group, group_length, name_hash(topic, topic_length, 0))
    cdef Pair* pair = pairs.of_group[hash & (PAIR_BUCKETS - 1)]
    while pair != NULL and not (
            pair.group_length == group_length and pair.topic_length == topic_length
            and memcmp(pair.group, group, group_length) == 0
            and memcmp(pair.topic, topic, topic_length) == 0):
        pair = pair.next_of_group
    return pair


cdef Pair* pair_open(Pairs* pairs, const uint8_t* group, int32_t group_length,
                     const uint8_t* topic, int32_t topic_length) noexcept nogil:
    cdef Pair* pair = pair_find(pairs, group, group_length, topic, topic_length)
    cdef uint64_t hash
    if pair != NULL or pairs.count == PAIRS_MAX or group_length >= GROUP_BYTES_MAX or (
            topic_length > TOPIC_LENGTH_MAX):
        return pair
    pair = <Pair*>calloc(1, sizeof(Pair))
    if pair == NULL:
        return NULL
    pairs.count += 1
    while pairs.of_number[pair.number] != NULL:
        pair.number += 1
    pairs.of_number[pair.number] = pair
    memset(pair.told, 0xFF, sizeof(pair.told))             # -1
    memcpy(pair.group, group, group_length)
    pair.group_length = group_length
    memcpy(pair.topic, topic, topic_length)
    pair.topic_length = topic_length
    pair.topic_hash = name_hash(topic, topic_length, 0)
    hash = pair_hash(group, group_length, pair.topic_hash)
    pair.next_of_group = pairs.of_group[hash & (PAIR_BUCKETS - 1)]
    pairs.of_group[hash & (PAIR_BUCKETS - 1)] = pair
    pair.next_of_topic = pairs.of_topic[pair.topic_hash & (PAIR_BUCKETS - 1)]
    pairs.of_topic[pair.topic_hash & (PAIR_BUCKETS - 1)] = pair
    return pair


cdef void pair_close(Pairs* pairs, Pair* pair) noexcept nogil:
    cdef uint64_t hash = pair_hash(pair.group, pair.group_length, pair.topic_hash)
    cdef Pair** place = &pairs.of_group[hash & (PAIR_BUCKETS - 1)]
    while place[0] != pair:
        place = &place[0].next_of_group
    place[0] = pair.next_of_group
    place = &pairs.of_topic[pair.topic_hash & (PAIR_BUCKETS - 1)]
    while place[0] != pair:
        place = &place[0].next_of_topic
    place[0] = pair.next_of_topic
    pairs.of_number[pair.number] = NULL
    pairs.count -= 1
    free(pair)


cdef void pair_wake(Pairs* pairs, Pair* pair) noexcept nogil:
    if pair.woken or pair.first == NULL:
        return
    pair.woken = True
    pair.next_woken = pairs.woken
    pairs.woken = pair


cdef void topic_woken(Pairs* pairs, const uint8_t* topic, int32_t length) noexcept nogil:
    cdef Pair* pair = pairs.of_topic[name_hash(topic, length, 0) & (PAIR_BUCKETS - 1)]
    while pair != NULL:
        if pair.topic_length == length and memcmp(pair.topic, topic, length) == 0:
            pair_wake(pairs, pair)
        pair = pair.next_of_topic


cdef void pair_awaits_disk(Pairs* pairs, Pair* pair, int64_t job) noexcept nogil:
    pair.disk_job = job
    pair.disk_rounds += 1
    pairs.disk_job = max(pairs.disk_job, job)


cdef void pairs_read(Pairs* pairs, int64_t done) noexcept nogil:
    cdef int32_t i
    cdef Pair* pair
    if done == pairs.disk_done:
        return
    pairs.disk_done = done
    for i in range(PAIR_BUCKETS):
        pair = pairs.of_group[i]
        while pair != NULL:
            if 0 < pair.disk_job <= done:
                pair.disk_job = 0
                pair_wake(pairs, pair)
                pairs.next_ms = 0
            pair = pair.next_of_group


cdef bint waiting_add(Pair* pair, Call* call, uint64_t connection, int64_t until_ms) noexcept nogil:
    cdef HeldReceive* one
    if pair.waiting == WAITING_MAX:                                      # GP3
        return False
    one = <HeldReceive*>malloc(sizeof(HeldReceive))
    if one == NULL:
        return False
    one.call = call
    one.connection = connection
    one.pair = pair
    one.until_ms = until_ms
    one.before = pair.last
    one.after = NULL
    if pair.last != NULL:
        pair.last.after = one
    else:
        pair.first = one
    pair.last = one
    pair.waiting += 1
    call.served = one
    return True


cdef void waiting_end(Call* call) noexcept nogil:
    cdef HeldReceive* one = <HeldReceive*>call.served
    if one == NULL:
        return
    if one.before != NULL:
        one.before.after = one.after
    else:
        one.pair.first = one.after
    if one.after != NULL:
        one.after.before = one.before
    else:
        one.pair.last = one.before
    one.pair.waiting -= 1
    call.served = NULL
    free(one)
