"""Queues of POP, by their names (queues.pxd)."""
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from mqcore.layout cimport GROUP_LENGTH_MAX
from mqcore.names cimport is_queue_place
from mqcore.shm.tables cimport name_hash, queue_hash
from mqcore.store.pop.journal cimport (
    note_clip,
    note_forget,
    note_queue,
    note_raise,
    note_reset,
    pop_journal_close,
)
from mqcore.store.pop.messages cimport (
    committed_of,
    message_at,
    message_settle,
    queue_commits,
    queue_unlist,
    queue_wake,
)
from mqcore.store.pop.state cimport (
    MESSAGES_OF_CHUNK,
    NO_MESSAGE,
    NO_QUEUE,
    POP_CHUNKS_MAX,
    POP_COMMITS,
    POP_LISTS,
    POP_MESSAGES_MAX,
    POP_OFFSET_MAX,
    POP_QUEUES_MAX,
    POP_WOKEN,
    PopQueue,
    PopState,
)

cdef enum:
    EVICT_LOOKS = 64                   # at queues, for one that nothing is lost with


cdef bint pop_begin(PopState* s, int32_t queue_max, int32_t messages_max) noexcept nogil:
    cdef int32_t i, room = 2
    if not 1 <= queue_max <= POP_QUEUES_MAX or not 1 <= messages_max <= POP_MESSAGES_MAX:
        return False
    while room < 2 * queue_max:
        room *= 2
    s.messages_max = messages_max
    s.free = NO_MESSAGE
    for i in range(POP_LISTS):
        s.first_listed[i] = s.last_listed[i] = NO_QUEUE
    s.journal.now.fd = s.journal.new.fd = -1
    s.journal.torn_at = -1
    s.queue_room = queue_max
    s.queues = <PopQueue**>calloc(queue_max, sizeof(PopQueue*))
    s.index = <int32_t*>malloc(room * sizeof(int32_t))
    if s.queues == NULL or s.index == NULL:
        return False
    s.index_room = room
    for i in range(room):
        s.index[i] = NO_QUEUE
    return True


cdef void pop_end(PopState* s) noexcept nogil:
    cdef int32_t i
    pop_journal_close(s)
    for i in range(s.queue_room if s.queues != NULL else 0):
        if s.queues[i] != NULL:
            free(s.queues[i].places)
            free(s.queues[i].names)
            free(s.queues[i])
    for i in range(POP_CHUNKS_MAX):
        free(s.chunks[i])
        s.chunks[i] = NULL
    free(s.queues)
    free(s.index)
    free(s.heap)
    free(s.clients)
    s.queues = NULL
    s.index = NULL
    s.heap = NULL
    s.clients = NULL


cdef inline uint64_t place_hash(const uint8_t* group, int32_t group_length, const uint8_t* topic,
                                int32_t topic_length, int32_t queue_id) noexcept nogil:
    return queue_hash(name_hash(topic, topic_length, name_hash(group, group_length, 0)), queue_id)


cdef inline int32_t index_home(const PopState* s, uint64_t hash) noexcept nogil:
    return <int32_t>(hash & <uint64_t>(s.index_room - 1))


cdef inline uint64_t hash_of(const PopQueue* q) noexcept nogil:
    return place_hash(q.names, q.group_length, q.names + q.group_length, q.topic_length, q.queue_id)


cdef bint is_named(const PopQueue* q, const uint8_t* group, int32_t group_length,
                   const uint8_t* topic, int32_t topic_length) noexcept nogil:
    return q.group_length == group_length and q.topic_length == topic_length and (
        memcmp(q.names, group, group_length) == 0 and (
            memcmp(q.names + group_length, topic, topic_length) == 0))


cdef PopQueue* pop_find(PopState* s, const uint8_t* group, int32_t group_length,
                        const uint8_t* topic, int32_t topic_length,
                        int32_t queue_id) noexcept nogil:
    cdef int32_t at
    cdef PopQueue* q
    if group_length < 0 or topic_length < 0:
        return NULL
    at = index_home(s, place_hash(group, group_length, topic, topic_length, queue_id))
    while s.index[at] >= 0:
        q = s.queues[s.index[at]]
        if q.queue_id == queue_id and is_named(q, group, group_length, topic, topic_length):
            return q
        at = (at + 1) & (s.index_room - 1)
    return NULL


