# The store clock: what the writer stamps on records, and when a stamp was, on the steady clock.
#
# The wall clock may be set while the broker lives; how long something has waited may not change by
# that. The store clock runs with the steady clock. The writer ties it to the wall clock with knots in
# shared memory: from a knot on, a store time is a straight line over the steady clock.
#
#   T7  It never goes back: the next knot begins at or after what the last one has reached.
#   T8  Is it behind the wall clock (that was set forward), then it jumps there; by more than
#       DOUBT_MS only when the wall clock has stood there for DOUBTED_MS. Is it ahead (the wall clock
#       was set back, or the log's last record is younger), then it goes on at an eighth of the speed
#       until they agree: two times of it that differ still differ in the order of what happened.
#   T9  `store_clock_steady_of` is the latest steady time at which it showed a store time, so
#       nothing that is due a while after a store time is early. It knows the last 64 knots; before
#       the first piece a millisecond of store time is one of steady time.
#
# Files have times of the wall clock, and stock brokers compare them with it. So the clock also keeps
# the pieces of the wall clock between its steps of more than STEP_MS.
#
#   T10  `store_clock_passed` is the time that has surely passed since the wall clock showed a time:
#       counted on the steady clock from the latest moment at which it showed it. A time that no piece
#       showed counts from the step that left it out, and one that is still to come as now. No step
#       makes it larger. When there are too many pieces, two become one in such a way that no time gets
#       older.
#   T11  The clock outlives processes in shared memory, and a run in the file `clock` of the store
#       (mqcore/store/clock_file.py). In the same boot of the machine the steady clock has gone on, and
#       so everything between two runs is measured.
#   T12  No clock measures the time between two boots, or on another machine, or before the first run
#       of ours. The wall clock's word is believed when it has stood without a step: for
#       what waits after DOUBTED_MS, for what is deleted after BELIEVED_MS. Until then that time counts
#       as none.
from libc.stdint cimport int64_t

from mqcore.layout cimport StoreClock, UnmeasuredTime

# The writer's, once at its start: last_store_ms is of the last record in the log.
cdef void store_clock_begin(StoreClock* clock, int64_t wall, int64_t steady,
                            int64_t last_store_ms) noexcept nogil
# The writer's, before it stamps: the store time for now.
cdef int64_t store_clock_turn(StoreClock* clock, int64_t wall, int64_t steady) noexcept nogil

# Readers keep a copy of their own, and look whether it is still the newest once a turn.
cdef void store_clock_look(const StoreClock* shared, StoreClock* view) noexcept nogil
cdef int64_t store_clock_at(const StoreClock* view, int64_t steady) noexcept nogil
cdef int64_t store_clock_steady_of(const StoreClock* view, int64_t store_ms) noexcept nogil
# T11, T12: a run's words for the next one, and the next one's beginning; clock_file.py has the file.
# known_wall: the wall clock's time of the youngest file of a store without words of ours, 0: none.
cdef object clock_state(const StoreClock* shared, int64_t wall, int64_t steady)
cdef void clock_resume(StoreClock* clock, dict state, bint same_boot, int64_t wall, int64_t steady)
cdef void clock_begin_after(StoreClock* clock, int64_t known_wall, int64_t wall, int64_t steady)

# T10; in milliseconds, never below 0.
cdef int64_t store_clock_passed(const StoreClock* view, int64_t wall, int64_t steady) noexcept nogil
# The latest steady time until `steady` at which the wall clock showed a time. False: it never did, as far
# as is known, and `shown` is the end of the last piece that may have been followed by it.
cdef bint store_clock_shown(const StoreClock* view, int64_t wall, int64_t steady,
                            int64_t* shown) noexcept nogil
cdef bint store_clock_stepped(const StoreClock* view, int64_t wall, int64_t steady) noexcept nogil
# What the wall clock showed when the store clock showed store_ms.
cdef int64_t store_clock_wall_of(const StoreClock* view, int64_t store_ms) noexcept nogil
