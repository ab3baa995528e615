"""One queue that a reader reads: what it asks next, and whether it got every offset. No I/O.

Invariant: each offset of the range is handed out once, or an error names the offsets that are not.
"""
from __future__ import annotations

from collections import deque

from mqcore.client.errors import ClientError
from mqcore.client.message import MessageQueue
from mqcore.client.native.columns import scan
from mqcore.client.read.batches import RawBatch, ReadGap
from mqcore.client.received import ReceivedMessage
from mqcore.wire.codes import MASTER_ID, ResponseCode
from mqcore.wire.records import RecordError

NO_STOP = (1 << 63) - 1
ANSWERS = frozenset({
    ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
})


class Cursor:
    """
    queue    as the application knows it
    topic    its topic as brokers know it
    begin    the first offset to read
    stop     where to end: the first offset not to read; NO_STOP = never
    whole    whether every offset has to be there: nothing filters
    tags     encoded, for the comparison by text; None = all
    """

    __slots__ = ("ask", "broker_id", "decoded", "end", "failing_since", "generation", "pulling",
                 "queue", "ready", "ready_bytes", "stop", "stuck", "tags", "topic", "whole")

    def __init__(self, queue: MessageQueue, topic: str, begin: int, stop: int, *, whole: bool,
                 tags: list[bytes] | None) -> None:
        self.queue: MessageQueue = queue
        self.topic: str = topic
        self.stop: int = stop
        self.whole: bool = whole
        self.tags: list[bytes] | None = tags
        self.broker_id: int = MASTER_ID
        self.end: int = -1                      # of the queue, as last heard; -1 = not yet
        self.pulling: bool = False
        self.generation: int = 0                # answers to what was asked before a seek are stale
        self.failing_since: float | None = None
        self.ready: deque[RawBatch] = deque()
        self.ready_bytes: int = 0
        self.decoded: deque[ReceivedMessage] = deque()
        self.seek(begin)

    def seek(self, offset: int) -> None:
        """Continue at `offset`; what was pulled and not handed out is forgotten."""
        self.ask: int = offset                  # the offset to pull next
        self.generation += 1
        self.pulling = False
        self.stuck: bool = False                # the last answer brought nothing and no reason
        self.failing_since = None
        self.ready.clear()
        self.decoded.clear()
        self.ready_bytes = 0

    @property
    def position(self) -> int:
        """The first offset that was not handed out."""
        if self.decoded:
            return self.decoded[0].queue_offset
        return self.ready[0].begin if self.ready else self.ask

    @property
    def is_pulled(self) -> bool:
        """Whether nothing is left to pull."""
        return self.ask >= self.stop

    @property
    def is_done(self) -> bool:
        """Whether everything was handed out."""
        return self.ask >= self.stop and not self.ready and not self.decoded

    @property
    def is_idle(self) -> bool:
        """Whether the queue had nothing more when it last said something."""
        return 0 <= self.end <= self.ask

    def accept(
        self, code: int, next_offset: int, min_offset: int, max_offset: int, body: bytes
    ) -> RawBatch | None:
        """
        Take a pull's answer, one of ANSWERS; the batch that it brought.

        Raises ReadGap when offsets are missing, ClientError for an answer that makes no sense.
        """
        begin, self.end = self.ask, max_offset
        self.failing_since = None
        if code == ResponseCode.SUCCESS:
            return self._found(begin, next_offset, body)
        moved = code == ResponseCode.PULL_OFFSET_MOVED
        if min_offset > begin or (moved and next_offset > begin):
            self._missing(begin, max(min_offset, next_offset))
        if moved and next_offset < begin:
            raise ReadGap(self.queue, next_offset, begin,
                          f"{self.queue}: offset {begin} was asked for, but the queue ends at"
                          f" {max_offset}")
        if self.whole and next_offset > begin:
            self._missing(begin, next_offset)
        self.stuck = next_offset <= begin
        self.ask = min(max(begin, next_offset), self.stop)
        return None

    def _found(self, begin: int, next_offset: int, body: bytes) -> RawBatch | None:
        try:
            records, count, after, first_ms, missing = scan(
                body, begin, self.stop, self.whole, self.tags)
        except RecordError as error:
            raise ClientError(f"pull from {self.queue}: {error}",
                              topic=self.queue.topic) from error
        if self.whole and after == begin and body:
            self._missing(begin, missing if missing >= 0 else self.stop)    # they begin behind it
        if not self.whole:
            after = min(max(after, next_offset), self.stop)
        if after == begin:
            raise ClientError(f"pull from {self.queue}: found messages, and none of offset {begin}",
                              topic=self.queue.topic)
        self.ask = after
        self.stuck = False
        if not count:
            return None
        batch = RawBatch(self.queue, records, count, begin, after, first_ms)
        self.ready.append(batch)
        self.ready_bytes += len(records)
        return batch

    def take(self) -> RawBatch:
        """The next batch, which is handed out."""
        batch = self.ready.popleft()
        self.ready_bytes -= len(batch.records)
        return batch

    def _missing(self, begin: int, end: int) -> None:
        """Raises ReadGap; the offsets after the range may be read: `seek`."""
        end = min(end, self.stop)
        raise ReadGap(self.queue, begin, end,
                      f"{self.queue}: offsets {begin} to {end - 1} are not there (any more)")