cdef bint evict(PopState* s) noexcept nogil:
    """Makes room by a queue of which the table of offsets has all (pop PO8)."""
    cdef int32_t i
    cdef PopQueue* q
    for i in range(EVICT_LOOKS):
        s.queue_hand = (s.queue_hand + 1) % s.queue_room
        q = s.queues[s.queue_hand]
        if q != NULL and q.count == 0 and not q.listed[POP_WOKEN] and (q.told == q.next or q.life < 0):
            pop_forget(s, q)
            return True
    return False


cdef int32_t free_number(PopState* s) noexcept nogil:
    cdef int32_t i
    if s.queue_count == s.queue_room and not evict(s):
        return NO_QUEUE
    for i in range(s.queue_room):
        if s.queues[(s.number_hand + i) % s.queue_room] == NULL:
            s.number_hand = (s.number_hand + i) % s.queue_room
            return s.number_hand
    return NO_QUEUE


cdef PopQueue* queue_make(PopState* s, int32_t number, const uint8_t* group, int32_t group_length,
                          const uint8_t* topic, int32_t topic_length,
                          int32_t queue_id) noexcept nogil:
    cdef PopQueue* q
    cdef int32_t at
    if not 1 <= group_length <= GROUP_LENGTH_MAX or not is_queue_place(topic, topic_length, queue_id):
        return NULL
    if number == NO_QUEUE:
        number = free_number(s)
    if not 0 <= number < s.queue_room or s.queues[number] != NULL:
        return NULL
    q = <PopQueue*>calloc(1, sizeof(PopQueue))
    if q == NULL:
        return NULL
    q.names = <uint8_t*>malloc(group_length + topic_length)
    if q.names == NULL:
        free(q)
        return NULL
    memcpy(q.names, group, group_length)
    memcpy(q.names + group_length, topic, topic_length)
    q.group_length = group_length
    q.topic_length = topic_length
    q.queue_id = queue_id
    q.number = number
    q.life = -1
    q.told = -1
    q.proof_offset = -1
    q.first = q.last = q.ready_first = q.ready_last = NO_MESSAGE
    s.queues[number] = q
    s.queue_count += 1
    at = index_home(s, hash_of(q))
    while s.index[at] >= 0:
        at = (at + 1) & (s.index_room - 1)
    s.index[at] = number
    return q


cdef void leave_index(PopState* s, PopQueue* q) noexcept nogil:
    cdef int32_t mask = s.index_room - 1, at = index_home(s, hash_of(q)), hole, home
    while s.index[at] != q.number:
        at = (at + 1) & mask
    hole = at
    while True:
        at = (at + 1) & mask
        if s.index[at] < 0:
            break
        home = index_home(s, hash_of(s.queues[s.index[at]]))
        if ((at - home) & mask) >= ((at - hole) & mask):
            s.index[hole] = s.index[at]
            hole = at
    s.index[hole] = NO_QUEUE


cdef void queue_remove(PopState* s, PopQueue* q) noexcept nogil:
    settle_range(s, q, 0, INT64_MAX)
    leave_index(s, q)
    queue_unlist(s, q, POP_WOKEN)
    queue_unlist(s, q, POP_COMMITS)
    s.queues[q.number] = NULL
    s.queue_count -= 1
    free(q.places)
    free(q.names)
    free(q)


cdef void pop_forget(PopState* s, PopQueue* q) noexcept nogil:
    note_forget(s, q)
    queue_remove(s, q)


cdef void pop_confirm(PopState* s, PopQueue* q, int64_t log_position) noexcept nogil:     # pop PO11
    if q.proof_offset >= 0 and log_position != q.proof_position:
        pop_forget(s, q)


