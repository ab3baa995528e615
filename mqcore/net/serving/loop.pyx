"""The serving process: the native loop over sockets and rings, and its thin Python shell."""
import socket

from mqcore.net.serving.live import Refused

from libc.errno cimport errno
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, malloc
from libc.string cimport memcpy

from mqcore.atomics cimport load_i32_acquire
from mqcore.clock cimport steady_ms
from mqcore.filter.loaded cimport filter_cache_clear
from mqcore.layout cimport (
    ADDRESS_V4_SIZE,
    ADDRESS_V6_SIZE,
    CONNECTION_LIFE_MASK,
    CONNECTION_LIFE_SHIFT,
    CONNECTION_SERVING_SHIFT,
    CQ_ENTRY_SIZE,
    EXEMPT_MAX,
    LATENCY_DELIVERY,
    LATENCY_PULL,
    LATENCY_SEND,
    PROPERTIES_LENGTH_MAX,
    SLOT_COORDINATOR,
    SLOT_DISPATCHER,
    SLOT_SERVING,
    SLOT_WRITER,
    TRACE_ENTRIES,
    TRACE_TURN,
    WORKER_RUNNING,
    TraceEntry,
)
from mqcore.net.remoting.access cimport AccessGuard, AccessRefusal, access_check
from mqcore.net.remoting.frames cimport Remoting, Request
from mqcore.net.remoting.say cimport remoting_front
from mqcore.net.serving.answers cimport take_answers
from mqcore.net.serving.appends cimport take_results
from mqcore.net.serving.asked cimport asked_answer_orphans
from mqcore.net.serving.cold cimport cold_close, cold_open
from mqcore.net.serving.offset_commits cimport send_offset_commits
from mqcore.net.serving.handler cimport holds_back, refused, serve
from mqcore.net.serving.forward cimport (
    forget_forwarding,
    forward_heartbeats,
    forward_hello,
    forward_reads,
    forward_words,
    forwarding_open,
    meet_coordinator,
)
from mqcore.net.serving.held cimport held_clear, held_open
from mqcore.net.serving.held_passes cimport (
    check_postponed,
    continue_cold,
    run_passes,
    take_arrivals,
    walk_held,
)
from mqcore.net.serving.held_places cimport held_forget
from mqcore.net.serving.limits cimport (
    AddressRange,
    LimitRules,
    Limits,
    limits_closed,
    limits_forget_sends,
    limits_opened,
)
from mqcore.net.serving.parked cimport answer_old_parked, parking_open
from mqcore.net.serving.pops cimport pops_closed, pops_connect, pops_say_gone
from mqcore.net.serving.peer cimport OF_ACCOUNT, OF_ADDRESS, Peer, peer_address, peer_of
from mqcore.net.serving.scan cimport SCAN_ENTRIES_MAX
from mqcore.net.transport.loop cimport (
    transport_close_all,
    transport_end_turn,
    transport_continue,
    transport_listen,
    transport_open,
    transport_read,
    transport_sleep,
    transport_stop_listening,
    transport_tick,
)
from mqcore.net.transport.output cimport output_flush_all
from mqcore.net.transport.pages cimport give_pages_back, keep_pages
from mqcore.net.transport.shell cimport closed_events, host_text, secure
from mqcore.net.transport.tls cimport tls_end
from mqcore.net.transport.tls_context cimport TlsContext
from mqcore.net.transport.transport cimport Connection, wall_of_turn
from mqcore.shm.limits cimport limits_clear
from mqcore.shm.access cimport access_close, access_is_on, access_open
from mqcore.shm.latency cimport latency_of
from mqcore.shm.leadership cimport leadership_follows
from mqcore.shm.replica_gate cimport is_taking_over
from mqcore.shm.pull_counts cimport pull_counts_open
from mqcore.shm.ring cimport ring_is_empty
from mqcore.shm.segment cimport doorbell_arm, doorbell_disarm, shm_consumer, shm_producer
from mqcore.shm.trace cimport (
    TRACER_SERVING,
    trace_begin,
    trace_stamp,
    trace_turn,
    tracer_open,
)
from mqcore.store.log.append_end cimport append_end_open, append_push
from mqcore.store.log.named cimport named_close, named_open
from mqcore.store.log.view cimport log_view_close, log_view_forget, log_view_open
from mqcore.store.queue.consume_queue cimport (
    queue_files_close,
    queue_files_forget,
    queue_files_open,
)
from mqcore.store.queue.extension cimport extension_close, extension_let_go, extension_open

