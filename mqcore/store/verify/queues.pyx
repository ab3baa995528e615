"""Checks consume queues against the log (queues.pxd has the rules)."""
from libc.errno cimport ENOENT, ENOMEM, errno
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset, strncpy
from posix.fcntl cimport O_CLOEXEC, O_RDONLY

from mqcore.endian cimport load_i16, load_i64
from mqcore.layout cimport CQ_ENTRY_SIZE, CQ_FILLER_RECORD_SIZE
from mqcore.names cimport is_queue_place
from mqcore.shm.tables cimport name_hash, queue_hash
from mqcore.store.queue.consume_queue cimport QueueItem, entry_decode
from mqcore.store.io cimport store_io
from mqcore.store.log.view cimport LOG_PATH_MAX
from mqcore.store.queue.open_files cimport NAMES_ROOM
from mqcore.store.record cimport (
    PARSE_RECORD,
    PropertyItem,
    RecordView,
    item_is,
    property_next,
)
from mqcore.store.topic_names cimport is_light_name
from mqcore.store.verify.findings cimport (
    FOUND_ENTRY_BEYOND,
    FOUND_ENTRY_GARBAGE,
    FOUND_ENTRY_HOLE,
    FOUND_ENTRY_ORDER,
    FOUND_ENTRY_POSITION,
    FOUND_ENTRY_SIZE,
    FOUND_ENTRY_STRAY,
    FOUND_ENTRY_TAG,
    FOUND_EXT_UNIT,
    FOUND_QUEUE_UNREADABLE,
    find,
)
from mqcore.store.verify.window cimport (
    data_from,
    window_close,
    window_open,
    window_record,
)
from mqcore.text cimport is_digit

cdef enum:
    WINDOW_ENTRIES = 256
    SCAN_ENTRIES = 3200
    PEEK_BYTES = 1 << 16
    EXT_UNIT_HEAD = 20                # size i16, tag code i64, store time i64, bit map bytes i16
    LOOK_UNREADABLE = -1
    LOOK_NOTHING = 0
    LOOK_ENTRY = 1

cdef int64_t EXT_ADDRESS_LAST = -2147483649          # tag codes up to here are ext addresses
cdef int64_t EXT_ADDRESS_BASE = INT64_MIN


cdef int queues_open(QueueSet* s, const LogFiles* files, Findings* findings, const char* folder,
                     const char* ext_folder, int64_t file_entries) noexcept nogil:
    memset(s, 0, sizeof(QueueSet))
    s.findings = findings
    s.file_entries = file_entries
    s.log_first = files.segments[0].base if files.count else 0
    strncpy(s.folder, folder, LOG_PATH_MAX - NAMES_ROOM)
    strncpy(s.ext_folder, ext_folder, LOG_PATH_MAX - NAMES_ROOM)
    s.index_mask = 1023
    s.index = <int32_t*>calloc(s.index_mask + 1, sizeof(int32_t))
    if s.index == NULL:
        return ENOMEM
    return window_open(&s.peek, files, PEEK_BYTES)


cdef void queues_close(QueueSet* s) noexcept nogil:
    cdef int32_t i
    for i in range(s.count):
        free(s.queues[i].entries)
    free(s.queues)
    free(s.index)
    s.queues = NULL
    s.index = NULL
    s.count = 0
    window_close(&s.peek)


cdef int32_t* place_of(QueueSet* s, const uint8_t* topic, int32_t length, int32_t queue_id,
                       uint64_t hash) noexcept nogil:
    cdef int32_t at = <int32_t>(hash & <uint64_t>s.index_mask)
    cdef QueueCheck* queue
    while s.index[at]:
        queue = &s.queues[s.index[at] - 1]
        if (queue.hash == hash and queue.queue_id == queue_id and queue.topic_length == length
                and memcmp(queue.topic, topic, length) == 0):
            break
        at = (at + 1) & s.index_mask
    return &s.index[at]


