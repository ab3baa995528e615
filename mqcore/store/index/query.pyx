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
from mqcore.endian cimport load_i32
from mqcore.store.index.file cimport index_hash
from mqcore.store.index.layout cimport (
    IndexEntry,
    IndexHeader,
    index_entry_decode,
    index_entry_start,
    index_file_size,
    index_header_decode,
    index_slot_start,
)

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
    cdef int32_t number = load_i32(bytes + index_slot_start(search.hash % slots))
    cdef int64_t time_ms
    cdef IndexHeader header
    cdef IndexEntry entry
    acquire_fence()
    header = index_header_decode(bytes)
    if header.next_entry <= 1 or number > header.next_entry:
        return
    while 0 < number < entries and search.count < search.count_max:
        entry = index_entry_decode(bytes + index_entry_start(slots, number))
        if entry.seconds < 0:
            return
        time_ms = header.begin_time_ms + 1000 * <int64_t>entry.seconds
        if (entry.key_hash == search.hash and search.begin_ms <= time_ms <= search.end_ms
                and not known(search, entry.log_position)):
            search.positions[search.count] = entry.log_position
            search.count += 1
            search.oldest_ms = time_ms
        if entry.previous >= number or time_ms < search.begin_ms:
            return
        number = entry.previous


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
        self.file_size = index_file_size(slots, entries)

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
        cdef IndexHeader header
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
        header = index_header_decode(bytes)
        empty = header.next_entry <= 1
        if (not empty and header.begin_time_ms <= search.end_ms
                and header.end_time_ms >= search.begin_ms):
            with nogil:
                search_file(bytes, self.slots, self.entries, search)
        munmap(mapped, self.file_size)
        return None if empty else (header.begin_time_ms, header.end_time_ms, header.end_position)
