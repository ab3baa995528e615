# The line of handshakes (tls TL3), their time (tls TL7), and those whose bytes epoll does not tell
# of (tls TL5).
from mqcore.net.transport.transport cimport Transport

cdef bint handshakes_wait(Transport* t) noexcept nogil                   # the next turn does not sleep
cdef void handshakes_go_on(Transport* t) noexcept nogil              # tls TL5: their part of a turn
cdef void handshakes_turn(Transport* t) noexcept nogil            # tls TL3: behind everybody else's
cdef void handshakes_look(Transport* t) noexcept nogil                   # tls TL7, with each tick
