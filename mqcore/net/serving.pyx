"""The serving process: the native loop over sockets and rings, and its thin Python shell."""
import socket

from libc.errno cimport EMFILE, ENFILE, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint64_t
from libc.stdlib cimport calloc, malloc
from libc.string cimport memcpy

from mqcore.atomics cimport load_i32_acquire
from mqcore.clock cimport steady_ms, wall_ms
from mqcore.layout cimport (
    CQ_ENTRY_SIZE,
    PROPERTIES_LENGTH_MAX,
    SLOT_COORDINATOR,
    SLOT_DISPATCHER,
    SLOT_SERVING,
    SLOT_WRITER,
    WORKER_RUNNING,
    OffsetCommit,
)
from mqcore.filter.loaded cimport filter_cache_clear
from mqcore.net.forward cimport (
    coordinator_is_new,
    forward_commits,
    forward_heartbeats,
    forward_hello,
    forward_words,
    take_answers,
)
from mqcore.net.cold cimport cold_close, cold_open
from mqcore.net.held cimport (
    held_clear,
    held_init,
    held_take_memory,
    look_at_held,
    settle_due,
    take_arrivals,
    take_cold,
)
from mqcore.net.input cimport handle_rest, read_some
from mqcore.net.memory cimport close_doomed, memory_look, memory_open
from mqcore.net.parked cimport drop_old_parked
from mqcore.net.requests cimport handle_input
from mqcore.net.send cimport take_results
from mqcore.net.server cimport (
    CLOSE_IDLE,
    CLOSE_PEER,
    CLOSE_SLOW,
    COMMITS_MAX,
    PARKED_COUNT_MAX,
    READ_BYTES,
    SCAN_ENTRIES_MAX,
    CloseEvent,
    Connection,
    ParkedRequest,
    Server,
    Word,
    connection_add,
    connection_close,
    connection_find,
    connection_hang_up,
    connection_watch,
    output_flush,
    output_flush_all,
)
from mqcore.net.slots cimport slots_open, slots_take
from mqcore.net.work cimport work_begin_turn, work_late
from mqcore.shm.pull_counts cimport pull_counts_open
from mqcore.shm.ring cimport ring_is_empty, ring_publish
from mqcore.shm.segment cimport (
    Segment,
    Shm,
    doorbell_arm,
    doorbell_disarm,
    doorbell_ring,
    shm_consumer,
    shm_producer,
)
from mqcore.store.queue.consume_queue cimport (
    queue_files_close,
    queue_files_forget,
    queue_files_open,
)
from mqcore.store.log.named cimport named_close, named_open
from mqcore.store.log.view cimport log_view_close, log_view_forget, log_view_open
from mqcore.store.queue.extension cimport extension_close, extension_let_go, extension_open

