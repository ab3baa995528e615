"""Walks a consume queue for a pull (broker.md 6.2, 6.3; DefaultMessageStore, MessageFilter)."""
from libc.errno cimport ENOENT
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp

from mqcore.atomics cimport load_i32_acquire, load_i64_acquire
from mqcore.clock cimport steady_us
from mqcore.endian cimport load_i32, load_i64
from mqcore.filter.bitmap cimport bitmap_has
from mqcore.filter.loaded cimport (
    LoadedFilter,
    filter_drop,
    filter_has_code,
    filter_passes,
    filter_take,
)
from mqcore.layout cimport (
    CACHE_LINE,
    CQ_ENTRY_SIZE,
    FIGURE_PULLED_MESSAGES,
    RECORD_LOG_POSITION,
    SUBSCRIPTION_ALL,
    SUBSCRIPTION_CODES,
    SUBSCRIPTION_OTHER,
    SUBSCRIPTION_TAGS,
    TRACE_HELD,
    TRACE_PULL,
    PullCount,
    QueueEntry,
    TraceEntry,
)
from mqcore.net.requests cimport Front, PullAnswer
from mqcore.net.serving.cold cimport (
    COLD_BEHIND_BYTES,
    COLD_READ_BYTES,
    cold_ask,
    cold_read,
    cold_resident,
)
from mqcore.net.serving.peer cimport peer_of
from mqcore.net.transport.transport cimport OUT_HIGH_BYTES, wall_of_turn
from mqcore.net.transport.work cimport DEFERRED_SLICE_WORK, TURN_WORK
from mqcore.shm.filters cimport FilterView
from mqcore.shm.latency cimport latency_add, latency_add_ms
from mqcore.shm.pull_counts cimport pull_count_add, pull_count_last, pull_count_place
from mqcore.shm.tables cimport name_hash, subscription_number
from mqcore.shm.trace cimport trace_add
from mqcore.store.log.view cimport LOG_PATH_MAX, log_at, log_next_use, log_record
from mqcore.store.queue.consume_queue cimport QueueItem, entry_decode, queue_file_path, queue_read
from mqcore.store.queue.extension cimport (
    ExtensionUnit,
    extension_fresh,
    extension_read,
    is_extension_address,
)
from mqcore.store.queue.open_files cimport open_file_if_open
from mqcore.store.record cimport (
    PARSE_RECORD,
    PropertyItem,
    RecordView,
    item_is,
    property_next,
    record_parse,
    record_store_time,
)

cdef extern from *:
    """
    #define mq_bring(address) __builtin_prefetch(address)
    """
    void mq_bring(const void* address) noexcept nogil

cdef enum:
    SCAN_LEAST = 800                  # entries that one pull looks at, if it does not ask for more
    RETRY_PREFIX_LENGTH = 7           # %RETRY%
    DAMAGE_REMARK_MAX = 128
    LOOK_MOST_WORK = 500_000          # of one look at a queue (N10) ...
    LOOK_LEAST_WORK = 50_000          # ... in a long turn
    ENTRY_WORK = 8                    # of a queue entry
    RECORD_WORK = 100                 # of a record that is parsed
    COLD_BEHIND_ENTRIES = 65536       # queue entries nearer to the end are in memory, unasked
    BROUGHT_AHEAD = 3                 # entries before its check a record is asked of memory ...
    BROUGHT_MOST_BYTES = 512          # ... with this much at most


cdef inline bint code_wanted(int64_t code, const int32_t* codes, int32_t count) noexcept nogil:
    cdef int32_t i
    for i in range(count):
        if codes[i] == <int32_t>code:
            return True
    return False


cdef bint unit_wanted(StoreReader* reader, int32_t queue, int64_t address,
                      const Match* match) noexcept nogil:
    """What the unit behind an extension address says (store.md 3.6); without one: yes."""
    cdef ExtensionUnit unit
    cdef const LoadedFilter* filter = match.filter
    if not extension_read(&reader.extension, queue, address, &unit):
        return True                    # the client, or the expression, looks at the message itself
    if match.kind != SUBSCRIPTION_OTHER:
        return entry_wanted(reader, queue, unit.tag_code, match)
    if (unit.bits_length == 0 or unit.bits_length * 8 != filter.bloom_bit_count
            or unit.store_time_ms <= filter.bits_from_ms):
        return True                    # made before the filter, or for another size (broker.md 6.3)
    return bitmap_has(unit.bits, filter.bloom_positions, filter.bloom_position_count)


