# TLS on a connection: what stands in for its socket. OpenSSL does the records; the bytes are brought
# to it, and what it may take is decided here.
#
#   TL1  The first byte of a connection says what it speaks: 0x16 begins a TLS handshake, which no frame
#        of ours begins with. `mode` says who is let in.
#   TL2  TLS 1.2 and 1.3 alone; no renegotiation, no compression. There is no table of sessions: what a
#        client needs to resume one travels with it, in one ticket.
#   TL3  A thread takes the steps of handshakes (shake_thread.pxd). Connections that wait for it
#        stand in the line of their address, first in first out; the lines take turns. A connection
#        in a line is not read.
#   TL4  What OpenSSL keeps for a connection counts as its memory (memory N11): TLS_BYTES when it is
#        idle, SHAKE_BYTES in its handshake, RECORD_BYTES more while there is half a record.
#   TL5  epoll tells of the socket alone: who has bytes in OpenSSL is in the list `again`, and who has to
#        write before it can read, or the reverse, waits for the other event.
#   TL6  A peer that sends EMPTY_BYTES_MAX of records without a byte of data in them is closed.
#   TL7  A handshake takes `shake_ms_max` at most; `shake_max` are under way, for one more the oldest ends
#        of the address that has most of them.
#   TL8  Records are counted as work when they come, however little is in them, and what peers say to
#        TLS itself in them. A call ends where the slice of its connection does; the rest waits in
#        `again`, whose calls have AGAIN_WORK in all a turn, or one call. Who is in it is not read besides.
#
# A context is taken by reference: connections made with an older one keep it.
from libc.stdint cimport int64_t, uint8_t

from mqcore.tls.library cimport TlsLibrary
from mqcore.net.transport.transport cimport Connection, Transport

cpdef enum TlsMode:
    TLS_DISABLED = 0
    TLS_PERMISSIVE = 1
    TLS_ENFORCING = 2

cdef enum:
    SHAKE_BYTES = 48 << 10
    RECORD_BYTES = 17 << 10
    STEP_WORK = 3_000                  # the loop's part of it
    FINISH_WORK = 10_000
    AGAIN_WORK = 300_000               # TL8
    CALL_WORK_MIN = 10_000             # every call gets on

# What was done of a handshake.
cdef enum ShakeStep:
    SHAKE_DONE = 0
    SHAKE_LATER = 1
    SHAKE_FAILED = 2

cdef bint tls_open(Transport* t) noexcept nogil                          # False: no memory
# Before there is a context; False: errno.
cdef bint tls_use(Transport* t, const TlsLibrary* library) noexcept nogil
cdef void tls_end(Transport* t) noexcept nogil                           # when all connections are closed
# TL1: it begins; False: it cannot, wire_reason says why.
cdef bint tls_begin(Transport* t, Connection* c) noexcept nogil
cdef void tls_line(Transport* t, Connection* c) noexcept nogil           # TL3: as the last of its line
# The next one in turn, which is in no line now; NULL: none.
cdef Connection* tls_next(Transport* t) noexcept nogil
# A step was taken for it: what became of its handshake.
cdef ShakeStep tls_shaken(Transport* t, Connection* c) noexcept nogil
# As wire_read and wire_send; a read ends when it has done tls.work_max (TL8).
cdef int64_t tls_read(Transport* t, Connection* c, uint8_t* into, int64_t room) noexcept nogil
cdef int64_t tls_send(Transport* t, Connection* c, const uint8_t* data, int64_t length) noexcept nogil
# Before its socket is; False: that is closed by others (shake_thread TL9).
cdef bint tls_close(Transport* t, Connection* c) noexcept nogil
