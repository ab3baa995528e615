# What the appender does about a disk that refuses (append A4, A5).
from mqcore.store.log.appender cimport Appender

# The staged bytes to their place, tried again at once where that may help; 0 or errno.
cdef int write_staged(Appender* a) noexcept nogil
# Requests are refused from now on; `otherwise`: the Refusal if the disk is not just full.
cdef void disk_refuses(Appender* a, int error, int otherwise) noexcept nogil
# What a failed write left behind the end is wiped; False: it stays there, nothing may be taken.
cdef bint leftovers_wipe(Appender* a) noexcept nogil
# Looks whether the disk takes writes again, and then requests are taken.
cdef void disk_probe(Appender* a) noexcept nogil
