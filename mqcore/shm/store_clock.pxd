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
#       the first of them, and so before this run, a millisecond of store time is one of steady time.
from libc.stdint cimport int64_t

from mqcore.layout cimport StoreClock

# The writer's, once at its start: last_store_ms is of the last record in the log.
cdef void store_clock_begin(StoreClock* clock, int64_t wall, int64_t steady,
                            int64_t last_store_ms) noexcept nogil
# The writer's, before it stamps: the store time for now.
cdef int64_t store_clock_turn(StoreClock* clock, int64_t wall, int64_t steady) noexcept nogil

# Readers keep a copy of their own, and look whether it is still the newest once a turn.
cdef void store_clock_look(const StoreClock* shared, StoreClock* view) noexcept nogil
cdef int64_t store_clock_at(const StoreClock* view, int64_t steady) noexcept nogil
cdef int64_t store_clock_steady_of(const StoreClock* view, int64_t store_ms) noexcept nogil
# What the wall clock showed when the store clock showed store_ms.
cdef int64_t store_clock_wall_of(const StoreClock* view, int64_t store_ms) noexcept nogil