cdef extern from "<sys/epoll.h>" nogil:
    int epoll_create1(int flags)
    int epoll_ctl(int epoll, int operation, int fd, epoll_event* event)
    int epoll_wait(int epoll, epoll_event* events, int count, int timeout_ms)
    int EPOLL_CLOEXEC
    int EPOLL_CTL_ADD
    int EPOLL_CTL_DEL
    unsigned int EPOLLIN
    unsigned int EPOLLOUT
    unsigned int EPOLLERR
    unsigned int EPOLLHUP
    unsigned int EPOLLET
    unsigned int EPOLLEXCLUSIVE
    ctypedef union epoll_data_t:
        uint64_t u64
    struct epoll_event:
        unsigned int events
        epoll_data_t data

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
      int one = 1, fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd >= 0) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      return fd;
    }
    """
    int mq_accept(int listener) noexcept nogil

cdef extern from *:
    """
    #include <malloc.h>
    /* The C library keeps what is freed; after a crowd of slow readers that can be much. */
    static void mq_give_pages_back(void) {
    #ifdef __GLIBC__
      malloc_trim(0);
    #endif
    }
    """
    void give_pages_back "mq_give_pages_back"() noexcept nogil

cdef enum:
    EVENTS_AT_ONCE = 256
    ACCEPTS_AT_ONCE = 64
    TICK_MS = 100                      # timers, while there is something to time
    HELD_LOOK_MS = 1000                # every held pull, in case an arrival found no room
    IDLE_LOOK_MS = 10000
    RETRIES_AT_ONCE = 256
    SLOW_BYTES_A_S = 1024              # of a frame that takes longer than a connection may be idle
    BELL_KEY = 0xFFFFFFFFFFFFFFFF
    LISTENER_KEY = 0xFFFFFFFFFFFFFF00  # + index of the listener
    DRAIN_MS = 2000                    # for answers on their way when the process stops


cdef void accept_some(Server* s, int listener) noexcept nogil:
    cdef int i, fd
    for i in range(ACCEPTS_AT_ONCE):
        fd = mq_accept(s.listeners[listener])
        if fd < 0:
            if errno == EMFILE or errno == ENFILE:
                s.events_lost += 1     # level-triggered: it is tried again when one closes
            return
        if connection_add(s, fd, s.listener_fast[listener]) == NULL:
            close(fd)
            s.events_lost += 1


cdef void retry_stalled(Server* s) noexcept nogil:
    """By turns: who still cannot go on is the last one again."""
    cdef int32_t i, slot
    cdef Connection* c
    for i in range(min(s.stalled.count, RETRIES_AT_ONCE)):
        slot = slots_take(&s.stalled)
        c = s.connections[slot]
        c.stalled = False
        if c.late:                     # then it is its turn (N9)
            c.yielded = True
        elif c.hung_up:
            handle_rest(s, c)
        else:
            handle_input(s, c, c.input, c.input_length)
        c = s.connections[slot]
        if c != NULL:
            connection_watch(s, c)
            if c.stalled and not c.waits:
                return                 # still no room


cdef void push_appends(Server* s) noexcept nogil:
    if ring_publish(&s.appends):
        doorbell_ring(&s.shm.slots[SLOT_WRITER])


cdef void take_rings(Server* s) noexcept nogil:
    take_results(s)
    take_arrivals(s)
    if s.due_count:
        settle_due(s)
    if s.cold:
        take_cold(s)
    take_answers(s)
    if s.word_count:
        forward_words(s)
    if s.repeat_at >= 0:
        forward_heartbeats(s)
    if s.stalled.count:
        retry_stalled(s)
    if s.late.count:
        work_late(s)
    push_appends(s)


cdef bint rings_are_empty(Server* s) noexcept nogil:
    return (ring_is_empty(&s.results) and ring_is_empty(&s.arrivals)
            and ring_is_empty(&s.answers))


cdef bint has_more(Server* s) noexcept nogil:
    """Whether something was left for this turn (N9, H7)."""
    return s.late.count > 0 or s.due_count > 0 or s.held_walk < s.held_used


cdef void tick(Server* s) noexcept nogil:
    s.tick_ms = s.steady_ms
    look_at_others(s)
    memory_look(s)
    if s.held_walk >= s.held_used:
        s.held_walk = 0
    if s.steady_ms - s.held_look_ms >= HELD_LOOK_MS:
        s.held_look_ms = s.steady_ms
        if s.trim:
            s.trim = False
            give_pages_back()
    forward_commits(s)
    drop_old_parked(s)
    if s.steady_ms - s.idle_look_ms >= IDLE_LOOK_MS:
        s.idle_look_ms = s.steady_ms
        close_idle(s)


cdef void look_at_others(Server* s) noexcept nogil:
    """Has another process been started anew? Then mend what its predecessor left open here."""
    cdef int32_t incarnation = load_i32_acquire(&s.shm.slots[SLOT_DISPATCHER].incarnation)
    if incarnation != s.dispatcher_incarnation:
        s.dispatcher_incarnation = incarnation
        s.held_look_ms = s.steady_ms   # it may have died between growing a queue and telling us
    incarnation = load_i32_acquire(&s.shm.slots[SLOT_WRITER].incarnation)
    if incarnation != s.writer_incarnation:
        s.writer_incarnation = incarnation
        s.in_flight = 0                # some of their answers will never come
    if (load_i32_acquire(&s.shm.slots[SLOT_COORDINATOR].incarnation) != s.coordinator_incarnation
            and load_i32_acquire(&s.shm.slots[SLOT_COORDINATOR].state) == WORKER_RUNNING):
        s.coordinator_incarnation = s.shm.slots[SLOT_COORDINATOR].incarnation
        s.coordinator_since_ms = s.steady_ms
        coordinator_is_new(s)


cdef void close_idle(Server* s) noexcept nogil:
    """Who says nothing; and whose frame comes so slowly that it never ends."""
    cdef int32_t i
    cdef int64_t age_ms
    cdef Connection* c
    for i in range(s.connection_max):
        c = s.connections[i]
        if c == NULL:
            continue
        age_ms = s.steady_ms - c.input_since_ms
        if s.steady_ms - c.active_ms > s.idle_ms_max:
            connection_close(s, c, CLOSE_IDLE, 0)
        elif (c.input_length > 0 and age_ms > s.idle_ms_max and not c.stalled and not c.late
                and not c.held_back and c.input_length < age_ms * SLOW_BYTES_A_S // 1000):
            connection_close(s, c, CLOSE_SLOW, age_ms)


cdef void one_event(Server* s, uint64_t key, unsigned int events) noexcept nogil:
    cdef Connection* c
    if key == <uint64_t>BELL_KEY:
        return
    if key >= <uint64_t>LISTENER_KEY:
        if not s.stopping:
            accept_some(s, <int>(key & 0xFF))
        return
    c = connection_find(s, key)
    if c == NULL:
        return
    if events & EPOLLOUT:
        output_flush(s, c)
        c = connection_find(s, key)
        if c == NULL:
            return
    if events & (EPOLLIN | EPOLLHUP | EPOLLERR):
        if events & EPOLLIN and not c.stalled and not c.late:
            read_some(s, c)
            push_appends(s)            # the writer begins while we read on
        elif events & (EPOLLHUP | EPOLLERR):
            connection_hang_up(s, c)


cdef void turn(Server* s, int timeout_ms) noexcept nogil:
    """Sleep until something comes, then do all of it."""
    cdef epoll_event events[EVENTS_AT_ONCE]
    cdef int count, i
    doorbell_arm(s.slot)
    if s.hung_up or has_more(s) or not rings_are_empty(s):
        timeout_ms = 0
    s.hung_up = False
    count = epoll_wait(s.epoll, events, EVENTS_AT_ONCE, timeout_ms)
    doorbell_disarm(s.slot)
    s.steady_ms = steady_ms()
    s.now_ms = wall_ms()
    work_begin_turn(s)
    for i in range(count):
        one_event(s, events[i].data.u64, events[i].events)
    take_rings(s)
    output_flush_all(s)
    if s.steady_ms - s.tick_ms >= TICK_MS:
        tick(s)
    if s.held_walk < s.held_used:
        look_at_held(s)
        output_flush_all(s)
    if s.doomed.count:
        close_doomed(s)


cdef int sleep_ms(Server* s, int64_t until_ms) noexcept nogil:
    cdef int64_t left = until_ms - s.steady_ms
    if ((s.held_count or s.commit_count or s.parked_count or s.word_count or s.stalled.count)
            and left > TICK_MS):
        left = TICK_MS
    return <int>max(left, 0)


cdef class ServingLoop:
    """
    One serving process's work, without the GIL.

    segment: the run's shared memory; index: which serving process this is; listeners: (socket,
    is the fast port) each; log_folder, queue_folder: where the files are; store_address: (ip, port)
    that records and message ids carry; live: what `configure` takes. Sizes in bytes, times in ms.
    Raises OSError.
    """
    cdef Segment segment
    cdef Server* s
    cdef object listeners
    cdef int32_t trims_seen

    def __cinit__(self, Segment segment not None, int index, list listeners, bytes log_folder,
                  bytes queue_folder, *, tuple store_address, str cluster, int64_t file_entries,
                  int connection_max, int held_max, int body_bytes_max, uint64_t seed,
                  bytes extension_folder=b"", int64_t extension_file_bytes=50331648,
                  bint light_queues=False, int32_t queue_files_max=4096,
                  int32_t extension_files_max=1024, int64_t connection_memory_bytes=1 << 28,
                  **live):
        cdef Shm* shm = &segment.shm
        cdef Server* s
        self.segment = segment
        self.listeners = listeners
        self.s = s = <Server*>calloc(1, sizeof(Server))
        if s == NULL:
            raise MemoryError
        s.shm = shm
        s.index = index
        s.slot = &shm.slots[SLOT_SERVING + index]
        s.incarnation = s.slot.incarnation
        s.generation = <uint64_t>s.incarnation * 65537 & 0xFFFFFF
        s.random = seed | 1
        s.connection_max = connection_max
        s.body_max = body_bytes_max
        s.held_capacity = held_max
        self.configure(**live)
        self.name_broker(store_address, cluster)
        self.take_memory()
        held_init(s)
        memory_open(s, connection_memory_bytes)
        log_view_open(&s.log, shm.log, log_folder, shm.head.segment_size)
        if queue_files_open(&s.queues, shm.queues, shm.head.queue_capacity, queue_folder,
                            file_entries, queue_files_max, False):
            raise MemoryError
        if extension_open(&s.extension, shm.queues, shm.head.queue_capacity, extension_folder,
                          queue_folder, file_entries, extension_file_bytes, extension_files_max,
                          False):
            raise MemoryError
        named_open(&s.named, shm, &s.log, &s.queues)
        s.light_queues = light_queues
        s.cold_reader = cold_open(s.slot.bell)
        s.log.read_ahead = s.cold_reader == NULL                             # L3
        shm_producer(shm, &shm.head.appends[index], &s.appends)
        shm_consumer(shm, &shm.head.append_results[index], &s.results)
        shm_consumer(shm, &shm.head.arrivals[index], &s.arrivals)
        shm_producer(shm, &shm.head.requests[index], &s.requests)
        shm_consumer(shm, &shm.head.answers[index], &s.answers)
        pull_counts_open(&s.pull_counts, shm, index)
        s.writer_incarnation = shm.slots[SLOT_WRITER].incarnation
        s.dispatcher_incarnation = shm.slots[SLOT_DISPATCHER].incarnation
        s.coordinator_incarnation = shm.slots[SLOT_COORDINATOR].incarnation
        s.steady_ms = s.tick_ms = s.held_look_ms = s.idle_look_ms = steady_ms()
        s.now_ms = wall_ms()
        self.watch(listeners)

    def configure(self, *, str region, bint trace_on, int64_t idle_ms_max, int64_t memory_bytes,
                  int memory_count_max, int memory_bytes_max, int disk_count_max,
                  int disk_bytes_max, bint long_polling, int64_t short_polling_ms,
                  int delay_level_count=18, bint transactions_refused=False,
                  bint filters_enabled=False, bint filter_retry=False, bint slave_read=False,
                  int64_t accept_sends_from_ms=0) -> None:
        """What can change while it runs, between two calls of `run`. Raises ValueError."""
        cdef Server* s = self.s
        cdef bytes raw = region.encode()
        if len(raw) > <int>sizeof(s.region):
            raise ValueError(f"broker.region_id: {len(raw)} bytes, expected at most 256")
        s.region_length = <int32_t>len(raw)
        memcpy(s.region, <const char*>raw, len(raw))
        s.trace_on = trace_on
        s.idle_ms_max = idle_ms_max
        s.memory_bytes = memory_bytes
        s.memory_count_max = memory_count_max
        s.memory_bytes_max = memory_bytes_max
        s.disk_count_max = disk_count_max
        s.disk_bytes_max = disk_bytes_max
        s.long_polling = long_polling
        s.short_polling_ms = short_polling_ms
        s.delay_level_count = delay_level_count
        s.transactions_refused = transactions_refused
        s.filters_enabled = filters_enabled
        s.filter_retry = filter_retry
        s.slave_read = slave_read
        s.accept_sends_from_ms = accept_sends_from_ms

    cdef name_broker(self, tuple store_address, str cluster):
        cdef Server* s = self.s
        ip, port = store_address
        raw = socket.inet_pton(socket.AF_INET6 if ":" in ip else socket.AF_INET, ip)
        raw += int(port).to_bytes(4, "big")
        s.store_host_size = <int32_t>len(raw)
        memcpy(s.store_host, <const char*>raw, len(raw))
        raw = b"CLUSTER\x01" + cluster.encode()
        if len(raw) > <int>sizeof(s.cluster_property):
            raise ValueError(f"broker.cluster: {len(raw) - 8} bytes, expected at most 290")
        s.cluster_property_length = <int32_t>len(raw)
        memcpy(s.cluster_property, <const char*>raw, len(raw))
        raw = (f"the message is illegal: its body or batch is longer than {s.body_max} bytes "
               f"(store.message_size_max_bytes), or its properties are longer than "
               f"{PROPERTIES_LENGTH_MAX} bytes").encode()
        memcpy(s.illegal, <const char*>raw, len(raw) + 1)

    cdef take_memory(self):
        cdef Server* s = self.s
        cdef int32_t i
        s.connections = <Connection**>calloc(s.connection_max, sizeof(void*))
        s.free_slots = <int32_t*>malloc(s.connection_max * sizeof(int32_t))
        s.scratch = <uint8_t*>malloc(2 * READ_BYTES)
        s.entries = <uint8_t*>malloc(SCAN_ENTRIES_MAX * CQ_ENTRY_SIZE)
        s.parked = <ParkedRequest*>calloc(PARKED_COUNT_MAX, sizeof(ParkedRequest))
        s.commits = <OffsetCommit*>calloc(COMMITS_MAX, sizeof(OffsetCommit))
        s.words = <Word*>calloc(2 * s.connection_max, sizeof(Word))
        s.repeat_at = -1
        if (s.connections == NULL or s.free_slots == NULL or s.scratch == NULL
                or s.entries == NULL or s.parked == NULL or s.commits == NULL or s.words == NULL
                or not held_take_memory(s)):
            raise MemoryError
        if not (slots_open(&s.dirty, s.connection_max) and slots_open(&s.stalled, s.connection_max)
                and slots_open(&s.late, s.connection_max)
                and slots_open(&s.doomed, s.connection_max)):
            raise MemoryError
        for i in range(s.connection_max):
            s.free_slots[i] = s.connection_max - 1 - i
        s.free_count = s.connection_max

    cdef watch(self, list listeners):
        cdef Server* s = self.s
        cdef epoll_event event
        s.epoll = epoll_create1(EPOLL_CLOEXEC)
        if s.epoll < 0:
            raise OSError(errno, "epoll")
        event.events = EPOLLIN | EPOLLET
        event.data.u64 = <uint64_t>BELL_KEY
        if epoll_ctl(s.epoll, EPOLL_CTL_ADD, s.slot.bell, &event) != 0:
            raise OSError(errno, "epoll")
        for number, (listener, fast_port) in enumerate(listeners):
            s.listeners[number] = listener.fileno()
            s.listener_fast[number] = fast_port
            s.listener_count += 1
            event.events = EPOLLIN
            event.data.u64 = <uint64_t>LISTENER_KEY + <uint64_t>number
            if epoll_ctl(s.epoll, EPOLL_CTL_ADD, listener.fileno(), &event) != 0:
                raise OSError(errno, "epoll")

    def hello(self) -> None:
        """Tell the coordinator that this is a new process: connections of an earlier one are gone."""
        forward_hello(self.s)

    def run(self, int64_t slice_ms) -> None:
        """Serve for `slice_ms`, or until a stop is asked for."""
        cdef Server* s = self.s
        cdef int64_t end_ms = steady_ms() + slice_ms
        self.forget_deleted()
        with nogil:
            while s.steady_ms < end_ms and not load_i32_acquire(&s.slot.stop_requested):
                turn(s, sleep_ms(s, end_ms))
            s.slot.beat_ms = s.now_ms

    cdef void forget_deleted(self) noexcept nogil:
        """Let go of deleted files, between requests: their disk space is free only then."""
        cdef int32_t trims = load_i32_acquire(&self.s.shm.log.trims)
        log_view_forget(&self.s.log)
        if trims != self.trims_seen:
            self.trims_seen = trims
            queue_files_forget(&self.s.queues)
            extension_let_go(&self.s.extension)

    def drain(self) -> None:
        """The end: accept and read nothing more, answer what is on its way, close everything."""
        cdef Server* s = self.s
        cdef int64_t end_ms = steady_ms() + DRAIN_MS
        cdef int32_t i
        s.stopping = True
        for i in range(s.listener_count):
            epoll_ctl(s.epoll, EPOLL_CTL_DEL, s.listeners[i], NULL)
        with nogil:
            s.held_walk = 0            # who waits hears it now, not when its own patience ends
            while s.held_walk < s.held_used:
                look_at_held(s)
            output_flush_all(s)
            while s.in_flight > 0 and steady_ms() < end_ms:
                turn(s, 20)
            for i in range(s.connection_max):
                if s.connections[i] != NULL:
                    connection_close(s, s.connections[i], CLOSE_PEER, 0)
            while not forward_words(s) and steady_ms() < end_ms:
                turn(s, 20)
        named_close(&s.named)
        log_view_close(&s.log)
        queue_files_close(&s.queues)
        extension_close(&s.extension)
        cold_close(s.cold_reader)
        s.cold_reader = NULL
        held_clear(s)
        filter_cache_clear(&s.filters)

    def events(self) -> tuple[list[tuple[str, int, int]], int]:
        """Connections closed by us since the last call: [("ip:port", CloseReason, detail)], how many more."""
        cdef Server* s = self.s
        cdef CloseEvent* event
        result = []
        for i in range(s.event_count):
            event = &s.events[i]
            size = 16 if event.address_is_v6 else 4
            address = socket.inet_ntop(socket.AF_INET6 if event.address_is_v6 else socket.AF_INET,
                                       (<const char*>event.address)[:size])
            result.append((f"{address}:{event.port}", event.reason, event.detail))
        lost = s.events_lost
        s.event_count = 0
        s.events_lost = 0
        return result, lost
