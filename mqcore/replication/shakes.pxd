# TLS handshakes of links (wire HW1, HW3): who begins one, and the thread that takes their steps.
from libc.stdint cimport int64_t

from mqcore.replication.links cimport Link, Master

# By its first byte; False: nothing is to be read now, or the link is closed.
cdef bint link_speaks(Master* m, Link* l) noexcept nogil
# Steps that are done, and the next ones.
cdef void shakes_turn(Master* m, int64_t now_ms) noexcept nogil
cdef bint shakes_wait(const Master* m) noexcept nogil            # whether a step is done
