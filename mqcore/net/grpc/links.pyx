"""Takes frames from the rings of POP, and puts answers into them."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from mqcore.endian cimport load_i32
from mqcore.layout cimport (
    ANSWER_FRAME,
    FORWARD_CLOSED,
    FRAME_LENGTH_SIZE,
    PART_MORE,
    PART_NEXT,
    SLOT_SERVING,
    ForwardHead,
)
from mqcore.net.grpc.protobuf cimport pb_close
from mqcore.net.grpc.remote cimport REMOTE_ACKS_MAX, REMOTE_BUCKETS, Remote, RemoteAck
from mqcore.net.grpc.remote_answers cimport remote_closed, remote_free
from mqcore.net.grpc.remoting cimport serve_remote
from mqcore.net.transport.memory cimport memory_give
from mqcore.net.transport.slots cimport slots_remove
from mqcore.net.transport.transport cimport KEEP_BYTES, LIFE_OPEN, Connection, Transport, takes_output
from mqcore.shm.ring cimport (
    ring_claim_or_ask,
    ring_finish,
    ring_is_empty,
    ring_next,
    ring_publish,
    ring_release,
)
from mqcore.shm.segment cimport doorbell_ring, shm_consumer, shm_producer

cdef enum:
    FRAMES_AT_ONCE = 256               # of one ring, in a turn
    ANSWER_PART_BYTES = 256 << 10


cdef bint links_open(Grpc* g) noexcept nogil:
    cdef Remote* r = &g.remote
    cdef int32_t i
    r.count = max(g.shm.head.pop_owner, 0)
    for i in range(r.count):
        shm_consumer(g.shm, &g.shm.head.pops[i], &r.pops[i])
        shm_producer(g.shm, &g.shm.head.pop_answers[i], &r.answers[i])
    r.acks = <RemoteAck*>calloc(REMOTE_ACKS_MAX, sizeof(RemoteAck))
    return r.acks != NULL


cdef void links_end(Grpc* g) noexcept nogil:
    cdef int32_t i
    for i in range(REMOTE_BUCKETS):
        while g.remote.held[i] != NULL:
            remote_free(g, g.remote.held[i])
    pb_close(&g.remote.body)
    free(g.remote.acks)
    g.remote.acks = NULL


cdef bint links_wait(Grpc* g) noexcept nogil:
    cdef int32_t i
    for i in range(g.remote.count):
        if not ring_is_empty(&g.remote.pops[i]) and takes(g, i):
            return True
    return False


cdef inline bint takes(Grpc* g, int32_t link) noexcept nogil:
    """remote RM1"""
    cdef Connection* c = g.remote.links[link]
    return c == NULL or (c.life == LIFE_OPEN and takes_output(g.door.transport, c))


cdef void links_take(Grpc* g) noexcept nogil:
    cdef uint8_t* record
    cdef int32_t i, kind, length, count
    cdef ForwardHead head
    for i in range(g.remote.count):
        count = 0
        while count < FRAMES_AT_ONCE and takes(g, i):
            length = ring_next(&g.remote.pops[i], &record, &kind)
            if length < 0:
                break
            count += 1
            memcpy(&head, record, sizeof(head))
            if kind == FORWARD_CLOSED:
                remote_closed(g, head.connection)
            else:
                serve_remote(g, i, head.connection, record + sizeof(head),
                             length - <int32_t>sizeof(head))
        if count and ring_release(&g.remote.pops[i]):
            doorbell_ring(&g.shm.slots[SLOT_SERVING + i])


cdef void links_give(Grpc* g) noexcept nogil:
    cdef int32_t i
    for i in range(g.remote.count):
        if g.remote.links[i] != NULL:
            give(g, i, g.remote.links[i])


cdef void give(Grpc* g, int32_t i, Connection* c) noexcept nogil:
    cdef Transport* t = g.door.transport
    if c.dirty:                        # it is not the transport that sends it
        c.dirty = False
        slots_remove(&t.dirty, c.slot)
    while c.output_start < c.output_end and give_frame(g, i, c):
        pass
    if ring_publish(&g.remote.answers[i]):
        doorbell_ring(&g.shm.slots[SLOT_SERVING + i])
    if c.output_start < c.output_end:
        return
    c.output_start = c.output_end = 0
    if c.output_capacity > KEEP_BYTES:
        free(c.output)
        memory_give(t, c, c.output_capacity)
        c.output = NULL
        c.output_capacity = 0


cdef bint give_frame(Grpc* g, int32_t i, Connection* c) noexcept nogil:
    """The first answer, or its rest; False: no room."""
    cdef ForwardHead head
    cdef const uint8_t* frame = c.output + c.output_start + sizeof(head)
    cdef int32_t length = FRAME_LENGTH_SIZE + load_i32(frame)
    cdef int32_t size
    cdef uint8_t* place
    memcpy(&head, c.output + c.output_start, sizeof(head))
    while g.remote.sent[i] < length:
        size = min(<int32_t>ANSWER_PART_BYTES, length - g.remote.sent[i])
        place = ring_claim_or_ask(&g.remote.answers[i], <int32_t>sizeof(head) + size)
        if place == NULL:
            return False
        head.part = (PART_NEXT if g.remote.sent[i] > 0 else 0) | (
            PART_MORE if g.remote.sent[i] + size < length else 0)
        memcpy(place, &head, sizeof(head))
        memcpy(place + sizeof(head), frame + g.remote.sent[i], size)
        ring_finish(&g.remote.answers[i], ANSWER_FRAME, <int32_t>sizeof(head) + size)
        g.remote.sent[i] += size
    g.remote.sent[i] = 0
    c.output_start += <int64_t>sizeof(head) + length
    return True
