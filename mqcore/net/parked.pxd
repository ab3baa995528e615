# Parked requests: frames that wait here until the coordinator says what to do with them.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.net.server cimport Connection, ParkedRequest, Server
from mqcore.wire.header cimport Header

cdef enum Park:
    PARK_NOT = 0
    PARK_REQUEST = 1
    PARK_SEND = 2                      # later sends to its topic do not pass it (N7)
    PARK_UNREAD = 3                    # its header was not read: it may be a send to any topic

# A copy of a frame, kept as `park` says; NULL: there are too many, or no memory.
cdef ParkedRequest* park_frame(Server* s, Connection* c, const uint8_t* frame, int32_t length,
                               int32_t header_length, const Header* header,
                               int park) noexcept nogil
# False: the connection has its share of the places, or of the bytes: half of what is free to one that
# has some already. It waits (N3) until there are fewer.
cdef bint may_park(const Server* s, const Connection* c, int32_t length) noexcept nogil
cdef void drop_parked(Server* s, ParkedRequest* parked) noexcept nogil
cdef void drop_old_parked(Server* s) noexcept nogil
