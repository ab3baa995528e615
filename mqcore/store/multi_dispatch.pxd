# Multi-dispatch: one record in more queues than its own (store.md 2.11). The property
# INNER_MULTI_DISPATCH names them; the writer gives the record an offset in each, in the property
# INNER_MULTI_QUEUE_OFFSET, and the dispatcher puts it there.
#
#   M1  An entry is made only for offsets that the writer gave: it takes whatever else a client sent
#       as INNER_MULTI_QUEUE_OFFSET out of the record.
#   M2  A queue's next_offset moves when the record is staged, and back when its write fails (A4).
#   M3  What waits elsewhere first (delayed and half messages, copies for retries and dead letters)
#       is in its own queue only; the message that comes of it is put into the named ones.
from libc.stdint cimport int32_t, uint8_t

cdef inline bint is_light_name(const uint8_t* name, int32_t length) noexcept nogil:
    """%LMQ%...: a light queue, or a group of one (remoting.md 9)."""
    return (length > 5 and name[0] == 37 and name[1] == 76 and name[2] == 77 and name[3] == 81
            and name[4] == 37)
