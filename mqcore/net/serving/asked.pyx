"""Keeps what the coordinator owes, and answers for one that died (N16)."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memmove

from mqcore.endian cimport load_i32
from mqcore.layout cimport (
    FRAME_CODEC_SHIFT,
    FRAME_HEADER,
    FRAME_HEADER_LENGTH_MASK,
    FRAME_LENGTH_SIZE,
)
from mqcore.net.remoting.frames cimport ONEWAY_BIT, RESPONSE_BIT
from mqcore.net.requests cimport Asker
from mqcore.net.serving.peer cimport AskedRequest, ForwardShare, forwarding_of, say
from mqcore.net.transport.memory cimport memory_give, memory_take
from mqcore.net.transport.transport cimport connection_find
from mqcore.wire.codes cimport RESPONSE_SYSTEM_ERROR
from mqcore.wire.header cimport HEADER_BROKEN, header_read

cdef enum:
    ASKED_FIRST = 8
    ASKED_MAX = 1024
    ASKED_LIFE_MS = 10000


cdef bint has_room(Asking* a, Connection* c) noexcept nogil:
    cdef ForwardShare* own = forwarding_of(c)
    cdef int32_t wanted = max(2 * own.asked_capacity, <int32_t>ASKED_FIRST)
    cdef int64_t more = (wanted - own.asked_capacity) * <int64_t>sizeof(AskedRequest)
    cdef AskedRequest* bigger
    if own.asked_count < own.asked_capacity:
        return True
    if own.asked_capacity == ASKED_MAX:
        memmove(own.asked, own.asked + 1, (ASKED_MAX - 1) * sizeof(AskedRequest))
        own.asked_count -= 1
        return True
    if not memory_take(a.transport, c, more):
        return False
    bigger = <AskedRequest*>realloc(own.asked, wanted * sizeof(AskedRequest))
    if bigger == NULL:
        memory_give(a.transport, c, more)
        return False
    own.asked = bigger
    own.asked_capacity = wanted
    return True


cdef void asked_add(Asking* a, Connection* c, const Header* header) noexcept nogil:
    cdef ForwardShare* own = forwarding_of(c)
    if not header.has_opaque or header.flag & (RESPONSE_BIT | ONEWAY_BIT) or not has_room(a, c):
        return
    a.number += 1
    own.asked[own.asked_count] = AskedRequest(
        number=a.number, opaque=header.opaque, binary=header.binary)
    own.asked_count += 1


cdef void asked_answered(Connection* c, const uint8_t* frame, int64_t length) noexcept nogil:
    cdef ForwardShare* own = forwarding_of(c)
    cdef Header header
    cdef int32_t word, header_length, i
    if length < FRAME_HEADER:
        return
    word = load_i32(frame + FRAME_LENGTH_SIZE)
    header_length = word & FRAME_HEADER_LENGTH_MASK
    if header_length > length - FRAME_HEADER or header_read(
            frame + FRAME_HEADER, header_length, word >> FRAME_CODEC_SHIFT == 1,
            &header) == HEADER_BROKEN:
        return
    if not header.flag & RESPONSE_BIT:
        own.questions += header.flag & ONEWAY_BIT == 0
        return
    for i in range(own.asked_count):
        if own.asked[i].opaque == header.opaque:
            own.asked_count -= 1
            memmove(own.asked + i, own.asked + i + 1,
                    (own.asked_count - i) * sizeof(AskedRequest))
            return


cdef void asked_orphaned(Asking* a) noexcept nogil:
    a.orphaned_ms = a.transport.steady_ms
    a.orphaned_number = a.number
    if a.orphans_since_ms == 0:
        a.orphans_since_ms = a.orphaned_ms


cdef void answer_orphans(Asking* a, uint64_t connection) noexcept nogil:
    """The connection's, which are its first; any answer may end it."""
    cdef Connection* c = connection_find(a.transport, connection)
    cdef ForwardShare* own
    cdef AskedRequest first
    cdef Asker asker
    while c != NULL and forwarding_of(c).asked_count > 0:
        own = forwarding_of(c)
        first = own.asked[0]
        if first.number > a.orphaned_number:
            return
        own.asked_count -= 1
        memmove(own.asked, own.asked + 1, own.asked_count * sizeof(AskedRequest))
        asker = Asker(opaque=first.opaque, binary=first.binary, oneway=False)
        say(c, &asker, RESPONSE_SYSTEM_ERROR,
            "[COORDINATOR_RESTARTED]whether the request was done is not known")
        c = connection_find(a.transport, connection)


cdef void asked_answer_orphans(Asking* a, int64_t running_since_ms) noexcept nogil:
    cdef int64_t now_ms = a.transport.steady_ms
    cdef int32_t i
    if a.orphans_since_ms == 0:
        return
    if now_ms - a.orphans_since_ms < ASKED_LIFE_MS and (
            running_since_ms < a.orphaned_ms or now_ms - running_since_ms < ORPHAN_LIFE_MS):
        return
    a.orphans_since_ms = 0
    for i in range(a.transport.connection_max):
        if a.transport.connections[i] != NULL:
            answer_orphans(a, a.transport.connections[i].id)
