# The state of POP and its queues, found and made by their names (pop.pxd has the rules).
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.store.pop.state cimport PopQueue, PopState

# Memory for queue_max (group, topic, queue id) and messages_max messages is taken when it is needed; False: none, or a limit
# is out of bounds.
cdef bint pop_begin(PopState* s, int32_t queue_max, int32_t messages_max) noexcept nogil
cdef void pop_end(PopState* s) noexcept nogil

cdef struct PopPlace:                  # what pop_open asks for
    const uint8_t* group
    int32_t group_length
    const uint8_t* topic
    int32_t topic_length
    int32_t queue_id
    int64_t life                       # >= 0: another number when group or topic was made anew
    int64_t least                      # the queue's min and max offset
    int64_t end
    int64_t committed                  # the group's offset in the table, -1: none
    int64_t start                      # where a group without an offset begins
    bint fifo

# The queue, made if it is new; NULL: too many, a name or number out of bounds, or no memory. It is valid
# until the next pop_open or pop_forget.
cdef PopQueue* pop_open(PopState* s, const PopPlace* place) noexcept nogil
cdef PopQueue* pop_find(PopState* s, const uint8_t* group, int32_t group_length,
                        const uint8_t* topic, int32_t topic_length,
                        int32_t queue_id) noexcept nogil
cdef void pop_forget(PopState* s, PopQueue* q) noexcept nogil
# Forgets a queue that was read when the record of its proof_offset is not there (pop PO11).
cdef void pop_confirm(PopState* s, PopQueue* q, int64_t log_position) noexcept nogil
cdef void pop_forget_group(PopState* s, const uint8_t* group, int32_t length) noexcept nogil
cdef void pop_forget_topic(PopState* s, const uint8_t* topic, int32_t length) noexcept nogil
# Others have set the group's offset: forward, what is below is settled; back, all begins there anew.
cdef void pop_moved(PopState* s, PopQueue* q, int64_t offset) noexcept nogil

# -- for the other modules of this room

# A new one at a number, NO_QUEUE: any free one. NULL: none free, no memory, names out of bounds.
cdef PopQueue* queue_make(PopState* s, int32_t number, const uint8_t* group, int32_t group_length,
                          const uint8_t* topic, int32_t topic_length,
                          int32_t queue_id) noexcept nogil
cdef bint is_named(const PopQueue* q, const uint8_t* group, int32_t group_length,
                   const uint8_t* topic, int32_t topic_length) noexcept nogil
# Without a record in the journal.
cdef void queue_remove(PopState* s, PopQueue* q) noexcept nogil
# Unsettled messages in [least, end) are settled.
cdef void settle_range(PopState* s, PopQueue* q, int64_t least, int64_t end) noexcept nogil
# The offsets below `least`, and from `end` on, are not in the queue (pop PO10).
cdef void queue_raise(PopState* s, PopQueue* q, int64_t least) noexcept nogil
cdef void queue_clip(PopState* s, PopQueue* q, int64_t end) noexcept nogil
cdef void queue_reset(PopState* s, PopQueue* q, int64_t next) noexcept nogil
