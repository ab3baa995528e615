"""A queue that nobody may pull from is read by its entries, whole; what is not there is said."""
from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark")

from mqcore.client.admin.transactions import OP_TOPIC
from mqcore.spark.topics.views import ENTRIES_AT_ONCE
from mqcore.wire.codes import RequestCode, ResponseCode
from mqcore.wire.command import Command, response
from tests.spark.fake_broker import FakeBroker, record, serving
from tests.spark.world import World


class Entries(FakeBroker):
    """
    Its records are at 100 times their offset; those of `expired` are gone. A connection breaks in
    place of answer `breaks_at`; with `breaks_always` each that asks for entries.
    """

    expired: frozenset[int] = frozenset()
    refuses = False
    breaks_always = False
    breaks_at = 0
    given = 0

    def answer(self, request: Command) -> Command:
        ext = request.ext or {}
        if request.code not in (RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.QUERY_CONSUME_QUEUE):
            return super().answer(request)
        self.given += 1
        if self.breaks_always or self.given == self.breaks_at:
            raise ConnectionResetError
        if self.refuses:
            return response(request, ResponseCode.SYSTEM_ERROR, "closed")
        if request.code == RequestCode.VIEW_MESSAGE_BY_ID:
            offset = int(ext["offset"] or 0) // 100
            if offset in self.expired:
                return response(request, ResponseCode.SYSTEM_ERROR, "not there")
            answer = response(request, ResponseCode.SUCCESS, "")
            answer.body = record(offset)
            return answer
        begin, count = int(ext["index"] or 0), int(ext["count"] or 0)
        answer = response(request, ResponseCode.SUCCESS, "")
        answer.body = json.dumps({
            "minQueueIndex": self.first, "maxQueueIndex": self.end,
            "queueData": [{"physicOffset": 100 * offset} for offset in self.offsets
                          if begin <= offset < begin + count and begin >= self.first]}).encode()
        return answer


@pytest.fixture(autouse=True)
def _both(source: str) -> None:
    """Each test runs on the source in Python and on the one in the JVM."""


def read(world: World, broker: FakeBroker, begin: int, end: int, **options: str
         ) -> tuple[list[int], list[tuple[int, int]]]:
    """The offsets of the rows, in order, and the gaps."""
    with serving(broker):
        before, world.namesrv = world.namesrv, broker.address
        try:
            rows = world.read(OP_TOPIC, columns="queueOffset,gapEnd,body", **{
                "startingOffsets": json.dumps({OP_TOPIC: {"b": {"0": begin}}}),
                "endingOffsets": json.dumps({OP_TOPIC: {"b": {"0": end}}}),
                "failOnDataLoss": "false", **options}).collect()
        finally:
            world.namesrv = before
    assert all(int(row["body"]) == row["queueOffset"] for row in rows if row["gapEnd"] is None)
    return ([row["queueOffset"] for row in rows if row["gapEnd"] is None],
            [(row["queueOffset"], row["gapEnd"]) for row in rows if row["gapEnd"] is not None])


def test_every_record_is_viewed_once_and_in_order_though_a_connection_breaks(world: World) -> None:
    count = 2 * ENTRIES_AT_ONCE + 7
    broker = Entries(range(count))
    broker.breaks_at = ENTRIES_AT_ONCE + 9

    assert read(world, broker, 3, count) == (list(range(3, count)), [])
    assert broker.given > count
    assert broker.waiting_most > 4


def test_what_retention_has_deleted_is_said(world: World) -> None:
    broker = Entries(range(10, 60), end=70)
    broker.expired = frozenset({30, 31})

    assert read(world, broker, 0, 70) == (
        [*range(10, 30), *range(32, 60)], [(0, 10), (30, 32), (60, 70)])
    with pytest.raises(Exception, match="offsets 0 to 9 of queue 0 of topic RMQ_SYS_TRANS_OP"):
        read(world, broker, 0, 70, failOnDataLoss="true")


def test_what_no_broker_filters_is_refused(world: World) -> None:
    with pytest.raises(Exception, match="brokers do not filter topic RMQ_SYS_TRANS_OP"):
        read(world, Entries(range(5)), 0, 5, subExpression="t1")


def test_a_broker_that_refuses_or_stays_away_is_an_error(world: World) -> None:
    broker = Entries(range(10))
    broker.refuses = True
    with pytest.raises(Exception, match="code 1: closed"):
        read(world, broker, 0, 10)
    broker.refuses = False
    broker.breaks_always = True
    with pytest.raises(Exception, match=r"closed|lost"):
        read(world, broker, 0, 10, timeout="50ms")
