"""Picks records out of a commit log at rest, for `mqcore store dump`, without the GIL."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memset

from mqcore.store.record cimport (
    PARSE_BLANK,
    PARSE_RECORD,
    PropertyItem,
    RecordView,
    item_is,
    property_next,
)
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


cdef struct Wanted:                   # what a record has to be; NULL, -1 and the extremes: anything
    const uint8_t* topic
    int32_t topic_length
    int32_t queue_id
    const uint8_t* key
    int32_t key_length
    int64_t from_ms
    int64_t to_ms


cdef bint word_in(const uint8_t* words, int32_t length, const uint8_t* word,
                  int32_t word_length) noexcept nogil:
    """Whether a text split at single blanks has this word."""
    cdef int32_t start = 0, i
    for i in range(length + 1):
        if i < length and words[i] != c' ':
            continue
        if i - start == word_length and memcmp(words + start, word, word_length) == 0:
            return True
        start = i + 1
    return False


cdef bint has_key(const RecordView* record, const Wanted* wanted) noexcept nogil:
    cdef const uint8_t* at = record.properties
    cdef PropertyItem item
    while property_next(&at, record.properties + record.properties_length, &item):
        if item_is(&item, "UNIQ_KEY"):
            if (item.value_length == wanted.key_length
                    and memcmp(item.value, wanted.key, wanted.key_length) == 0):
                return True
        elif item_is(&item, "KEYS") and word_in(item.value, item.value_length, wanted.key,
                                                   wanted.key_length):
            return True
    return False


cdef bint fits(const RecordView* record, const Wanted* wanted) noexcept nogil:
    if not wanted.from_ms <= record.store_time_ms <= wanted.to_ms:
        return False
    if wanted.queue_id >= 0 and record.queue_id != wanted.queue_id:
        return False
    if wanted.topic != NULL and (record.topic_length != wanted.topic_length or memcmp(
            record.topic, wanted.topic, wanted.topic_length) != 0):
        return False
    return wanted.key == NULL or has_key(record, wanted)


cdef class LogScan:
    """
    The records of a log that fit, one after the other.

    segments: (position, bytes) of each file of log_folder, ascending; start: log position, the
    first record at or behind it is the first; stop: records from there on are left out; topic, key:
    None: any; queue_id: -1: any; from_ms, to_ms: store times, both counted in, impossible ones too if
    not given.
    """
    cdef LogFiles files
    cdef LogWindow window
    cdef Wanted wanted
    cdef bytes topic
    cdef bytes key
    cdef int64_t start
    cdef int64_t stop
    cdef readonly int64_t position     # behind the last record that was read
    cdef readonly int result           # ParseResult at position when next() gave None

    def __cinit__(self, bytes log_folder not None, list segments not None, *, int64_t start=0,
                  int64_t stop=0x7FFFFFFFFFFFFFFF, bytes topic=None, int32_t queue_id=-1,
                  bytes key=None, int64_t from_ms=-0x7FFFFFFFFFFFFFFF, int64_t to_ms=0x7FFFFFFFFFFFFFFF):
        cdef int32_t i
        memset(&self.window, 0, sizeof(LogWindow))
        self.window.fd = -1
        if log_files_open(&self.files, log_folder, <int32_t>len(segments)):
            raise MemoryError
        for i, (base, size) in enumerate(segments):
            self.files.segments[i] = SegmentFile(base=base, size=size)
        if window_open(&self.window, &self.files, READ_AHEAD):
            raise MemoryError
        memset(&self.wanted, 0, sizeof(Wanted))
        self.topic = topic
        self.key = key
        if topic is not None:
            self.wanted.topic = topic
            self.wanted.topic_length = <int32_t>len(topic)
        if key is not None:
            self.wanted.key = key
            self.wanted.key_length = <int32_t>len(key)
        self.wanted.queue_id = queue_id
        self.wanted.from_ms = from_ms
        self.wanted.to_ms = to_ms
        self.start = start
        self.stop = stop
        i = max(segment_of(&self.files, start), 0)
        self.position = self.files.segments[i].base if segments else 0
        self.result = PARSE_RECORD

    def __dealloc__(self):
        window_close(&self.window)
        log_files_close(&self.files)

    def next(self) -> bytes | None:
        """
        The next record's bytes, or None: the end, `result` says why. Raises OSError when the disk
        cannot be read.
        """
        cdef RecordView record
        cdef int64_t turn_end
        cdef bint found = False
        self.result = PARSE_RECORD
        while not found and self.result == PARSE_RECORD and self.position < self.stop:
            turn_end = min(self.stop, self.position + TURN_BYTES)
            with nogil:
                while self.position < turn_end:
                    self.result = window_record(&self.window, self.position, False, &record)
                    if self.result == PARSE_BLANK and self.leave_segment():
                        continue
                    if self.result != PARSE_RECORD:
                        break
                    self.position += record.size
                    found = (record.log_position >= self.start
                             and fits(&record, &self.wanted))
                    if found:
                        break
        if found:
            return (<const char*>window_at(&self.window, record.log_position, record.size))[
                :record.size]
        if self.result == READ_FAILED:
            raise OSError(self.window.failure, f"log position {self.position} cannot be read")
        return None

    cdef bint leave_segment(self) noexcept nogil:
        """To the next segment, if there is one; result says that a record is to come."""
        cdef int32_t s = segment_of(&self.files, self.position)
        if s + 1 >= self.files.count:
            return False
        self.position = self.files.segments[s + 1].base
        self.result = PARSE_RECORD
        return True
