"""Long polling (broker.md 6.5; PullRequestHoldService), and waiting for the disk."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from mqcore.atomics cimport full_fence, load_i32_acquire, load_i64_acquire, store_u8_release
from mqcore.filter.loaded cimport filter_drop, filter_keep
from mqcore.layout cimport FIGURE_HELD_PULLS, QueueEntry
from mqcore.net.remoting.frames cimport access_of
from mqcore.net.serving.cold cimport COLD_JOBS_MAX
from mqcore.net.serving.held_places cimport (
    HELD_OWNER,
    HELD_PLACE,
    HELD_POSTPONED,
    WALK_WORK,
    HeldPull,
    filter_size,
    held_release,
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
from mqcore.net.transport.work cimport work_charge, work_is_over, work_defer
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
    LOOK_WORK = 60                    # of a look at a held pull that finds nothing new
    FIND_WORK = 150                   # of looking whether a queue is born


cdef bint held_open(HeldPulls* held) noexcept nogil:
    cdef int64_t lists = <int64_t>held.shm.head.queue_capacity + 1
    held.places = <HeldPull*>calloc(held.capacity, sizeof(HeldPull))
    held.of_queue = <int32_t*>calloc(lists, sizeof(int32_t))
    held.passes = <int32_t*>calloc(lists, sizeof(int32_t))
    held.pass_queues = <int32_t*>calloc(lists, sizeof(int32_t))
    held.in_pass = <uint8_t*>calloc(lists, 1)
    held.free_place = -1                  # memory is touched only when it is needed
    return (held.places != NULL and held.of_queue != NULL and held.passes != NULL
            and held.pass_queues != NULL and held.in_pass != NULL)


cdef void held_clear(HeldPulls* held) noexcept nogil:
    cdef int32_t i
    for i in range(held.used):
        free(held.places[i].match.codes)
        filter_drop(&held.wants.filters, held.places[i].match.filter)
        held.places[i].match.codes = NULL
        held.places[i].match.filter = NULL


cdef bint set_match(HeldPulls* held, Connection* c, HeldPull* pull,
                    const Wanted* wanted) noexcept nogil:
    """Give the pull a copy of what it wants; False: no memory, it wants what it wanted."""
    cdef int32_t* codes = NULL
    if wanted.match.code_count > 0:
        codes = <int32_t*>malloc(wanted.match.code_count * sizeof(int32_t))
        if codes == NULL:
            return False
        memcpy(codes, wanted.match.codes, wanted.match.code_count * sizeof(int32_t))
    if wanted.match.filter != NULL:
        filter_keep(wanted.match.filter)
    held_of(c).filter_bytes -= filter_size(pull)
    free(pull.match.codes)
    filter_drop(&held.wants.filters, pull.match.filter)
    pull.match = wanted.match
    pull.match.codes = codes
    held_of(c).filter_bytes += filter_size(pull)
    pull.subscription = wanted.view.number
    pull.sequence = wanted.view.sequence
    pull.life = wanted.view.life
    return True


cdef void renew_match(HeldPulls* held, Connection* c, HeldPull* pull) noexcept nogil:
    """The group's subscription may have changed since: then all is looked at again (H4)."""
    cdef Wanted wanted
    if pull.subscription < 0 or load_i32_acquire(
            &held.shm.subscriptions[pull.subscription].sequence) == pull.sequence:
        return
    wanted.match.filter = NULL
    if wanted_again(held.wants, pull.subscription, pull.life, &wanted):
        if set_match(held, c, pull, &wanted):
            pull.cursor = pull.offset
    filter_drop(&held.wants.filters, wanted.match.filter)


cdef inline int32_t number_of(const HeldPulls* held, const HeldPull* pull) noexcept nogil:
    return <int32_t>(pull - held.places)


# -- places ----------------------------------------------------------------------------------------

