# The search of the log for deliveries whose results nobody has read (delivery S5): behind the
# book's settled_position, each record that delivers an entry which is not settled settles it.
#
# A record delivers an entry when it lies in the topic and queue that its own REAL_TOPIC and
# REAL_QID name, and equals the entry's record in all that a delivery keeps. Only deliveries have
# these properties, and those of a level lie in the log in its order, but for the few that were
# refused: so the first entry that is not settled is nearly always the one.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.store.record cimport RecordView
from mqcore.store.schedule.levels cimport Scheduler

# Whether the record `found` at `at` delivers the entry.
cdef bint entry_is(Scheduler* s, int32_t level, int64_t offset, const uint8_t* at,
                   const RecordView* found) noexcept nogil
# From settled_position up to what is published
cdef void replay_begin(Scheduler* s) noexcept nogil
cdef bint replay_step(Scheduler* s, int32_t records_max) noexcept nogil       # True: it is done
