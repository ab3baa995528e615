"""Work of receives at the end of each turn, and at both ends of the process."""
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

from mqcore.atomics cimport load_i32_acquire
from mqcore.layout cimport SLOT_COORDINATOR, WORKER_RUNNING, QueueEntry
from mqcore.net.grpc.calls cimport Grpc, pop_clock
from mqcore.net.grpc.dead_letters cimport position_of
from mqcore.net.grpc.methods cimport STATUS_MESSAGE_NOT_FOUND
from mqcore.net.grpc.pairs cimport (
    DISK_WAIT_MS,
    PAIRS_MAX,
    PAIR_BUCKETS,
    PAIR_IDLE_MS,
    Pair,
    HeldReceive,
    pair_close,
    pair_find,
    pair_wake,
    pairs_read,
    topic_woken,
    waiting_end,
)
from mqcore.net.grpc.acks cimport acks_settled
from mqcore.net.grpc.links cimport links_end, links_give, links_open, links_take
from mqcore.net.grpc.remote cimport NOTE_LINK, NOTE_QUEUE
from mqcore.net.grpc.remote_acks cimport remote_settled
from mqcore.net.grpc.remote_answers cimport link_of, remote_free
from mqcore.net.grpc.remoting cimport remote_again, remote_ask
from mqcore.net.grpc.receives cimport receive_again, refuse_receive
from mqcore.net.grpc.streams cimport Call
from mqcore.net.serving.cold cimport cold_finished
from mqcore.net.serving.offset_commits cimport OFFSET_COMMITS_MAX, note_offset_commit
from mqcore.net.transport.transport cimport (
    LIFE_OPEN,
    Connection,
    connection_find,
    takes_output,
)
from mqcore.shm.tables cimport (
    TopicView,
    group_number,
    name_hash,
    queue_find,
    queue_hash,
    topic_find,
)
from mqcore.store.pop.journal cimport pop_compact, pop_flush
from mqcore.store.pop.journal_read cimport pop_journal_open
from mqcore.store.pop.pop cimport (
    pop_client_close,
    pop_expire,
    pop_next_commit,
    pop_next_due,
    pop_next_woken,
)
from mqcore.store.pop.queues cimport pop_begin, pop_confirm, pop_end, pop_forget
from mqcore.store.pop.state cimport POP_MESSAGES_MAX, POP_QUEUES_MAX, PopClock, PopQueue

cdef enum:
    EXPIRE_AT_ONCE = 4096
    COMPACT_BYTES = 64 << 10
    COMMIT_MS = 100
    FORGET_LOOKS = 2048                # at queues, each COMMIT_MS


cdef bint pops_open(Grpc* g, const char* journal) noexcept nogil:
    cdef PopClock clock = pop_clock(g)
    if not pop_begin(&g.pops, POP_QUEUES_MAX, POP_MESSAGES_MAX):
        return False
    g.pairs.next_ms = g.leave_ms = INT64_MAX
    if not links_open(g):
        return False
    g.journal_error = pop_journal_open(&g.pops, journal, g.boot, &clock)
    confirm_queues(g)
    return True


cdef void confirm_queues(Grpc* g) noexcept nogil:
    """The state that was read counts where the log has what it knows (pop PO11)."""
    cdef int32_t i, number
    cdef PopQueue* q
    cdef const uint8_t* topic
    for i in range(g.pops.queue_room):
        q = g.pops.queues[i]
        if q == NULL:
            continue
        topic = q.names + q.group_length
        number = queue_find(g.shm, topic, q.topic_length, q.queue_id,
                            queue_hash(name_hash(topic, q.topic_length, 0), q.queue_id))
        if number < 0:
            pop_forget(&g.pops, q)
        else:
            pop_confirm(&g.pops, q, position_of(g, number, q.proof_offset))


cdef void pops_close(Grpc* g) noexcept nogil:
    cdef PopClock clock = pop_clock(g)
    pop_flush(&g.pops, &clock)
    links_end(g)
    pop_end(&g.pops)


cdef void queue_arrived(void* top, int32_t queue) noexcept nogil:
    cdef Grpc* g = <Grpc*>top
    cdef QueueEntry* entry = &g.shm.queues[queue]
    topic_woken(&g.pairs, entry.topic, entry.topic_length)