cdef bint grow(QueueSet* s) noexcept nogil:
    """Room for one more queue, in the array and in the index at most half full."""
    cdef int32_t capacity = s.capacity * 2 if s.capacity else 256
    cdef int32_t i
    cdef QueueCheck* queues
    cdef int32_t* index
    if s.count < s.capacity:
        return True
    queues = <QueueCheck*>realloc(s.queues, capacity * sizeof(QueueCheck))
    if queues == NULL:
        return False
    s.queues = queues
    s.capacity = capacity
    if capacity * 2 > s.index_mask + 1:
        index = <int32_t*>calloc(capacity * 2, sizeof(int32_t))
        if index == NULL:
            return False
        free(s.index)
        s.index = index
        s.index_mask = capacity * 2 - 1
        for i in range(s.count):
            place_of(s, s.queues[i].topic, s.queues[i].topic_length, s.queues[i].queue_id,
                     s.queues[i].hash)[0] = i + 1
    return True


cdef int32_t queue_number(QueueSet* s, const uint8_t* topic, int32_t length, int32_t queue_id,
                          bint add) noexcept nogil:
    cdef uint64_t hash = queue_hash(name_hash(topic, length, 0), queue_id)
    cdef int32_t* place = place_of(s, topic, length, queue_id, hash)
    cdef QueueCheck* queue
    if place[0]:
        return place[0] - 1
    if not add:
        return -1
    if s.count >= QUEUES_MAX or not is_queue_place(topic, length, queue_id) or not grow(s):
        return -2
    place = place_of(s, topic, length, queue_id, hash)
    queue = &s.queues[s.count]
    memset(queue, 0, sizeof(QueueCheck))
    memcpy(queue.topic, topic, length)
    queue.topic_length = length
    queue.queue_id = queue_id
    queue.hash = hash
    queue.next_offset = -1
    queue.first_live = -1
    s.count += 1
    place[0] = s.count
    return s.count - 1


cdef int open_entries(QueueSet* s, const QueueCheck* queue, int64_t file_first) noexcept nogil:
    """The descriptor of the file that begins at queue offset file_first, or -1 and errno."""
    cdef char path[LOG_PATH_MAX]
    snprintf(path, LOG_PATH_MAX, "%s/%.*s/%d/%020lld", s.folder, <int>queue.topic_length,
             <const char*>queue.topic, <int>queue.queue_id,
             <long long>(file_first * CQ_ENTRY_SIZE))
    return store_io().open_file(path, O_RDONLY | O_CLOEXEC, 0)


cdef int look(QueueSet* s, int32_t number, int64_t offset, QueueItem* item) noexcept nogil:
    """The entry at a queue offset: LOOK_ENTRY, LOOK_NOTHING (zeros, no file), LOOK_UNREADABLE."""
    cdef QueueCheck* queue = &s.queues[number]
    cdef int64_t file_first
    cdef int32_t count
    cdef ssize_t got
    cdef int fd
    if not queue.on_disk or offset < queue.first or offset >= queue.limit:
        return LOOK_NOTHING
    if offset < queue.entries_first or offset >= queue.entries_first + queue.entries_count:
        if queue.entries == NULL:
            queue.entries = <uint8_t*>malloc(WINDOW_ENTRIES * CQ_ENTRY_SIZE)
            if queue.entries == NULL:
                return LOOK_UNREADABLE
        file_first = offset // s.file_entries * s.file_entries
        count = <int32_t>min(<int64_t>WINDOW_ENTRIES, file_first + s.file_entries - offset)
        queue.entries_count = 0
        fd = open_entries(s, queue, file_first)
        if fd < 0:
            return LOOK_NOTHING if errno == ENOENT else LOOK_UNREADABLE
        memset(queue.entries, 0, WINDOW_ENTRIES * CQ_ENTRY_SIZE)
        got = store_io().read_at(fd, queue.entries, count * CQ_ENTRY_SIZE,
                                 (offset - file_first) * CQ_ENTRY_SIZE)
        store_io().close_file(fd)
        if got < 0:
            return LOOK_UNREADABLE
        queue.entries_first = offset
        queue.entries_count = count
    item[0] = entry_decode(queue.entries + (offset - queue.entries_first) * CQ_ENTRY_SIZE)
    return LOOK_ENTRY if item.record_size > 0 else LOOK_NOTHING


