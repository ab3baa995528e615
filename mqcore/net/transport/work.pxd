# How much is done for one connection before the others have their turn.
#
# Work is counted in units of about a nanosecond: frames, queue entries, bytes that are copied, steps
# of SQL92 programs and the bytes that these look at. No clock is read for it.
#
#   N9   A connection's requests are handled in a turn until its slice is used up, at least one frame or
#        one postponed pull. The rest stays in its buffer, and the connection is `deferred`: it is not
#        read. Deferred connections continue one after the other, DEFERRED_WORK in all a turn, behind
#        the new input of all others. Once a turn has lasted TURN_WORK, the slices of the others are as
#        small as they can be.
#   N20  Beginnings, steps of handshakes and ends of connections are what a crowd costs: they are counted
#        (`crowd_works`). They are done when a turn's answers have gone, CROWD_WORK a turn. The
#        first request of a connection comes with them; later ones are requests like all others.
#        A crowd that had more than CROWD_SHARE of the time lately, and CROWD_AHEAD_US beforehand,
#        waits while anybody else does: in this process, or for another one that was asked; but not for
#        longer than CROWD_REST_US. The kernel's backlog holds the rest, or refuses it.
from libc.stdint cimport int64_t

from mqcore.net.transport.transport cimport Connection, Transport

cdef enum:
    DEFERRED_SLICE_WORK = 100_000      # of a connection that is deferred, or was not long ago
    TURN_WORK = 2_000_000
    DEFERRED_WORK = 300_000            # of all deferred connections, in a turn
    TAKE_UP_WORK = 60                  # of looking at a deferred connection
    CROWD_WORK = 150_000
    CROWD_SHARE = 20                   # of work in a microsecond: a 50th of a core
    CROWD_AHEAD_US = 50_000
    CROWD_REST_US = 1_000
    EVENT_WORK = 2_000                 # of a read or send, beside what it brings
    ACCEPT_WORK = 15_000

cdef void work_begin_turn(Transport* t) noexcept nogil
cdef int64_t work_left(Transport* t, const Connection* c) noexcept nogil  # of its slice
cdef bint work_is_over(Transport* t, Connection* c) noexcept nogil      # its slice is used up
cdef void work_charge(Transport* t, Connection* c, int64_t began) noexcept nogil  # t.work was `began`
cdef void work_defer(Transport* t, Connection* c) noexcept nogil        # it continues with the deferred ones
# Before each whole frame of what came, `first` or not: whether transport N2 and N9 let it be
# handled now.
cdef bint frame_may_begin(Transport* t, Connection* c, bint first) noexcept nogil
