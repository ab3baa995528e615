"""Accepts, reads, and gives each connection its turn."""
from libc.errno cimport EMFILE, ENFILE, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, malloc

from mqcore.clock cimport steady_us
from mqcore.epoll cimport (
    EPOLL_CLOEXEC,
    EPOLL_CTL_ADD,
    EPOLL_CTL_DEL,
    EPOLL_CTL_MOD,
    EPOLLERR,
    EPOLLET,
    EPOLLHUP,
    EPOLLIN,
    EPOLLONESHOT,
    EPOLLOUT,
    EPOLLRDHUP,
    epoll_create1,
    epoll_ctl,
    epoll_event,
    epoll_wait,
)
from mqcore.layout cimport FIGURE_BYTES_IN
from mqcore.net.transport.close_reasons cimport CLOSE_IDLE, CLOSE_PEER, CLOSE_SLOW
from mqcore.net.transport.connections cimport (
    connection_add,
    connection_close,
    connection_hang_up,
    connection_admit,
    connection_watch,
)
from mqcore.net.transport.handshakes cimport (
    handshakes_go_on,
    handshakes_look,
    handshakes_turn,
    handshakes_wait,
)
from mqcore.net.transport.input cimport handle_again, read_some
from mqcore.net.transport.memory cimport memory_end_turn, memory_look, memory_open
from mqcore.net.transport.output cimport output_flush
from mqcore.net.transport.slots cimport slots_add, slots_open, slots_take
from mqcore.net.transport.tls cimport tls_open
from mqcore.net.transport.transport cimport (
    EVENTS_AT_ONCE,
    INPUT_OPEN,
    INPUT_STALLED,
    INPUT_YIELDED,
    LIFE_DOOMED,
    LISTENERS_MAX,
    READ_BYTES,
    Connection,
    connection_find,
    crowd_works,
)
from mqcore.net.transport.work cimport (
    ACCEPT_WORK,
    CROWD_AHEAD_US,
    CROWD_REST_US,
    CROWD_SHARE,
    CROWD_WORK,
    EVENT_WORK,
    DEFERRED_SLICE_WORK,
    DEFERRED_WORK,
    TAKE_UP_WORK,
    work_begin_turn,
)

