"""Keeps requests that the coordinator is asked about, and who must not pass them (send N7)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from mqcore.half cimport within_half
from mqcore.layout cimport TOPIC_LENGTH_MAX
from mqcore.net.remoting.frames cimport ONEWAY_BIT, RESPONSE_BIT
from mqcore.net.requests cimport Asker
from mqcore.net.serving.asked cimport ORPHAN_LIFE_MS
from mqcore.net.serving.peer cimport ASKED_BUCKETS, ParkShare, parked_of, say
from mqcore.net.transport.connections cimport connection_owes_less
from mqcore.net.transport.memory cimport memory_count, memory_give, memory_take
from mqcore.net.transport.transport cimport connection_find
from mqcore.shm.tables cimport name_hash
from mqcore.wire.codes cimport RESPONSE_SYSTEM_BUSY
from mqcore.wire.header cimport SEND_TOPIC, Header, text_copy

cdef enum:
    PARKED_BYTES_MAX = 64 << 20
    PARKED_LIFE_MS = 10000


cdef bint parking_open(Parking* p) noexcept nogil:
    p.bytes_max = min(<int64_t>PARKED_BYTES_MAX, p.transport.memory_max // 4)
    p.places = <ParkedRequest*>calloc(PARKED_COUNT_MAX, sizeof(ParkedRequest))
    return p.places != NULL


cdef int32_t bucket_of(const Header* header, int park) noexcept nogil:
    """Where later sends look whether this one is still asked about (send N7); -1: it is no send."""
    cdef uint8_t topic[TOPIC_LENGTH_MAX]
    cdef int32_t length
    if park == PARK_REQUEST:
        return -1
    length = text_copy(&header.fields[SEND_TOPIC], topic, TOPIC_LENGTH_MAX)
    if park == PARK_UNREAD or length < 1:
        return ASKED_BUCKETS
    return <int32_t>(name_hash(topic, length, 0) % ASKED_BUCKETS)


cdef bint may_park(const Parking* p, const Connection* c, int32_t length) noexcept nogil:
    cdef ParkShare* own = parked_of(c)
    return own.count == 0 or (                                           # half HR1
        within_half(own.count + 1, PARKED_COUNT_MAX - (p.count - own.count))
        and within_half(own.bytes + length, p.bytes_max - (p.bytes - own.bytes)))


cdef ParkedRequest* park_frame(Parking* p, Connection* c, const Request* request,
                               int park) noexcept nogil:
    cdef ParkShare* own = parked_of(c)
    cdef ParkedRequest* place
    cdef int32_t i
    if p.count == PARKED_COUNT_MAX or p.bytes + request.length > p.bytes_max:
        return NULL
    if not memory_take(p.transport, c, request.length):                  # memory N11
        return NULL
    memory_give(p.transport, c, request.length)    # counted below: it may outlive its connection
    for i in range(PARKED_COUNT_MAX):
        p.next = (p.next + 1) & (PARKED_COUNT_MAX - 1)
        if p.places[p.next].id == 0:
            break
    place = &p.places[p.next]
    place.frame = <uint8_t*>malloc(request.length)
    if place.frame == NULL:
        return NULL
    memcpy(place.frame, request.frame, request.length)
    place.id = p.next + 1
    place.connection = c.id
    place.since_ms = p.transport.steady_ms
    place.length = request.length
    place.header_length = request.header_length
    place.asker.opaque = request.header.opaque
    place.asker.binary = request.header.binary
    place.asker.oneway = not request.header.has_opaque or (
        request.header.flag & (RESPONSE_BIT | ONEWAY_BIT)) != 0
    place.bucket = bucket_of(&request.header, park)
    if place.bucket >= 0:
        own.asked[place.bucket] += 1
        own.asked_count += 1
    c.owed += place.asker.oneway                                         # transport N8
    own.count += 1
    own.bytes += request.length
    p.count += 1
    p.bytes += request.length
    memory_count(p.transport, request.length)
    return place


cdef void drop_parked(Parking* p, ParkedRequest* parked) noexcept nogil:
    cdef Connection* c = connection_find(p.transport, parked.connection)
    cdef ParkShare* own
    if c != NULL:
        own = parked_of(c)
        if parked.asker.oneway:
            connection_owes_less(p.transport, c)
        own.count -= 1
        own.bytes -= parked.length
        if parked.bucket >= 0:
            own.asked[parked.bucket] -= 1
            own.asked_count -= 1
    p.count -= 1
    p.bytes -= parked.length
    memory_count(p.transport, -parked.length)
    free(parked.frame)
    parked.frame = NULL
    parked.id = 0


cdef void answer_old_parked(Parking* p) noexcept nogil:
    cdef Connection* c
    cdef Asker asker
    cdef int32_t i
    cdef int64_t born_until_ms = p.transport.steady_ms - PARKED_LIFE_MS
    if p.count == 0:
        return
    if p.transport.steady_ms - p.coordinator_since_ms > ORPHAN_LIFE_MS:
        born_until_ms = max(born_until_ms, p.coordinator_since_ms)
    for i in range(PARKED_COUNT_MAX):
        if p.places[i].id and p.places[i].since_ms < born_until_ms:
            c = connection_find(p.transport, p.places[i].connection)
            asker = p.places[i].asker
            drop_parked(p, &p.places[i])
            if c != NULL:
                say(c, &asker, RESPONSE_SYSTEM_BUSY,
                    "[OVERLOAD]the coordinator did not answer in time, try again later")
