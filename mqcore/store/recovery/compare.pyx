"""
Compares the consume queues with what the last run left, or with the log (queues.pxd has the
rules): which queues are missing, behind, begin too late, or hold entries that are not the log's.
"""
import os

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport strlen
from posix.fcntl cimport O_CLOEXEC, O_RDONLY

from mqcore.atomics cimport load_i32_acquire, load_i64_acquire, store_i64_release
from mqcore.layout cimport (
    CQ_ENTRY_SIZE,
    CQ_FILLER_RECORD_SIZE,
    SYS_FLAG_COMMIT,
    SYS_FLAG_TRANSACTION_MASK,
    QueueEntry,
)
from mqcore.names cimport is_queue_place
from mqcore.shm.segment cimport Segment, Shm
from mqcore.shm.tables cimport name_hash, queue_find, queue_hash
from mqcore.store.queue.as_left cimport files_as_left, folder_as_left, root_as_left, topic_as_left
from mqcore.store.queue.consume_queue cimport QueueItem, entry_decode, queue_file_path
from mqcore.store.queue.lives cimport is_marker, lives_end
from mqcore.store.io cimport store_io
from mqcore.store.log.view cimport LOG_PATH_MAX, log_next_use, log_segment
from mqcore.store.recovery.queue_ends import Hints, QueueEnds
from mqcore.store.recovery.readers import side_by_side
from mqcore.store.record cimport (
    PARSE_BLANK,
    PARSE_RECORD,
    RecordView,
    record_check,
    record_parse,
)
from mqcore.store.recovery.cut cimport QueueCutting
from mqcore.store.recovery.queues cimport CHUNK_ENTRIES, FoundQueue
from mqcore.store.topic_names cimport LIVES_TOPIC
from mqcore.wire.codes import UNLISTED_BEGINNINGS

cdef enum:
    COMPARERS = 64                    # threads that wait for the disk
    STRANGERS_MAX = 10000             # queues of the log that have no files, noted by name

NO_LIFE = 0x7FFFFFFFFFFFFFFF
cdef int64_t TIMES_UNKNOWN = 0x7FFFFFFFFFFFFFFF      # no file is younger


