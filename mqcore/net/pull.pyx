"""Pulls (remoting.md 4.2.1, broker.md 6.1, 6.2, 6.4; PullMessageProcessor)."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from mqcore.atomics cimport load_i32_acquire, load_i64_acquire
from mqcore.filter.loaded cimport filter_drop
from mqcore.layout cimport (
    FIGURE_PULLS,
    GROUP_CONSUME_ENABLED,
    GROUP_PULL_ASKS,
    TOPIC_LENGTH_MAX,
)
from mqcore.net.forward cimport note_commit
from mqcore.net.held cimport PullPlace, cold_share, hold, hold_cold
from mqcore.net.reply cimport reply_plain
from mqcore.net.scan cimport (
    CODE_FOUND,
    CODE_NOT_FOUND,
    CODE_NOT_SUPPORTED,
    CODE_OFFSET_MOVED,
    CODE_RETRY_IMMEDIATELY,
    CODE_SYSTEM_ERROR,
    Found,
    answer_pull,
    scan,
    scan_trouble,
)
from mqcore.net.server cimport (
    HANDLE_FORWARD,
    HANDLE_WAIT,
    HANDLED,
    NAME_MAX,
    PULL_RANGES_MAX,
    Asker,
    Connection,
    Server,
)
from mqcore.net.wanted cimport Wanted, wanted_given, wanted_known
from mqcore.shm.tables cimport (
    TopicView,
    group_number,
    name_hash,
    queue_find,
    queue_hash,
    topic_find,
)
from mqcore.store.queue.multi_dispatch cimport is_light_name
from mqcore.wire.header cimport (
    PULL_COMMIT_OFFSET,
    PULL_COUNT_MAX,
    PULL_GROUP,
    PULL_QUEUE_ID,
    PULL_QUEUE_OFFSET,
    PULL_SUB_VERSION,
    PULL_SUSPEND_MS,
    PULL_SYS_FLAG,
    PULL_TOPIC,
    Header,
    text_copy,
    text_i64,
)

cdef enum:
    PERM_READ = 4
    PULL_COMMITS = 1                  # sysFlag bits (remoting.md 4.2.1)
    PULL_SUSPENDS = 2
    PULL_HAS_SUBSCRIPTION = 4
    ONEWAY_BIT = 2

cdef struct PullFields:
    uint8_t group[256]
    int32_t group_length
    uint8_t topic[128]
    int32_t topic_length
    int32_t queue_id
    int64_t offset
    int32_t count_max
    int64_t sys_flag
    int64_t commit_offset
    int64_t suspend_ms
    int64_t version                   # subVersion

cdef int read_fields(Server* s, const Header* header, PullFields* f) noexcept nogil:
    cdef int64_t number
    f.group_length = text_copy(&header.fields[PULL_GROUP], f.group, NAME_MAX - 1)
    f.topic_length = text_copy(&header.fields[PULL_TOPIC], f.topic, TOPIC_LENGTH_MAX)
    if f.group_length < 1 or f.topic_length < 1:
        return HANDLE_FORWARD
    if not text_i64(&header.fields[PULL_QUEUE_ID], &number) or number != <int32_t>number:
        return HANDLE_FORWARD
    f.queue_id = <int32_t>number
    if not text_i64(&header.fields[PULL_QUEUE_OFFSET], &f.offset) or f.offset < 0:
        return HANDLE_FORWARD
    if not text_i64(&header.fields[PULL_COUNT_MAX], &number):
        return HANDLE_FORWARD
    f.count_max = <int32_t>max(min(number, PULL_RANGES_MAX), 1)      # none or fewer mean one
    if not text_i64(&header.fields[PULL_SYS_FLAG], &f.sys_flag):
        return HANDLE_FORWARD
    if (not text_i64(&header.fields[PULL_COMMIT_OFFSET], &f.commit_offset)
            or not text_i64(&header.fields[PULL_SUSPEND_MS], &f.suspend_ms)
            or not text_i64(&header.fields[PULL_SUB_VERSION], &f.version)):
        return HANDLE_FORWARD
    return HANDLED


cdef int nothing_there(Server* s, Connection* c, const Asker* asker, const PullFields* f,
                       const PullPlace* place, const Wanted* wanted, const char* remark,
                       int64_t min_offset, int64_t max_offset) noexcept nogil:
    """Hold the pull if it may be, else say that there is nothing (broker.md 6.4, 6.5)."""
    if f.sys_flag & PULL_SUSPENDS and f.suspend_ms > 0:
        if hold(s, c, asker, place, wanted, f.suspend_ms if s.long_polling else s.short_polling_ms):
            return HANDLED
    answer_pull(s, c, asker, CODE_NOT_FOUND, remark, f.offset, min_offset, max_offset, NULL)
    return HANDLED


cdef int out_of_range(Server* s, Connection* c, const Asker* asker, const PullFields* f,
                      int64_t min_offset, int64_t max_offset, bint settled) noexcept nogil:
    """
    21, and the event message: the coordinator's. If it found the offset in range just now, messages
    have been deleted since (settled): then 21 is said here.
    """
    if not settled:
        return HANDLE_FORWARD
    if max_offset == 0:
        answer_pull(s, c, asker, CODE_OFFSET_MOVED, "NO_MESSAGE_IN_QUEUE", 0, min_offset,
                    max_offset, NULL)
    elif f.offset < min_offset:
        answer_pull(s, c, asker, CODE_OFFSET_MOVED, "OFFSET_TOO_SMALL", min_offset, min_offset,
                    max_offset, NULL)
    else:
        answer_pull(s, c, asker, CODE_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", max_offset,
                    min_offset, max_offset, NULL)
    return HANDLED


cdef int look_inside(Server* s, Connection* c, const Asker* asker, const PullFields* f,
                     const PullPlace* place, const Wanted* wanted, int64_t min_offset,
                     int64_t max_offset) noexcept nogil:
    """The offset is in the queue's range: walk, and answer with what is there."""
    cdef Found found
    scan(s, place.queue, f.offset, max_offset, f.count_max, &wanted.match, True, &found)
    if found.count == 0 and found.cold_job:
        if hold_cold(s, c, asker, place, wanted, f.offset + found.examined, found.cold_job):
            return HANDLED
        scan(s, place.queue, f.offset, max_offset, f.count_max, &wanted.match, False, &found)
    if found.count > 0:
        answer_pull(s, c, asker, CODE_FOUND, "FOUND", f.offset + found.examined, min_offset,
                    max_offset, &found)
    elif found.unreadable or found.damaged >= 0:
        reply_plain(s, c, asker.binary, asker.opaque, CODE_SYSTEM_ERROR, scan_trouble(&found))
    elif found.examined == 0:
        answer_pull(s, c, asker, CODE_NOT_FOUND, "OFFSET_FOUND_NULL",
                    (f.offset // s.queues.file_entries + 1) * s.queues.file_entries, min_offset,
                    max_offset, NULL)
    else:
        answer_pull(s, c, asker, CODE_RETRY_IMMEDIATELY,
                    "MESSAGE_WAS_REMOVING" if found.gone else "NO_MATCHED_MESSAGE",
                    f.offset + found.examined, min_offset, max_offset, &found)
    return HANDLED


cdef int look_up(Server* s, Connection* c, const Asker* asker, const PullFields* f,
                 const Wanted* wanted, bint settled) noexcept nogil:
    """A pull that passed all checks (broker.md 6.2)."""
    cdef PullPlace place
    cdef int64_t min_offset = 0, max_offset = 0
    place.topic = f.topic
    place.topic_length = f.topic_length
    place.queue_id = f.queue_id
    place.queue_hash = queue_hash(name_hash(f.topic, f.topic_length, 0), f.queue_id)
    place.queue = queue_find(s.shm, f.topic, f.topic_length, f.queue_id, place.queue_hash)
    place.offset = f.offset
    place.count_max = f.count_max
    if place.queue >= 0:
        max_offset = load_i64_acquire(&s.shm.queues[place.queue].max_offset)
        min_offset = load_i64_acquire(&s.shm.queues[place.queue].min_offset)
    if max_offset == 0:
        if f.offset != 0:
            return out_of_range(s, c, asker, f, min_offset, max_offset, settled)
        return nothing_there(s, c, asker, f, &place, wanted, "NO_MESSAGE_IN_QUEUE", 0, 0)
    if f.offset < min_offset or f.offset > max_offset:
        return out_of_range(s, c, asker, f, min_offset, max_offset, settled)
    if f.offset == max_offset:
        return nothing_there(s, c, asker, f, &place, wanted, "OFFSET_OVERFLOW_ONE", min_offset,
                             max_offset)
    return look_inside(s, c, asker, f, &place, wanted, min_offset, max_offset)


cdef int check_group(Server* s, const PullFields* f, bint settled, Asker* asker) noexcept nogil:
    """The group may consume; the brokers that its pulls are told of (broker.md 6.1 step 2, 6.4)."""
    cdef int32_t number = group_number(s.shm, f.group, f.group_length,
                                       name_hash(f.group, f.group_length, 0))
    cdef int32_t flags = -1
    if number >= 0 and load_i32_acquire(&s.shm.groups[number].live):
        flags = load_i32_acquire(&s.shm.groups[number].flags)
    asker.group = number
    asker.broker_near = 0
    asker.broker_far = 0
    if flags < 0 and s.light_queues and is_light_name(f.group, f.group_length):
        return HANDLED                 # needs no configuration (store.md 2.11)
    if flags < 0 or not flags & GROUP_CONSUME_ENABLED or (
            flags & GROUP_PULL_ASKS and not settled):
        return HANDLE_FORWARD
    if s.slave_read:
        asker.broker_near = load_i32_acquire(&s.shm.groups[number].broker_id)
        asker.broker_far = load_i32_acquire(&s.shm.groups[number].broker_id_when_slow)
    return HANDLED


cdef int check_topic(Server* s, const PullFields* f) noexcept nogil:
    cdef TopicView topic
    if not topic_find(s.shm, f.topic, f.topic_length, name_hash(f.topic, f.topic_length, 0), &topic):
        if not s.light_queues or not is_light_name(f.topic, f.topic_length):
            return HANDLE_FORWARD
        topic.perm = PERM_READ
        topic.read_queues = 1
    if not topic.perm & PERM_READ or not 0 <= f.queue_id < topic.read_queues:
        return HANDLE_FORWARD
    return HANDLED


cdef int handle_pull(Server* s, Connection* c, const Header* header, bint settled) noexcept nogil:
    cdef PullFields f
    cdef Wanted wanted
    cdef Asker asker
    cdef int result
    if c.fast_port:                    # served on the main port only (broker.md 1.1)
        if not header.flag & ONEWAY_BIT:
            reply_plain(s, c, header.binary, header.opaque, CODE_NOT_SUPPORTED,
                        " request type 11 not supported")
        return HANDLED
    if c.cold_count and not settled and c.cold_count >= cold_share(s):
        return HANDLE_WAIT                                               # H8
    asker.binary = header.binary
    asker.opaque = header.opaque
    asker.since_ms = s.steady_ms
    if (read_fields(s, header, &f) != HANDLED or check_group(s, &f, settled, &asker) != HANDLED
            or check_topic(s, &f) != HANDLED):
        return HANDLE_FORWARD
    if f.sys_flag & PULL_HAS_SUBSCRIPTION:
        if not wanted_given(s, header, f.topic, f.topic_length, &wanted):
            return HANDLE_FORWARD
    elif not wanted_known(s, f.group, f.group_length, f.topic, f.topic_length, f.version, &wanted):
        return HANDLE_FORWARD
    s.slot.figures[FIGURE_PULLS] += 1
    result = look_up(s, c, &asker, &f, &wanted, settled)
    filter_drop(&s.filters, wanted.match.filter)
    if result == HANDLED and f.sys_flag & PULL_COMMITS:
        note_commit(s, f.group, f.group_length, f.topic, f.topic_length, f.queue_id, f.commit_offset)
    return result
