# Rules that hold at every moment, looked at where that is cheap: in the debug build alone
# (`make debug`) a broken one ends the process with its name, file and line. Elsewhere the condition
# is compiled and not evaluated: it is one expression, for Cython evaluates `and`, `or` and `if` of
# an argument before the call, in every build.
#
# rule: its number in the .pxd that states it, e.g. "R1"; or the few words that say it.
cdef extern from "mq_invariant.h" nogil:
    void invariant "mq_invariant"(const char* rule, bint condition) noexcept
