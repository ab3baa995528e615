# A connection as serving sees it: what each of its rooms keeps for one, behind what the transport does.
#
# Of what the coordinator is told, three words are independent of the transport's states: `known` (it
# has heard of the connection, and hears of its end), `tell_below` of the connection (it was told that
# the peer does not read, answers N6), `long_place` (it has the first parts of a frame,
# forward N15).
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint64_t
from libc.string cimport memcpy

from mqcore.endian cimport store_i32
from mqcore.layout cimport HOST_V4_SIZE, HOST_V6_SIZE, LimitPlace
from mqcore.net.requests cimport Asker, Front
from mqcore.net.transport.transport cimport Connection

cdef enum:
    ASKED_BUCKETS = 8                  # topics by hash; one more for sends whose topic is not known

cdef struct AskedRequest:              # asked.pxd
    int64_t number                     # of all that were asked, in order
    int32_t opaque
    bint binary

cdef struct ForwardShare:              # forward.pxd
    bint known                         # the coordinator has heard of it
    uint8_t* kept         # forward N22: its last heartbeat and goodbyes since, each with its length
    int32_t heartbeat_length           # of that with its word; 0: nothing is kept
    int32_t kept_length
    int32_t kept_capacity
    int32_t count                      # forward N5: shares of its frames with the coordinator ...
    int64_t bytes                      # ... and their bytes
    int32_t long_sent                  # bytes of its first frame that are in `requests` already
    int32_t long_place                 # of Forwarding.long_frames, + 1; 0: none
    int64_t long_ticket               # forward N15: its place in the line for one; 0: it wants none
    int32_t questions                  # forward N24: that the coordinator asked, without an answer
    AskedRequest* asked                # asked N16: what the coordinator owes it, the oldest first
    int32_t asked_count
    int32_t asked_capacity

cdef struct ParkShare:                 # parked.pxd
    int32_t asked_count                # send N7: its sends that are parked ...
    uint16_t[ASKED_BUCKETS + 1] asked  # ... by bucket of their topic; the last: topic not known
    int32_t count                      # all that is parked of it ...
    int64_t bytes

cdef struct HeldShare:                 # held.pxd; postponed pulls are in Connection.postponed
    int32_t first                      # its held pulls, first + 1, the oldest first (held H5)
    int32_t count
    int32_t cold_count                 # ... that wait for the disk
    int64_t filter_bytes               # of the filters that they hold

cdef enum:                             # whose limits
    OF_ADDRESS = 0
    OF_ACCOUNT = 1
    WHOSE_COUNT = 2

cdef struct LimitShare:                # limits.pxd
    LimitPlace* places[WHOSE_COUNT]    # NULL: it is not limited
    uint64_t account                   # key that was looked up
    int32_t in_flight                  # requests without an answer ...
    int32_t sends                      # ... and of these: that the writer has
    int64_t sent_seen                  # of Connection.sent: is charged

cdef struct Peer:
    Connection connection              # the first: a Connection* is a Peer*
    const Front* front                 # what it speaks
    bint fast_port
    bint pops                          # the owner of POP's state has had one of its frames
    uint8_t[HOST_V6_SIZE] host         # as a record's born host
    int32_t host_size
    ForwardShare forwarding
    ParkShare parked
    HeldShare held
    LimitShare limits


cdef inline Peer* peer_of(const Connection* c) noexcept nogil:
    return <Peer*>c


cdef inline void peer_address(Peer* peer) noexcept nogil:
    """Its address as a record's born host."""
    peer.host_size = HOST_V6_SIZE if peer.connection.address_is_v6 else HOST_V4_SIZE
    memcpy(peer.host, peer.connection.address, peer.host_size - 4)
    store_i32(peer.host + peer.host_size - 4, peer.connection.port)


cdef inline ForwardShare* forwarding_of(const Connection* c) noexcept nogil:
    return &(<Peer*>c).forwarding


cdef inline ParkShare* parked_of(const Connection* c) noexcept nogil:
    return &(<Peer*>c).parked


cdef inline HeldShare* held_of(const Connection* c) noexcept nogil:
    return &(<Peer*>c).held


cdef inline LimitShare* limits_of(const Connection* c) noexcept nogil:
    return &(<Peer*>c).limits


cdef inline void say(Connection* c, const Asker* asker, int32_t code,
                     const char* remark) noexcept nogil:
    """An answer of code and remark alone, if one is waited for."""
    if not asker.oneway:
        peer_of(c).front.say(peer_of(c).front.self, c, asker, code, remark)
