"""The store clock (store_clock.pxd has its rules)."""
from libc.stdint cimport INT64_MIN, int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memmove, memset

from mqcore.atomics cimport (
    acquire_fence,
    cpu_pause,
    load_i32_acquire,
    release_fence,
    store_i32_release,
    store_i64_release,
)
from mqcore.clock cimport clocks_ms
from mqcore.layout cimport (
    CLOCK_KNOTS_MAX,
    CLOCK_WALLS_MAX,
    ClockKnot,
    StoreClock,
    UnmeasuredTime,
    WallPiece,
)

cdef enum:
    SLOWED = 8                        # T8: its speed while it is ahead of the wall clock
    JITTER_MS = 3                     # no step: the clocks are read one after the other
    DOUBT_MS = 1_000                  # T8
    DOUBTED_MS = 10_000
    KEPT_MS = 1_000                   # a log that is younger by so little changes nothing
    STEP_MS = 1_000                   # T10
    BELIEVED_MS = 86_400_000          # T12
    LOOK_MS = 60_000                  # a step may be noticed so late, by a writer that waits for its disk
    CLOCK_LOOKS_MAX = 1_000


cdef inline int64_t knot_at(const ClockKnot* knot, int64_t steady) noexcept nogil:
    return knot.store_ms + (steady - knot.steady_ms) // knot.slowed


cdef void change_begin(StoreClock* clock) noexcept nogil:
    store_i32_release(&clock.sequence, clock.sequence | 1)        # odd: a writer died over a change
    release_fence()


cdef void change_end(StoreClock* clock) noexcept nogil:
    store_i32_release(&clock.sequence, clock.sequence + 1)


cdef void add_knot(StoreClock* clock, int64_t steady, int64_t store, int64_t wall,
                   int64_t slowed) noexcept nogil:
    cdef ClockKnot* knot
    change_begin(clock)
    if clock.count == CLOCK_KNOTS_MAX:
        memmove(&clock.knots[0], &clock.knots[1], (CLOCK_KNOTS_MAX - 1) * sizeof(ClockKnot))
        clock.count -= 1
        clock.late.before -= clock.late.before > 0
    knot = &clock.knots[clock.count]
    knot.steady_ms = steady
    knot.store_ms = store
    knot.wall_ms = wall
    knot.slowed = slowed
    clock.count += 1
    change_end(clock)


cdef inline int64_t apart(const WallPiece* piece) noexcept nogil:
    return piece.wall_ms - piece.steady_ms


cdef void join_into(WallPiece* piece, const WallPiece* next) noexcept nogil:
    cdef int64_t least = min(apart(piece), apart(next))
    piece.spread_ms = max(apart(piece) + piece.spread_ms, apart(next) + next.spread_ms) - least
    piece.wall_ms = piece.steady_ms + least


cdef void join_pieces(StoreClock* clock) noexcept nogil:
    """Two become one: those with the smallest step between them, never across a boot."""
    cdef int64_t i, step, at = 0, least = 0
    for i in range(1, clock.wall_count):
        if i == clock.old.before:
            continue
        step = apart(&clock.walls[i]) - apart(&clock.walls[i - 1])
        step = step if step >= 0 else -step
        if at == 0 or step < least:
            at, least = i, step
    join_into(&clock.walls[at - 1], &clock.walls[at])
    memmove(&clock.walls[at], &clock.walls[at + 1],
            (clock.wall_count - at - 1) * sizeof(WallPiece))
    clock.wall_count -= 1
    clock.old.before -= at < clock.old.before


cdef void add_piece(StoreClock* clock, int64_t wall, int64_t steady) noexcept nogil:
    change_begin(clock)
    if clock.wall_count == CLOCK_WALLS_MAX:
        join_pieces(clock)
    clock.walls[clock.wall_count] = WallPiece(steady_ms=steady, wall_ms=wall, spread_ms=0)
    clock.wall_count += 1
    change_end(clock)


cdef int64_t taken_for(const UnmeasuredTime* unmeasured, int64_t wall, int64_t steady) noexcept nogil:
    """How long it was, as the wall clock has it now."""
    return max(wall - unmeasured.wall_ms - (steady - unmeasured.steady_ms), 0)


