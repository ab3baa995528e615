"""The filter entries and their arena (filters.pxd); their writer for the coordinator."""
import bisect

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

from mqcore.atomics cimport (
    acquire_fence,
    load_i32_acquire,
    load_i64_acquire,
    release_fence,
    store_i32_release,
    store_i64_release,
)
from mqcore.layout cimport (
    FILTER_ALL,
    FILTER_CODES,
    FILTER_NONE,
    FILTER_POSITIONS_MAX,
    FILTER_PROGRAM,
    FILTER_REQUEST_COUNT,
    FILTER_REQUEST_WAYS,
    FilterEntry,
)
from mqcore.shm.reserve cimport shm_reserve
from mqcore.shm.segment cimport Segment, Shm
from mqcore.shm.tables cimport (
    Look,
    look_begin,
    look_holds,
    name_hash,
    raise_full,
    subscription_known,
    subscription_place,
)


cdef enum:
    CHUNK_BYTES_MIN = 64
    BITS_DELAY_MS = 1000               # until the dispatcher has surely seen a new filter
    REQUEST_LIFE_MS = 10000            # a pull that asked for it may wait that long (PARKED_LIFE_MS)

ARENA_FULL = "no room for another filter: 64 MiB of filter programs are in use"


cdef bint filter_look(Shm* shm, int32_t place, FilterView* view) noexcept nogil:
    cdef FilterEntry* entry = &shm.filters[place]
    cdef Look look
    look.count = 0
    while look_begin(&look, &entry.sequence):                            # V2
        view.place = place
        view.sequence = look.sequence
        view.kind = entry.kind
        view.version = entry.version
        view.client_version = entry.client_version
        view.born_ms = entry.born_ms
        view.dead_ms = entry.dead_ms
        view.bits_from_ms = entry.bits_from_ms
        view.chunk_start = entry.chunk_start
        view.chunk_size = entry.chunk_size
        view.text_size = entry.text_size
        view.bloom_bit_count = entry.bloom_bit_count
        view.bloom_position_count = entry.bloom_position_count
        memcpy(view.bloom_positions, entry.bloom_positions, sizeof(entry.bloom_positions))
        if look_holds(&look, &entry.sequence):
            return view.kind != FILTER_NONE
    return False


cdef bint in_arena(const Shm* shm, const FilterView* view) noexcept nogil:
    return (view.chunk_start >= 0 and view.chunk_size >= 0 and view.text_size >= 0
            and view.chunk_start + view.chunk_size + view.text_size <= shm.head.filter_arena_size)


cdef bint filter_copy(Shm* shm, const FilterView* view, uint8_t* into) noexcept nogil:
    if not in_arena(shm, view):
        return False
    memcpy(into, shm.filter_arena + view.chunk_start, view.chunk_size)
    acquire_fence()
    return load_i32_acquire(&shm.filters[view.place].sequence) == view.sequence


cdef bint filter_of_request(Shm* shm, const uint8_t* text, int32_t length,
                            FilterView* view) noexcept nogil:
    cdef uint64_t hash = name_hash(text, length, 0)
    cdef int32_t first = filter_request_place(shm, hash)
    cdef int32_t i
    for i in range(FILTER_REQUEST_WAYS):
        if shm.filters[first + i].hash != hash or not filter_look(shm, first + i, view):
            continue
        if view.text_size != length or not in_arena(shm, view):
            continue
        if memcmp(shm.filter_arena + view.chunk_start + view.chunk_size, text, length) != 0:
            continue
        acquire_fence()
        if load_i32_acquire(&shm.filters[first + i].sequence) == view.sequence:
            return True
    return False