cdef enum:
    TICK_MS = 100                      # timers, while there is something to time
    HELD_LOOK_MS = 1000                # every held pull, in case an arrival found no room
    TRIM_WAITS_MAX = 10
    DRAIN_MS = 2000                    # for answers on their way when the process stops


# -- what the transport calls ------------------------------------------------------------------------

cdef void opened(void* top, Connection* c) noexcept nogil:
    cdef Peer* peer = peer_of(c)
    peer.front = &(<Server*>top).fronts[c.kind]
    peer.fast_port = c.kind == KIND_FAST
    peer_address(peer)
    limits_opened(&(<Server*>top).limits, c)


cdef int64_t bytes_came(void* top, Connection* c, uint8_t* data, int64_t length) noexcept nogil:
    cdef const Front* front = peer_of(c).front
    cdef int64_t handled = front.bytes_came(front.self, c, data, length)
    append_push(&(<Server*>top).appends.to_writer)         # the writer begins while we read on
    return handled


cdef int check(void* guard, Connection* c, Request* request) noexcept nogil:
    return access_check(<AccessGuard*>guard, c, request)


cdef void slice_came(void* top, Connection* c) noexcept nogil:
    check_postponed(&(<Server*>top).held, c)


cdef void drained(void* top, Connection* c) noexcept nogil:
    forward_reads(&(<Server*>top).forwarding, c)


cdef void closing(void* top, Connection* c) noexcept nogil:
    if peer_of(c).front.closing != NULL:
        peer_of(c).front.closing(peer_of(c).front.self, c)
    forget_forwarding(&(<Server*>top).forwarding, c)
    pops_closed(&(<Server*>top).pops, c)
    held_forget(&(<Server*>top).held, c)
    limits_closed(&(<Server*>top).limits, c)


cdef bint waits(void* top) noexcept nogil:     # the writer, the dispatcher or the coordinator is awake
    cdef Shm* shm = (<Server*>top).shm
    return not (load_i32_acquire(&shm.slots[SLOT_WRITER].asleep)
                and load_i32_acquire(&shm.slots[SLOT_DISPATCHER].asleep)
                and load_i32_acquire(&shm.slots[SLOT_COORDINATOR].asleep))


# -- turns -------------------------------------------------------------------------------------------

cdef void take_rings(Server* s) noexcept nogil:
    take_results(&s.appends)
    take_arrivals(&s.held)
    if s.held.pass_count:
        run_passes(&s.held)
    if s.held.cold:
        continue_cold(&s.held)
    take_answers(&s.answers)
    if s.pops.on:
        take_answers(&s.pop_answers)
        pops_say_gone(&s.pops)
    if s.forwarding.word_count:
        forward_words(&s.forwarding)
    if s.forwarding.repeat_at >= 0:
        forward_heartbeats(&s.forwarding)
    transport_continue(&s.transport)
    append_push(&s.appends.to_writer)


cdef bint has_more(Server* s) noexcept nogil:         # left for this turn (held H7), or come
    return (s.held.pass_count > 0 or s.held.walk < s.held.used
            or not ring_is_empty(&s.appends.to_writer.results) or not ring_is_empty(&s.held.arrivals)
            or not ring_is_empty(&s.answers.ring)
            or (s.pops.on and not ring_is_empty(&s.pop_answers.ring))
            or (s.fronts[KIND_OTHER].waits != NULL
                and s.fronts[KIND_OTHER].waits(s.fronts[KIND_OTHER].self)))


cdef void trim(Server* s) noexcept nogil:
    """Once a second: when large buffers were freed, and no more of them are, or for long."""
    if s.transport.trim:
        s.transport.trim = False
        s.trim_waits += 1
        if s.trim_waits < TRIM_WAITS_MAX:
            return
    elif s.trim_waits == 0:
        return
    s.trim_waits = 0
    give_pages_back()


