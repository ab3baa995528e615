"""Connections of a serving process: made, found, watched, written, closed."""
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memmove

from mqcore.endian cimport store_i32
from mqcore.layout cimport (
    CONNECTION_LIFE_MASK,
    CONNECTION_LIFE_SHIFT,
    CONNECTION_SERVING_SHIFT,
    FIGURE_BAD_FRAMES,
    FIGURE_BYTES_OUT,
    FIGURE_CONNECTIONS,
    HOST_V4_SIZE,
    HOST_V6_SIZE,
)
from mqcore.net.forward cimport forget_forwarding, forward_closed, forward_reads
from mqcore.net.held_lists cimport held_forget
from mqcore.net.memory cimport connection_doom, memory_give, memory_take
from mqcore.net.requests cimport handle_input
from mqcore.net.slots cimport slots_add, slots_remove, slots_take
from mqcore.net.work cimport work_charge, work_is_over, work_later

cdef extern from "<sys/epoll.h>" nogil:
    int epoll_ctl(int epoll, int operation, int fd, epoll_event* event)
    int EPOLL_CTL_ADD
    int EPOLL_CTL_DEL
    int EPOLL_CTL_MOD
    unsigned int EPOLLIN
    unsigned int EPOLLOUT
    ctypedef union epoll_data_t:
        uint64_t u64
    struct epoll_event:
        unsigned int events
        epoll_data_t data

cdef extern from "<unistd.h>" nogil:
    int close(int fd)

cdef extern from "<sys/socket.h>" nogil:
    ssize_t c_send "send"(int fd, const void* data, size_t size, int flags)
    int MSG_NOSIGNAL
    int MSG_DONTWAIT

cdef extern from *:
    """
    #include <netinet/in.h>
    #include <string.h>
    #include <sys/socket.h>
    /* The peer's address: bytes (4 or 16), whether IPv6, port; an IPv4-mapped one is IPv4. */
    static int mq_peer(int fd, uint8_t *address, uint8_t *is_v6, uint16_t *port) {
      struct sockaddr_storage peer;
      socklen_t size = sizeof peer;
      if (getpeername(fd, (struct sockaddr *)&peer, &size) != 0) return -1;
      *is_v6 = 0;
      if (peer.ss_family == AF_INET) {
        struct sockaddr_in *v4 = (struct sockaddr_in *)&peer;
        memcpy(address, &v4->sin_addr, 4);
        *port = ntohs(v4->sin_port);
        return 0;
      }
      if (peer.ss_family != AF_INET6) return -1;
      struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&peer;
      *port = ntohs(v6->sin6_port);
      if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
        memcpy(address, v6->sin6_addr.s6_addr + 12, 4);
        return 0;
      }
      memcpy(address, &v6->sin6_addr, 16);
      *is_v6 = 1;
      return 0;
    }
    """
    int mq_peer(int fd, uint8_t* address, uint8_t* is_v6, uint16_t* port) noexcept nogil

cdef enum:
    OUTPUT_KEEP_BYTES = 64 << 10      # an idle connection does not keep more
    OUT_LOW_BYTES = OUT_HIGH_BYTES // 2     # N6: below this it reads again


cdef uint32_t next_random(Server* s) noexcept nogil:
    s.random = s.random * <uint64_t>6364136223846793005 + <uint64_t>1442695040888963407
    return <uint32_t>(s.random >> 33)


cdef Connection* connection_find(Server* s, uint64_t id) noexcept nogil:
    cdef int32_t slot = <int32_t>(id & 0xFFFFFF)
    cdef Connection* c
    if slot >= s.connection_max:
        return NULL
    c = s.connections[slot]
    return c if c != NULL and c.id == id else NULL                       # N4


