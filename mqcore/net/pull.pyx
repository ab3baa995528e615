"""Pulls (remoting.md 4.2.1, broker.md 6.1, 6.2, 6.4; PullMessageProcessor)."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

from mqcore.atomics cimport load_i32_acquire, load_i64_acquire
from mqcore.filter.loaded cimport LoadedFilter, filter_drop, filter_take
from mqcore.layout cimport (
    FIGURE_PULLS,
    FILTER_ALL,
    FILTER_CODES,
    FILTER_PROGRAM,
    GROUP_CONSUME_ENABLED,
    GROUP_PULL_ASKS,
    SUBSCRIPTION_ALL,
    SUBSCRIPTION_CODES,
    SUBSCRIPTION_CODE_COUNT_MAX,
    SUBSCRIPTION_OTHER,
    SUBSCRIPTION_TAGS,
    TOPIC_LENGTH_MAX,
)
from mqcore.net.forward cimport note_commit
from mqcore.net.held cimport PullPlace, hold, hold_cold
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
)
from mqcore.net.server cimport (
    HANDLE_FORWARD,
    HANDLED,
    NAME_MAX,
    PULL_RANGES_MAX,
    Asker,
    Connection,
    Match,
    Server,
)
from mqcore.shm.filters cimport FilterView, filter_codes_place, filter_of_request
from mqcore.shm.tables cimport (
    SubscriptionView,
    TopicView,
    group_find,
    group_number,
    name_hash,
    queue_find,
    queue_hash,
    subscription_find,
    topic_find,
)
from mqcore.store.multi_dispatch cimport is_light_name
from mqcore.store.record cimport java_hash
from mqcore.wire.header cimport (
    PULL_COMMIT_OFFSET,
    PULL_COUNT_MAX,
    PULL_EXPRESSION_TYPE,
    PULL_GROUP,
    PULL_QUEUE_ID,
    PULL_QUEUE_OFFSET,
    PULL_SUB_VERSION,
    PULL_SUBSCRIPTION,
    PULL_SUSPEND_MS,
    PULL_SYS_FLAG,
    PULL_TOPIC,
    Header,
    Text,
    text_copy,
    text_i64,
)

cdef enum:
    PERM_READ = 4
    PULL_COMMITS = 1                  # sysFlag bits (remoting.md 4.2.1)
    PULL_SUSPENDS = 2
    PULL_HAS_SUBSCRIPTION = 4
    ONEWAY_BIT = 2
    REQUEST_TEXT_MAX = 40000          # type and expression; also in broker/pull_filters.py
    TYPE_LENGTH_MAX = 64

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

cdef struct Wanted:                   # what the pull selects by, while it is looked at
    Match match
    SubscriptionView view             # whose codes match.codes are


cdef bint same_text(const Text* text, const char* word, int32_t length) noexcept nogil:
    return text.length == length and not text.escaped and memcmp(text.start, word, length) == 0


cdef bint read_tags(const uint8_t* text, int32_t length, SubscriptionView* wanted) noexcept nogil:
    """A tag expression `A || B` into codes; False: there are too many, or none."""
    cdef int32_t start = 0, stop, at
    wanted.kind = SUBSCRIPTION_ALL
    wanted.code_count = 0
    if length == 0 or (length == 1 and text[0] == 42):
        return True
    at = 0
    while at <= length:
        if at < length and not (text[at] == 124 and at + 1 < length and text[at + 1] == 124):
            at += 1
            continue
        stop = at
        while start < stop and text[start] <= 32:
            start += 1
        while stop > start and text[stop - 1] <= 32:
            stop -= 1
        if stop > start:
            if wanted.code_count == SUBSCRIPTION_CODE_COUNT_MAX:
                return False
            wanted.codes[wanted.code_count] = java_hash(text + start, stop - start, 0)
            wanted.code_count += 1
        at += 2
        start = at
    if wanted.code_count == 0:
        return False
    wanted.kind = SUBSCRIPTION_TAGS
    return True


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


cdef bint take_filter(Server* s, int32_t place, int32_t kind, int64_t version,
                      Wanted* wanted) noexcept nogil:
    """The filter of a subscription, of that version or a newer one."""
    cdef FilterView view
    cdef LoadedFilter* filter = filter_take(&s.filters, s.shm, place, &view)
    if filter == NULL:
        return False
    if filter.kind != kind or (kind == FILTER_PROGRAM and view.client_version < version):
        filter_drop(&s.filters, filter)
        return False
    wanted.match.filter = filter
    return True


cdef bint take_request_filter(Server* s, const uint8_t* text, int32_t length,
                              Wanted* wanted) noexcept nogil:
    """The filter that the coordinator made of an expression that came with a pull."""
    cdef FilterView view
    cdef LoadedFilter* filter = NULL
    if filter_of_request(s.shm, text, length, &view):
        filter = filter_take(&s.filters, s.shm, view.place, &view)
    if filter == NULL:
        return False
    wanted.match.filter = filter
    if filter.kind == FILTER_CODES:
        wanted.match.kind = SUBSCRIPTION_CODES
    elif filter.kind == FILTER_ALL:
        wanted.match.kind = SUBSCRIPTION_ALL
    else:
        wanted.match.kind = SUBSCRIPTION_OTHER
    return True


cdef int read_given(Server* s, const Header* header, Wanted* wanted) noexcept nogil:
    """The subscription that the pull brings (broker.md 6.1, 5)."""
    cdef const Text* kind = &header.fields[PULL_EXPRESSION_TYPE]
    cdef const Text* expression = &header.fields[PULL_SUBSCRIPTION]
    cdef uint8_t text[REQUEST_TEXT_MAX]
    cdef int32_t start = 3, length = 0
    cdef bint tags = kind.length <= 0 or same_text(kind, "TAG", 3)
    if tags:
        memcpy(text, <const char*>"TAG", 3)
    else:
        start = text_copy(kind, text, TYPE_LENGTH_MAX)
        if start < 0 or not s.filters_enabled:
            return HANDLE_FORWARD
    text[start] = 0
    start += 1
    if expression.length > 0:
        length = text_copy(expression, text + start, REQUEST_TEXT_MAX - start)
        if length < 0:
            return HANDLE_FORWARD
    if tags and read_tags(text + start, length, &wanted.view):
        wanted.match.kind = wanted.view.kind
        wanted.match.code_count = wanted.view.code_count
        return HANDLED
    return HANDLED if take_request_filter(s, text, start + length, wanted) else HANDLE_FORWARD


cdef int read_known(Server* s, const PullFields* f, Wanted* wanted) noexcept nogil:
    """The subscription of the group's heartbeats (broker.md 6.1, 6)."""
    cdef SubscriptionView* view = &wanted.view
    if not subscription_find(s.shm, f.group, f.group_length, f.topic, f.topic_length, view):
        return HANDLE_FORWARD
    if view.version < f.version:
        return HANDLE_FORWARD
    wanted.match.kind = view.kind
    if view.kind == SUBSCRIPTION_OTHER:
        if not s.filters_enabled or not take_filter(s, view.number, FILTER_PROGRAM, f.version,
                                                    wanted):
            return HANDLE_FORWARD
    elif view.kind == SUBSCRIPTION_CODES:
        if not take_filter(s, filter_codes_place(s.shm, view.number), FILTER_CODES, f.version,
                           wanted):
            return HANDLE_FORWARD
    else:
        wanted.match.code_count = view.code_count
    return HANDLED