cdef void look_at_woken(Grpc* g, Pair* pair) noexcept nogil:
    """Its waiting receives, the oldest first, until one finds nothing; passes over slow readers."""
    cdef HeldReceive* one = pair.first
    cdef HeldReceive* after
    cdef Call* call
    cdef Connection* c
    if pair.asked_ms == 0:             # of requests over remoting: the coordinator's answer wakes them
        return
    while one != NULL:
        after = one.after
        call = one.call
        c = (connection_find(g.door.transport, one.connection) if call.session != NULL
             else link_of(g, <int32_t>call.notes[NOTE_LINK]))
        if c != NULL and c.life == LIFE_OPEN and takes_output(g.door.transport, c):
            if receive_again(g, c, call, pair) if call.session != NULL else (
                    remote_again(g, c, call, pair)):
                waiting_end(call)
                if call.session == NULL:
                    remote_free(g, call)
            elif call.session != NULL or call.notes[NOTE_QUEUE] < 0:
                return                 # else another queue may have something for the next one
        one = after


cdef void follow_rules(Grpc* g) noexcept nogil:
    """authorization GA2"""
    cdef int32_t sequence = load_i32_acquire(&g.shm.head.access_sequence)
    cdef int32_t i
    cdef Pair* pair
    cdef HeldReceive* one
    if sequence == g.access_seen:
        return
    g.access_seen = sequence
    for i in range(PAIR_BUCKETS):
        pair = g.pairs.of_group[i]
        while pair != NULL:
            one = pair.first
            while one != NULL:
                one.until_ms = 0
                one = one.after
            pair = pair.next_of_group
    g.pairs.next_ms = 0
    end_due(g)


cdef void end_due(Grpc* g) noexcept nogil:
    """HeldReceive receives whose time is over; when the next one is due."""
    cdef int64_t now_ms = g.door.transport.steady_ms
    cdef int64_t until_ms
    cdef int32_t i
    cdef Pair* pair
    cdef HeldReceive* one
    cdef HeldReceive* after
    cdef Call* call
    if now_ms < g.pairs.next_ms:
        return
    g.pairs.next_ms = INT64_MAX
    for i in range(PAIR_BUCKETS):
        pair = g.pairs.of_group[i]
        while pair != NULL:
            one = pair.first
            while one != NULL:
                after = one.after
                until_ms = one.until_ms + (DISK_WAIT_MS if pair.disk_job else 0)     # pairs GP5
                if until_ms <= now_ms:
                    call = one.call
                    waiting_end(call)
                    refuse_receive(g, call, STATUS_MESSAGE_NOT_FOUND, "no new message")
                    if call.session == NULL:
                        remote_free(g, call)
                else:
                    g.pairs.next_ms = min(g.pairs.next_ms, until_ms)
                one = after
            pair = pair.next_of_group


cdef void give_up_clients(Grpc* g, const PopClock* clock) noexcept nogil:
    cdef int32_t i = 0
    if clock.steady_ms < g.leave_ms:
        return
    g.leave_ms = INT64_MAX
    while i < g.leaving_count:
        if clock.steady_ms < g.leaving[i].until_ms or pop_client_close(
                &g.pops, g.leaving[i].client, clock, EXPIRE_AT_ONCE):
            g.leave_ms = min(g.leave_ms, g.leaving[i].until_ms)
            i += 1
            continue
        g.leaving_count -= 1
        g.leaving[i] = g.leaving[g.leaving_count]


cdef void give_up_first(Grpc* g) noexcept nogil:
    cdef PopClock clock = pop_clock(g)
    while pop_client_close(&g.pops, g.leaving[0].client, &clock, EXPIRE_AT_ONCE):
        pass
    g.leaving_count -= 1
    g.leaving[0] = g.leaving[g.leaving_count]


cdef void commit_offsets(Grpc* g) noexcept nogil:
    cdef int64_t offset
    cdef PopQueue* q
    while g.commits.count < OFFSET_COMMITS_MAX:
        q = pop_next_commit(&g.pops, &offset)
        if q == NULL:
            return
        note_offset_commit(g.commits, q.names, q.group_length, q.names + q.group_length,
                           q.topic_length, q.queue_id, offset)


