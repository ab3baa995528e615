"""Carries out what the coordinator answers."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from mqcore.layout cimport (
    ANSWER_CLOSE,
    ANSWER_FRAME,
    ANSWER_OFFER,
    ANSWER_REDO,
    ANSWER_DONE,
    FRAME_HEADER_WORD,
    PART_MORE,
    PART_NEXT,
    SLOT_COORDINATOR,
    ForwardHead,
)
from mqcore.net.requests cimport Front
from mqcore.net.serving.asked cimport asked_answered
from mqcore.net.serving.handler cimport redo_request
from mqcore.net.serving.forward cimport count_done, forward_unread
from mqcore.net.serving.parked cimport PARKED_COUNT_MAX, ParkedRequest, drop_parked
from mqcore.net.serving.peer cimport peer_of
from mqcore.net.transport.close_reasons cimport CLOSE_ASKED, CLOSE_MEMORY, CLOSE_UNREAD
from mqcore.net.transport.connections cimport connection_close
from mqcore.net.transport.memory cimport connection_doom
from mqcore.net.transport.output cimport output_flush
from mqcore.net.transport.transport cimport OUT_HIGH_BYTES, Connection, connection_find, unread
from mqcore.shm.ring cimport ring_next, ring_release
from mqcore.shm.segment cimport doorbell_ring

cdef enum:
    ANSWER_KEEP_BYTES = 1 << 20
    OUT_LOW_BYTES = OUT_HIGH_BYTES // 2     # N6: below this it reads again
    OUT_OFFER_BYTES = 4 << 20          # N6
    OUT_MAX_BYTES = 32 << 20   # transport N2: answers that were asked for before; more than any one


cdef bint gather(Answers* a, const ForwardHead* head, const uint8_t* part,
                 int32_t length) noexcept nogil:
    """Joins a frame that comes in parts; True when it is whole, in a.frame (N23)."""
    cdef int64_t capacity = max(a.capacity, 65536)
    cdef Connection* c
    cdef uint8_t* bigger
    if not head.part & PART_NEXT:
        a.length = 0
        a.connection = head.connection
    elif a.length == 0 or a.connection != head.connection:
        a.length = 0
        return False
    while capacity < a.length + length:
        capacity *= 2
    if capacity > a.capacity:
        bigger = <uint8_t*>realloc(a.frame, capacity)
        if bigger == NULL:             # what it asked for would never be answered
            a.length = 0
            c = connection_find(a.transport, head.connection)
            if c != NULL:
                connection_doom(a.transport, c, CLOSE_MEMORY, capacity)
            return False
        a.frame = bigger
        a.capacity = capacity
    memcpy(a.frame + a.length, part, length)
    a.length += length
    return not head.part & PART_MORE


cdef void write_frame(Answers* a, Connection* c, const uint8_t* frame, int64_t length) noexcept nogil:
    cdef const Front* front = peer_of(c).front
    if unread(c) + length > OUT_MAX_BYTES:
        connection_close(a.transport, c, CLOSE_UNREAD, unread(c))
        return
    front.say_frame(front.self, c, frame, length)


cdef void write_offer(Answers* a, Connection* c, const uint8_t* frame, int64_t length) noexcept nogil:
    """N6"""
    cdef uint64_t id = c.id
    if not c.tell_below and unread(c) >= OUT_HIGH_BYTES:
        output_flush(a.transport, c)             # it may only be that this turn has brought so many
        c = connection_find(a.transport, id)
        if c == NULL:
            return
        if unread(c) >= OUT_HIGH_BYTES:
            if forward_unread(a.forwarding, c):
                c.tell_below = OUT_LOW_BYTES
    if unread(c) + length <= OUT_OFFER_BYTES:
        write_frame(a, c, frame, length)


cdef void redo(Answers* a, ParkedRequest* parked, const uint8_t* header, int32_t length) noexcept nogil:
    """Run a parked request; header: in place of the one it came with, if any."""
    cdef Connection* c = connection_find(a.transport, parked.connection)
    cdef const uint8_t* own = parked.frame + FRAME_HEADER_WORD
    if c != NULL:
        redo_request(a.handler, c, header if length > 0 else own,
                     length if length > 0 else parked.header_length, parked.asker.binary,
                     own + parked.header_length,
                     parked.length - FRAME_HEADER_WORD - parked.header_length)
    drop_parked(a.parking, parked)


cdef void one_answer(Answers* a, const ForwardHead* head, int32_t kind, const uint8_t* payload,
                     int64_t length) noexcept nogil:
    cdef Connection* c
    cdef ParkedRequest* parked = NULL
    if kind == ANSWER_DONE:
        count_done(a.forwarding, head.connection, head.parked, head.body_size)
        return
    c = connection_find(a.transport, head.connection)
    if 0 < head.parked <= PARKED_COUNT_MAX and a.parking.places[head.parked - 1].id == head.parked and (
            a.parking.places[head.parked - 1].connection == head.connection):
        parked = &a.parking.places[head.parked - 1]
    if kind == ANSWER_REDO:
        if parked != NULL:
            redo(a, parked, payload, <int32_t>length)
        return
    if kind == ANSWER_FRAME and c != NULL and (parked != NULL or not head.parked):
        if parked == NULL and a.slot == SLOT_COORDINATOR:
            asked_answered(c, payload, length)
        write_frame(a, c, payload, length)
    if kind == ANSWER_OFFER and c != NULL:
        write_offer(a, c, payload, length)
    if parked != NULL:
        drop_parked(a.parking, parked)
    if kind == ANSWER_CLOSE and c != NULL:
        connection_close(a.transport, c, CLOSE_ASKED, 0)


cdef void take_answers(Answers* a) noexcept nogil:
    cdef uint8_t* record
    cdef int32_t kind, length
    cdef ForwardHead* head
    while True:
        length = ring_next(&a.ring, &record, &kind)
        if length < 0:
            break
        head = <ForwardHead*>record
        record += sizeof(ForwardHead)
        length -= <int32_t>sizeof(ForwardHead)
        if head.part:
            if not gather(a, head, record, length):
                continue
            one_answer(a, head, kind, a.frame, a.length)
            a.length = 0
            if a.capacity > ANSWER_KEEP_BYTES:
                free(a.frame)
                a.frame = NULL
                a.capacity = 0
            continue
        a.length = 0                   # N23
        one_answer(a, head, kind, record, length)
    if ring_release(&a.ring):
        doorbell_ring(&a.shm.slots[a.slot])