cdef void believe(StoreClock* clock, int64_t wall, int64_t steady) noexcept nogil:
    """
    T12: what was before moves into the past by the time that is believed now. A writer that dies
    over it leaves some where they were: nothing moves twice.
    """
    cdef int64_t i, stood = steady - clock.stood_since_ms, before, passed
    if clock.late.before and stood >= DOUBTED_MS:
        change_begin(clock)
        passed, before = taken_for(&clock.late, wall, steady), clock.late.before
        store_i64_release(&clock.late.before, 0)
        release_fence()
        for i in range(before):
            clock.knots[i].steady_ms -= passed
        change_end(clock)
    if clock.old.before and stood >= BELIEVED_MS:
        change_begin(clock)
        passed, before = taken_for(&clock.old, wall, steady), clock.old.before
        store_i64_release(&clock.old.before, 0)
        release_fence()
        for i in range(before):
            clock.walls[i].steady_ms -= passed
        change_end(clock)


cdef bint store_clock_stepped(const StoreClock* view, int64_t wall, int64_t steady) noexcept nogil:
    return not -STEP_MS <= wall - steady - apart(&view.walls[view.wall_count - 1]) <= STEP_MS


cdef void look_at_wall(StoreClock* clock, int64_t wall, int64_t steady) noexcept nogil:
    if not -STEP_MS <= wall - steady - clock.apart_ms <= STEP_MS:
        clock.stood_since_ms = steady
    clock.apart_ms = wall - steady
    if store_clock_stepped(clock, wall, steady):
        add_piece(clock, wall, steady)
    if clock.late.before or clock.old.before:
        believe(clock, wall, steady)


cdef void store_clock_begin(StoreClock* clock, int64_t wall, int64_t steady,
                            int64_t last_store_ms) noexcept nogil:
    if clock.wall_count == 0:
        add_piece(clock, wall, steady)
        clock.stood_since_ms, clock.apart_ms = steady, wall - steady
    if clock.count and last_store_ms <= store_clock_at(clock, steady) + KEPT_MS:
        return
    if not clock.has_earlier:
        clock.count = 0                                # the run begins: no process reads it yet
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
    look_at_wall(clock, wall, steady)
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


cdef bint store_clock_shown(const StoreClock* view, int64_t wall, int64_t steady,
                            int64_t* shown) noexcept nogil:
    cdef const WallPiece* piece
    cdef int64_t i, at, end = steady, left_out = INT64_MIN
    for i in range(view.wall_count - 1, -1, -1):
        piece = &view.walls[i]
        at = wall - apart(piece)
        if i == 0 or wall >= piece.wall_ms - LOOK_MS:
            if at - piece.spread_ms <= end:
                shown[0] = min(at if i == 0 else max(at, piece.steady_ms), end)
                return True
            left_out = max(left_out, end)
        end = piece.steady_ms
    shown[0] = left_out
    return False


cdef int64_t store_clock_passed(const StoreClock* view, int64_t wall, int64_t steady) noexcept nogil:
    cdef int64_t shown
    store_clock_shown(view, wall, steady, &shown)
    return max(steady - shown, 0)


cdef void since_other_boot(UnmeasuredTime* unmeasured, int64_t count, int64_t wall_then,
                           int64_t steady_then, int64_t steady) noexcept nogil:
    """One more such time: unbelieved time advances by what was measured since."""
    if unmeasured.before:
        unmeasured.wall_ms += steady_then - unmeasured.steady_ms
    else:
        unmeasured.before = count
        unmeasured.wall_ms = wall_then
    unmeasured.steady_ms = steady


cdef void store_clock_resume(StoreClock* clock, int64_t wall_then, int64_t steady_then, int64_t wall,
                             int64_t steady) noexcept nogil:
    cdef int64_t i, moved = steady - steady_then, store
    for i in range(clock.count):
        clock.knots[i].steady_ms += moved
    for i in range(clock.wall_count):
        clock.walls[i].steady_ms += moved
    clock.doubted_since_ms = 0
    since_other_boot(&clock.late, clock.count, wall_then, steady_then, steady)
    since_other_boot(&clock.old, clock.wall_count, wall_then, steady_then, steady)
    add_piece(clock, wall, steady)
    clock.stood_since_ms, clock.apart_ms = steady, wall - steady
    if clock.count:
        store = knot_at(&clock.knots[clock.count - 1], steady)
        add_knot(clock, steady, max(store, wall), wall, 1 if store <= wall else SLOWED)


