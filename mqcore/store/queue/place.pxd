# Which queue a message may go to (names O1 to O4).
#
#   O5  A message opens a queue only if its topic has one of that number, as far as the topic is
#       known. One that waited elsewhere (a delay, a transaction) comes to a queue that its topic has
#       by then: topics shrink, and nothing is lost for that.
from libc.stdint cimport int32_t, uint8_t

from mqcore.layout cimport AppendHead
from mqcore.shm.segment cimport Shm

cdef bint queue_may_open(Shm* shm, const uint8_t* topic, int32_t length,
                         int32_t queue_id) noexcept nogil
# The number of a request's queue, which may be new; below 0: it can have none (names O3, O5)
cdef int32_t queue_of(Shm* shm, const AppendHead* head, const uint8_t* topic) noexcept nogil
# The queue id for a message that waited elsewhere; -1: there can be no such queue.
cdef int32_t queue_id_of_late(Shm* shm, const uint8_t* topic, int32_t length,
                              int32_t queue_id) noexcept nogil
