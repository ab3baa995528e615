"""Long polling (broker.md 6.5; PullRequestHoldService), and waiting for the disk."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from mqcore.atomics cimport full_fence, load_i32_acquire, load_i64_acquire, store_u8_release
from mqcore.filter.loaded cimport filter_drop, filter_keep
from mqcore.layout cimport FIGURE_HELD_PULLS, Arrival, QueueEntry
from mqcore.net.cold cimport cold_finished
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
from mqcore.net.server cimport HELD_LIFE_MS_MAX, OUT_HIGH_BYTES, connection_find
from mqcore.net.wanted cimport Wanted, wanted_again
from mqcore.shm.ring cimport ring_next, ring_release
from mqcore.shm.tables cimport queue_find

cdef enum:
    TELL_MS = 5000                    # stock looks at held pulls that often, and answers those
    COLD_ROUNDS_MAX = 4               # then the loop reads by itself: the page cache does not keep up


cdef void held_init(Server* s) noexcept nogil:
    s.held_free = -1                   # memory is touched only when it is needed
    s.held_used = 0
    s.held_count = 0
    s.unborn = 0
    s.cold = 0


cdef void held_clear(Server* s) noexcept nogil:
    cdef int32_t i
    for i in range(s.held_used):
        free(s.held[i].match.codes)
        filter_drop(&s.filters, s.held[i].match.filter)
        s.held[i].match.codes = NULL
        s.held[i].match.filter = NULL


cdef bint want(Server* s, HeldPull* held, const Wanted* wanted) noexcept nogil:
    """Give the pull a copy of what it wants; False: no memory, it wants what it wanted."""
    cdef int32_t* codes = NULL
    if wanted.match.code_count > 0:
        codes = <int32_t*>malloc(wanted.match.code_count * sizeof(int32_t))
        if codes == NULL:
            return False
        memcpy(codes, wanted.match.codes, wanted.match.code_count * sizeof(int32_t))
    if wanted.match.filter != NULL:
        filter_keep(wanted.match.filter)
    free(held.match.codes)
    filter_drop(&s.filters, held.match.filter)
    held.match = wanted.match
    held.match.codes = codes
    held.subscription = wanted.view.number
    held.sequence = wanted.view.sequence
    return True


cdef void want_anew(Server* s, HeldPull* held) noexcept nogil:
    """The group's subscription may have changed since: then all is looked at again (H4)."""
    cdef Wanted wanted
    if held.subscription < 0 or load_i32_acquire(
            &s.shm.subscriptions[held.subscription].sequence) == held.sequence:
        return
    wanted.match.filter = NULL
    if wanted_again(s, held.subscription, &wanted):
        if want(s, held, &wanted):
            held.cursor = held.offset
    filter_drop(&s.filters, wanted.match.filter)


cdef HeldPull* keep(Server* s, Connection* c, const Asker* asker, const PullPlace* place,
                    const Wanted* wanted) noexcept nogil:
    """A place for the pull, in no list yet; NULL: there is none."""
    cdef HeldPull* held
    cdef int32_t number = s.held_free if s.held_free >= 0 else s.held_used
    if number == s.held_capacity:
        return NULL
    held = &s.held[number]
    held.match.codes = NULL
    held.match.filter = NULL
    if not want(s, held, wanted):
        return NULL
    if number == s.held_used:
        s.held_used += 1
    else:
        s.held_free = held.next
    s.held_count += 1
    s.slot.figures[FIGURE_HELD_PULLS] = s.held_count
    held.connection = c.id
    held.asker = asker[0]
    held.queue = place.queue
    held.queue_hash = place.queue_hash
    held.queue_id = place.queue_id
    held.topic_length = <uint8_t>place.topic_length
    memcpy(held.topic, place.topic, place.topic_length)
    held.count_max = place.count_max
    held.offset = place.offset
    held.cursor = place.offset
    held.cold_rounds = 0
    return held


cdef inline int32_t number_of(const Server* s, const HeldPull* held) noexcept nogil:
    return <int32_t>(held - s.held)


