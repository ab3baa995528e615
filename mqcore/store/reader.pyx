"""Looks into the store for the Python processes: records, queue entries, offsets by time."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

from mqcore.atomics cimport load_i32_acquire, load_i64_acquire
from mqcore.layout cimport (
    CQ_ENTRY_SIZE,
    CQ_FILLER_RECORD_SIZE,
    RECORD_FIXED_SIZE,
    TOPIC_LENGTH_MAX,
    QueueEntry,
)
from mqcore.shm.segment cimport Segment, Shm
from mqcore.shm.tables cimport name_hash, queue_find, queue_hash
from mqcore.store.queue.consume_queue cimport (
    QueueFiles,
    QueueItem,
    entry_decode,
    queue_files_close,
    queue_files_forget,
    queue_files_open,
    queue_read,
)
from mqcore.store.log.named cimport (
    NAMED_LATER,
    NAMED_RECORD,
    NamedRecords,
    named_close,
    named_open,
    named_record,
)
from mqcore.store.log.view cimport (
    LogView,
    log_at,
    log_next_use,
    log_record,
    log_view_close,
    log_view_forget,
    log_view_open,
)
from mqcore.store.record cimport PARSE_RECORD, RecordView, record_parse


cdef enum:
    WALK_ENTRIES = 800                # read at a time
    LOOKS_MAX = 64                    # at a record that is not dispatched yet: some milliseconds


cdef class StoreReader:
    """
    Reads of a running store. Offsets count entries, positions and sizes bytes, times ms.

    memory_bytes: records nearer to the log's end count as in memory (broker.md 6.2).
    """
    cdef Segment segment
    cdef Shm* shm
    cdef LogView* log
    cdef QueueFiles queues
    cdef NamedRecords named
    cdef public int64_t memory_bytes
    cdef int32_t trims_seen

    def __cinit__(self, Segment segment not None, bytes log_folder, bytes queue_folder, *,
                  int64_t file_entries, int64_t memory_bytes, int32_t open_files_max=1024):
        self.segment = segment
        self.shm = &segment.shm
        self.memory_bytes = memory_bytes
        self.log = <LogView*>malloc(sizeof(LogView))
        if self.log == NULL:
            raise MemoryError
        log_view_open(self.log, self.shm.log, log_folder, self.shm.head.segment_size)
        if queue_files_open(&self.queues, self.shm.queues, self.shm.head.queue_capacity,
                            queue_folder, file_entries, open_files_max, False):
            raise MemoryError
        named_open(&self.named, self.shm, self.log, &self.queues)

    def __dealloc__(self):
        named_close(&self.named)
        if self.log != NULL:
            log_view_close(self.log)
            free(self.log)
            queue_files_close(&self.queues)

    def forget_deleted(self) -> None:
        """Let go of files that were deleted: their disk space is free only then. Call it each second."""
        cdef int32_t trims = load_i32_acquire(&self.shm.log.trims)
        log_view_forget(self.log)
        if trims != self.trims_seen:
            self.trims_seen = trims
            queue_files_forget(&self.queues)

    cdef int32_t find(self, str topic, int32_t queue_id):
        raw = topic.encode("utf-8", "replace")
        cdef const uint8_t* name = raw
        cdef int32_t length = <int32_t>len(raw)
        if not 1 <= length <= TOPIC_LENGTH_MAX:
            return -1
        return queue_find(self.shm, name, length, queue_id,
                          queue_hash(name_hash(name, length, 0), queue_id))

    def queue_range(self, str topic, int queue_id):
        """(first offset, next offset) of a queue, or None when it never had a message."""
        cdef int32_t number = self.find(topic, queue_id)
        if number < 0:
            return None
        cdef QueueEntry* queue = &self.shm.queues[number]
        return (load_i64_acquire(&queue.min_offset), load_i64_acquire(&queue.max_offset))

    def log_range(self) -> tuple[int, int]:
        """(first position, next position) of the commit log."""
        return (load_i64_acquire(&self.shm.log.first), load_i64_acquire(&self.shm.log.published))

    cdef bint item(self, int32_t number, int64_t offset, QueueItem* item):
        cdef uint8_t entry[CQ_ENTRY_SIZE]
        cdef QueueEntry* queue
        if number < 0:
            return False
        queue = &self.shm.queues[number]
        if not load_i64_acquire(&queue.min_offset) <= offset < load_i64_acquire(&queue.max_offset):
            return False
        if queue_read(&self.queues, number, offset, 1, entry) != 1:
            return False
        item[0] = entry_decode(entry)
        return item.record_size != CQ_FILLER_RECORD_SIZE and item.record_size > 0

    def entry(self, str topic, int queue_id, int64_t offset):
        """(position, size, tag code) at a queue offset, or None outside the range."""
        cdef QueueItem item
        if not self.item(self.find(topic, queue_id), offset, &item):
            return None
        return (item.log_position, item.record_size, item.tag_code)

    def walk(self, str topic, int queue_id, int64_t offset, int64_t count) -> tuple[int, int]:
        """
        Walk up to `count` entries of a queue from `offset` on, as a pull does: (entries that point at
        records, bytes of those records). Fillers are passed over; a file that is gone ends the walk.
        """
        cdef uint8_t entries[WALK_ENTRIES * CQ_ENTRY_SIZE]
        cdef int32_t number = self.find(topic, queue_id)
        cdef int64_t end, found = 0, size = 0
        cdef int32_t got, i
        cdef QueueItem item
        if number < 0:
            return (0, 0)
        offset = max(offset, load_i64_acquire(&self.shm.queues[number].min_offset))
        end = min(load_i64_acquire(&self.shm.queues[number].max_offset), offset + count)
        with nogil:
            while offset < end:
                got = queue_read(&self.queues, number, offset,
                                 <int32_t>min(<int64_t>WALK_ENTRIES, end - offset), entries)
                if got <= 0:
                    break
                for i in range(got):
                    item = entry_decode(entries + i * CQ_ENTRY_SIZE)
                    if 0 < item.record_size < CQ_FILLER_RECORD_SIZE:
                        found += 1
                        size += item.record_size
                offset += got
        return (found, size)

    def record(self, int64_t position):
        """The whole record that starts at `position`, or None when there is none."""
        cdef int64_t end = load_i64_acquire(&self.shm.log.published)
        cdef const uint8_t* at
        cdef RecordView view
        cdef int64_t available
        log_next_use(self.log)
        at = log_at(self.log, position, RECORD_FIXED_SIZE, end)
        if at == NULL:
            return None
        available = min(end, (position // self.log.segment_size + 1) * self.log.segment_size)
        if log_record(self.log, at, available - position, position, &view) != PARSE_RECORD:
            return None
        return (<const char*>at)[:view.size]

    def named_record(self, int64_t position):
        """
        The same where a peer names the position: None also for what only looks like a record, and
        for one that its queue no longer has (mqcore/store/log/named.pxd).
        """
        cdef const uint8_t* at = NULL
        cdef RecordView view
        cdef int i
        cdef int found = NAMED_LATER
        with nogil:
            for i in range(LOOKS_MAX):
                found = named_record(&self.named, position, &view, &at)
                if found != NAMED_LATER:
                    break
        return (<const char*>at)[:view.size] if found == NAMED_RECORD else None

    cdef int64_t time_of(self, int64_t position):
        cdef int64_t end = load_i64_acquire(&self.shm.log.published)
        cdef const uint8_t* at
        cdef RecordView view
        cdef int64_t available = min(end, (position // self.log.segment_size + 1)
                                     * self.log.segment_size) - position
        log_next_use(self.log)
        at = log_at(self.log, position, min(<int64_t>RECORD_FIXED_SIZE, available), end)
        if at == NULL or record_parse(at, available, &view) != PARSE_RECORD:
            return -1
        return view.store_time_ms

    def store_time(self, str topic, int queue_id, int64_t offset) -> int:
        """When the message at a queue offset was stored; -1 when there is none."""
        cdef QueueItem item
        if not self.item(self.find(topic, queue_id), offset, &item):
            return -1
        return self.time_of(item.log_position)

    def offset_by_time(self, str topic, int queue_id, int64_t timestamp_ms) -> int:
        """
        The queue offset whose store time is nearest to `timestamp_ms`, the earlier of two that are
        equally near (store.md 3.5, over the whole queue instead of one file); 0 for an empty queue.
        """
        cdef int32_t number = self.find(topic, queue_id)
        cdef int64_t low, high, middle, time_ms, first
        cdef int64_t left_time = -1, right_time = -1
        cdef QueueItem item
        if number < 0:
            return 0
        low = first = load_i64_acquire(&self.shm.queues[number].min_offset)
        high = load_i64_acquire(&self.shm.queues[number].max_offset)
        if low >= high:
            return 0
        while low < high:                      # the first offset stored at or after the time
            middle = (low + high) // 2
            time_ms = self.time_of(item.log_position) if self.item(number, middle, &item) else -1
            if time_ms < timestamp_ms:
                low = middle + 1
                left_time = time_ms
            else:
                high = middle
                right_time = time_ms
        if right_time < 0:                     # all are earlier: the last one, not the end
            return low - 1
        if right_time == timestamp_ms or low == first or left_time < 0:
            return low
        return low - 1 if timestamp_ms - left_time <= right_time - timestamp_ms else low

    def in_memory(self, int64_t position) -> bool:
        """Whether a record lies near enough to the log's end to count as in memory."""
        return load_i64_acquire(&self.shm.log.published) - position <= self.memory_bytes
