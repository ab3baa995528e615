"""Connections of a process: made, watched, closed."""
from libc.errno cimport ENOENT, errno
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from mqcore.epoll cimport (
    EPOLL_CTL_ADD,
    EPOLL_CTL_DEL,
    EPOLL_CTL_MOD,
    EPOLLIN,
    EPOLLONESHOT,
    EPOLLOUT,
    EPOLLRDHUP,
    epoll_ctl,
    epoll_event,
)
from mqcore.layout cimport FIGURE_BAD_FRAMES, FIGURE_CONNECTIONS
from mqcore.net.transport.close_reasons cimport (
    CLOSE_ASKED,
    CLOSE_IDLE,
    CLOSE_MEMORY,
    CLOSE_PEER,
    CLOSE_SILENT,
)
from mqcore.net.transport.memory cimport connection_doom, memory_give, memory_return
from mqcore.net.transport.slots cimport slots_add, slots_remove
from mqcore.net.transport.tls cimport tls_close
from mqcore.net.transport.transport cimport (
    CLOSE_EVENTS_MAX,
    CLOSE_WORK,
    INPUT_OPEN,
    INPUT_STALLED,
    INPUT_WAITS,
    INPUT_YIELDED,
    KEEP_BYTES,
    LIFE_HUNG_UP,
    LIFE_OPEN,
    WIRE_PLAIN,
    WIRE_SHAKES,
    CloseEvent,
    crowd_works,
    takes_output,
    watcher,
)

cdef extern from "<unistd.h>" nogil:
    int close(int fd)

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


cdef Connection* connection_add(Transport* t, int fd, int32_t kind, bint watched) noexcept nogil:
    cdef Connection* c
    cdef epoll_event event
    if t.free_count == 0 and t.silent.count > 0:
        c = t.connections[t.silent.first]
        connection_close(t, c, CLOSE_SILENT, t.steady_ms - c.active_ms)
    if t.free_count == 0:
        return NULL
    c = <Connection*>calloc(1, t.size_each)
    if c == NULL:
        return NULL
    if mq_peer(fd, c.address, &c.address_is_v6, &c.port) != 0:
        free(c)
        return NULL
    t.free_count -= 1
    c.slot = t.free_slots[t.free_count]
    t.generation = (t.generation + 1) & 0xFFFFFF
    c.fd = fd
    c.id = t.id_base | (<uint64_t>t.generation << 24) | <uint64_t>c.slot
    c.kind = kind
    c.active_ms = t.steady_ms
    c.interest = EPOLLIN if watched else 0
    event.events = EPOLLIN
    event.data.u64 = c.id
    if watched and epoll_ctl(t.newcomers, EPOLL_CTL_ADD, fd, &event) != 0:
        t.free_slots[t.free_count] = c.slot
        t.free_count += 1
        free(c)
        return NULL
    t.connections[c.slot] = c
    slots_add(&t.silent, c.slot)
    t.connection_count += 1
    t.slot.figures[FIGURE_CONNECTIONS] = t.connection_count
    t.above.opened(t.above.top, c)
    return c


cdef Connection* connection_within(Transport* t, int32_t kind) noexcept nogil:
    cdef Connection* c
    if t.free_count == 0:
        return NULL
    c = <Connection*>calloc(1, t.size_each)
    if c == NULL:
        return NULL
    t.free_count -= 1
    c.slot = t.free_slots[t.free_count]
    t.generation = (t.generation + 1) & 0xFFFFFF
    c.fd = -1
    c.id = t.id_base | (<uint64_t>t.generation << 24) | <uint64_t>c.slot
    c.kind = kind
    c.wire = WIRE_PLAIN
    c.admitted = True
    c.active_ms = INT64_MAX            # it is never idle
    t.connections[c.slot] = c
    t.connection_count += 1
    return c


cdef void note_close(Transport* t, Connection* c, int reason, int64_t detail) noexcept nogil:
    cdef CloseEvent* event
    if reason == CLOSE_PEER or reason == CLOSE_ASKED or reason == CLOSE_IDLE:
        return
    t.slot.figures[FIGURE_BAD_FRAMES] += 1
    if t.event_count == CLOSE_EVENTS_MAX:
        t.events_lost += 1
        return
    event = &t.events[t.event_count]
    t.event_count += 1
    event.reason = reason
    event.detail = detail
    memcpy(event.address, c.address, sizeof(c.address))
    event.address_is_v6 = c.address_is_v6
    event.port = c.port


