# A short look for what is about to come, before a process sleeps: to be woken takes longer than that.
#
#   LN1  It lasts LINGER_US at most, and whoever else wants the processor has it meanwhile.
#   LN2  Behind one in vain the next ones are left out, each time twice as many: where others keep the
#        processors busy it costs next to nothing.
from libc.stdint cimport int64_t

from mqcore.clock cimport steady_us

cdef extern from "<sched.h>" nogil:
    int linger_yield "sched_yield"()

cdef enum:
    LINGER_US = 40
    LINGER_LEFT_OUT_MAX = 63

cdef struct Linger:
    int vain                          # how many were left out behind the last one; 0: it was not in vain
    int left_out                      # of them are to come
    int64_t count


cdef inline int64_t linger_begin(Linger* l) noexcept nogil:
    """Until when, in us of the steady clock; 0: this one is left out."""
    if l.left_out > 0:
        l.left_out -= 1
        return 0
    l.count += 1
    return steady_us() + LINGER_US


cdef inline bint linger_on(int64_t end_us) noexcept nogil:
    """Whether to look again (LN1)."""
    linger_yield()
    return steady_us() < end_us


cdef inline void linger_end(Linger* l, bint came) noexcept nogil:
    l.vain = 0 if came else min(2 * l.vain + 1, <int>LINGER_LEFT_OUT_MAX)
    l.left_out = l.vain
