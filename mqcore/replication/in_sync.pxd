# How far slaves have the log: the gate of acknowledgements, and the reports by which a set is kept.
from libc.stdint cimport int64_t

from mqcore.replication.links cimport Link, Master

# Of a member of an elected set; NULL: none that has reported.
cdef Link* link_of(Master* m, int64_t member) noexcept nogil
# Whether it is one that etcd names, as failover said last; 0 is none.
cdef bint is_named(const Master* m, int64_t member) noexcept nogil
# Which slave's link it is (master HM3), when it reports first.
cdef void number_slave(Master* m, Link* l) noexcept nogil
# Moves the gate by the links' reports (master HM3, HM9), and rings who waits for it.
cdef void in_sync_judge(Master* m) noexcept nogil
# Says what failover goes by (leadership FO2, FO3).
cdef void in_sync_report(Master* m, int64_t published, int64_t now_ms) noexcept nogil
