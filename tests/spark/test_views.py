"""A queue that nobody may pull from is read by its entries, whole; what is not there is said."""
from __future__ import annotations

import json

import pytest

from mqcore.client.admin.transactions import OP_TOPIC
from mqcore.client.config import ClientConfig
from mqcore.client.errors import RemotingError
from mqcore.client.message import MessageQueue
from mqcore.spark.topics import link
from mqcore.spark.topics.idle import Idle
from mqcore.spark.topics.ranges import Missing, OffsetRange
from mqcore.spark.topics.views import ENTRIES_AT_ONCE, ViewReader
from mqcore.wire.codes import RequestCode, ResponseCode
from mqcore.wire.command import Command, response
from mqcore.wire.records import decode_records
from tests.spark.fake_broker import FakeBroker, record, serving


class Entries(FakeBroker):
    """Its records are at 100 times their offset; those of `expired` are gone; one connection
    breaks."""

    expired: frozenset[int] = frozenset()

    def answer(self, request: Command) -> Command:
        ext = request.ext or {}
        if self.connections > 1:
            self.breaks_after = 0
        if request.code == RequestCode.VIEW_MESSAGE_BY_ID:
            offset = int(ext["offset"] or 0) // 100
            if offset in self.expired:
                return response(request, ResponseCode.SYSTEM_ERROR, "not there")
            answer = response(request, ResponseCode.SUCCESS, "")
            answer.body = record(offset)
            return answer
        assert request.code == RequestCode.QUERY_CONSUME_QUEUE
        begin, count = int(ext["index"] or 0), int(ext["count"] or 0)
        answer = response(request, ResponseCode.SUCCESS, "")
        answer.body = json.dumps({
            "minQueueIndex": self.first, "maxQueueIndex": self.end,
            "queueData": [{"physicOffset": 100 * offset} for offset in self.offsets
                          if begin <= offset < begin + count and begin >= self.first]}).encode()
        return answer


@pytest.fixture(autouse=True)
def _no_kept_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "_kept", Idle(link.Link.close))


def read(broker: FakeBroker, begin: int, end: int, *, timeout: float = 5.0
         ) -> tuple[list[int], list[tuple[int, int]]]:
    offsets: list[int] = []
    missing = []
    with serving(broker):
        for piece in ViewReader(
                ClientConfig(namesrv="127.0.0.1:1"), lambda: broker.address,
                OffsetRange(MessageQueue(OP_TOPIC, "b", 0), begin, end), in_flight=16,
                timeout=timeout):
            if isinstance(piece, Missing):
                missing.append((piece.begin, piece.end))
            else:
                offsets += [one.queue_offset for one in decode_records(piece.records)]
    return offsets, missing


def test_every_record_is_viewed_once_and_in_order_though_a_connection_breaks() -> None:
    count = 2 * ENTRIES_AT_ONCE + 7
    broker = Entries(range(count), breaks_after=ENTRIES_AT_ONCE + 9)

    assert read(broker, 3, count) == (list(range(3, count)), [])
    assert broker.connections == 2
    assert broker.waiting_most > 4


def test_what_retention_has_deleted_is_said() -> None:
    broker = Entries(range(10, 60))
    broker.expired = frozenset({30, 31})

    assert read(broker, 0, 70) == (
        [*range(10, 30), *range(32, 60)], [(0, 10), (30, 32), (60, 70)])


def test_a_broker_that_stays_away_is_an_error() -> None:
    with pytest.raises(RemotingError):
        list(ViewReader(ClientConfig(namesrv="127.0.0.1:1"), lambda: "127.0.0.1:9",
                        OffsetRange(MessageQueue(OP_TOPIC, "b", 0), 0, 1), in_flight=1,
                        timeout=0.05))
