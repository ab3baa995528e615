"""The store clock (store_clock.pxd has its rules)."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memmove

from mqcore.atomics cimport (
    acquire_fence,
    cpu_pause,
    load_i32_acquire,
    release_fence,
    store_i32_release,
)
from mqcore.clock cimport clocks_ms
from mqcore.layout cimport CLOCK_KNOTS_MAX, ClockKnot, StoreClock

cdef enum:
    SLOWED = 8                        # T8: its speed while it is ahead of the wall clock
    JITTER_MS = 3                     # no step: the clocks are read one after the other
    DOUBT_MS = 1_000                  # T8
    DOUBTED_MS = 10_000
    KEPT_MS = 1_000                   # a log that is younger by so little changes nothing
    CLOCK_LOOKS_MAX = 1_000


cdef inline int64_t knot_at(const ClockKnot* knot, int64_t steady) noexcept nogil:
    return knot.store_ms + (steady - knot.steady_ms) // knot.slowed


cdef void add_knot(StoreClock* clock, int64_t steady, int64_t store, int64_t wall,
                   int64_t slowed) noexcept nogil:
    cdef ClockKnot* knot
    store_i32_release(&clock.sequence, clock.sequence | 1)        # odd: a writer died over a knot
    release_fence()
    if clock.count == CLOCK_KNOTS_MAX:
        memmove(&clock.knots[0], &clock.knots[1], (CLOCK_KNOTS_MAX - 1) * sizeof(ClockKnot))
        clock.count -= 1
    knot = &clock.knots[clock.count]
    knot.steady_ms = steady
    knot.store_ms = store
    knot.wall_ms = wall
    knot.slowed = slowed
    clock.count += 1
    store_i32_release(&clock.sequence, clock.sequence + 1)


cdef void store_clock_begin(StoreClock* clock, int64_t wall, int64_t steady,
                            int64_t last_store_ms) noexcept nogil:
    if clock.count and last_store_ms <= store_clock_at(clock, steady) + KEPT_MS:
        return
    clock.count = 0                                    # the run begins: nobody reads it yet
    if last_store_ms > wall:
        add_knot(clock, steady, last_store_ms, wall, SLOWED)
    else:
        add_knot(clock, steady, wall, wall, 1)


cdef int64_t store_clock_turn(StoreClock* clock, int64_t wall, int64_t steady) noexcept nogil:
    cdef const ClockKnot* last = &clock.knots[clock.count - 1]
    cdef int64_t now = knot_at(last, steady)
    cdef int64_t ahead = now - wall, store = now, slowed = last.slowed
    cdef bint stepped = not -JITTER_MS <= wall - last.wall_ms - (steady - last.steady_ms) <= JITTER_MS
    if ahead > JITTER_MS:
        slowed = SLOWED
        clock.doubted_since_ms = 0
    elif ahead >= -JITTER_MS:
        if ahead <= 0:
            slowed = 1
        clock.doubted_since_ms = 0
    else:
        slowed = 1
        if clock.doubted_since_ms == 0:
            clock.doubted_since_ms = steady
        if -ahead <= DOUBT_MS or steady - clock.doubted_since_ms >= DOUBTED_MS:
            store = wall
            clock.doubted_since_ms = 0
    if stepped or slowed != last.slowed or store != now:
        add_knot(clock, steady, store, wall, slowed)
    return store


cdef void store_clock_look(const StoreClock* shared, StoreClock* view) noexcept nogil:
    cdef int32_t sequence, tries
    cdef StoreClock copy
    for tries in range(CLOCK_LOOKS_MAX):     # a writer may have died over a knot: then it stays odd for a while
        sequence = load_i32_acquire(&shared.sequence)
        if sequence == view.sequence and view.count:
            return
        memcpy(&copy, shared, sizeof(StoreClock))
        acquire_fence()
        if not sequence & 1 and load_i32_acquire(&shared.sequence) == sequence:
            view[0] = copy
            return
        cpu_pause()
    if view.count == 0:
        view[0] = copy


cdef int64_t store_clock_at(const StoreClock* view, int64_t steady) noexcept nogil:
    cdef int32_t i = view.count - 1
    while i > 0 and view.knots[i].steady_ms > steady:
        i -= 1
    return knot_at(&view.knots[i], steady)


cdef int32_t knot_of(const StoreClock* view, int64_t store_ms) noexcept nogil:
    cdef int32_t i = view.count - 1
    while i > 0 and view.knots[i].store_ms > store_ms:
        i -= 1
    return i


cdef int64_t store_clock_steady_of(const StoreClock* view, int64_t store_ms) noexcept nogil:
    cdef int32_t i = knot_of(view, store_ms)
    cdef const ClockKnot* knot = &view.knots[i]
    cdef int64_t steady
    if store_ms < knot.store_ms:
        return knot.steady_ms - (knot.store_ms - store_ms)
    steady = knot.steady_ms + (store_ms - knot.store_ms) * knot.slowed + knot.slowed - 1
    if i + 1 < view.count:
        steady = min(steady, view.knots[i + 1].steady_ms)
    return steady


cdef int64_t store_clock_wall_of(const StoreClock* view, int64_t store_ms) noexcept nogil:
    cdef const ClockKnot* knot = &view.knots[knot_of(view, store_ms)]
    return knot.wall_ms + store_clock_steady_of(view, store_ms) - knot.steady_ms


cdef class ClockProbe:
    """A store clock of its own, for tests: `begin` and `turn` take the times of the test."""

    cdef StoreClock* clock

    def __cinit__(self):
        self.clock = <StoreClock*>calloc(1, sizeof(StoreClock))
        if self.clock == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.clock)

    def begin(self, int64_t wall, int64_t steady, int64_t last_store_ms=0) -> None:
        store_clock_begin(self.clock, wall, steady, last_store_ms)

    def turn(self, int64_t wall, int64_t steady) -> int:
        return store_clock_turn(self.clock, wall, steady)

    def at(self, int64_t steady) -> int:
        return store_clock_at(self.clock, steady)

    def steady_of(self, int64_t store_ms) -> int:
        return store_clock_steady_of(self.clock, store_ms)

    def wall_of(self, int64_t store_ms) -> int:
        return store_clock_wall_of(self.clock, store_ms)

    @property
    def knots(self) -> int:
        return self.clock.count


def read_clocks() -> tuple[int, int]:
    """(wall, steady) as the writer reads them, in ms."""
    cdef int64_t wall, steady
    clocks_ms(&wall, &steady)
    return wall, steady
