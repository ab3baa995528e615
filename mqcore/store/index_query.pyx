"""
Looks keys up in the index files (store.md 4.4; RocketMQ 4.9.8: IndexService, IndexFile).

The dispatcher writes the newest file meanwhile: an entry is whole before its slot names it, and the
slot is read before the count of entries, so that what the slot names is never beyond that count.
Files are opened for one look-up and let go: they may be deleted at any time.
"""
import os
from dataclasses import dataclass

from libc.errno cimport errno
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.atomics cimport acquire_fence
from mqcore.endian cimport load_i32, load_i64
from mqcore.layout cimport (
    INDEX_BEGIN_TIME,
    INDEX_END_POSITION,
    INDEX_END_TIME,
    INDEX_ENTRY_KEY_HASH,
    INDEX_ENTRY_LOG_POSITION,
    INDEX_ENTRY_PREVIOUS,
    INDEX_ENTRY_SECONDS,
    INDEX_ENTRY_SIZE,
    INDEX_HEADER_SIZE,
    INDEX_NEXT_ENTRY,
    INDEX_SLOT_SIZE,
)
from mqcore.store.index_file cimport index_hash

cdef extern from "<sys/mman.h>" nogil:
    void* mmap(void* address, size_t length, int protection, int flags, int fd, long offset)
    int munmap(void* address, size_t length)
    int PROT_READ
    int MAP_SHARED

cdef enum:
    FOUND_MAX = 1024                   # of one look-up


cdef struct Search:
    int32_t hash
    int64_t begin_ms
    int64_t end_ms
    int32_t count_max
    int32_t count
    int64_t oldest_ms                  # index time of the oldest entry taken
    int64_t positions[FOUND_MAX]


@dataclass(frozen=True)
class KeyMatches:
    """
    What the index says of one key.

    positions: commit log positions of records whose key has the same hash, newest first, each once;
    oldest_ms: the time of the last of them, whole seconds from its file's begin; last_time_ms and
    last_position: the newest entry of all, 0 without index files.
    """

    positions: tuple[int, ...]
    oldest_ms: int
    last_time_ms: int
    last_position: int


cdef bint known(const Search* search, int64_t position) noexcept nogil:
    cdef int32_t i
    for i in range(search.count - 1, -1, -1):
        if search.positions[i] == position:
            return True
    return False


cdef void search_file(const uint8_t* bytes, int32_t slots, int32_t entries,
                      Search* search) noexcept nogil:
    """Walk one chain, newest entry first; each step leads to an older one, so it ends."""
    cdef const uint8_t* slot = bytes + INDEX_HEADER_SIZE + <int64_t>(
        search.hash % slots) * INDEX_SLOT_SIZE
    cdef int32_t number = load_i32(slot)
    cdef int32_t next_entry, previous, seconds
    cdef int64_t begin_ms, time_ms, position
    cdef const uint8_t* entry
    acquire_fence()
    next_entry = load_i32(bytes + INDEX_NEXT_ENTRY)
    begin_ms = load_i64(bytes + INDEX_BEGIN_TIME)
    if next_entry <= 1 or number > next_entry:
        return
    while 0 < number < entries and search.count < search.count_max:
        entry = (bytes + INDEX_HEADER_SIZE + <int64_t>slots * INDEX_SLOT_SIZE
                 + <int64_t>number * INDEX_ENTRY_SIZE)
        seconds = load_i32(entry + INDEX_ENTRY_SECONDS)
        if seconds < 0:
            return
        time_ms = begin_ms + 1000 * <int64_t>seconds
        if (load_i32(entry + INDEX_ENTRY_KEY_HASH) == search.hash
                and search.begin_ms <= time_ms <= search.end_ms):
            position = load_i64(entry + INDEX_ENTRY_LOG_POSITION)
            if not known(search, position):
                search.positions[search.count] = position
                search.count += 1
                search.oldest_ms = time_ms
        previous = load_i32(entry + INDEX_ENTRY_PREVIOUS)
        if previous >= number or time_ms < search.begin_ms:
            return
        number = previous


cdef class IndexReader:
    """
    The key index of a store, running or at rest.

    folder: of the index files; slots, entries: how many each file has room for.
    """
    cdef str folder
    cdef int32_t slots
    cdef int32_t entries
    cdef int64_t file_size

    def __init__(self, str folder, int32_t slots, int32_t entries):
        if slots < 1 or entries < 2:
            raise ValueError(f"slots {slots}, entries {entries}: expected at least 1 and 2")
        self.folder = folder
        self.slots = slots
        self.entries = entries
        self.file_size = (INDEX_HEADER_SIZE + <int64_t>slots * INDEX_SLOT_SIZE
                          + <int64_t>entries * INDEX_ENTRY_SIZE)

    def find(self, str topic, str key, int count_max, int64_t begin_ms, int64_t end_ms) -> KeyMatches:
        """
        At most `count_max` (up to 1024) positions of records with a key, stored from begin_ms to
        end_ms (the index knows whole seconds), the newest ones. Raises OSError.
        """
        cdef Search search
        topic_bytes = topic.encode("utf-8", "replace")
        key_bytes = key.encode("utf-8", "replace")
        search.hash = index_hash(topic_bytes, <int32_t>len(topic_bytes), key_bytes,
                                 <int32_t>len(key_bytes))
        search.begin_ms = begin_ms
        search.end_ms = end_ms
        search.count_max = min(count_max, FOUND_MAX)
        search.count = 0
        search.oldest_ms = 0
        last_time_ms = last_position = 0
        for number, path in enumerate(self.files()):
            header = self.search_one(path, &search)
            if header is None:
                continue
            if not last_time_ms:
                last_time_ms, last_position = header[1], header[2]
            if header[0] < begin_ms or search.count >= search.count_max:
                break
        return KeyMatches(tuple(search.positions[i] for i in range(search.count)),
                          search.oldest_ms, last_time_ms, last_position)

    def files(self) -> list[str]:
        """The index files, newest first."""
        try:
            names = [name for name in os.listdir(self.folder) if name.isdigit()]
        except FileNotFoundError:
            return []
        return [os.path.join(self.folder, name) for name in sorted(names, reverse=True)]

    cdef search_one(self, str path, Search* search):
        """(begin time, end time, end position) of a file that was searched; None: deleted, or new."""
        cdef const uint8_t* bytes
        cdef void* mapped
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            if os.fstat(fd).st_size < self.file_size:
                return None                              # just made, its length not yet given
            mapped = mmap(NULL, self.file_size, PROT_READ, MAP_SHARED, fd, 0)
            if <long>mapped == -1:
                raise OSError(errno, "index file cannot be mapped", path)
        finally:
            os.close(fd)
        bytes = <const uint8_t*>mapped
        header = (load_i64(bytes + INDEX_BEGIN_TIME), load_i64(bytes + INDEX_END_TIME),
                  load_i64(bytes + INDEX_END_POSITION))
        empty = load_i32(bytes + INDEX_NEXT_ENTRY) <= 1
        if not empty and header[0] <= search.end_ms and header[1] >= search.begin_ms:
            with nogil:
                search_file(bytes, self.slots, self.entries, search)
        munmap(mapped, self.file_size)
        return None if empty else header
