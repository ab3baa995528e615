# Up to where who reads may see the log, where that is what would outlive the loss of a host
# (read_replicated_only). ReplicaGate in layout.pxd has the words.
#
#   G9   Shown is what who replicates has counted here, or a master has told of, or what lies below the epoch that
#        a master began: it began it with all of its log. Where masters are elected that waits until all who
#        may be elected next have it (leadership FO10). None of the three is ever cut; each only
#        grows in a run.
#   G10  A master that cannot tell, a stock one, is followed as it is: all that comes is shown.
from libc.stdint cimport int64_t

from mqcore.atomics cimport load_i32_acquire, load_i64_acquire
from mqcore.shm.segment cimport Shm

cdef inline int64_t replicated_end(Shm* shm) noexcept nogil:
    return max(load_i64_acquire(&shm.replica_gate.replicated), load_i64_acquire(&shm.replica_gate.told))

# Whether who leads does not yet show all that it began with: the former one may have shown it. What may be shown
# by now has no entries before it is dispatched.
cdef inline bint is_taking_over(Shm* shm) noexcept nogil:
    return load_i64_acquire(&shm.leadership.begun) > load_i64_acquire(&shm.log.dispatched)

cdef inline int64_t shown_end(Shm* shm, int64_t published) noexcept nogil:
    if load_i32_acquire(&shm.replica_gate.untold):
        return published
    return min(published, replicated_end(shm))