cdef bint entry_wanted(StoreReader* reader, int32_t queue, int64_t code,
                       const Match* match) noexcept nogil:
    """What a queue entry alone says, by its tag code or its unit's bits."""
    if match.kind == SUBSCRIPTION_ALL:
        return True
    if is_extension_address(code):
        return unit_wanted(reader, queue, code, match)
    if match.kind == SUBSCRIPTION_TAGS:
        return code_wanted(code, match.codes, match.code_count)
    if match.kind == SUBSCRIPTION_CODES:
        return filter_has_code(match.filter, <int32_t>code)
    return True


cdef bint origin_passes(StoreReader* reader, int32_t queue, const RecordView* view) noexcept nogil:
    """A message of %RETRY%group: by the group's filter for its first topic (broker.md 6.3)."""
    cdef const QueueEntry* q = &reader.shm.queues[queue]
    cdef const uint8_t* group = q.topic + RETRY_PREFIX_LENGTH
    cdef int32_t group_length = q.topic_length - RETRY_PREFIX_LENGTH
    cdef const uint8_t* at = view.properties
    cdef const uint8_t* topic = NULL
    cdef int32_t topic_length = 0, number, life
    cdef uint64_t hash
    cdef PropertyItem item
    cdef FilterView found
    cdef LoadedFilter* filter
    cdef bint passes
    while property_next(&at, view.properties + view.properties_length, &item):
        if item_is(&item, "RETRY_TOPIC"):
            topic = item.value
            topic_length = item.value_length
    if topic == NULL:
        return True
    hash = name_hash(topic, topic_length, name_hash(group, group_length, 0))
    number = subscription_number(reader.shm, group, group_length, topic, topic_length, hash)
    if number < 0:
        return True
    life = load_i32_acquire(&reader.shm.subscriptions[number].life)
    filter = filter_take(&reader.wants.filters, reader.shm, number, &found)
    if filter == NULL:
        return True
    passes = (life != load_i32_acquire(&reader.shm.subscriptions[number].life)              # tables T4
              or number != subscription_number(reader.shm, group, group_length, topic, topic_length, hash)
              or filter_passes(filter, view.properties, view.properties_length,
                               &reader.transport.work))
    filter_drop(&reader.wants.filters, filter)
    return passes


cdef bint record_wanted(StoreReader* reader, int32_t queue, const uint8_t* record, int32_t size,
                        const Match* match) noexcept nogil:
    """What a message's properties say."""
    cdef RecordView view
    reader.transport.work += RECORD_WORK
    if record_parse(record, size, &view) != PARSE_RECORD:
        return False
    if match.by_origin:
        return origin_passes(reader, queue, &view)
    return filter_passes(match.filter, view.properties, view.properties_length, &reader.transport.work)


cdef inline bint batch_is_full(StoreReader* reader, const Found* found, int32_t size, bint on_disk,
                               const Portion* portion) noexcept nogil:
    """Never before the first message (store.md 10 step 3)."""
    if found.count == 0:
        return False
    if found.count >= portion.count_max:
        return True
    if portion.replays and reader.transport.out_high == OUT_HIGH_BYTES:
        return found.bytes + size > reader.replay_bytes_max or found.count >= reader.replay_count_max
    if on_disk:
        return found.bytes + size > reader.disk_bytes_max or found.count >= reader.disk_count_max
    return found.bytes + size > reader.memory_bytes_max or found.count >= reader.memory_count_max


cdef int64_t ask_for_log(StoreReader* reader, int64_t position) noexcept nogil:
    cdef int64_t base = position // reader.log.segment_size * reader.log.segment_size
    return cold_ask(reader.cold_reader, reader.log.folders, base, position - base,
                    min(<int64_t>COLD_READ_BYTES, base + reader.log.segment_size - position))


