"""Counts what addresses and accounts use (limits.pxd)."""
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from mqcore.atomics cimport (
    cpu_pause,
    full_fence,
    load_i32_acquire,
    load_i64_acquire,
    store_i32_release,
    store_i64_release,
    swap_i64,
)
from mqcore.layout cimport LIMIT_PLACES, SERVING_COUNT_MAX, LimitPlace
from mqcore.shm.reserve cimport shm_reserve
from mqcore.shm.segment cimport Segment, Shm

cdef enum:
    WAYS = 8                           # places that a key may have
    TRIES_MAX = 8
    PART_PLACES = LIMIT_PLACES // 32   # of which pages are asked for together: a bit for each
    CLAIM_LOOKS_MAX = 1_000            # at a place that another process claims: it is about to let go
    KEY_MIN = SERVING_COUNT_MAX + 1    # below: 0, nobody's; else who claims it, + 1


cdef inline uint64_t place_key(const LimitPlace* place) noexcept nogil:
    return <uint64_t>load_i64_acquire(<const int64_t*>&place.key)


cdef bint is_idle(const Shm* shm, const LimitPlace* place, int64_t now_us) noexcept nogil:
    cdef int32_t i
    for i in range(shm.head.serving_count):
        if load_i32_acquire(&place.connections[i]):
            return False
    return (load_i64_acquire(&place.bytes_due_us) <= now_us
            and load_i64_acquire(&place.messages_due_us) <= now_us)


cdef uint64_t settled_key(const LimitPlace* place) noexcept nogil:
    """Whose it is, once nobody claims it; a claim that stays is of a process that died."""
    cdef uint64_t key = place_key(place)
    cdef int32_t look = 0
    while 0 < key < <uint64_t>KEY_MIN and look < CLAIM_LOOKS_MAX:
        cpu_pause()
        key = place_key(place)
        look += 1
    return key


cdef bint claim(Shm* shm, LimitPlace* place, uint64_t seen, uint64_t key, int32_t serving,
                int64_t now_us) noexcept nogil:
    """T5: whether the place of `seen`, which looked idle, is the key's now."""
    cdef bint idle
    if not swap_i64(<int64_t*>&place.key, <int64_t>seen, serving + 1):
        return False
    full_fence()                       # who counts himself into it sees the claim, or we see his count
    idle = is_idle(shm, place, now_us)
    store_i64_release(<int64_t*>&place.key, <int64_t>(key if idle else seen))
    return idle


cdef bint reserve(Shm* shm, LimitPlace* place) noexcept nogil:
    """Pages of its part of the table, which is asked for once."""
    cdef int64_t part = (place - shm.limits) // PART_PLACES
    if shm.limits_granted >> part & 1:
        return True
    if not shm_reserve(shm, shm.limits + part * PART_PLACES, PART_PLACES * sizeof(LimitPlace)):
        return False
    shm.limits_granted |= <uint32_t>1 << part
    return True


cdef LimitPlace* find(Shm* shm, uint64_t key, int32_t serving, int64_t now_us) noexcept nogil:
    """Its place, or one that is its from now on."""
    cdef LimitPlace* first = &shm.limits[key & (LIMIT_PLACES - 1) & ~<uint64_t>(WAYS - 1)]
    cdef uint64_t seen
    cdef int i
    if not reserve(shm, first):
        return NULL
    for i in range(WAYS):
        if settled_key(&first[i]) == key:
            return &first[i]
    for i in range(WAYS):
        seen = settled_key(&first[i])
        if seen == key:
            return &first[i]
        if 0 < seen < <uint64_t>KEY_MIN or not is_idle(shm, &first[i], now_us):
            continue
        if claim(shm, &first[i], seen, key, serving, now_us) or settled_key(&first[i]) == key:
            return &first[i]
    return NULL


cdef LimitPlace* limit_enter(Shm* shm, uint64_t key, int32_t serving, int64_t now_us) noexcept nogil:
    cdef LimitPlace* place
    cdef int i
    key = max(key, <uint64_t>KEY_MIN)
    for i in range(TRIES_MAX):
        place = find(shm, key, serving, now_us)
        if place == NULL:
            return NULL
        store_i32_release(&place.connections[serving],
                          place.connections[serving] + 1)
        full_fence()                   # who wants it sees us, or we see his key (T5)
        if place_key(place) == key:
            return place
        limit_leave(place, serving)
    return NULL


cdef void limit_leave(LimitPlace* place, int32_t serving) noexcept nogil:
    store_i32_release(&place.connections[serving], place.connections[serving] - 1)


cdef int32_t limit_connections(const Shm* shm, const LimitPlace* place) noexcept nogil:
    cdef int32_t i, count = 0
    for i in range(shm.head.serving_count):
        count += load_i32_acquire(&place.connections[i])
    return count


cdef int32_t limit_in_flight(const Shm* shm, const LimitPlace* place) noexcept nogil:
    cdef int32_t i, count = 0
    for i in range(shm.head.serving_count):
        count += load_i32_acquire(&place.in_flight[i])
    return count


cdef void limit_use(int64_t* due_us, int64_t now_us, int64_t amount, int64_t a_second) noexcept nogil:
    cdef int64_t worth_us = amount * US_A_SECOND // a_second
    cdef int64_t due = load_i64_acquire(due_us)
    while not swap_i64(due_us, due, max(due, now_us) + worth_us):
        due = load_i64_acquire(due_us)


cdef bint limit_passes(const int64_t* due_us, int64_t now_us) noexcept nogil:
    return load_i64_acquire(due_us) <= now_us + BURST_US


cdef void limits_clear(Shm* shm, int32_t serving) noexcept nogil:
    cdef int32_t i
    for i in range(LIMIT_PLACES):
        if place_key(&shm.limits[i]) == 0:
            continue
        swap_i64(<int64_t*>&shm.limits[i].key, serving + 1, 0)
        store_i32_release(&shm.limits[i].connections[serving], 0)
        store_i32_release(&shm.limits[i].in_flight[serving], 0)


cdef class LimitTable:
    """The table, for tests and tools."""

    cdef Segment segment

    def __init__(self, Segment segment not None):
        self.segment = segment

    def enter(self, uint64_t key, int serving, int64_t now_us) -> int:
        """Count a connection of `key`; the number of its place, -1: there is none."""
        cdef LimitPlace* place = limit_enter(&self.segment.shm, key, serving, now_us)
        return place - self.segment.shm.limits if place != NULL else -1

    def leave(self, int place, int serving) -> None:
        limit_leave(&self.segment.shm.limits[place], serving)

    def connections(self, int place) -> int:
        return limit_connections(&self.segment.shm, &self.segment.shm.limits[place])

    def clear(self, int serving) -> None:
        limits_clear(&self.segment.shm, serving)

    def use_bytes(self, int place, int64_t now_us, int64_t amount, int64_t a_second) -> bool:
        """Whether more passes afterwards."""
        cdef int64_t* due = &self.segment.shm.limits[place].bytes_due_us
        limit_use(due, now_us, amount, a_second)
        return limit_passes(due, now_us)

    def passes(self, int place, int64_t now_us) -> bool:
        return limit_passes(&self.segment.shm.limits[place].bytes_due_us, now_us)

    def places(self) -> dict[int, tuple[int, int]]:
        """Place -> (connections, requests in flight) of all that belong to somebody."""
        return {i: (limit_connections(&self.segment.shm, &self.segment.shm.limits[i]),
                    limit_in_flight(&self.segment.shm, &self.segment.shm.limits[i]))
                for i in range(LIMIT_PLACES) if place_key(&self.segment.shm.limits[i])}