cdef inline bint is_filler(const QueueItem* item) noexcept nogil:
    return item.record_size == CQ_FILLER_RECORD_SIZE and item.log_position == 0


# -- what a record belongs to ----------------------------------------------------------------------

cdef bint named(const PropertyItem* names, const PropertyItem* offsets, const QueueCheck* queue,
                int32_t own_queue_id, int64_t offset) noexcept nogil:
    """Whether a multi-dispatch list names this queue with this offset (store.md 2.11)."""
    cdef const uint8_t* name = names.value
    cdef const uint8_t* names_end = names.value + names.value_length
    cdef const uint8_t* digits = offsets.value
    cdef const uint8_t* digits_end = offsets.value + offsets.value_length
    cdef const uint8_t* stop
    cdef int64_t value
    cdef bint light
    while name < names_end and digits < digits_end:
        stop = name
        while stop < names_end and stop[0] != c',':
            stop += 1
        value = 0
        while digits < digits_end and is_digit(digits[0]) and value < (<int64_t>1 << 58):
            value = value * 10 + digits[0] - c'0'
            digits += 1
        light = is_light_name(name, <int32_t>(stop - name))
        if (value == offset and stop - name == queue.topic_length
                and memcmp(name, queue.topic, queue.topic_length) == 0
                and (queue.queue_id == own_queue_id or (light and queue.queue_id == 0))):
            return True
        name = stop + 1
        digits += 1
    return False


cdef bint belongs(const RecordView* record, const QueueCheck* queue, int64_t offset) noexcept nogil:
    """Whether the record has this queue offset in this queue, by itself or by multi-dispatch."""
    cdef PropertyItem item, names, offsets
    cdef const uint8_t* at = record.properties
    if (record.queue_offset == offset and record.queue_id == queue.queue_id
            and record.topic_length == queue.topic_length
            and memcmp(record.topic, queue.topic, queue.topic_length) == 0):
        return True
    names.value_length = 0
    offsets.value_length = 0
    while property_next(&at, record.properties + record.properties_length, &item):
        if item_is(&item, "INNER_MULTI_DISPATCH"):
            names = item
        elif item_is(&item, "INNER_MULTI_QUEUE_OFFSET"):
            offsets = item
    if not names.value_length or not offsets.value_length:
        return False
    return named(&names, &offsets, queue, record.queue_id, offset)


cdef bint ext_unit_fits(QueueSet* s, QueueCheck* queue, int64_t address,
                        const RecordView* record, int64_t tag_code) noexcept nogil:
    """Whether the unit at an ext address carries the record's tag code and store time."""
    cdef char path[LOG_PATH_MAX]
    cdef uint8_t unit[EXT_UNIT_HEAD]
    cdef int64_t place = address - EXT_ADDRESS_BASE
    cdef int64_t first
    cdef ssize_t got
    cdef int fd
    if queue.ext_size <= 0:
        return False
    first = place // queue.ext_size * queue.ext_size
    snprintf(path, LOG_PATH_MAX, "%s/%.*s/%d/%020lld", s.ext_folder, <int>queue.topic_length,
             <const char*>queue.topic, <int>queue.queue_id, <long long>first)
    fd = store_io().open_file(path, O_RDONLY | O_CLOEXEC, 0)
    if fd < 0:
        return False
    got = store_io().read_at(fd, unit, EXT_UNIT_HEAD, place - first)
    store_io().close_file(fd)
    return (got == EXT_UNIT_HEAD and load_i16(unit) == EXT_UNIT_HEAD + load_i16(unit + 18)
            and load_i16(unit + 18) >= 0 and place - first + load_i16(unit) <= queue.ext_size
            and load_i64(unit + 2) == tag_code and load_i64(unit + 10) == record.store_time_ms)


