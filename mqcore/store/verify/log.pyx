"""The native passes of verification, as Python calls them."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from mqcore.endian cimport load_i32
from mqcore.layout cimport (
    DELAY_LEVEL_MAX,
    INDEX_ENTRY_SIZE,
    INDEX_HEADER_SIZE,
    INDEX_NEXT_ENTRY,
    INDEX_SLOT_SIZE,
)
from mqcore.store.record cimport PARSE_RECORD, RecordView
from mqcore.store.verify.findings cimport (
    FINDINGS_OF_A_KIND_MAX,
    FOUND_KINDS,
    findings_open,
)
from mqcore.store.verify.index cimport (
    INDEX_FILES_MAX,
    IndexCheck,
    index_chains,
    keys_finish,
    keys_open,
)
from mqcore.store.verify.queues cimport (
    QueueCheck,
    queue_number,
    queue_scan,
    queues_close,
    queues_open,
)
from mqcore.store.verify.walk cimport Walk, walk, walk_further
from mqcore.store.verify.window cimport (
    READ_AHEAD,
    READ_FAILED,
    SegmentFile,
    log_files_close,
    log_files_open,
    window_close,
    window_nonzero,
    window_open,
    window_record,
)

UNREADABLE = READ_FAILED               # as `end_result`: the disk does not read what lies there


cdef class LogVerifier:
    """
    One verification of a log with its queues and index.

    segments: (position, bytes) of each file of log_folder, ascending, not overlapping;
    file_entries: entries of a consume queue file; delay_ms: delivery times by level, from level 1;
    of_a_kind_max: findings of one kind that are kept; gaps_wanted: gaps in the numbers of a damaged
    log too; checksums: those beside the log are of what is in it now; same_boot: they are, and the
    machine was not started since.
    """
    cdef Walk* w
    cdef list index_bytes              # keeps the mapped index files

    def __cinit__(self, bytes log_folder not None, list segments not None,
                  bytes queue_folder not None, bytes ext_folder not None, int64_t file_entries,
                  list delay_ms not None, *, int32_t of_a_kind_max=FINDINGS_OF_A_KIND_MAX,
                  bint gaps_wanted=False, bint checksums=False, bint same_boot=False):
        cdef int32_t i
        self.index_bytes = []
        self.w = <Walk*>malloc(sizeof(Walk))
        if self.w == NULL:
            raise MemoryError
        memset(self.w, 0, sizeof(Walk))
        if len(delay_ms) >= DELAY_LEVEL_MAX:
            raise ValueError(
                f"delay levels: {len(delay_ms)}, expected fewer than {DELAY_LEVEL_MAX}")
        findings_open(&self.w.findings)
        self.w.findings.of_a_kind_max = of_a_kind_max
        self.w.gaps_wanted = gaps_wanted
        self.w.same_boot = same_boot
        if log_files_open(&self.w.files, log_folder, <int32_t>len(segments)):
            raise MemoryError
        self.w.files.checksums = checksums
        for i, (base, size) in enumerate(segments):
            self.w.files.segments[i] = SegmentFile(base=base, size=size)
        if (window_open(&self.w.window, &self.w.files, READ_AHEAD)
                or window_open(&self.w.look, &self.w.files, READ_AHEAD)
                or queues_open(&self.w.queues, &self.w.files, &self.w.findings, queue_folder,
                               ext_folder, file_entries)):
            raise MemoryError
        self.w.queues.delay_levels = <int32_t>len(delay_ms)
        for i, delay in enumerate(delay_ms):
            self.w.queues.delay_ms[i + 1] = delay
        keys_open(&self.w.keys, &self.w.findings, segments[0][0] if segments else 0)
        self.w.end = -1 if segments else 0
        self.w.position = segments[0][0] if segments else 0

    def __dealloc__(self):
        if self.w != NULL:
            window_close(&self.w.window)
            window_close(&self.w.look)
            queues_close(&self.w.queues)
            log_files_close(&self.w.files)
            free(self.w)

    def add_queue(self, bytes topic not None, int32_t queue_id, int64_t first, int64_t limit,
                  int64_t ext_size) -> None:
        """A queue on disk: queue offsets [first, limit); ext_size: bytes of an ext file."""
        cdef int32_t number = queue_number(&self.w.queues, topic, <int32_t>len(topic), queue_id,
                                           True)
        if number < 0:
            raise ValueError(f"queue {topic!r}/{queue_id}: one too many, or its name is too long")
        self.w.queues.queues[number].on_disk = True
        self.w.queues.queues[number].first = first
        self.w.queues.queues[number].limit = limit
        self.w.queues.queues[number].ext_size = ext_size

    def add_index(self, const uint8_t[::1] content, int32_t slots, int32_t entries) -> None:
        """The next index file, oldest first; content: the whole file."""
        cdef IndexCheck* file
        cdef int32_t next_entry
        if self.w.keys.count >= INDEX_FILES_MAX:
            raise ValueError(f"more than {INDEX_FILES_MAX} index files")
        if (slots <= 0 or entries <= 0 or content.shape[0] < INDEX_HEADER_SIZE
                + <int64_t>slots * INDEX_SLOT_SIZE + <int64_t>entries * INDEX_ENTRY_SIZE):
            raise ValueError(f"index file: {content.shape[0]} bytes do not hold {slots} slots and "
                             f"{entries} entries")
        self.index_bytes.append(content)
        next_entry = load_i32(&content[INDEX_NEXT_ENTRY])
        file = &self.w.keys.files[self.w.keys.count]
        file.bytes = &content[0]
        file.size = content.shape[0]
        file.slots = slots
        file.entries = entries
        file.next_entry = min(max(next_entry, 1), entries)
        self.w.keys.count += 1

    def check_keys(self) -> None:
        """Hold the records' keys against the index files, even when there are none."""
        self.w.keys_checked = True

    def step(self, int64_t bytes_max) -> bool:
        """Walk about so many bytes of the log further; False: the walk is over."""
        with nogil:
            walk(self.w, bytes_max)
        return self.w.end < 0

    def scan_queue(self, int32_t number) -> None:
        """Read a queue's files; after the walk."""
        if not 0 <= number < self.w.queues.count:
            raise IndexError(f"queue {number} of {self.w.queues.count}")
        with nogil:
            queue_scan(&self.w.queues, number, self.w.end)

    def check_chains(self, int32_t number) -> None:
        """Check the chains of one index file."""
        if not 0 <= number < self.w.keys.count:
            raise IndexError(f"index file {number} of {self.w.keys.count}")
        with nogil:
            index_chains(&self.w.keys, number)

    def finish_keys(self) -> None:
        """After the walk: the index entries that are left point to no record."""
        keys_finish(&self.w.keys, self.w.end)

    def further(self, int64_t position, int64_t last_time_ms) -> int:
        """
        Where reading goes on behind a position without a record, -1: the log ends there;
        last_time_ms: the store time of the record before. Nothing is walked.
        """
        cdef int64_t found
        self.w.last_time_ms = last_time_ms
        with nogil:
            found = walk_further(self.w, position)
        return found

    def rest(self, int64_t end=-1) -> int:
        """
        The first byte behind the log's end that is not zero, or -1; end: -1, where the walk, which
        is over, ended.
        """
        cdef int32_t s
        cdef int64_t found, base, size
        if end < 0:
            end = self.w.end
        for s in range(self.w.files.count):
            base = self.w.files.segments[s].base
            size = self.w.files.segments[s].size
            if base + size > end:
                found = window_nonzero(&self.w.look, max(base, end), base + size)
                if found >= 0:
                    return found
        return -1

    def replay_from(self, int64_t before_ms) -> int:
        """
        Where an unclean start begins to read again: the last segment whose first record is not
        younger than `before_ms` (store.md 9.4), else the first.
        """
        cdef RecordView record
        cdef int32_t s
        for s in reversed(range(self.w.files.count)):
            if (window_record(&self.w.look, self.w.files.segments[s].base, False, &record)
                    == PARSE_RECORD and 0 < record.store_time_ms <= before_ms):
                return self.w.files.segments[s].base
        return self.w.files.segments[0].base if self.w.files.count else 0

    @property
    def position(self) -> int:
        return self.w.position

    @property
    def queue_count(self) -> int:
        return self.w.queues.count

    def figures(self) -> dict[str, int]:
        """What the walk counted; positions in bytes, times in ms."""
        return {
            "end": self.w.end, "end_result": self.w.end_result, "records": self.w.records,
            "bytes": self.w.bytes, "blanks": self.w.blanks, "unqueued": self.w.unqueued,
            "first_time_ms": self.w.first_time_ms, "last_time_ms": self.w.last_time_ms,
            "time_steps_back": self.w.time_steps_back,
            "unknown_side_queues": self.w.unknown_side_queues,
            "plain_delays": self.w.queues.plain_delays, "keys": self.w.keys.keys,
            "keys_matched": self.w.keys.matched, "keys_doubled": self.w.keys.doubled,
            "keys_missing": self.w.keys.missing,
            "keys_missing_first": self.w.keys.missing_first,
            "keys_expired": self.w.keys.expired, "keys_passed": self.w.keys.passed,
        }

    def queue(self, int32_t number) -> dict[str, object]:
        """What is known of one queue."""
        if not 0 <= number < self.w.queues.count:
            raise IndexError(f"queue {number} of {self.w.queues.count}")
        cdef QueueCheck* q = &self.w.queues.queues[number]
        return {
            "topic": <bytes>q.topic[:q.topic_length], "queue_id": q.queue_id,
            "on_disk": <bint>q.on_disk, "first": q.first, "limit": q.limit, "records": q.records,
            "bytes": q.bytes, "body_bytes": q.body_bytes, "first_time_ms": q.first_time_ms,
            "last_time_ms": q.last_time_ms, "matched": q.matched, "missing": q.missing,
            "missing_first": q.missing_first, "superseded": q.superseded, "end": q.end,
            "first_live": q.first_live, "live": q.live, "expired": q.expired,
            "fillers": q.fillers, "holes": q.holes, "beyond": q.beyond,
        }

    def findings(self) -> tuple[list[dict[str, int]], list[int]]:
        """(those that are kept, how many there are of each kind)."""
        cdef int32_t i
        kept = [dict(self.w.findings.items[i]) for i in range(self.w.findings.kept)]
        return kept, [self.w.findings.counts[i] for i in range(<int32_t>FOUND_KINDS)]
