"""Keeps requests that the coordinator is asked about, and who must not pass them (N7)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from mqcore.layout cimport TOPIC_LENGTH_MAX
from mqcore.net.server cimport (
    ASKED_BUCKETS,
    ORPHAN_LIFE_MS,
    PARKED_BYTES_MAX,
    PARKED_COUNT_MAX,
    PARKED_LIFE_MS,
    Connection,
    ParkedRequest,
    Server,
    connection_find,
)
from mqcore.shm.tables cimport name_hash
from mqcore.wire.header cimport SEND_TOPIC, Header, text_copy


cdef int32_t bucket_of(const Header* header, int park) noexcept nogil:
    """Where later sends look whether this one is still asked about (N7); -1: it is no send."""
    cdef uint8_t topic[TOPIC_LENGTH_MAX]
    cdef int32_t length
    if park == PARK_REQUEST:
        return -1
    length = text_copy(&header.fields[SEND_TOPIC], topic, TOPIC_LENGTH_MAX)
    if park == PARK_UNREAD or length < 1:
        return ASKED_BUCKETS
    return <int32_t>(name_hash(topic, length, 0) % ASKED_BUCKETS)


cdef inline int64_t bytes_max(const Server* s) noexcept nogil:
    return min(<int64_t>PARKED_BYTES_MAX, s.memory_max // 4)


cdef bint may_park(const Server* s, const Connection* c, int32_t length) noexcept nogil:
    return c.parked_count == 0 or (
        c.parked_count < (PARKED_COUNT_MAX - s.parked_count) // 2
        and c.parked_bytes + length <= (bytes_max(s) - s.parked_bytes) // 2)


cdef ParkedRequest* park_frame(Server* s, Connection* c, const uint8_t* frame, int32_t length,
                               int32_t header_length, const Header* header,
                               int park) noexcept nogil:
    cdef ParkedRequest* place
    cdef int32_t i
    if s.parked_count == PARKED_COUNT_MAX or s.parked_bytes + length > bytes_max(s):
        return NULL
    for i in range(PARKED_COUNT_MAX):
        s.parked_next = (s.parked_next + 1) & (PARKED_COUNT_MAX - 1)
        if s.parked[s.parked_next].id == 0:
            break
    place = &s.parked[s.parked_next]
    place.frame = <uint8_t*>malloc(length)
    if place.frame == NULL:
        return NULL
    memcpy(place.frame, frame, length)
    place.id = s.parked_next + 1
    place.connection = c.id
    place.since_ms = s.steady_ms
    place.length = length
    place.header_length = header_length
    place.binary = header.binary
    place.bucket = bucket_of(header, park)
    if place.bucket >= 0:
        c.asked[place.bucket] += 1
        c.asked_count += 1
    c.parked_count += 1
    c.parked_bytes += length
    s.parked_count += 1
    s.parked_bytes += length
    s.memory_used += length            # N11
    return place


cdef void drop_parked(Server* s, ParkedRequest* parked) noexcept nogil:
    cdef Connection* c = connection_find(s, parked.connection)
    if c != NULL:
        c.parked_count -= 1
        c.parked_bytes -= parked.length
        if parked.bucket >= 0:
            c.asked[parked.bucket] -= 1
            c.asked_count -= 1
    s.parked_count -= 1
    s.parked_bytes -= parked.length
    s.memory_used -= parked.length
    free(parked.frame)
    parked.frame = NULL
    parked.id = 0


cdef void drop_old_parked(Server* s) noexcept nogil:
    """Requests that the coordinator never answered: their clients have given up, or it has died."""
    cdef int32_t i
    cdef int64_t born_until_ms = s.steady_ms - PARKED_LIFE_MS
    if s.parked_count == 0:
        return
    if s.steady_ms - s.coordinator_since_ms > ORPHAN_LIFE_MS:
        born_until_ms = max(born_until_ms, s.coordinator_since_ms)
    for i in range(PARKED_COUNT_MAX):
        if s.parked[i].id and s.parked[i].since_ms < born_until_ms:
            drop_parked(s, &s.parked[i])
