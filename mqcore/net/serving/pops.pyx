"""Hands frames to the process that has the state of POP."""
from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport calloc
from libc.string cimport memcpy, memmove, memset

from mqcore.layout cimport FORWARD_CLOSED, FORWARD_FRAME, SLOT_SERVING, ForwardHead
from mqcore.net.remoting.frames cimport ONEWAY_BIT
from mqcore.net.remoting.headers cimport read_asker
from mqcore.net.requests cimport HANDLED, HANDLE_STALL, Asker
from mqcore.net.serving.peer cimport peer_of, say
from mqcore.shm.ring cimport ring_claim_or_ask, ring_finish, ring_publish
from mqcore.shm.segment cimport doorbell_ring, shm_producer
from mqcore.wire.codes cimport RESPONSE_SYSTEM_ERROR


cdef bint pops_connect(PopDoor* d, int index) noexcept nogil:
    d.on = d.shm.head.pop_owner >= 0 and d.shm.head.pop_owner != index
    if not d.on:
        return True
    shm_producer(d.shm, &d.shm.head.pops[index], &d.ring)
    d.gone = <uint64_t*>calloc(d.transport.connection_max, sizeof(uint64_t))
    return d.gone != NULL


cdef inline void publish(PopDoor* d) noexcept nogil:
    if ring_publish(&d.ring):
        doorbell_ring(&d.shm.slots[SLOT_SERVING + d.shm.head.pop_owner])


cdef int pop_frame(PopDoor* d, Connection* c, const Request* request) noexcept nogil:
    cdef ForwardHead* head
    cdef Asker asker
    if request.length > POP_FRAME_MAX:
        if not request.header.flag & ONEWAY_BIT:
            read_asker(&request.header, &asker)
            say(c, &asker, RESPONSE_SYSTEM_ERROR,
                "the request is too large: expected at most 262144 bytes")
        return HANDLED
    pops_say_gone(d)                   # PD1: an end goes before what came later
    head = <ForwardHead*>ring_claim_or_ask(&d.ring,
                                           <int32_t>sizeof(ForwardHead) + request.length)
    if head == NULL:
        return HANDLE_STALL
    memset(head, 0, sizeof(ForwardHead))
    head.connection = c.id
    head.passed = request.passed
    memcpy(<uint8_t*>head + sizeof(ForwardHead), request.frame, request.length)
    ring_finish(&d.ring, FORWARD_FRAME, <int32_t>sizeof(ForwardHead) + request.length)
    publish(d)
    peer_of(c).pops = True
    return HANDLED


cdef void pops_closed(PopDoor* d, Connection* c) noexcept nogil:
    if not peer_of(c).pops:
        return
    if d.gone_count == d.transport.connection_max:     # its ring has had no room for long: it is dead
        d.gone_count -= 1
    d.gone[d.gone_count] = c.id
    d.gone_count += 1
    pops_say_gone(d)


cdef void pops_say_gone(PopDoor* d) noexcept nogil:
    cdef ForwardHead* head
    cdef int32_t said = 0
    while said < d.gone_count:
        head = <ForwardHead*>ring_claim_or_ask(&d.ring, sizeof(ForwardHead))
        if head == NULL:
            break
        memset(head, 0, sizeof(ForwardHead))
        head.connection = d.gone[said]
        ring_finish(&d.ring, FORWARD_CLOSED, sizeof(ForwardHead))
        said += 1
    if said:
        publish(d)
        d.gone_count -= said
        memmove(d.gone, d.gone + said, d.gone_count * sizeof(uint64_t))
