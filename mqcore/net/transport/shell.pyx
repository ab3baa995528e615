"""Of a transport what Python is told, and tells it."""
import socket

from libc.errno cimport errno

from mqcore.layout cimport ADDRESS_V4_SIZE, ADDRESS_V6_SIZE
from mqcore.net.transport.tls cimport tls_use
from mqcore.net.transport.transport cimport CloseEvent


cdef str host_text(const uint8_t* address, bint is_v6):
    size = ADDRESS_V6_SIZE if is_v6 else ADDRESS_V4_SIZE
    return socket.inet_ntop(socket.AF_INET6 if is_v6 else socket.AF_INET,
                            (<const char*>address)[:size])


cdef tuple closed_events(Transport* t):
    cdef CloseEvent* event
    result = []
    for i in range(t.event_count):
        event = &t.events[i]
        address = host_text(event.address, event.address_is_v6)
        result.append((f"{address}:{event.port}", event.reason, event.detail))
    lost = t.events_lost
    t.event_count = 0
    t.events_lost = 0
    return result, lost


cdef secure(Transport* t, int mode, TlsContext context, int64_t handshake_ms_max,
            int32_t handshake_count_max):
    """Raises OSError."""
    t.tls.mode = mode
    t.tls.shake_ms_max = handshake_ms_max
    t.tls.shake_max = handshake_count_max
    t.tls.context = NULL
    if context is not None:
        if not tls_use(t, context.library):
            raise OSError(errno, "a thread for TLS handshakes")
        t.tls.context = context.context