cdef Connection* connection_add(Server* s, int fd, bint fast_port) noexcept nogil:
    cdef Connection* c
    cdef epoll_event event
    if s.free_count == 0:
        return NULL
    c = <Connection*>calloc(1, sizeof(Connection))
    if c == NULL:
        return NULL
    if mq_peer(fd, c.address, &c.address_is_v6, &c.port) != 0:
        free(c)
        return NULL
    s.free_count -= 1
    c.slot = s.free_slots[s.free_count]
    s.generation = (s.generation + 1) & 0xFFFFFF
    c.fd = fd
    c.id = (<uint64_t>(s.incarnation & CONNECTION_LIFE_MASK) << CONNECTION_LIFE_SHIFT) | (
        <uint64_t>s.index << CONNECTION_SERVING_SHIFT) | (
        <uint64_t>s.generation << 24) | <uint64_t>c.slot
    c.fast_port = fast_port
    c.active_ms = s.steady_ms
    c.host_size = HOST_V6_SIZE if c.address_is_v6 else HOST_V4_SIZE
    memcpy(c.host, c.address, c.host_size - 4)
    store_i32(c.host + c.host_size - 4, c.port)
    c.interest = EPOLLIN
    event.events = EPOLLIN
    event.data.u64 = c.id
    if epoll_ctl(s.epoll, EPOLL_CTL_ADD, fd, &event) != 0:
        s.free_slots[s.free_count] = c.slot
        s.free_count += 1
        free(c)
        return NULL
    s.connections[c.slot] = c
    s.connection_count += 1
    s.slot.figures[FIGURE_CONNECTIONS] = s.connection_count
    return c


cdef void note_close(Server* s, Connection* c, int reason, int64_t detail) noexcept nogil:
    cdef CloseEvent* event
    if reason == CLOSE_PEER or reason == CLOSE_ASKED or reason == CLOSE_IDLE:
        return
    s.slot.figures[FIGURE_BAD_FRAMES] += 1
    if s.event_count == EVENTS_MAX:
        s.events_lost += 1
        return
    event = &s.events[s.event_count]
    s.event_count += 1
    event.reason = reason
    event.detail = detail
    memcpy(event.address, c.address, 16)
    event.address_is_v6 = c.address_is_v6
    event.port = c.port


cdef void connection_close(Server* s, Connection* c, int reason, int64_t detail) noexcept nogil:
    note_close(s, c, reason, detail)
    forget_forwarding(s, c)
    if c.known:
        forward_closed(s, c)
    held_forget(s, c)
    slots_remove(&s.dirty, c.slot)
    slots_remove(&s.stalled, c.slot)
    slots_remove(&s.late, c.slot)
    slots_remove(&s.doomed, c.slot)
    memory_give(s, c, c.memory)
    close(c.fd)                        # epoll forgets it with its last descriptor
    s.connections[c.slot] = NULL
    s.free_slots[s.free_count] = c.slot
    s.free_count += 1
    s.connection_count -= 1
    s.slot.figures[FIGURE_CONNECTIONS] = s.connection_count
    if c.input_capacity + c.output_capacity > OUTPUT_KEEP_BYTES:
        s.trim = True
    free(c.input)
    free(c.output)
    free(c.heartbeat)
    free(c)


cdef void connection_watch(Server* s, Connection* c) noexcept nogil:
    """Read unless it is stalled or does not read (N2, N3); write while output waits."""
    cdef epoll_event event
    cdef uint32_t wanted = 0
    if c.hung_up:
        return
    if not c.stalled and not c.late and c.output_end - c.output_start < s.out_high:
        wanted |= EPOLLIN
    if c.output_end > c.output_start and not c.dirty:
        wanted |= EPOLLOUT
    if wanted == c.interest:
        return
    event.events = wanted
    event.data.u64 = c.id
    epoll_ctl(s.epoll, EPOLL_CTL_MOD, c.fd, &event)
    c.interest = wanted


cdef void connection_stall(Server* s, Connection* c) noexcept nogil:
    if not c.stalled:
        c.stalled = True
        slots_add(&s.stalled, c.slot)
    connection_watch(s, c)


cdef void connection_hang_up(Server* s, Connection* c) noexcept nogil:
    """
    N8: nothing can be sent to it any more; whoever looks at the stalled ones handles what it sent
    and closes it. Until then epoll would report it without end.
    """
    if c.hung_up:
        return
    if c.long_place:                   # the coordinator has the first parts of a frame: it is told
        connection_close(s, c, CLOSE_PEER, 0)
        return
    epoll_ctl(s.epoll, EPOLL_CTL_DEL, c.fd, NULL)
    c.hung_up = s.hung_up = True
    c.output_start = c.output_end = 0
    connection_stall(s, c)


