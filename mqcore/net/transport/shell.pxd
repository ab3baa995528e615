# The common part of the Python shells of loops.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.net.transport.tls_context cimport TlsContext
from mqcore.net.transport.transport cimport Transport

cdef str host_text(const uint8_t* address, bint is_v6)
# Connections closed by us since the last call: [("ip:port", CloseReason, detail)], how many more.
cdef tuple closed_events(Transport* t)
# TLS of connections that come from now on. mode: TlsMode; context: None: there is no certificate, else
# the caller keeps it; handshake_ms_max: how long one may take; handshake_count_max: how many at once.
cdef secure(Transport* t, int mode, TlsContext context, int64_t handshake_ms_max,
            int32_t handshake_count_max)