cdef int32_t entries_in_memory(StoreReader* reader, int32_t queue, int64_t offset, int32_t count,
                               Found* found) noexcept nogil:
    """Entries of the open file into reader.entries; -1: found.cold_job brings them, -2: just read."""
    cdef char path[LOG_PATH_MAX]
    cdef int64_t first = offset // reader.queues.file_entries * reader.queues.file_entries
    cdef int64_t length = min(<int64_t>count, first + reader.queues.file_entries - offset)
    cdef int64_t got
    # consume_queue C4
    cdef int fd = open_file_if_open(&reader.queues.open, queue, first * CQ_ENTRY_SIZE)
    if fd < 0:
        return -2
    got = cold_read(fd, reader.entries, length * CQ_ENTRY_SIZE,
                    (offset - first) * CQ_ENTRY_SIZE)
    if got >= 0:
        return <int32_t>(got // CQ_ENTRY_SIZE)
    if got == -1:
        queue_file_path(path, reader.queues.open.folder, &reader.shm.queues[queue], first)
        found.cold_job = cold_ask(reader.cold_reader, path, -1, (offset - first) * CQ_ENTRY_SIZE,
                                  <int64_t>COLD_READ_BYTES)
    return -1 if found.cold_job else -2


cdef int32_t read_entries(StoreReader* reader, int32_t queue, int64_t offset, int32_t count, bint patient,
                          Found* found) noexcept nogil:
    """Up to `count` entries into reader.entries; fewer at the file's end, or with found.cold_job."""
    cdef int32_t got = -2
    if patient:
        got = entries_in_memory(reader, queue, offset, count, found)
        if got == -1:
            return 0
    if got < 0:
        got = queue_read(&reader.queues, queue, offset, count, reader.entries)
        if got < 0 and found.examined == 0:
            # a file of what has expired since the pull's check is none that is missing
            found.unreadable = reader.queues.open.failure != ENOENT or (
                load_i64_acquire(&reader.shm.queues[queue].min_offset) <= offset)
    return max(got, 0)


cdef bint is_whole(StoreReader* reader, int32_t queue, int64_t offset, const QueueItem* item,
                   const uint8_t* record) noexcept nogil:
    """Whether a message from the disk is as it was, and the one that its entry means."""
    cdef const QueueEntry* q = &reader.shm.queues[queue]
    cdef RecordView view
    cdef PropertyItem named
    cdef const uint8_t* at
    reader.transport.work += RECORD_WORK + item.record_size
    if log_record(&reader.log, record, item.record_size, item.log_position, &view) != PARSE_RECORD or (
            view.size != item.record_size):
        return False
    if (view.queue_offset == offset and view.queue_id == q.queue_id
            and view.topic_length == q.topic_length
            and memcmp(view.topic, q.topic, q.topic_length) == 0):
        return True
    at = view.properties                       # a light queue's entries point at others' messages
    while property_next(&at, view.properties + view.properties_length, &named):
        if item_is(&named, "INNER_MULTI_DISPATCH"):
            return True
    return False


cdef char[DAMAGE_REMARK_MAX] damage_remark             # one thread a process


cdef const char* scan_trouble(const Found* found) noexcept nogil:
    if found.damaged < 0:
        return "the store cannot be read now: a file of it cannot be opened or mapped"
    snprintf(damage_remark, sizeof(damage_remark), "the message at log position %lld is damaged: "
             "see mqcore store verify and mqcore store repair", <long long>found.damaged)
    return damage_remark


cdef void note_damaged(StoreReader* reader, int64_t position) noexcept nogil:
    """For the log, in which each is said once."""
    cdef int32_t i
    for i in range(reader.damaged_count):
        if reader.damaged[i] == position:
            return
    if reader.damaged_count == DAMAGED_MAX:
        reader.damaged_more = True
        return
    reader.damaged[reader.damaged_count] = position
    reader.damaged_count += 1


cdef void bring_record(StoreReader* reader, const uint8_t* entry, int64_t log_end) noexcept nogil:
    """Ask memory for the record of an entry: a check of records waits for memory most of its time."""
    cdef QueueItem item = entry_decode(entry)
    cdef const uint8_t* record = log_at(&reader.log, item.log_position, item.record_size, log_end)
    cdef int64_t at = 0
    while record != NULL and at < min(item.record_size, BROUGHT_MOST_BYTES):
        mq_bring(record + at)
        at += CACHE_LINE


cdef bint take_record(StoreReader* reader, int32_t queue, int64_t offset, const QueueItem* item,
                      const uint8_t* later, const Match* match, int64_t log_end, bint patient,
                      int64_t* skip_until, Found* found) noexcept nogil:
    """
    One entry that may be wanted: look at its record. False: the walk ends before it. later: the
    entry of a record that is looked at soon.
    """
    cdef const uint8_t* record = log_at(&reader.log, item.log_position, item.record_size, log_end)
    if record == NULL:
        if item.log_position >= load_i64_acquire(&reader.shm.log.first):
            # its place in the view is in use by this pull, or the segment cannot be mapped now
            found.unreadable = True
            return False
        found.gone = True
        skip_until[0] = (item.log_position // reader.log.segment_size + 1) * reader.log.segment_size
        return True
    if (patient and (log_end - item.log_position > COLD_BEHIND_BYTES
                     or item.log_position < reader.shm.log.begun)
            and not cold_resident(reader.cold_reader, record, item.log_position, item.record_size,
                                  reader.log.segment_size, reader.transport.steady_ms)):
        found.cold_job = ask_for_log(reader, item.log_position)
        if found.cold_job or found.count:
            return False
    if item.log_position < reader.shm.log.begun or log_end - item.log_position > COLD_BEHIND_BYTES:
        bring_record(reader, later, log_end)
        if not is_whole(reader, queue, offset, item, record):
            found.damaged = item.log_position
            note_damaged(reader, item.log_position)
            return False
    if (match.kind == SUBSCRIPTION_OTHER or match.by_origin) and not record_wanted(
            reader, queue, record, item.record_size, match):
        found.gone = False
        return True
    found.records[found.count] = record
    found.sizes[found.count] = item.record_size
    found.count += 1
    found.bytes += item.record_size
    skip_until[0] = 0
    return True


cdef int64_t allowance(const Transport* t) noexcept nogil:
    """N10"""
    cdef int64_t left = TURN_WORK - (t.work - t.turn_began)
    if t.slice:
        return DEFERRED_SLICE_WORK
    return max(<int64_t>LOOK_LEAST_WORK, min(<int64_t>LOOK_MOST_WORK, left))


cdef inline int32_t largest_count(const StoreReader* reader, const Portion* portion) noexcept nogil:
    if portion.replays:
        return reader.replay_count_max
    return max(reader.memory_count_max, reader.disk_count_max)


cdef void scan(StoreReader* reader, int32_t queue, int64_t offset, int64_t end, const Portion* portion,
               const Match* match, bint patient, Found* found) noexcept nogil:
    cdef int64_t log_end = load_i64_acquire(&reader.shm.log.published)
    cdef int64_t limit = min(<int64_t>max(SCAN_LEAST, portion.count_max), end - offset)
    cdef int64_t skip_until = 0
    cdef int64_t work_end = reader.transport.work + allowance(reader.transport)                   # N10
    cdef int32_t got, i, part = SCAN_ENTRIES_MAX
    cdef QueueItem item
    found.queue = queue
    found.count = 0
    found.bytes = 0
    found.examined = 0
    found.gone = found.unreadable = found.far = False
    found.damaged = -1
    found.cold_job = 0
    log_next_use(&reader.log)
    extension_fresh(&reader.extension)
    patient = patient and reader.cold_reader != NULL
    if match.kind == SUBSCRIPTION_ALL and not match.by_origin:
        part = min(portion.count_max, largest_count(reader, portion)) + 1
    while found.examined < limit:
        part = <int32_t>min(<int64_t>min(part, SCAN_ENTRIES_MAX), limit - found.examined)
        got = read_entries(reader, queue, offset + found.examined, part,
                           patient and end - offset > COLD_BEHIND_ENTRIES, found)
        for i in range(got):
            if reader.transport.work >= work_end and found.examined > 0:
                return
            reader.transport.work += ENTRY_WORK
            item = entry_decode(reader.entries + i * CQ_ENTRY_SIZE)
            found.far = log_end - item.log_position > reader.memory_bytes
            if item.log_position >= skip_until:
                if batch_is_full(reader, found, item.record_size, found.far, portion):
                    return
                if not entry_wanted(reader, queue, item.tag_code, match):
                    found.gone = False                                   # the last reason counts
                elif not take_record(reader, queue, offset + found.examined, &item,
                                     reader.entries + min(i + BROUGHT_AHEAD, got - 1) * CQ_ENTRY_SIZE,
                                     match, log_end, patient, &skip_until, found):
                    return
            found.examined += 1
        if got < part or (offset + found.examined) % reader.queues.file_entries == 0:
            return                     # the file's end: the client goes on with the next pull
        part = SCAN_ENTRIES_MAX


cdef void trace_pull(StoreReader* reader, const Puller* puller, const Found* found,
                     int64_t now_us) noexcept nogil:
    cdef const uint8_t* last = found.records[found.count - 1]
    cdef int64_t since_us = puller.since_us
    cdef TraceEntry* entry
    if puller.waited:
        since_us = now_us - 1000 * max(
            wall_of_turn(reader.transport) - record_store_time(found.records[0]), 0)
    if now_us - since_us < reader.tracer.over_us:
        return
    entry = trace_add(reader.tracer, TRACE_HELD if puller.waited else TRACE_PULL, found.count,
                      load_i64(found.records[0] + RECORD_LOG_POSITION),
                      load_i64(last + RECORD_LOG_POSITION) + load_i32(last))
    if entry != NULL:
        entry.queue = found.queue
        entry.at_us[0] = since_us
        entry.at_us[2] = now_us


cdef void count_pull(StoreReader* reader, const Puller* puller, const Found* found) noexcept nogil:
    """What a pull handed out, for the statistics of its group (broker.md 11.1)."""
    cdef const uint8_t* last = found.records[found.count - 1]
    cdef int64_t wall_ms = wall_of_turn(reader.transport)
    cdef int64_t now_us = steady_us()
    cdef PullCount* entry
    cdef int32_t i
    reader.transport.slot.figures[FIGURE_PULLED_MESSAGES] += found.count
    latency_add(reader.pull_times, now_us - puller.since_us, 1)
    for i in range(found.count):
        latency_add_ms(reader.delivery_times, wall_ms - record_store_time(found.records[i]))
    if reader.tracer.on:
        trace_pull(reader, puller, found, now_us)
    if puller.group < 0:
        return
    entry = pull_count_place(&reader.pull_counts, found.queue, puller.group)
    if entry == NULL:
        return
    pull_count_add(entry, found.count, found.bytes, now_us // 1000 - puller.since_us // 1000)
    pull_count_last(
        entry, load_i64_acquire(&reader.shm.log.published) - load_i64(last + RECORD_LOG_POSITION),
        max(wall_ms - record_store_time(last), 0), wall_ms)


cdef void answer_pull(StoreReader* reader, Connection* c, const Puller* puller, int32_t code,
                      const char* remark, int64_t next_offset, int64_t min_offset,
                      int64_t max_offset, const Found* found) noexcept nogil:
    cdef const Front* front = peer_of(c).front
    cdef PullAnswer answer
    answer.asker = puller.asker
    answer.code = code
    answer.remark = remark
    answer.broker = puller.broker_far if found != NULL and found.far else puller.broker_near
    answer.next_offset = next_offset
    answer.min_offset = min_offset
    answer.max_offset = max_offset
    answer.message_count = 0
    answer.bytes = 0
    if found != NULL:
        answer.message_count = found.count
        answer.bytes = found.bytes
        answer.records = &found.records[0]
        answer.sizes = &found.sizes[0]
        reader.transport.work += found.bytes >> 3
        if found.count > 0:
            count_pull(reader, puller, found)
    front.say_pulled(front.self, c, &answer)
