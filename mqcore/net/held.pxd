# Pulls that wait: for messages, or for old ones to be read from the disk (cold.pxd).
#
#   H1  A held pull is in one list: that of its queue, counting in `interest`; of the unborn ones; or
#       of those that wait for the disk.
#   H2  After it is listed, the queue's end is looked at once more (dispatch.pxd, D3).
#   H3  A held pull whose connection is gone, or whose time is over, leaves at the next tick.
#   H4  An arrival is looked at once by each held pull: it goes on from its cursor. When the group's
#       subscription has changed meanwhile, it begins anew from its offset, with what counts now.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from mqcore.net.server cimport Asker, Connection, HeldPull, Server
from mqcore.net.wanted cimport Wanted

cdef struct PullPlace:             # what of a pull its waiting needs
    const uint8_t* topic
    int32_t topic_length
    int32_t queue                  # number, -1: not born yet
    int32_t queue_id
    uint64_t queue_hash
    int64_t offset
    int32_t count_max

cdef void held_init(Server* s) noexcept nogil
cdef void held_clear(Server* s) noexcept nogil
# Keep the pull until a message comes or `wait_ms` is over; False: no room, answer it at once.
cdef bint hold(Server* s, Connection* c, const Asker* asker, const PullPlace* place,
               const Wanted* wanted, int64_t wait_ms) noexcept nogil
# Keep the pull until job `job` is finished; entries below `cursor` were looked at. False: no room.
cdef bint hold_cold(Server* s, Connection* c, const Asker* asker, const PullPlace* place,
                    const Wanted* wanted, int64_t cursor, int64_t job) noexcept nogil
cdef void take_arrivals(Server* s) noexcept nogil
cdef void take_cold(Server* s) noexcept nogil
cdef void look_at_held(Server* s, bint everything) noexcept nogil    # deadlines; or all of them
