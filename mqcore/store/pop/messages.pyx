"""Memory, places, heap and lists of unsettled messages (messages.pxd)."""
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc

from mqcore.invariants cimport invariant
from mqcore.store.pop.state cimport (
    MESSAGES_OF_CHUNK,
    MESSAGES_OF_CHUNK_BITS,
    NO_CLIENT,
    NO_MESSAGE,
    NO_QUEUE,
    POP_COMMITS,
    POP_QUEUE_MESSAGES_MAX,
    POP_WOKEN,
    READY_AGAIN,
    PopDue,
    PopMessage,
    PopQueue,
    PopState,
)

cdef enum:
    PLACES_FIRST = 16
    PLACES_KEPT = 1024                 # an empty queue keeps a table up to this size
    WORD_BITS = 64

cdef uint64_t GOLDEN = 0x9E3779B97F4A7C15


# -- places by offset ------------------------------------------------------------------------------


cdef inline int32_t home_of(int64_t offset, int32_t room) noexcept nogil:
    return <int32_t>((<uint64_t>offset * GOLDEN) >> (WORD_BITS // 2)) & (room - 1)


cdef int32_t message_find(const PopState* s, const PopQueue* q, int64_t offset) noexcept nogil:
    cdef int32_t at
    if q.room == 0:
        return NO_MESSAGE
    at = home_of(offset, q.room)
    while q.places[at] >= 0:
        if message_at(s, q.places[at]).offset == offset:
            return q.places[at]
        at = (at + 1) & (q.room - 1)
    return NO_MESSAGE


cdef void put_place(PopState* s, PopQueue* q, int32_t message) noexcept nogil:
    cdef int32_t at = home_of(message_at(s, message).offset, q.room)
    while q.places[at] >= 0:
        at = (at + 1) & (q.room - 1)
    q.places[at] = message


cdef bint grow_places(PopState* s, PopQueue* q) noexcept nogil:
    cdef int32_t room = max(2 * q.room, <int32_t>PLACES_FIRST), i
    cdef int32_t* places
    if 2 * (q.count + 1) <= q.room:
        return True
    places = <int32_t*>malloc(room * sizeof(int32_t))
    if places == NULL:
        return False
    for i in range(room):
        places[i] = NO_MESSAGE
    free(q.places)
    q.places = places
    q.room = room
    i = q.first
    while i >= 0:
        put_place(s, q, i)
        i = message_at(s, i).next
    return True


cdef void leave_place(PopState* s, PopQueue* q, int32_t message) noexcept nogil:
    """Those behind it move up, so that no search ends too early."""
    cdef int32_t mask = q.room - 1, at, hole, home
    hole = home_of(message_at(s, message).offset, q.room)
    while q.places[hole] != message:
        hole = (hole + 1) & mask
    at = hole
    while True:
        at = (at + 1) & mask
        if q.places[at] < 0:
            break
        home = home_of(message_at(s, q.places[at]).offset, q.room)
        if ((at - home) & mask) >= ((at - hole) & mask):
            q.places[hole] = q.places[at]
            hole = at
    q.places[hole] = NO_MESSAGE
    if q.count == 0 and q.room > PLACES_KEPT:
        free(q.places)
        q.places = NULL
        q.room = 0


# -- memory ----------------------------------------------------------------------------------------


cdef bint make_chunk(PopState* s) noexcept nogil:
    """Messages and their places in the heap: no later step needs memory for these."""
    cdef int32_t chunk = s.made >> MESSAGES_OF_CHUNK_BITS
    cdef void* heap
    if s.made >= s.messages_max:
        return False
    heap = realloc(s.heap, <size_t>(s.made + MESSAGES_OF_CHUNK) * sizeof(PopDue))
    if heap == NULL:
        return False
    s.heap = <PopDue*>heap
    s.chunks[chunk] = <PopMessage*>malloc(MESSAGES_OF_CHUNK * sizeof(PopMessage))
    if s.chunks[chunk] == NULL:
        return False
    s.made += MESSAGES_OF_CHUNK
    return True


cdef int32_t message_add(PopState* s, PopQueue* q, int64_t offset) noexcept nogil:
    cdef int32_t message
    cdef PopMessage* m
    if s.count >= s.messages_max or not grow_places(s, q):
        return NO_MESSAGE
    if s.free >= 0:
        message = s.free
        s.free = message_at(s, message).next
    elif s.used < s.made or make_chunk(s):
        message = s.used
        s.used += 1
    else:
        return NO_MESSAGE
    m = message_at(s, message)
    m.offset = offset
    m.pop_ms = 0
    m.invisible_ms = 0
    m.queue = q.number
    m.attempts = 0
    m.renewals = 0
    m.client = NO_CLIENT
    m.left = m.right = NO_MESSAGE
    m.place = READY_AGAIN
    m.previous = q.last
    m.next = NO_MESSAGE
    if q.last >= 0:
        invariant("PO1", message_at(s, q.last).offset < offset)
        message_at(s, q.last).next = message
    else:
        q.first = message
    q.last = message
    put_place(s, q, message)
    q.count += 1
    s.count += 1
    return message


cdef void message_settle(PopState* s, PopQueue* q, int32_t message) noexcept nogil:
    cdef PopMessage* m = message_at(s, message)
    message_lift(s, q, message)
    if m.previous >= 0:
        message_at(s, m.previous).next = m.next
    else:
        q.first = m.next
        queue_commits(s, q)
    if m.next >= 0:
        message_at(s, m.next).previous = m.previous
    else:
        q.last = m.previous
    q.count -= 1
    s.count -= 1
    leave_place(s, q, message)
    m.next = s.free
    m.queue = NO_QUEUE
    s.free = message
    if q.count == POP_QUEUE_MESSAGES_MAX - 1 or (q.fifo and q.invisible == 0):
        queue_wake(s, q)


# -- due times: a heap -----------------------------------------------------------------------------


cdef inline void heap_put(PopState* s, int32_t place, PopDue due) noexcept nogil:
    s.heap[place] = due
    message_at(s, due.message).place = place


cdef inline bint before(const PopDue* one, const PopDue* other) noexcept nogil:
    if one.due_ms != other.due_ms:
        return one.due_ms < other.due_ms
    return one.order < other.order


cdef inline PopDue due_of(const PopState* s, int32_t message, int64_t due_ms) noexcept nogil:
    return PopDue(due_ms=due_ms, message=message, order=<uint32_t>message_at(s, message).offset)


cdef void rise(PopState* s, int32_t place, PopDue due) noexcept nogil:
    cdef int32_t parent
    while place > 0:
        parent = (place - 1) // 2
        if not before(&due, &s.heap[parent]):
            break
        heap_put(s, place, s.heap[parent])
        place = parent
    heap_put(s, place, due)


cdef void sink(PopState* s, int32_t place, PopDue due) noexcept nogil:
    cdef int32_t child
    while True:
        child = 2 * place + 1
        if child >= s.heap_count:
            break
        if child + 1 < s.heap_count and before(&s.heap[child + 1], &s.heap[child]):
            child += 1
        if not before(&s.heap[child], &due):
            break
        heap_put(s, place, s.heap[child])
        place = child
    heap_put(s, place, due)


cdef inline void settle_place(PopState* s, int32_t place, PopDue due) noexcept nogil:
    if place > 0 and before(&due, &s.heap[(place - 1) // 2]):
        rise(s, place, due)
    else:
        sink(s, place, due)


cdef void heap_remove(PopState* s, int32_t place) noexcept nogil:
    s.heap_count -= 1
    if place < s.heap_count:
        settle_place(s, place, s.heap[s.heap_count])


cdef int64_t message_due(const PopState* s, int32_t message) noexcept nogil:
    return s.heap[message_at(s, message).place].due_ms


cdef void message_postpone(PopState* s, int32_t message, int64_t due_ms) noexcept nogil:
    settle_place(s, message_at(s, message).place, due_of(s, message, due_ms))


cdef void heap_order(PopState* s) noexcept nogil:
    cdef int32_t place = s.heap_count // 2
    while place > 0:
        place -= 1
        sink(s, place, s.heap[place])


# -- the ready list and clients' lists -------------------------------------------------------------


cdef void message_hide(PopState* s, PopQueue* q, int32_t message, int64_t due_ms,
                       int32_t client) noexcept nogil:
    cdef PopMessage* m = message_at(s, message)
    s.heap_count += 1
    rise(s, s.heap_count - 1, due_of(s, message, due_ms))
    q.invisible += 1
    m.client = client
    if client >= 0:
        m.left = NO_MESSAGE
        m.right = s.clients[client]
        if m.right >= 0:
            message_at(s, m.right).left = message
        s.clients[client] = message


cdef void message_lift(PopState* s, PopQueue* q, int32_t message) noexcept nogil:
    cdef PopMessage* m = message_at(s, message)
    if m.place != READY_AGAIN:
        heap_remove(s, m.place)
        m.place = READY_AGAIN
        q.invisible -= 1
        if m.client < 0:
            return
        if m.left < 0:
            s.clients[m.client] = m.right
        m.client = NO_CLIENT
    if q.ready_first == message:
        q.ready_first = m.right
    if q.ready_last == message:
        q.ready_last = m.left
    if m.left >= 0:
        message_at(s, m.left).right = m.right
    if m.right >= 0:
        message_at(s, m.right).left = m.left
    m.left = m.right = NO_MESSAGE


cdef void message_show(PopState* s, PopQueue* q, int32_t message) noexcept nogil:
    cdef PopMessage* m = message_at(s, message)
    m.left = q.ready_last
    m.right = NO_MESSAGE
    if m.left >= 0:
        message_at(s, m.left).right = message
    else:
        q.ready_first = message
    q.ready_last = message
    s.freed_ms = max(s.freed_ms, m.pop_ms)
    if not q.fifo or q.invisible == 0:
        queue_wake(s, q)


# -- queues that the caller has to look at ---------------------------------------------------------


cdef void queue_list(PopState* s, PopQueue* q, int which) noexcept nogil:
    if q.listed[which]:
        return
    q.listed[which] = True
    q.next_listed[which] = NO_QUEUE
    if s.last_listed[which] >= 0:
        s.queues[s.last_listed[which]].next_listed[which] = q.number
    else:
        s.first_listed[which] = q.number
    s.last_listed[which] = q.number


cdef void queue_unlist(PopState* s, PopQueue* q, int which) noexcept nogil:
    cdef int32_t before = NO_QUEUE, at = s.first_listed[which]
    if not q.listed[which]:
        return
    while at != q.number:
        before = at
        at = s.queues[at].next_listed[which]
    if before < 0:
        s.first_listed[which] = q.next_listed[which]
    else:
        s.queues[before].next_listed[which] = q.next_listed[which]
    if s.last_listed[which] == q.number:
        s.last_listed[which] = before
    q.listed[which] = False


cdef PopQueue* queue_take_listed(PopState* s, int which) noexcept nogil:
    cdef PopQueue* q = NULL
    if s.first_listed[which] >= 0:
        q = s.queues[s.first_listed[which]]
        queue_unlist(s, q, which)
    return q


cdef void queue_wake(PopState* s, PopQueue* q) noexcept nogil:
    queue_list(s, q, POP_WOKEN)


cdef void queue_commits(PopState* s, PopQueue* q) noexcept nogil:
    queue_list(s, q, POP_COMMITS)