cdef void list_of_queue(Server* s, HeldPull* held) noexcept nogil:
    """H1"""
    held.next = s.held_of_queue[held.queue] - 1
    s.held_of_queue[held.queue] = number_of(s, held) + 1
    store_u8_release(
        &s.shm.interest[<int64_t>s.index * s.shm.head.queue_capacity + held.queue], 1)


cdef bint hold(Server* s, Connection* c, const Asker* asker, const PullPlace* place,
               const Wanted* wanted, int64_t wait_ms) noexcept nogil:
    cdef HeldPull* held = keep(s, c, asker, place, wanted)
    if held == NULL:
        return False
    held.deadline_ms = s.steady_ms + min(max(wait_ms, 0), HELD_LIFE_MS_MAX)
    held.tell_ms = s.steady_ms + TELL_MS
    if place.queue >= 0:
        list_of_queue(s, held)
    else:
        held.next = s.unborn - 1
        s.unborn = number_of(s, held) + 1
    full_fence()                                                         # H2
    if place.queue >= 0:
        if load_i64_acquire(&s.shm.queues[place.queue].max_offset) > place.offset:
            settle_queue(s, place.queue)
    elif queue_find(s.shm, place.topic, place.topic_length, place.queue_id,
                    place.queue_hash) >= 0:
        adopt_unborn(s)
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
    held.next = s.cold - 1
    s.cold = number_of(s, held) + 1
    return True


cdef void let_go(Server* s, int32_t number) noexcept nogil:
    """Give a held pull's place back; it is in no list any more."""
    cdef HeldPull* held = &s.held[number]
    free(held.match.codes)
    held.match.codes = NULL
    filter_drop(&s.filters, held.match.filter)
    held.match.filter = NULL
    held.next = s.held_free
    s.held_free = number
    s.held_count -= 1
    s.slot.figures[FIGURE_HELD_PULLS] = s.held_count


cdef bint settle_cold(Server* s, Connection* c, HeldPull* held) noexcept nogil:
    """What it waited for is in memory: answer it as a pull that comes now (broker.md 6.2, 6.4)."""
    cdef QueueEntry* queue = &s.shm.queues[held.queue]
    cdef int64_t end = load_i64_acquire(&queue.max_offset)
    cdef int64_t first = load_i64_acquire(&queue.min_offset)
    cdef Found found
    scan(s, held.queue, held.cursor, end, held.count_max, &held.match,
         held.cold_rounds < COLD_ROUNDS_MAX, &found)
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


cdef bint settle_held(Server* s, HeldPull* held) noexcept nogil:
    """Answer a held pull if there is something for it or its time is over; True: it is done."""
    cdef Connection* c = connection_find(s, held.connection)
    cdef QueueEntry* queue
    cdef Found found
    cdef int64_t end
    cdef bint late = s.steady_ms >= held.deadline_ms
    if c == NULL:
        return True
    if s.stopping:                     # an error: clients ask again after seconds, not at once
        reply_plain(s, c, held.asker.binary, held.asker.opaque, CODE_SYSTEM_ERROR,
                    "the broker stops")
        return True
    if held.queue < 0:
        if late:
            answer_pull(s, c, &held.asker, CODE_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", held.offset, 0, 0,
                        NULL)
        return late
    queue = &s.shm.queues[held.queue]
    end = load_i64_acquire(&queue.max_offset)
    want_anew(s, held)
    held.asker.since_ms = s.steady_ms          # its waiting is no time in the broker (broker.md 6.5)
    if end > held.cursor and c.output_end - c.output_start < OUT_HIGH_BYTES:
        while held.cursor < end:                                         # H4
            scan(s, held.queue, held.cursor, end, held.count_max, &held.match, False, &found)
            held.cursor += found.examined
            if found.count > 0:
                answer_pull(s, c, &held.asker, CODE_FOUND, "FOUND", held.cursor,
                            load_i64_acquire(&queue.min_offset), end, &found)
                return True
            if found.examined == 0:
                break
    if held.cursor > held.offset and (late or s.steady_ms >= held.tell_ms):
        answer_pull(s, c, &held.asker, CODE_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE",
                    held.cursor, load_i64_acquire(&queue.min_offset), end, NULL)
        return True
    if late:
        answer_pull(s, c, &held.asker, CODE_NOT_FOUND, "OFFSET_OVERFLOW_ONE",
                    held.offset, load_i64_acquire(&queue.min_offset), end, NULL)
    return late