cdef void connection_close(Transport* t, Connection* c, int reason, int64_t detail) noexcept nogil:
    note_close(t, c, reason, detail)
    crowd_works(t, CLOSE_WORK)
    t.above.closing(t.above.top, c)
    slots_remove(&t.dirty, c.slot)
    slots_remove(&t.stalled, c.slot)
    slots_remove(&t.deferred, c.slot)
    slots_remove(&t.doomed, c.slot)
    slots_remove(&t.silent, c.slot)
    if tls_close(t, c):
        close(c.fd)                    # epoll forgets it with its last descriptor
    memory_give(t, c, c.memory)
    t.connections[c.slot] = NULL
    t.free_slots[t.free_count] = c.slot
    t.free_count += 1
    t.connection_count -= 1
    t.slot.figures[FIGURE_CONNECTIONS] = t.connection_count
    if c.input_capacity + c.output_capacity > KEEP_BYTES:
        t.trim = True
    memory_return(t, c.input, c.input_capacity)
    memory_return(t, c.output, c.output_capacity)
    free(c)


cdef void connection_watch(Transport* t, Connection* c) noexcept nogil:
    """
    Read unless it waits for something or does not read (transport N2, N3); write while output
    waits.
    """
    cdef epoll_event event
    cdef uint32_t wanted = 0
    if c.life != LIFE_OPEN:
        return
    if c.input_state == INPUT_OPEN and not c.deferred and takes_output(t, c) and not c.tls.in_line:
        wanted |= EPOLLOUT if c.tls.read_wants_write else EPOLLIN | EPOLLRDHUP   # tls TL5, work N20
        if c.tls.again:
            slots_add(&t.tls.again, c.slot)
    if c.output_end > c.output_start and not c.dirty:
        wanted |= EPOLLIN if c.tls.send_wants_read else EPOLLOUT
    if c.wire == WIRE_SHAKES and wanted:
        wanted |= EPOLLONESHOT      # what comes is a step: it is not watched from then on (tls TL3)
    if wanted == c.interest:
        return
    event.events = wanted
    event.data.u64 = c.id
    if epoll_ctl(watcher(t, c), EPOLL_CTL_MOD, c.fd, &event) != 0 and errno == ENOENT and epoll_ctl(
            watcher(t, c), EPOLL_CTL_ADD, c.fd, &event) != 0:
        connection_doom(t, c, CLOSE_MEMORY, 0)     # it spoke at once: nobody has watched it yet
        return
    c.interest = wanted


cdef void connection_admit(Transport* t, Connection* c) noexcept nogil:
    cdef epoll_event event
    if c.admitted or c.life != LIFE_OPEN:
        return
    event.events = c.interest
    event.data.u64 = c.id
    if epoll_ctl(t.epoll, EPOLL_CTL_ADD, c.fd, &event) != 0:
        return                         # no memory: it stays a new one
    epoll_ctl(t.newcomers, EPOLL_CTL_DEL, c.fd, NULL)
    c.admitted = True


cdef void connection_stall(Transport* t, Connection* c, int state) noexcept nogil:
    c.input_state = state
    slots_add(&t.stalled, c.slot)
    connection_watch(t, c)


cdef void connection_hang_up(Transport* t, Connection* c) noexcept nogil:
    """
    transport N8: nothing can be sent to it any more; what it sent is handled with the stalled ones,
    or in its slice, and then it is closed. Until then epoll would report it without end.
    """
    if c.life != LIFE_OPEN:
        return
    if c.begun:                        # who has the first parts of a frame is told
        connection_close(t, c, CLOSE_PEER, 0)
        return
    epoll_ctl(watcher(t, c), EPOLL_CTL_DEL, c.fd, NULL)
    if c.tls.in_line:                  # its turn comes; what it sent is behind the handshake's end
        c.tls.hung_up = True
        return
    c.life = LIFE_HUNG_UP
    t.wakeful = True
    c.output_start = c.output_end = 0
    if c.input_state == INPUT_STALLED or c.input_state == INPUT_WAITS:
        return
    if c.deferred:
        c.input_state = INPUT_YIELDED
        return
    c.input_state = INPUT_STALLED
    slots_add(&t.stalled, c.slot)


cdef void connection_wait_for_above(Transport* t, Connection* c) noexcept nogil:
    connection_hang_up(t, c)
    if not c.deferred:                     # else in its slice
        c.input_state = INPUT_WAITS
        slots_remove(&t.stalled, c.slot)


cdef void connection_owes_less(Transport* t, Connection* c) noexcept nogil:
    c.owed -= 1
    if c.owed == 0 and c.life == LIFE_HUNG_UP and c.input_state == INPUT_WAITS:
        slots_add(&t.stalled, c.slot)
