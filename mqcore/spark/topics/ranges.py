"""
Reads a range of a queue's offsets with many pulls on their way at a time.

A broker answers with as many messages as it likes: stock with 32 as a rule, 8 of old ones, ours
with up to 128 KiB, since each pull says that it replays. So the range is cut into segments of about
what an answer brings; each has one request on its way, and asks again for what an answer left open.
Segments are handed out in order.

Invariant: pieces and `Missing` cover the range in order, without gap or overlap.
"""
from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from mqcore.client.config import ClientConfig
from mqcore.client.consume.options import PULL_COUNT_MAX
from mqcore.client.errors import (
    REFUSED_FOR_NOW,
    BrokerError,
    ClientError,
    RemotingError,
    RocketMQError,
    broker_error,
)
from mqcore.client.message import MessageQueue
from mqcore.client.native.columns import scan
from mqcore.client.network.pool import client_request
from mqcore.client.read.pull_link import FLAG_REPLAYS, PullFrame
from mqcore.spark.topics.link import Answer, Link, keep_link, open_link, prepare
from mqcore.wire.codes import RequestCode, ResponseCode
from mqcore.wire.command import Command, Ext
from mqcore.wire.records import RecordError
from mqcore.wire.tags import SUBSCRIBE_ALL, Subscription

FIRST_STEP = 32                     # offsets of a segment, before an answer said how many it brings
FIRST_ANSWERS = 4                   # full ones before larger segments are tried, at first
STEP_MAX = 8_192
FULL_ANSWERS = 128                  # the same once an answer has left something open
PAUSE_S = 0.05                      # before a question is asked again
PAUSE_MAX_S = 1.0