cdef void settle_list(Server* s, int32_t* first) noexcept nogil:
    """Settle every pull of a list; `first` is its head word (number + 1)."""
    cdef int32_t number = first[0] - 1
    cdef int32_t before = -1, after
    while number >= 0:
        after = s.held[number].next
        if settle_held(s, &s.held[number]):
            if before < 0:
                first[0] = after + 1
            else:
                s.held[before].next = after
            let_go(s, number)
        else:
            before = number
        number = after


cdef void settle_queue(Server* s, int32_t queue) noexcept nogil:
    cdef uint8_t* interest = &s.shm.interest[<int64_t>s.index * s.shm.head.queue_capacity + queue]
    if s.held_of_queue[queue] == 0:
        store_u8_release(interest, 0)
        return
    settle_list(s, &s.held_of_queue[queue])
    if s.held_of_queue[queue] == 0:
        store_u8_release(interest, 0)


cdef void take_cold(Server* s) noexcept nogil:
    """Pulls whose reads are finished go on; those that wait for more stay."""
    cdef int32_t number = s.cold - 1
    cdef int32_t after
    cdef int64_t finished
    cdef HeldPull* held
    cdef Connection* c
    if number < 0:
        return
    finished = cold_finished(s.cold_reader)
    s.cold = 0
    while number >= 0:
        held = &s.held[number]
        after = held.next
        c = connection_find(s, held.connection)
        if held.cold_job > finished or (
                c != NULL and not settle_cold(s, c, held)):
            held.next = s.cold - 1
            s.cold = number + 1
        else:
            let_go(s, number)
        number = after


cdef void adopt_unborn(Server* s) noexcept nogil:
    """Pulls that waited for a queue without a number go to its list when it has one."""
    cdef int32_t number = s.unborn - 1
    cdef int32_t after, queue
    cdef HeldPull* held
    s.queues_known = load_i32_acquire(&s.shm.head.queue_count)
    s.unborn = 0
    while number >= 0:
        held = &s.held[number]
        after = held.next
        queue = queue_find(s.shm, held.topic, held.topic_length, held.queue_id, held.queue_hash)
        if queue < 0:
            held.next = s.unborn - 1
            s.unborn = number + 1
        else:
            held.queue = queue
            list_of_queue(s, held)
            full_fence()
            settle_queue(s, queue)
        number = after


cdef void take_arrivals(Server* s) noexcept nogil:
    cdef uint8_t* record
    cdef int32_t kind
    while ring_next(&s.arrivals, &record, &kind) >= 0:
        if s.unborn and load_i32_acquire(&s.shm.head.queue_count) != s.queues_known:
            adopt_unborn(s)
        settle_queue(s, (<Arrival*>record).queue)
    ring_release(&s.arrivals)


cdef void look_at_held(Server* s, bint everything) noexcept nogil:
    """Deadlines and connections that are gone (H3); everything: each list, whatever the time."""
    cdef int32_t i
    if s.held_count == 0:
        return
    take_cold(s)
    if s.unborn:
        adopt_unborn(s)
        settle_list(s, &s.unborn)
    for i in range(s.shm.head.queue_count):
        if s.held_of_queue[i] and (everything or list_is_due(s, s.held_of_queue[i] - 1)):
            settle_queue(s, i)


cdef bint list_is_due(Server* s, int32_t number) noexcept nogil:
    while number >= 0:
        if (s.steady_ms >= s.held[number].deadline_ms
                or connection_find(s, s.held[number].connection) == NULL):
            return True
        number = s.held[number].next
    return False
