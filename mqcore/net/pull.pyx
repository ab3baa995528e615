"""Pulls (remoting.md 4.2.1, broker.md 6; PullMessageProcessor, PullRequestHoldService)."""
from libc.errno cimport ENOENT
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from mqcore.atomics cimport full_fence, load_i32_acquire, load_i64_acquire, store_u8_release
from mqcore.layout cimport (
    CQ_ENTRY_SIZE,
    FIGURE_HELD_PULLS,
    FIGURE_PULLED_MESSAGES,
    FIGURE_PULLS,
    GROUP_CONSUME_ENABLED,
    GROUP_PULL_ASKS,
    SUBSCRIPTION_ALL,
    SUBSCRIPTION_CODE_COUNT_MAX,
    SUBSCRIPTION_OTHER,
    SUBSCRIPTION_TAGS,
    TOPIC_LENGTH_MAX,
    Arrival,
    QueueEntry,
)
from mqcore.net.forward cimport note_commit
from mqcore.net.reply cimport Reply, reply_begin, reply_body, reply_end, reply_number, reply_plain
from mqcore.net.server cimport (
    HANDLE_FORWARD,
    HANDLED,
    HELD_LIFE_MS_MAX,
    NAME_MAX,
    OUT_HIGH_BYTES,
    PULL_RANGES_MAX,
    SCAN_ENTRIES_MAX,
    Connection,
    HeldPull,
    Server,
    connection_find,
)
from mqcore.shm.ring cimport ring_next, ring_release
from mqcore.shm.tables cimport (
    SubscriptionView,
    TopicView,
    group_find,
    name_hash,
    queue_find,
    queue_hash,
    subscription_find,
    topic_find,
)
from mqcore.store.consume_queue cimport QueueItem, entry_decode, queue_read
from mqcore.store.log_view cimport log_at, log_next_use
from mqcore.store.multi_dispatch cimport is_light_name
from mqcore.store.queue_extension cimport (
    ExtensionUnit,
    extension_fresh,
    extension_read,
    is_extension_address,
)
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
    FILTERED_ENTRIES = 800            # what one pull looks at when it filters
    EXPRESSION_MAX = 8192

cdef enum PullCodes:
    CODE_FOUND = 0
    CODE_SYSTEM_ERROR = 1
    CODE_NOT_SUPPORTED = 3
    CODE_NOT_FOUND = 19
    CODE_RETRY_IMMEDIATELY = 20
    CODE_OFFSET_MOVED = 21

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

cdef struct Found:                    # what one look at a queue gave
    int32_t count
    int64_t bytes
    int64_t examined                  # entries looked at
    bint gone                         # a record was deleted already
    bint unreadable                   # a file is there and cannot be read now: nothing is skipped
    const uint8_t* records[1024]
    int32_t sizes[1024]


cdef void held_init(Server* s) noexcept nogil:
    s.held_free = -1                   # memory is touched only when it is needed
    s.held_used = 0
    s.held_count = 0
    s.unborn = 0


cdef bint same_text(const Text* text, const char* word, int32_t length) noexcept nogil:
    return text.length == length and not text.escaped and memcmp(text.start, word, length) == 0


cdef bint read_expression(const Text* expression, SubscriptionView* wanted) noexcept nogil:
    """A tag expression `A || B` of the request into codes; False: not for this reader."""
    cdef uint8_t text[EXPRESSION_MAX]
    cdef int32_t length = text_copy(expression, text, EXPRESSION_MAX) if expression.length >= 0 else 0
    cdef int32_t start = 0, stop, at
    wanted.kind = SUBSCRIPTION_ALL
    wanted.code_count = 0
    if length < 0:
        return False
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
    f.commit_offset = 0
    f.suspend_ms = 0
    if f.sys_flag & PULL_COMMITS and not text_i64(&header.fields[PULL_COMMIT_OFFSET],
                                                   &f.commit_offset):
        return HANDLE_FORWARD
    if f.sys_flag & PULL_SUSPENDS and not text_i64(&header.fields[PULL_SUSPEND_MS], &f.suspend_ms):
        return HANDLE_FORWARD
    return HANDLED


