# HTTP/2 on the transport's connections: nghttp2 cuts the frames, here are the calls of one connection.
#
#   HT1  A call is served behind nghttp2's own call, never inside it: what serves it may end the
#        connection, and the session with it.
#   HT2  Calls are served in the order in which they were whole. One that has to wait (a full ring)
#        holds back the later ones of its connection, which is not read meanwhile (transport N3).
#   HT3  What nghttp2 allocates, and what a call holds, counts as its connection's memory (memory
#        N11).
#   HT4  Bytes are fed FEED_BYTES at a time, so that a connection gives way to others in the middle of
#        a read (work N9); a frame costs FRAME_WORK, whatever it holds.
#   HT5  Frames that nothing is made of (resets, settings, pings, empty ones) are counted: a connection
#        that sends IDLE_FRAMES_MAX more such frames than IDLE_FRAMES_A_CALL for each call is closed. So is
#        one with UNKNOWN_BYTES_MAX of frames that nghttp2 does not know, of which it says nothing.
#   HT6  The fields of a request are no more than FIELDS_BYTES_MAX, and a request no longer than
#        the largest message with its properties: else it is refused, and its bytes are passed over.
#   HT7  What a peer does not read stays in nghttp2 and in the calls; it counts (HT3), and is handed
#        to the transport as far as transport N2 lets it.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.net.grpc.streams cimport Call, Door, Session
from mqcore.net.transport.transport cimport Connection

cdef bint door_open(Door* door, int32_t connection_max) noexcept nogil         # False: no memory
cdef Session* session_of(const Connection* c) noexcept nogil                    # NULL: none yet
cdef Call* session_call(const Connection* c, int32_t id) noexcept nogil         # NULL: it is gone
# A message of a call that streams has its answer.
cdef void call_answered(Call* call) noexcept nogil
cdef int64_t session_bytes(Door* door, Connection* c, uint8_t* data,
                           int64_t length) noexcept nogil                       # Above.bytes_came
cdef void session_end(Connection* c) noexcept nogil
cdef void session_goodbye(Connection* c) noexcept nogil                         # GOAWAY
# Frames that wait, of all connections that take some.
cdef void door_pump(Door* door) noexcept nogil