cdef object clock_state(const StoreClock* shared, int64_t wall, int64_t steady):
    cdef StoreClock view
    cdef int64_t i
    view.count = 0
    store_clock_look(shared, &view)
    return {
        "wall": wall, "steady": steady, "doubtedSince": view.doubted_since_ms,
        "stoodSince": view.stood_since_ms,
        "late": [view.late.before, view.late.wall_ms, view.late.steady_ms],
        "old": [view.old.before, view.old.wall_ms, view.old.steady_ms],
        "knots": [[view.knots[i].steady_ms, view.knots[i].store_ms, view.knots[i].wall_ms,
                   view.knots[i].slowed] for i in range(view.count)],
        "walls": [[view.walls[i].steady_ms, view.walls[i].wall_ms, view.walls[i].spread_ms]
                  for i in range(view.wall_count)],
    }


cdef void clock_resume(StoreClock* clock, dict state, bint same_boot, int64_t wall, int64_t steady):
    cdef int64_t i
    memset(clock, 0, sizeof(StoreClock))
    clock.has_earlier = 1
    clock.count, clock.wall_count = len(state["knots"]), len(state["walls"])
    for i in range(clock.count):
        (clock.knots[i].steady_ms, clock.knots[i].store_ms, clock.knots[i].wall_ms,
         clock.knots[i].slowed) = state["knots"][i]
    for i in range(clock.wall_count):
        (clock.walls[i].steady_ms, clock.walls[i].wall_ms,
         clock.walls[i].spread_ms) = state["walls"][i]
    clock.doubted_since_ms, clock.stood_since_ms = state["doubtedSince"], state["stoodSince"]
    clock.late.before, clock.late.wall_ms, clock.late.steady_ms = state["late"]
    clock.old.before, clock.old.wall_ms, clock.old.steady_ms = state["old"]
    clock.apart_ms = state["wall"] - state["steady"]
    if not same_boot:
        store_clock_resume(clock, state["wall"], state["steady"], wall, steady)


cdef void clock_begin_after(StoreClock* clock, int64_t known_wall, int64_t wall, int64_t steady):
    """The first run of ours on a store whose youngest file is of `known_wall`."""
    memset(clock, 0, sizeof(StoreClock))
    if known_wall and known_wall < wall:
        clock.walls[0] = WallPiece(steady_ms=steady, wall_ms=known_wall, spread_ms=0)
        clock.wall_count = 1
        since_other_boot(&clock.old, 1, known_wall, steady, steady)
        add_piece(clock, wall, steady)
        clock.stood_since_ms, clock.apart_ms = steady, wall - steady
    store_clock_begin(clock, wall, steady, 0)


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

    def state(self, int64_t wall, int64_t steady) -> dict:
        return clock_state(self.clock, wall, steady)

    def resume(self, dict state, bint same_boot, int64_t wall, int64_t steady) -> None:
        clock_resume(self.clock, state, same_boot, wall, steady)

    def begin_after(self, int64_t known_wall, int64_t wall, int64_t steady) -> None:
        clock_begin_after(self.clock, known_wall, wall, steady)

    def passed(self, int64_t wall, int64_t steady) -> int:
        return store_clock_passed(self.clock, wall, steady)

    def at(self, int64_t steady) -> int:
        return store_clock_at(self.clock, steady)

    def steady_of(self, int64_t store_ms) -> int:
        return store_clock_steady_of(self.clock, store_ms)

    def wall_of(self, int64_t store_ms) -> int:
        return store_clock_wall_of(self.clock, store_ms)

    @property
    def knots(self) -> int:
        return self.clock.count

    @property
    def pieces(self) -> int:
        return self.clock.wall_count


def read_clocks() -> tuple[int, int]:
    """(wall, steady) as the writer reads them, in ms."""
    cdef int64_t wall, steady
    clocks_ms(&wall, &steady)
    return wall, steady
