"""What the checksums beside the log say at a start (entries.pxd)."""
import os

from libc.errno cimport errno
from libc.stdint cimport int64_t, uint8_t

from mqcore.layout cimport BLANK_SIZE_MIN
from mqcore.store import files as disk
from mqcore.store.io cimport store_io
from mqcore.store.log.checksums cimport (
    CHECKSUM_NONE,
    CHECKSUM_RIGHT,
    CHECKSUM_WRONG,
    ChecksumFile,
    checksum_end,
    checksum_find,
    checksum_judge,
    checksums_close,
    checksums_open,
)
from mqcore.store.log.folders import LogFolders
from mqcore.store.log.view cimport (
    log_checksum,
    log_checksums,
    log_checksums_forget,
    log_has_checksums,
    log_next_use,
    log_segment,
)
from mqcore.store.record cimport (
    PARSE_BAD_CHECKSUM,
    PARSE_BAD_POSITION,
    PARSE_BLANK,
    PARSE_NO_CHECKSUM,
    PARSE_RECORD,
    RecordView,
    record_check,
    record_parse,
)

cdef enum:
    FOREIGN_RUN = 8                   # records next to each other are not damaged one by one


cdef class LogEntries:
    """The checksums of a log that a Recovery reads through its view."""

    def __cinit__(self):
        self.alone = True

    def use(self, folders: LogFolders, int64_t segment_size) -> None:
        """Of the segments in these folders."""
        self.folders = folders
        self.size = segment_size

    cdef int check(self, const uint8_t* at, int64_t available, int64_t position,
                   RecordView* record) noexcept nogil:
        """
        A ParseResult for the bytes at a log position, of a segment that the view has mapped. By its
        checksum; where there is none and need not be one, by position and body. A blank record that
        reaches to its segment's end can hold nothing else.
        """
        cdef int result = record_parse(at, available, record)
        cdef int64_t base = position // self.size * self.size
        cdef int verdict
        if result == PARSE_BLANK and record.size == base + self.size - position:
            return result
        if result == PARSE_BLANK:
            verdict = log_checksum(self.log, at, BLANK_SIZE_MIN, position, base + self.size)
        elif result != PARSE_RECORD:
            return result
        elif record.log_position != position:
            return PARSE_BAD_POSITION
        else:
            verdict = log_checksum(self.log, at, record.size, position, position + record.size)
        if verdict == CHECKSUM_RIGHT:
            return result
        if verdict == CHECKSUM_WRONG:
            if result == PARSE_RECORD:
                result = record_check(at, available, position, record)
            return PARSE_BAD_CHECKSUM if result in (PARSE_RECORD, PARSE_BLANK) else result
        if verdict == CHECKSUM_NONE and self.alone and log_has_checksums(self.log, position):
            return PARSE_NO_CHECKSUM
        return result if result == PARSE_BLANK else record_check(at, available, position, record)

    cdef int judge(self, int64_t base, int64_t number) noexcept nogil:
        """A ChecksumVerdict: entry `number` of the segment at `base`, against what lies there."""
        cdef int64_t count = 0, hint = number, start, end
        cdef const uint8_t* at
        cdef const uint8_t* entries
        log_next_use(self.log)
        at = log_segment(self.log, base)
        entries = log_checksums(self.log, base, &count) if at != NULL else NULL
        if number >= count or checksum_end(entries, number) == 0:
            return CHECKSUM_NONE
        start = checksum_end(entries, number - 1) if number else 0
        end = checksum_end(entries, number)
        if end <= start or end > self.size:
            return CHECKSUM_WRONG
        return checksum_judge(entries, count, start, end, at + start,
                              BLANK_SIZE_MIN if end == self.size else end - start, &hint)

    cdef int judge_written(self, int64_t base, int64_t number, int64_t written) noexcept nogil:
        """The same, of a segment with so many bytes: what has its entry behind them is not as it says."""
        cdef int64_t count = 0, start, end
        cdef const uint8_t* entries = (log_checksums(self.log, base, &count)
                                       if log_segment(self.log, base) != NULL else NULL)
        if number < count:
            end = checksum_end(entries, number)
            start = checksum_end(entries, number - 1) if number else 0
            if end > written and (end != self.size or start + BLANK_SIZE_MIN > written):
                return CHECKSUM_WRONG
        return self.judge(base, number)

    cdef int64_t right_behind(self, int64_t base, int64_t offset, int64_t written) noexcept nogil:
        """
        Where in the segment at `base` the first record, or blank one, begins behind `offset` that is
        as its entry says, whatever other entries say; -1: none does. written: bytes that are there.
        """
        cdef int64_t count = 0, number, start = 0, end
        cdef const uint8_t* entries
        log_next_use(self.log)
        if log_segment(self.log, base) == NULL:
            return -1
        entries = log_checksums(self.log, base, &count)
        if entries == NULL:
            return -1
        for number in range(count):
            end = checksum_end(entries, number)
            if (offset < start < end and (end <= written or end == self.size)
                    and start + BLANK_SIZE_MIN <= written
                    and self.judge(base, number) == CHECKSUM_RIGHT):
                return start
            start = end
        return -1

    cdef int ends_at(self, int64_t end) noexcept nogil:
        """A ChecksumVerdict for the record that ends at a log position: CHECKSUM_WRONG if none does."""
        cdef int64_t base = (end - 1) // self.size * self.size
        cdef int64_t count = 0, hint = -1, number
        cdef const uint8_t* entries
        log_next_use(self.log)
        if log_segment(self.log, base) == NULL:
            return CHECKSUM_NONE
        entries = log_checksums(self.log, base, &count)
        if entries == NULL:
            return CHECKSUM_NONE
        number = checksum_find(entries, count, end - 1 - base, &hint)
        if number >= count:
            return CHECKSUM_NONE
        if checksum_end(entries, number) == end - base:
            return self.judge(base, number)
        for number in range(count):   # a wrong end elsewhere may mislead the search (checksums CS6)
            if checksum_end(entries, number) == end - base:
                return self.judge(base, number)
        return CHECKSUM_WRONG

    # -- what still holds --------------------------------------------------------------------------

    def remove_strangers(self, list starts) -> None:
        """Files of segments that are not there. Raises OSError."""
        known = {f"{start:020d}" for start in starts}
        for path in self.folders.checksums():
            if path.name not in known:
                disk.unlink(path)

    def distrust(self, list starts, int64_t flushed) -> None:
        """
        Somebody else may have written: drop what does not fit. flushed: up to where the log was on
        the disk when we wrote last, -1: not known. Raises OSError.
        """
        cdef int64_t start
        cdef list found
        self.alone = False
        found = [base for base in starts
                 if self.folders.checksums_of(base).exists()]
        if flushed < 0 and found:
            flushed = found[len(found) - 1]
        for start in found:
            if start + self.size <= flushed:
                if not self.outline_fits(start, self.size):
                    disk.unlink(self.folders.checksums_of(start))
            else:
                self.drop_from(start, self.first_stale(start, max(flushed - start, <int64_t>0)))

    def set_aside_foreign(self, list starts, written_end, bint begins) -> list[str]:
        """
        Files of another log go to a folder beside, and their records are judged by themselves. Their
        names. written_end: called with a position, up to where its segment has bytes of its own;
        begins: only those that are wrong from their first entry on. Raises OSError.
        """
        cdef int64_t start, written
        gone = []
        for start in starts:
            path = self.folders.checksums_of(start)
            if not path.exists():
                continue
            written = written_end(start) - start
            if self.outline_fits(start, written) or not self.is_foreign(start, written, begins):
                continue
            folder = disk.beside(path.parent, ".foreign")
            disk.make_folders(folder)
            disk.calls.rename(path, folder / path.name)
            disk.sync_folder(folder)
            disk.sync_folder(path.parent)
            log_checksums_forget(self.log, start)
            gone.append(os.fspath(folder / path.name))
        return gone

    cdef bint is_foreign(self, int64_t base, int64_t written, bint begins) noexcept nogil:
        """Whether FOREIGN_RUN records in a row, or all that there are, are right without their entries."""
        cdef int64_t count = 0, position = 0, hint = 0, run = 0, records = 0
        cdef const uint8_t* entries
        cdef const uint8_t* at
        cdef RecordView record
        cdef int verdict
        log_next_use(self.log)
        at = log_segment(self.log, base)
        if at == NULL:
            return False
        entries = log_checksums(self.log, base, &count)
        while run < FOREIGN_RUN and record_check(at + position, written - position,
                                                 base + position, &record) == PARSE_RECORD:
            verdict = checksum_judge(entries, count, position, position + record.size,
                                     at + position, record.size, &hint)
            if verdict == CHECKSUM_NONE:
                break
            if begins and verdict != CHECKSUM_WRONG:
                return False
            run = run + 1 if verdict == CHECKSUM_WRONG else 0
            records += 1
            position += record.size
        return run == FOREIGN_RUN or (run == records and records > 1)

    def outline_fits(self, int64_t base, int64_t written) -> bool:
        """Whether the first and the last entry are right, or say nothing. written: bytes there are."""
        cdef int64_t count = 0, number
        cdef const uint8_t* entries
        log_next_use(self.log)
        if log_segment(self.log, base) == NULL:
            return False
        entries = log_checksums(self.log, base, &count)
        number = count - 1
        while number > 0 and checksum_end(entries, number) == 0:
            number -= 1
        return self.judge_written(base, 0, written) != CHECKSUM_WRONG and (
            number <= 0 or self.judge_written(base, number, written) != CHECKSUM_WRONG)

    def first_stale(self, int64_t base, int64_t offset) -> int:
        """
        Where in the segment the first record begins from `offset` on whose entry is wrong, none
        behind it being right; -1: there is none.
        """
        cdef int64_t count = 0, hint = -1, number, stale = -1
        cdef const uint8_t* entries
        cdef int verdict
        log_next_use(self.log)
        if log_segment(self.log, base) == NULL:
            return -1
        entries = log_checksums(self.log, base, &count)
        if entries == NULL:
            return -1
        with nogil:
            number = checksum_find(entries, count, offset, &hint)
            while number < count:
                verdict = self.judge(base, number)
                if verdict == CHECKSUM_NONE:
                    break
                if verdict == CHECKSUM_RIGHT:
                    stale = -1
                elif verdict == CHECKSUM_WRONG and stale < 0:
                    stale = checksum_end(entries, number - 1) if number else 0
                number += 1
        return stale

    def drop_from(self, int64_t base, int64_t offset) -> None:
        """Nothing is known of what lies from `offset` of a segment on; -1: all stays."""
        if offset >= 0:
            self.settle(base + offset, base)

    def settle(self, int64_t end, int64_t base=-1) -> None:
        """
        The log ends at `end`: entries go so far and no further, and are on the disk. base: of the
        segment, if the end of one is meant. Raises OSError.
        """
        cdef ChecksumFile file
        cdef int error
        cdef bytes folders = self.folders.text()
        cdef const char* text = folders
        if base < 0:
            base = end // self.size * self.size
            if end == base:
                return
        with nogil:
            error = checksums_open(&file, text, base, self.size, end, False)
            if error == 0:
                if store_io().sync_data(file.fd) != 0:
                    error = errno
                checksums_close(&file)
        if error:
            raise OSError(error, f"checksums of the commit log: {os.strerror(error)}",
                          os.fspath(self.folders.checksums_of(base)))
