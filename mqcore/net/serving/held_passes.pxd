# When held pulls are looked at: arrivals, finished reads of the disk, slices, timers (held H3, H7).
from mqcore.net.serving.held_places cimport HeldPulls
from mqcore.net.transport.transport cimport Connection

cdef void take_arrivals(HeldPulls* held) noexcept nogil           # each begins a pass over its queue
cdef void run_passes(HeldPulls* held) noexcept nogil                 # as far as HELD_WORK allows
cdef void check_postponed(HeldPulls* held, Connection* c) noexcept nogil   # in a slice
cdef void continue_cold(HeldPulls* held) noexcept nogil
cdef void walk_held(HeldPulls* held) noexcept nogil                  # continues the walk over all
