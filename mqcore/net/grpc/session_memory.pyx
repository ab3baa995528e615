"""Memory of HTTP/2 sessions, counted as their connections' (session HT3)."""
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from mqcore.net.transport.memory cimport memory_give, memory_take

cdef enum:
    SIZE_WORD = 16                     # before each allocation: its size
    FIRST_BYTES = 512


cdef void* count_out(Session* s, size_t size) noexcept nogil:
    cdef uint8_t* at
    if not memory_take(s.door.transport, s.connection, <int64_t>size + SIZE_WORD):
        return NULL
    at = <uint8_t*>malloc(size + SIZE_WORD)
    if at == NULL:
        memory_give(s.door.transport, s.connection, <int64_t>size + SIZE_WORD)
        return NULL
    (<size_t*>at)[0] = size
    return at + SIZE_WORD


cdef void count_in(Session* s, void* pointer) noexcept nogil:
    cdef uint8_t* at = <uint8_t*>pointer - SIZE_WORD
    if pointer != NULL:
        memory_give(s.door.transport, s.connection, <int64_t>(<size_t*>at)[0] + SIZE_WORD)
        free(at)


cdef void* take_memory(size_t size, void* user) noexcept nogil:
    return count_out(<Session*>user, size)


cdef void free_memory(void* pointer, void* user) noexcept nogil:
    count_in(<Session*>user, pointer)


cdef void* take_zeros(size_t count, size_t size, void* user) noexcept nogil:
    cdef void* at
    if size and count > <size_t>-1 // size:
        return NULL
    at = count_out(<Session*>user, count * size)
    if at != NULL:
        memset(at, 0, count * size)
    return at


cdef void* take_more(void* pointer, size_t size, void* user) noexcept nogil:
    cdef void* at = count_out(<Session*>user, size)
    cdef size_t before
    if at != NULL and pointer != NULL:
        before = (<size_t*>(<uint8_t*>pointer - SIZE_WORD))[0]
        memcpy(at, pointer, min(before, size))
        count_in(<Session*>user, pointer)
    return at


cdef bint session_grow(Session* s, uint8_t** buffer, int64_t* capacity, int64_t needed,
               int64_t most) noexcept nogil:
    """most: what it can need at all; 0: not known."""
    cdef int64_t bigger = max(capacity[0] * 2, <int64_t>FIRST_BYTES)
    cdef uint8_t* at
    while bigger < needed:
        bigger *= 2
    if most >= needed:
        bigger = min(bigger, most)
    if not memory_take(s.door.transport, s.connection, bigger - capacity[0]):
        return False
    at = <uint8_t*>realloc(buffer[0], bigger)
    if at == NULL:
        memory_give(s.door.transport, s.connection, bigger - capacity[0])
        return False
    buffer[0] = at
    capacity[0] = bigger
    return True


cdef void session_memory(Session* s, Http2Memory* memory) noexcept nogil:
    memory.user = s
    memory.malloc = take_memory
    memory.free = free_memory
    memory.calloc = take_zeros
    memory.realloc = take_more
