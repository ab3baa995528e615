# TLS on a connection: what stands in for its socket. OpenSSL does the records; the bytes are brought
# to it, and what it may take is decided here.
#
#   TL1  The first byte of a connection says what it speaks: 0x16 begins a TLS handshake, which no frame
#        of ours begins with. `mode` says who is let in.
#   TL2  TLS 1.2 and 1.3 alone; no renegotiation, no compression. There is no table of sessions: what a
#        client needs to resume one travels with it, in one ticket.
#   TL3  Steps of handshakes are taken in a line of their own, first in first out, behind everybody's new
#        input: SHAKE_WORK in all a turn, or one step. Who is in the line is not read.
#   TL4  What OpenSSL keeps for a connection counts as its memory (N11): TLS_BYTES when it is idle,
#        SHAKE_BYTES in its handshake, RECORD_BYTES more while there is half a record.
#   TL5  epoll tells of the socket alone: who has bytes in OpenSSL is in the list `again`, and who has to
#        write before it can read, or the reverse, waits for the other event.
#   TL6  A peer that sends EMPTY_BYTES_MAX of records without a byte of data in them is closed.
#   TL7  A handshake takes `shake_ms_max` at most; `shake_max` are under way, for one more the oldest ends.
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
    EMPTY_BYTES_MAX = 64 << 10
    SHAKE_WORK = 300_000               # TL3
    STEP_WORK = 5_000
    FINISH_WORK = 60_000

# What was done of a handshake.
cdef enum ShakeStep:
    SHAKE_DONE = 0
    SHAKE_LATER = 1
    SHAKE_FAILED = 2

cdef bint tls_open(Transport* t) noexcept nogil                          # False: no memory
cdef void tls_use(Transport* t, const TlsLibrary* library) noexcept      # before there is a context
# TL1: it begins; False: it cannot, wire_reason says why.
cdef bint tls_begin(Transport* t, Connection* c) noexcept nogil
cdef ShakeStep tls_shake(Transport* t, Connection* c) noexcept nogil
# As wire_read and wire_send.
cdef int64_t tls_read(Transport* t, Connection* c, uint8_t* into, int64_t room) noexcept nogil
cdef int64_t tls_send(Transport* t, Connection* c, const uint8_t* data, int64_t length) noexcept nogil
cdef void tls_close(Transport* t, Connection* c) noexcept nogil          # before its socket is