cdef void tick(Server* s) noexcept nogil:
    cdef int64_t now_ms = s.transport.steady_ms
    s.tick_ms = now_ms
    look_at_others(s)
    if s.held.walk >= s.held.used:
        s.held.walk = 0
    if now_ms - s.held.look_ms >= HELD_LOOK_MS:
        s.held.look_ms = now_ms
        trim(s)
    send_offset_commits(&s.offset_commits)
    answer_old_parked(&s.parking)
    asked_answer_orphans(&s.forwarding.asking, s.parking.coordinator_since_ms)
    transport_tick(&s.transport)


cdef void look_at_others(Server* s) noexcept nogil:
    """Has another process been started anew? Then mend what its predecessor left open here."""
    cdef int32_t incarnation = load_i32_acquire(&s.shm.slots[SLOT_DISPATCHER].incarnation)
    if incarnation != s.dispatcher_incarnation:
        s.dispatcher_incarnation = incarnation
        s.held.look_ms = s.transport.steady_ms   # it may have died before it told us of a queue
    incarnation = load_i32_acquire(&s.shm.slots[SLOT_WRITER].incarnation)
    if incarnation != s.writer_incarnation:
        s.writer_incarnation = incarnation
        s.appends.in_flight = 0        # some of their answers will never come
        limits_forget_sends(&s.limits)
    meet_coordinator(&s.forwarding)
    if (s.forwarding.coordinator != s.coordinator_incarnation
            and load_i32_acquire(&s.shm.slots[SLOT_COORDINATOR].state) == WORKER_RUNNING):
        s.coordinator_incarnation = s.forwarding.coordinator
        s.parking.coordinator_since_ms = s.transport.steady_ms


cdef void end_trace(Tracer* t) noexcept nogil:
    """The requests that the turn answered were sent in it."""
    cdef int64_t i
    cdef TraceEntry* entry
    trace_stamp(t, 2)
    for i in range(t.added):
        entry = &t.ring.entries[(t.ring.count + i) & (TRACE_ENTRIES - 1)]
        entry.at_us[1] = t.at_us[0]
        entry.at_us[3] = t.at_us[2]
    trace_turn(t, TRACE_TURN, 0, 0)


cdef void send_all(Server* s) noexcept nogil:
    if s.fronts[KIND_OTHER].turn_ends != NULL:
        s.front_due_ms = s.fronts[KIND_OTHER].turn_ends(s.fronts[KIND_OTHER].self)
    output_flush_all(&s.transport)


cdef void turn(Server* s, int timeout_ms) noexcept nogil:
    """Sleep until something comes, then do all of it."""
    cdef Transport* t = &s.transport
    cdef int count
    doorbell_arm(s.slot)
    count = transport_sleep(t, 0 if has_more(s) else timeout_ms)
    doorbell_disarm(s.slot)
    trace_begin(&s.tracer, 0)
    s.appends.slave = s.pulls.slave = leadership_follows(s.shm, s.slave)
    s.pulls.taking_over = is_taking_over(s.shm)
    transport_read(t, count)
    s.tracer.at_us[0] = t.steady_us    # as requests of this turn have it
    take_rings(s)
    trace_stamp(&s.tracer, 1)
    send_all(s)
    if t.steady_ms - s.tick_ms >= TICK_MS:
        tick(s)
        send_all(s)
    if s.held.walk < s.held.used:
        walk_held(&s.held)
        send_all(s)
    transport_end_turn(t)
    if s.tracer.on:
        end_trace(&s.tracer)