cdef int read_subscription(Server* s, const Header* header, const PullFields* f,
                           SubscriptionView* wanted) noexcept nogil:
    """What is wanted, from the request or from the heartbeat's copy (broker.md 6.1, 5 and 6)."""
    cdef const Text* kind = &header.fields[PULL_EXPRESSION_TYPE]
    cdef int64_t version
    if f.sys_flag & PULL_HAS_SUBSCRIPTION:
        if kind.length > 0 and not same_text(kind, "TAG", 3):
            return HANDLE_FORWARD
        return (HANDLED if read_expression(&header.fields[PULL_SUBSCRIPTION], wanted)
                else HANDLE_FORWARD)
    if not subscription_find(s.shm, f.group, f.group_length, f.topic, f.topic_length, wanted):
        return HANDLE_FORWARD
    if wanted.kind == SUBSCRIPTION_OTHER:
        return HANDLE_FORWARD
    if not text_i64(&header.fields[PULL_SUB_VERSION], &version) or wanted.version < version:
        return HANDLE_FORWARD
    return HANDLED


cdef inline bint code_wanted(int64_t code, const int32_t* codes, int32_t count) noexcept nogil:
    cdef int32_t i
    for i in range(count):
        if codes[i] == <int32_t>code:
            return True
    return False


cdef inline bint entry_wanted(Server* s, int32_t queue, int64_t code, const int32_t* codes,
                              int32_t count) noexcept nogil:
    """Whether the entry's tag code, or the one behind its address, is wanted (store.md 10, step 4)."""
    cdef ExtensionUnit unit
    if is_extension_address(code):
        if not extension_read(&s.extension, queue, code, &unit):
            return True                # it has a tag that is not known: the client looks at it
        code = unit.tag_code
    return code_wanted(code, codes, count)


cdef inline bint batch_is_full(Server* s, const Found* found, int32_t size, bint on_disk,
                               int32_t count_max) noexcept nogil:
    """Never before the first message (store.md 10, step 3)."""
    if found.count == 0:
        return False
    if found.count >= count_max or found.count >= PULL_RANGES_MAX:
        return True
    if on_disk:
        return found.bytes + size > s.disk_bytes_max or found.count >= s.disk_count_max
    return found.bytes + size > s.memory_bytes_max or found.count >= s.memory_count_max


