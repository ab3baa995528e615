"""Keeps addresses and accounts to their limits (N17)."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

from mqcore.atomics cimport store_i32_release
from mqcore.layout cimport (
    FIGURE_LIMITED_CONNECTIONS,
    FIGURE_LIMITED_REQUESTS,
    LimitPlace,
)
from mqcore.net.serving.peer cimport (
    OF_ACCOUNT,
    OF_ADDRESS,
    WHOSE_COUNT,
    LimitShare,
    limits_of,
)
from mqcore.net.transport.close_reasons cimport CLOSE_LIMIT
from mqcore.net.transport.memory cimport connection_doom
from mqcore.net.transport.transport cimport V6_NETWORK_BYTES
from mqcore.shm.limits cimport (
    US_A_SECOND,
    limit_connections,
    limit_enter,
    limit_in_flight,
    limit_leave,
    limit_passes,
    limit_use,
)
from mqcore.shm.tables cimport name_hash

cdef enum:
    V4_BYTES = 4
    MS_A_SECOND = 1000


cdef inline int64_t now_us(const Limits* l) noexcept nogil:
    return l.transport.steady_ms * (US_A_SECOND // MS_A_SECOND)


cdef inline bint any_rule(const LimitRules* rules) noexcept nogil:
    return (rules.connections or rules.in_flight or rules.bytes_a_second
            or rules.messages_a_second)


cdef uint64_t address_key(const Limits* l, const Connection* c) noexcept nogil:
    cdef uint8_t[1 + V6_NETWORK_BYTES] what
    cdef int32_t length = V6_NETWORK_BYTES if c.address_is_v6 else V4_BYTES
    what[0] = c.address_is_v6
    memcpy(&what[1], c.address, length)
    return name_hash(what, 1 + length, l.shm.head.limit_seed) | 1


cdef bint in_range(const AddressRange* one, const Connection* c) noexcept nogil:
    cdef int32_t whole = one.bits >> 3, rest = one.bits & 7
    if one.is_v6 != c.address_is_v6 or memcmp(one.address, c.address, whole) != 0:
        return False
    return rest == 0 or (one.address[whole] ^ c.address[whole]) >> (8 - rest) == 0


cdef bint is_exempt(const Limits* l, const Connection* c) noexcept nogil:
    cdef int32_t i
    for i in range(l.exempt_count):
        if in_range(&l.exempt[i], c):
            return True
    return False


cdef void enter(Limits* l, Connection* c, int whose, uint64_t key) noexcept nogil:
    cdef LimitShare* own = limits_of(c)
    cdef LimitPlace* place = limit_enter(l.shm, key, l.serving, now_us(l))
    cdef int32_t most = l.rules[whose].connections
    own.places[whose] = place
    if place == NULL:
        return
    store_i32_release(&place.in_flight[l.serving],
                      place.in_flight[l.serving] + own.in_flight)
    if most and limit_connections(l.shm, place) > most:
        l.transport.slot.figures[FIGURE_LIMITED_CONNECTIONS] += 1
        connection_doom(l.transport, c, CLOSE_LIMIT, most)


cdef void leave(Limits* l, Connection* c, int whose) noexcept nogil:
    cdef LimitShare* own = limits_of(c)
    cdef LimitPlace* place = own.places[whose]
    if place == NULL:
        return
    store_i32_release(&place.in_flight[l.serving],
                      place.in_flight[l.serving] - own.in_flight)
    limit_leave(place, l.serving)
    own.places[whose] = NULL


cdef void limits_opened(Limits* l, Connection* c) noexcept nogil:
    if any_rule(&l.rules[OF_ADDRESS]) and not is_exempt(l, c):
        enter(l, c, OF_ADDRESS, address_key(l, c))


cdef void limits_closed(Limits* l, Connection* c) noexcept nogil:
    leave(l, c, OF_ADDRESS)
    leave(l, c, OF_ACCOUNT)


cdef void limits_identified(Limits* l, Connection* c, uint64_t account) noexcept nogil:
    cdef LimitShare* own = limits_of(c)
    if own.account == account or not any_rule(&l.rules[OF_ACCOUNT]):
        return
    leave(l, c, OF_ACCOUNT)
    own.account = account
    enter(l, c, OF_ACCOUNT, (account ^ l.shm.head.limit_seed) | 1)


cdef bint limits_hold(Limits* l, Connection* c) noexcept nogil:
    cdef const LimitShare* own = limits_of(c)
    cdef const LimitRules* rules
    cdef int i
    for i in range(WHOSE_COUNT):
        rules = &l.rules[i]
        if own.places[i] == NULL:
            continue
        if (rules.bytes_a_second and not limit_passes(&own.places[i].bytes_due_us, now_us(l))) or (
                rules.in_flight and limit_in_flight(l.shm, own.places[i]) >= rules.in_flight):
            l.transport.slot.figures[FIGURE_LIMITED_REQUESTS] += 1
            return True
    return False


cdef void limits_taken(Limits* l, Connection* c, int64_t bytes) noexcept nogil:
    cdef LimitShare* own = limits_of(c)
    cdef int i
    bytes += c.sent - own.sent_seen
    own.sent_seen = c.sent
    for i in range(WHOSE_COUNT):
        if own.places[i] != NULL and l.rules[i].bytes_a_second:
            limit_use(&own.places[i].bytes_due_us, now_us(l), bytes, l.rules[i].bytes_a_second)


cdef int limits_refuse_send(Limits* l, Connection* c) noexcept nogil:
    cdef const LimitShare* own = limits_of(c)
    cdef int i
    for i in range(WHOSE_COUNT):
        if own.places[i] != NULL and l.rules[i].messages_a_second and not (
                limit_passes(&own.places[i].messages_due_us, now_us(l))):
            l.transport.slot.figures[FIGURE_LIMITED_REQUESTS] += 1
            return i
    return -1


cdef void limits_refused_send(Limits* l, Connection* c) noexcept nogil:
    cdef LimitPlace* place = limits_of(c).places[OF_ADDRESS]
    cdef int64_t a_second = l.rules[OF_ADDRESS].messages_a_second
    if place != NULL and a_second and limit_passes(&place.messages_due_us, now_us(l)):
        limit_use(&place.messages_due_us, now_us(l), 1, a_second)


cdef void limits_sent(Limits* l, Connection* c, int32_t messages, bint answered) noexcept nogil:
    cdef LimitShare* own = limits_of(c)
    cdef int i
    for i in range(WHOSE_COUNT):
        if own.places[i] != NULL and l.rules[i].messages_a_second:
            limit_use(&own.places[i].messages_due_us, now_us(l), messages,
                      l.rules[i].messages_a_second)
    if answered:
        own.sends += 1
        limits_fly(l, c, 1)


cdef void limits_answered(Limits* l, Connection* c) noexcept nogil:
    cdef LimitShare* own = limits_of(c)
    if own.sends > 0:
        own.sends -= 1
        limits_fly(l, c, -1)


cdef void limits_fly(Limits* l, Connection* c, int32_t requests) noexcept nogil:
    cdef LimitShare* own = limits_of(c)
    cdef int32_t* count
    cdef int i
    own.in_flight += requests
    for i in range(WHOSE_COUNT):
        if own.places[i] != NULL:
            count = &own.places[i].in_flight[l.serving]
            store_i32_release(count, count[0] + requests)


cdef void limits_forget_sends(Limits* l) noexcept nogil:
    cdef Connection* c
    cdef int32_t i
    for i in range(l.transport.connection_max):
        c = l.transport.connections[i]
        if c != NULL:
            limits_fly(l, c, -limits_of(c).sends)
            limits_of(c).sends = 0
