"""Checks index files by themselves and against the log (index.pxd has the rules)."""
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from mqcore.endian cimport load_i32
from mqcore.layout cimport INDEX_ENTRY_SIZE
from mqcore.store.index.file cimport index_hash
from mqcore.store.index.layout cimport (
    IndexEntry,
    IndexHeader,
    index_entry_decode,
    index_entry_start,
    index_header_decode,
    index_slot_start,
)
from mqcore.store.record cimport RecordView
from mqcore.store.verify.findings cimport (
    FOUND_INDEX_BEYOND,
    FOUND_INDEX_CHAIN,
    FOUND_INDEX_ENTRY,
    FOUND_INDEX_HEADER,
    FOUND_INDEX_OPEN_SLOT,
    FOUND_INDEX_SECONDS,
    FOUND_INDEX_SLOT,
    FOUND_INDEX_STRAY,
    INDEX_FIELD_BEGIN_POSITION,
    INDEX_FIELD_BEGIN_TIME,
    INDEX_FIELD_COUNT,
    INDEX_FIELD_END_POSITION,
    INDEX_FIELD_END_TIME,
    INDEX_FIELD_ENTRY_0,
    INDEX_FIELD_HASH,
    INDEX_FIELD_ORDER,
    INDEX_FIELD_SLOTS_USED,
    find,
)


cdef void keys_open(KeySet* k, Findings* findings, int64_t log_first) noexcept nogil:
    memset(k, 0, sizeof(KeySet))
    k.log_first = log_first
    k.findings = findings
    k.missing_first = -1
    k.entry = 1


cdef inline const uint8_t* entry_at(const IndexCheck* file, int32_t number) noexcept nogil:
    return file.bytes + index_entry_start(file.slots, number)


cdef inline int64_t position_of(const uint8_t* entry) noexcept nogil:
    return index_entry_decode(entry).log_position


cdef inline int32_t hash_of(const uint8_t* entry) noexcept nogil:
    return index_entry_decode(entry).key_hash


# -- along the log ---------------------------------------------------------------------------------

cdef inline const uint8_t* cursor(KeySet* k) noexcept nogil:
    """The entry to come, or NULL behind the last."""
    while k.file < k.count and k.entry >= k.files[k.file].next_entry:
        k.file += 1
        k.entry = 1
    if k.file >= k.count:
        return NULL
    return entry_at(&k.files[k.file], k.entry)


cdef void keys_note(KeySet* k, const RecordView* record, const uint8_t* key,
                    int32_t length) noexcept nogil:
    if k.hash_count < KEYS_MAX:
        k.hashes[k.hash_count] = index_hash(record.topic, record.topic_length, key, length)
        k.hash_count += 1


