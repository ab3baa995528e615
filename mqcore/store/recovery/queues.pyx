"""Loads, checks and cuts the consume queues at a start (queues.pxd has its rules)."""
import os
from pathlib import Path

from libc.errno cimport errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset
from posix.fcntl cimport O_CLOEXEC, O_RDONLY

from mqcore.atomics cimport store_i64_release
from mqcore.layout cimport (
    CQ_ENTRY_SIZE,
    CQ_FILLER_RECORD_SIZE,
    QueueEntry,
)
from mqcore.shm.segment cimport Segment
from mqcore.shm.tables cimport QUEUE_REFUSED, name_hash, queue_find_or_add, queue_hash
from mqcore.store import files as disk
from mqcore.store.paths import FILE_NAME, queue_folder, queue_folders, queue_names, remove_queue
from mqcore.store.queue.consume_queue cimport QueueItem, entry_decode
from mqcore.store.io cimport store_io
from mqcore.store.log.view cimport LogView, log_next_use, log_segment
from mqcore.store.record cimport (
    PARSE_RECORD,
    PropertyItem,
    RecordView,
    item_is,
    property_next,
    record_parse,
    tag_code,
)
from mqcore.store.topic_names cimport is_schedule_topic

from mqcore.store.recovery.errors import DamagedStoreError, what_to_do
from mqcore.store.recovery.readers import side_by_side

cdef enum:
    READERS = 16                      # threads that wait for the disk
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
        return str(queue_folder(Path(self.folder), *self.name(number)))

    cdef QueueEntry* enter(self, bytes topic, int32_t queue_id) except NULL:
        cdef const uint8_t* name = topic
        cdef int32_t length = <int32_t>len(topic)
        cdef int32_t number = queue_find_or_add(self.shm, name, length, queue_id,
                                                queue_hash(name_hash(name, length, 0), queue_id))
        if number == QUEUE_REFUSED:
            raise DamagedStoreError(f"{self.folder}: queue {queue_id} of topic {topic!r}: no queue "
                                    "may be called so")
        if number < 0:
            raise DamagedStoreError(
                f"{self.folder}: more queues than processes.queue_count_max")
        return &self.shm.queues[number]

    def remove_all(self) -> None:
        """Without a log they point nowhere (store.md 9.3). What is foreign in the folders stays."""
        root = Path(self.folder)
        for topic, queue_id, folder in list(queue_folders(root)):
            remove_queue(root, topic, queue_id, None)
            if not folder.parent.is_symlink() and not os.listdir(folder.parent):
                disk.calls.remove_folder(folder.parent)

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
        side_by_side(self.load_queues, [(numbers[at::READERS],)
                                        for at in range(min(READERS, len(numbers)))])
        for number in range(self.shm.head.queue_count):
            furthest = max(furthest, self.found[number].last_end)
        return furthest

    def judge_beyond(self, log_folders) -> None:
        """
        After `load`, in the boot that wrote the log: each segment is there that an entry points
        into. Raises DamagedStoreError.
        """
        if self.beyond > 0:
            raise DamagedStoreError(
                f"{log_folders}: a consume queue points to log position {self.beyond}, and there is "
                f"no segment behind {self.limit}: records are gone. {what_to_do(log_folders)}")

    def on_disk(self) -> list[int]:
        """The numbers of the queues that have a folder and are not as known."""
        numbers = []
        cdef int32_t number
        for topic, queue_id in queue_names(Path(self.folder)):
            number = <int32_t>(self.enter(os.fsencode(topic), queue_id) - self.shm.queues)
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
        return sorted([(int(f.name), f.path) for f in os.scandir(path)
                       if FILE_NAME.fullmatch(f.name) and int(f.name) < 1 << 63])

    def contiguous(self, list files) -> list[tuple[int, str]]:
        """Those of a queue's files that follow one another, all but the last full: Y2."""
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
                if item.record_size > 0 and item.log_position >= self.limit:
                    self.beyond = item.log_position
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
        if 0 <= item.log_position < self.shm.log.first:
            return item.record_size > 0                    # its record has expired
        if item.log_position < 0 or item.record_size <= 0 or (
                item.log_position + item.record_size > self.log_end):
            return False
        left = (item.log_position // self.shm.head.segment_size + 1) * self.shm.head.segment_size
        log_next_use(self.log)
        at = log_segment(self.log, item.log_position)
        if at == NULL or record_parse(at, left - item.log_position, &record) != PARSE_RECORD or (
                record.log_position != item.log_position or record.size != item.record_size):
            return False
        properties = record.properties
        while property_next(&properties, record.properties + record.properties_length, &property):
            if item_is(&property, "TAGS"):
                tags = tag_code(property.value, property.value_length)
            elif item_is(&property, "INNER_MULTI_DISPATCH"):
                listed = True
        if record.topic_length != queue.topic_length or memcmp(
                record.topic, queue.topic, record.topic_length) != 0:
            return listed              # of the topic sent to, which lists this one (store.md 2.11)
        if record.queue_id != queue.queue_id or record.queue_offset != offset:
            return False
        return (item.tag_code == tags or item.tag_code < TAG_LOWEST
                or is_schedule_topic(queue.topic, queue.topic_length))