cdef void scan(Server* s, int32_t queue, int64_t offset, int64_t end, int32_t count_max, int32_t kind,
               const int32_t* codes, int32_t code_count, Found* found) noexcept nogil:
    """Walk the queue from offset on, up to `end`, until the batch is full or enough was looked at."""
    cdef int64_t log_end = load_i64_acquire(&s.shm.log.published)
    cdef int64_t skip_until = 0
    cdef int32_t wanted = count_max if kind == SUBSCRIPTION_ALL else FILTERED_ENTRIES
    cdef int32_t got, i
    cdef QueueItem item
    cdef const uint8_t* record
    cdef bint on_disk
    found.count = 0
    found.bytes = 0
    found.examined = 0
    found.gone = False
    found.unreadable = False
    log_next_use(&s.log)
    extension_fresh(&s.extension)
    if kind == SUBSCRIPTION_ALL and wanted > max(s.memory_count_max, s.disk_count_max):
        wanted = max(s.memory_count_max, s.disk_count_max)
    wanted = <int32_t>min(<int64_t>min(max(wanted, 1), SCAN_ENTRIES_MAX), end - offset)
    got = queue_read(&s.queues, queue, offset, wanted, s.entries)
    if got < 0:
        found.unreadable = s.queues.failure != ENOENT
    for i in range(got):
        item = entry_decode(s.entries + i * CQ_ENTRY_SIZE)
        if item.log_position < skip_until:
            found.examined += 1
            continue
        on_disk = log_end - item.log_position > s.memory_bytes
        if batch_is_full(s, found, item.record_size, on_disk, count_max):
            return
        if kind == SUBSCRIPTION_TAGS and not entry_wanted(s, queue, item.tag_code, codes,
                                                          code_count):
            found.examined += 1
            continue
        record = log_at(&s.log, item.log_position, item.record_size, log_end)
        if record == NULL:
            if item.log_position >= load_i64_acquire(&s.shm.log.first):
                # its place in the view is in use by this pull, or the segment cannot be mapped now
                found.unreadable = True
                return
            found.gone = True
            found.examined += 1
            skip_until = (item.log_position // s.log.segment_size + 1) * s.log.segment_size
            continue
        found.records[found.count] = record
        found.sizes[found.count] = item.record_size
        found.count += 1
        found.bytes += item.record_size
        found.examined += 1
        skip_until = 0


cdef void answer_pull(Server* s, Connection* c, bint binary, int32_t opaque, int32_t code,
                      const char* remark, int64_t next_offset, int64_t min_offset, int64_t max_offset,
                      const Found* found) noexcept nogil:
    cdef Reply r
    cdef int64_t bytes = found.bytes if found != NULL else 0
    cdef uint8_t* body
    cdef int32_t i
    if not reply_begin(s, c, &r, binary, opaque, code, remark, bytes + 256):
        return
    reply_number(&r, "suggestWhichBrokerId", 20, 0)
    reply_number(&r, "nextBeginOffset", 15, next_offset)
    reply_number(&r, "minOffset", 9, min_offset)
    reply_number(&r, "maxOffset", 9, max_offset)
    body = reply_body(&r, <int32_t>bytes)
    if found != NULL:
        for i in range(found.count):
            memcpy(body, found.records[i], found.sizes[i])
            body += found.sizes[i]
        s.slot.figures[FIGURE_PULLED_MESSAGES] += found.count
    reply_end(s, &r, <int32_t>bytes)


cdef HeldPull* hold(Server* s, Connection* c, const Header* header, const PullFields* f,
                    int32_t queue, uint64_t hash, const SubscriptionView* wanted) noexcept nogil:
    """Keep the pull (H1); NULL: no room, it is answered at once."""
    cdef HeldPull* held
    cdef int32_t number = s.held_free if s.held_free >= 0 else s.held_used
    if number == s.held_capacity:
        return NULL
    held = &s.held[number]
    held.codes = NULL
    if wanted.code_count > 0:
        held.codes = <int32_t*>malloc(wanted.code_count * sizeof(int32_t))
        if held.codes == NULL:
            return NULL
        memcpy(held.codes, wanted.codes, wanted.code_count * sizeof(int32_t))
    if number == s.held_used:
        s.held_used += 1
    else:
        s.held_free = held.next
    s.held_count += 1
    s.slot.figures[FIGURE_HELD_PULLS] = s.held_count
    held.connection = c.id
    held.opaque = header.opaque
    held.binary = header.binary
    held.queue = queue
    held.queue_hash = hash
    held.queue_id = f.queue_id
    held.topic_length = <uint8_t>f.topic_length
    memcpy(held.topic, f.topic, f.topic_length)
    held.count_max = f.count_max
    held.offset = f.offset
    held.cursor = f.offset
    held.deadline_ms = s.steady_ms + min(
        max(f.suspend_ms if s.long_polling else s.short_polling_ms, 0), HELD_LIFE_MS_MAX)
    held.kind = wanted.kind
    held.code_count = wanted.code_count
    if queue >= 0:
        held.next = s.held_of_queue[queue] - 1
        s.held_of_queue[queue] = number + 1
        store_u8_release(&s.shm.interest[<int64_t>s.index * s.shm.head.queue_capacity + queue], 1)
    else:
        held.next = s.unborn - 1
        s.unborn = number + 1
    return held


cdef void let_go(Server* s, int32_t number) noexcept nogil:
    """Give a held pull's place back; it is in no list any more."""
    free(s.held[number].codes)
    s.held[number].codes = NULL
    s.held[number].next = s.held_free
    s.held_free = number
    s.held_count -= 1
    s.slot.figures[FIGURE_HELD_PULLS] = s.held_count


cdef bint settle_held(Server* s, HeldPull* held) noexcept nogil:
    """Answer a held pull if there is something for it or its time is over; True: it is done."""
    cdef Connection* c = connection_find(s, held.connection)
    cdef QueueEntry* queue
    cdef Found found
    cdef int64_t end
    cdef bint late = s.steady_ms >= held.deadline_ms
    if c == NULL:
        return True
    if held.queue < 0:
        if late:
            answer_pull(s, c, held.binary, held.opaque, CODE_NOT_FOUND, "NO_MESSAGE_IN_QUEUE",
                        held.offset, 0, 0, NULL)
        return late
    queue = &s.shm.queues[held.queue]
    end = load_i64_acquire(&queue.max_offset)
    if end > held.cursor and c.output_end - c.output_start < OUT_HIGH_BYTES:
        while held.cursor < end:
            scan(s, held.queue, held.cursor, end, held.count_max, held.kind, held.codes,
                 held.code_count, &found)
            held.cursor += found.examined
            if found.count > 0:
                answer_pull(s, c, held.binary, held.opaque, CODE_FOUND, "FOUND", held.cursor,
                            load_i64_acquire(&queue.min_offset), end, &found)
                return True
            if found.examined == 0:
                break
    if not late:
        return False
    if held.cursor > held.offset:
        answer_pull(s, c, held.binary, held.opaque, CODE_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE",
                    held.cursor, load_i64_acquire(&queue.min_offset), end, NULL)
    else:
        answer_pull(s, c, held.binary, held.opaque, CODE_NOT_FOUND, "OFFSET_OVERFLOW_ONE",
                    held.offset, load_i64_acquire(&queue.min_offset), end, NULL)
    return True


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
            held.next = s.held_of_queue[queue] - 1
            s.held_of_queue[queue] = number + 1
            store_u8_release(
                &s.shm.interest[<int64_t>s.index * s.shm.head.queue_capacity + queue], 1)
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


cdef int nothing_there(Server* s, Connection* c, const Header* header, const PullFields* f,
                       int32_t queue, uint64_t hash, const SubscriptionView* wanted,
                       const char* remark, int64_t min_offset, int64_t max_offset) noexcept nogil:
    """Hold the pull if it may be, else say that there is nothing (broker.md 6.4, 6.5)."""
    cdef HeldPull* held
    if f.sys_flag & PULL_SUSPENDS and f.suspend_ms > 0:
        held = hold(s, c, header, f, queue, hash, wanted)
        if held != NULL:
            full_fence()                                                 # H2
            if queue >= 0:
                if load_i64_acquire(&s.shm.queues[queue].max_offset) > f.offset:
                    settle_queue(s, queue)
            elif queue_find(s.shm, f.topic, f.topic_length, f.queue_id, hash) >= 0:
                adopt_unborn(s)
            return HANDLED
    answer_pull(s, c, header.binary, header.opaque, CODE_NOT_FOUND, remark, f.offset, min_offset,
                max_offset, NULL)
    return HANDLED


cdef int out_of_range(Server* s, Connection* c, const Header* header, const PullFields* f,
                      int64_t min_offset, int64_t max_offset, bint settled) noexcept nogil:
    """
    21, and the event message: the coordinator's. If it found the offset in range just now, messages
    have been deleted since (settled): then 21 is said here.
    """
    if not settled:
        return HANDLE_FORWARD
    if max_offset == 0:
        answer_pull(s, c, header.binary, header.opaque, CODE_OFFSET_MOVED, "NO_MESSAGE_IN_QUEUE", 0,
                    min_offset, max_offset, NULL)
    elif f.offset < min_offset:
        answer_pull(s, c, header.binary, header.opaque, CODE_OFFSET_MOVED, "OFFSET_TOO_SMALL",
                    min_offset, min_offset, max_offset, NULL)
    else:
        answer_pull(s, c, header.binary, header.opaque, CODE_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY",
                    max_offset, min_offset, max_offset, NULL)
    return HANDLED


cdef int look_up(Server* s, Connection* c, const Header* header, const PullFields* f,
                 const SubscriptionView* wanted, bint settled) noexcept nogil:
    """A pull that passed all checks (broker.md 6.2)."""
    cdef uint64_t hash = queue_hash(name_hash(f.topic, f.topic_length, 0), f.queue_id)
    cdef int32_t queue = queue_find(s.shm, f.topic, f.topic_length, f.queue_id, hash)
    cdef int64_t min_offset = 0, max_offset = 0
    cdef Found found
    if queue >= 0:
        max_offset = load_i64_acquire(&s.shm.queues[queue].max_offset)
        min_offset = load_i64_acquire(&s.shm.queues[queue].min_offset)
    if max_offset == 0:
        if f.offset != 0:
            return out_of_range(s, c, header, f, min_offset, max_offset, settled)
        return nothing_there(s, c, header, f, queue, hash, wanted, "NO_MESSAGE_IN_QUEUE", 0, 0)
    if f.offset < min_offset or f.offset > max_offset:
        return out_of_range(s, c, header, f, min_offset, max_offset, settled)
    if f.offset == max_offset:
        return nothing_there(s, c, header, f, queue, hash, wanted, "OFFSET_OVERFLOW_ONE", min_offset,
                             max_offset)
    scan(s, queue, f.offset, max_offset, f.count_max, wanted.kind, wanted.codes, wanted.code_count,
         &found)
    if found.count > 0:
        answer_pull(s, c, header.binary, header.opaque, CODE_FOUND, "FOUND",
                    f.offset + found.examined, min_offset, max_offset, &found)
    elif found.unreadable:
        reply_plain(s, c, header.binary, header.opaque, CODE_SYSTEM_ERROR,
                    "the store cannot be read now: a file of it cannot be opened or mapped")
    elif found.examined == 0:
        answer_pull(s, c, header.binary, header.opaque, CODE_NOT_FOUND, "OFFSET_FOUND_NULL",
                    (f.offset // s.queues.file_entries + 1) * s.queues.file_entries, min_offset,
                    max_offset, NULL)
    else:
        answer_pull(s, c, header.binary, header.opaque, CODE_RETRY_IMMEDIATELY,
                    "MESSAGE_WAS_REMOVING" if found.gone else "NO_MATCHED_MESSAGE",
                    f.offset + found.examined, min_offset, max_offset, NULL)
    return HANDLED


cdef int handle_pull(Server* s, Connection* c, const Header* header, bint settled) noexcept nogil:
    cdef PullFields f
    cdef TopicView topic
    cdef SubscriptionView wanted
    cdef int32_t group
    cdef int result
    if c.fast_port:                    # served on the main port only (broker.md 1.1)
        if not header.flag & ONEWAY_BIT:
            reply_plain(s, c, header.binary, header.opaque, CODE_NOT_SUPPORTED,
                        " request type 11 not supported")
        return HANDLED
    if read_fields(s, header, &f) != HANDLED:
        return HANDLE_FORWARD
    group = group_find(s.shm, f.group, f.group_length)
    if group < 0 and s.light_queues and is_light_name(f.group, f.group_length):
        group = GROUP_CONSUME_ENABLED                        # needs no configuration (store.md 2.11)
    if group < 0 or not group & GROUP_CONSUME_ENABLED or (group & GROUP_PULL_ASKS and not settled):
        return HANDLE_FORWARD
    if not topic_find(s.shm, f.topic, f.topic_length, name_hash(f.topic, f.topic_length, 0), &topic):
        if not s.light_queues or not is_light_name(f.topic, f.topic_length):
            return HANDLE_FORWARD
        topic.perm = PERM_READ
        topic.read_queues = 1
    if not topic.perm & PERM_READ or not 0 <= f.queue_id < topic.read_queues:
        return HANDLE_FORWARD
    if read_subscription(s, header, &f, &wanted) != HANDLED:
        return HANDLE_FORWARD
    s.slot.figures[FIGURE_PULLS] += 1
    result = look_up(s, c, header, &f, &wanted, settled)
    if result == HANDLED and f.sys_flag & PULL_COMMITS:
        note_commit(s, f.group, f.group_length, f.topic, f.topic_length, f.queue_id, f.commit_offset)
    return result