cdef void tag_expect(QueueSet* s, int32_t number, int64_t offset, const QueueItem* item,
                     const RecordView* record, const Expected* expected) noexcept nogil:
    if expected.delivery_ms >= 0:
        if item.tag_code == expected.delivery_ms:
            return
        if item.tag_code == expected.tag_code:
            s.plain_delays += 1
            return
        find(s.findings, FOUND_ENTRY_TAG, number, record.log_position, offset,
             expected.delivery_ms, item.tag_code)
    elif item.tag_code <= EXT_ADDRESS_LAST:
        if not ext_unit_fits(s, &s.queues[number], item.tag_code, record, expected.tag_code):
            find(s.findings, FOUND_EXT_UNIT, number, record.log_position, offset,
                 expected.tag_code, item.tag_code - EXT_ADDRESS_BASE)
    elif item.tag_code != expected.tag_code:
        find(s.findings, FOUND_ENTRY_TAG, number, record.log_position, offset, expected.tag_code,
             item.tag_code)


cdef void queue_expect(QueueSet* s, int32_t number, int64_t offset, const RecordView* record,
                       const Expected* expected) noexcept nogil:
    cdef QueueCheck* queue = &s.queues[number]
    cdef QueueItem item
    cdef RecordView other
    cdef int there = look(s, number, offset, &item)
    if there == LOOK_UNREADABLE:
        find(s.findings, FOUND_QUEUE_UNREADABLE, number, record.log_position, offset, 0, errno)
        return
    if there == LOOK_NOTHING or is_filler(&item):
        if queue.missing == 0 or offset < queue.missing_first:
            queue.missing_first = offset
        queue.missing += 1
        return
    if item.log_position == record.log_position:
        queue.matched += 1
        if item.record_size != record.size:
            find(s.findings, FOUND_ENTRY_SIZE, number, record.log_position, offset, record.size,
                 item.record_size)
        tag_expect(s, number, offset, &item, record, expected)
        return
    if (item.log_position > record.log_position
            and window_record(&s.peek, item.log_position, False, &other) == PARSE_RECORD
            and belongs(&other, queue, offset)):
        queue.superseded += 1                                                       # VQ3
        return
    find(s.findings, FOUND_ENTRY_POSITION, number, record.log_position, offset,
         record.log_position, item.log_position)


cdef bint queue_vouches(QueueSet* s, const RecordView* record) noexcept nogil:
    cdef int32_t number = queue_number(s, record.topic, record.topic_length, record.queue_id, False)
    cdef QueueItem item
    return (number >= 0 and look(s, number, record.queue_offset, &item) == LOOK_ENTRY
            and item.log_position == record.log_position)


# -- the queue's own files -------------------------------------------------------------------------

cdef struct Scan:
    int64_t log_end
    int64_t before                    # position in the last entry that was no filler
    int64_t zeros                     # since the last entry
    bint strays                       # look at each entry's record