cdef int read_subscription(Server* s, const Header* header, const PullFields* f,
                           Wanted* wanted) noexcept nogil:
    """What is wanted; the caller gives match.filter back."""
    wanted.match.filter = NULL
    wanted.match.code_count = 0
    wanted.match.codes = wanted.view.codes
    wanted.match.by_origin = (s.filter_retry and f.topic_length > 7
                              and memcmp(f.topic, <const char*>"%RETRY%", 7) == 0)
    if f.sys_flag & PULL_HAS_SUBSCRIPTION:
        return read_given(s, header, wanted)
    return read_known(s, f, wanted)


cdef int nothing_there(Server* s, Connection* c, const Asker* asker, const PullFields* f,
                       const PullPlace* place, const Match* match, const char* remark,
                       int64_t min_offset, int64_t max_offset) noexcept nogil:
    """Hold the pull if it may be, else say that there is nothing (broker.md 6.4, 6.5)."""
    if f.sys_flag & PULL_SUSPENDS and f.suspend_ms > 0:
        if hold(s, c, asker, place, match, f.suspend_ms if s.long_polling else s.short_polling_ms):
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
                     const PullPlace* place, const Match* match, int64_t min_offset,
                     int64_t max_offset) noexcept nogil:
    """The offset is in the queue's range: walk, and answer with what is there."""
    cdef Found found
    scan(s, place.queue, f.offset, max_offset, f.count_max, match, True, &found)
    if found.count == 0 and found.cold_job:
        if hold_cold(s, c, asker, place, match, f.offset + found.examined, found.cold_job):
            return HANDLED
        scan(s, place.queue, f.offset, max_offset, f.count_max, match, False, &found)
    if found.count > 0:
        answer_pull(s, c, asker, CODE_FOUND, "FOUND", f.offset + found.examined, min_offset,
                    max_offset, &found)
    elif found.unreadable:
        reply_plain(s, c, asker.binary, asker.opaque, CODE_SYSTEM_ERROR,
                    "the store cannot be read now: a file of it cannot be opened or mapped")
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
                 const Match* match, bint settled) noexcept nogil:
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
        return nothing_there(s, c, asker, f, &place, match, "NO_MESSAGE_IN_QUEUE", 0, 0)
    if f.offset < min_offset or f.offset > max_offset:
        return out_of_range(s, c, asker, f, min_offset, max_offset, settled)
    if f.offset == max_offset:
        return nothing_there(s, c, asker, f, &place, match, "OFFSET_OVERFLOW_ONE", min_offset,
                             max_offset)
    return look_inside(s, c, asker, f, &place, match, min_offset, max_offset)


