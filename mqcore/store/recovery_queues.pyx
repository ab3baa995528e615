"""Loads, checks and cuts the consume queues at a start (recovery_queues.pxd has its rules)."""
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from libc.errno cimport errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from mqcore.atomics cimport store_i64_release
from mqcore.layout cimport (
    CQ_ENTRY_SIZE,
    CQ_FILLER_RECORD_SIZE,
    TOPIC_LENGTH_MAX,
    QueueEntry,
)
from mqcore.shm.segment cimport Segment
from mqcore.shm.tables cimport name_hash, queue_find_or_add, queue_hash
from mqcore.store import files as disk
from mqcore.store.consume_queue cimport QueueItem, entry_decode
from mqcore.store.io cimport store_io
from mqcore.store.log_view cimport LogView, log_next_use, log_segment
from mqcore.store.record cimport (
    PARSE_RECORD,
    PropertyItem,
    RecordView,
    item_is,
    property_next,
    record_parse,
    tag_code,
)
from mqcore.store.recovery_errors import DamagedStoreError

cdef extern from "<fcntl.h>" nogil:
    int O_RDONLY
    int O_CLOEXEC

cdef enum:
    READERS = 16                      # threads that wait for the disk
    CHUNK_ENTRIES = 1024              # read at a time
    TAG_LOWEST = -2147483648          # what lies below is an ext address


