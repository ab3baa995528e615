"""Counts what connections hold, and finds who has to go when it is too much."""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memmove

from mqcore.invariants cimport invariant
from mqcore.net.transport.close_reasons cimport CLOSE_SHORT
from mqcore.net.transport.returned cimport RETURN_BYTES, returned_add, returned_give
from mqcore.net.transport.slots cimport slots_add
from mqcore.net.transport.transport cimport (
    LIFE_DOOMED,
    OUT_HIGH_BYTES,
    TLS_BYTES,
    VICTIMS_MAX,
    connection_find,
)

cdef enum:
    SHARE_BYTES = 16 << 10             # N12, with few connections
    OUT_SHORT_BYTES = 64 << 10         # N13
    STUCK_MS = 10_000
    LOOK_WORK_EACH = 10                # of one connection, when a victim is looked for


cdef void memory_open(Transport* t, int64_t bytes_max) noexcept nogil:
    t.memory_max = bytes_max
    t.memory_high = bytes_max - bytes_max // 8
    t.memory_share = min(<int64_t>SHARE_BYTES, bytes_max // 2 // t.connection_max)
    t.out_high = t.out_most = OUT_HIGH_BYTES


cdef void memory_count(Transport* t, int64_t bytes) noexcept nogil:
    t.memory_used += bytes
    invariant("N11", t.memory_used >= 0)
    invariant("N11", t.memory_used <= t.memory_max)
    t.out_high = t.out_most if t.memory_used < t.memory_high else OUT_SHORT_BYTES


cdef inline void count(Transport* t, Connection* c, int64_t bytes) noexcept nogil:
    c.memory += bytes
    memory_count(t, bytes)
    invariant("N11", c.memory >= 0)
    invariant("N11", c.memory <= t.memory_used)


cdef void memory_give(Transport* t, Connection* c, int64_t bytes) noexcept nogil:
    count(t, c, -bytes)


cdef void memory_return(Transport* t, void* buffer, int64_t bytes) noexcept nogil:
    if returned_add(&t.returned, buffer, bytes):
        t.trim = True
        memory_count(t, bytes)


cdef void memory_end_turn(Transport* t) noexcept nogil:
    if t.returned.bytes:
        memory_count(t, -returned_give(&t.returned, RETURN_BYTES))
        t.wakeful = t.wakeful or t.returned.bytes > 0


cdef inline int64_t age_of(const Transport* t, const Connection* c) noexcept nogil:
    """How long it has not moved, ms."""
    cdef int64_t since = t.steady_ms
    if c.input_length > 0:
        since = min(since, c.input_since_ms)
    if c.output_end > c.output_start:
        since = min(since, c.output_since_ms)
    if c.tls.since_ms:
        since = min(since, c.tls.since_ms)
    return t.steady_ms - since


cdef inline double burden(const Transport* t, const Connection* c) noexcept nogil:
    """N12; 0: it is safe."""
    cdef int64_t more = c.memory - min(c.tls.held, <int64_t>TLS_BYTES) - t.memory_share
    if c.life == LIFE_DOOMED or more <= 0:
        return 0
    return <double>more * <double>(1 + age_of(t, c))


cdef void find_victims(Transport* t) noexcept nogil:
    """The VICTIMS_MAX connections that burden most, the worst one first."""
    cdef double[VICTIMS_MAX] burdens
    cdef double one
    cdef int32_t i, at
    t.victim_count = 0
    t.work += <int64_t>t.connection_max * LOOK_WORK_EACH
    for i in range(t.connection_max):
        if t.connections[i] == NULL:
            continue
        one = burden(t, t.connections[i])
        if one <= 0 or (t.victim_count == VICTIMS_MAX and one <= burdens[VICTIMS_MAX - 1]):
            continue
        at = min(t.victim_count, VICTIMS_MAX - 1)
        while at > 0 and burdens[at - 1] < one:
            burdens[at] = burdens[at - 1]
            t.victims[at] = t.victims[at - 1]
            at -= 1
        burdens[at] = one
        t.victims[at] = t.connections[i].id
        t.victim_count = min(t.victim_count + 1, VICTIMS_MAX)


cdef Connection* next_victim(Transport* t) noexcept nogil:
    cdef Connection* c
    cdef int look
    for look in range(2):
        while t.victim_count > 0:
            c = connection_find(t, t.victims[0])
            t.victim_count -= 1
            memmove(&t.victims[0], &t.victims[1], t.victim_count * sizeof(t.victims[0]))
            if c != NULL and burden(t, c) > 0 and age_of(t, c) > 0:
                return c
        if look == 0:
            find_victims(t)
            if t.victim_count > 0:
                c = connection_find(t, t.victims[0])
                if c != NULL and age_of(t, c) == 0:
                    return c           # all of them came just now: the largest
    return NULL


cdef void connection_doom(Transport* t, Connection* c, int reason, int64_t detail) noexcept nogil:
    if c.life == LIFE_DOOMED:
        return
    c.life = LIFE_DOOMED
    c.doom = reason
    c.doom_detail = detail
    slots_add(&t.doomed, c.slot)


cdef void let_go_of_buffers(Transport* t, Connection* c) noexcept nogil:
    """
    Of somebody who has to go, and whom nothing is being done for. What OpenSSL keeps goes with the
    connection, at the end of the turn, and counts no more: else no handshake that goes would make
    room, and all of them went for one.
    """
    count(t, c, -(<int64_t>c.input_capacity + c.output_capacity + c.tls.held))
    c.tls.held = 0
    memory_return(t, c.input, c.input_capacity)
    memory_return(t, c.output, c.output_capacity)
    c.input = c.output = NULL
    c.input_length = c.input_capacity = 0
    c.output_start = c.output_end = c.output_capacity = 0


cdef bint memory_take(Transport* t, Connection* c, int64_t bytes) noexcept nogil:
    cdef Connection* victim
    if c.life == LIFE_DOOMED:
        return False
    while t.memory_used + bytes > t.memory_max:
        if t.returned.bytes:
            memory_count(t, -returned_give(&t.returned, t.memory_used + bytes - t.memory_max))
            continue
        victim = next_victim(t)
        if victim == NULL or victim == c:
            connection_doom(t, c, CLOSE_SHORT, c.memory)
            return False
        connection_doom(t, victim, CLOSE_SHORT, victim.memory)
        if victim.id != t.handled:     # whose frame lies in its buffer
            let_go_of_buffers(t, victim)
    count(t, c, bytes)
    return True


cdef void memory_look(Transport* t) noexcept nogil:
    cdef Connection* victim
    if t.memory_used - t.returned.bytes <= t.memory_high:
        return
    find_victims(t)
    victim = next_victim(t)
    if victim != NULL and age_of(t, victim) >= STUCK_MS:
        connection_doom(t, victim, CLOSE_SHORT, victim.memory)
        let_go_of_buffers(t, victim)
