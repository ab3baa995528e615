"""The store's files, read from any bytes: log, queues, extension, index, checksums."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from mqcore.layout cimport (
    CHECKSUM_ENTRY_SIZE,
    CQ_ENTRY_SIZE,
    DELAY_LEVEL_MAX,
)
from mqcore.store.index.layout cimport index_entry_start, index_header_decode
from mqcore.store.log.checksums cimport (
    CHECKSUM_ASTRAY,
    checksum_end,
    checksum_find,
    checksum_judge,
)
from mqcore.store.queue.consume_queue cimport QueueItem, entry_decode, entry_encode
from mqcore.store.record cimport (
    PARSE_RECORD,
    RecordHead,
    RecordView,
    record_begin,
    record_check,
    record_end,
    record_head,
    record_parse,
    record_place,
    record_store_time,
)
from mqcore.store.schedule.delivery_time cimport DelayLevels, delivery_time_ms
from mqcore.store.schedule.record cimport (
    PLACE_KNOWN,
    RealPlace,
    delivery_size,
    delivery_write,
    real_place,
    same_message,
)
from mqcore.store.transactions.half_message cimport (
    CHANGES_LENGTH_MAX,
    HalfNotes,
    copy_properties,
    read_notes,
)
from mqcore.store.verify.fields cimport Properties, check_fields, delivery_ms, properties_of
from mqcore.store.verify.findings cimport Findings, findings_open
from mqcore.store.verify.index cimport (
    KeySet,
    index_chains,
    keys_expect,
    keys_finish,
    keys_note,
    keys_pass,
)

from tests.fuzz.targets.input cimport Input, hold, input_of, take_byte, take_i32, take_i64, take_part

cdef Findings* findings = <Findings*>calloc(1, sizeof(Findings))
cdef KeySet* keys = <KeySet*>calloc(1, sizeof(KeySet))


cdef void write_again(const uint8_t* at, const RecordView* record) noexcept nogil:
    """The same bytes come from what was read of them, but for what is not written: reserved words."""
    cdef RecordHead head
    cdef RecordView again
    cdef uint8_t* made = <uint8_t*>malloc(record.size)
    cdef uint8_t* properties
    record_head(record, at, &head)
    properties = record_begin(made, &head, record.body, record.body_length, record.topic,
                              record.topic_length)
    memcpy(properties + 2, record.properties, record.properties_length)
    hold(record_end(made, properties, record.properties_length) == record.size, "a size stays")
    record_place(made, record.queue_offset, record.log_position, record.store_time_ms)
    hold(record_check(made, record.size, record.log_position, &again) == PARSE_RECORD,
         "what is written is a record")
    hold(record_store_time(made) == record.store_time_ms, "a store time is read again")
    hold(same_message(made, &again, made, &again), "a record is the message that it is")
    hold(again.queue_offset == record.queue_offset and again.sys_flag == record.sys_flag
         and again.topic_length == record.topic_length
         and memcmp(again.topic, record.topic, record.topic_length) == 0
         and again.properties_length == record.properties_length, "what is written is read again")
    free(made)


cdef void deliver(const uint8_t* at, const RecordView* record) noexcept nogil:
    cdef RealPlace place
    cdef RecordView delivered
    cdef uint8_t* made
    if real_place(record, &place) != PLACE_KNOWN:
        return
    made = <uint8_t*>malloc(delivery_size(record, &place))
    delivery_write(at, record, &place, 1, made)
    hold(record_parse(made, delivery_size(record, &place), &delivered) == PARSE_RECORD,
         "what is delivered is a record")
    hold(same_message(at, record, made, &delivered), "what is delivered is the message")
    free(made)


cdef void ask_about(const RecordView* record) noexcept nogil:
    cdef HalfNotes notes
    cdef uint8_t* made = <uint8_t*>malloc(record.properties_length + CHANGES_LENGTH_MAX)
    read_notes(record, &notes)
    copy_properties(record, notes.check_times, -1, made)
    copy_properties(record, 0x7FFFFFFFFFFFFFFF, 0x7FFFFFFFFFFFFFFF, made)
    free(made)


cdef void judge(const uint8_t* at, const RecordView* record) noexcept nogil:
    cdef Properties properties
    cdef int64_t delays[DELAY_LEVEL_MAX]
    cdef DelayLevels levels
    cdef int32_t i
    levels.count = 18
    for i in range(DELAY_LEVEL_MAX):
        delays[i] = 1000 * i
        levels.delay_ms[i] = 1000 * i
    levels.delay_ms[0] = 1000
    check_fields(findings, at, record)
    properties_of(record, &properties)
    delivery_ms(delays, 18, record, &properties.delay)
    delivery_time_ms(&levels, record, &properties.delay)


cdef int log_record(const uint8_t* data, size_t size) noexcept nogil:
    """Records one behind the other, as far as they go."""
    cdef int64_t place = 0, length = <int64_t>size
    cdef RecordView record
    cdef int result
    findings_open(findings)
    while place < length:
        record_check(data + place, length - place, place, &record)
        result = record_parse(data + place, length - place, &record)
        if result != PARSE_RECORD:
            break
        hold(0 < record.size <= length - place, "a record lies in what was read")
        judge(data + place, &record)
        write_again(data + place, &record)
        deliver(data + place, &record)
        ask_about(&record)
        place += record.size
    return 0


cdef int queue_entry(const uint8_t* data, size_t size) noexcept nogil:
    cdef uint8_t again[CQ_ENTRY_SIZE]
    cdef QueueItem item
    cdef size_t at = 0
    while at + CQ_ENTRY_SIZE <= size:
        item = entry_decode(data + at)
        entry_encode(again, &item)
        hold(memcmp(again, data + at, CQ_ENTRY_SIZE) == 0, "an entry is written as it was read")
        at += CQ_ENTRY_SIZE
    return 0


cdef int index_file(const uint8_t* data, size_t size) noexcept nogil:
    """
    | header, slots, entries | keys: position i64, hash by a byte ... | slots, entries, keys: bytes |
    As verification reads it: by itself, and along a log.
    """
    cdef Input left = input_of(data, size)
    cdef int32_t slots = 1 + (take_byte(&left) & 15), entries = 2 + (take_byte(&left) & 63)
    cdef int32_t records = take_byte(&left) & 15, i
    cdef int64_t file_size = index_entry_start(slots, entries), position = 0
    cdef uint8_t* file = <uint8_t*>calloc(1, file_size)
    cdef uint8_t key
    cdef RecordView record
    memset(&record, 0, sizeof(record))
    record.topic = b"T"
    record.topic_length = 1
    memset(keys.hashes, 0, sizeof(int32_t) * 64)
    findings_open(findings)
    keys.log_first = take_byte(&left)
    keys.findings = findings
    keys.missing_first = -1
    keys.entry = 1
    keys.file = keys.hash_count = 0
    keys.missing = keys.keys = keys.matched = keys.doubled = keys.expired = keys.passed = 0
    keys.count = 1
    for i in range(records):
        record.log_position = position
        record.store_time_ms = take_i32(&left)
        key = take_byte(&left)
        keys_note(keys, &record, &key, 1)
        if key & 1:
            keys_note(keys, &record, &key, 1)
        if i == 0:
            memcpy(file, data, min(left.left, file_size))
            keys.files[0].bytes = file
            keys.files[0].size = file_size
            keys.files[0].slots = slots
            keys.files[0].entries = entries
            keys.files[0].next_entry = min(max(next_entry(file), 1), entries)
        keys_expect(keys, &record)
        position += 1 + take_byte(&left)
        if key == 255:
            keys_pass(keys, position)
    if records:
        keys_finish(keys, position)
        index_chains(keys, 0)
        hold(keys.matched + keys.missing == keys.keys, "each key is there, or is missing")
    free(file)
    return 0


cdef int32_t next_entry(const uint8_t* file) noexcept nogil:
    return index_header_decode(file).next_entry


cdef int64_t first_behind(const uint8_t* entries, int64_t count, int64_t start) noexcept nogil:
    """The first entry that ends behind `start`, or is none; -1: the ends do not rise."""
    cdef int64_t number, found = count, end, before = 0
    cdef bint none = False
    for number in range(count):
        end = checksum_end(entries, number)
        if end != 0 and (none or end <= before):
            return -1
        none, before = end == 0, end
        if found == count and (none or end > start):
            found = number
    return found


cdef int checksums(const uint8_t* data, size_t size) noexcept nogil:
    """| entries | record | its length, a byte | start, end: i32 | hint: i64 |"""
    cdef Input left = input_of(data, size)
    cdef int64_t hint = take_i64(&left)
    cdef int64_t start = take_i32(&left) & 0xFFFF, end = start + (take_i32(&left) & 0xFFFF)
    cdef int64_t length = take_part(&left)
    cdef int64_t count = (left.left - length) // CHECKSUM_ENTRY_SIZE
    cdef int64_t found, other = 0, fresh = 0
    cdef int verdict
    found = checksum_find(data, count, start, &hint)
    hold(0 <= found <= count and 0 <= hint <= count, "an entry is one that there is")
    other = first_behind(data, count, start)
    hold(other == -1 or hint == other, "an entry is found from any hint on")
    other = 0
    if found < count:
        checksum_end(data, found)
    verdict = checksum_judge(data, count, start, end, data + left.left - length, length, &other)
    hold(0 <= verdict <= CHECKSUM_ASTRAY, "a verdict is one of five")
    hold(0 <= other <= count, "a hint is an entry that there is, or the next one")
    hold(verdict == checksum_judge(data, count, start, end, data + left.left - length, length,
                                   &fresh), "a verdict is the same again")
    return 0


TARGETS = {
    "log_record": <size_t>&log_record, "queue_entry": <size_t>&queue_entry,
    "index_file": <size_t>&index_file, "checksums": <size_t>&checksums,
}