cdef class QueueComparison(QueueCutting):
    """
    The consume queues at a start, with what they have to hold.

    stretch_bytes: of the log, at each end, held against the queues when the last run left no word.
    """

    def __init__(self, Segment segment not None, str folder not None, int64_t file_entries,
                 int64_t stretch_bytes):
        self.stretch_bytes = stretch_bytes

    # -- what the last run left --------------------------------------------------------------------

    def learn(self, ends: QueueEnds) -> None:
        """Enter the queues that the last run left, and what they held."""
        cdef const int32_t[::1] topics = memoryview(ends.topic_numbers).cast("i")
        cdef const int32_t[::1] ids = memoryview(ends.queue_ids).cast("i")
        cdef const int64_t[::1] least = memoryview(ends.min_offsets).cast("q")
        cdef const int64_t[::1] most = memoryview(ends.max_offsets).cast("q")
        cdef list names = ends.topics
        cdef bytes name
        self.known_first = ends.first
        self.known_end = ends.end
        cdef Py_ssize_t i
        cdef int32_t number
        for i in range(ids.shape[0]):
            name = names[topics[i]]
            if not is_queue_place(<const uint8_t*><const char*>name, <int32_t>len(name), ids[i]):
                continue               # an earlier version may have had such a one
            number = <int32_t>(self.enter(name, ids[i]) - self.shm.queues)
            self.found[number].known_min = least[i]
            self.found[number].known_max = most[i]

    # queues Y1
    cdef bint as_known(self, int32_t number, int64_t unchanged_ns, bint in_place) noexcept nogil:
        cdef FoundQueue* found = &self.found[number]
        cdef char path[LOG_PATH_MAX]
        cdef uint8_t raw[2 * CQ_ENTRY_SIZE]
        cdef int64_t newest = found.known_max - 1
        cdef int64_t last = newest // self.file_entries * self.file_entries
        cdef int64_t wanted = 2 if newest + 1 < last + self.file_entries else 1
        cdef int64_t got, i
        cdef QueueItem item
        cdef int fd
        found.first_file = min(found.known_min, newest) // self.file_entries * self.file_entries
        if not files_as_left(self.folder_text, &self.shm.queues[number], self.file_entries,
                             found.known_min, found.known_max, unchanged_ns, in_place):
            return False
        if unchanged_ns < TIMES_UNKNOWN and in_place:
            return True                # nobody has written since: what is there is what we wrote
        queue_file_path(path, self.folder_text, &self.shm.queues[number], last)
        fd = store_io().open_file(path, O_RDONLY | O_CLOEXEC, 0)
        if fd < 0:
            return False
        got = store_io().read_at(fd, raw, wanted * CQ_ENTRY_SIZE, (newest - last) * CQ_ENTRY_SIZE)
        store_io().close_file(fd)
        if got != wanted * CQ_ENTRY_SIZE:
            return False
        item = entry_decode(raw)
        if item.record_size <= 0 or item.record_size == CQ_FILLER_RECORD_SIZE or (
                item.log_position < 0 or item.log_position + item.record_size > self.limit):
            return False
        for i in range(CQ_ENTRY_SIZE, got):
            if raw[i] != 0:
                return False
        found.last_end = item.log_position + item.record_size
        return True

    def load_known(self, ends: QueueEnds, int64_t limit) -> None:
        """
        After a clean stop of ours: the queues that are as they were left need no closer look now. Times
        of files count when `ends` knows them; where nobody has copied the store, those of the folders
        are enough (as_left Y4).
        """
        self.limit = self.log_end = limit
        self.look_at_all(ends, ends.by_folders, False)

    def doubt(self, ends: QueueEnds) -> None:
        """
        After a crash of a run that may not have looked at all files that it believed by their folders:
        mark the queues whose files are younger than the stop before it.
        """
        self.look_at_all(ends, False, True)

    def look_at_all(self, ends: QueueEnds, bint by_folders, bint doubts) -> None:
        side_by_side(self.look_at_part, [          # best for neighbours
            (first, ends.unchanged_ns or TIMES_UNKNOWN, ends.in_place, by_folders, doubts)
            for first in range(min(COMPARERS, self.shm.head.queue_count))])

    def look_at_part(self, int32_t first, int64_t unchanged_ns, bint in_place, bint by_folders,
                     bint doubts) -> None:
        cdef int32_t number = first
        cdef FoundQueue* found
        cdef QueueEntry* queue
        cdef bint as_left
        cdef bint root_moved = not root_as_left(self.folder_text, unchanged_ns, in_place)
        with nogil:
            while number < self.shm.head.queue_count:
                found = &self.found[number]
                queue = &self.shm.queues[number]
                number += COMPARERS
                if found.known_max <= 0:
                    continue
                as_left = (folder_as_left(self.folder_text, queue, unchanged_ns) if by_folders
                           else self.as_known(number - COMPARERS, unchanged_ns, in_place))
                if doubts:
                    found.doubted = not as_left
                elif as_left:
                    found.known = True
                    found.moved = root_moved or not topic_as_left(
                        self.folder_text, queue, unchanged_ns, in_place)
                    store_i64_release(&queue.min_offset, found.known_min)
                    store_i64_release(&queue.max_offset, found.known_max)
                    if by_folders:
                        store_i64_release(&queue.left_ns, unchanged_ns)

    # -- against the log ---------------------------------------------------------------------------

    cdef int64_t first_wrong(self, int32_t number) noexcept nogil:
        """The first queue offset whose entry is not the log's, or cannot be read; max_offset: none."""
        cdef QueueEntry* queue = &self.shm.queues[number]
        cdef int64_t offset = queue.min_offset, end = queue.max_offset, first, i, part
        cdef uint8_t raw[CHUNK_ENTRIES * CQ_ENTRY_SIZE]
        cdef char path[LOG_PATH_MAX]
        cdef QueueItem item
        while offset < end:
            first = offset // self.file_entries * self.file_entries
            part = min(min(first + self.file_entries, end) - offset, <int64_t>CHUNK_ENTRIES)
            queue_file_path(path, self.folder_text, queue, first)
            part = self.read_entries(path, offset - first, part, raw)
            if part <= 0:
                return offset
            for i in range(part):
                item = entry_decode(raw + i * CQ_ENTRY_SIZE)
                if not self.entry_is_right(number, offset + i, &item):
                    return offset + i
            offset += part
        return end

    cdef bint last_is_right(self, int32_t number) noexcept nogil:
        """Whether a queue's newest entry is the log's."""
        cdef int64_t newest = self.shm.queues[number].max_offset - 1
        cdef QueueItem item
        return self.read_entry(number, newest, &item) and self.entry_is_right(number, newest, &item)

    def distrust(self, bint whole, bint doubted=False) -> None:
        """
        Hold entries of the queues that are not as known against the log, the last of each or, when
        `whole`, all, and cut a queue at the first that is wrong; of those that are as known and
        moved the last. doubted: only of those.
        """
        cdef int32_t number
        cdef FoundQueue* found
        cdef QueueEntry* queue
        cdef int64_t wrong
        for number in range(self.shm.head.queue_count):
            queue = &self.shm.queues[number]
            if queue.max_offset <= queue.min_offset or (
                    doubted and not self.found[number].doubted):
                continue
            if self.found[number].known:
                if not self.found[number].moved or self.last_is_right(number):
                    continue
                found = &self.found[number]            # it is another queue's
                found.known = False
                found.first_file = min(found.known_min, found.known_max - 1)
                found.first_file -= found.first_file % self.file_entries
                store_i64_release(&queue.left_ns, 0)
            elif not whole and self.last_is_right(number):
                continue
            wrong = self.first_wrong(number)
            if wrong < queue.max_offset:
                self.cut_at(number, wrong)
                self.found[number].cut = False         # by the log's end; this is another matter

    # -- lives (queue/lives.pxd) -------------------------------------------------------------------

    def read_markers(self, int64_t limit) -> None:
        """
        Before records are read from `limit` on: end the lives that markers below it, which have
        their entries in the queue of markers, say have ended.
        """
        cdef int32_t length = <int32_t>strlen(LIVES_TOPIC)
        cdef int32_t number = queue_find(self.shm, <const uint8_t*>LIVES_TOPIC, length, 0, queue_hash(
            name_hash(<const uint8_t*>LIVES_TOPIC, length, 0), 0))
        cdef RecordView record
        cdef QueueItem item
        cdef int64_t offset
        if number < 0:
            return
        for offset in range(self.shm.queues[number].min_offset, self.shm.queues[number].max_offset):
            if self.read_entry(number, offset, &item) and self.read_record(&item, limit, &record) and (
                    is_marker(&record)):
                lives_end(self.shm, &record, False, True)

    def remove_dead(self) -> int:
        """
        Delete the files of lives that have ended. Returns the log position from which entries of the
        lives behind them are to be written, NO_LIFE: there are none.
        """
        cdef int64_t least = NO_LIFE
        cdef int32_t number
        cdef QueueEntry* queue
        for number in range(self.shm.head.queue_count):
            queue = &self.shm.queues[number]
            if 0 <= self.found[number].first_position < queue.restart_position:
                self.remove(number)
                least = min(least, queue.restart_position)
        return least

    cdef bint read_entry(self, int32_t number, int64_t offset, QueueItem* item) noexcept nogil:
        cdef int64_t first = offset // self.file_entries * self.file_entries
        cdef char path[LOG_PATH_MAX]
        cdef uint8_t raw[CQ_ENTRY_SIZE]
        queue_file_path(path, self.folder_text, &self.shm.queues[number], first)
        if self.read_entries(path, offset - first, 1, raw) != 1:
            return False
        item[0] = entry_decode(raw)
        return True

    cdef bint read_record(self, const QueueItem* item, int64_t limit,
                          RecordView* record) noexcept nogil:
        """The whole record of an entry that ends at `limit` at most; False: there is none."""
        cdef int64_t size = self.shm.head.segment_size, left
        cdef const uint8_t* at
        if item.log_position < self.shm.log.first or item.record_size <= 0 or (
                item.log_position + item.record_size > limit):
            return False
        left = (item.log_position // size + 1) * size - item.log_position
        log_next_use(self.log)
        at = log_segment(self.log, item.log_position)
        return at != NULL and record_check(at, left, item.log_position, record) == PARSE_RECORD

    def missing_from(self, int64_t end, bint clean) -> int:
        """
        The log position from which entries are missing that the last run had, `end`: none are. A
        queue that begins too late is removed, to be written anew. clean: what was learned is the
        last word; else it is what was on disk when the log ended at `known_end`.
        """
        cdef int64_t missing = end
        cdef int64_t first = self.shm.log.first
        cdef int32_t number
        cdef FoundQueue* found
        cdef QueueEntry* queue
        for number in range(self.shm.head.queue_count):
            found = &self.found[number]
            queue = &self.shm.queues[number]
            if found.known or found.known_max <= 0 or (
                    queue.restart_position > 0 and queue.restart_position >= self.known_end):
                continue                                   # as it was, or removed since
            if found.first_file > found.known_min // self.file_entries * self.file_entries or (
                    first == self.known_first and queue.min_offset > found.known_min):
                self.remove(number)
                found.cut = False
            if clean and queue.max_offset > found.known_max:
                self.cut_at(number, found.known_max)
            if queue.max_offset < found.known_max and not found.cut:
                missing = min(missing, max(first, found.last_end, queue.restart_position))
        return missing

    # -- without a word from the last run ----------------------------------------------------------

    def missing_by_log(self, int64_t end, hints: Hints) -> int:
        """
        As missing_from, from the log alone: its first and last `stretch_bytes` are held against the
        queues (a log that is no longer, as a whole), and so is the newest entry of each queue. A
        queue without files whose topic is gone was removed.
        """
        cdef int64_t first = self.shm.log.first
        cdef bint whole = end - first <= 2 * self.stretch_bytes
        cdef dict strangers = {}
        cdef int32_t number
        self.limit = end
        self.missing = end
        self.distrust(whole)
        if whole:
            self.compare(first, end, strangers)
        else:
            self.compare(first, first + self.stretch_bytes, strangers)
            self.compare(self.boundary(end - self.stretch_bytes, end), end, strangers)
        for topic, position in strangers.items():
            if (hints.topics is None or topic in hints.topics
                    or topic.startswith(UNLISTED_BEGINNINGS)):
                self.missing = min(self.missing, <int64_t>(position if whole else first))
        wanted = {name: offset for name, offset in hints.offsets.items()
                  if offset > 0 and (hints.topics is None or name[0] in hints.topics)}
        for number in range(self.shm.head.queue_count):
            if self.found[number].late:
                self.remove(number)
            if (self.shm.queues[number].max_offset < wanted.pop(self.name(number), 0)
                    and self.shm.queues[number].restart_position == 0):
                self.missing = min(self.missing, max(first, self.found[number].last_end))
        return first if wanted else self.missing

    cdef int64_t boundary(self, int64_t low, int64_t end):
        """The least position at or behind `low` of which it is known that a record begins there."""
        cdef int64_t size = self.shm.head.segment_size
        cdef int64_t best = (low + size - 1) // size * size
        cdef int32_t number
        if best > end:
            best = end
        for number in range(self.shm.head.queue_count):
            if low <= self.found[number].last_end < best:
                best = self.found[number].last_end
        return best

    cdef int compare(self, int64_t position, int64_t limit, dict strangers) except -1:
        """
        Hold the records in [position, limit) against the queues' ranges. Where no record can be
        read it stops: dispatch will say what is there, if it has to go there.
        """
        cdef int64_t size = self.shm.head.segment_size, left
        cdef const uint8_t* at
        cdef RecordView record
        cdef int result = PARSE_RECORD
        limit = min(limit, self.limit)
        while position < limit:
            left = (position // size + 1) * size - position
            log_next_use(self.log)
            at = log_segment(self.log, position)
            if at == NULL:
                raise OSError(self.log.failure, "commit log segment cannot be mapped")
            with nogil:
                while left > 0 and position < limit:
                    result = record_parse(at, left, &record)
                    if result != PARSE_RECORD:
                        break
                    if not self.is_held(&record, position):
                        with gil:
                            if len(strangers) < STRANGERS_MAX:
                                strangers.setdefault(
                                    os.fsdecode(<bytes>record.topic[:record.topic_length]), position)
                    at += record.size
                    position += record.size
                    left -= record.size
            if result == PARSE_BLANK:
                position = (position // size + 1) * size
                result = PARSE_RECORD
            elif result != PARSE_RECORD:
                return 0
        return 0

    cdef bint is_held(self, RecordView* record, int64_t position) noexcept nogil:
        """
        Whether the record's queue is there; notes what is missing in it. A number that lies in the
        queue's range, or before an entry of it in the log, is of it or of an earlier life.
        """
        cdef int32_t kind = record.sys_flag & SYS_FLAG_TRANSACTION_MASK
        cdef int32_t number
        cdef FoundQueue* found
        cdef QueueEntry* queue
        if kind != 0 and kind != SYS_FLAG_COMMIT:
            return True
        number = queue_find(self.shm, record.topic, record.topic_length, record.queue_id,
                            queue_hash(name_hash(record.topic, record.topic_length, 0),
                                       record.queue_id))
        if number < 0:                     # names O3: a record without a queue misses none
            return not is_queue_place(record.topic, record.topic_length, record.queue_id)
        found = &self.found[number]
        queue = &self.shm.queues[number]
        if position < queue.restart_position:
            return True
        if queue.max_offset == 0:
            return False
        if record.queue_offset < queue.min_offset and (
                found.first_position < 0 or position < found.first_position):
            found.late = True
            self.missing = min(self.missing, position)
        elif record.queue_offset >= queue.max_offset and position >= found.last_end:
            self.missing = min(self.missing, max(self.shm.log.first, found.last_end))
        return True


def queue_ends(Segment segment not None, index=(), *, bint stopped=False) -> QueueEnds:
    """
    The ends of all queues now, as the dispatcher has written them; index, stopped: see QueueEnds.
    For the dispatcher. A queue in the middle of its removal counts as removed.
    """
    cdef Shm* shm = &segment.shm
    cdef int64_t end = load_i64_acquire(&shm.log.dispatched)       # before the queues: they have more
    cdef int64_t first = load_i64_acquire(&shm.log.first)
    cdef int64_t flushed = load_i64_acquire(&shm.log.flushed)
    cdef int32_t count = load_i32_acquire(&shm.head.queue_count), number, used = 0
    cdef int64_t since_ns = 0
    cdef QueueEntry* entry
    cdef int32_t[::1] topics = memoryview(bytearray(4 * count + 4)).cast("i")
    cdef int32_t[::1] ids = memoryview(bytearray(4 * count + 4)).cast("i")
    cdef int64_t[::1] least = memoryview(bytearray(8 * count + 8)).cast("q")
    cdef int64_t[::1] most = memoryview(bytearray(8 * count + 8)).cast("q")
    cdef dict names = {}
    for number in range(count):
        entry = &shm.queues[number]
        if load_i32_acquire(&entry.removal_done) != load_i32_acquire(&entry.removal_begun):
            continue
        since_ns = max(since_ns, load_i64_acquire(&entry.left_ns))
        most[used] = load_i64_acquire(&entry.max_offset)
        least[used] = load_i64_acquire(&entry.min_offset)
        if most[used] <= 0:
            continue
        ids[used] = entry.queue_id
        topics[used] = names.setdefault(<bytes>entry.topic[:entry.topic_length], len(names))
        used += 1
    return QueueEnds(
        first=first, end=end, flushed=flushed, topics=list(names), topic_numbers=bytes(topics[:used]),
        queue_ids=bytes(ids[:used]), min_offsets=bytes(least[:used]), max_offsets=bytes(most[:used]),
        index=None if index is None else list(index), stopped=stopped, since_ns=since_ns)
