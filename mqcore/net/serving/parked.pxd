# Parked requests: frames that wait here until the coordinator says what to do with them.
from libc.stdint cimport int32_t, int64_t, uint64_t, uint8_t

from mqcore.net.remoting.frames cimport Request
from mqcore.net.requests cimport Asker
from mqcore.net.transport.transport cimport Connection, Transport

cdef enum:
    PARKED_COUNT_MAX = 4096

cdef enum Park:
    PARK_NOT = 0
    PARK_REQUEST = 1
    PARK_SEND = 2                      # later sends to its topic do not pass it (send N7)
    PARK_UNREAD = 3                    # its header was not read: it may be a send to any topic

cdef struct ParkedRequest:
    int32_t id                         # 0: free
    uint64_t connection
    int64_t since_ms
    uint8_t* frame                     # without length word
    int32_t length
    int32_t header_length
    Asker asker
    int32_t bucket                     # send N7: of ParkShare.asked; -1: no send

cdef struct Parking:
    Transport* transport
    ParkedRequest* places              # PARKED_COUNT_MAX
    int32_t count
    int32_t next                       # where a free one is looked for
    int64_t bytes
    int64_t bytes_max
    int64_t coordinator_since_ms       # steady: when the coordinator was last seen to be another one

cdef bint parking_open(Parking* p) noexcept nogil                      # False: no memory
# A copy of a frame, kept as `park` says; NULL: there are too many, or no memory.
cdef ParkedRequest* park_frame(Parking* p, Connection* c, const Request* request,
                               int park) noexcept nogil
# False: the connection has its share of the places, or of the bytes (half HR1; a first one always
# fits). It waits (transport N3) until there are fewer.
cdef bint may_park(const Parking* p, const Connection* c, int32_t length) noexcept nogil
cdef void drop_parked(Parking* p, ParkedRequest* parked) noexcept nogil
# Requests that the coordinator has not answered for long, or whose coordinator has died: it is busy.
cdef void answer_old_parked(Parking* p) noexcept nogil