class Arena:
    """Which bytes of the arena are taken: first fit, in steps of 64 bytes."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._chunks: list[tuple[int, int]] = []       # (start, end), in order

    def take(self, start: int, size: int) -> None:
        """Mark what an earlier coordinator gave out."""
        bisect.insort(self._chunks, (start, start + self._rounded(size)))

    def allocate(self, size: int) -> int:
        """A place for `size` bytes. Raises TableFullError."""
        size, at = self._rounded(size), 0
        for number, (start, end) in enumerate(self._chunks):
            if start - at >= size:
                self._chunks.insert(number, (at, at + size))
                return at
            at = end
        if self._size - at < size:
            raise_full(ARENA_FULL)
        self._chunks.append((at, at + size))
        return at

    def free(self, start: int) -> None:
        del self._chunks[bisect.bisect_left(self._chunks, (start, 0))]

    @property
    def used_bytes(self) -> int:
        return sum([end - start for start, end in self._chunks])

    @staticmethod
    def _rounded(size: int) -> int:
        return max((size + CHUNK_BYTES_MIN - 1) // CHUNK_BYTES_MIN, 1) * CHUNK_BYTES_MIN


cdef class FilterWriter:
    """The coordinator's pen for filters (V1). All calls are idempotent."""
    cdef Segment segment
    cdef Shm* shm
    cdef object arena
    cdef dict requests                 # of pulls: type 0 text -> (place, shown at)

    def __init__(self, Segment segment):
        cdef FilterEntry* entry
        cdef int32_t place
        self.segment = segment
        self.shm = &segment.shm
        self.arena = Arena(self.shm.head.filter_arena_size)
        self.requests = {}
        for place in self.places():
            entry = &self.shm.filters[place]
            if entry.sequence & 1:     # its writer died: who needs it asks for it again
                entry.kind = FILTER_NONE
                self.close(entry)
            if entry.kind != FILTER_NONE:
                self.arena.take(entry.chunk_start, entry.chunk_size + entry.text_size)
                if place >= 2 * self.shm.head.subscription_capacity:
                    self.requests[self.text(entry)] = (place, 0)

    def places(self) -> list[int]:
        """Every place that may hold something."""
        cdef int32_t capacity = self.shm.head.subscription_capacity
        cdef int32_t count = self.shm.head.subscription_count
        return [*range(count), *range(capacity, capacity + count),
                *range(2 * capacity, 2 * capacity + FILTER_REQUEST_COUNT)]

    cdef bytes text(self, const FilterEntry* entry):
        cdef const uint8_t* at = self.shm.filter_arena + entry.chunk_start + entry.chunk_size
        return (<const char*>at)[:entry.text_size]

    cdef void open(self, FilterEntry* entry) noexcept:
        store_i32_release(&entry.sequence, entry.sequence | 1)
        release_fence()

    cdef void close(self, FilterEntry* entry) noexcept:
        store_i32_release(&entry.sequence, (entry.sequence | 1) + 1)
        store_i64_release(&self.shm.head.filter_changes, self.shm.head.filter_changes + 1)   # V4

    cdef bint holds(self, FilterEntry* entry, int32_t kind, bytes chunk, bytes text):
        """Whether the entry is this already, but for its times."""
        cdef const char* at = <const char*>self.shm.filter_arena + entry.chunk_start
        return (entry.kind == kind and entry.chunk_size == <int32_t>len(chunk)
                and at[:entry.chunk_size] == chunk and self.text(entry) == text)

    cdef put(self, int32_t place, int32_t kind, bytes chunk, bytes text):
        """Give an open entry a new chunk; raises TableFullError before anything is changed."""
        cdef FilterEntry* entry = &self.shm.filters[place]
        cdef int32_t old_kind = entry.kind
        cdef int64_t old = entry.chunk_start
        cdef int64_t start = self.arena.allocate(len(chunk) + len(text))
        if not shm_reserve(self.shm, self.shm.filter_arena + start, len(chunk) + len(text)):
            self.arena.free(start)
            raise_full("no room for another filter expression: /dev/shm is full")
        memcpy(self.shm.filter_arena + start, <const char*>chunk, len(chunk))
        memcpy(self.shm.filter_arena + start + len(chunk), <const char*>text, len(text))
        self.open(entry)
        entry.kind = kind
        entry.version = self.shm.head.filter_changes + 1                 # V3
        entry.chunk_start = start
        entry.chunk_size = <int32_t>len(chunk)
        entry.text_size = <int32_t>len(text)
        entry.hash = name_hash(<const uint8_t*><const char*>text, <int32_t>len(text), 0)
        if old_kind != FILTER_NONE:
            self.arena.free(old)       # before any other call can take it, the entry is closed

    cdef clear(self, int32_t place):
        cdef FilterEntry* entry = &self.shm.filters[place]
        if entry.kind == FILTER_NONE:
            return
        self.open(entry)
        entry.kind = FILTER_NONE
        entry.hash = 0
        self.close(entry)
        self.arena.free(entry.chunk_start)

    # -- filters of subscriptions --------------------------------------------------------------------

    def publish_program(self, str group, str topic, *, bytes program, str expression,
                        int64_t client_version, int64_t born_ms, int64_t dead_ms, int64_t now_ms,
                        positions=(), int bit_count=0) -> None:
        """
        Show the compiled expression of a group's subscription; dead_ms 0: the group is there.
        positions: its bits in a map of bit_count. Raises TableFullError, and ValueError for names
        that no table holds.
        """
        cdef int32_t place = subscription_place(self.shm, group, topic)
        cdef FilterEntry* entry = &self.shm.filters[place]
        bits = list(positions)
        if len(bits) > FILTER_POSITIONS_MAX:
            raise ValueError(f"positions: expected at most {FILTER_POSITIONS_MAX}")
        known = [entry.bloom_positions[i] for i in range(entry.bloom_position_count)]
        raw = expression.encode()
        if (self.holds(entry, FILTER_PROGRAM, program, raw) and known == bits
                and entry.bloom_bit_count == bit_count):
            self.open(entry)
        else:
            self.put(place, FILTER_PROGRAM, program, raw)
            entry.bits_from_ms = now_ms + BITS_DELAY_MS
        entry.client_version = client_version
        entry.born_ms = born_ms
        entry.dead_ms = dead_ms
        entry.bloom_bit_count = bit_count
        entry.bloom_position_count = <int32_t>len(bits)
        for i, bit in enumerate(bits):
            entry.bloom_positions[i] = bit
        self.close(entry)

    def remove_program(self, str group, str topic) -> None:
        """Forget it: pulls that need it go to the coordinator."""
        cdef int32_t place = subscription_known(self.shm, group, topic)
        if place >= 0:
            self.clear(place)

    def forget_dead(self, int count_max) -> int:
        """
        Forget up to so many programs of groups that are gone, whose places others need; returns how
        many. A group that comes back says them again.
        """
        cdef FilterEntry* entry
        cdef int32_t number, count = 0
        for number in range(self.shm.head.subscription_count):
            entry = &self.shm.filters[number]
            if (entry.kind != FILTER_NONE and entry.dead_ms >= entry.born_ms
                    and not self.shm.subscriptions[number].live):
                self.clear(number)
                count += 1
                if count == count_max:
                    break
        return count

    def programs(self) -> list[tuple[str, str]]:
        """(group, topic) of all that are shown."""
        found = []
        for number in range(self.shm.head.subscription_count):
            if self.shm.filters[number].kind != FILTER_NONE:
                entry = &self.shm.subscriptions[number]
                found.append(((<bytes>entry.group[:entry.group_length]).decode(),
                              (<bytes>entry.topic[:entry.topic_length]).decode()))
        return found

    def publish_codes(self, str group, str topic, codes) -> None:
        """Show the tag codes of a subscription that has more than its own entry holds."""
        cdef int32_t place = self.shm.head.subscription_capacity + subscription_place(
            self.shm, group, topic)
        chunk = code_chunk(codes)
        if not self.holds(&self.shm.filters[place], FILTER_CODES, chunk, b""):
            self.put(place, FILTER_CODES, chunk, b"")
            self.close(&self.shm.filters[place])

    def remove_codes(self, str group, str topic) -> None:
        cdef int32_t place = subscription_known(self.shm, group, topic)
        if place >= 0:
            self.clear(self.shm.head.subscription_capacity + place)

    # -- expressions of pulls ------------------------------------------------------------------------

    def publish_request(self, str kind, str expression, *, int64_t now_ms, program=None,
                        codes=None) -> None:
        """
        Show an expression that came with a pull, as a program or as tag codes; with neither it lets
        everything pass. Raises TableFullError when so many came lately that pulls wait for all.
        """
        text = kind.encode() + b"\0" + expression.encode()
        if text in self.requests:
            return
        place = self.request_place(text, now_ms)
        if program is not None:
            self.put(place, FILTER_PROGRAM, program, text)
        elif codes is not None:
            self.put(place, FILTER_CODES, code_chunk(codes), text)
        else:
            self.put(place, FILTER_ALL, b"", text)
        self.close(&self.shm.filters[place])
        self.requests[text] = (place, now_ms)

    cdef int32_t request_place(self, bytes text, int64_t now_ms) except -1:
        """A free place for the expression, or that of the one that was shown first."""
        cdef int32_t first = filter_request_place(
            self.shm, name_hash(<const uint8_t*><const char*>text, <int32_t>len(text), 0))
        taken = {}
        for place in range(first, first + FILTER_REQUEST_WAYS):
            if self.shm.filters[place].kind == FILTER_NONE:
                return place
            taken[place] = self.text(&self.shm.filters[place])
        oldest = min(taken, key=lambda place: self.requests[taken[place]][1])
        if 0 <= now_ms - self.requests[taken[oldest]][1] < REQUEST_LIFE_MS:
            raise_full("too many different filter expressions came with pulls at a time")
        del self.requests[taken[oldest]]
        self.clear(oldest)
        return oldest

    @property
    def arena_used_bytes(self) -> int:
        return self.arena.used_bytes


