"""Pulls (broker.md 6.1, 6.2, 6.4; PullMessageProcessor)."""
from libc.stdint cimport int32_t, int64_t

from mqcore.atomics cimport load_i32_acquire, load_i64_acquire
from mqcore.filter.loaded cimport filter_drop
from mqcore.layout cimport FIGURE_PULLS, GROUP_CONSUME_ENABLED, GROUP_PULL_ASKS
from mqcore.net.requests cimport (
    HANDLED,
    HANDLE_FORWARD,
    HANDLE_WAIT,
)
from mqcore.net.serving.offset_commits cimport note_offset_commit
from mqcore.net.serving.held cimport PullPlace, cold_share, hold, hold_cold
from mqcore.net.serving.peer cimport held_of, say
from mqcore.net.serving.scan cimport (
    PULL_RANGES_MAX,
    Found,
    Puller,
    answer_pull,
    scan,
    scan_trouble,
)
from mqcore.net.serving.wanted cimport Wanted, wanted_by
from mqcore.shm.segment cimport dispatch_hurry
from mqcore.shm.tables cimport (
    TopicView,
    group_number,
    name_hash,
    queue_find,
    queue_hash,
    topic_find,
)
from mqcore.store.topic_names cimport is_light_name
from mqcore.wire.codes cimport (
    PERM_READ,
    RESPONSE_PULL_NOT_FOUND,
    RESPONSE_PULL_OFFSET_MOVED,
    RESPONSE_PULL_RETRY_IMMEDIATELY,
    RESPONSE_SUCCESS,
    RESPONSE_SYSTEM_ERROR,
)


cdef int nothing_there(Pulls* p, Connection* c, const Puller* puller, const PullRequest* request,
                       const PullPlace* place, const Wanted* wanted, const char* remark,
                       int64_t min_offset, int64_t max_offset) noexcept nogil:
    """Hold the pull if it may be, else say that there is nothing (broker.md 6.4, 6.5)."""
    if request.wait_ms > 0 and hold(p.held, c, puller, place, wanted,
                                    request.wait_ms if p.long_polling else p.short_polling_ms):
        return HANDLED
    dispatch_hurry(p.shm)              # the next pull finds what is there by now
    answer_pull(p.reader, c, puller, RESPONSE_PULL_NOT_FOUND, remark, request.offset, min_offset,
                max_offset, NULL)
    return HANDLED


cdef int out_of_range(Pulls* p, Connection* c, const Puller* puller, const PullRequest* request,
                      int64_t min_offset, int64_t max_offset, bint decided) noexcept nogil:
    """
    21, and the event message: the coordinator's. If it found the offset in range just now, messages
    have been deleted since (decided): then 21 is said here.
    """
    if not decided:
        return HANDLE_FORWARD
    if max_offset == 0:
        answer_pull(p.reader, c, puller, RESPONSE_PULL_OFFSET_MOVED, "NO_MESSAGE_IN_QUEUE",
                    0, min_offset, max_offset, NULL)
    elif request.offset < min_offset:
        answer_pull(p.reader, c, puller, RESPONSE_PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL",
                    min_offset, min_offset, max_offset, NULL)
    else:
        answer_pull(p.reader, c, puller, RESPONSE_PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY",
                    max_offset, min_offset, max_offset, NULL)
    return HANDLED


cdef int beyond_slave(Pulls* p, Connection* c, const Puller* puller, const PullRequest* request,
                      const PullPlace* place, const Wanted* wanted, int64_t min_offset,
                      int64_t max_offset) noexcept nogil:
    """
    A slave moves nobody's offset: what it lacks its master may have (ha.md 5), and who has just been
    elected may not show yet what was read at the former one (leadership FO10). Stock says 20 at
    once, and again; here a pull of what is still to come waits for it.
    """
    if request.offset > max_offset and request.wait_ms > 0 and hold(
            p.held, c, puller, place, wanted,
            request.wait_ms if p.long_polling else p.short_polling_ms):
        return HANDLED
    answer_pull(p.reader, c, puller, RESPONSE_PULL_RETRY_IMMEDIATELY,
                "NO_MESSAGE_IN_QUEUE" if max_offset == 0 else
                "OFFSET_TOO_SMALL" if request.offset < min_offset else "OFFSET_OVERFLOW_BADLY",
                request.offset, min_offset, max_offset, NULL)
    return HANDLED


