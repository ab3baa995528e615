"""Long polling (broker.md 6.5; PullRequestHoldService), and waiting for the disk."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from mqcore.atomics cimport full_fence, load_i32_acquire, load_i64_acquire, store_u8_release
from mqcore.filter.loaded cimport filter_drop, filter_keep
from mqcore.layout cimport FIGURE_HELD_PULLS, Arrival, QueueEntry
from mqcore.net.remoting.frames cimport access_of
from mqcore.net.serving.cold cimport COLD_JOBS_MAX, cold_finished
from mqcore.net.serving.held_lists cimport (
    HELD_DUE,
    HELD_OWNER,
    HELD_PLACE,
    HeldPull,
    filter_size,
    held_let_go,
    held_link,
    held_unlink,
    interest_in,
    list_of,
    unborn,
)
from mqcore.net.serving.peer cimport held_of, say
from mqcore.net.serving.scan cimport Found, answer_pull, scan, scan_trouble
from mqcore.net.serving.wanted cimport wanted_again
from mqcore.net.transport.transport cimport LIFE_DOOMED, connection_find, takes_output
from mqcore.net.transport.work cimport work_charge, work_is_over, work_later
from mqcore.shm.ring cimport ring_next, ring_release
from mqcore.shm.segment cimport dispatch_hurry
from mqcore.shm.tables cimport queue_find
from mqcore.wire.codes cimport (
    RESPONSE_PULL_NOT_FOUND,
    RESPONSE_PULL_RETRY_IMMEDIATELY,
    RESPONSE_SUCCESS,
    RESPONSE_SYSTEM_ERROR,
)

cdef enum:
    TELL_MS = 5000                    # stock looks at held pulls that often, and answers those
    COLD_ROUNDS_MAX = 4               # then the loop reads by itself: the page cache does not keep up
    SHARE_LEAST = 1024                # H5 ...
    SHARE_PART = 8                    # ... or this part of all places
    FILTER_SHARE_BYTES = 4 << 20      # H5
    HELD_LIFE_MS_MAX = 600000
    HELD_WORK = 500_000               # of a turn, for queues with new messages; for old held pulls
    LOOK_WORK = 60                    # of a look at a held pull that finds nothing new
    WALK_WORK = 10                    # of one place, in the walk over all
    FIND_WORK = 150                   # of looking whether a queue is born


cdef bint held_open(Held* h) noexcept nogil:
    cdef int64_t lists = <int64_t>h.shm.head.queue_capacity + 1
    h.pulls = <HeldPull*>calloc(h.capacity, sizeof(HeldPull))
    h.of_queue = <int32_t*>calloc(lists, sizeof(int32_t))
    h.passes = <int32_t*>calloc(lists, sizeof(int32_t))
    h.due_queues = <int32_t*>calloc(lists, sizeof(int32_t))
    h.queue_is_due = <uint8_t*>calloc(lists, 1)
    h.free_place = -1                  # memory is touched only when it is needed
    return (h.pulls != NULL and h.of_queue != NULL and h.passes != NULL
            and h.due_queues != NULL and h.queue_is_due != NULL)


cdef void held_clear(Held* h) noexcept nogil:
    cdef int32_t i
    for i in range(h.used):
        free(h.pulls[i].match.codes)
        filter_drop(&h.wants.filters, h.pulls[i].match.filter)
        h.pulls[i].match.codes = NULL
        h.pulls[i].match.filter = NULL


cdef bint want(Held* h, Connection* c, HeldPull* held, const Wanted* wanted) noexcept nogil:
    """Give the pull a copy of what it wants; False: no memory, it wants what it wanted."""
    cdef int32_t* codes = NULL
    if wanted.match.code_count > 0:
        codes = <int32_t*>malloc(wanted.match.code_count * sizeof(int32_t))
        if codes == NULL:
            return False
        memcpy(codes, wanted.match.codes, wanted.match.code_count * sizeof(int32_t))
    if wanted.match.filter != NULL:
        filter_keep(wanted.match.filter)
    held_of(c).filter_bytes -= filter_size(held)
    free(held.match.codes)
    filter_drop(&h.wants.filters, held.match.filter)
    held.match = wanted.match
    held.match.codes = codes
    held_of(c).filter_bytes += filter_size(held)
    held.subscription = wanted.view.number
    held.sequence = wanted.view.sequence
    held.life = wanted.view.life
    return True


cdef void want_anew(Held* h, Connection* c, HeldPull* held) noexcept nogil:
    """The group's subscription may have changed since: then all is looked at again (H4)."""
    cdef Wanted wanted
    if held.subscription < 0 or load_i32_acquire(
            &h.shm.subscriptions[held.subscription].sequence) == held.sequence:
        return
    wanted.match.filter = NULL
    if wanted_again(h.wants, held.subscription, held.life, &wanted):
        if want(h, c, held, &wanted):
            held.cursor = held.offset
    filter_drop(&h.wants.filters, wanted.match.filter)