cdef bytes code_chunk(codes):
    return b"".join([code.to_bytes(4, "little", signed=True) for code in sorted(codes)])


cdef class FilterReader:
    """Filters as serving processes see them; for tests and tools."""
    cdef Segment segment
    cdef Shm* shm

    def __init__(self, Segment segment):
        self.segment = segment
        self.shm = &segment.shm

    cdef object described(self, const FilterView* view):
        chunk = bytearray(view.chunk_size)
        cdef uint8_t[::1] into = chunk
        if view.chunk_size and not filter_copy(self.shm, view, &into[0]):
            return None
        return {
            "kind": view.kind, "version": view.version, "client_version": view.client_version,
            "born_ms": view.born_ms, "dead_ms": view.dead_ms, "bits_from_ms": view.bits_from_ms,
            "chunk": bytes(chunk), "bit_count": view.bloom_bit_count,
            "positions": [view.bloom_positions[i] for i in range(view.bloom_position_count)],
        }

    def program(self, str group, str topic):
        """What is shown of a group's SQL92 filter, or None."""
        cdef FilterView view
        cdef int32_t place = subscription_known(self.shm, group, topic)
        if place < 0 or not filter_look(self.shm, place, &view):
            return None
        return self.described(&view)

    def codes(self, str group, str topic):
        cdef FilterView view
        cdef int32_t place = subscription_known(self.shm, group, topic)
        if place < 0 or not filter_look(self.shm, filter_codes_place(self.shm, place), &view):
            return None
        return self.described(&view)

    def request(self, str kind, str expression):
        """What is shown of an expression that came with a pull, or None."""
        cdef bytes text = kind.encode() + b"\0" + expression.encode()
        cdef FilterView view
        if not filter_of_request(self.shm, <const uint8_t*><const char*>text,
                                 <int32_t>len(text), &view):
            return None
        return self.described(&view)

    @property
    def changes(self) -> int:
        return load_i64_acquire(&self.shm.head.filter_changes)

    def break_off(self, str group, str topic) -> None:
        """For tests: leave an entry as a coordinator does that dies while it changes it."""
        cdef FilterEntry* entry = &self.shm.filters[subscription_place(self.shm, group, topic)]
        store_i32_release(&entry.sequence, entry.sequence | 1)
