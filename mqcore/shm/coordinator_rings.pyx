"""The coordinator's ends of the rings: frames that come from the serving processes, answers that go."""
import socket
from collections import deque
from typing import NamedTuple

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from mqcore.endian cimport load_i32
from mqcore.layout cimport (
    ADDRESS_V4_SIZE,
    ADDRESS_V6_SIZE,
    ANSWER_CLOSE,
    ANSWER_DROP,
    ANSWER_FRAME,
    ANSWER_OFFER,
    ANSWER_REDO,
    ANSWER_DONE,
    CONNECTION_LIFE_MASK,
    CONNECTION_LIFE_SHIFT,
    CONNECTION_SERVING_SHIFT,
    FORWARD_CLOSED,
    FORWARD_OFFSETS,
    FORWARD_PART_SHARE,
    FORWARD_READS,
    FORWARD_REPEATED,
    FORWARD_UNREAD,
    FRAME_HEADER_LENGTH_MASK,
    FRAME_HEADER_WORD,
    PART_MORE,
    PART_NEXT,
    PART_PLACE_SHIFT,
    SERVING_COUNT_MAX,
    SLOT_SERVING,
    ForwardHead,
    OffsetCommit,
)
from mqcore.shm.ring cimport (
    Ring,
    ring_claim_or_ask,
    ring_finish,
    ring_is_empty,
    ring_next,
    ring_publish,
    ring_release,
)
from mqcore.shm.segment cimport Segment, doorbell_ring, shm_consumer, shm_producer

cdef enum:
    PART_BYTES_MAX = 256 << 10
    WAITING_BYTES_MAX = 256 << 20     # answers that wait for a serving process that does not take them


class Forwarded(NamedTuple):
    """A frame without its length word, from a connection."""

    connection: int
    parked: int                # id of the request that waits in the serving process; 0: none does
    body_size: int             # bytes of the body that stayed there, or came with the frame
    remote: str                # "ip:port"
    fast_port: bool
    frame: bytes
    body: bytes                # of a long frame; then `frame` ends with its header
    repeated: bool             # an earlier coordinator has answered it: no answer
    shares: int                # for `count_done`, when it is done
    size: int
    passed: bool               # access control lets it pass; else it is to be asked
    urgent: bool               # others wait for it (forward N19)
    taken_us: int              # steady: when its serving process handed it on


class Closed(NamedTuple):
    """A connection is gone."""

    connection: int


class ReadState(NamedTuple):
    """A connection does not read what it is sent, or does so again."""

    connection: int
    reads: bool


class CommittedOffset(NamedTuple):
    """An offset that came with a pull."""

    group: str
    topic: str
    queue_id: int
    offset: int


cdef class LongFrame:
    """A frame that comes in parts. Each of its bytes is copied once, when its part comes."""
    cdef uint64_t connection
    cdef bytes header                 # with its word
    cdef bytes body
    cdef int64_t size                 # that came

    def __init__(self, uint64_t connection, int64_t header_size, int64_t body_size):
        self.connection = connection
        self.header = PyBytes_FromStringAndSize(NULL, header_size)
        self.body = PyBytes_FromStringAndSize(NULL, body_size)
        self.size = 0

    cdef bint add(self, const uint8_t* part, int64_t length) except -1:
        """Returns whether it is whole. Nobody else has seen the bytes before."""
        cdef int64_t header_size = len(self.header)
        cdef int64_t whole = header_size + len(self.body)
        cdef int64_t of_header = min(max(header_size - self.size, 0), length)
        if self.size + length > whole:
            raise ValueError(f"a frame of {whole} bytes: {self.size + length} came")
        memcpy(PyBytes_AS_STRING(self.header) + self.size, part, of_header)
        self.size += of_header
        memcpy(PyBytes_AS_STRING(self.body) + self.size - header_size, part + of_header,
               length - of_header)
        self.size += length - of_header
        return self.size == whole

    def add_for_test(self, bytes part) -> bool:
        return self.add(<const uint8_t*><const char*>part, len(part))

    @property
    def texts(self) -> tuple[bytes, bytes]:
        """Header with its word, and body: once all has come."""
        return self.header, self.body


