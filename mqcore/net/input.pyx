"""Brings bytes from sockets to where frames are cut."""
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy

from mqcore.endian cimport load_i32
from mqcore.layout cimport FIGURE_BYTES_IN, FRAME_LENGTH_SIZE
from mqcore.net.memory cimport memory_give, memory_take
from mqcore.net.requests cimport handle_input
from mqcore.net.server cimport (
    CLOSE_MEMORY,
    CLOSE_PEER,
    READ_BYTES,
    connection_close,
    connection_find,
)

cdef extern from "<unistd.h>" nogil:
    ssize_t sys_read "read"(int fd, void* data, size_t size)

cdef enum:
    KEPT_COPY_MAX = 16 << 10           # a longer start of a frame stays where it is


cdef ssize_t receive(Server* s, Connection* c, uint8_t* into, int64_t room) noexcept nogil:
    """One read; 0: nothing came, or the connection is closed now."""
    cdef ssize_t got = sys_read(c.fd, into, room)
    if got > 0:
        c.active_ms = s.steady_ms
        s.slot.figures[FIGURE_BYTES_IN] += got
        return got
    if got == 0 or (errno != EAGAIN and errno != EINTR):
        connection_close(s, c, CLOSE_PEER, 0)
    return 0


cdef ssize_t read_some(Server* s, Connection* c) noexcept nogil:
    cdef ssize_t got
    cdef int64_t kept = c.input_length
    if c.doomed:
        return 0
    if kept > KEPT_COPY_MAX:
        return read_more(s, c)
    if kept > 0:
        memcpy(s.scratch, c.input, kept)
    got = receive(s, c, s.scratch + kept, READ_BYTES)
    if got > 0:
        handle_input(s, c, s.scratch, kept + got)
    return got


cdef ssize_t read_more(Server* s, Connection* c) noexcept nogil:
    """A frame larger than one read: it grows in the connection's own buffer (N1)."""
    cdef int64_t whole = FRAME_LENGTH_SIZE + <int64_t>load_i32(c.input)
    cdef int64_t capacity = c.input_capacity
    cdef int64_t wanted
    cdef uint8_t* bigger
    cdef ssize_t got
    if capacity - c.input_length < READ_BYTES and capacity < whole:
        # with its end comes little of what follows
        wanted = min(max(2 * capacity, <int64_t>c.input_length + READ_BYTES), whole)
        if not memory_take(s, c, wanted - capacity):
            return 0
        bigger = <uint8_t*>realloc(c.input, wanted)
        if bigger == NULL:
            memory_give(s, c, wanted - capacity)
            connection_close(s, c, CLOSE_MEMORY, wanted)
            return 0
        c.input = bigger
        c.input_capacity = <int32_t>wanted
    got = receive(s, c, c.input + c.input_length,
                  min(<int64_t>READ_BYTES, <int64_t>c.input_capacity - c.input_length))
    if got > 0:
        c.input_length += <int32_t>got
        handle_input(s, c, c.input, c.input_length)
    return got


cdef void handle_rest(Server* s, Connection* c) noexcept nogil:
    cdef uint64_t id = c.id
    cdef ssize_t got
    while True:
        c.held_back = False
        handle_input(s, c, c.input, c.input_length)
        c = connection_find(s, id)
        if c == NULL or c.stalled or c.late or c.doomed:
            return
        c.output_start = c.output_end = 0        # nobody gets it
        if c.held_back:
            continue
        got = read_some(s, c)
        c = connection_find(s, id)
        if c == NULL or c.stalled or c.late or c.doomed:
            return
        if got <= 0:
            connection_close(s, c, CLOSE_PEER, 0)
            return
        c.output_start = c.output_end = 0
