# Rounds over the undecided half messages (broker.md 5.4 to 5.6).
#
#   B1  A half message is settled only when its copy, or its place among the given up, is stored. If
#       the writer refuses, the next round looks at it again.
#   B2  A check asks about the copy: it is sent after the copy is stored, with the copy's places.
#   B3  Before a half message is found undecided, and before a question about it is sent, every op
#       record that is dispatched was looked at.
#   B4  At most FLIGHTS copies are on their way, and PACE_PER_MS a millisecond are made: a round over
#       a million takes its turn among the sends.
#   B5  How long a half message has waited is counted on the steady clock from its store time on
#       (store_clock T9), whatever the wall clock is set to meanwhile. What its born time adds is
#       how old it was when it was stored: no more than has passed since our wall clock showed its
#       born time (store_clock T10), and 0
#       if a step of the clock left that time out.
#   B6  A message's own properties never delay questions about others: only its store time ends a
#       round. A message that says it was born later is skipped until that time, and is immune only
#       if the difference is at most transactionTimeOut, a clock that is ahead.
from libc.stdint cimport int32_t, int64_t

from mqcore.layout cimport StoreClock
from mqcore.shm.ring cimport Ring
from mqcore.shm.segment cimport Shm
from mqcore.store.log.append_end cimport AppendEnd
from mqcore.store.queue.half_queue cimport HalfQueue

cdef enum:
    FLIGHTS = 256                      # B4; a power of two
    LOOKS_AT_ONCE = 256
    PACE_PER_MS = 21                   # B4: 21,000 questions a second
    PACE_BEHIND_MS = 4                 # of lost time that is made good

cdef enum Action:
    ACTION_PUT_BACK = 1                # too young to be asked about (broker.md 5.5)
    ACTION_CHECK = 2
    ACTION_GIVE_UP = 3
    ACTION_PASS = 4                    # nothing in this round

cdef enum Step:
    STEP_MORE = 0
    STEP_WAIT = 1                      # for results, or for room in a ring
    STEP_DONE = 2

cdef struct Flight:
    int64_t half_offset
    int64_t check_times
    int64_t original                   # what it is a copy of, -1: that does not matter
    int64_t born_ms                    # of the message
    int32_t action
    int32_t writer                     # incarnation that it was given to
    int32_t tag                        # comes back with the result

cdef struct CheckRound:
    Shm* shm
    StoreClock clock                   # our copy of the run's
    HalfQueue halves
    AppendEnd appends
    Ring checks
    int64_t timeout_ms                 # transactionTimeOut
    int64_t check_max                  # transactionCheckMax
    int64_t reserved_ms                # fileReservedTime
    # the round
    int64_t started_ms                 # steady clock
    int64_t cursor                     # half offset
    int64_t end                        # of the half queue when it began
    bint over                          # nothing more is looked at, flights land
    bint refused                       # the writer refused something
    int32_t opaque
    int32_t next_tag
    int64_t budget                     # copies that may be made now
    int64_t budget_ms                  # when it was given, steady clock
    Flight flights[FLIGHTS]
    int32_t flight_first
    int32_t flight_count
    bint topic_told                    # the coordinator knows of the topic of the given up
    int64_t told_half                  # what the coordinator was told last
    int64_t told_op
    int32_t told_coordinator           # incarnation
    int landing                        # why the next result waits
    int32_t check_room                 # bytes that the next check needs
    int64_t oldest_copy                # half offset of the oldest message that was put back, -1: none
    int64_t oldest_born_ms

# Landing: what became of the next result that the writer gave.
cdef enum Landing:
    LANDED = 0
    LANDING_NO_ROOM = 1                # for the check about it, in the coordinator's ring
    LANDING_NOT_YET = 2                # its bytes are still in the transient pool

# now_ms: on the steady clock.
cdef void round_begin(CheckRound* round, int64_t now_ms) noexcept nogil
cdef int round_step(CheckRound* round, int64_t now_ms) noexcept nogil                     # Step
# How far both queues are settled, to shared memory; what is on its way stays to be seen.
cdef void round_advance(CheckRound* round) noexcept nogil
cdef void keep_pace(CheckRound* round, int64_t steady) noexcept nogil                     # B4
# Of the oldest undecided message, 0: there is none; one that became the oldest because an older one
# was ended is known from the next round on.
cdef int64_t oldest_born_ms(CheckRound* round) noexcept nogil
