"""
Recovery, run by the writer before anybody reads (store.md 9): where the log ends, which queues there
are, where dispatch goes on.

After a clean stop the consume queues say where the log's last record lies, and only what follows is
read. After an unclean one every record is read and checked that was written since the queues' ends
were (queue_ends.py), or without them from the checkpoint's segment on, and dispatch repeats them. A torn tail is cut at the exact record: it is reported, never served.
"""
import os
from collections.abc import Callable
from errno import ENXIO

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc

from mqcore.atomics cimport load_i32_acquire, load_i64_acquire, store_i64_release
from mqcore.endian cimport load_i32
from mqcore.layout cimport (
    RECORD_FIXED_SIZE,
    SYS_FLAG_COMMIT,
    SYS_FLAG_TRANSACTION_MASK,
    QueueEntry,
)
from mqcore.shm.segment cimport Segment, Shm
from mqcore.shm.tables cimport name_hash, queue_find_or_add, queue_hash
from mqcore.store import files as disk
from mqcore.store.log.folders import LogFolders
from mqcore.store.io cimport wipe
from mqcore.store.log.view cimport LogView, log_next_use, log_segment, log_view_close, log_view_open
from mqcore.store.recovery.queue_ends import Hints, QueueEnds
from mqcore.store.queue.lives cimport is_marker, life_end, lives_end, lives_tell
from mqcore.store.queue.multi_dispatch cimport (
    MULTI_NAMES_MAX,
    MultiReader,
    NamedQueue,
    multi_names,
    multi_queues,
    table_next,
)
from mqcore.store.recovery.entries cimport LogEntries
from mqcore.store.log.checksums cimport CHECKSUM_RIGHT, CHECKSUM_WRONG
from mqcore.store.record cimport (
    PARSE_BAD_CHECKSUM,
    PARSE_BAD_CRC,
    PARSE_BAD_MAGIC,
    PARSE_BAD_POSITION,
    PARSE_BAD_SIZE,
    PARSE_BLANK,
    PARSE_NO_CHECKSUM,
    PARSE_RECORD,
    PropertyItem,
    RecordView,
    record_check,
    record_parse,
)
from mqcore.store.recovery.compare cimport NO_LIFE, QueueComparison
from mqcore.store.recovery.recovered import Recovered, segments
from mqcore.store.recovery.errors import DamagedStoreError, judge_empty, what_to_do

cdef enum:
    STRETCH_BYTES = 128 << 20         # of the log, at each end, held against the queues
    LOOK_BYTES = 8 << 20              # behind a record that cannot be read, for one that can
    RECORD_BYTES_MAX = 5 << 20        # of stock's and ours


REASONS = {
    PARSE_BAD_MAGIC: "no record magic", PARSE_BAD_CRC: "wrong body CRC",
    PARSE_BAD_POSITION: "a record of another position", -2: "sizes that do not fit",
    PARSE_BAD_CHECKSUM: "a record with other bytes than its checksum was made of",
    PARSE_NO_CHECKSUM: "a record without its checksum",
}