cdef inline int32_t number_of(const Held* h, const HeldPull* held) noexcept nogil:
    return <int32_t>(held - h.pulls)


# -- places ----------------------------------------------------------------------------------------

cdef int32_t held_share(const Held* h) noexcept nogil:
    return min(h.capacity, max(<int32_t>SHARE_LEAST, h.capacity // SHARE_PART))


cdef int32_t cold_share(const Held* h) noexcept nogil:
    return max(1, (COLD_JOBS_MAX - h.cold_count) // 4)


cdef Connection* find_heaviest(Held* h) noexcept nogil:
    """Who holds most, looked for once a turn."""
    cdef Connection* most = NULL
    cdef int32_t i
    if h.heaviest_turn == h.transport.turn:
        return connection_find(h.transport, h.heaviest)
    for i in range(h.transport.connection_max):
        if h.transport.connections[i] != NULL and (
                most == NULL or held_of(h.transport.connections[i]).count > held_of(most).count):
            most = h.transport.connections[i]
    h.transport.work += <int64_t>h.transport.connection_max * WALK_WORK
    h.heaviest_turn = h.transport.turn
    h.heaviest = most.id if most != NULL else 0
    return most


cdef bint make_room(Held* h, const Connection* c) noexcept nogil:
    """H6"""
    cdef Connection* most = find_heaviest(h)
    cdef int32_t number, i
    cdef HeldPull* held
    if most == NULL or held_of(most).first == 0 or held_of(most).count <= held_of(c).count + 1:
        return False
    number = h.pulls[held_of(most).first - 1].links[HELD_OWNER].before
    for i in range(held_of(most).count):
        held = &h.pulls[number]
        if held.cold_job == 0:
            answer_nothing(h, most, held)
            held_let_go(h, number)
            return True
        number = held.links[HELD_OWNER].before
    return False


cdef bint may_hold(Held* h, const Connection* c, const Wanted* wanted) noexcept nogil:
    if held_of(c).count >= held_share(h):                                    # H5
        return False
    if wanted.match.filter != NULL and (
            held_of(c).filter_bytes + wanted.match.filter.size > FILTER_SHARE_BYTES):
        return False
    return h.count < h.capacity or make_room(h, c)


cdef HeldPull* keep(Held* h, Connection* c, const Puller* puller, const PullPlace* place,
                    const Wanted* wanted) noexcept nogil:
    """A place for the pull, in no list of a queue yet; NULL: there is none."""
    cdef HeldPull* held
    cdef int32_t number
    if c.life == LIFE_DOOMED or not may_hold(h, c, wanted):
        return NULL
    number = h.free_place if h.free_place >= 0 else h.used
    held = &h.pulls[number]
    held.match.codes = NULL
    held.match.filter = NULL
    if not want(h, c, held, wanted):
        return NULL
    if number == h.used:
        h.used += 1
    else:
        h.free_place = held.links[HELD_PLACE].next
    h.count += 1
    h.transport.slot.figures[FIGURE_HELD_PULLS] = h.count
    held.connection = c.id
    held_link(h, HELD_OWNER, &held_of(c).first, number)
    held_of(c).count += 1
    held.is_due = False
    held.puller = puller[0]
    held.queue = place.queue
    held.queue_hash = place.queue_hash
    held.queue_id = place.queue_id
    held.topic_length = <uint8_t>place.topic_length
    memcpy(held.topic, place.topic, place.topic_length)
    held.portion = place.portion
    held.offset = place.offset
    held.cursor = place.offset
    held.access_sequence = access_of(c).sequence
    held.cold_job = 0
    held.cold_rounds = 0
    held.looked_ms = h.transport.steady_ms
    return held


cdef bint list_of_queue(Held* h, HeldPull* held) noexcept nogil:
    """H1; it counts as looked at in the queue's present pass. Whether others wait there already."""
    cdef uint8_t* interest = interest_in(h, held.queue)
    cdef bint awaited = interest[0]
    held.seen = h.passes[held.queue]
    held_link(h, HELD_PLACE, &h.of_queue[held.queue], number_of(h, held))
    store_u8_release(interest, 1)
    return awaited


cdef bint hold(Held* h, Connection* c, const Puller* puller, const PullPlace* place,
               const Wanted* wanted, int64_t wait_ms) noexcept nogil:
    cdef HeldPull* held = keep(h, c, puller, place, wanted)
    cdef int32_t number
    cdef bint awaited = True
    if held == NULL:
        return False
    number = number_of(h, held)
    held.deadline_ms = h.transport.steady_ms + min(max(wait_ms, 0), HELD_LIFE_MS_MAX)
    held.tell_ms = h.transport.steady_ms + TELL_MS
    if place.queue >= 0:
        awaited = list_of_queue(h, held)
    else:
        held.seen = h.passes[unborn(h)]
        held_link(h, HELD_PLACE, &h.of_queue[unborn(h)], number)
    full_fence()                                                         # H2
    if place.queue < 0:
        adopt(h, number)
    elif load_i64_acquire(&h.shm.queues[place.queue].max_offset) > place.offset:
        settle(h, number)
    elif not awaited:
        dispatch_hurry(h.shm)                                            # dispatch D6
    return True


cdef bint hold_cold(Held* h, Connection* c, const Puller* puller, const PullPlace* place,
                    const Wanted* wanted, int64_t cursor, int64_t job) noexcept nogil:
    cdef HeldPull* held = keep(h, c, puller, place, wanted)
    if held == NULL:
        return False
    held.cursor = cursor
    held.cold_job = job
    held.deadline_ms = 0
    held.cold_rounds = 1
    held_link(h, HELD_PLACE, &h.cold, number_of(h, held))
    h.cold_count += 1
    held_of(c).cold_count += 1
    return True


# -- answers ---------------------------------------------------------------------------------------

cdef void answer_nothing(Held* h, Connection* c, HeldPull* held) noexcept nogil:
    """Its waiting ends without a message: how far it has come, if it has."""
    cdef QueueEntry* queue
    cdef int64_t first, end
    if held.queue < 0:
        answer_pull(h.reading, c, &held.puller, RESPONSE_PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE",
                    held.offset, 0, 0, NULL)
        return
    queue = &h.shm.queues[held.queue]
    first = load_i64_acquire(&queue.min_offset)
    end = load_i64_acquire(&queue.max_offset)
    if held.cursor > held.offset:
        answer_pull(h.reading, c, &held.puller, RESPONSE_PULL_RETRY_IMMEDIATELY,
                    "NO_MATCHED_MESSAGE", held.cursor, first, end, NULL)
    else:
        answer_pull(h.reading, c, &held.puller, RESPONSE_PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE",
                    held.offset, first, end, NULL)


cdef inline bint rules_changed(const Held* h, const HeldPull* held) noexcept nogil:
    return load_i32_acquire(&h.shm.head.access_sequence) != held.access_sequence             # H9


cdef bint settle_cold(Held* h, Connection* c, HeldPull* held) noexcept nogil:
    """What it waited for is in memory: answer it as a pull that comes now (broker.md 6.2, 6.4)."""
    cdef QueueEntry* queue = &h.shm.queues[held.queue]
    cdef int64_t end = load_i64_acquire(&queue.max_offset)
    cdef int64_t first = load_i64_acquire(&queue.min_offset)
    cdef int64_t began = h.transport.work
    cdef Found found
    if rules_changed(h, held):
        answer_nothing(h, c, held)
        return True
    scan(h.reading, held.queue, held.cursor, end, &held.portion, &held.match,
         held.cold_rounds < COLD_ROUNDS_MAX, &found)
    work_charge(h.transport, c, began)
    held.cursor += found.examined
    if found.count > 0:
        answer_pull(h.reading, c, &held.puller, RESPONSE_SUCCESS, "FOUND", held.cursor, first,
                    end, &found)
    elif found.cold_job:
        held.cold_job = found.cold_job
        held.cold_rounds = 1 if found.examined else held.cold_rounds + 1
        return False
    elif found.unreadable or found.damaged >= 0:
        say(c, &held.puller.asker, RESPONSE_SYSTEM_ERROR, scan_trouble(&found))
    else:
        answer_pull(h.reading, c, &held.puller, RESPONSE_PULL_RETRY_IMMEDIATELY,
                    "MESSAGE_WAS_REMOVING" if found.gone else "NO_MATCHED_MESSAGE",
                    held.cursor, first, end, NULL)
    return True


cdef void put_off(Held* h, Connection* c, HeldPull* held) noexcept nogil:
    """H7: it goes on with its connection."""
    if not held.is_due:
        held.is_due = True
        held_link(h, HELD_DUE, &c.due, number_of(h, held))


cdef bint look_further(Held* h, Connection* c, HeldPull* held, int64_t end) noexcept nogil:
    """Entries from its cursor on, as far as its connection's slice lets it; True: it is answered."""
    cdef int64_t began = h.transport.work
    cdef Found found
    while held.cursor < end:                                             # H4
        if work_is_over(h.transport, c):                                           # work N9
            put_off(h, c, held)
            work_later(h.transport, c)
            return False
        scan(h.reading, held.queue, held.cursor, end, &held.portion, &held.match, False, &found)
        held.cursor += found.examined
        if found.count > 0:
            answer_pull(h.reading, c, &held.puller, RESPONSE_SUCCESS, "FOUND", held.cursor,
                        load_i64_acquire(&h.shm.queues[held.queue].min_offset), end, &found)
        work_charge(h.transport, c, began)
        began = h.transport.work
        if found.count > 0:
            return True
        if found.examined == 0:
            return False
    return False


cdef bint settle_held(Held* h, Connection* c, HeldPull* held) noexcept nogil:
    """Answer a held pull if there is something for it or its time is over; True: it is done."""
    cdef int64_t end
    cdef bint late = h.transport.steady_ms >= held.deadline_ms
    if c.life == LIFE_DOOMED:
        return True
    if h.transport.stopping:                     # an error: clients ask again after seconds, not at once
        say(c, &held.puller.asker, RESPONSE_SYSTEM_ERROR, "the broker stops")
        return True
    if rules_changed(h, held):
        answer_nothing(h, c, held)
        return True
    if held.queue >= 0:
        end = load_i64_acquire(&h.shm.queues[held.queue].max_offset)
        want_anew(h, c, held)
        held.puller.since_us = h.transport.steady_us     # its waiting is no time in here (broker.md 6.5)
        if end > held.cursor:
            if not takes_output(h.transport, c):              # transport N2
                put_off(h, c, held)
            elif look_further(h, c, held, end):
                return True
    if late or (held.cursor > held.offset and h.transport.steady_ms >= held.tell_ms):
        answer_nothing(h, c, held)
        return True
    return False


cdef void settle(Held* h, int32_t number) noexcept nogil:
    cdef HeldPull* held = &h.pulls[number]
    held.looked_ms = h.transport.steady_ms
    h.transport.work += LOOK_WORK
    if settle_held(h, connection_find(h.transport, held.connection), held):
        held_let_go(h, number)


cdef void adopt(Held* h, int32_t number) noexcept nogil:
    """A pull that waits for a queue without a number goes to its list when it has one."""
    cdef HeldPull* held = &h.pulls[number]
    cdef int32_t queue = queue_find(
        h.shm, held.topic, held.topic_length, held.queue_id, held.queue_hash)
    h.transport.work += FIND_WORK
    if queue >= 0:
        held_unlink(h, HELD_PLACE, list_of(h, held), number)
        held.queue = queue
        list_of_queue(h, held)
        full_fence()                                                     # H2
    settle(h, number)


# -- passes (H7) -----------------------------------------------------------------------------------

cdef void make_due(Held* h, int32_t queue) noexcept nogil:
    if h.of_queue[queue] == 0:
        if queue != unborn(h):
            store_u8_release(interest_in(h, queue), 0)
        return
    h.passes[queue] += 1
    if h.queue_is_due[queue]:
        return
    h.queue_is_due[queue] = True
    h.due_queues[(h.due_first + h.due_count) % (h.shm.head.queue_capacity + 1)] = queue
    h.due_count += 1


cdef bint go_through(Held* h, int32_t queue, int64_t work_end) noexcept nogil:
    """The queue's pulls that were not looked at in its pass; False: some are left."""
    cdef int32_t number
    cdef HeldPull* held
    while h.of_queue[queue]:
        number = h.of_queue[queue] - 1
        held = &h.pulls[number]
        if held.seen == h.passes[queue]:
            return True
        if h.transport.work >= work_end:
            return False
        held.seen = h.passes[queue]
        h.of_queue[queue] = held.links[HELD_PLACE].next + 1
        if held.queue < 0:
            adopt(h, number)
        else:
            settle(h, number)
    return True


cdef void settle_due(Held* h) noexcept nogil:
    cdef int64_t work_end = h.transport.work + HELD_WORK
    cdef int32_t queue
    cdef int32_t places = h.shm.head.queue_capacity + 1
    while h.due_count > 0 and h.transport.work < work_end:
        queue = h.due_queues[h.due_first]
        h.due_first = (h.due_first + 1) % places
        h.due_count -= 1
        h.queue_is_due[queue] = False
        if not go_through(h, queue, work_end):
            h.queue_is_due[queue] = True
            h.due_queues[(h.due_first + h.due_count) % places] = queue
            h.due_count += 1


cdef void settle_due_of(Held* h, Connection* c) noexcept nogil:
    cdef int32_t number
    while c.due and not work_is_over(h.transport, c) and takes_output(h.transport, c):
        number = c.due - 1
        held_unlink(h, HELD_DUE, &c.due, number)
        h.pulls[number].is_due = False
        settle(h, number)
        if c.life == LIFE_DOOMED:
            return
    if c.due and takes_output(h.transport, c):
        work_later(h.transport, c)


cdef void take_cold(Held* h) noexcept nogil:
    """Pulls whose reads are finished go on; those that wait for more stay."""
    cdef int32_t i, number
    cdef int64_t finished = cold_finished(h.reading.cold_reader)
    cdef HeldPull* held
    for i in range(h.cold_count):
        if h.cold == 0:
            return
        number = h.cold - 1
        held = &h.pulls[number]
        h.cold = held.links[HELD_PLACE].next + 1
        if held.cold_job <= finished and settle_cold(
                h, connection_find(h.transport, held.connection), held):
            held_let_go(h, number)


cdef void take_arrivals(Held* h) noexcept nogil:
    cdef uint8_t* record
    cdef int32_t kind
    while ring_next(&h.arrivals, &record, &kind) >= 0:
        if h.of_queue[unborn(h)] and (
                load_i32_acquire(&h.shm.head.queue_count) != h.queues_known):
            h.queues_known = load_i32_acquire(&h.shm.head.queue_count)
            make_due(h, unborn(h))
        make_due(h, (<Arrival*>record).queue)
    ring_release(&h.arrivals)


cdef void look_at_held(Held* h) noexcept nogil:
    """Deadlines (H3), and each pull once a second: an arrival may have found no room."""
    cdef int64_t work_end = h.transport.work + HELD_WORK
    cdef int32_t number
    cdef HeldPull* held
    while h.walk < h.used and h.transport.work < work_end:
        number = h.walk
        h.walk += 1
        h.transport.work += WALK_WORK
        held = &h.pulls[number]
        if held.connection == 0 or held.cold_job:
            continue
        if (h.transport.steady_ms >= held.deadline_ms or held.looked_ms < h.look_ms
                or h.transport.stopping or (held.cursor > held.offset and h.transport.steady_ms >= held.tell_ms)):
            if held.queue < 0:
                adopt(h, number)
            else:
                settle(h, number)