cdef void look_at_pairs(Grpc* g) noexcept nogil:
    """pairs GP6; and those over remoting that the coordinator has not been asked about, or has not answered."""
    cdef int64_t now_ms = g.door.transport.steady_ms
    cdef int32_t i, seen = 0
    cdef Pair* pair
    for i in range(PAIRS_MAX):
        if seen == g.pairs.count:
            return
        pair = g.pairs.of_number[i]
        if pair == NULL:
            continue
        seen += 1
        if pair.first != NULL:
            if pair.asked_ms == 0 and pair.first.call.session == NULL:
                remote_ask(g, <int32_t>pair.first.call.notes[NOTE_LINK], pair)
        elif not pair.asking and not pair.woken and (
                now_ms - max(pair.used_ms, pair.asked_ms) > PAIR_IDLE_MS):
            seen -= 1
            pair_close(&g.pairs, pair)


cdef void forget_deleted(Grpc* g) noexcept nogil:
    """Some queues: whose group or topic was deleted. A group of a start's table may come yet."""
    cdef int32_t i, number
    cdef PopQueue* q
    cdef const uint8_t* topic
    cdef TopicView view
    if load_i32_acquire(&g.shm.slots[SLOT_COORDINATOR].state) != WORKER_RUNNING:
        return                         # it has not shown its tables
    for i in range(min(<int32_t>FORGET_LOOKS, g.pops.queue_room)):
        g.forget_hand = (g.forget_hand + 1) % g.pops.queue_room
        q = g.pops.queues[g.forget_hand]
        if q == NULL:
            continue
        topic = q.names + q.group_length
        number = group_number(g.shm, q.names, q.group_length, name_hash(q.names, q.group_length, 0))
        if (number >= 0 and not load_i32_acquire(&g.shm.groups[number].live)) or not topic_find(
                g.shm, topic, q.topic_length, name_hash(topic, q.topic_length, 0), &view):
            pop_forget(&g.pops, q)


cdef void pops_turn(Grpc* g) noexcept nogil:
    cdef PopClock clock = pop_clock(g)
    cdef PopQueue* q
    cdef Pair* pair
    follow_rules(g)
    links_take(g)
    if g.births_seen != load_i32_acquire(&g.shm.head.queue_count) and g.waits_for_births:
        g.births_seen = load_i32_acquire(&g.shm.head.queue_count)
        wake_all(g)
    if g.pairs.disk_done < g.pairs.disk_job:
        pairs_read(&g.pairs, cold_finished(g.reader.cold_reader))
    give_up_clients(g, &clock)
    while pop_expire(&g.pops, &clock, EXPIRE_AT_ONCE) == EXPIRE_AT_ONCE:
        pass
    while True:
        q = pop_next_woken(&g.pops)
        if q == NULL:
            break
        pair = pair_find(&g.pairs, q.names, q.group_length, q.names + q.group_length,
                         q.topic_length)
        if pair != NULL:
            pair_wake(&g.pairs, pair)
    while g.pairs.woken != NULL:
        pair = g.pairs.woken
        g.pairs.woken = pair.next_woken
        pair.woken = False
        look_at_woken(g, pair)
    end_due(g)
    if clock.steady_ms - g.commit_ms >= COMMIT_MS:
        g.commit_ms = clock.steady_ms
        commit_offsets(g)
        look_at_pairs(g)
        forget_deleted(g)
        pop_compact(&g.pops, &clock, COMPACT_BYTES)
    g.journal_error = pop_flush(&g.pops, &clock)                         # acks GR2
    if g.journal_error:
        g.journal_failed = g.journal_error
    acks_settled(g)
    remote_settled(g)
    links_give(g)
    g.due_ms = min(g.pairs.next_ms, g.leave_ms, pop_next_due(&g.pops))


cdef void wake_all(Grpc* g) noexcept nogil:
    """A queue was born: receives of its topic look for it."""
    cdef int32_t i
    cdef Pair* pair
    g.waits_for_births = False
    for i in range(PAIR_BUCKETS):
        pair = g.pairs.of_group[i]
        while pair != NULL:
            if pair.first != NULL:
                pair_wake(&g.pairs, pair)
                g.waits_for_births = True
            pair = pair.next_of_group


cdef void receive_gone(Call* call) noexcept nogil:
    waiting_end(call)
