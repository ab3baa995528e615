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
from posix.mman cimport MAP_SHARED, PROT_READ

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

cdef enum:
    FOUND_MAX = 1024                   # of one look-up
    STEP_ENTRIES = 256                 # of a chain, whose pages may be on the disk alone


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


cdef int32_t chain_walk(const uint8_t* bytes, const IndexHeader* header, int32_t slots,
                        int32_t entries, int32_t number, Search* search) noexcept nogil:
    """
    Go on along one chain, newest entry first, for STEP_ENTRIES; each leads to an older one, so it
    ends. Returns the entry to go on with, 0: none.
    """
    cdef int64_t time_ms
    cdef IndexEntry entry
    cdef int i
    for i in range(STEP_ENTRIES):
        if not (0 < number < entries and search.count < search.count_max):
            return 0
        entry = index_entry_decode(bytes + index_entry_start(slots, number))
        if entry.seconds < 0:
            return 0
        time_ms = header.begin_time_ms + 1000 * <int64_t>entry.seconds
        if (entry.key_hash == search.hash and search.begin_ms <= time_ms <= search.end_ms
                and not known(search, entry.log_position)):
            search.positions[search.count] = entry.log_position
            search.count += 1
            search.oldest_ms = time_ms
        if entry.previous >= number or time_ms < search.begin_ms:
            return 0
        number = entry.previous
    return number


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

    def look_up(self, str topic, str key, int count_max, int64_t begin_ms,
                int64_t end_ms):
        """
        At most `count_max` (up to 1024) positions of records with a key, stored from begin_ms to
        end_ms (the index knows whole seconds), the newest ones: once its steps are done.
        """
        return KeyLookUp(self, topic, key, count_max, begin_ms, end_ms)

    def find(self, str topic, str key, int count_max, int64_t begin_ms, int64_t end_ms) -> KeyMatches:
        """`look_up`, all steps in one. Raises OSError."""
        look_up = self.look_up(topic, key, count_max, begin_ms, end_ms)
        while not look_up.step():
            pass
        return look_up.matches()

    def files(self) -> list[str]:
        """The index files, newest first."""
        try:
            names = [name for name in os.listdir(self.folder) if name.isdigit()]
        except FileNotFoundError:
            return []
        return [os.path.join(self.folder, name) for name in sorted(names, reverse=True)]


cdef class KeyLookUp:
    """One look-up of a key, in steps: its chain may lead through a whole file."""
    cdef IndexReader reader
    cdef list files                    # that are left, the newest last
    cdef Search search
    cdef const uint8_t* bytes          # the file that is open, NULL: none
    cdef IndexHeader header
    cdef int32_t number                # of the entry to go on with, 0: none
    cdef int64_t last_time_ms
    cdef int64_t last_position

    def __init__(self, IndexReader reader not None, str topic, str key, int count_max,
                 int64_t begin_ms, int64_t end_ms):
        topic_bytes = topic.encode("utf-8", "replace")
        key_bytes = key.encode("utf-8", "replace")
        self.reader = reader
        self.search.hash = index_hash(topic_bytes, <int32_t>len(topic_bytes), key_bytes,
                                      <int32_t>len(key_bytes))
        self.search.begin_ms = begin_ms
        self.search.end_ms = end_ms
        self.search.count_max = min(count_max, FOUND_MAX)
        self.files = reader.files()[::-1]

    def __dealloc__(self):
        self.close()

    def step(self) -> bool:
        """Look at one file more, or go on in one for STEP_ENTRIES; whether all is done. Raises OSError."""
        if self.bytes == NULL:
            if not self.files:
                return True
            self.open(self.files.pop())
        if self.number:
            with nogil:
                self.number = chain_walk(self.bytes, &self.header, self.reader.slots,
                                         self.reader.entries, self.number, &self.search)
        if self.bytes != NULL and not self.number:
            self.close()
            if (self.header.begin_time_ms < self.search.begin_ms
                    or self.search.count >= self.search.count_max):
                self.files.clear()
        return self.bytes == NULL and not self.files

    def matches(self) -> KeyMatches:
        """What was found so far."""
        return KeyMatches(tuple([self.search.positions[i] for i in range(self.search.count)]),
                          self.search.oldest_ms, self.last_time_ms, self.last_position)

    cdef void close(self) noexcept:
        if self.bytes != NULL:
            munmap(<void*>self.bytes, self.reader.file_size)
            self.bytes = NULL

    cdef open(self, str path):
        """None is open afterwards if the file was deleted, or is new."""
        cdef void* mapped
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            if os.fstat(fd).st_size < self.reader.file_size:
                return                                   # just made, its length not yet given
            mapped = mmap(NULL, self.reader.file_size, PROT_READ, MAP_SHARED, fd, 0)
            if <long>mapped == -1:
                raise OSError(errno, "index file cannot be mapped", path)
        finally:
            os.close(fd)
        self.bytes = <const uint8_t*>mapped
        self.number = load_i32(self.bytes + index_slot_start(self.search.hash % self.reader.slots))
        acquire_fence()
        self.header = index_header_decode(self.bytes)
        if self.header.next_entry <= 1:
            self.number = 0
            self.close()
            return
        if not self.last_time_ms:
            self.last_time_ms = self.header.end_time_ms
            self.last_position = self.header.end_position
        if (self.number > self.header.next_entry
                or self.header.begin_time_ms > self.search.end_ms
                or self.header.end_time_ms < self.search.begin_ms):
            self.number = 0
