"""Whole records of a commit log at rest, those that fit, many at a time, without the GIL."""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from mqcore.layout cimport (
    SYS_FLAG_PREPARED,
    SYS_FLAG_ROLLBACK,
    SYS_FLAG_TRANSACTION_MASK,
    TOPIC_LENGTH_MAX,
)
from mqcore.store.record cimport PARSE_BLANK, PARSE_RECORD, RecordView
from mqcore.store.topic_names cimport GIVEN_UP_TOPIC, HALF_TOPIC, OP_TOPIC
from mqcore.store.verify.window cimport (
    READ_AHEAD,
    READ_FAILED,
    TURN_BYTES,
    LogFiles,
    LogWindow,
    SegmentFile,
    log_files_close,
    log_files_open,
    segment_of,
    window_at,
    window_close,
    window_open,
    window_record,
)

cdef enum:
    ODD_ENDS_MAX = 64
    NO_MEMORY = -1000                 # beside ParseResult and READ_FAILED

# Topics whose records only say how transactions go on: half messages, what settled them, and what
# was asked about too often.
cdef tuple UNDECIDED = (HALF_TOPIC, OP_TOPIC, GIVEN_UP_TOPIC)

cdef struct Name:
    int32_t length
    uint8_t text[TOPIC_LENGTH_MAX + 1]

cdef struct OddEnd:                   # of a segment
    int64_t position
    int64_t left                      # bytes to the segment's end
    int64_t size                      # of the blank record there, 0: there is none

cdef struct Names:
    Name* names                       # NULL: not asked
    int32_t count


cdef int names_open(Names* n, list topics) except -1:
    cdef int32_t i
    n.names = <Name*>malloc(max(len(topics), 1) * sizeof(Name))
    if n.names == NULL:
        raise MemoryError
    n.count = 0
    for topic in topics:
        if len(<bytes?>topic) <= TOPIC_LENGTH_MAX:          # no record has a longer one
            i = n.count
            n.names[i].length = <int32_t>len(<bytes>topic)
            memcpy(n.names[i].text, <const char*><bytes>topic, len(<bytes>topic))
            n.count += 1
    return 0


cdef bint names_have(const Names* n, const RecordView* record) noexcept nogil:
    cdef int32_t i
    for i in range(n.count):
        if (n.names[i].length == record.topic_length
                and memcmp(n.names[i].text, record.topic, record.topic_length) == 0):
            return True
    return False


