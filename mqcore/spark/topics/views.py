"""
Reads a range of a queue that nobody may pull from: its entries, then each record by its place.

Brokers keep the queue of op records without settings of its topic, and answer pulls that there is
no such topic. It is on every broker that has half messages.
"""
from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Final

from mqcore.client.config import ClientConfig
from mqcore.client.errors import ClientError, RemotingError, broker_error
from mqcore.client.native.columns import scan
from mqcore.client.network.pool import client_request
from mqcore.client.read.pull_link import PullFrame
from mqcore.spark.topics.link import Answer, Link, call, keep_link, open_link, prepare
from mqcore.spark.topics.ranges import PAUSE_MAX_S, PAUSE_S, FetchedRecords, Missing, OffsetRange
from mqcore.wire import fastjson
from mqcore.wire.codes import OP_TOPIC, RequestCode, ResponseCode
from mqcore.wire.command import Command
from mqcore.wire.records import RecordError

NOT_PULLED: Final = frozenset({OP_TOPIC})
ENTRIES_AT_ONCE: Final = 512


class ViewReader:
    """Reads a range on one connection; yields what a RangeReader does."""

    def __init__(
        self, config: ClientConfig, locate: Callable[[], str], one: OffsetRange, *, in_flight: int,
        timeout: float,
    ) -> None:
        """The parameters are those of RangeReader."""
        self._config = config
        self._locate = locate
        self._range = one
        self._in_flight = in_flight
        self._timeout = timeout
        self._view = PullFrame(_view, prepare(config), signed=config.account is not None)

    def __iter__(self) -> Iterator[FetchedRecords | Missing]:
        """What the range has. Raises RocketMQError."""
        at = self._range.begin
        while at < self._range.end:
            piece = self._piece(at, min(at + ENTRIES_AT_ONCE, self._range.end))
            yield piece
            at = piece.next if isinstance(piece, FetchedRecords) else piece.end

    def _piece(self, begin: int, end: int) -> FetchedRecords | Missing:
        """Tried again while connections fail, for as long as the time-out says."""
        since = time.monotonic()
        while True:
            try:
                return self._read(begin, end)
            except RemotingError:
                failing_s = time.monotonic() - since
                if failing_s >= self._timeout:
                    raise
                time.sleep(min(max(failing_s, PAUSE_S), PAUSE_MAX_S))

    def _read(self, begin: int, end: int) -> FetchedRecords | Missing:
        link = open_link(self._locate(), self._config)
        try:
            places, first = self._places(link, begin, end)
            answers = self._views(link, places)
        except BaseException:
            link.close()
            raise
        keep_link(link, self._config)
        if not places:
            return Missing(begin, first if begin < first < end else end, "they are not there")
        gone = next((number for number, answer in enumerate(answers)
                     if answer.code == ResponseCode.SUCCESS), len(answers))
        if gone:
            return Missing(begin, begin + gone, "retention has deleted them")
        records = [answer.body for answer in itertools.takewhile(
            lambda answer: answer.code == ResponseCode.SUCCESS, answers)]
        try:
            found, count, after, _, missing = scan(b"".join(records), begin, end, True, None)
        except RecordError as error:
            raise ClientError(f"records of {self._range.queue}: {error}") from error
        if after == begin:
            return Missing(begin, missing if missing > begin else end, "other records are there")
        return FetchedRecords(found, count, after)

    def _places(self, link: Link, begin: int, end: int) -> tuple[list[int], int]:
        """Where the records of some offsets are, in the log; and the queue's first offset."""
        queue = self._range.queue
        answer = call(link, client_request(RequestCode.QUERY_CONSUME_QUEUE, {
            "topic": queue.topic, "queueId": str(queue.queue_id), "index": str(begin),
            "count": str(end - begin), "consumerGroup": ""}), self._config, self._timeout)
        if answer.code != ResponseCode.SUCCESS:
            raise broker_error(answer.code, answer.remark, link.address, topic=queue.topic)
        said = fastjson.loads(answer.body)
        return ([entry["physicOffset"] for entry in said.get("queueData") or ()],
                said.get("minQueueIndex", 0))

    def _views(self, link: Link, places: list[int]) -> list[Answer]:
        """The answers, in the order of the places, with some on their way at a time."""
        waiting: dict[int, int] = {}
        found: dict[int, Answer] = {}
        sent = 0
        while len(found) < len(places):
            frames = []
            while sent < len(places) and len(waiting) < self._in_flight:
                opaque = link.next_opaque()
                waiting[opaque] = sent
                frames.append(self._view.frame(places[sent], opaque))
                sent += 1
            if frames:
                link.write(b"".join(frames), self._timeout)
            answer = link.answer(self._timeout)
            if answer.opaque in waiting:
                found[waiting.pop(answer.opaque)] = answer
        return [found[number] for number in range(len(places))]


def _view(place: str) -> Command:
    return client_request(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": place})
