# One-producer, one-consumer byte ring in shared memory.
#
# A position counts bytes since the ring was made and only grows; index = position & (capacity - 1).
# A record is a RingRecord and `length` bytes, rounded up to 8. A negative length is padding up to
# the end of the buffer, so that every record is contiguous.
#
#   R1  head <= tail <= head + capacity.
#   R2  Only the producer stores tail. Only the consumer stores head.
#   R3  The bytes in [head, tail) are whole records: written first, then tail is stored (release).
#   R4  The producer reuses only bytes below head, which is stored (release) after the last read.
#   R5  A record never takes more than half of the capacity, so that an empty ring has room for it.
#
# A producer that dies before ring_publish leaves nothing behind: tail never moved. A consumer that
# dies before ring_release leaves the records for its successor.
from libc.stdint cimport int32_t, int64_t, uint8_t

from mqcore.layout cimport RingCursors


cdef struct Ring:                 # one process's view; only what the two pointers reach is shared
    RingCursors* cursors
    uint8_t* bytes
    int64_t capacity              # a power of two
    int64_t position              # producer: end of the last committed record; consumer: next to read
    int64_t limit                 # what the other side had last stored when we looked


cdef void ring_open_producer(Ring* ring, RingCursors* cursors, int64_t capacity) noexcept nogil
cdef void ring_open_consumer(Ring* ring, RingCursors* cursors, int64_t capacity) noexcept nogil

# -- producer: claim, write, commit; publish once for a batch ---------------------------------------
cdef uint8_t* ring_claim(Ring* ring, int32_t length) noexcept nogil    # NULL: full, unchanged
# The same; a full ring's consumer rings when there is room.
cdef uint8_t* ring_claim_or_ask(Ring* ring, int32_t length) noexcept nogil
cdef void ring_finish(Ring* ring, int32_t kind, int32_t length) noexcept nogil   # <= the claimed
cdef bint ring_publish(Ring* ring) noexcept nogil          # true: something new for the consumer
# The same for what was committed up to `position`, where a record ends
cdef bint ring_publish_to(Ring* ring, int64_t position) noexcept nogil
cdef bint ring_has_room(Ring* ring, int32_t length) noexcept nogil
cdef void ring_wait_for_room(Ring* ring) noexcept nogil    # then ask once more before giving up

# -- consumer: next, next, ...; release once for a batch --------------------------------------------
cdef int32_t ring_next(Ring* ring, uint8_t** record, int32_t* kind) noexcept nogil  # length or -1
cdef bint ring_release(Ring* ring) noexcept nogil          # true: a producer waits for the room
# The same for what was read up to `position`, where a record ends
cdef bint ring_release_to(Ring* ring, int64_t position) noexcept nogil
cdef bint ring_is_empty(Ring* ring) noexcept nogil         # consumer's look, for before it sleeps
cdef int32_t ring_length_max(Ring* ring) noexcept nogil    # R5