cdef class RawRecords:
    """
    The records of [start, stop), both log positions where a record begins, that fit.

    segments: (position, bytes) of each file of log_folder, ascending; checksums: those beside the
    log are of what is in it now; topics, queue_ids: None: any; from_ms, to_ms: store times, both
    counted in; decided: without half messages, what settled them, prepared and rolled back ones.
    """
    cdef LogFiles files
    cdef LogWindow window
    cdef Names topics
    cdef Names undecided
    cdef int32_t* queue_ids
    cdef int32_t queue_ids_count
    cdef bint decided
    cdef int64_t from_ms
    cdef int64_t to_ms
    cdef int64_t stop
    cdef uint8_t* batch
    cdef int64_t capacity
    cdef readonly int64_t position     # behind the last record that was read
    cdef readonly int64_t last_time_ms     # store time of the youngest one
    cdef readonly int result           # what lies at position when next() gave None before stop
    cdef readonly int64_t blanks       # blank records that were passed
    cdef OddEnd odd[ODD_ENDS_MAX]
    cdef int32_t odd_count

    def __cinit__(self, bytes log_folder not None, list segments not None, *, int64_t start,
                  int64_t stop, bint checksums=False, list topics=None, list queue_ids=None,
                  int64_t from_ms=-0x7FFFFFFFFFFFFFFF, int64_t to_ms=0x7FFFFFFFFFFFFFFF,
                  bint decided=False):
        cdef int32_t i
        memset(&self.window, 0, sizeof(LogWindow))
        self.window.fd = -1
        if log_files_open(&self.files, log_folder, <int32_t>len(segments)):
            raise MemoryError
        for i, (base, size) in enumerate(segments):
            self.files.segments[i] = SegmentFile(base=base, size=size)
        self.files.checksums = checksums
        if window_open(&self.window, &self.files, READ_AHEAD):
            raise MemoryError
        if topics is not None:
            names_open(&self.topics, topics)
        names_open(&self.undecided, list(UNDECIDED))
        if queue_ids is not None:
            self.queue_ids_count = <int32_t>len(queue_ids)
            self.queue_ids = <int32_t*>malloc(max(len(queue_ids), 1) * sizeof(int32_t))
            if self.queue_ids == NULL:
                raise MemoryError
            for i, queue_id in enumerate(queue_ids):
                self.queue_ids[i] = queue_id
        self.decided = decided
        self.from_ms = from_ms
        self.to_ms = to_ms
        self.position = start
        self.stop = stop
        self.result = PARSE_RECORD

    def __dealloc__(self):
        window_close(&self.window)
        log_files_close(&self.files)
        free(self.topics.names)
        free(self.undecided.names)
        free(self.queue_ids)
        free(self.batch)

    def next(self, int64_t count_max, int64_t bytes_max):
        """
        (records end to end, how many) of about so many at most; None: position is at stop, or
        something else than a record lies there: `result`. Raises OSError when the disk cannot be read.
        """
        cdef int64_t count = 0, filled = 0, turn
        while count == 0 and self.position < self.stop:
            turn = min(self.stop, self.position + TURN_BYTES)
            with nogil:
                self.result = self.gather(turn, count_max, bytes_max, &count, &filled)
            if self.result == READ_FAILED and count == 0:
                raise OSError(self.window.failure,
                              f"log position {self.position} cannot be read")
            if self.result == NO_MEMORY:
                raise MemoryError
            if self.result != PARSE_RECORD:
                break
        if count == 0:
            return None
        return PyBytes_FromStringAndSize(<const char*>self.batch, filled), count

    def continue_from(self, int64_t position) -> None:
        """Behind what is no record, at the next one."""
        self.position = position
        self.result = PARSE_RECORD

    def is_record(self, int64_t position) -> int:
        """The size of the whole record at a position; 0: there is none."""
        cdef RecordView record
        cdef int result
        with nogil:
            result = window_record(&self.window, position, True, &record)
        return record.size if result == PARSE_RECORD else 0

    cdef int gather(self, int64_t stop, int64_t count_max, int64_t bytes_max, int64_t* count,
                    int64_t* filled) noexcept nogil:
        """Read on; what ended it, PARSE_RECORD: a limit."""
        cdef RecordView record
        cdef int32_t s
        cdef int result
        while self.position < stop and count[0] < count_max and filled[0] < bytes_max:
            result = window_record(&self.window, self.position, True, &record)
            if result == PARSE_BLANK:
                s = segment_of(&self.files, self.position)
                self.blanks += 1
                self.note_end(s, record.size)
                if s + 1 >= self.files.count:
                    self.position = self.stop
                    return PARSE_RECORD
                self.position = self.files.segments[s + 1].base
                continue
            if result != PARSE_RECORD:
                return result
            if record.store_time_ms > self.last_time_ms:
                self.last_time_ms = record.store_time_ms
            if self.fits(&record):
                if filled[0] + record.size > self.capacity and self.grow(
                        filled[0] + max(<int64_t>record.size, bytes_max)):
                    return NO_MEMORY
                memcpy(self.batch + filled[0],
                       window_at(&self.window, self.position, record.size), record.size)
                filled[0] += record.size
                count[0] += 1
            self.position += record.size
            s = segment_of(&self.files, self.position)
            if s >= 0 and self.files.segments[s].base == self.position:
                self.note_end(s - 1, 0)
            elif s < 0:                # exactly behind the last byte of a file
                s = segment_of(&self.files, self.position - 1)
                self.note_end(s, 0)
                self.position = (self.files.segments[s + 1].base if s + 1 < self.files.count
                                 else self.stop)
        return PARSE_RECORD

    cdef void note_end(self, int32_t s, int64_t size) noexcept nogil:
        """A segment ends with a blank record of this size, 0: without one."""
        cdef int64_t left = (self.files.segments[s].base + self.files.segments[s].size
                             - self.position)
        if (size == 0 or size != left) and self.odd_count < ODD_ENDS_MAX:
            self.odd[self.odd_count] = OddEnd(position=self.position, left=left, size=size)
            self.odd_count += 1

    def odd_ends(self) -> list[tuple[int, int, int]]:
        """
        Segments whose blank record is not all that is left, or is not there: (position, bytes left,
        its size or 0), at most 64.
        """
        return [(self.odd[i].position, self.odd[i].left, self.odd[i].size)
                for i in range(self.odd_count)]

    cdef bint grow(self, int64_t size) noexcept nogil:
        cdef uint8_t* larger = <uint8_t*>realloc(self.batch, size)
        if larger == NULL:
            return True
        self.batch = larger
        self.capacity = size
        return False

    cdef bint fits(self, const RecordView* record) noexcept nogil:
        cdef int32_t kind = record.sys_flag & SYS_FLAG_TRANSACTION_MASK
        cdef int32_t i
        if not self.from_ms <= record.store_time_ms <= self.to_ms:
            return False
        if self.topics.names != NULL and not names_have(&self.topics, record):
            return False
        if self.queue_ids != NULL:
            for i in range(self.queue_ids_count):
                if self.queue_ids[i] == record.queue_id:
                    break
            else:
                return False
        return not self.decided or (kind != SYS_FLAG_PREPARED and kind != SYS_FLAG_ROLLBACK
                                    and not names_have(&self.undecided, record))
