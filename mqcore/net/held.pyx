"""Long polling (broker.md 6.5; PullRequestHoldService), and waiting for the disk."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from mqcore.atomics cimport full_fence, load_i32_acquire, load_i64_acquire, store_u8_release
from mqcore.filter.loaded cimport filter_drop, filter_keep
from mqcore.layout cimport FIGURE_HELD_PULLS, Arrival, QueueEntry
from mqcore.net.cold cimport COLD_JOBS_MAX, cold_finished
from mqcore.net.held_lists cimport (
    filter_size,
    held_let_go,
    held_link,
    held_unlink,
    interest_in,
    list_of,
    unborn,
)
from mqcore.net.reply cimport reply_plain
from mqcore.net.scan cimport (
    CODE_FOUND,
    CODE_NOT_FOUND,
    CODE_RETRY_IMMEDIATELY,
    CODE_SYSTEM_ERROR,
    Found,
    answer_pull,
    scan,
    scan_trouble,
)
from mqcore.net.server cimport (
    HELD_DUE,
    HELD_LIFE_MS_MAX,
    HELD_OWNER,
    HELD_PLACE,
    connection_find,
)
from mqcore.net.wanted cimport Wanted, wanted_again
from mqcore.net.work cimport HELD_WORK, LOOK_WORK, work_charge, work_is_over, work_later
from mqcore.shm.ring cimport ring_next, ring_release
from mqcore.shm.tables cimport queue_find

cdef enum:
    TELL_MS = 5000                    # stock looks at held pulls that often, and answers those
    COLD_ROUNDS_MAX = 4               # then the loop reads by itself: the page cache does not keep up
    SHARE_LEAST = 1024                # H5 ...
    SHARE_PART = 8                    # ... or this part of all places
    FILTER_SHARE_BYTES = 4 << 20      # H5
    WALK_WORK = 10                    # of one place, in the walk over all
    FIND_WORK = 150                   # of looking whether a queue is born


cdef bint held_take_memory(Server* s) noexcept nogil:
    cdef int64_t lists = <int64_t>s.shm.head.queue_capacity + 1
    s.held = <HeldPull*>calloc(s.held_capacity, sizeof(HeldPull))
    s.held_of_queue = <int32_t*>calloc(lists, sizeof(int32_t))
    s.passes = <int32_t*>calloc(lists, sizeof(int32_t))
    s.due_queues = <int32_t*>calloc(lists, sizeof(int32_t))
    s.queue_is_due = <uint8_t*>calloc(lists, 1)
    return (s.held != NULL and s.held_of_queue != NULL and s.passes != NULL
            and s.due_queues != NULL and s.queue_is_due != NULL)


cdef void held_init(Server* s) noexcept nogil:
    s.held_free = -1                   # memory is touched only when it is needed
    s.held_used = 0
    s.held_walk = 0
    s.held_count = 0
    s.cold = 0


cdef void held_clear(Server* s) noexcept nogil:
    cdef int32_t i
    for i in range(s.held_used):
        free(s.held[i].match.codes)
        filter_drop(&s.filters, s.held[i].match.filter)
        s.held[i].match.codes = NULL
        s.held[i].match.filter = NULL


cdef bint want(Server* s, Connection* c, HeldPull* held, const Wanted* wanted) noexcept nogil:
    """Give the pull a copy of what it wants; False: no memory, it wants what it wanted."""
    cdef int32_t* codes = NULL
    if wanted.match.code_count > 0:
        codes = <int32_t*>malloc(wanted.match.code_count * sizeof(int32_t))
        if codes == NULL:
            return False
        memcpy(codes, wanted.match.codes, wanted.match.code_count * sizeof(int32_t))
    if wanted.match.filter != NULL:
        filter_keep(wanted.match.filter)
    c.filter_bytes -= filter_size(held)
    free(held.match.codes)
    filter_drop(&s.filters, held.match.filter)
    held.match = wanted.match
    held.match.codes = codes
    c.filter_bytes += filter_size(held)
    held.subscription = wanted.view.number
    held.sequence = wanted.view.sequence
    return True


cdef void want_anew(Server* s, Connection* c, HeldPull* held) noexcept nogil:
    """The group's subscription may have changed since: then all is looked at again (H4)."""
    cdef Wanted wanted
    if held.subscription < 0 or load_i32_acquire(
            &s.shm.subscriptions[held.subscription].sequence) == held.sequence:
        return
    wanted.match.filter = NULL
    if wanted_again(s, held.subscription, &wanted):
        if want(s, c, held, &wanted):
            held.cursor = held.offset
    filter_drop(&s.filters, wanted.match.filter)