cdef int look_inside(Pulls* p, Connection* c, const Puller* puller, const PullRequest* request,
                     const PullPlace* place, const Wanted* wanted, int64_t min_offset,
                     int64_t max_offset) noexcept nogil:
    """The offset is in the queue's range: walk, and answer with what is there."""
    cdef Found found
    scan(p.reader, place.queue, request.offset, max_offset, &place.portion, &wanted.match, True,
         &found)
    if found.count == 0 and found.cold_job:
        if hold_cold(p.held, c, puller, place, wanted, request.offset + found.examined,
                     found.cold_job):
            return HANDLED
        scan(p.reader, place.queue, request.offset, max_offset, &place.portion, &wanted.match, False,
             &found)
    if found.count > 0:
        answer_pull(p.reader, c, puller, RESPONSE_SUCCESS, "FOUND",
                    request.offset + found.examined, min_offset, max_offset, &found)
    elif found.unreadable or found.damaged >= 0:
        say(c, &puller.asker, RESPONSE_SYSTEM_ERROR, scan_trouble(&found))
    elif found.examined == 0:
        answer_pull(p.reader, c, puller, RESPONSE_PULL_NOT_FOUND, "OFFSET_FOUND_NULL",
                    (request.offset // p.reader.queues.file_entries + 1) *
                    p.reader.queues.file_entries,
                    min_offset, max_offset, NULL)
    else:
        answer_pull(p.reader, c, puller, RESPONSE_PULL_RETRY_IMMEDIATELY,
                    "MESSAGE_WAS_REMOVING" if found.gone else "NO_MATCHED_MESSAGE",
                    request.offset + found.examined, min_offset, max_offset, &found)
    return HANDLED


cdef int look_up(Pulls* p, Connection* c, const Puller* puller, const PullRequest* request,
                 const Wanted* wanted, bint decided) noexcept nogil:
    """A pull that passed all checks (broker.md 6.2)."""
    cdef PullPlace place
    cdef int64_t min_offset = 0, max_offset = 0
    place.topic = &request.topic[0]
    place.topic_length = request.topic_length
    place.queue_id = request.queue_id
    place.queue_hash = queue_hash(name_hash(request.topic, request.topic_length, 0), request.queue_id)
    place.queue = queue_find(p.shm, request.topic, request.topic_length, request.queue_id,
                             place.queue_hash)
    place.offset = request.offset
    place.portion.count_max = max(min(request.count_max, PULL_RANGES_MAX), 1)    # none or fewer mean one
    place.portion.replays = request.replays
    if place.queue >= 0:
        max_offset = load_i64_acquire(&p.shm.queues[place.queue].max_offset)
        min_offset = load_i64_acquire(&p.shm.queues[place.queue].min_offset)
    if max_offset == 0:
        if request.offset != 0 and (p.slave or p.taking_over):
            return beyond_slave(p, c, puller, request, &place, wanted, min_offset, max_offset)
        if request.offset != 0:
            return out_of_range(p, c, puller, request, min_offset, max_offset, decided)
        return nothing_there(p, c, puller, request, &place, wanted, "NO_MESSAGE_IN_QUEUE", 0, 0)
    if request.offset < min_offset or request.offset > max_offset:
        if p.slave or (p.taking_over and request.offset > max_offset):
            return beyond_slave(p, c, puller, request, &place, wanted, min_offset, max_offset)
        return out_of_range(p, c, puller, request, min_offset, max_offset, decided)
    if request.offset == max_offset:
        return nothing_there(p, c, puller, request, &place, wanted, "OFFSET_OVERFLOW_ONE", min_offset,
                             max_offset)
    return look_inside(p, c, puller, request, &place, wanted, min_offset, max_offset)


cdef int check_group(Pulls* p, const PullRequest* request, bint decided, Puller* puller) noexcept nogil:
    """The group may consume; the brokers that its pulls are told of (broker.md 6.1 step 2, 6.4)."""
    cdef int32_t number = group_number(p.shm, request.group, request.group_length,
                                       name_hash(request.group, request.group_length, 0))
    cdef int32_t flags = -1
    if number >= 0 and load_i32_acquire(&p.shm.groups[number].live):
        flags = load_i32_acquire(&p.shm.groups[number].flags)
    puller.group = number
    puller.broker_near = 0
    puller.broker_far = 0
    if flags < 0 and p.light_queues and is_light_name(request.group, request.group_length):
        return HANDLED                 # needs no configuration (store.md 2.11)
    if flags < 0 or not flags & GROUP_CONSUME_ENABLED or (
            flags & GROUP_PULL_ASKS and not decided):
        return HANDLE_FORWARD
    if p.slave_read:
        puller.broker_near = load_i32_acquire(&p.shm.groups[number].broker_id)
        puller.broker_far = load_i32_acquire(&p.shm.groups[number].broker_id_when_slow)
    return HANDLED


cdef int check_topic(Pulls* p, const PullRequest* request) noexcept nogil:
    cdef TopicView topic
    if not topic_find(p.shm, request.topic, request.topic_length,
                      name_hash(request.topic, request.topic_length, 0), &topic):
        if not p.light_queues or not is_light_name(request.topic, request.topic_length):
            return HANDLE_FORWARD
        topic.perm = PERM_READ
        topic.read_queues = 1
    if not topic.perm & PERM_READ or not 0 <= request.queue_id < topic.read_queues:
        return HANDLE_FORWARD
    return HANDLED


cdef int serve_pull(Pulls* p, Connection* c, const PullRequest* request, bint decided) noexcept nogil:
    cdef Wanted wanted
    cdef Puller puller
    cdef int result
    if held_of(c).cold_count and not decided and held_of(c).cold_count >= cold_share(p.held):
        return HANDLE_WAIT                                               # held H8
    puller.asker = request.asker
    puller.since_us = p.transport.steady_us
    puller.waited = False
    if request.group_length < 1 or request.topic_length < 1 or request.offset < 0:
        return HANDLE_FORWARD
    if check_group(p, request, decided, &puller) != HANDLED or check_topic(p, request) != HANDLED:
        return HANDLE_FORWARD
    if not wanted_by(p.wants, request, &wanted):
        return HANDLE_FORWARD
    p.transport.slot.figures[FIGURE_PULLS] += 1
    result = look_up(p, c, &puller, request, &wanted, decided)
    filter_drop(&p.wants.filters, wanted.match.filter)
    if result == HANDLED and request.commits and not p.slave:
        note_offset_commit(p.offset_commits, request.group, request.group_length, request.topic,
                    request.topic_length, request.queue_id, request.commit_offset)
    return result