cdef int sleep_ms(Server* s, int64_t until_ms) noexcept nogil:
    cdef int64_t left = min(until_ms, s.front_due_ms) - s.transport.steady_ms
    if left > TICK_MS and (s.held.count or s.offset_commits.count or s.parking.count
                           or s.forwarding.word_count or s.transport.stalled.count):
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

    def __cinit__(self, Segment segment not None, int index, list listeners, bytes log_folder,
                  bytes queue_folder, *, tuple store_address, str cluster, str broker_name="", int64_t file_entries,
                  int connection_max, int held_max, uint64_t seed,
                  bytes extension_folder=b"", int64_t extension_file_bytes=50331648,
                  bint light_queues=False, bint slave=False, int32_t queue_files_max=4096,
                  int32_t extension_files_max=1024, int64_t connection_memory_bytes=1 << 28,
                  **live):
        cdef Shm* shm = &segment.shm
        cdef Transport* t
        cdef Server* s
        keep_pages()
        self.segment = segment
        self.listeners = listeners
        self.s = s = <Server*>calloc(1, sizeof(Server))
        if s == NULL:
            raise MemoryError
        s.shm = shm
        s.slot = &shm.slots[SLOT_SERVING + index]
        t = &s.transport
        t.slot = s.slot
        t.id_base = (<uint64_t>(s.slot.incarnation & CONNECTION_LIFE_MASK) << CONNECTION_LIFE_SHIFT) | (
            <uint64_t>index << CONNECTION_SERVING_SHIFT)
        t.generation = <uint64_t>s.slot.incarnation * 65537 & 0xFFFFFF
        t.connection_max = connection_max
        t.size_each = sizeof(Peer)
        t.above.top = s
        t.above.opened = opened
        t.above.bytes_came = bytes_came
        t.above.slice_came = slice_came
        t.above.drained = drained
        t.above.closing = closing
        t.above.waits = waits
        self.fill_identity(store_address, cluster, broker_name)
        s.limits.serving = index
        limits_clear(shm, index)
        self.connect()
        self.configure(**live)
        s.sends.random = seed | 1
        t.tls.seed = seed
        s.sends.light_queues = s.pulls.light_queues = light_queues
        s.slave = s.appends.slave = s.pulls.slave = slave
        s.held.capacity = held_max
        s.held.interest = shm.interest + <int64_t>index * shm.head.queue_capacity
        if not transport_open(t, s.slot.bell, connection_memory_bytes):
            raise OSError(errno, "epoll, or memory of connections")
        s.reader.entries = <uint8_t*>malloc(SCAN_ENTRIES_MAX * CQ_ENTRY_SIZE)
        if s.reader.entries == NULL or not (
                held_open(&s.held) and parking_open(&s.parking) and forwarding_open(&s.forwarding)
                and pops_connect(&s.pops, index)):
            raise MemoryError
        self.open_store(log_folder, queue_folder, extension_folder, file_entries,
                        extension_file_bytes, queue_files_max, extension_files_max)
        append_end_open(&s.appends.to_writer, shm, index, s.slot.incarnation)
        shm_consumer(shm, &shm.head.arrivals[index], &s.held.arrivals)
        shm_producer(shm, &shm.head.requests[index], &s.requests.ring)
        shm_consumer(shm, &shm.head.answers[index], &s.answers.ring)
        if s.pops.on:
            shm_consumer(shm, &shm.head.pop_answers[index], &s.pop_answers.ring)
        pull_counts_open(&s.reader.pull_counts, shm, index)
        tracer_open(&s.tracer, shm, TRACER_SERVING + index)
        s.appends.send_times = latency_of(shm.latencies, SLOT_SERVING + index, LATENCY_SEND)
        s.reader.pull_times = latency_of(shm.latencies, SLOT_SERVING + index, LATENCY_PULL)
        s.reader.delivery_times = latency_of(shm.latencies, SLOT_SERVING + index, LATENCY_DELIVERY)
        s.writer_incarnation = shm.slots[SLOT_WRITER].incarnation
        s.dispatcher_incarnation = shm.slots[SLOT_DISPATCHER].incarnation
        s.coordinator_incarnation = shm.slots[SLOT_COORDINATOR].incarnation
        s.forwarding.coordinator = s.coordinator_incarnation
        s.tick_ms = s.held.look_ms = t.steady_ms
        s.front_due_ms = INT64_MAX
        for listener, fast_port in listeners:
            if not transport_listen(t, listener.fileno(), KIND_FAST if fast_port else KIND_MAIN):
                raise OSError(errno, "epoll")

    cdef connect(self):
        """Who knows whom: each room has its own struct, and pointers to those that it uses."""
        cdef Server* s = self.s
        cdef Transport* t = &s.transport
        s.voice.remoting = Remoting(transport=t, top=&s.handler, holds_back=holds_back, refused=refused,
                                    serve=serve, check=check, guard=&s.guard, fields=NULL)
        access_open(&s.guard.access, s.shm)
        s.guard.transport = t
        s.guard.identity = &s.identity
        if access_is_on(&s.guard.access):
            s.voice.remoting.fields = &s.guard.fields
        s.ends.guard = &s.guard
        s.voice.identity = &s.identity
        remoting_front(&s.voice, &s.fronts[KIND_MAIN])
        s.fronts[KIND_FAST] = s.fronts[KIND_MAIN]
        s.appends.transport = s.reader.transport = s.held.transport = s.pulls.transport = t
        s.parking.transport = s.forwarding.transport = s.answers.transport = t
        s.pops.transport = s.pop_answers.transport = t
        s.forwarding.asking.transport = t
        s.appends.tracer = s.reader.tracer = &s.tracer
        s.sends.shm = s.wants.shm = s.reader.shm = s.held.shm = s.shm
        s.pulls.shm = s.requests.shm = s.forwarding.shm = s.answers.shm = s.shm
        s.pops.shm = s.pop_answers.shm = s.shm
        s.limits.transport = t
        s.limits.shm = s.shm
        s.appends.limits = s.sends.limits = s.forwarding.limits = &s.limits
        s.appends.identity = s.sends.identity = s.forwarding.identity = &s.identity
        s.sends.appends = s.ends.appends = &s.appends
        s.reader.wants = s.held.wants = s.pulls.wants = &s.wants
        s.held.reader = s.pulls.reader = &s.reader
        s.pulls.held = &s.held
        s.pulls.offset_commits = s.forwarding.offset_commits = &s.offset_commits
        s.offset_commits.requests = s.forwarding.requests = &s.requests
        s.forwarding.parking = s.answers.parking = s.pop_answers.parking = &s.parking
        s.handler = RequestHandler(remoting=&s.voice.remoting, sends=&s.sends, pulls=&s.pulls,
                                   ends=&s.ends, forwarding=&s.forwarding, pops=&s.pops,
                                   limits=&s.limits, guard=&s.guard)
        s.answers.forwarding = s.pop_answers.forwarding = &s.forwarding
        s.answers.handler = s.pop_answers.handler = &s.handler
        s.answers.slot = SLOT_COORDINATOR
        s.pop_answers.slot = SLOT_SERVING + s.shm.head.pop_owner

    cdef open_store(self, bytes log_folder, bytes queue_folder, bytes extension_folder,
                    int64_t file_entries, int64_t extension_file_bytes, int32_t queue_files_max,
                    int32_t extension_files_max):
        cdef StoreReader* reader = &self.s.reader
        cdef Shm* shm = self.s.shm
        log_view_open(&reader.log, shm.log, log_folder, shm.head.segment_size)
        if queue_files_open(&reader.queues, shm.queues, shm.head.queue_capacity, queue_folder,
                            file_entries, queue_files_max, False):
            raise MemoryError
        if extension_open(&reader.extension, shm.queues, shm.head.queue_capacity, extension_folder,
                          queue_folder, file_entries, extension_file_bytes, extension_files_max,
                          False):
            raise MemoryError
        named_open(&self.s.ends.named, shm, &reader.log, &reader.queues)
        reader.cold_reader = cold_open(self.s.slot.bell)
        reader.log.read_ahead = reader.cold_reader == NULL                             # view L3

    def configure(self, *, str region, bint trace_on, int body_bytes_max, int64_t idle_ms_max,
                  int64_t memory_bytes, int memory_count_max, int memory_bytes_max, int disk_count_max,
                  int disk_bytes_max, int replay_count_max, int replay_bytes_max, bint long_polling, int64_t short_polling_ms,
                  int delay_level_count=18, bint transactions_refused=False, bint timers_refused=True, int64_t timer_max_ms=0,
                  bint filters_enabled=False, bint filter_retry=False, bint slave_read=False,
                  int64_t accept_sends_from_ms=0, tuple address_limits=(), tuple account_limits=(), tuple limits_exempt=()) -> None:
        """What can change while it runs, between two calls of `run`. Raises ValueError."""
        cdef Server* s = self.s
        cdef bytes raw = region.encode()
        if len(raw) > <int>sizeof(s.identity.region):
            raise ValueError(f"broker.region_id: {len(raw)} bytes, expected at most "
                             f"{sizeof(s.identity.region)}")
        s.identity.region_length = <int32_t>len(raw)
        memcpy(s.identity.region, <const char*>raw, len(raw))
        s.identity.trace_on = trace_on
        s.identity.body_max = body_bytes_max
        raw = (f"the message is illegal: its body or batch is longer than {body_bytes_max} bytes "
               f"(store.message_size_max_bytes), or its properties are longer than "
               f"{PROPERTIES_LENGTH_MAX} bytes").encode()
        memcpy(s.identity.illegal, <const char*>raw, len(raw) + 1)
        s.transport.idle_ms_max = idle_ms_max
        s.reader.memory_bytes = memory_bytes
        s.reader.memory_count_max = memory_count_max
        s.reader.memory_bytes_max = memory_bytes_max
        s.reader.disk_count_max = disk_count_max
        s.reader.disk_bytes_max = disk_bytes_max
        s.reader.replay_count_max = replay_count_max
        s.reader.replay_bytes_max = replay_bytes_max
        s.pulls.long_polling = long_polling
        s.pulls.short_polling_ms = short_polling_ms
        s.sends.delay_level_count = delay_level_count
        s.sends.transactions_refused = transactions_refused
        s.sends.timers_refused = timers_refused
        s.sends.timer_max_ms = s.ends.timer_max_ms = timer_max_ms
        s.wants.filters_enabled = filters_enabled
        s.wants.filter_retry = filter_retry
        s.pulls.slave_read = slave_read
        s.sends.accept_from_ms = accept_sends_from_ms
        self.limit(address_limits, account_limits, limits_exempt)

    cdef limit(self, tuple address, tuple account, tuple exempt):
        """Each limit as LimitRules has it, () for none; exempt: (packed address, bits) each."""
        cdef Limits* l = &self.s.limits
        cdef AddressRange* one
        if len(exempt) > EXEMPT_MAX:
            raise ValueError(f"limits.exempt_addresses: {len(exempt)}, expected at most "
                             f"{EXEMPT_MAX}")
        for whose, given in ((OF_ADDRESS, address), (OF_ACCOUNT, account)):
            connections, in_flight, bytes_a_second, messages_a_second = given or (0, 0, 0, 0)
            l.rules[whose] = LimitRules(
                connections=connections, in_flight=in_flight, bytes_a_second=bytes_a_second,
                messages_a_second=messages_a_second)
        l.on = any(address) or any(account)
        l.exempt_count = 0
        for packed, bits in exempt:
            one = &l.exempt[l.exempt_count]
            one.is_v6 = len(packed) == ADDRESS_V6_SIZE
            one.bits = bits
            memcpy(one.address, <const char*>packed, len(packed))
            l.exempt_count += 1

    def secure(self, int mode, TlsContext context, int64_t handshake_ms_max,
               int32_t handshake_count_max) -> None:
        """
        TLS of connections that come from now on, between two calls of `run`.

        mode: TlsMode; context: None: there is no certificate; handshake_ms_max: how long one may take;
        handshake_count_max: how many at once. Raises OSError.
        """
        secure(&self.s.transport, mode, context, handshake_ms_max, handshake_count_max)
        self.tls_context = context

    cdef fill_identity(self, tuple store_address, str cluster, str broker_name):
        cdef Identity* who = &self.s.identity
        ip, port = store_address
        raw = socket.inet_pton(socket.AF_INET6 if ":" in ip else socket.AF_INET, ip)
        raw += int(port).to_bytes(4, "big")
        who.store_host_size = <int32_t>len(raw)
        memcpy(who.store_host, <const char*>raw, len(raw))
        name = b"CLUSTER\x01"
        raw = name + cluster.encode()
        if len(raw) > <int>sizeof(who.cluster_property):
            raise ValueError(f"broker.cluster: {len(raw) - len(name)} bytes, expected at most "
                             f"{sizeof(who.cluster_property) - len(name)}")
        who.cluster_property_length = <int32_t>len(raw)
        memcpy(who.cluster_property, <const char*>raw, len(raw))
        raw = broker_name.encode()
        who.broker_name_length = <int32_t>len(raw) if len(raw) <= <int>sizeof(who.broker_name) else 0
        memcpy(who.broker_name, <const char*>raw, who.broker_name_length)

    def hello(self) -> None:
        """Tell the coordinator that this is a new process: connections of an earlier one are gone."""
        forward_hello(&self.s.forwarding)

    def run(self, int64_t slice_ms) -> None:
        """Serve for `slice_ms`, or until a stop is asked for."""
        cdef Server* s = self.s
        cdef int64_t end_ms = steady_ms() + slice_ms
        self.forget_deleted()
        with nogil:
            while s.transport.steady_ms < end_ms and not load_i32_acquire(&s.slot.stop_requested):
                turn(s, sleep_ms(s, end_ms))
            s.slot.beat_ms = wall_of_turn(&s.transport)

    cdef void forget_deleted(self) noexcept nogil:
        """Let go of deleted files, between requests: their disk space is free only then."""
        cdef StoreReader* reader = &self.s.reader
        cdef int32_t trims = load_i32_acquire(&self.s.shm.log.trims)
        log_view_forget(&reader.log)
        if trims != self.trims_seen:
            self.trims_seen = trims
            queue_files_forget(&reader.queues)
            extension_let_go(&reader.extension)

    def drain(self) -> None:
        """The end: accept and read nothing more, answer what is on its way, close everything."""
        cdef Server* s = self.s
        cdef int64_t end_ms = steady_ms() + DRAIN_MS
        transport_stop_listening(&s.transport)
        with nogil:
            s.held.walk = 0            # who waits hears it now, not when its own patience ends
            while s.held.walk < s.held.used:
                walk_held(&s.held)
            output_flush_all(&s.transport)
            while s.appends.in_flight > 0 and steady_ms() < end_ms:
                turn(s, 20)
            transport_close_all(&s.transport)
            while not forward_words(&s.forwarding) and steady_ms() < end_ms:
                turn(s, 20)
            tls_end(&s.transport)
        named_close(&s.ends.named)
        log_view_close(&s.reader.log)
        queue_files_close(&s.reader.queues)
        extension_close(&s.reader.extension)
        cold_close(s.reader.cold_reader)
        s.reader.cold_reader = NULL
        held_clear(&s.held)
        filter_cache_clear(&s.wants.filters)
        access_close(&s.guard.access)

    def damaged(self) -> tuple[list[int], bool]:
        """Log positions of the messages that were not handed out since they are damaged; were there more."""
        cdef StoreReader* reader = &self.s.reader
        return [reader.damaged[i] for i in range(reader.damaged_count)], reader.damaged_more

    def events(self) -> tuple[list[tuple[str, int, int]], int]:
        """Connections closed by us since the last call: [("ip:port", CloseReason, detail)], how many more."""
        return closed_events(&self.s.transport)

    def refusals(self) -> tuple[list[Refused], int]:
        """Refusals of access control since the last call, and how many more."""
        cdef AccessGuard* g = &self.s.guard
        cdef AccessRefusal* one
        result = []
        for i in range(g.refusal_count):
            one = &g.refusals[i]
            result.append(Refused(
                host_text(one.address, one.address_is_v6), one.port, one.code, one.reason,
                one.key[:one.key_length].decode("ascii"),
                one.name[:one.name_length].decode("ascii")))
        lost = g.refusals_lost
        g.refusal_count = g.refusals_lost = 0
        return result, lost
