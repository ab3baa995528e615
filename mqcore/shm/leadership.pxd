# Who leads, while that is elected by etcd: the words between those who decide (mqcore/failover), those
# who carry it out (mqcore/workers/failover/elected.py), and those who answer clients (Leadership in
# layout.pxd). Without an election `role` says nothing, and none of this is asked.
#
#   FO1  A message is acknowledged (0) when all others of the set have reported it, at least min_in_sync of
#       them, and the deadline has not passed. The set is that of `state` in etcd, and who is waited for
#       beside it (FO3, FO4). So whoever of the set leads next has it, whatever clocks say.
#   FO2  A member that has not had all there was for in_sync_timeout_ms leaves the set: by a transaction
#       first, and only when etcd shows it is it waited for no longer. At least min_in_sync others stay in,
#       however late they are. One that has neither a key in etcd nor a link leaves at once, where as many
#       others stay. While all others are late by a quarter of that time none leaves for a lease's time
#        more: another one may lead (FO11).
#   FO3  A member comes in when it is near the end: it is waited for first, and when ha-master does so and it
#       has reported what was acknowledged before, also by those who led before, a transaction puts it into
#       the set, with its store. A member is waited for, and reports, by its number (members.py), which
#       another store or another broker with its id has not.
#   FO4  An answer of etcd that is lost leaves open whether its transaction was made, or will be. Nothing
#       follows from it before the keys were read again; and who may have come in by it is waited for until
#       `state` has another revision, by which the lost transaction can be made no more. What a process asked
#       before it died is lost: its successor waits for whom it has waited, until then.
#   FO5  Past the deadline no result is published to a client as 0: it is 11.
#   FO6  The deadline is CLOCK_BOOTTIME before the lease was asked for, and the lease's time less a tenth. A
#       lease is never prolonged: a new one is granted, and a transaction gives it to the key. Both go through
#       etcd's log, so that no member of etcd that leads no more can have said it.
#   FO7  Without `state`, the members show themselves for the time of a lease; then the one with the greatest
#       (epoch, end, least id) makes it, and is alone in the set.
#   FO8  With `state`, only a member of the set, with the store that it came in with, claims `master`, where
#       there is none or one of its own last run, and `state` is as it was read: its epoch grows by
#       one, the set stays. Those that have not most of the log wait OTHERS_WAIT_MS longer, and take over
#       from no run of their own.
#   FO9  Who led, and finds that its lease ran out and `state` is as it left it, takes `master` again in the
#       same epoch. Who finds that another one was elected follows, and begins its run anew.
#   FO10  Who is elected shows what it knows that others have, and the rest of what its log had when its epoch began
#       as soon as all others of the set have reported that, but for the one that led in the last epoch of
#       that log: it came from there. So whoever is elected next shows the same.
#   FO11  Who leads gives it up when its log takes no messages and another one of the set has a key in etcd;
#       or when for in_sync_timeout_ms fewer than min_in_sync others of the set have taken anything of its log,
#       and more than that have a key. With it, and with an orderly end, it takes itself out of the set where enough
#       stay, and after a sync that failed in any case: what is on its disk is not known. It comes in again
#       as all do (FO3), when it has stored what there is. Whose log takes nothing claims after all others.
#   FO12  Who leads writes into `state` from where on the set keeps the log: behind what it has deleted itself,
#       and behind what is so old that each may delete it. A member whose log begins later lacks something. It
#       leaves the set, and does not come in, while min_in_sync others are near that lack nothing. It claims as
#       one whose log takes nothing does (FO11), and no leader gives up for it because its own log takes nothing.
#   FO13  A member writes into etcd, without lease, up to where its disk has what it knows all of the set to have
#        (`kept`), and the epoch of the last byte below. Such bytes are never cut, and no loss of power takes them.
#        A log that ends before that, or has an earlier epoch there, was set back to a snapshot, or its disk has
#        lost bytes that it had synced: before anything else its store draws another identity, and so counts as a
#        new one (FO8), which comes in as all do (FO3).
from libc.stdint cimport int64_t

from mqcore.atomics cimport load_i64_acquire
from mqcore.clock cimport boot_ns
from mqcore.layout cimport LEADERSHIP_BITS, LEADERSHIP_LEADS, LEADERSHIP_NONE
from mqcore.shm.segment cimport Shm

# What a word of it says: LEADERSHIP_NONE, _FOLLOWS or _LEADS.
cdef inline int leadership_of(const int64_t* word) noexcept nogil:
    return <int>(load_i64_acquire(word) & ((1 << LEADERSHIP_BITS) - 1))

# Whether this broker takes messages of clients.
cdef inline bint leadership_leads(Shm* shm) noexcept nogil:
    return leadership_of(&shm.leadership.role) == LEADERSHIP_LEADS

# Whether this broker's log is another one's; settled: what it is where nobody is elected.
cdef inline bint leadership_follows(Shm* shm, bint settled) noexcept nogil:
    cdef int role = leadership_of(&shm.leadership.role)
    return settled if role == LEADERSHIP_NONE else role != LEADERSHIP_LEADS

# Whether who leads may say now that a message is safe.
cdef inline bint leadership_holds(Shm* shm) noexcept nogil:
    return boot_ns() < load_i64_acquire(&shm.leadership.deadline_ns)

# The same of any broker: where nobody is elected, nothing forbids it (FO5).
cdef inline bint leadership_is_safe(Shm* shm) noexcept nogil:
    return leadership_of(&shm.leadership.role) == LEADERSHIP_NONE or leadership_holds(shm)