cdef void scan_entry(QueueSet* s, int32_t number, int64_t offset, const uint8_t* bytes,
                     Scan* scan) noexcept nogil:
    cdef QueueCheck* queue = &s.queues[number]
    cdef QueueItem item = entry_decode(bytes)
    cdef RecordView record
    if item.record_size <= 0:
        if (item.log_position or item.record_size or item.tag_code) and not scan.strays:
            find(s.findings, FOUND_ENTRY_GARBAGE, number, 0, offset, 0, item.record_size)
        scan.zeros += 1
        return
    if scan.strays:
        if (not is_filler(&item) and s.log_first <= item.log_position < scan.log_end
                and (window_record(&s.peek, item.log_position, True, &record) != PARSE_RECORD
                     or not belongs(&record, queue, offset))):
            find(s.findings, FOUND_ENTRY_STRAY, number, item.log_position, offset, 0,
                 item.log_position)
        return
    if scan.zeros:
        queue.holes += scan.zeros
        find(s.findings, FOUND_ENTRY_HOLE, number, 0, offset - scan.zeros, 0, item.log_position)
    scan.zeros = 0
    queue.end = offset + 1
    if is_filler(&item):
        if item.tag_code:
            find(s.findings, FOUND_ENTRY_GARBAGE, number, 0, offset, 0, item.record_size)
        queue.fillers += 1
        return
    if item.log_position <= scan.before:
        find(s.findings, FOUND_ENTRY_ORDER, number, item.log_position, offset, scan.before,
             item.log_position)
    scan.before = item.log_position
    if item.log_position < s.log_first:
        queue.expired += 1
    elif item.log_position >= scan.log_end:
        queue.beyond += 1
        find(s.findings, FOUND_ENTRY_BEYOND, number, item.log_position, offset, scan.log_end,
             item.log_position)
    else:
        if queue.first_live < 0:
            queue.first_live = offset
        queue.live += 1


cdef int scan_file(QueueSet* s, int32_t number, int64_t file_first, uint8_t* bytes,
                   Scan* scan) noexcept nogil:
    """All entries of one file, holes counted without reading them; 0 or errno."""
    cdef int fd = open_entries(s, &s.queues[number], file_first)
    cdef int64_t at = 0, size = s.file_entries * CQ_ENTRY_SIZE, data
    cdef int64_t i, count
    cdef ssize_t got
    if fd < 0 and errno == ENOENT:
        scan.zeros += s.file_entries
        return 0
    if fd < 0:
        return errno
    while at < size:
        data = data_from(fd, at, size) // CQ_ENTRY_SIZE * CQ_ENTRY_SIZE
        scan.zeros += (data - at) // CQ_ENTRY_SIZE
        at = data
        if at >= size:
            break
        memset(bytes, 0, SCAN_ENTRIES * CQ_ENTRY_SIZE)
        count = min(<int64_t>SCAN_ENTRIES, (size - at) // CQ_ENTRY_SIZE)
        got = store_io().read_at(fd, bytes, count * CQ_ENTRY_SIZE, at)
        if got < 0:
            store_io().close_file(fd)
            return errno
        for i in range(count):
            scan_entry(s, number, file_first + at // CQ_ENTRY_SIZE + i, bytes + i * CQ_ENTRY_SIZE,
                       scan)
        at += count * CQ_ENTRY_SIZE
    store_io().close_file(fd)
    return 0


cdef void scan_files(QueueSet* s, int32_t number, int64_t log_end, bint strays) noexcept nogil:
    cdef uint8_t* bytes = <uint8_t*>malloc(SCAN_ENTRIES * CQ_ENTRY_SIZE)
    cdef Scan scan = Scan(log_end=log_end, before=-1, zeros=0, strays=strays)
    cdef int64_t file_first = s.queues[number].first
    cdef int error = 0 if bytes != NULL else ENOMEM
    while error == 0 and file_first < s.queues[number].limit:
        error = scan_file(s, number, file_first, bytes, &scan)
        if error == 0:
            file_first += s.file_entries
    if error:
        find(s.findings, FOUND_QUEUE_UNREADABLE, number, 0, file_first, 0, error)
    free(bytes)


cdef void queue_scan(QueueSet* s, int32_t number, int64_t log_end) noexcept nogil:
    cdef QueueCheck* queue = &s.queues[number]
    queue.end = queue.first
    if not queue.on_disk:
        return
    scan_files(s, number, log_end, False)
    if queue.live != queue.matched:                                                 # VQ2
        scan_files(s, number, log_end, True)
