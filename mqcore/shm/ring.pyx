"""The ring of ring.pxd, and a thin end of it for tests and for the Python processes."""
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from mqcore.atomics cimport (
    cpu_pause,
    exchange_i32,
    full_fence,
    load_i32_acquire,
    load_i64_acquire,
    store_i32_release,
    store_i64_release,
)
from mqcore.invariants cimport invariant
from mqcore.layout cimport RingCursors, RingRecord

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef enum:
    SPINS_A_YIELD = 1024            # of the torture's ends, which have no doorbell


cdef inline int64_t padded(int64_t length) noexcept nogil:
    return (sizeof(RingRecord) + length + 7) & ~<int64_t>7


cdef void ring_open_producer(Ring* ring, RingCursors* cursors, int64_t capacity) noexcept nogil:
    ring.cursors = cursors
    ring.bytes = <uint8_t*>cursors + sizeof(RingCursors)
    ring.capacity = capacity
    ring.position = load_i64_acquire(&cursors.tail)
    ring.limit = load_i64_acquire(&cursors.head)


cdef void ring_open_consumer(Ring* ring, RingCursors* cursors, int64_t capacity) noexcept nogil:
    ring.cursors = cursors
    ring.bytes = <uint8_t*>cursors + sizeof(RingCursors)
    ring.capacity = capacity
    ring.position = load_i64_acquire(&cursors.head)
    ring.limit = load_i64_acquire(&cursors.tail)