cdef int64_t seconds_since(int64_t begin_ms, int64_t time_ms) noexcept nogil:
    if begin_ms <= 0:
        return 0
    return min(max((time_ms - begin_ms) // 1000, 0), <int64_t>INT32_MAX)


cdef void check_times(KeySet* k, const uint8_t* entry, const RecordView* record) noexcept nogil:
    """The entry's seconds, and the header's times where this is its first or last entry."""
    cdef const IndexCheck* file = &k.files[k.file]
    cdef IndexHeader header = index_header_decode(file.bytes)
    cdef int64_t begin_ms = header.begin_time_ms
    cdef int64_t seconds = index_entry_decode(entry).seconds
    cdef int64_t expected = seconds_since(begin_ms, record.store_time_ms)
    cdef int64_t before_ms
    if k.entry == 1:
        if begin_ms != record.store_time_ms:
            find(k.findings, FOUND_INDEX_HEADER, k.file, record.log_position,
                 INDEX_FIELD_BEGIN_TIME, record.store_time_ms, begin_ms)
        # in a second or later file it counts from the end of the file before (store.md 4.3)
        if k.file > 0 and seconds != expected:
            before_ms = index_header_decode(k.files[k.file - 1].bytes).end_time_ms
            expected = seconds_since(before_ms, record.store_time_ms)
        elif k.file == 0 and (k.missing > 0 or k.log_first > 0):
            expected = seconds         # that file is not there any more
    if seconds != expected:
        find(k.findings, FOUND_INDEX_SECONDS, k.file, record.log_position, k.entry, expected,
             seconds)
    if k.entry == file.next_entry - 1 and header.end_time_ms != record.store_time_ms:
        find(k.findings, FOUND_INDEX_HEADER, k.file, record.log_position, INDEX_FIELD_END_TIME,
             record.store_time_ms, header.end_time_ms)


cdef void take_entry(KeySet* k, const uint8_t* entry, int32_t turn,
                     const RecordView* record) noexcept nogil:
    """One entry of the record's position: one of its keys, a key for the second time, or no key."""
    cdef int32_t hash = hash_of(entry)
    cdef int32_t i, again = -1
    if turn < k.hash_count and k.hashes[turn] == hash and not k.used[turn]:
        i = turn
    else:
        i = 0
        while i < k.hash_count and (k.hashes[i] != hash or k.used[i]):
            if k.hashes[i] == hash:
                again = i
            i += 1
    if i < k.hash_count:
        k.used[i] = 1
        k.matched += 1
    elif again >= 0:
        k.doubled += 1
    else:
        find(k.findings, FOUND_INDEX_STRAY, k.file, record.log_position, k.entry, 0, hash)
        return
    check_times(k, entry, record)


cdef void keys_expect(KeySet* k, const RecordView* record) noexcept nogil:
    cdef const uint8_t* entry = cursor(k)
    cdef int32_t turn = 0, i
    memset(k.used, 0, k.hash_count)
    k.keys += k.hash_count
    while entry != NULL and position_of(entry) <= record.log_position:
        if position_of(entry) == record.log_position:
            take_entry(k, entry, turn, record)
            turn += 1
        elif position_of(entry) < k.log_first:
            k.expired += 1
        else:
            find(k.findings, FOUND_INDEX_STRAY, k.file, position_of(entry), k.entry, 0,
                 hash_of(entry))
        k.entry += 1
        entry = cursor(k)
    for i in range(k.hash_count):
        if not k.used[i]:
            k.missing += 1
            if k.missing_first < 0:
                k.missing_first = record.log_position
    k.hash_count = 0


cdef void keys_pass(KeySet* k, int64_t position) noexcept nogil:
    cdef const uint8_t* entry = cursor(k)
    while entry != NULL and position_of(entry) < position:
        k.passed += 1
        k.entry += 1
        entry = cursor(k)


cdef void keys_finish(KeySet* k, int64_t log_end) noexcept nogil:
    cdef const uint8_t* entry = cursor(k)
    while entry != NULL:
        find(k.findings, FOUND_INDEX_BEYOND if position_of(entry) >= log_end
             else FOUND_INDEX_STRAY, k.file, position_of(entry), k.entry, log_end,
             hash_of(entry))
        k.entry += 1
        entry = cursor(k)


# -- a file by itself ------------------------------------------------------------------------------

cdef void check_header(KeySet* k, int32_t number) noexcept nogil:
    cdef IndexCheck* file = &k.files[number]
    cdef IndexHeader header = index_header_decode(file.bytes)
    cdef const uint8_t* first = entry_at(file, 1)
    cdef const uint8_t* last = entry_at(file, file.next_entry - 1)
    cdef int i
    if header.next_entry > file.entries or header.next_entry < 0:
        find(k.findings, FOUND_INDEX_HEADER, number, 0, INDEX_FIELD_COUNT, file.entries,
             header.next_entry)
    for i in range(INDEX_ENTRY_SIZE):
        if entry_at(file, 0)[i]:
            find(k.findings, FOUND_INDEX_ENTRY, number, 0, 0, INDEX_FIELD_ENTRY_0, 0)
            break
    if file.next_entry <= 1:
        return
    if header.begin_position != position_of(first):
        find(k.findings, FOUND_INDEX_HEADER, number, 0, INDEX_FIELD_BEGIN_POSITION,
             position_of(first), header.begin_position)
    if header.end_position != position_of(last):
        find(k.findings, FOUND_INDEX_HEADER, number, 0, INDEX_FIELD_END_POSITION,
             position_of(last), header.end_position)
    if header.begin_time_ms <= 0:
        find(k.findings, FOUND_INDEX_HEADER, number, 0, INDEX_FIELD_BEGIN_TIME, 1,
             header.begin_time_ms)


cdef void check_slots(KeySet* k, int32_t number, const int32_t* newest) noexcept nogil:
    cdef IndexCheck* file = &k.files[number]
    cdef int32_t slot, value
    cdef int64_t in_use = 0
    for slot in range(file.slots):
        value = load_i32(file.bytes + index_slot_start(slot))
        in_use += value != 0
        if value == newest[slot]:
            continue
        if (value == file.next_entry and file.next_entry < file.entries
                and index_entry_decode(entry_at(file, value)).previous == newest[slot]):
            find(k.findings, FOUND_INDEX_OPEN_SLOT, number, 0, slot, newest[slot], value)
        else:
            find(k.findings, FOUND_INDEX_SLOT, number, 0, slot, newest[slot], value)
    if in_use != index_header_decode(file.bytes).slots_used:
        find(k.findings, FOUND_INDEX_HEADER, number, 0, INDEX_FIELD_SLOTS_USED, in_use,
             index_header_decode(file.bytes).slots_used)


cdef void index_chains(KeySet* k, int32_t number) noexcept nogil:
    cdef IndexCheck* file = &k.files[number]
    cdef int32_t* newest = <int32_t*>calloc(file.slots, sizeof(int32_t))
    cdef IndexEntry entry
    cdef int64_t before = -1
    cdef int32_t i, slot
    if newest == NULL:
        find(k.findings, FOUND_INDEX_HEADER, number, 0, INDEX_FIELD_COUNT, 0, -1)
        return
    check_header(k, number)
    for i in range(1, file.next_entry):
        entry = index_entry_decode(entry_at(file, i))
        if entry.key_hash < 0:
            find(k.findings, FOUND_INDEX_ENTRY, number, entry.log_position, i, INDEX_FIELD_HASH,
                 entry.key_hash)
            continue
        if entry.log_position < before:
            find(k.findings, FOUND_INDEX_ENTRY, number, entry.log_position, i, INDEX_FIELD_ORDER,
                 before)
        before = entry.log_position
        slot = entry.key_hash % file.slots
        if entry.previous != newest[slot]:
            find(k.findings, FOUND_INDEX_CHAIN, number, entry.log_position, i, newest[slot],
                 entry.previous)
        newest[slot] = i
    check_slots(k, number, newest)
    free(newest)
