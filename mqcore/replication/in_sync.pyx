"""How far slaves have the log, for acknowledgements and for who elects (in_sync.pxd)."""
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t
from libc.string cimport memcmp, memcpy

from mqcore.atomics cimport (
    acquire_fence,
    load_i32_acquire,
    load_i64_acquire,
    store_i32_release,
    store_i64_release,
)
from mqcore.layout cimport (
    LEADERSHIP_MEMBERS_MAX,
    SLOT_DISPATCHER,
    SLOT_WRITER,
    Leadership,
    MemberReport,
)
from mqcore.replication.links cimport LINKS_MAX, Link, Master
from mqcore.shm.segment cimport doorbell_ring


cdef bint is_same_slave(const Link* l, const Link* other) noexcept nogil:
    """master HM3."""
    if l.member or other.member:
        return l.member == other.member
    return l.host_length == other.host_length and memcmp(l.peer, other.peer, l.host_length) == 0


cdef void number_slave(Master* m, Link* l) noexcept nogil:
    cdef uint32_t used = 0
    cdef int i
    for i in range(LINKS_MAX):
        if not m.links[i].reported or &m.links[i] == l:
            continue
        if is_same_slave(&m.links[i], l):
            l.slave = m.links[i].slave
            return
        used |= <uint32_t>1 << m.links[i].slave
    l.slave = 0
    while used & <uint32_t>1 << l.slave:
        l.slave += 1


cdef int64_t of_links(Master* m) noexcept nogil:
    """master HM3: the position that min_in_sync slaves have, -1: there are not so many."""
    cdef int64_t least, best = INT64_MAX
    cdef uint32_t slaves
    cdef int i, k, count
    for k in range(LINKS_MAX):
        if not m.links[k].reported:
            continue
        slaves = 0
        count = 0
        least = m.links[k].acked
        for i in range(LINKS_MAX):
            if m.links[i].reported and m.links[i].acked >= least:
                count += not slaves >> m.links[i].slave & 1
                slaves |= <uint32_t>1 << m.links[i].slave
        if count >= m.min_in_sync and (best == INT64_MAX or least > best):
            best = least
    return -1 if best == INT64_MAX else best


cdef Link* link_of(Master* m, int64_t member) noexcept nogil:
    """NULL: it has none that has reported."""
    cdef int i
    for i in range(LINKS_MAX):
        if m.links[i].reported and m.links[i].member == member:
            return &m.links[i]
    return NULL


cdef bint is_named(const Master* m, int64_t member) noexcept nogil:
    cdef int i
    for i in range(LEADERSHIP_MEMBERS_MAX):
        if member and m.members[i] == member:
            return True
    return False


cdef void take_members(Master* m) noexcept nogil:
    """Who is waited for, if that was said anew; while it is being said, as before."""
    cdef Leadership* words = m.shm.leadership
    cdef int32_t sequence = load_i32_acquire(&words.members_sequence)
    cdef int count, i
    cdef int64_t members[LEADERSHIP_MEMBERS_MAX]
    if sequence == m.members_applied or sequence & 1:
        return
    count = min(max(words.members_count, 0), <int>LEADERSHIP_MEMBERS_MAX)
    for i in range(LEADERSHIP_MEMBERS_MAX):
        members[i] = words.members[i]
    acquire_fence()
    if load_i32_acquire(&words.members_sequence) != sequence:
        return
    m.members_count = count
    memcpy(m.members, members, sizeof(members))
    m.members_applied = sequence


cdef int64_t of_set(Master* m) noexcept nogil:
    """
    master HM9: what all that are waited for have, -1: one of them is not there, or they are too
    few.
    """
    cdef int64_t least = INT64_MAX
    cdef Link* l
    cdef int i
    take_members(m)
    if m.members_count < m.min_in_sync:
        return -1
    for i in range(m.members_count):
        l = link_of(m, m.members[i])
        if l == NULL:
            return -1
        least = min(least, l.acked)
    return least


cdef void in_sync_report(Master* m, int64_t published, int64_t now_ms) noexcept nogil:
    cdef MemberReport* place
    cdef MemberReport* unused
    cdef Link* l
    cdef int i, k
    for k in range(LEADERSHIP_MEMBERS_MAX):
        place = &m.shm.leadership.reports[k]
        if place.member and link_of(m, place.member) == NULL:
            store_i64_release(&place.heard_ms, 0)
    for i in range(LINKS_MAX):
        l = &m.links[i]
        if not l.reported or not l.member:
            continue
        place = unused = NULL
        for k in range(LEADERSHIP_MEMBERS_MAX):
            if m.shm.leadership.reports[k].member == l.member:
                place = &m.shm.leadership.reports[k]
                break
            if not m.shm.leadership.reports[k].member or (                # or one that is gone,
                    unused == NULL and (not m.shm.leadership.reports[k].heard_ms or (   # or unknown
                        is_named(m, l.member)
                        and not is_named(m, m.shm.leadership.reports[k].member)))):
                unused = &m.shm.leadership.reports[k]
        if place == NULL and unused == NULL:
            continue
        if place == NULL:
            place = unused
            store_i64_release(&place.member, 0)      # who reads meanwhile finds that it was moved
        store_i64_release(&place.acked, l.acked)
        store_i64_release(&place.even_ms, now_ms if l.acked >= published else l.even_ms)
        store_i64_release(&place.heard_ms, l.heard_ms)
        store_i64_release(&place.member, l.member)
    store_i64_release(&m.shm.leadership.members_applied, m.members_applied)


cdef void in_sync_judge(Master* m) noexcept nogil:
    cdef int64_t position
    cdef int32_t present
    cdef bint changed
    if m.hands_on:                     # master HM11
        return
    position = of_set(m) if m.elected else of_links(m)
    present = position >= 0
    changed = present != load_i32_acquire(&m.shm.replica_gate.present)
    if position > load_i64_acquire(&m.shm.replica_gate.replicated):
        store_i64_release(&m.shm.replica_gate.replicated, position)
        changed = True
    if changed:
        store_i32_release(&m.shm.replica_gate.present, present)
        if m.gated:
            doorbell_ring(&m.shm.slots[SLOT_WRITER])
        if m.shows:
            doorbell_ring(&m.shm.slots[SLOT_DISPATCHER])
