# Places of held pulls, and the lists that they are in (held.pxd, H1).
#
# Lists are circular, by the pulls' numbers. A list's word is its first pull + 1; 0: it is empty.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from mqcore.layout cimport TOPIC_LENGTH_MAX
from mqcore.net.serving.scan cimport Portion, Puller, StoreReader
from mqcore.net.serving.wanted cimport Match, Wants
from mqcore.net.transport.transport cimport Connection, Transport
from mqcore.shm.ring cimport Ring
from mqcore.shm.segment cimport Shm

cdef struct HeldLink:                  # of a circular list, by number
    int32_t next
    int32_t before

cdef enum:                             # the lists of held pulls
    HELD_PLACE = 0                    # of its queue, of the unborn queues, or of the disk (held H1)
    HELD_OWNER = 1                     # of its connection
    HELD_POSTPONED = 2                       # of its connection: in `due`
    HELD_LISTS = 3
    HELD_WORK = 500_000                # of a turn: for passes, and for the walk over all
    WALK_WORK = 10                     # of one place, in the walk over all

cdef struct HeldPull:
    uint64_t connection                # 0: the place is free
    HeldLink[HELD_LISTS] links                  # by HELD_PLACE, HELD_OWNER, HELD_POSTPONED
    int32_t pass_seen                     # held H7: the pass that it was looked at in
    bint postponed
    int64_t looked_ms                  # steady: when it was looked at last
    Puller puller
    int32_t queue                      # number in the queue table, -1: the queue is not born yet
    uint64_t queue_hash
    int32_t queue_id
    uint8_t topic_length
    uint8_t[TOPIC_LENGTH_MAX] topic
    Portion portion
    int64_t offset                     # that was asked for
    int64_t cursor                     # entries below it were looked at and did not match
    int64_t deadline_ms                # steady clock
    int64_t tell_ms                    # steady clock: then it is told how far the cursor is
    int64_t cold_job                   # the read that it waits for, in the list `cold`; 0: none
    int32_t access_sequence            # held H9: of the rules that let it in
    int32_t cold_rounds                # how often it has waited for the same
    Match match                        # codes and filter are its own
    int32_t subscription               # entry that it follows, -1: it brought its own
    int32_t sequence                   # of that entry, when `match` was made of it
    int32_t life                       # of that entry (tables T4)

cdef struct HeldPulls:
    Transport* transport
    Shm* shm
    StoreReader* reader
    Wants* wants
    Ring arrivals
    uint8_t* interest                  # of this process, by queue number (held H1)
    HeldPull* places
    int32_t capacity
    int32_t count
    int32_t free_place                 # first of the places that were given back, -1: none
    int32_t used                       # places that were ever taken
    int32_t* of_queue                  # first held pull + 1 by queue number; the last: the unborn
    int32_t* passes                    # held H7: by queue number, the pass over its pulls
    int32_t* pass_queues                # held H7: a ring of queues whose pulls are looked at
    uint8_t* in_pass
    int32_t pass_first
    int32_t pass_count
    int32_t walk                       # the place that is looked at next; `used`: none
    int64_t look_ms                    # steady: who was not looked at since is looked at
    uint64_t heaviest                  # who holds most (held H6) ...
    int64_t heaviest_turn              # ... in that turn
    int32_t queues_known               # queue count when the unborn were looked at last
    int32_t cold                       # first held pull + 1 that waits for the disk
    int32_t cold_count
    void* other                        # another front that hears of queues; NULL: none
    void (*arrived)(void* other, int32_t queue) noexcept nogil

cdef inline int32_t unborn(const HeldPulls* held) noexcept nogil:
    """The list of pulls whose queues have no number, beside those of the queues."""
    return held.shm.head.queue_capacity


cdef inline int32_t* list_of(HeldPulls* held, const HeldPull* pull) noexcept nogil:
    if pull.cold_job:
        return &held.cold
    return &held.of_queue[pull.queue if pull.queue >= 0 else unborn(held)]


cdef inline uint8_t* interest_in(HeldPulls* held, int32_t queue) noexcept nogil:
    return &held.interest[queue]


cdef inline int64_t filter_size(const HeldPull* pull) noexcept nogil:
    return pull.match.filter.size if pull.match.filter != NULL else 0


# Put a pull behind the last one of a list.
cdef void held_link(HeldPulls* held, int which, int32_t* first, int32_t number) noexcept nogil
cdef void held_unlink(HeldPulls* held, int which, int32_t* first, int32_t number) noexcept nogil
# Take a held pull out of all lists and give its place back.
cdef void held_release(HeldPulls* held, int32_t number) noexcept nogil
cdef void held_forget(HeldPulls* held, Connection* c) noexcept nogil     # held H3
