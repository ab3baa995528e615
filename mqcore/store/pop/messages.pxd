# The mechanics of unsettled messages: their memory, their places by offset, the heap of due times, the lists.
# Callers keep the rules of pop.pxd; nothing here writes the journal.
from libc.stdint cimport int32_t, int64_t

from mqcore.store.pop.state cimport (
    MESSAGES_OF_CHUNK,
    MESSAGES_OF_CHUNK_BITS,
    PopMessage,
    PopQueue,
    PopState,
)


cdef inline PopMessage* message_at(const PopState* s, int32_t message) noexcept nogil:
    return &s.chunks[message >> MESSAGES_OF_CHUNK_BITS][message & (MESSAGES_OF_CHUNK - 1)]


cdef inline int64_t committed_of(const PopState* s, const PopQueue* q) noexcept nogil:      # pop PO8
    return message_at(s, q.first).offset if q.first >= 0 else q.next


# The unsettled message of an offset, NO_MESSAGE.
cdef int32_t message_find(const PopState* s, const PopQueue* q, int64_t offset) noexcept nogil
# A new one behind the queue's last, in no list yet; NO_MESSAGE: no memory, or as many as there may be.
cdef int32_t message_add(PopState* s, PopQueue* q, int64_t offset) noexcept nogil
# Into the heap, and into its client's list.
cdef void message_hide(PopState* s, PopQueue* q, int32_t message, int64_t due_ms,
                       int32_t client) noexcept nogil
# Out of the heap and its client's list, or out of the ready list.
cdef void message_lift(PopState* s, PopQueue* q, int32_t message) noexcept nogil
# To the end of the ready list; wakes the queue.
cdef void message_show(PopState* s, PopQueue* q, int32_t message) noexcept nogil
cdef int64_t message_due(const PopState* s, int32_t message) noexcept nogil
# An invisible message is due at another time.
cdef void message_postpone(PopState* s, int32_t message, int64_t due_ms) noexcept nogil
# All due times were changed.
cdef void heap_order(PopState* s) noexcept nogil
# Forgets it: its memory is free.
cdef void message_settle(PopState* s, PopQueue* q, int32_t message) noexcept nogil
cdef void queue_wake(PopState* s, PopQueue* q) noexcept nogil
# The committed offset may have changed.
cdef void queue_commits(PopState* s, PopQueue* q) noexcept nogil
# A list of queues, POP_WOKEN or POP_COMMITS: puts one behind the last; takes one out; takes the first, NULL: none.
cdef void queue_list(PopState* s, PopQueue* q, int which) noexcept nogil
cdef void queue_unlist(PopState* s, PopQueue* q, int which) noexcept nogil
cdef PopQueue* queue_take_listed(PopState* s, int which) noexcept nogil
