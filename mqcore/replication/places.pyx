"""Lets links in, and finds places for them (places.pxd)."""
from libc.stdint cimport uint8_t
from libc.string cimport memcmp

from mqcore.replication.greet cimport KEY_WORDS
from mqcore.replication.in_sync cimport is_named
from mqcore.replication.links cimport (
    ADDRESS_LINKS_MAX,
    LINKS_MAX,
    Link,
    Master,
    Network,
)
from mqcore.replication.sockets cimport ADDRESS_SIZE, link_address

cdef inline bint is_of_host(const Link* l, const Link* other) noexcept nogil:
    return l.host_length == other.host_length and memcmp(l.peer, other.peer, l.host_length) == 0


cdef Link* of_crowd(Master* m, int same) noexcept nogil:
    """
    One of an address that has two links more than `same`: that waits longest without a report, else
    the newest one of the address that has most. None that etcd names; NULL: there is none.
    """
    cdef Link* l
    cdef Link* silent = NULL
    cdef Link* newest = NULL
    cdef int i, k, count, most = same + 2
    for i in range(LINKS_MAX):
        l = &m.links[i]
        count = 0
        for k in range(LINKS_MAX):
            count += is_of_host(l, &m.links[k])
        if count < same + 2 or is_named(m, l.member):
            continue
        if not (l.reported or l.certified) and (silent == NULL or l.opened_ms < silent.opened_ms):
            silent = l
        if count > most or (count == most and (newest == NULL or l.opened_ms > newest.opened_ms)):
            most = count
            newest = l
    return silent if silent != NULL else newest


cdef Link* place_choice(Master* m, const Link* newcomer) noexcept nogil:
    cdef Link* l
    cdef Link* oldest = NULL
    cdef Link* oldest_same = NULL
    cdef Link* oldest_slave = NULL
    cdef Link* unused = NULL
    cdef bint is_same
    cdef int i, same = 0
    for i in range(LINKS_MAX):
        l = &m.links[i]
        if l.fd < 0:
            unused = l if unused == NULL else unused
            continue
        is_same = is_of_host(l, newcomer)
        same += is_same
        if is_named(m, l.member):
            continue
        if l.reported or l.certified:
            if oldest_slave == NULL or l.opened_ms < oldest_slave.opened_ms:
                oldest_slave = l
            continue
        if oldest == NULL or l.opened_ms < oldest.opened_ms:
            oldest = l
        if is_same and (oldest_same == NULL or l.opened_ms < oldest_same.opened_ms):
            oldest_same = l
    if same >= ADDRESS_LINKS_MAX:
        return oldest_same
    if unused != NULL:
        return unused
    l = of_crowd(m, same)
    if l == NULL:
        l = oldest
    return oldest_slave if l == NULL and m.elected else l


cdef bint is_in_network(const Network* network, const uint8_t* address) noexcept nogil:
    cdef int whole = network.bits // 8, rest = network.bits % 8
    return memcmp(network.bytes, address, whole) == 0 and (
        rest == 0 or (network.bytes[whole] ^ address[whole]) >> (8 - rest) == 0)


cdef bint link_is_let_in(Master* m, const Link* l) noexcept nogil:
    """master HM15."""
    cdef uint8_t address[ADDRESS_SIZE]
    cdef int i
    if not m.guarded or (l.certified and m.certificate_does):
        return True
    if l.challenged and l.key_words == KEY_WORDS and l.key_differs == 0:
        return True
    if not link_address(l.peer, l.host_length, address):
        return False
    for i in range(m.network_count):
        if is_in_network(&m.networks[i], address):
            return True
    return False