cdef int32_t held_share(const HeldPulls* held) noexcept nogil:
    return min(held.capacity, max(<int32_t>SHARE_LEAST, held.capacity // SHARE_PART))


cdef int32_t cold_share(const HeldPulls* held) noexcept nogil:
    return max(1, (COLD_JOBS_MAX - held.cold_count) // 4)


cdef Connection* find_heaviest(HeldPulls* held) noexcept nogil:
    """Who holds most, looked for once a turn."""
    cdef Connection* most = NULL
    cdef int32_t i
    if held.heaviest_turn == held.transport.turn:
        return connection_find(held.transport, held.heaviest)
    for i in range(held.transport.connection_max):
        if held.transport.connections[i] != NULL and (
                most == NULL or held_of(held.transport.connections[i]).count > held_of(most).count):
            most = held.transport.connections[i]
    held.transport.work += <int64_t>held.transport.connection_max * WALK_WORK
    held.heaviest_turn = held.transport.turn
    held.heaviest = most.id if most != NULL else 0
    return most


cdef bint make_room(HeldPulls* held, const Connection* c) noexcept nogil:
    """H6"""
    cdef Connection* most = find_heaviest(held)
    cdef int32_t number, i
    cdef HeldPull* pull
    if most == NULL or held_of(most).first == 0 or held_of(most).count <= held_of(c).count + 1:
        return False
    number = held.places[held_of(most).first - 1].links[HELD_OWNER].before
    for i in range(held_of(most).count):
        pull = &held.places[number]
        if pull.cold_job == 0:
            answer_nothing(held, most, pull)
            held_release(held, number)
            return True
        number = pull.links[HELD_OWNER].before
    return False


cdef bint may_hold(HeldPulls* held, const Connection* c, const Wanted* wanted) noexcept nogil:
    if held_of(c).count >= held_share(held):                                    # H5
        return False
    if wanted.match.filter != NULL and (
            held_of(c).filter_bytes + wanted.match.filter.size > FILTER_SHARE_BYTES):
        return False
    return held.count < held.capacity or make_room(held, c)


cdef HeldPull* claim_place(HeldPulls* held, Connection* c, const Puller* puller,
                           const PullPlace* place, const Wanted* wanted) noexcept nogil:
    """A place for the pull, in no list of a queue yet; NULL: there is none."""
    cdef HeldPull* pull
    cdef int32_t number
    if c.life == LIFE_DOOMED or not may_hold(held, c, wanted):
        return NULL
    number = held.free_place if held.free_place >= 0 else held.used
    pull = &held.places[number]
    pull.match.codes = NULL
    pull.match.filter = NULL
    if not set_match(held, c, pull, wanted):
        return NULL
    if number == held.used:
        held.used += 1
    else:
        held.free_place = pull.links[HELD_PLACE].next
    held.count += 1
    held.transport.slot.figures[FIGURE_HELD_PULLS] = held.count
    pull.connection = c.id
    held_link(held, HELD_OWNER, &held_of(c).first, number)
    held_of(c).count += 1
    pull.postponed = False
    pull.puller = puller[0]
    pull.queue = place.queue
    pull.queue_hash = place.queue_hash
    pull.queue_id = place.queue_id
    pull.topic_length = <uint8_t>place.topic_length
    memcpy(pull.topic, place.topic, place.topic_length)
    pull.portion = place.portion
    pull.offset = place.offset
    pull.cursor = place.offset
    pull.access_sequence = access_of(c).sequence
    pull.cold_job = 0
    pull.cold_rounds = 0
    pull.looked_ms = held.transport.steady_ms
    return pull


cdef bint list_by_queue(HeldPulls* held, HeldPull* pull) noexcept nogil:
    """H1; it counts as looked at in the queue's present pass. Whether others wait there already."""
    cdef uint8_t* interest = interest_in(held, pull.queue)
    cdef bint awaited = interest[0]
    pull.pass_seen = held.passes[pull.queue]
    held_link(held, HELD_PLACE, &held.of_queue[pull.queue], number_of(held, pull))
    store_u8_release(interest, 1)
    return awaited


cdef bint hold(HeldPulls* held, Connection* c, const Puller* puller, const PullPlace* place,
               const Wanted* wanted, int64_t wait_ms) noexcept nogil:
    cdef HeldPull* pull = claim_place(held, c, puller, place, wanted)
    cdef int32_t number
    cdef bint awaited = True
    if pull == NULL:
        return False
    number = number_of(held, pull)
    pull.deadline_ms = held.transport.steady_ms + min(max(wait_ms, 0), HELD_LIFE_MS_MAX)
    pull.tell_ms = held.transport.steady_ms + TELL_MS
    if place.queue >= 0:
        awaited = list_by_queue(held, pull)
    else:
        pull.pass_seen = held.passes[unborn(held)]
        held_link(held, HELD_PLACE, &held.of_queue[unborn(held)], number)
    full_fence()                                                         # H2
    if place.queue < 0:
        adopt(held, number)
    elif load_i64_acquire(&held.shm.queues[place.queue].max_offset) > place.offset:
        check_pull(held, number)
    elif not awaited:
        dispatch_hurry(held.shm)                                            # dispatch D6
    return True


cdef bint hold_cold(HeldPulls* held, Connection* c, const Puller* puller, const PullPlace* place,
                    const Wanted* wanted, int64_t cursor, int64_t job) noexcept nogil:
    cdef HeldPull* pull = claim_place(held, c, puller, place, wanted)
    if pull == NULL:
        return False
    pull.cursor = cursor
    pull.cold_job = job
    pull.deadline_ms = 0
    pull.cold_rounds = 1
    held_link(held, HELD_PLACE, &held.cold, number_of(held, pull))
    held.cold_count += 1
    held_of(c).cold_count += 1
    return True


# -- answers ---------------------------------------------------------------------------------------

cdef void answer_nothing(HeldPulls* held, Connection* c, HeldPull* pull) noexcept nogil:
    """Its waiting ends without a message: how far it has come, if it has."""
    cdef QueueEntry* queue
    cdef int64_t first, end
    if pull.queue < 0:
        answer_pull(held.reader, c, &pull.puller, RESPONSE_PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE",
                    pull.offset, 0, 0, NULL)
        return
    queue = &held.shm.queues[pull.queue]
    first = load_i64_acquire(&queue.min_offset)
    end = load_i64_acquire(&queue.max_offset)
    if pull.cursor > pull.offset:
        answer_pull(held.reader, c, &pull.puller, RESPONSE_PULL_RETRY_IMMEDIATELY,
                    "NO_MATCHED_MESSAGE", pull.cursor, first, end, NULL)
    else:
        answer_pull(held.reader, c, &pull.puller, RESPONSE_PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE",
                    pull.offset, first, end, NULL)


cdef inline bint rules_changed(const HeldPulls* held, const HeldPull* pull) noexcept nogil:
    return load_i32_acquire(&held.shm.head.access_sequence) != pull.access_sequence             # H9


cdef bint answer_from_disk(HeldPulls* held, Connection* c, HeldPull* pull) noexcept nogil:
    """What it waited for is in memory: answer it as a pull that comes now (broker.md 6.2, 6.4)."""
    cdef QueueEntry* queue = &held.shm.queues[pull.queue]
    cdef int64_t end = load_i64_acquire(&queue.max_offset)
    cdef int64_t first = load_i64_acquire(&queue.min_offset)
    cdef int64_t began = held.transport.work
    cdef Found found
    if rules_changed(held, pull):
        answer_nothing(held, c, pull)
        return True
    scan(held.reader, pull.queue, pull.cursor, end, &pull.portion, &pull.match,
         pull.cold_rounds < COLD_ROUNDS_MAX, &found)
    work_charge(held.transport, c, began)
    pull.cursor += found.examined
    if found.count > 0:
        answer_pull(held.reader, c, &pull.puller, RESPONSE_SUCCESS, "FOUND", pull.cursor, first,
                    end, &found)
    elif found.cold_job:
        pull.cold_job = found.cold_job
        pull.cold_rounds = 1 if found.examined else pull.cold_rounds + 1
        return False
    elif found.unreadable or found.damaged >= 0:
        say(c, &pull.puller.asker, RESPONSE_SYSTEM_ERROR, scan_trouble(&found))
    else:
        answer_pull(held.reader, c, &pull.puller, RESPONSE_PULL_RETRY_IMMEDIATELY,
                    "MESSAGE_WAS_REMOVING" if found.gone else "NO_MATCHED_MESSAGE",
                    pull.cursor, first, end, NULL)
    return True


cdef void postpone(HeldPulls* held, Connection* c, HeldPull* pull) noexcept nogil:
    """H7: it goes on with its connection."""
    if not pull.postponed:
        pull.postponed = True
        held_link(held, HELD_POSTPONED, &c.postponed, number_of(held, pull))


cdef bint look_further(HeldPulls* held, Connection* c, HeldPull* pull, int64_t end) noexcept nogil:
    """Entries from its cursor on, as far as its connection's slice lets it; True: it is answered."""
    cdef int64_t began = held.transport.work
    cdef Found found
    while pull.cursor < end:                                             # H4
        if work_is_over(held.transport, c):                                           # work N9
            postpone(held, c, pull)
            work_defer(held.transport, c)
            return False
        scan(held.reader, pull.queue, pull.cursor, end, &pull.portion, &pull.match, False, &found)
        pull.cursor += found.examined
        if found.count > 0:
            answer_pull(held.reader, c, &pull.puller, RESPONSE_SUCCESS, "FOUND", pull.cursor,
                        load_i64_acquire(&held.shm.queues[pull.queue].min_offset), end, &found)
        work_charge(held.transport, c, began)
        began = held.transport.work
        if found.count > 0:
            return True
        if found.examined == 0:
            return False
    return False


cdef bint answer_if_ready(HeldPulls* held, Connection* c, HeldPull* pull) noexcept nogil:
    """Answer a held pull if there is something for it or its time is over; True: it is done."""
    cdef int64_t end
    cdef bint time_is_over = held.transport.steady_ms >= pull.deadline_ms
    if c.life == LIFE_DOOMED:
        return True
    if held.transport.stopping:      # an error: clients ask again after seconds, not at once
        say(c, &pull.puller.asker, RESPONSE_SYSTEM_ERROR, "the broker stops")
        return True
    if rules_changed(held, pull):
        answer_nothing(held, c, pull)
        return True
    if pull.queue >= 0:
        end = load_i64_acquire(&held.shm.queues[pull.queue].max_offset)
        renew_match(held, c, pull)
        pull.puller.since_us = held.transport.steady_us   # its waiting does not count (broker.md 6.5)
        pull.puller.waited = True
        if end > pull.cursor:
            if not takes_output(held.transport, c):              # transport N2
                postpone(held, c, pull)
            elif look_further(held, c, pull, end):
                return True
    if time_is_over or (pull.cursor > pull.offset and held.transport.steady_ms >= pull.tell_ms):
        answer_nothing(held, c, pull)
        return True
    return False


cdef void check_pull(HeldPulls* held, int32_t number) noexcept nogil:
    cdef HeldPull* pull = &held.places[number]
    pull.looked_ms = held.transport.steady_ms
    held.transport.work += LOOK_WORK
    if answer_if_ready(held, connection_find(held.transport, pull.connection), pull):
        held_release(held, number)


cdef void adopt(HeldPulls* held, int32_t number) noexcept nogil:
    """A pull that waits for a queue without a number goes to its list when it has one."""
    cdef HeldPull* pull = &held.places[number]
    cdef int32_t queue = queue_find(
        held.shm, pull.topic, pull.topic_length, pull.queue_id, pull.queue_hash)
    held.transport.work += FIND_WORK
    if queue >= 0:
        held_unlink(held, HELD_PLACE, list_of(held, pull), number)
        pull.queue = queue
        list_by_queue(held, pull)
        full_fence()                                                     # H2
    check_pull(held, number)
