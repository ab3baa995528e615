# Connections whose frames Python answers, in its own time: those of a name server. Sockets, memory,
# TLS, crowds and slices are the transport's business; what a frame means is Python's.
#
#   FL1  Python has one frame of a connection at a time. Later input stays in the connection's
#        buffer, and the connection is not read (transport N3).
#   FL2  The frame that Python has counts as memory of its connection until it is done (memory N11);
#       a connection whose peer went meanwhile stays until all that it sent is done (transport N8).
from libc.stdint cimport int64_t

from mqcore.layout cimport WorkerSlot
from mqcore.net.transport.tls_context cimport TlsContext
from mqcore.net.transport.transport cimport Connection, Transport

cdef struct FramedPeer:
    Connection connection
    int64_t lent_bytes                 # FL1: bytes that count of the frame that Python has; 0: none

cdef struct Framed:
    Transport transport
    WorkerSlot slot                    # only this loop's
    void* loop                         # whose this is: the FramedLoop
    int64_t frame_bytes_max
    bint others_wait                   # work N20: there is work of Python's

cdef class FramedLoop:
    cdef Framed* f
    cdef list came
    cdef list listeners
    cdef TlsContext tls_context