cdef void pop_forget_group(PopState* s, const uint8_t* group, int32_t length) noexcept nogil:
    cdef int32_t i
    cdef PopQueue* q
    for i in range(s.queue_room):
        q = s.queues[i]
        if q != NULL and q.group_length == length and memcmp(q.names, group, length) == 0:
            pop_forget(s, q)


cdef void pop_forget_topic(PopState* s, const uint8_t* topic, int32_t length) noexcept nogil:
    cdef int32_t i
    cdef PopQueue* q
    for i in range(s.queue_room):
        q = s.queues[i]
        if q != NULL and q.topic_length == length and (
                memcmp(q.names + q.group_length, topic, length) == 0):
            pop_forget(s, q)


# -- offsets that the queue does not have, and that others have set --------------------------------


cdef void settle_range(PopState* s, PopQueue* q, int64_t least, int64_t end) noexcept nogil:
    cdef int32_t message = q.first, next
    while message >= 0 and message_at(s, message).offset < end:
        next = message_at(s, message).next
        if message_at(s, message).offset >= least:
            message_settle(s, q, message)
        message = next


cdef void queue_raise(PopState* s, PopQueue* q, int64_t least) noexcept nogil:
    settle_range(s, q, 0, least)
    q.next = max(q.next, least)
    queue_commits(s, q)


cdef void forget_proof(PopQueue* q) noexcept nogil:
    if q.proof_offset >= q.next:
        q.proof_offset = -1


cdef void queue_clip(PopState* s, PopQueue* q, int64_t end) noexcept nogil:
    settle_range(s, q, end, INT64_MAX)
    q.next = min(q.next, end)
    forget_proof(q)
    queue_commits(s, q)
    queue_wake(s, q)


cdef void queue_reset(PopState* s, PopQueue* q, int64_t next) noexcept nogil:
    settle_range(s, q, 0, INT64_MAX)
    q.next = next
    q.attempt_length = 0
    forget_proof(q)
    queue_commits(s, q)
    queue_wake(s, q)


cdef void pop_moved(PopState* s, PopQueue* q, int64_t offset) noexcept nogil:
    cdef int64_t committed = committed_of(s, q)
    if not 0 <= offset <= POP_OFFSET_MAX:
        return
    if offset > committed:
        queue_raise(s, q, offset)
        note_raise(s, q, offset)
    elif offset < committed:
        queue_reset(s, q, offset)
        note_reset(s, q, offset)


cdef void fit(PopState* s, PopQueue* q, int64_t least, int64_t end) noexcept nogil:      # pop PO10
    if q.next > end:
        queue_clip(s, q, end)
        note_clip(s, q, end)
    if committed_of(s, q) < least:
        queue_raise(s, q, least)
        note_raise(s, q, least)


cdef PopQueue* pop_open(PopState* s, const PopPlace* place) noexcept nogil:
    cdef PopQueue* q
    if not 0 <= place.least <= place.end <= POP_OFFSET_MAX or place.life < 0:
        return NULL
    q = pop_find(s, place.group, place.group_length, place.topic, place.topic_length,
                 place.queue_id)
    if q != NULL and q.life >= 0 and q.life != place.life:
        pop_forget(s, q)
        q = NULL
    if q == NULL:
        q = queue_make(s, NO_QUEUE, place.group, place.group_length, place.topic,
                       place.topic_length, place.queue_id)
        if q == NULL:
            return NULL
        q.life = place.life
        q.fifo = place.fifo
        q.next = place.committed if place.committed >= 0 else place.start
        q.next = min(max(q.next, place.least), place.end)
        if s.journal.new.fd >= 0:
            q.snapshot = s.journal.snapshot
        note_queue(s, q)
        queue_commits(s, q)
        return q
    fit(s, q, place.least, place.end)
    if q.life < 0:                     # the first time in this run
        q.life = place.life
        queue_commits(s, q)
        if place.committed > committed_of(s, q):
            pop_moved(s, q, min(place.committed, place.end))
    if q.fifo != place.fifo:
        q.fifo = place.fifo
        note_queue(s, q)
    return q