cdef int check_group(Server* s, const PullFields* f, bint settled, Asker* asker) noexcept nogil:
    """The group may consume; the brokers that its pulls are told of (broker.md 6.1, 2 and 6.4)."""
    cdef int32_t number
    cdef int32_t flags = group_find(s.shm, f.group, f.group_length)
    asker.broker_near = 0
    asker.broker_far = 0
    if flags < 0 and s.light_queues and is_light_name(f.group, f.group_length):
        return HANDLED                 # needs no configuration (store.md 2.11)
    if flags < 0 or not flags & GROUP_CONSUME_ENABLED or (
            flags & GROUP_PULL_ASKS and not settled):
        return HANDLE_FORWARD
    if s.slave_read:
        number = group_number(s.shm, f.group, f.group_length,
                              name_hash(f.group, f.group_length, 0))
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
    asker.binary = header.binary
    asker.opaque = header.opaque
    if (read_fields(s, header, &f) != HANDLED or check_group(s, &f, settled, &asker) != HANDLED
            or check_topic(s, &f) != HANDLED):
        return HANDLE_FORWARD
    if read_subscription(s, header, &f, &wanted) != HANDLED:
        return HANDLE_FORWARD
    s.slot.figures[FIGURE_PULLS] += 1
    result = look_up(s, c, &asker, &f, &wanted.match, settled)
    filter_drop(&s.filters, wanted.match.filter)
    if result == HANDLED and f.sys_flag & PULL_COMMITS:
        note_commit(s, f.group, f.group_length, f.topic, f.topic_length, f.queue_id, f.commit_offset)
    return result
