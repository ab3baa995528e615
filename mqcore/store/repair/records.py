"""
What a repair writes where records were: stretches of the commit log that every reader goes over.

store.md 2.1, 2.8, 8, 9. A damaged stretch [start, end) of one segment becomes whole records again,
so that a reader which only knows records (a stock broker's dispatch, recovery, replication) finds
the next one behind it:

- A message that is known to have lain there, by its queue's entry or by a gap in the numbers, gets
  a *placeholder*: topic, queue and number of the lost one, the property MQCORE_LOST with the log
  position, and a body of that word: Java clients give an empty one to listeners as null. Without it
  the queue would have a gap, and a stock broker would number all later messages anew when it builds
  the queue again, or skip good ones when it reads (store.md 3.3, 10).
- The rest becomes *bridges*: rolled back transactions of the topic MQCORE_LOST with a body of
  zeros, which are in no queue and in no index.
- A stretch up to its segment's end closes with a blank record.
"""
from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from mqcore.layout import MAGIC_BLANK, MAGIC_MESSAGE
from mqcore.wire import codes

LOST_TOPIC: Final = b"MQCORE_LOST"
LOST_PROPERTY: Final = b"MQCORE_LOST"
SCHEDULE_TOPIC: Final = codes.SCHEDULE_TOPIC.encode()
HALF_TOPIC: Final = codes.HALF_TOPIC.encode()
OP_TOPIC: Final = codes.OP_TOPIC.encode()
LIGHT_PREFIX: Final = b"%LMQ%"
ROLLED_BACK: Final = 0xC
FIXED_SIZE: Final = 91               # of a record: all but topic, properties and body
RECORD_MIN: Final = FIXED_SIZE + 1
BLANK_MIN: Final = 8
BRIDGE_MAX: Final = 1 << 20          # bytes of one bridge: far below what readers take at a time
HEAD: Final = struct.Struct(">iiiiiqqiq")
TAIL: Final = struct.Struct(">iqi")
BLANK: Final = struct.Struct(">ii")
NO_HOST: Final = bytes(8)            # 0.0.0.0:0


class NoRoomError(ValueError):
    """A stretch is too short for any record."""


@dataclass(frozen=True)
class Lost:
    """
    A message that is gone. queues: (topic, queue id, queue offset), the first is that of its own
    topic, the others are those of a multi-dispatch list; position: where it lay or must have lain.
    """

    queues: tuple[tuple[bytes, int, int], ...]
    position: int

    @property
    def size_min(self) -> int:
        return FIXED_SIZE + len(self.queues[0][0])


def record(topic: bytes, queue_id: int, queue_offset: int, position: int, *, sys_flag: int = 0,
           body: bytes = b"", properties: bytes = b"", time_ms: int) -> bytes:
    """A whole record (store.md 2.1) with IPv4 hosts."""
    size = FIXED_SIZE + len(topic) + len(properties) + len(body)
    crc = zlib.crc32(body) & 0x7FFF_FFFF
    return b"".join((
        HEAD.pack(size, MAGIC_MESSAGE, crc, queue_id, 0, queue_offset, position, sys_flag, time_ms),
        NO_HOST, struct.pack(">q", time_ms), NO_HOST, TAIL.pack(0, 0, len(body)), body,
        bytes([len(topic)]), topic, struct.pack(">h", len(properties)), properties))


def filled(start: int, end: int, lost: Sequence[Lost], *, closes: bool, time_ms: int,
           ) -> Iterator[tuple[int, bytes]]:
    """
    The bytes that go into [start, end), as (position, bytes), gapless.

    lost: placeholders, in log order, that fit (`room`); closes: the stretch reaches its segment's
    end; time_ms: store time of the records. Raises NoRoomError.
    """
    at = start
    stop = end - BLANK_MIN if closes else end
    if stop < start:
        raise NoRoomError(f"{end - start} bytes hold no blank record")
    needed = sum(one.size_min for one in lost)
    for one in lost:
        needed -= one.size_min
        made = _placeholder(one, at, time_ms, stop - at - needed)
        left = stop - at - len(made)
        if 0 < left < RECORD_MIN and not closes:           # nothing else fits: the body takes it
            made = _placeholder(one, at, time_ms, len(made), pad=left)
        yield at, made
        at += len(made)
    if closes:
        yield at, BLANK.pack(end - at, MAGIC_BLANK)
        yield from _zeros(at + BLANK_MIN, end)
        return
    while at < end:
        size = min(end - at, BRIDGE_MAX)
        if 0 < end - at - size < RECORD_MIN:
            size -= RECORD_MIN
        if size < RECORD_MIN:
            raise NoRoomError(f"{end - at} bytes hold no record")
        topic = LOST_TOPIC[:size - FIXED_SIZE]
        yield at, record(topic, 0, 0, at, sys_flag=ROLLED_BACK,
                         body=bytes(size - FIXED_SIZE - len(topic)), time_ms=time_ms)
        at += size


def room(start: int, end: int, *, closes: bool) -> int:
    """Bytes for placeholders in a stretch."""
    return max(0, end - start - (BLANK_MIN if closes else 0))


def _placeholder(lost: Lost, position: int, time_ms: int, size_max: int, pad: int = 0) -> bytes:
    """The record of a placeholder, of size_max bytes at most, and `pad` bytes of body besides."""
    topic, queue_id, offset = lost.queues[0]
    properties = _properties(lost)
    body = b"-1" if topic == OP_TOPIC else LOST_TOPIC      # an op record that ends no half message
    if lost.size_min + len(properties) + len(body) > size_max:
        properties = b""
        body = body[:max(0, size_max - lost.size_min)]
    return record(topic, queue_id, offset, position, body=body + bytes(pad),
                  properties=properties, time_ms=time_ms)


def _properties(lost: Lost) -> bytes:
    items = [(LOST_PROPERTY, b"%d" % lost.position)]
    topic = lost.queues[0][0]
    if topic in (SCHEDULE_TOPIC, HALF_TOPIC):              # their readers pass messages on
        items += [(b"REAL_TOPIC", LOST_TOPIC), (b"REAL_QID", b"0")]
    if topic == OP_TOPIC:
        items.append((b"TAGS", b"d"))
    if len(lost.queues) > 1:
        items += [(b"INNER_MULTI_DISPATCH", b",".join(name for name, _, _ in lost.queues[1:])),
                  (b"INNER_MULTI_QUEUE_OFFSET",
                   b",".join(b"%d" % offset for _, _, offset in lost.queues[1:]))]
    return b"\x02".join(key + b"\x01" + value for key, value in items)


def _zeros(start: int, end: int) -> Iterator[tuple[int, bytes]]:
    while start < end:
        size = min(end - start, BRIDGE_MAX)
        yield start, bytes(size)
        start += size