cdef extern from "<unistd.h>" nogil:
    int close(int fd)

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <netinet/in.h>
    #include <netinet/tcp.h>
    #include <sys/socket.h>
    int accept4(int, struct sockaddr *, socklen_t *, int);
    static int mq_accept(int listener) {
      return accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    }
    static int mq_has_bytes(int fd) {
      char first;
      return recv(fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
    }
    /* Its connections inherit it. */
    static void mq_without_delay(int listener) {
      int one = 1;
      setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    """
    int mq_accept(int listener) noexcept nogil
    bint mq_has_bytes(int fd) noexcept nogil
    void mq_without_delay(int listener) noexcept nogil

cdef enum:
    ACCEPTS_AT_ONCE = 4
    NEWCOMERS_AT_ONCE = 8
    RETRIES_AT_ONCE = 256
    IDLE_LOOK_MS = 10000
    SLOW_BYTES_A_S = 1024              # of a frame that takes longer than a connection may be idle
    BELL_KEY = 0xFFFFFFFFFFFFFFFF
    NEWCOMERS_KEY = 0xFFFFFFFFFFFFFFFE
    LISTENER_KEY = 0xFFFFFFFFFFFFFF00  # + index of the listener


cdef bint transport_open(Transport* t, int bell, int64_t memory_bytes_max) noexcept nogil:
    cdef int32_t i
    cdef epoll_event event
    t.connections = <Connection**>calloc(t.connection_max, sizeof(void*))
    t.free_slots = <int32_t*>malloc(t.connection_max * sizeof(int32_t))
    t.scratch = <uint8_t*>malloc(2 * READ_BYTES)
    t.ready = calloc(EVENTS_AT_ONCE + NEWCOMERS_AT_ONCE, sizeof(epoll_event))
    if (t.connections == NULL or t.free_slots == NULL or t.scratch == NULL or t.ready == NULL) or not (
            slots_open(&t.dirty, t.connection_max) and slots_open(&t.stalled, t.connection_max)
            and slots_open(&t.deferred, t.connection_max)
            and slots_open(&t.doomed, t.connection_max)
            and slots_open(&t.silent, t.connection_max) and tls_open(t)):
        return False
    for i in range(t.connection_max):
        t.free_slots[i] = t.connection_max - 1 - i
    t.free_count = t.connection_max
    memory_open(t, memory_bytes_max)
    t.steady_us = steady_us()
    t.steady_ms = t.idle_look_ms = t.steady_us // 1000
    t.epoll = epoll_create1(EPOLL_CLOEXEC)
    t.newcomers = epoll_create1(EPOLL_CLOEXEC)
    if t.epoll < 0 or t.newcomers < 0:
        return False
    event.events = EPOLLIN | EPOLLET
    event.data.u64 = <uint64_t>BELL_KEY
    if epoll_ctl(t.epoll, EPOLL_CTL_ADD, bell, &event) != 0:
        return False
    event.events = EPOLLIN
    event.data.u64 = <uint64_t>NEWCOMERS_KEY
    return epoll_ctl(t.epoll, EPOLL_CTL_ADD, t.newcomers, &event) == 0


cdef bint transport_listen(Transport* t, int fd, int kind) noexcept nogil:
    cdef epoll_event event
    if t.listener_count == LISTENERS_MAX:
        return False
    event.events = EPOLLIN
    event.data.u64 = <uint64_t>LISTENER_KEY + <uint64_t>t.listener_count
    t.listeners[t.listener_count].fd = fd
    t.listeners[t.listener_count].kind = kind
    t.listener_count += 1
    mq_without_delay(fd)
    return epoll_ctl(t.newcomers, EPOLL_CTL_ADD, fd, &event) == 0


cdef void transport_stop_listening(Transport* t) noexcept nogil:
    cdef int i
    t.stopping = True
    for i in range(t.listener_count):
        epoll_ctl(t.newcomers, EPOLL_CTL_DEL, t.listeners[i].fd, NULL)


cdef void accept_some(Transport* t, int listener) noexcept nogil:
    """Who has said something already is read at once."""
    cdef Connection* c
    cdef uint64_t id
    cdef bint said
    cdef int i, fd
    for i in range(ACCEPTS_AT_ONCE):
        fd = mq_accept(t.listeners[listener].fd)
        if fd < 0:
            if errno == EMFILE or errno == ENFILE:
                t.events_lost += 1     # level-triggered: it is tried again when one closes
                crowd_works(t, ACCEPT_WORK)
            return
        crowd_works(t, ACCEPT_WORK)
        said = mq_has_bytes(fd)
        c = connection_add(t, fd, t.listeners[listener].kind, not said)
        if c == NULL:
            close(fd)
            t.events_lost += 1
        elif said:
            id = c.id
            read_some(t, c)
            c = connection_find(t, id)
            if c != NULL:
                c.admitted = c.heard
                connection_watch(t, c)


cdef void one_event(Transport* t, uint64_t key, unsigned int events) noexcept nogil:
    cdef Connection* c
    if key >= <uint64_t>LISTENER_KEY:
        if not t.stopping:
            accept_some(t, <int>(key & 0xFF))
        return
    c = connection_find(t, key)
    if c == NULL:
        return
    if c.interest & EPOLLONESHOT:
        c.interest = 0                 # epoll does not tell of it any more
    if events & EPOLLOUT:
        output_flush(t, c)
        c = connection_find(t, key)
        if c == NULL:
            return
    elif c.tls.send_wants_read:                                          # tls TL5
        output_flush(t, c)
        c = connection_find(t, key)
        if c == NULL:
            return
    if c.tls.read_wants_write and events & EPOLLOUT:
        events |= EPOLLIN
    if events & EPOLLIN and c.input_state == INPUT_OPEN and not c.deferred and not c.tls.in_line:
        if c.tls.again:                # tls TL8: in its turn
            slots_add(&t.tls.again, c.slot)
        else:
            read_some(t, c)
    elif events & (EPOLLHUP | EPOLLERR):
        connection_hang_up(t, c)


cdef void serve_newcomers(Transport* t, int64_t end) noexcept nogil:
    cdef epoll_event* ready = <epoll_event*>t.ready + EVENTS_AT_ONCE
    cdef Connection* c
    cdef int i, count
    while t.work < end:
        count = epoll_wait(t.newcomers, ready, NEWCOMERS_AT_ONCE, 0)
        for i in range(count):
            t.work += EVENT_WORK
            one_event(t, ready[i].data.u64, ready[i].events)
            c = connection_find(t, ready[i].data.u64)
            if c != NULL and c.heard:
                connection_admit(t, c)
        if count <= 0:
            return


cdef void end_some(Transport* t, int64_t end) noexcept nogil:
    """epoll reports the remaining ones again."""
    cdef epoll_event* ready = <epoll_event*>t.ready
    cdef int i
    for i in range(t.end_count):
        if t.work >= end:
            return
        t.work += EVENT_WORK
        one_event(t, ready[i].data.u64, ready[i].events)


cdef bint crowd_waits(Transport* t) noexcept nogil:
    """It had more than its share, and others wait; the rest is over now and then, whatever ends."""
    cdef int64_t now_us = steady_us()
    t.crowd_owes_us = max(t.crowd_owes_us, now_us) + (t.crowd_work - t.crowd_counted) // CROWD_SHARE
    t.crowd_owes_us = min(t.crowd_owes_us, now_us + CROWD_AHEAD_US + CROWD_REST_US)
    t.crowd_counted = t.crowd_work
    if t.crowd_owes_us - now_us <= CROWD_AHEAD_US or not (
            t.others_came or t.deferred.count > 0 or t.above.waits(t.above.top)):
        t.newcomers_rest_us = 0
        return False
    if t.newcomers_rest_us and now_us >= t.newcomers_rest_us:
        t.newcomers_rest_us = 0
        return False
    if t.newcomers_rest_us == 0:
        t.newcomers_rest_us = now_us + CROWD_REST_US
    return True


cdef void rest_newcomers(Transport* t, bint rest) noexcept nogil:
    """Whether `epoll` keeps silent about them."""
    cdef epoll_event event
    event.events = 0 if rest else EPOLLIN
    event.data.u64 = <uint64_t>NEWCOMERS_KEY
    if epoll_ctl(t.epoll, EPOLL_CTL_MOD, t.newcomers, &event) == 0:
        t.newcomers_rest = rest


cdef void look_at_crowd(Transport* t) noexcept nogil:
    """Its part of the turn (work N20): ends have at most half."""
    cdef int64_t began = t.work
    cdef bint waits
    end_some(t, began + CROWD_WORK // 2)
    if not t.newcomers_came and not t.newcomers_rest:
        return
    waits = crowd_waits(t)
    if not waits:
        serve_newcomers(t, began + CROWD_WORK)
    if waits != t.newcomers_rest:
        rest_newcomers(t, waits)


cdef int transport_sleep(Transport* t, int timeout_ms) noexcept nogil:
    if t.newcomers_rest:
        timeout_ms = min(timeout_ms, <int>(CROWD_REST_US // 1000)) if t.above.waits(t.above.top) else 0
    if t.wakeful or t.deferred.count > 0 or handshakes_wait(t):
        timeout_ms = 0
    t.wakeful = False
    return epoll_wait(t.epoll, <epoll_event*>t.ready, EVENTS_AT_ONCE, timeout_ms)


cdef void transport_read(Transport* t, int count) noexcept nogil:
    cdef epoll_event* ready = <epoll_event*>t.ready
    cdef int i
    t.steady_us = steady_us()
    t.steady_ms = t.steady_us // 1000
    t.wall_ms = 0
    t.end_count = 0
    t.newcomers_came = t.others_came = False
    work_begin_turn(t)
    for i in range(count):
        if ready[i].data.u64 == <uint64_t>NEWCOMERS_KEY:
            t.newcomers_came = True
        elif ready[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR):
            ready[t.end_count] = ready[i]
            t.end_count += 1
        elif ready[i].data.u64 != <uint64_t>BELL_KEY:
            t.others_came = True
            one_event(t, ready[i].data.u64, ready[i].events)


cdef void retry_stalled(Transport* t) noexcept nogil:
    """Round robin: a connection that is still stalled goes to the end."""
    cdef int32_t i, slot
    cdef Connection* c
    for i in range(min(t.stalled.count, RETRIES_AT_ONCE)):
        slot = slots_take(&t.stalled)
        c = t.connections[slot]
        if c.deferred:                     # then it is its turn (work N9)
            c.input_state = INPUT_YIELDED
        else:
            c.input_state = INPUT_OPEN
            handle_again(t, c)
        c = t.connections[slot]
        if c != NULL:
            connection_watch(t, c)
            if c.input_state == INPUT_STALLED:
                return                 # still no room


cdef void take_up(Transport* t, Connection* c) noexcept nogil:
    """One slice for a deferred connection; what is left defers it again."""
    cdef uint64_t id = c.id
    c.deferred = False
    c.turn = t.turn
    c.work = 0
    if c.postponed:
        t.above.slice_came(t.above.top, c)
    if c.input_state == INPUT_YIELDED and c.life != LIFE_DOOMED:
        handle_again(t, c)
        c = connection_find(t, id)
    if c != NULL:
        connection_watch(t, c)


cdef void work_deferred(Transport* t) noexcept nogil:
    """The deferred connections' part of a turn (work N9)."""
    cdef int64_t end = t.work + DEFERRED_WORK
    cdef int32_t slot
    t.slice = DEFERRED_SLICE_WORK
    while t.work < end:
        slot = slots_take(&t.deferred)
        if slot < 0:
            break
        t.work += TAKE_UP_WORK         # so that this ends, whatever they need
        take_up(t, t.connections[slot])
    t.slice = 0


cdef void transport_continue(Transport* t) noexcept nogil:
    if t.stalled.count:
        retry_stalled(t)
    if t.deferred.count:
        work_deferred(t)
    if t.tls.again.count:
        handshakes_go_on(t)


cdef void transport_end_turn(Transport* t) noexcept nogil:
    cdef int64_t before = t.slot.figures[FIGURE_BYTES_IN]
    cdef int32_t slot
    cdef Connection* c
    look_at_crowd(t)
    handshakes_turn(t)
    if t.slot.figures[FIGURE_BYTES_IN] != before:
        t.wakeful = True               # what they asked for goes on in the next turn
    slot = slots_take(&t.doomed)
    while slot >= 0:
        c = t.connections[slot]
        connection_close(t, c, c.doom, c.doom_detail)
        slot = slots_take(&t.doomed)
    memory_end_turn(t)


cdef void close_idle(Transport* t) noexcept nogil:
    """Who says nothing; and whose frame comes so slowly that it never ends."""
    cdef int32_t i
    cdef int64_t age_ms
    cdef Connection* c
    for i in range(t.connection_max):
        c = t.connections[i]
        if c == NULL:
            continue
        age_ms = t.steady_ms - c.input_since_ms
        if t.steady_ms - c.active_ms > t.idle_ms_max:
            connection_close(t, c, CLOSE_IDLE, 0)
        elif (c.input_length > 0 and age_ms > t.idle_ms_max and c.input_state == INPUT_OPEN
                and not c.deferred and c.input_length < age_ms * SLOW_BYTES_A_S // 1000):
            connection_close(t, c, CLOSE_SLOW, age_ms)


cdef void transport_tick(Transport* t) noexcept nogil:
    memory_look(t)
    handshakes_look(t)
    if t.steady_ms - t.idle_look_ms >= min(<int64_t>IDLE_LOOK_MS, t.idle_ms_max):
        t.idle_look_ms = t.steady_ms
        close_idle(t)


cdef void transport_close_all(Transport* t) noexcept nogil:
    cdef int32_t i
    for i in range(t.connection_max):
        if t.connections[i] != NULL:
            connection_close(t, t.connections[i], CLOSE_PEER, 0)
    while t.returned.bytes:
        memory_end_turn(t)
