# The timer's part of the scheduler (timer.pxd has its rules).
from libc.stdint cimport int32_t, int64_t

from mqcore.store.schedule.timer_items cimport Positions, Recalls, TimerItems
from mqcore.store.schedule.timer_wheel cimport TIMER_PATH_MAX, TimerWheel

cdef enum:
    TIMER_KINDS = 3                    # timer_index.pxd
    SLOT_PARITIES = 2                  # late units stand in the next slot that has not begun, or in this one

cdef struct Timer:
    TimerWheel wheel
    char root[TIMER_PATH_MAX]          # the store's folder; empty: there is no timer
    bint is_open
    bint untrusted                     # timer TM5: the wheel is made anew
    int error                          # errno of the last failure, 0: none
    int64_t retry_ms                   # steady: not before it, behind a failure
    int64_t safe_second                # timer TM5
    int64_t safe_offset
    int64_t second                     # the first that is not settled
    int64_t begun_position             # of the log when it began, or later
    int64_t safe_position              # the same of the second before: no delivery of `second` is below
    int64_t known_position             # the same of the process before
    int64_t held_second                # in which the last of what a search found was delivered, or a later one
    int64_t held_position              # of the log: where that search began
    bint begun                         # it has begun (timer TM1)
    bint more                          # of its slot than is in memory (timer TM7)
    int32_t collected_max              # timer TM7
    int64_t next_second                # no slot between `second` and this one has units
    TimerItems slot                    # of `second`, sorted
    int32_t slot_next                  # the next one to be handed over
    TimerItems late                    # a heap: late ones, and those that were refused
    int64_t flying[TIMER_KINDS]        # handed over, without result; by TimerKind
    int64_t refused                    # of the slot's that are in `late`
    int64_t waiting[SLOT_PARITIES]                 # late units that are not settled, by whether their slot is odd
    int64_t life_begin                 # of the timer log: late units from here on are in memory
    int64_t late_until                 # the last second whose slot has units of late messages
    int64_t lowest_late                # timer TM5: queue offset below which all late ones are settled
    int64_t read_to                    # timer TM8: queue offset
    int64_t rolled_to                  # timer TM6: queue offset behind the last one that was stored again
    int64_t made_to                    # timer TM5: the wheel is made from what lies before this queue offset
    bint rolled_anew                   # `rolled` is not sorted
    Positions rolled                   # timer TM6: log positions
    Recalls recalls
    Recalls far                        # timer TM6: messages of `second` that may have been stored again
    Positions found                    # of the log: from what was something made (timer TM3)
    int64_t pending                    # messages that are counted
    int64_t counted_to                 # of the timer log: units before it, and from life_begin on, are counted
    int64_t mark                       # timer TM9: queue offset up to where was read, -1: none ...
    int32_t mark_sent                  # ... when this append was the last one