cdef class CoordinatorRings:
    """Receives from and answers to every serving process of a run. One thread."""
    cdef Segment segment
    cdef Ring requests[SERVING_COUNT_MAX]
    cdef Ring answers[SERVING_COUNT_MAX]
    cdef list waiting                 # per serving process: answers that found no room
    cdef list waiting_bytes
    cdef dict begun                   # (serving, place): the LongFrame that is not whole yet
    cdef dict done            # connection: shares and bytes that are done and not said (forward N5)
    cdef int lives[SERVING_COUNT_MAX]      # incarnation of each serving process
    cdef bint gathering               # answers wait for `push_waiting`
    cdef readonly int64_t dropped     # answers that were given up: their serving process is stuck
    cdef readonly int64_t sent_bytes  # of answers, since the start

    def __init__(self, Segment segment):
        self.segment = segment
        self.waiting = []
        self.waiting_bytes = []
        self.begun = {}
        self.done = {}
        for i in range(segment.shm.head.serving_count):
            shm_consumer(&segment.shm, &segment.shm.head.requests[i], &self.requests[i])
            shm_producer(&segment.shm, &segment.shm.head.answers[i], &self.answers[i])
            self.lives[i] = self.life(i)
            self.waiting.append(deque())
            self.waiting_bytes.append(0)

    def receive(self, int limit) -> list:
        """Up to `limit` items from each ring: Forwarded, Closed, ReadState, CommittedOffset. Each is given once."""
        cdef uint8_t* record
        cdef int32_t kind, length
        cdef int i, count
        items = []
        for i in range(self.segment.shm.head.serving_count):
            count = 0
            while count < limit:
                length = ring_next(&self.requests[i], &record, &kind)
                if length < 0:
                    break
                count += 1
                if kind == FORWARD_OFFSETS:
                    self.add_offsets(items, record, length)
                else:
                    item = self.item(i, <ForwardHead*>record, kind, record + sizeof(ForwardHead),
                                     length - <int32_t>sizeof(ForwardHead))
                    if item is not None:
                        items.append(item)
            # before anything is handled: a frame that ends this process is not met again
            if ring_release(&self.requests[i]):
                doorbell_ring(&self.segment.shm.slots[SLOT_SERVING + i])
        return items

    cdef object item(self, int serving, ForwardHead* head, int32_t kind, const uint8_t* payload,
                     int32_t length):
        if kind == FORWARD_CLOSED:
            self.give_up(head.connection)
            return Closed(head.connection)
        if kind in (FORWARD_UNREAD, FORWARD_READS):
            return ReadState(head.connection, kind == FORWARD_READS)
        shares, size, body = 1, length, b""
        cdef LongFrame joined
        if head.part:
            joined = self.join(serving, head, payload, length)
            if joined is None:
                return None
            shares, size = FORWARD_PART_SHARE, joined.size
            frame, body = joined.header, joined.body
        else:
            frame = (<const char*>payload)[:length]
        address_size = ADDRESS_V6_SIZE if head.address_is_v6 else ADDRESS_V4_SIZE
        address = socket.inet_ntop(socket.AF_INET6 if head.address_is_v6 else socket.AF_INET,
                                   (<const char*>head.address)[:address_size])
        return Forwarded(head.connection, head.parked, head.body_size,
                         f"{'[' + address + ']' if head.address_is_v6 else address}:{head.port}",
                         bool(head.fast_port), frame, body, kind == FORWARD_REPEATED, shares, size,
                         bool(head.passed), bool(head.urgent), head.taken_us)

    cdef LongFrame join(self, int serving, ForwardHead* head, const uint8_t* part, int32_t length):
        """The whole frame with its last part; None before, and when it began with an earlier coordinator."""
        key = (serving, head.part >> PART_PLACE_SHIFT)
        cdef LongFrame frame
        if not head.part & PART_NEXT:
            frame = self.begun.get(key)
            if frame is not None:      # it goes on from its beginning (asked N16)
                self.count_done(frame.connection, 0, frame.size)
            self.begun[key] = LongFrame(
                head.connection, FRAME_HEADER_WORD + (load_i32(part) & FRAME_HEADER_LENGTH_MASK),
                head.body_size)
        frame = self.begun.get(key)
        if frame is None or frame.connection != head.connection:
            self.count_done(head.connection, FORWARD_PART_SHARE, length)
            return None
        if not frame.add(part, length):
            self.count_done(head.connection, FORWARD_PART_SHARE, 0)
            return None
        del self.begun[key]
        return frame

    cdef void give_up(self, uint64_t connection):
        """Frames of a connection that is gone: their other parts will not come."""
        cdef LongFrame frame
        for key, frame in list(self.begun.items()):
            if frame.connection == connection:
                del self.begun[key]
                self.count_done(connection, 0, frame.size)

    cdef int life(self, int serving):
        return self.segment.shm.slots[SLOT_SERVING + serving].incarnation & CONNECTION_LIFE_MASK

    def is_stale(self, uint64_t connection) -> bool:
        """Whether a connection was one of a serving process that has ended (transport N4)."""
        cdef int serving = <int>(connection >> CONNECTION_SERVING_SHIFT & 0xFF)
        return (serving >= self.segment.shm.head.serving_count
                or <int>(connection >> CONNECTION_LIFE_SHIFT) != self.life(serving))

    def lost(self) -> bool:
        """
        Whether a serving process was started anew since the last call; what waited for connections
        of its predecessor is dropped.
        """
        cdef LongFrame frame
        cdef bint changed = False
        cdef int i
        for i in range(self.segment.shm.head.serving_count):
            if self.lives[i] == self.life(i):
                continue
            changed = True
            self.lives[i] = self.life(i)
            self.waiting[i] = deque([one for one in self.waiting[i] if not self.is_stale(one[0])])
            self.waiting_bytes[i] = sum([len(one[4]) for one in self.waiting[i]])
        if changed:
            for key, frame in list(self.begun.items()):
                if self.is_stale(frame.connection):
                    del self.begun[key]
            self.done = {one: done for one, done in self.done.items() if not self.is_stale(one)}
        return changed

    cdef void add_offsets(self, list items, const uint8_t* record, int32_t length):
        cdef const OffsetCommit* commit
        cdef int32_t at = 0
        while at + <int32_t>sizeof(OffsetCommit) <= length:
            commit = <const OffsetCommit*>(record + at)
            items.append(CommittedOffset(
                (<const char*>commit.group)[:commit.group_length].decode(errors="replace"),
                (<const char*>commit.topic)[:commit.topic_length].decode(errors="replace"),
                commit.queue_id, commit.offset))
            at += sizeof(OffsetCommit)

    def has_work(self) -> bool:
        """Whether something waits, or an answer may find room now."""
        for i in range(self.segment.shm.head.serving_count):
            if not ring_is_empty(&self.requests[i]):
                return True
        return False

    def count_done(self, uint64_t connection, int shares, int64_t size) -> None:
        """
        So much of a connection's is done (forward N5); it hears so with the next answer, or
        `say_done`.
        """
        before = self.done.get(connection, (0, 0))
        self.done[connection] = (before[0] + shares, before[1] + size)

    def say_done(self) -> None:
        """Tell every connection what is done of its frames."""
        cdef set servings = set()
        for connection, (shares, size) in self.done.items():
            if self.is_stale(connection):
                continue
            serving = connection >> CONNECTION_SERVING_SHIFT & 0xFF
            self.waiting[serving].append((connection, ANSWER_DONE, shares, 0, b"", size))
            servings.add(serving)
        self.done.clear()
        for serving in servings:
            self.push(serving)

    # -- answers -----------------------------------------------------------------------------------

    def send(self, uint64_t connection, bytes frame, int32_t parked=0) -> None:
        """A whole frame (with its length word) for a connection; parked: forget that request."""
        self.put(connection, ANSWER_FRAME, [frame], parked)

    def send_parts(self, uint64_t connection, list parts not None, int32_t parked=0) -> None:
        """The same of a frame in parts, which nobody joins: at least one, none of them empty."""
        self.put(connection, ANSWER_FRAME, parts, parked)

    def offer(self, uint64_t connection, bytes frame) -> None:
        """As `send`, but dropped when the connection does not read (answers N6)."""
        self.put(connection, ANSWER_OFFER, [frame], 0)

    def redo(self, uint64_t connection, int32_t parked, bytes header=b"") -> None:
        """Run the parked request; header: in place of the one it came with."""
        self.put(connection, ANSWER_REDO, [header], parked)

    def drop(self, uint64_t connection, int32_t parked) -> None:
        """Forget the parked request: there is no answer, or it was given."""
        self.put(connection, ANSWER_DROP, [b""], parked)

    def close(self, uint64_t connection) -> None:
        """Close the connection."""
        self.put(connection, ANSWER_CLOSE, [b""], 0)

    cdef void put(self, uint64_t connection, int32_t kind, list parts, int32_t parked):
        cdef int serving = <int>(connection >> CONNECTION_SERVING_SHIFT & 0xFF)
        cdef Py_ssize_t size = sum(map(len, parts)), done_bytes = 0, start
        cdef bytes part, piece
        if self.is_stale(connection):
            return
        self.sent_bytes += size
        if self.waiting_bytes[serving] + size > WAITING_BYTES_MAX:
            self.dropped += 1
            if kind == ANSWER_OFFER:
                return
            if parked:                 # never to be answered: its place is free again
                self.waiting[serving].append((connection, ANSWER_DROP, parked, 0, b"", 0))
            kind, parked, parts, size = ANSWER_CLOSE, 0, [b""], 0
        done = self.done.pop(connection, None)
        if done is not None:
            self.waiting[serving].append((connection, ANSWER_DONE, done[0], 0, b"", done[1]))
        for part in parts:
            for start in range(0, max(len(part), 1), PART_BYTES_MAX):
                piece = part[start:start + PART_BYTES_MAX]
                done_bytes += len(piece)
                self.waiting[serving].append((
                    connection, kind, parked, (PART_MORE if done_bytes < size else 0)
                    | (PART_NEXT if done_bytes > len(piece) else 0), piece, 0))
        self.waiting_bytes[serving] += size
        if not self.gathering:
            self.push(serving)

    def bytes_that_wait(self) -> int:
        """Of answers, for room in the rings."""
        return sum(self.waiting_bytes)

    def gather(self, bint whether) -> None:
        """Whether answers wait for the next `push_waiting`: one bell for many."""
        self.gathering = whether

    cdef bint push_one(self, int serving, tuple answer):
        cdef Ring* ring = &self.answers[serving]
        cdef bytes payload = answer[4]
        cdef int32_t size = <int32_t>(sizeof(ForwardHead) + len(payload))
        cdef uint8_t* place = ring_claim_or_ask(ring, size)
        cdef ForwardHead* head
        if place == NULL:
            return False
        head = <ForwardHead*>place
        memset(head, 0, sizeof(ForwardHead))
        head.connection = answer[0]
        head.parked = answer[2]
        head.part = answer[3]
        head.body_size = <int32_t>min(answer[5], 0x7FFFFFFF)
        memcpy(place + sizeof(ForwardHead), <const char*>payload, len(payload))
        ring_finish(ring, answer[1], size)
        return True

    cdef void push(self, int serving):
        queue = self.waiting[serving]
        while queue and self.push_one(serving, queue[0]):
            self.waiting_bytes[serving] -= len(queue.popleft()[4])
        if ring_publish(&self.answers[serving]):
            doorbell_ring(&self.segment.shm.slots[SLOT_SERVING + serving])

    def push_waiting(self) -> bool:
        """Try again what found no room; returns whether something still waits."""
        for i in range(self.segment.shm.head.serving_count):
            if self.waiting[i]:
                self.push(i)
        return any(self.waiting)