cdef inline int64_t grown(int64_t capacity, int64_t needed) noexcept nogil:
    capacity = max(capacity * 2, 4096)
    while capacity < min(needed, <int64_t>OUTPUT_KEEP_BYTES):
        capacity *= 2
    if capacity < needed:              # no more than is needed: it counts (N11)
        capacity = (needed + OUTPUT_KEEP_BYTES - 1) // OUTPUT_KEEP_BYTES * OUTPUT_KEEP_BYTES
    return capacity


cdef uint8_t* output_room(Server* s, Connection* c, int64_t size) noexcept nogil:
    cdef int64_t capacity = c.output_capacity
    cdef uint8_t* bigger
    if c.output_end + size > capacity and c.output_start > 0:
        memmove(c.output, c.output + c.output_start, c.output_end - c.output_start)
        c.output_end -= c.output_start
        c.output_start = 0
    if c.output_end + size > capacity:
        capacity = grown(capacity, c.output_end + size)
        if not memory_take(s, c, capacity - c.output_capacity):
            return NULL
        bigger = <uint8_t*>realloc(c.output, capacity)
        if bigger == NULL:             # what it asked for would never be answered
            memory_give(s, c, capacity - c.output_capacity)
            connection_doom(s, c, CLOSE_MEMORY, capacity)
            return NULL
        c.output = bigger
        c.output_capacity = capacity
    return c.output + c.output_end


cdef void output_used(Server* s, Connection* c, int64_t size) noexcept nogil:
    if c.output_start == c.output_end:
        c.output_since_ms = s.steady_ms
    c.output_end += size
    if not c.dirty:
        c.dirty = True
        slots_add(&s.dirty, c.slot)


cdef void output_flush(Server* s, Connection* c) noexcept nogil:
    """Send what waits; may find that its peer is gone (N8)."""
    cdef ssize_t sent
    cdef uint64_t id
    cdef int64_t began = s.work
    cdef int64_t waited = c.output_end - c.output_start
    if c.hung_up or c.doomed:
        c.output_start = c.output_end = 0
        return
    while c.output_start < c.output_end:
        sent = c_send(c.fd, c.output + c.output_start, c.output_end - c.output_start,
                      MSG_NOSIGNAL | MSG_DONTWAIT)
        if sent < 0:
            if errno == EINTR:
                continue
            if errno == EAGAIN:
                break
            connection_hang_up(s, c)
            return
        c.output_start += sent
        s.slot.figures[FIGURE_BYTES_OUT] += sent
    if c.output_start == c.output_end:
        c.output_start = 0
        c.output_end = 0
        if c.output_capacity > OUTPUT_KEEP_BYTES:
            free(c.output)
            memory_give(s, c, c.output_capacity)
            c.output = NULL
            c.output_capacity = 0
    elif c.output_end - c.output_start < waited:       # as much younger as has gone (N12)
        c.output_since_ms = s.steady_ms - (s.steady_ms - c.output_since_ms) * (
            c.output_end - c.output_start) // waited
    s.work += (waited - (c.output_end - c.output_start)) >> 3
    work_charge(s, c, began)
    if c.due and c.output_end - c.output_start < s.out_high:
        work_later(s, c)
    if c.held_back and c.output_end - c.output_start < s.out_high:
        c.held_back = False
        if work_is_over(s, c):         # N9
            c.yielded = True
            work_later(s, c)
        elif not c.stalled:            # else it is looked at with the stalled ones (N3)
            id = c.id
            handle_input(s, c, c.input, c.input_length)
            c = connection_find(s, id)
            if c == NULL:
                return
    if c.told_unread and c.output_end - c.output_start < OUT_LOW_BYTES:
        forward_reads(s, c)
    connection_watch(s, c)


cdef void output_flush_all(Server* s) noexcept nogil:
    cdef Connection* c
    cdef int32_t slot = slots_take(&s.dirty)
    while slot >= 0:
        c = s.connections[slot]
        c.dirty = False
        output_flush(s, c)
        slot = slots_take(&s.dirty)
