"""The clock of a run, for Python: what has passed, and what the next run needs (store_clock.pxd)."""
from libc.stdint cimport int64_t

from mqcore.clock cimport clocks_ms
from mqcore.layout cimport StoreClock
from mqcore.shm.segment cimport Segment
from mqcore.shm.store_clock cimport (
    clock_begin_after,
    clock_resume,
    clock_state,
    store_clock_look,
    store_clock_passed,
    store_clock_stepped,
)


cdef class RunClock:
    """The one clock of a run: of whatever ends something by its age, in any process."""

    cdef Segment segment

    def __init__(self, Segment segment not None):
        self.segment = segment

    def passed_ms(self, int64_t wall_ms) -> int:
        """How long ago, at least, the wall clock showed this (store_clock T10)."""
        cdef StoreClock view
        cdef int64_t wall, steady
        view.count = 0
        store_clock_look(self.segment.shm.clock, &view)
        clocks_ms(&wall, &steady)
        if store_clock_stepped(&view, wall, steady):        # and the writer has not seen it yet
            return 0
        return store_clock_passed(&view, wall_ms, steady)

    def state(self) -> dict:
        """
        The state from which the next run continues this clock: numbers and lists (store_clock T11).
        """
        cdef int64_t wall, steady
        clocks_ms(&wall, &steady)
        return clock_state(self.segment.shm.clock, wall, steady)

    def begin(self, dict state, bint same_boot, int64_t known_wall_ms) -> None:
        """
        Before the first process: continue from the `state` of the run before, None: there was none.
        same_boot: of the machine; known_wall_ms: when the store's youngest file was written, 0:
        it has none (store_clock T12).
        """
        cdef int64_t wall, steady
        clocks_ms(&wall, &steady)
        if state is None:
            clock_begin_after(self.segment.shm.clock, known_wall_ms, wall, steady)
        else:
            clock_resume(self.segment.shm.clock, state, same_boot, wall, steady)
