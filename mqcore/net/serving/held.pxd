# Pulls that wait: for messages, or for old ones to be read from the disk (cold.pxd).
#
#   H1  A held pull is in one list: that of its queue, counting in `interest`; of the unborn ones; or
#       of those that wait for the disk.
#   H2  After it is listed, the queue's end is looked at once more (dispatch.pxd, D3).
#   H3  A held pull leaves with its connection at once, and when its time is over at the next tick.
#   H4  After an arrival each held pull of its queue is checked from the pull's cursor on. When the
#       group's subscription has changed meanwhile, the check begins again at the pull's offset, with
#       the new subscription.
#   H5  A connection holds at most `held_share` pulls, and filters of FILTER_SHARE_BYTES with them: a
#       further one is answered at once.
#   H6  When all places are taken and another pull wants one, the newest pull of the connection that
#       holds most is answered early, as if its time were over. That connection gets no further
#       place.
#   H7  An arrival starts a pass over its queue's pulls. The pass uses HELD_WORK units a turn, and
#       continues, queue after queue, until each pull was checked once. A pull whose connection has used
#       up its slice (work N9), or does not read (transport N2), is checked when that has changed.
#   H8  A connection may use a quarter of the free reads of the disk (cold J2). Its next pull waits
#       in its buffer (transport N3).
#   H9  Pulls that were held when access rules changed get nothing more: they are answered as if their
#       time were over, and who asks again is looked at anew (access AR3).
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from mqcore.net.serving.held_places cimport HeldPull, HeldPulls
from mqcore.net.serving.scan cimport Portion, Puller
from mqcore.net.serving.wanted cimport Wanted
from mqcore.net.transport.transport cimport Connection

cdef struct PullPlace:             # what of a pull its waiting needs
    const uint8_t* topic
    int32_t topic_length
    int32_t queue                  # number, -1: not born yet
    int32_t queue_id
    uint64_t queue_hash
    int64_t offset
    Portion portion

# Its memory; False: there is none.
cdef bint held_open(HeldPulls* held) noexcept nogil
cdef void held_clear(HeldPulls* held) noexcept nogil
# Keep the pull until a message comes or `wait_ms` is over; False: no room, answer it at once.
cdef bint hold(HeldPulls* held, Connection* c, const Puller* puller, const PullPlace* place,
               const Wanted* wanted, int64_t wait_ms) noexcept nogil
# Keep the pull until job `job` is finished; entries below `cursor` were looked at. False: no room.
cdef bint hold_cold(HeldPulls* held, Connection* c, const Puller* puller, const PullPlace* place,
                    const Wanted* wanted, int64_t cursor, int64_t job) noexcept nogil
cdef int32_t cold_share(const HeldPulls* held) noexcept nogil                # H8
# Look at pull `number`: answer it if something is there for it or its time is over.
cdef void check_pull(HeldPulls* held, int32_t number) noexcept nogil
# The same for a pull whose queue may have been born.
cdef void adopt(HeldPulls* held, int32_t number) noexcept nogil
# What it waited for is in memory; False: it waits for more.
cdef bint answer_from_disk(HeldPulls* held, Connection* c, HeldPull* pull) noexcept nogil
