"""Counts what connections hold, and finds who has to go when it is too much."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free
from libc.string cimport memmove

from mqcore.net.server cimport (
    CLOSE_SHORT,
    OUT_HIGH_BYTES,
    VICTIMS_MAX,
    connection_close,
    connection_find,
)
from mqcore.net.slots cimport slots_add, slots_take

cdef enum:
    SHARE_BYTES = 16 << 10             # N12, with few connections
    OUT_SHORT_BYTES = 64 << 10         # N13
    STUCK_MS = 10_000
    LOOK_WORK_EACH = 10                # of one connection, when a victim is looked for


cdef void memory_open(Server* s, int64_t bytes_max) noexcept nogil:
    s.memory_max = bytes_max
    s.memory_high = bytes_max - bytes_max // 8
    s.memory_share = min(<int64_t>SHARE_BYTES, bytes_max // 2 // s.connection_max)
    s.out_high = OUT_HIGH_BYTES


cdef inline void count(Server* s, Connection* c, int64_t bytes) noexcept nogil:
    c.memory += bytes
    s.memory_used += bytes
    s.out_high = OUT_HIGH_BYTES if s.memory_used < s.memory_high else OUT_SHORT_BYTES


cdef void memory_give(Server* s, Connection* c, int64_t bytes) noexcept nogil:
    count(s, c, -bytes)


cdef inline int64_t age_of(const Server* s, const Connection* c) noexcept nogil:
    """How long it has not moved, ms."""
    cdef int64_t since = s.steady_ms
    if c.input_length > 0:
        since = min(since, c.input_since_ms)
    if c.output_end > c.output_start:
        since = min(since, c.output_since_ms)
    return s.steady_ms - since


cdef inline double burden(const Server* s, const Connection* c) noexcept nogil:
    """N12; 0: it is safe."""
    if c.doomed or c.memory <= s.memory_share:
        return 0
    return <double>(c.memory - s.memory_share) * <double>(1 + age_of(s, c))


cdef void find_victims(Server* s) noexcept nogil:
    """The VICTIMS_MAX connections that burden most, the worst one first."""
    cdef double[VICTIMS_MAX] burdens
    cdef double one
    cdef int32_t i, at
    s.victim_count = 0
    s.work += <int64_t>s.connection_max * LOOK_WORK_EACH
    for i in range(s.connection_max):
        if s.connections[i] == NULL:
            continue
        one = burden(s, s.connections[i])
        if one <= 0 or (s.victim_count == VICTIMS_MAX and one <= burdens[VICTIMS_MAX - 1]):
            continue
        at = min(s.victim_count, VICTIMS_MAX - 1)
        while at > 0 and burdens[at - 1] < one:
            burdens[at] = burdens[at - 1]
            s.victims[at] = s.victims[at - 1]
            at -= 1
        burdens[at] = one
        s.victims[at] = s.connections[i].id
        s.victim_count = min(s.victim_count + 1, VICTIMS_MAX)


cdef Connection* next_victim(Server* s) noexcept nogil:
    cdef Connection* c
    cdef int look
    for look in range(2):
        while s.victim_count > 0:
            c = connection_find(s, s.victims[0])
            s.victim_count -= 1
            memmove(&s.victims[0], &s.victims[1], s.victim_count * sizeof(s.victims[0]))
            if c != NULL and burden(s, c) > 0 and age_of(s, c) > 0:
                return c
        if look == 0:
            find_victims(s)
            if s.victim_count > 0:
                c = connection_find(s, s.victims[0])
                if c != NULL and age_of(s, c) == 0:
                    return c           # all of them came just now: the largest
    return NULL


cdef void connection_doom(Server* s, Connection* c, int reason, int64_t detail) noexcept nogil:
    if c.doomed:
        return
    c.doomed = reason
    c.doomed_detail = detail
    slots_add(&s.doomed, c.slot)


cdef void let_go_of_buffers(Server* s, Connection* c) noexcept nogil:
    """Of somebody who has to go, and whom nothing is being done for."""
    s.trim = True
    count(s, c, -(<int64_t>c.input_capacity + c.output_capacity))
    free(c.input)
    free(c.output)
    c.input = c.output = NULL
    c.input_length = c.input_capacity = 0
    c.output_start = c.output_end = c.output_capacity = 0


cdef bint memory_take(Server* s, Connection* c, int64_t bytes) noexcept nogil:
    cdef Connection* victim
    if c.doomed:
        return False
    while s.memory_used + bytes > s.memory_max:
        victim = next_victim(s)
        if victim == NULL or victim == c:
            connection_doom(s, c, CLOSE_SHORT, c.memory)
            return False
        connection_doom(s, victim, CLOSE_SHORT, victim.memory)
        if victim.id != s.handled:     # whose frame lies in its buffer
            let_go_of_buffers(s, victim)
    count(s, c, bytes)
    return True


cdef void memory_look(Server* s) noexcept nogil:
    cdef Connection* victim
    if s.memory_used <= s.memory_high:
        return
    find_victims(s)
    victim = next_victim(s)
    if victim != NULL and age_of(s, victim) >= STUCK_MS:
        connection_doom(s, victim, CLOSE_SHORT, victim.memory)
        let_go_of_buffers(s, victim)


cdef void close_doomed(Server* s) noexcept nogil:
    cdef int32_t slot = slots_take(&s.doomed)
    cdef Connection* c
    while slot >= 0:
        c = s.connections[slot]
        connection_close(s, c, c.doomed, c.doomed_detail)
        slot = slots_take(&s.doomed)
