# Reads a connection's socket.
from mqcore.net.server cimport Connection, Server

# One read, and all whole frames of it as far as N9 lets it; 0: nothing came.
cdef ssize_t read_some(Server* s, Connection* c) noexcept nogil
# All that a peer sent before it went, then its end (N8); a full ring or N9 stops it for now.
cdef void handle_rest(Server* s, Connection* c) noexcept nogil
