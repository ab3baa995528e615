# Whether a process waits for what the writer has published: then the dispatcher is hurried (dispatch.pxd,
# dispatch D6). To be asked after it is published: who begins to wait says so first, and looks then.
from libc.stdint cimport int32_t

from mqcore.atomics cimport full_fence, load_u8_acquire
from mqcore.layout cimport LISTENER_COUNT, SLOT_DISPATCHER
from mqcore.shm.segment cimport doorbell_hurry, followers_ring, interest_byte
from mqcore.store.log.appender cimport GROWN_MAX, Appender


cdef inline void note_grown(Appender* a, int32_t queue, bint born) noexcept nogil:
    """born: there was nothing in it; pulls may wait for a queue that has no number yet."""
    if born or a.grown_count > GROWN_MAX:
        a.grown_count = GROWN_MAX + 1
    elif a.grown_count == 0 or a.grown[a.grown_count - 1] != queue:
        if a.grown_count < GROWN_MAX:
            a.grown[a.grown_count] = queue
        a.grown_count += 1


cdef inline bint is_awaited(Appender* a) noexcept nogil:
    cdef int listener
    cdef int32_t i
    if a.grown_count > GROWN_MAX:
        return True
    full_fence()                       # dispatch D6
    for listener in range(LISTENER_COUNT):
        if a.shm.head.arrivals[listener].start == 0:
            continue
        for i in range(a.grown_count):
            if load_u8_acquire(interest_byte(a.shm, listener, a.grown[i])):
                return True
    return False


cdef inline void tell_followers(Appender* a) noexcept nogil:
    """The log has grown."""
    followers_ring(a.shm)
    if is_awaited(a):
        doorbell_hurry(&a.shm.slots[SLOT_DISPATCHER])
    a.grown_count = 0