cdef int32_t ring_length_max(Ring* ring) noexcept nogil:
    return <int32_t>(ring.capacity // 2 - sizeof(RingRecord))


cdef inline bint fits(Ring* ring, int64_t size) noexcept nogil:      # R1
    if ring.position + size - ring.limit <= ring.capacity:
        return True
    ring.limit = load_i64_acquire(&ring.cursors.head)
    return ring.position + size - ring.limit <= ring.capacity


cdef inline int64_t size_from(Ring* ring, int64_t length) noexcept nogil:
    """What a record costs here, with the padding before it when it would cross the end."""
    cdef int64_t size = padded(length)
    cdef int64_t to_end = ring.capacity - (ring.position & (ring.capacity - 1))
    return size if size <= to_end else size + to_end


cdef bint ring_has_room(Ring* ring, int32_t length) noexcept nogil:
    return fits(ring, size_from(ring, length))


cdef uint8_t* ring_claim(Ring* ring, int32_t length) noexcept nogil:
    cdef int64_t size = padded(length)
    cdef int64_t index = ring.position & (ring.capacity - 1)
    cdef int64_t to_end = ring.capacity - index
    if length > ring_length_max(ring):                               # R5
        return NULL
    if size > to_end:
        if not fits(ring, size + to_end):
            return NULL
        (<RingRecord*>(ring.bytes + index)).length = -1
        ring.position += to_end
        index = 0
    elif not fits(ring, size):
        return NULL
    return ring.bytes + index + sizeof(RingRecord)


cdef void ring_finish(Ring* ring, int32_t kind, int32_t length) noexcept nogil:
    cdef RingRecord* head = <RingRecord*>(ring.bytes + (ring.position & (ring.capacity - 1)))
    invariant("R5", length >= 0)
    invariant("R5", length <= ring_length_max(ring))
    invariant("R3", (ring.position & (ring.capacity - 1)) + padded(length) <= ring.capacity)
    head.length = length
    head.kind = kind
    ring.position += padded(length)
    invariant("R1", ring.position - ring.limit <= ring.capacity)


cdef bint ring_publish_to(Ring* ring, int64_t position) noexcept nogil:
    invariant("R1", load_i64_acquire(&ring.cursors.head) <= ring.cursors.tail)
    invariant("R1", ring.cursors.tail <= position)
    invariant("R1", position <= ring.position)
    invariant("R1", ring.position - load_i64_acquire(&ring.cursors.head) <= ring.capacity)
    if ring.cursors.tail == position:
        return False
    store_i64_release(&ring.cursors.tail, position)                  # R3
    return True


cdef bint ring_publish(Ring* ring) noexcept nogil:
    return ring_publish_to(ring, ring.position)


cdef void ring_wait_for_room(Ring* ring) noexcept nogil:
    store_i32_release(&ring.cursors.producer_waits, 1)
    full_fence()          # the consumer stores head, then looks at this word: see ring_release
    ring.limit = load_i64_acquire(&ring.cursors.head)


cdef uint8_t* ring_claim_or_ask(Ring* ring, int32_t length) noexcept nogil:
    cdef uint8_t* place = ring_claim(ring, length)
    if place == NULL:
        ring_wait_for_room(ring)
        place = ring_claim(ring, length)
    return place


cdef int32_t ring_next(Ring* ring, uint8_t** record, int32_t* kind) noexcept nogil:
    cdef RingRecord* head
    cdef int64_t index
    while True:
        if ring.position == ring.limit:
            ring.limit = load_i64_acquire(&ring.cursors.tail)
            if ring.position == ring.limit:
                return -1
        invariant("R1", ring.position < ring.limit)
        invariant("R1", ring.limit - ring.position <= ring.capacity)
        index = ring.position & (ring.capacity - 1)
        head = <RingRecord*>(ring.bytes + index)
        if head.length >= 0:
            break
        ring.position += ring.capacity - index
    invariant("R3", index + padded(head.length) <= ring.capacity)
    record[0] = <uint8_t*>head + sizeof(RingRecord)
    kind[0] = head.kind
    ring.position += padded(head.length)
    invariant("R3", ring.position <= ring.limit)
    return head.length


cdef bint ring_release(Ring* ring) noexcept nogil:
    return ring_release_to(ring, ring.position)


cdef bint ring_release_to(Ring* ring, int64_t position) noexcept nogil:
    invariant("R1", ring.cursors.head <= position)
    invariant("R1", position <= load_i64_acquire(&ring.cursors.tail))
    if ring.cursors.head == position:
        return False
    store_i64_release(&ring.cursors.head, position)                  # R4
    full_fence()
    if load_i32_acquire(&ring.cursors.producer_waits):
        return exchange_i32(&ring.cursors.producer_waits, 0) == 1
    return False


cdef bint ring_is_empty(Ring* ring) noexcept nogil:
    return load_i64_acquire(&ring.cursors.tail) == ring.position


cdef class RingEnd:
    """
    One end of a ring in any writable memory of RING_CURSORS_SIZE + capacity bytes.

    memory: a writable buffer, kept alive by this object; capacity: bytes, a power of two;
    consumer: which of the two ends this is. Raises ValueError for a capacity that does not fit.
    """
    cdef Ring ring
    cdef object memory
    cdef const uint8_t[::1] view

    def __init__(self, memory, int64_t capacity, *, bint consumer=False):
        cdef uint8_t[::1] view = memory
        if capacity < 64 or capacity & (capacity - 1):
            raise ValueError(f"capacity: expected a power of two of at least 64, got {capacity}")
        if view.shape[0] < <Py_ssize_t>sizeof(RingCursors) + capacity:
            raise ValueError(f"memory: {view.shape[0]} bytes are too few for {capacity}")
        self.memory = memory
        self.view = view
        if consumer:
            ring_open_consumer(&self.ring, <RingCursors*>&view[0], capacity)
        else:
            ring_open_producer(&self.ring, <RingCursors*>&view[0], capacity)

    def claim(self, bytes record, int32_t kind=1) -> bool:
        """Write `record` behind what is committed, unseen by the consumer; False: full."""
        cdef uint8_t* place = ring_claim(&self.ring, <int32_t>PyBytes_GET_SIZE(record))
        if place == NULL:
            return False
        memcpy(place, PyBytes_AsString(record), PyBytes_GET_SIZE(record))
        ring_finish(&self.ring, kind, <int32_t>PyBytes_GET_SIZE(record))
        return True

    def publish(self) -> bool:
        """Show the consumer all that is committed; True when there was something."""
        return ring_publish(&self.ring)

    def send(self, bytes record, int32_t kind=1) -> bool:
        """Claim and publish in one."""
        return self.claim(record, kind) and self.publish()

    def next(self):
        """The next record as bytes, or None when there is none; its room stays taken."""
        cdef uint8_t* record
        cdef int32_t kind
        cdef int32_t length = ring_next(&self.ring, &record, &kind)
        if length < 0:
            return None
        return PyBytes_FromStringAndSize(<char*>record, length)

    def release(self) -> bool:
        """Give the room of all that was read back; True when the producer waits for it."""
        return ring_release(&self.ring)

    def receive(self):
        """Both in one."""
        record = self.next()
        if record is not None:
            self.release()
        return record

    def positions(self) -> tuple[int, int]:
        """(head, tail) as they are in shared memory, in bytes."""
        return (load_i64_acquire(&self.ring.cursors.head), load_i64_acquire(&self.ring.cursors.tail))


def produce_numbered(memory, int64_t capacity, int64_t count, uint64_t seed) -> None:
    """
    For the torture test: send `count` records of pseudo-random sizes and contents, without the GIL.

    Record n (from 0) holds n as i64 and then bytes that follow from seed and n; the sizes too.
    """
    cdef RingEnd end = RingEnd(memory, capacity)
    with nogil:
        produce_loop(&end.ring, count, seed)


def consume_numbered(memory, int64_t capacity, int64_t first, int64_t count, uint64_t seed,
                     int64_t spins_max) -> int:
    """
    The other side: check `count` records from number `first` on, or stop after `spins_max` empty looks.

    Returns the number of the first record that was not received; raises ValueError at a wrong one.
    """
    cdef RingEnd end = RingEnd(memory, capacity, consumer=True)
    cdef int64_t reached
    with nogil:
        reached = consume_loop(&end.ring, first, count, seed, spins_max)
    if reached < 0:
        raise ValueError(f"record {-reached - 1} is not what was sent")
    return reached


cdef inline void pause_spin(int64_t spins) noexcept nogil:
    """The other process may have no processor to run on but this one's."""
    if spins % SPINS_A_YIELD == 0:
        sched_yield()
    else:
        cpu_pause()


cdef inline uint64_t mix(uint64_t value) noexcept nogil:
    value ^= value >> 31
    value *= <uint64_t>0x9E3779B97F4A7C15
    value ^= value >> 29
    return value


cdef inline int32_t numbered_length(Ring* ring, uint64_t seed, int64_t number) noexcept nogil:
    cdef uint64_t dice = mix(seed ^ <uint64_t>number)
    cdef int32_t most = ring_length_max(ring) if dice % 64 == 0 else 200
    return <int32_t>(8 + (dice >> 8) % <uint64_t>(most - 8))


cdef void produce_loop(Ring* ring, int64_t count, uint64_t seed) noexcept nogil:
    cdef int64_t number
    cdef int64_t spins = 0
    cdef int32_t length, i
    cdef uint8_t* place
    for number in range(count):
        length = numbered_length(ring, seed, number)
        place = ring_claim(ring, length)
        while place == NULL:
            ring_publish(ring)
            spins += 1
            pause_spin(spins)
            place = ring_claim(ring, length)
        (<int64_t*>place)[0] = number
        for i in range(8, length):
            place[i] = <uint8_t>(seed + <uint64_t>number + <uint64_t>i)
        ring_finish(ring, 1, length)
        if mix(<uint64_t>number) % 4 == 0:
            ring_publish(ring)
    ring_publish(ring)


cdef int64_t consume_loop(Ring* ring, int64_t first, int64_t count, uint64_t seed,
                          int64_t spins_max) noexcept nogil:
    cdef int64_t number = first
    cdef int64_t spins = 0
    cdef int32_t length, kind, i
    cdef uint8_t* record
    while number < first + count and spins < spins_max:
        length = ring_next(ring, &record, &kind)
        if length < 0:
            ring_release(ring)
            spins += 1
            pause_spin(spins)
            continue
        spins = 0
        if length != numbered_length(ring, seed, number) or (<int64_t*>record)[0] != number:
            return -number - 1
        for i in range(8, length):
            if record[i] != <uint8_t>(seed + <uint64_t>number + <uint64_t>i):
                return -number - 1
        number += 1
        if mix(<uint64_t>number) % 4 == 0:
            ring_release(ring)
    ring_release(ring)
    return number


def produce_fixed(memory, int64_t capacity, int64_t count, int32_t length) -> None:
    """For benchmarks: `count` records of `length` bytes (a multiple of 8), 32 a publish."""
    cdef RingEnd end = RingEnd(memory, capacity)
    cdef Ring* ring = &end.ring
    cdef int64_t number
    cdef uint8_t* place
    with nogil:
        for number in range(count):
            place = ring_claim(ring, length)
            while place == NULL:
                ring_publish(ring)
                cpu_pause()
                place = ring_claim(ring, length)
            memset(place, <int>(number & 127), length)
            ring_finish(ring, 1, length)
            if number % 32 == 31:
                ring_publish(ring)
        ring_publish(ring)


def consume_fixed(memory, int64_t capacity, int64_t count, int32_t length) -> int:
    """The other side; returns how many records had the right bytes at both ends."""
    cdef RingEnd end = RingEnd(memory, capacity, consumer=True)
    cdef Ring* ring = &end.ring
    cdef int64_t number = 0, right = 0
    cdef int32_t kind, got
    cdef uint8_t* record
    with nogil:
        while number < count:
            got = ring_next(ring, &record, &kind)
            if got < 0:
                ring_release(ring)
                cpu_pause()
                continue
            right += (got == length and record[0] == (number & 127)
                      and record[length - 1] == (number & 127))
            number += 1
            if number % 32 == 0:
                ring_release(ring)
        ring_release(ring)
    return right
