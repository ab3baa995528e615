"""Cuts and removes consume queues at a start (queues.pxd has its rules)."""
import os
from pathlib import Path

from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.atomics cimport store_i64_release
from mqcore.layout cimport CQ_ENTRY_SIZE, CQ_FILLER_RECORD_SIZE, QueueEntry
from mqcore.store import files as disk
from mqcore.store.paths import FILE_NAME, remove_queue
from mqcore.store.queue.consume_queue cimport QueueItem, entry_decode
from mqcore.store.recovery.queues cimport CHUNK_ENTRIES, FoundQueue, QueueRecovery


cdef class QueueCutting(QueueRecovery):
    """The consume queues at a start, as far as something of them has to go."""

    def remove(self, int32_t number) -> None:
        """Delete a queue's files, whatever their length: dispatch writes them anew (queues Y3)."""
        cdef FoundQueue* found = &self.found[number]
        topic, queue_id = self.name(number)
        remove_queue(Path(self.folder), topic, queue_id, None)
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
            start = int(file.name) // CQ_ENTRY_SIZE if FILE_NAME.fullmatch(file.name) else -1
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
            # all its entries are written anew; earlier ones, if it had any, are missing
            self.found[number].cut = self.found[number].known_min >= files[0][0] // CQ_ENTRY_SIZE
            self.remove(number)
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