_FLAGS = 0x4 | FLAG_REPLAYS         # it brings its subscription
_ANSWERED = frozenset({
    ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
})


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of one queue: from `begin` on, below `end`."""

    queue: MessageQueue
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """Records of a range, end to end; `next` is the offset after all that it covers."""

    records: bytes
    count: int
    next: int


@dataclass(frozen=True, slots=True)
class Missing:
    """Offsets that are not there: from `begin` on, below `end`; `why` in words."""

    begin: int
    end: int
    why: str


class _Segment:
    __slots__ = ("at", "begin", "end", "pieces", "since")

    def __init__(self, begin: int, end: int) -> None:
        self.begin = begin
        self.end = end
        self.at = begin                 # the offset to ask for next
        self.since = 0.0                # when it began to bring nothing; 0: it does not
        self.pieces: list[FetchedRecords | Missing] = []


class RangeReader:
    """Reads ranges, one after the other, on one connection."""

    def __init__(
        self, config: ClientConfig, locate: Callable[[], str], one: OffsetRange, topic: str,
        subscription: Subscription, *, group: str, in_flight: int, timeout: float,
    ) -> None:
        """
        locate     where the queue's broker is; asked again after each failure
        topic      as brokers know it
        in_flight  requests on their way
        timeout    seconds without any progress, after which the reading fails
        """
        self._config = config
        self._locate = locate
        self._range = one
        self._topic = topic
        self._subscription = subscription
        self._group = group
        self._in_flight = in_flight
        self._timeout = timeout
        self._whole = subscription.expression == SUBSCRIBE_ALL
        self._tags = [tag.encode() for tag in subscription.tags] or None
        self._prepare = prepare(config)
        self._requests: dict[int, PullFrame] = {}
        self._link: Link | None = None
        self._waiting: dict[int, _Segment] = {}
        self._segments: deque[_Segment] = deque()
        self._next = one.begin
        self._step = FIRST_STEP
        self._full = 0
        self._full_wanted = FIRST_ANSWERS
        self._output: list[bytes] = []
        self._progress = time.monotonic()

    def __iter__(self) -> Iterator[FetchedRecords | Missing]:
        """What the range has. Raises RocketMQError."""
        try:
            while True:
                self._fill()
                if not self._segments:
                    break
                head = self._segments[0]
                while head.at < head.end:
                    self._turn()
                self._segments.popleft()
                yield from head.pieces
            if self._link is not None:
                keep_link(self._link, self._config)
                self._link = None
        finally:                            # also when a task is given up: then answers are missing
            if self._link is not None:
                self._link.close()

    def _fill(self) -> None:
        while len(self._segments) < self._in_flight and self._next < self._range.end:
            segment = _Segment(self._next, min(self._next + self._step, self._range.end))
            self._next = segment.end
            self._segments.append(segment)
            if self._link is not None:
                self._ask(segment)

    def _turn(self) -> None:
        """Take one answer; after a failure all that has none is asked for again."""
        try:
            if self._link is None:
                self._connect()
            assert self._link is not None
            if self._output:
                self._link.write(b"".join(self._output), self._timeout)
                self._output.clear()
            answer = self._link.answer(self._timeout)
        except (RemotingError, OSError) as error:
            if self._link is not None:
                self._link.close()
                self._link = None
            self._pause(error if isinstance(error, RocketMQError) else ClientError(str(error)))
            return
        segment = self._waiting.pop(answer.opaque, None)
        if segment is not None:
            self._take(segment, answer)

    def _connect(self) -> None:
        self._waiting.clear()
        self._output.clear()
        self._link = open_link(self._locate(), self._config)
        for segment in self._segments:
            if segment.at < segment.end:
                self._ask(segment)

    def _pause(self, error: RocketMQError) -> None:
        """Before another try; raises the error when there was no progress for too long."""
        failing_s = time.monotonic() - self._progress
        if failing_s >= self._timeout:
            raise error
        time.sleep(min(max(failing_s, PAUSE_S), PAUSE_MAX_S))

    # -- asking -----------------------------------------------------------------------------------

    def _ask(self, segment: _Segment) -> None:
        assert self._link is not None
        count = min(segment.end - segment.at, PULL_COUNT_MAX)
        request = self._requests.get(count)
        if request is None:
            request = self._requests[count] = PullFrame(
                partial(self._request, count), self._prepare,
                signed=self._config.account is not None)
        opaque = self._link.next_opaque()
        self._waiting[opaque] = segment
        self._output.append(request.frame(segment.at, opaque))

    def _request(self, count: int, offset: str) -> Command:
        queue = self._range.queue
        ext: Ext = {
            "consumerGroup": self._group, "topic": self._topic, "queueId": str(queue.queue_id),
            "queueOffset": offset, "maxMsgNums": str(count), "sysFlag": str(_FLAGS),
            "commitOffset": "0", "suspendTimeoutMillis": "0",
            "subscription": self._subscription.expression, "subVersion": "0",
            "expressionType": self._subscription.expression_type, "bname": queue.broker_name,
        }
        return client_request(RequestCode.PULL_MESSAGE, ext)

    # -- answers ----------------------------------------------------------------------------------

    def _take(self, segment: _Segment, answer: Answer) -> None:
        before = segment.at
        if answer.code == ResponseCode.SUCCESS:
            self._found(segment, answer)
        elif answer.code in _ANSWERED:
            self._nothing_found(segment, answer)
        elif answer.code == ResponseCode.TOPIC_NOT_EXIST:
            self._miss_all(segment, "its broker has no such topic (any more)")
        else:
            error = broker_error(answer.code, answer.remark, self._address(),
                                 topic=self._range.queue.topic)
            if not _may_pass(error):
                raise error
            self._pause(error)
        if segment.at > before:
            self._progress = time.monotonic()
            segment.since = 0.0
        if segment.at < segment.end:
            self._ask(segment)

    def _found(self, segment: _Segment, answer: Answer) -> None:
        begin, following = segment.at, answer.number("nextBeginOffset")
        try:
            records, count, after, _, missing = scan(
                answer.body, begin, segment.end, self._whole, self._tags)
        except RecordError as error:
            raise ClientError(f"pull from {self._range.queue}: {error}") from error
        if self._whole and after == begin:      # what was found first may lie behind the segment
            self._miss(segment, missing if missing >= 0 else segment.end,
                       "they are not there (any more)")
            return
        if not self._whole:
            after = min(max(after, following), segment.end)
        if after == begin:
            raise ClientError(
                f"pull from {self._range.queue}: found messages, and none of offset {begin}")
        if count:
            segment.pieces.append(FetchedRecords(records, count, after))
        self._learn(segment, begin, after)
        segment.at = after

    def _learn(self, segment: _Segment, begin: int, after: int) -> None:
        """How much an answer brings: the size of the next segments."""
        if after < segment.end:
            if begin == segment.begin:
                self._step = max(after - begin, 1)
            self._full = 0
            self._full_wanted = FULL_ANSWERS
            return
        self._full += 1
        if self._full >= self._full_wanted or (not self._whole and begin == segment.begin):
            self._step = min(2 * self._step, STEP_MAX if not self._whole else PULL_COUNT_MAX)
            self._full = 0

    def _nothing_found(self, segment: _Segment, answer: Answer) -> None:
        following, begin = answer.number("nextBeginOffset"), segment.at
        first, end = answer.number("minOffset"), answer.number("maxOffset")
        moved = answer.code == ResponseCode.PULL_OFFSET_MOVED
        if first > begin or (moved and following > begin):
            self._miss(segment, max(first, following), "retention has deleted them")
        elif 0 <= end <= begin:
            if moved or self._stays(segment):
                self._miss_all(segment, f"the queue ends at {end}: its topic was made anew, or its"
                               " broker lost its newest messages")
        elif following > begin:
            if self._whole:
                self._miss(segment, following, "the broker passes over them")
            else:
                self._learn(segment, begin, min(following, segment.end))
                segment.at = min(following, segment.end)
        elif self._stays(segment):
            raise ClientError(f"pull from {self._range.queue}: the broker gives nothing at"
                              f" {begin}, and says no reason (code {answer.code})")

    def _stays(self, segment: _Segment) -> bool:
        """Whether a segment brings nothing for too long; else it was waited for a moment."""
        now = time.monotonic()
        if not segment.since:
            segment.since = now
        if now - segment.since >= self._timeout:
            return True
        time.sleep(PAUSE_S)
        return False

    def _miss(self, segment: _Segment, end: int, why: str) -> None:
        """Offsets of a segment, and perhaps of all behind it, are not there."""
        stop = min(max(end, segment.at + 1), segment.end)
        segment.pieces.append(Missing(segment.at, stop, why))
        segment.at = stop

    def _miss_all(self, segment: _Segment, why: str) -> None:
        """Nothing from here on is there: what was not asked for yet is not asked for."""
        self._miss(segment, segment.end, why)
        if self._next < self._range.end:
            rest = _Segment(self._next, self._range.end)
            self._miss(rest, rest.end, why)
            self._segments.append(rest)
            self._next = self._range.end

    def _address(self) -> str:
        return "" if self._link is None else self._link.address


def _may_pass(error: BrokerError) -> bool:
    return error.code in REFUSED_FOR_NOW