cdef inline int32_t number_of(const Server* s, const HeldPull* held) noexcept nogil:
    return <int32_t>(held - s.held)


# -- places ----------------------------------------------------------------------------------------

cdef int32_t held_share(const Server* s) noexcept nogil:
    return min(s.held_capacity, max(<int32_t>SHARE_LEAST, s.held_capacity // SHARE_PART))


cdef int32_t cold_share(const Server* s) noexcept nogil:
    return max(1, (COLD_JOBS_MAX - s.cold_count) // 4)


cdef Connection* find_heaviest(Server* s) noexcept nogil:
    """Who holds most, looked for once a turn."""
    cdef Connection* most = NULL
    cdef int32_t i
    if s.heaviest_turn == s.turn:
        return connection_find(s, s.heaviest)
    for i in range(s.connection_max):
        if s.connections[i] != NULL and (
                most == NULL or s.connections[i].pull_count > most.pull_count):
            most = s.connections[i]
    s.work += <int64_t>s.connection_max * WALK_WORK
    s.heaviest_turn = s.turn
    s.heaviest = most.id if most != NULL else 0
    return most


cdef bint make_room(Server* s, const Connection* c) noexcept nogil:
    """H6"""
    cdef Connection* most = find_heaviest(s)
    cdef int32_t number, i
    cdef HeldPull* held
    if most == NULL or most.pulls == 0 or most.pull_count <= c.pull_count + 1:
        return False
    number = s.held[most.pulls - 1].links[HELD_OWNER].before
    for i in range(most.pull_count):
        held = &s.held[number]
        if held.cold_job == 0:
            answer_nothing(s, most, held)
            held_let_go(s, number)
            return True
        number = held.links[HELD_OWNER].before
    return False


cdef bint may_hold(Server* s, const Connection* c, const Wanted* wanted) noexcept nogil:
    if c.pull_count >= held_share(s):                                    # H5
        return False
    if wanted.match.filter != NULL and (
            c.filter_bytes + wanted.match.filter.size > FILTER_SHARE_BYTES):
        return False
    return s.held_count < s.held_capacity or make_room(s, c)


cdef HeldPull* keep(Server* s, Connection* c, const Asker* asker, const PullPlace* place,
                    const Wanted* wanted) noexcept nogil:
    """A place for the pull, in no list of a queue yet; NULL: there is none."""
    cdef HeldPull* held
    cdef int32_t number
    if c.doomed or not may_hold(s, c, wanted):
        return NULL
    number = s.held_free if s.held_free >= 0 else s.held_used
    held = &s.held[number]
    held.match.codes = NULL
    held.match.filter = NULL
    if not want(s, c, held, wanted):
        return NULL
    if number == s.held_used:
        s.held_used += 1
    else:
        s.held_free = held.links[HELD_PLACE].next
    s.held_count += 1
    s.slot.figures[FIGURE_HELD_PULLS] = s.held_count
    held.connection = c.id
    held_link(s, HELD_OWNER, &c.pulls, number)
    c.pull_count += 1
    held.is_due = False
    held.asker = asker[0]
    held.queue = place.queue
    held.queue_hash = place.queue_hash
    held.queue_id = place.queue_id
    held.topic_length = <uint8_t>place.topic_length
    memcpy(held.topic, place.topic, place.topic_length)
    held.count_max = place.count_max
    held.offset = place.offset
    held.cursor = place.offset
    held.cold_job = 0
    held.cold_rounds = 0
    held.looked_ms = s.steady_ms
    return held


cdef void list_of_queue(Server* s, HeldPull* held) noexcept nogil:
    """H1; it counts as looked at in the queue's present pass."""
    held.seen = s.passes[held.queue]
    held_link(s, HELD_PLACE, &s.held_of_queue[held.queue], number_of(s, held))
    store_u8_release(interest_in(s, held.queue), 1)


cdef bint hold(Server* s, Connection* c, const Asker* asker, const PullPlace* place,
               const Wanted* wanted, int64_t wait_ms) noexcept nogil:
    cdef HeldPull* held = keep(s, c, asker, place, wanted)
    cdef int32_t number
    if held == NULL:
        return False
    number = number_of(s, held)
    held.deadline_ms = s.steady_ms + min(max(wait_ms, 0), HELD_LIFE_MS_MAX)
    held.tell_ms = s.steady_ms + TELL_MS
    if place.queue >= 0:
        list_of_queue(s, held)
    else:
        held.seen = s.passes[unborn(s)]
        held_link(s, HELD_PLACE, &s.held_of_queue[unborn(s)], number)
    full_fence()                                                         # H2
    if place.queue < 0:
        adopt(s, number)
    elif load_i64_acquire(&s.shm.queues[place.queue].max_offset) > place.offset:
        settle(s, number)
    return True


cdef bint hold_cold(Server* s, Connection* c, const Asker* asker, const PullPlace* place,
                    const Wanted* wanted, int64_t cursor, int64_t job) noexcept nogil:
    cdef HeldPull* held = keep(s, c, asker, place, wanted)
    if held == NULL:
        return False
    held.cursor = cursor
    held.cold_job = job
    held.deadline_ms = 0
    held.cold_rounds = 1
    held_link(s, HELD_PLACE, &s.cold, number_of(s, held))
    s.cold_count += 1
    c.cold_count += 1
    return True


# -- answers ---------------------------------------------------------------------------------------

cdef bint settle_cold(Server* s, Connection* c, HeldPull* held) noexcept nogil:
    """What it waited for is in memory: answer it as a pull that comes now (broker.md 6.2, 6.4)."""
    cdef QueueEntry* queue = &s.shm.queues[held.queue]
    cdef int64_t end = load_i64_acquire(&queue.max_offset)
    cdef int64_t first = load_i64_acquire(&queue.min_offset)
    cdef int64_t began = s.work
    cdef Found found
    scan(s, held.queue, held.cursor, end, held.count_max, &held.match,
         held.cold_rounds < COLD_ROUNDS_MAX, &found)
    work_charge(s, c, began)
    held.cursor += found.examined
    if found.count > 0:
        answer_pull(s, c, &held.asker, CODE_FOUND, "FOUND", held.cursor, first, end, &found)
    elif found.cold_job:
        held.cold_job = found.cold_job
        held.cold_rounds = 1 if found.examined else held.cold_rounds + 1
        return False
    elif found.unreadable or found.damaged >= 0:
        reply_plain(s, c, held.asker.binary, held.asker.opaque, CODE_SYSTEM_ERROR,
                    scan_trouble(&found))
    else:
        answer_pull(s, c, &held.asker, CODE_RETRY_IMMEDIATELY,
                    "MESSAGE_WAS_REMOVING" if found.gone else "NO_MATCHED_MESSAGE",
                    held.cursor, first, end, NULL)
    return True


cdef void answer_nothing(Server* s, Connection* c, HeldPull* held) noexcept nogil:
    """Its waiting ends without a message: how far it has come, if it has."""
    cdef QueueEntry* queue
    cdef int64_t first, end
    if held.queue < 0:
        answer_pull(s, c, &held.asker, CODE_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", held.offset, 0, 0,
                    NULL)
        return
    queue = &s.shm.queues[held.queue]
    first = load_i64_acquire(&queue.min_offset)
    end = load_i64_acquire(&queue.max_offset)
    if held.cursor > held.offset:
        answer_pull(s, c, &held.asker, CODE_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE", held.cursor,
                    first, end, NULL)
    else:
        answer_pull(s, c, &held.asker, CODE_NOT_FOUND, "OFFSET_OVERFLOW_ONE", held.offset, first,
                    end, NULL)


cdef void put_off(Server* s, Connection* c, HeldPull* held) noexcept nogil:
    """H7: it goes on with its connection."""
    if not held.is_due:
        held.is_due = True
        held_link(s, HELD_DUE, &c.due, number_of(s, held))


cdef bint look_further(Server* s, Connection* c, HeldPull* held, int64_t end) noexcept nogil:
    """Entries from its cursor on, as far as its connection's slice lets it; True: it is answered."""
    cdef int64_t began = s.work
    cdef Found found
    while held.cursor < end:                                             # H4
        if work_is_over(s, c):                                           # N9
            put_off(s, c, held)
            work_later(s, c)
            return False
        scan(s, held.queue, held.cursor, end, held.count_max, &held.match, False, &found)
        held.cursor += found.examined
        if found.count > 0:
            answer_pull(s, c, &held.asker, CODE_FOUND, "FOUND", held.cursor,
                        load_i64_acquire(&s.shm.queues[held.queue].min_offset), end, &found)
        work_charge(s, c, began)
        began = s.work
        if found.count > 0:
            return True
        if found.examined == 0:
            return False
    return False


cdef bint settle_held(Server* s, Connection* c, HeldPull* held) noexcept nogil:
    """Answer a held pull if there is something for it or its time is over; True: it is done."""
    cdef int64_t end
    cdef bint late = s.steady_ms >= held.deadline_ms
    if c.doomed:
        return True
    if s.stopping:                     # an error: clients ask again after seconds, not at once
        reply_plain(s, c, held.asker.binary, held.asker.opaque, CODE_SYSTEM_ERROR,
                    "the broker stops")
        return True
    if held.queue >= 0:
        end = load_i64_acquire(&s.shm.queues[held.queue].max_offset)
        want_anew(s, c, held)
        held.asker.since_ms = s.steady_ms      # its waiting is no time in the broker (broker.md 6.5)
        if end > held.cursor:
            if c.output_end - c.output_start >= s.out_high:              # N2
                put_off(s, c, held)
            elif look_further(s, c, held, end):
                return True
    if late or (held.cursor > held.offset and s.steady_ms >= held.tell_ms):
        answer_nothing(s, c, held)
        return True
    return False


cdef void settle(Server* s, int32_t number) noexcept nogil:
    cdef HeldPull* held = &s.held[number]
    held.looked_ms = s.steady_ms
    s.work += LOOK_WORK
    if settle_held(s, connection_find(s, held.connection), held):
        held_let_go(s, number)


cdef void adopt(Server* s, int32_t number) noexcept nogil:
    """A pull that waits for a queue without a number goes to its list when it has one."""
    cdef HeldPull* held = &s.held[number]
    cdef int32_t queue = queue_find(
        s.shm, held.topic, held.topic_length, held.queue_id, held.queue_hash)
    s.work += FIND_WORK
    if queue >= 0:
        held_unlink(s, HELD_PLACE, list_of(s, held), number)
        held.queue = queue
        list_of_queue(s, held)
        full_fence()                                                     # H2
    settle(s, number)


# -- passes (H7) -----------------------------------------------------------------------------------

cdef void make_due(Server* s, int32_t queue) noexcept nogil:
    if s.held_of_queue[queue] == 0:
        if queue != unborn(s):
            store_u8_release(interest_in(s, queue), 0)
        return
    s.passes[queue] += 1
    if s.queue_is_due[queue]:
        return
    s.queue_is_due[queue] = True
    s.due_queues[(s.due_first + s.due_count) % (s.shm.head.queue_capacity + 1)] = queue
    s.due_count += 1


cdef bint go_through(Server* s, int32_t queue, int64_t work_end) noexcept nogil:
    """The queue's pulls that were not looked at in its pass; False: some are left."""
    cdef int32_t number
    cdef HeldPull* held
    while s.held_of_queue[queue]:
        number = s.held_of_queue[queue] - 1
        held = &s.held[number]
        if held.seen == s.passes[queue]:
            return True
        if s.work >= work_end:
            return False
        held.seen = s.passes[queue]
        s.held_of_queue[queue] = held.links[HELD_PLACE].next + 1
        if held.queue < 0:
            adopt(s, number)
        else:
            settle(s, number)
    return True


cdef void settle_due(Server* s) noexcept nogil:
    cdef int64_t work_end = s.work + HELD_WORK
    cdef int32_t queue
    cdef int32_t places = s.shm.head.queue_capacity + 1
    while s.due_count > 0 and s.work < work_end:
        queue = s.due_queues[s.due_first]
        s.due_first = (s.due_first + 1) % places
        s.due_count -= 1
        s.queue_is_due[queue] = False
        if not go_through(s, queue, work_end):
            s.queue_is_due[queue] = True
            s.due_queues[(s.due_first + s.due_count) % places] = queue
            s.due_count += 1


cdef void settle_due_of(Server* s, Connection* c) noexcept nogil:
    cdef int32_t number
    while c.due and not work_is_over(s, c) and c.output_end - c.output_start < s.out_high:
        number = c.due - 1
        held_unlink(s, HELD_DUE, &c.due, number)
        s.held[number].is_due = False
        settle(s, number)
        if c.doomed:
            return
    if c.due and c.output_end - c.output_start < s.out_high:
        work_later(s, c)


cdef void take_cold(Server* s) noexcept nogil:
    """Pulls whose reads are finished go on; those that wait for more stay."""
    cdef int32_t i, number
    cdef int64_t finished = cold_finished(s.cold_reader)
    cdef HeldPull* held
    for i in range(s.cold_count):
        if s.cold == 0:
            return
        number = s.cold - 1
        held = &s.held[number]
        s.cold = held.links[HELD_PLACE].next + 1
        if held.cold_job <= finished and settle_cold(
                s, connection_find(s, held.connection), held):
            held_let_go(s, number)


cdef void take_arrivals(Server* s) noexcept nogil:
    cdef uint8_t* record
    cdef int32_t kind
    while ring_next(&s.arrivals, &record, &kind) >= 0:
        if s.held_of_queue[unborn(s)] and (
                load_i32_acquire(&s.shm.head.queue_count) != s.queues_known):
            s.queues_known = load_i32_acquire(&s.shm.head.queue_count)
            make_due(s, unborn(s))
        make_due(s, (<Arrival*>record).queue)
    ring_release(&s.arrivals)


cdef void look_at_held(Server* s) noexcept nogil:
    """Deadlines (H3), and each pull once a second: an arrival may have found no room."""
    cdef int64_t work_end = s.work + HELD_WORK
    cdef int32_t number
    cdef HeldPull* held
    while s.held_walk < s.held_used and s.work < work_end:
        number = s.held_walk
        s.held_walk += 1
        s.work += WALK_WORK
        held = &s.held[number]
        if held.connection == 0 or held.cold_job:
            continue
        if (s.steady_ms >= held.deadline_ms or held.looked_ms < s.held_look_ms or s.stopping
                or (held.cursor > held.offset and s.steady_ms >= held.tell_ms)):
            if held.queue < 0:
                adopt(s, number)
            else:
                settle(s, number)