cdef class QueueRecovery:
    """
    The consume queues below `folder`, entered into the segment's queue table.

    file_entries: entries of one file.
    """

    def __cinit__(self, Segment segment not None, str folder not None, int64_t file_entries,
                  *_more):
        cdef int32_t number
        self.segment = segment
        self.shm = &segment.shm
        self.folder = folder
        self.folder_path = os.fsencode(folder)
        self.folder_text = self.folder_path
        self.file_entries = file_entries
        self.found = <FoundQueue*>calloc(self.shm.head.queue_capacity, sizeof(FoundQueue))
        if self.found == NULL:
            raise MemoryError
        for number in range(self.shm.head.queue_capacity):
            self.found[number].first_file = -1
            self.found[number].first_position = -1

    def __dealloc__(self):
        free(self.found)

    cdef void use_log(self, LogView* log):
        self.log = log

    @property
    def count(self) -> int:
        return self.shm.head.queue_count

    def name(self, int32_t number) -> tuple[str, int]:
        cdef QueueEntry* entry = &self.shm.queues[number]
        return os.fsdecode(<bytes>entry.topic[:entry.topic_length]), entry.queue_id

    def path(self, int32_t number) -> str:
        topic, queue_id = self.name(number)
        return os.path.join(self.folder, topic, str(queue_id))

    cdef QueueEntry* enter(self, bytes topic, int32_t queue_id) except NULL:
        cdef const uint8_t* name = topic
        cdef int32_t length = <int32_t>len(topic)
        cdef int32_t number = queue_find_or_add(self.shm, name, length, queue_id,
                                                queue_hash(name_hash(name, length, 0), queue_id))
        if number < 0:
            raise DamagedStoreError(
                f"{self.folder}: more queues than processes.queue_count_max")
        return &self.shm.queues[number]

    def remove_all(self) -> None:
        """Without a log they point nowhere (store.md 9.3)."""
        if os.path.isdir(self.folder):
            disk.remove_tree(Path(self.folder))

    # -- what is there -----------------------------------------------------------------------------

    def load(self, int64_t limit) -> int:
        """
        Enter every queue on disk that is not as known; entries point below `limit`, in bytes of
        the log. Returns the end of the last entry's record, over all queues.
        """
        cdef int64_t furthest = 0
        cdef int32_t number
        self.limit = self.log_end = limit
        numbers = self.on_disk()
        with ThreadPoolExecutor(READERS) as readers:       # a cold disk answers many at once
            for done in [readers.submit(self.load_queues, numbers[at::READERS])
                         for at in range(READERS)]:
                done.result()
        for number in range(self.shm.head.queue_count):
            furthest = max(furthest, self.found[number].last_end)
        return furthest

    def on_disk(self) -> list[int]:
        """The numbers of the queues that have a folder and are not as known."""
        numbers = []
        cdef int32_t number
        if not os.path.isdir(self.folder):
            return numbers
        for topic in os.scandir(self.folder):
            name = os.fsencode(topic.name)
            if not 1 <= len(name) <= TOPIC_LENGTH_MAX or not topic.is_dir():
                continue
            for queue in os.scandir(topic.path):
                if queue.name.isdigit() and int(queue.name) < 1 << 31 and queue.is_dir():
                    number = <int32_t>(self.enter(name, int(queue.name)) - self.shm.queues)
                    if not self.found[number].known:
                        numbers.append(number)
        return numbers

    def load_queues(self, list numbers) -> None:
        for number in numbers:
            self.load_queue(number)

    def load_queue(self, int32_t number) -> None:
        """One queue's range from its files. Raises OSError."""
        cdef QueueEntry* entry = &self.shm.queues[number]
        cdef FoundQueue* found = &self.found[number]
        cdef int64_t count = 0, last_end = 0
        cdef bint zeros = False
        every = self.numbered(self.path(number))
        files = self.contiguous(every)
        found.last_end = 0
        found.first_file = files[0][0] // CQ_ENTRY_SIZE if files else -1
        for start, name in reversed(files):
            count, last_end, zeros = self.valid_entries(name)
            if count or start == files[0][0]:
                store_i64_release(&entry.max_offset, <int64_t>start // CQ_ENTRY_SIZE + count)
                found.last_end = last_end
                found.tidy = zeros and start == every[len(every) - 1][0]
                break
        if files:
            least, found.first_position = self.first_entry(*files[0])
            store_i64_release(&entry.min_offset, least)

    def numbered(self, str path) -> list[tuple[int, str]]:
        """(start in bytes, path) of a queue's files, ascending."""
        return sorted((int(f.name), f.path) for f in os.scandir(path) if f.name.isdigit())

    def contiguous(self, list files) -> list[tuple[int, str]]:
        """Those of a queue's files that follow one another, all but the last full: K2."""
        cdef int64_t size = self.file_entries * CQ_ENTRY_SIZE
        for at, (start, name) in enumerate(files):
            if at + 1 < len(files) and (files[at + 1][0] != start + size
                                        or not self.is_full(name)):
                return files[:at + 1]
        return files

    cdef bint is_full(self, str path) except -1:
        cdef uint8_t raw[CQ_ENTRY_SIZE]
        name = os.fsencode(path)
        return (self.read_entries(name, self.file_entries - 1, 1, raw) == 1
                and entry_decode(raw).record_size > 0)

    cdef int64_t read_entries(self, const char* path, int64_t first, int64_t count,
                              uint8_t* entries) noexcept nogil:
        """How many whole entries from a file's entry `first` on were read, -1: errno."""
        cdef int fd = store_io().open_file(path, O_RDONLY | O_CLOEXEC, 0)
        cdef ssize_t got
        if fd < 0:
            return -1
        got = store_io().read_at(fd, entries, count * CQ_ENTRY_SIZE, first * CQ_ENTRY_SIZE)
        store_io().close_file(fd)
        return got // CQ_ENTRY_SIZE if got >= 0 else -1

    def valid_entries(self, str path) -> tuple[int, int, bool]:
        """
        (entries at the start of a file that point below limit, end of the last one's record, whether
        zeros or the file's end follow). Raises OSError.
        """
        cdef QueueItem last = QueueItem(log_position=0, record_size=0, tag_code=0)
        cdef bint zeros = False
        cdef int64_t count
        name = os.fsencode(path)
        cdef const char* text = name
        cdef int fd
        with nogil:
            fd = store_io().open_file(text, O_RDONLY | O_CLOEXEC, 0)
            count = self.search_end(fd, &last, &zeros) if fd >= 0 else -1
            if fd >= 0:
                store_io().close_file(fd)
        if count < 0:
            raise OSError(errno, os.strerror(errno), path)
        if last.record_size <= 0 or last.record_size == CQ_FILLER_RECORD_SIZE:
            return count, 0, zeros
        return count, last.log_position + last.record_size, zeros

    cdef int64_t search_end(self, int fd, QueueItem* last, bint* zeros_behind) noexcept nogil:
        """Entries before the end are whole, behind it zero; -1: errno."""
        cdef int64_t low = 0, high = self.file_entries, middle
        cdef uint8_t raw[CQ_ENTRY_SIZE]
        cdef uint8_t behind[CQ_ENTRY_SIZE]
        cdef QueueItem item
        cdef ssize_t got
        memset(behind, 0, CQ_ENTRY_SIZE)                   # of entry `high`
        while low < high:
            middle = (low + high) // 2
            got = store_io().read_at(fd, raw, CQ_ENTRY_SIZE, middle * CQ_ENTRY_SIZE)
            if got < 0:
                return -1
            if got < CQ_ENTRY_SIZE:            # a short file: not as it should be
                high = middle
                behind[0] = 1
                continue
            item = entry_decode(raw)
            if item.record_size > 0 and (item.record_size == CQ_FILLER_RECORD_SIZE
                                         or item.log_position + item.record_size <= self.limit):
                low = middle + 1
                last[0] = item
            else:
                high = middle
                memcpy(behind, raw, CQ_ENTRY_SIZE)
        zeros_behind[0] = True
        for middle in range(CQ_ENTRY_SIZE):
            if behind[middle] != 0:
                zeros_behind[0] = False
        return low

    def first_entry(self, int64_t start, str path) -> tuple[int, int]:
        """
        (queue offset, log position) of the first entry of the first file that points into the log;
        the file's begin and -1: none does.
        """
        cdef int64_t first = self.shm.log.first
        cdef QueueItem item
        cdef const uint8_t* entry
        cdef uint8_t one[CQ_ENTRY_SIZE]
        cdef int64_t i, at = 0
        text = os.fsencode(path)
        if self.read_entries(text, 0, 1, one) == 1:
            item = entry_decode(one)
            if 0 < item.record_size < CQ_FILLER_RECORD_SIZE and item.log_position >= first:
                return start // CQ_ENTRY_SIZE, item.log_position
        with open(path, "rb", buffering=0) as file:
            while True:
                raw = os.pread(file.fileno(), CHUNK_ENTRIES * CQ_ENTRY_SIZE, at * CQ_ENTRY_SIZE)
                entry = raw
                for i in range(<int64_t>len(raw) // CQ_ENTRY_SIZE):
                    item = entry_decode(entry + i * CQ_ENTRY_SIZE)
                    if item.record_size <= 0:
                        return start // CQ_ENTRY_SIZE, -1
                    if item.record_size != CQ_FILLER_RECORD_SIZE and item.log_position >= first:
                        return start // CQ_ENTRY_SIZE + at + i, item.log_position
                at += CHUNK_ENTRIES
                if len(raw) < CHUNK_ENTRIES * CQ_ENTRY_SIZE:
                    return start // CQ_ENTRY_SIZE, -1

    # -- against the log ---------------------------------------------------------------------------

    cdef bint entry_is_right(self, int32_t number, int64_t offset,
                             const QueueItem* item) noexcept nogil:
        """Whether the record that an entry points to is the one of this queue and number."""
        cdef QueueEntry* queue = &self.shm.queues[number]
        cdef int64_t left
        cdef const uint8_t* at
        cdef const uint8_t* properties
        cdef RecordView record
        cdef PropertyItem property
        cdef int64_t tags = 0
        cdef bint listed = False
        if item.record_size == CQ_FILLER_RECORD_SIZE and item.log_position == 0:
            return True
        if item.log_position < self.shm.log.first:
            return item.record_size > 0                    # its record has expired
        if item.record_size <= 0 or item.log_position + item.record_size > self.log_end:
            return False
        left = (item.log_position // self.shm.head.segment_size + 1) * self.shm.head.segment_size
        log_next_use(self.log)
        at = log_segment(self.log, item.log_position)
        if at == NULL or record_parse(at, left - item.log_position, &record) != PARSE_RECORD or (
                record.log_position != item.log_position or record.size != item.record_size):
            return False
        properties = record.properties
        while property_next(&properties, record.properties + record.properties_length, &property):
            if item_is(&property, "TAGS", 4):
                tags = tag_code(property.value, property.value_length)
            elif item_is(&property, "INNER_MULTI_DISPATCH", 20):
                listed = True
        if record.topic_length != queue.topic_length or memcmp(
                record.topic, queue.topic, record.topic_length) != 0:
            return listed              # of the topic that was sent to, which lists this one (2.11)
        if record.queue_id != queue.queue_id or record.queue_offset != offset:
            return False
        return item.tag_code == tags or item.tag_code < TAG_LOWEST or (
            queue.topic_length == 19 and memcmp(
                queue.topic, <const char*>b"SCHEDULE_TOPIC_XXXX", 19) == 0)

    # -- cutting -----------------------------------------------------------------------------------

    def remove(self, int32_t number) -> None:
        """Delete a queue's files: dispatch writes them anew (K3)."""
        cdef FoundQueue* found = &self.found[number]
        path = self.path(number)
        if os.path.isdir(path):
            disk.remove_tree(Path(path))
        found.first_file = found.first_position = -1
        found.last_end = 0
        store_i64_release(&self.shm.queues[number].max_offset, 0)
        store_i64_release(&self.shm.queues[number].min_offset, 0)

    def cut_at(self, int32_t number, int64_t end) -> None:
        """Leave a queue's entries below the queue offset `end`."""
        cdef QueueEntry* entry = &self.shm.queues[number]
        cdef int64_t start, first
        cdef QueueItem item
        cdef const uint8_t* raw_entry
        path = self.path(number)
        if end <= self.found[number].first_file or not os.path.isdir(path):
            self.remove(number)
            return
        first = (end - 1) // self.file_entries * self.file_entries
        for file in os.scandir(path):
            start = int(file.name) // CQ_ENTRY_SIZE if file.name.isdigit() else 0
            if start > first:
                disk.unlink(file.path)
            elif start == first:
                self.zero_behind(file.path, end - first, False)
        with open(os.path.join(path, f"{first * CQ_ENTRY_SIZE:020d}"), "rb", 0) as content:
            raw = os.pread(content.fileno(), CQ_ENTRY_SIZE, (end - 1 - first) * CQ_ENTRY_SIZE)
        raw_entry = raw
        item = entry_decode(raw_entry)
        self.found[number].last_end = (
            0 if item.record_size == CQ_FILLER_RECORD_SIZE
            else item.log_position + item.record_size)
        store_i64_release(&entry.max_offset, end)
        if entry.min_offset > end:
            store_i64_release(&entry.min_offset, end)

    def cut_below(self, int64_t below, int64_t end, bint trusted) -> int:
        """
        Leave in the queues only entries of records below `below`; returns the queue count. end: of
        the log.

        trusted: no crash came before, what is there is whole. After a crash `below` is where dispatch
        begins again: pages behind that may have reached the disk in any order, or in part, and every
        entry of theirs is written anew.
        """
        cdef int32_t number
        cdef QueueEntry* entry
        self.limit = below
        self.log_end = end
        for number in range(self.shm.head.queue_count):
            entry = &self.shm.queues[number]
            if not (self.found[number].last_end <= below and (
                    self.found[number].known or (trusted and self.found[number].tidy))):
                path = self.path(number)
                if self.found[number].first_file >= 0 and os.path.isdir(path):
                    self.cut_queue(number, path, trusted)
            if entry.next_offset < entry.max_offset:
                store_i64_release(&entry.next_offset, entry.max_offset)
        return self.shm.head.queue_count

    def cut_queue(self, int32_t number, str path, bint trusted) -> None:
        """Cut one queue: its files up to the last entry of a record below the limit stay."""
        cdef QueueEntry* entry = &self.shm.queues[number]
        cdef int64_t count = 0, max_offset = 0, last_end = 0
        every = self.numbered(path)
        files = self.contiguous(every)
        cdef Py_ssize_t at = len(files) - 1
        while at >= 0:
            count, last_end, *_ = (self.valid_entries(files[at][1]) if trusted
                                   else self.entries_in_order(number, *files[at]))
            if count or at == 0:
                break
            at -= 1
        if at == 0 and count == 0 and files[0][0] > 0 and self.found[number].cut:
            self.remove(number)                # all its entries are written anew, earlier ones too
            return
        if at >= 0:
            max_offset = <int64_t>files[at][0] // CQ_ENTRY_SIZE + count
            self.zero_behind(files[at][1], count, trusted)
        for _, name in every[at + 1:]:
            disk.unlink(name)
        self.found[number].last_end = last_end
        store_i64_release(&entry.max_offset, max_offset)
        if entry.min_offset > max_offset:
            store_i64_release(&entry.min_offset, max_offset)

    def entries_in_order(self, int32_t number, int64_t start, str path) -> tuple[int, int]:
        """
        (entries from the start of a file that point below the limit, each behind the one before,
        end of the last one's record): what was on disk before a crash, whatever the disk did with
        later pages.
        """
        cdef QueueItem item
        cdef const uint8_t* entry
        cdef int64_t i, count = 0, behind = 0
        with open(path, "rb", buffering=0) as file:
            while count < self.file_entries:
                raw = os.pread(file.fileno(), CHUNK_ENTRIES * CQ_ENTRY_SIZE, count * CQ_ENTRY_SIZE)
                entry = raw
                for i in range(<int64_t>len(raw) // CQ_ENTRY_SIZE):
                    item = entry_decode(entry + i * CQ_ENTRY_SIZE)
                    if item.record_size == CQ_FILLER_RECORD_SIZE and item.log_position == 0:
                        continue
                    if item.record_size <= 0 or item.log_position < behind or (
                            item.log_position + item.record_size > self.limit):
                        self.found[number].cut |= self.entry_is_right(
                            number, start // CQ_ENTRY_SIZE + count + i, &item) or (
                                item.log_position >= self.log_end and self.known_end > self.log_end)
                        return count + i, behind
                    behind = item.log_position + item.record_size
                count += <int64_t>len(raw) // CQ_ENTRY_SIZE
                if len(raw) < CHUNK_ENTRIES * CQ_ENTRY_SIZE:
                    break
        return count, behind

    def zero_behind(self, str path, int64_t count, bint trusted) -> None:
        """
        Bytes behind the last valid entry must be zero: they would count as entries next time.
        trusted: they are, if the next entry is.
        """
        cdef int64_t used = count * CQ_ENTRY_SIZE, size = self.file_entries * CQ_ENTRY_SIZE
        with open(path, "r+b", buffering=0) as file:
            behind = os.pread(file.fileno(), CQ_ENTRY_SIZE, used)
            if not trusted or behind.count(0) != len(behind):
                disk.calls.truncate(file.fileno(), used)
            disk.calls.truncate(file.fileno(), size)