cdef class Recovery:
    """
    One recovery of one store into the shared memory of a run that is about to start.

    log_folder: where the segments are, one path or several lines (log_folders.pxd); queue_folder:
    where the queues are; file_entries: entries of a consume queue file;
    stretch_bytes: see QueueComparison.
    """
    cdef Segment segment
    cdef Shm* shm
    cdef LogView* log
    cdef NamedQueue* named             # of one record
    cdef MultiReader multi
    cdef bint names_seen               # by a walk: records are in queues besides their own
    cdef bint names_only               # of what is walked over, each record's own queue is known
    cdef bint names_later              # queues are cut first: named ones are to be read in order
    cdef bint is_running               # lives that end are the dispatcher's, too (queue/lives.pxd)
    cdef int64_t lives_from            # where the first one ended that a walk met, or NO_LIFE
    cdef QueueComparison queues
    cdef LogEntries entries
    cdef object log_folders
    cdef int64_t records
    cdef int64_t last_time_ms
    cdef int64_t written_base          # of the segment that was asked about last ...
    cdef int64_t written_size          # ... and where its last byte of its own ends

    def __cinit__(self, Segment segment not None, str log_folder, str queue_folder,
                  int64_t file_entries, *, int64_t stretch_bytes=STRETCH_BYTES,
                  bint multi_dispatch=False, bint light_queues=False):
        self.segment = segment
        self.shm = &segment.shm
        self.lives_from = NO_LIFE
        self.log_folders = LogFolders.parse(os.fsencode(log_folder))
        self.queues = QueueComparison(segment, queue_folder, file_entries, stretch_bytes)
        self.log = <LogView*>malloc(sizeof(LogView))
        if self.log == NULL:
            raise MemoryError
        folder = os.fsencode(log_folder)
        log_view_open(self.log, self.shm.log, folder, self.shm.head.segment_size)
        self.queues.use_log(self.log)
        self.entries = LogEntries()
        self.entries.log = self.log
        self.entries.use(self.log_folders, self.shm.head.segment_size)
        self.multi = MultiReader(shm=self.shm, enabled=multi_dispatch, light_queues=light_queues,
                                 adds=True, next_offset=table_next, context=self.shm)
        self.named = <NamedQueue*>malloc(MULTI_NAMES_MAX * sizeof(NamedQueue))
        if self.named == NULL:
            raise MemoryError

    def __dealloc__(self):
        if self.log != NULL:
            log_view_close(self.log)
            free(self.log)
        free(self.named)

    def open_store(self, *, bint clean, int64_t checkpoint_ms, int64_t flushed_ms=0,
                   int64_t unsynced_bytes_max=-1, bint same_boot=False, bint alone=True,
                   ends: QueueEnds | None = None,
                   hints: Callable[[], Hints] = Hints) -> Recovered:
        """
        Recover the whole store: a start of the broker.

        clean: no abort file was there; checkpoint_ms: store time up to which queues and log were on
        disk at the last checkpoint, flushed_ms: up to which the log was, 0: unknown;
        unsynced_bytes_max: the most that the last run ever had written and not synced, -1: unknown;
        same_boot: all that was written is there, synced or not; alone: nobody but us wrote since the
        last start that made checksums; ends: what the last run, if it was
        ours, left in the queues; hints: asked when `ends` is not
        there or not true (QueueComparison.missing_by_log).

        Where `same_boot` and `alone`, nothing can be torn but the last that was written: what has its
        checksum behind another record that cannot be read says that this is damage. Else a record
        that cannot be read is a torn tail if it may never have been on the disk; whole
        records behind it may be there then, in any order in which the disk wrote. It is damage if
        the log was on disk beyond it: after a clean stop, before `flushed_ms`, or further than
        unsynced_bytes_max before a whole record. Raises DamagedStoreError for damage.
        """
        starts = segments(self.log_folders, self.shm.head.segment_size)
        self.names_later = True
        cdef int64_t first = starts[0] if starts else 0
        cdef int64_t limit = self.segments_end(starts)
        cdef int64_t check_from, missing, keep, dead
        cdef bint exact = False
        cdef list foreign = []
        store_i64_release(&self.shm.log.first, first)
        self.entries.remove_strangers(starts)
        if clean or not alone:
            foreign = self.entries.set_aside_foreign(
                starts, lambda start: self.written_end(start), not alone)
        if not alone:
            self.entries.distrust(starts, ends.flushed if ends is not None else -1)
        if not starts:
            judge_empty(self.log_folders, ends, flushed_ms,
                        self.queues.folder if clean or same_boot else "")
            self.queues.remove_all()
            return self.finish(0, 0, 0, 0, "")
        if ends is not None:
            exact = clean and self.ends_there(ends, first, limit)
            if exact or not clean:
                self.queues.learn(ends)
        if exact and first == ends.first:
            self.queues.load_known(ends, ends.end)
        doubted = ends is not None and not clean and ends.by_folders
        if doubted:
            self.queues.doubt(ends)
        check_from = self.check_from(starts, self.queues.load(ends.end if exact else limit), limit,
                                     clean, checkpoint_ms)
        if ends is not None and not clean and first <= ends.end:
            if ends.end <= (limit if same_boot else min(limit, <int64_t>ends.flushed)) and (
                    self.ends_a_record(ends.end)):
                check_from = ends.end
                self.last_time_ms = flushed_ms
            check_from = min(check_from, <int64_t>ends.end)
        if exact:
            check_from = ends.end
        self.queues.read_markers(check_from)
        end, torn = self.walk(check_from, limit, True)
        if same_boot and alone:
            self.judge_same_boot(starts, end, limit, torn)
        torn = self.judge_end(starts, end, limit, torn, clean, flushed_ms, unsynced_bytes_max)
        if alone and not clean and ends is not None and end < ends.flushed:
            raise DamagedStoreError(self.damage_at(
                end, f"{torn or 'nothing'}, and the log was on the disk up to {ends.flushed}"))
        if clean and ends is not None and ends.end > end:
            raise DamagedStoreError(
                f"{self.log_folders}: the log ends at position {end}, and it ended at {ends.end} when "
                f"the broker was stopped: records are gone. {what_to_do(self.log_folders)}")
        keep = end if clean else min(check_from, end)
        dead = min(self.lives_from, <int64_t>self.queues.remove_dead())
        queues = self.queues.cut_below(keep, end, clean)
        if exact or doubted:
            self.queues.distrust(True, doubted)
        missing = (self.queues.missing_from(keep, clean)
                   if exact or (ends is not None and not clean)
                   else self.queues.missing_by_log(keep, hints()))
        missing = min(missing, dead)
        self.look_back(missing, keep, end)
        self.look_for_names(min(missing, keep), end)
        self.drop_segments(starts, end)
        self.wipe_behind(end, torn)
        self.entries.settle(end)
        found = self.finish(first, end, min(missing, keep), queues, torn)
        found.as_left = exact
        found.foreign_checksums = foreign
        return found

    def look_back(self, int64_t position, int64_t end, int64_t log_end) -> None:
        """
        Records in [position, end) are going to be dispatched again: enter their queues. The records
        behind them were read before, and are read once more: one may end a life that was not known
        then (queue/lives.pxd). Raises DamagedStoreError where none can be
        read.
        """
        if position >= end:
            return
        reached, reason = self.walk(position, end, True)
        if reached < end:
            raise DamagedStoreError(self.damage_at(
                reached, f"{reason or 'nothing'}, and the log goes on behind it up to {end}"))
        self.walk(end, log_end, False)
        self.queues.remove_dead()

    def look_for_names(self, int64_t position, int64_t end) -> None:
        """
        Records in [position, end) are going to be dispatched again: raise the next offsets of the
        queues that they are in besides their own, as dispatch will write them (multi_dispatch M5).
        """
        cdef int64_t records = self.records
        if self.names_seen:
            self.names_only = True
            self.walk(position, end, False)
            self.names_only = False
            self.records = records

    def damage_at(self, int64_t position, str what) -> str:
        """What a start says of damage in the log."""
        cdef int64_t size = self.shm.head.segment_size
        return (f"{self.log_folders.name(position // size * size)}: at {position % size} (log position "
                f"{position}) there is {what}: this is damage, not a torn tail. "
                f"{what_to_do(self.log_folders)}")

    cdef bint ends_there(self, ends, int64_t first, int64_t limit) except -1:
        """Whether the log ends where the last clean stop left it: nobody wrote since."""
        cdef int64_t end = ends.end
        if not ends.first <= first <= end <= limit:
            return False
        reached, torn = self.walk(end, limit, True)
        return reached == end and not torn and (end == first or self.ends_a_record(end))

    cdef bint ends_a_record(self, int64_t end) except -1:
        """Whether a whole record ends at a log position: the log was written so far."""
        cdef int64_t size = self.shm.head.segment_size
        cdef int64_t base = (end - 1) // size * size
        cdef int64_t start = max(base, end - RECORD_BYTES_MAX)
        cdef const uint8_t* at
        cdef RecordView record
        cdef int64_t position
        cdef int verdict
        if end <= self.shm.log.first or end > self.written_end(end - 1):
            return False
        log_next_use(self.log)
        at = log_segment(self.log, base)
        if at == NULL:
            return False
        verdict = self.entries.ends_at(end)
        if verdict == CHECKSUM_RIGHT or verdict == CHECKSUM_WRONG:
            return verdict == CHECKSUM_RIGHT
        for position in range(end - RECORD_FIXED_SIZE, start - 1, -1):
            if load_i32(at + position - base) == end - position and record_check(
                    at + position - base, end - position, position, &record) == PARSE_RECORD:
                return True
        return False

    cdef int64_t check_from(self, list starts, int64_t indexed_end, int64_t limit, bint clean,
                            int64_t checkpoint_ms) except -1:
        """Where records are read and checked from: nothing before can be torn."""
        cdef int64_t first = starts[0]
        if clean and first <= indexed_end <= limit:
            return indexed_end
        if clean or indexed_end <= first:
            return first
        return max(first, <int64_t>self.checkpointed_segment(starts, checkpoint_ms))

    def judge_end(self, list starts, int64_t end, int64_t limit, str torn, bint clean,
                  int64_t flushed_ms, int64_t unsynced_bytes_max) -> str:
        """Why the log ends at `end`, in words or ""; raises DamagedStoreError if it is damage."""
        if not (torn or not clean or max(starts) > end):
            return torn
        behind = self.record_behind(starts, end, limit)
        if behind is None:
            return torn
        position, time_ms = behind
        reach = self.whole_until(position, limit)
        if clean or time_ms <= flushed_ms or 0 <= unsynced_bytes_max < reach - end:
            raise DamagedStoreError(self.damage_at(
                end, f"{torn or 'nothing'}, and a whole record lies behind it at {position}"))
        return (f"{torn or 'nothing'}, and whole records behind it from {position} on that were "
                "never known to be on the disk")

    def judge_same_boot(self, list starts, int64_t end, int64_t limit, str torn) -> None:
        """
        Whether there is damage where the log seems to end, in the boot that wrote it: all that was
        written is there, in its order. Raises DamagedStoreError.
        """
        cdef int64_t start, behind
        self.judge_entries(end, limit)
        self.queues.judge_beyond(self.log_folders)
        for start in starts:
            if start + self.shm.head.segment_size <= end:
                continue
            behind = self.entries.right_behind(start, end - start, self.written_end(start) - start)
            if behind >= 0:
                raise DamagedStoreError(self.damage_at(
                    end, f"{torn or 'nothing'}, and behind it at {start + behind} a record as it was "
                         "written"))

    def judge_entries(self, int64_t end, int64_t limit) -> None:
        """
        Whether the checksums are damaged there: a whole record has its entry (checksums CS2), and of
        records with a wrong one only the last can be torn. Raises DamagedStoreError.
        """
        cdef RecordView record
        cdef const uint8_t* at
        cdef int64_t base = end // self.shm.head.segment_size * self.shm.head.segment_size
        cdef int64_t available
        cdef int result
        if end >= limit:
            return
        log_next_use(self.log)
        at = log_segment(self.log, base)
        available = min(self.written_end(end), limit) - end
        if at == NULL or available <= 0:
            return
        at += end - base
        result = self.entries.check(at, available, end, &record)
        if result not in (PARSE_NO_CHECKSUM, PARSE_BAD_CHECKSUM) or (
                record_check(at, available, end, &record) != PARSE_RECORD):
            return
        if result == PARSE_NO_CHECKSUM or record_check(
                at + record.size, available - record.size, end + record.size,
                &record) in (PARSE_RECORD, PARSE_BLANK):
            raise DamagedStoreError(self.damage_at(
                end, f"{REASONS[result]}, and whole records as they were written"))

    def open_tail(self) -> Recovered:
        """
        Recover what a dead writer left in a run that goes on: the log behind `published`, and the
        queues' next offsets from what is dispatched and what is not yet.
        """
        # an empty log may just have begun elsewhere than at 0 (raw.pxd, A9)
        cdef int64_t first = load_i64_acquire(&self.shm.log.first)
        cdef int64_t dispatched = max(first, load_i64_acquire(&self.shm.log.dispatched))
        cdef int64_t published = max(first, load_i64_acquire(&self.shm.log.published))
        cdef int64_t limit
        cdef int32_t number
        starts = segments(self.log_folders, self.shm.head.segment_size)
        limit = self.segments_end(starts)
        for number in range(self.shm.head.queue_count):
            store_i64_release(&self.shm.queues[number].next_offset,
                              self.dispatched_offset(&self.shm.queues[number]))
        self.is_running = True
        self.walk(dispatched, published, False)
        end, torn = self.walk(published, limit, True) if limit else (0, "")
        if self.lives_from < NO_LIFE:
            lives_tell(self.shm)
        self.drop_segments(starts, end)
        self.wipe_behind(end, torn)
        self.entries.settle(end)
        return self.finish(self.shm.log.first, end, dispatched, self.shm.head.queue_count, torn)

    cdef int64_t dispatched_offset(self, QueueEntry* entry):
        """Up to where the queue's present life is dispatched: a removal may still be on its way."""
        if load_i32_acquire(&entry.removal_done) != entry.removal_begun:
            return 0
        return load_i64_acquire(&entry.max_offset)

    cdef int64_t segments_end(self, list starts):
        return <int64_t>max(starts) + self.shm.head.segment_size if starts else 0

    def finish(self, int64_t first, int64_t end, int64_t dispatch_from, int queues,
               str torn) -> Recovered:
        return Recovered(first=first, end=end, dispatch_from=dispatch_from,
                         records_checked=self.records, queues=queues, torn=torn,
                         last_store_time_ms=self.last_time_ms)

    def walk(self, int64_t position, int64_t limit, bint check) -> tuple[int, str]:
        """
        Read records from `position` up to `limit`, raising each queue's next offset over them.
        Returns (end of the last whole record, why it ended there or "").
        """
        cdef RecordView record
        cdef const uint8_t* at
        cdef int64_t size = self.shm.head.segment_size, available
        cdef int result = PARSE_RECORD
        while position < limit:
            log_next_use(self.log)
            at = log_segment(self.log, position)
            if at == NULL:
                raise OSError(self.log.failure, "commit log segment cannot be mapped")
            available = min(self.written_end(position), limit) - position
            if available <= 0:
                return position, ""
            with nogil:
                while available > 0:
                    if check:
                        result = self.entries.check(at, available, position, &record)
                    else:
                        result = record_parse(at, available, &record)
                    if result != PARSE_RECORD:
                        break
                    self.note(&record)
                    at += record.size
                    position += record.size
                    available -= record.size
            if result == PARSE_BLANK:
                if (position // size + 1) * size >= limit:
                    # the last segment is closed and no next one was begun: stand behind it
                    return (position // size + 1) * size if limit % size == 0 else position, ""
                position = (position // size + 1) * size
            elif result != PARSE_RECORD:
                return position, self.what_is_there(position, result)
        return position, ""

    cdef int64_t written_end(self, int64_t position) except -1:
        """
        Up to where the segment of `position` has bytes of its own, a position. Behind it nothing is
        read through the map: on a full disk a file system may have no page to show for a hole.
        """
        cdef int64_t base = position // self.shm.head.segment_size * self.shm.head.segment_size
        cdef int64_t end = 0
        if self.written_base != base or self.written_size == 0:
            fd = os.open(self.log_folders.path(base), os.O_RDONLY | os.O_CLOEXEC)
            try:
                while True:
                    end = os.lseek(fd, os.lseek(fd, end, os.SEEK_DATA), os.SEEK_HOLE)
            except OSError as error:
                if error.errno != ENXIO:        # no data behind `end`
                    raise
            finally:
                os.close(fd)
            self.written_base = base
            self.written_size = end
        return base + self.written_size

    cdef void note(self, RecordView* record) noexcept nogil:
        cdef int32_t kind = record.sys_flag & SYS_FLAG_TRANSACTION_MASK
        cdef PropertyItem names, offsets
        self.records += 1
        self.last_time_ms = max(self.last_time_ms, record.store_time_ms)
        if kind != 0 and kind != SYS_FLAG_COMMIT:
            return
        if not self.names_only:
            self.note_own(record)
            if is_marker(record) and lives_end(self.shm, record, self.is_running, True):
                self.lives_from = min(self.lives_from, record.log_position)
        if not self.names_later or self.names_only:
            self.note_named(record)
        elif not self.names_seen:
            self.names_seen = multi_names(record, &names, &offsets) > 0

    cdef void note_own(self, RecordView* record) noexcept nogil:
        cdef int32_t number
        cdef uint64_t hash
        hash = queue_hash(name_hash(record.topic, record.topic_length, 0), record.queue_id)
        number = queue_find_or_add(self.shm, record.topic, record.topic_length, record.queue_id, hash)
        if number < 0 or record.log_position < self.shm.queues[number].restart_position:
            return                             # of a life that was ended (mqcore/shm/retention.pyx)
        if record.queue_offset == 0 and self.shm.queues[number].next_offset > 0 and life_end(
                &self.shm.queues[number], record.log_position, self.is_running):         # lives QL2
            self.lives_from = min(self.lives_from, record.log_position)
        if self.shm.queues[number].next_offset <= record.queue_offset:
            store_i64_release(&self.shm.queues[number].next_offset, record.queue_offset + 1)

    cdef void note_named(self, RecordView* record) noexcept nogil:
        """The queues that a record is in besides its own (multi_dispatch.pxd)."""
        cdef bint impossible = False             # the dispatcher says it
        cdef int32_t count = multi_queues(&self.multi, record, self.named, &impossible)
        cdef int32_t i
        cdef QueueEntry* queue
        for i in range(count):
            queue = &self.shm.queues[self.named[i].queue]
            if queue.next_offset <= self.named[i].offset:
                store_i64_release(&queue.next_offset, self.named[i].offset + 1)

    def what_is_there(self, int64_t position, int result) -> str:
        """Empty for untouched zeros, else the reason in words."""
        cdef const uint8_t* at = log_segment(self.log, position)
        cdef int64_t i, available = self.written_end(position) - position
        if at != NULL:
            for i in range(min(available, 64)):
                if at[i] != 0:
                    return REASONS.get(result, "something unreadable")
        return ""

    cdef int64_t whole_until(self, int64_t position, int64_t limit) except -1:
        """Where the whole, checked records that follow each other from `position` on end."""
        cdef int64_t size = self.shm.head.segment_size, available
        cdef const uint8_t* at
        cdef RecordView record
        cdef int result
        while position < limit:
            log_next_use(self.log)
            at = log_segment(self.log, position)
            available = min(self.written_end(position), limit) - position
            result = PARSE_BAD_SIZE
            if at != NULL:
                with nogil:
                    while available > 0:
                        result = self.entries.check(at, available, position, &record)
                        if result != PARSE_RECORD:
                            break
                        at += record.size
                        position += record.size
                        available -= record.size
            if result != PARSE_BLANK:
                return position
            position = (position // size + 1) * size
        return position

    def record_behind(self, list starts, int64_t end, int64_t limit):
        """
        (position, store time in ms) of the first whole, checked record behind the place where the
        log seems to end, within the next 8 MiB or at the start of a later segment; None: there is
        none. One that is older than what lies before `end` was cut off once and does not count.
        """
        cdef int64_t size = self.shm.head.segment_size
        cdef int64_t written = self.written_end(end) if end < limit else end
        cdef int64_t stop = min(end + LOOK_BYTES, written)
        cdef const uint8_t* at = log_segment(self.log, end) if end < limit else NULL
        cdef RecordView record
        cdef int64_t i
        if at != NULL:
            with nogil:
                for i in range(1, stop - end - 8):
                    if self.entries.check(at + i, written - end - i, end + i,
                                          &record) == PARSE_RECORD and (
                                        record.store_time_ms >= self.last_time_ms):
                        with gil:
                            return (end + i, record.store_time_ms)
        for start in starts:
            if start <= end:
                continue
            log_next_use(self.log)
            at = log_segment(self.log, start)
            written = self.written_end(start) - start
            if (at != NULL and written > 0
                    and self.entries.check(at, written, start, &record) == PARSE_RECORD
                    and record.store_time_ms >= self.last_time_ms):
                return (start, record.store_time_ms)
        return None

    def wipe_behind(self, int64_t end, str torn) -> None:
        """
        Nothing that looks like a record may stay behind the end: after the next appends it could
        lie at a record boundary, and come back as one.
        """
        cdef int64_t size = self.shm.head.segment_size
        cdef int error
        if not torn or end % size == 0:
            return
        path = os.fspath(self.log_folders.path(end // size * size))
        with open(path, "r+b", buffering=0) as file:
            error = wipe(file.fileno(), end % size, size - end % size)
        if error:
            raise OSError(error, "the torn end of the commit log cannot be wiped", path)

    def checkpointed_segment(self, list starts, int64_t checkpoint_ms) -> int:
        """The last segment whose first record is not younger than the checkpoint (store.md 9.4)."""
        cdef RecordView record
        cdef const uint8_t* at
        cdef int64_t written
        for start in reversed(starts):
            log_next_use(self.log)
            at = log_segment(self.log, start)
            written = self.written_end(start) - start
            if (at != NULL and written > 0
                    and record_parse(at, written, &record) == PARSE_RECORD
                    and 0 < record.store_time_ms <= checkpoint_ms - 3000):
                return start
        return starts[0]

    def drop_segments(self, list starts, int64_t end) -> None:
        """Remove empty segments, made ahead or wholly behind a cut, the last first (prepare P3)."""
        for start in reversed(starts):
            if start >= end and start != 0:
                path = self.log_folders.path(start)
                self.log_folders.remove_checksums(start)
                disk.unlink(path)
