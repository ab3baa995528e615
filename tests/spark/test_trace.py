"""The job `trace` counts and measures what clients told."""
from __future__ import annotations

import itertools
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy
import pytest

from mqcore.client import Consumer, Message, Producer
from mqcore.client.core.trace import (
    after_consume_record,
    before_consume_record,
    end_transaction_record,
    publish_record,
)
from tests.spark.world import World
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark]

BEGIN_MS = 1_700_000_040_000            # a window of a minute begins there
COUNT = 240
LATER_MS = BEGIN_MS + 36_000_000        # what comes then closes all windows before
# client.md 7.1: what Java's encoder wrote
JAVA = "Pub|1700000000000|DefaultRegion|PG|T|0A000007|null|k1 k2|10.0.0.7:10911|5|3|0|0A00|true#"


def pub(number: int, at_ms: int, cost_ms: int, success: bool) -> str:
    return publish_record(
        time_ms=at_ms, region="DefaultRegion", group=f"P{number % 2}", topic=f"T{number % 3}",
        message_id=f"M{number}", tags=None, keys=f"k{number}", store_host="10.0.0.7:10911",
        body_length=5, cost_ms=cost_ms, message_type=0, offset_message_id="0A", success=success)


def consumed(number: int, retry: int, at_ms: int, cost_ms: int, success: bool) -> list[str]:
    group, request = f"C{number % 2}", f"R{number}-{retry}"
    before = before_consume_record(
        time_ms=at_ms, region="DefaultRegion", group=group, request_id=request,
        message_id=f"M{number}", retry_times=retry, keys=f"k{number}")
    after = after_consume_record(
        request_id=request, message_id=f"M{number}", cost_ms=cost_ms, success=success,
        keys=f"k{number}", context_code=0 if success else 4, time_ms=at_ms + cost_ms, group=group)
    return [before, after]


class Told:
    """Records of clients, and what they come to."""

    def __init__(self, chance: random.Random) -> None:
        self.records: list[str] = []
        self.expected: dict[tuple[Any, ...], list[Any]] = defaultdict(lambda: [0, 0, 0, 0, []])
        for number in range(COUNT):
            self._message(number, chance)

    def _message(self, number: int, chance: random.Random) -> None:
        at_ms, cost_ms = BEGIN_MS + number * 1_000, chance.randrange(1, 300)
        sent = number % 17 != 5
        self.records.append(pub(number, at_ms, cost_ms, sent))
        self._count("produce", at_ms, f"T{number % 3}", f"P{number % 2}", sent, cost_ms)
        for retry in range(2 if number % 10 == 3 else 1) if sent else ():
            begun, took = at_ms + 1_500 + 20_000 * retry, chance.randrange(1, 900)
            success = retry == 1 or number % 10 != 3
            self.records += consumed(number, retry, begun, took, success)
            self._count("consume", begun + took, None, f"C{number % 2}", success, took)
            self._figure("consume", begun, None, f"C{number % 2}")[2] += 1
            self._figure("consume", begun, None, f"C{number % 2}")[3] += retry > 0
            self._count("end to end", begun + took, f"T{number % 3}", f"C{number % 2}", success,
                        begun + took - at_ms if success else None)

    def _figure(self, what: str, at_ms: int, topic: str | None, group: str) -> list[Any]:
        return self.expected[(at_ms - BEGIN_MS) // 60_000, what, topic, group]

    def _count(self, what: str, at_ms: int, topic: str | None, group: str, success: bool,
               ms: int | None) -> None:
        figure = self._figure(what, at_ms, topic, group)
        figure[0] += 1
        figure[1] += not success
        if ms is not None:
            figure[4].append(ms)

    def figures(self, *, by_window: bool) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        """Window, what, topic, group -> calls, failed, begun, retried, percentiles."""
        found: dict[tuple[Any, ...], list[Any]] = defaultdict(lambda: [0, 0, 0, 0, []])
        for (window, *rest), figure in self.expected.items():
            into = found[window if by_window else None, *rest]
            for place, value in enumerate(figure):
                into[place] += value
        return {key: (*counts, rounded(numpy.percentile(ms, [50, 90, 99, 100])))
                for key, (*counts, ms) in found.items()}


def rounded(values: Any) -> list[float]:
    return [round(float(value), 6) for value in values]


def told(frame: Any) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    rows = frame.selectExpr(
        "CAST(UNIX_MILLIS(begin) AS bigint) AS begin", "what", "topic", "group", "calls", "failed",
        "begun", "retried", "ms").collect()
    found = {(None if row.begin is None else (row.begin - BEGIN_MS) // 60_000, row.what, row.topic,
              row.group): (row.calls, row.failed, row.begun, row.retried, rounded(row.ms))
             for row in rows}
    assert len(found) == len(rows)
    return found


def send(world: World, topic: str, records: list[str], size: int = 40) -> None:
    """In trace messages of some records."""
    world.producer.send_many([Message(topic, "".join(records[at:at + size]))
                              for at in range(0, len(records), size)])


def test_figures_are_those_of_a_recomputation_in_batches_and_streams(
        world: World, tmp_path: Path) -> None:
    from mqcore.spark.jobs.trace import stream_job, trace

    chance = random.Random(7)
    topic, work = world.topic(1), Told(chance)
    cluster = {"nameServer": world.namesrv}
    output, checkpoint = str(tmp_path / "windows"), str(tmp_path / "checkpoint")
    middle = len(work.records) // 2
    early, later = work.records[:middle], work.records[middle:]
    chance.shuffle(early)
    chance.shuffle(later)
    options: dict[str, Any] = {"topic": topic, "window_s": 60.0, "delay_s": 600.0}
    send(world, topic, [*early, *early[:100]], middle)              # some are sent twice
    send(world, topic, [*later, *early[:30]], middle)
    batch = trace(world.spark, cluster, topic=topic, output=str(tmp_path / "spans")).figures
    assert {(None, what, row.get("topic"), row.get("group")): (
        row["calls"], row["failed"], rounded(row["ms"].values()))
        for what, name in (("produce", "produce"), ("consume", "consume"),
                           ("end to end", "endToEnd")) for row in batch[name]} == {
        key: (figure[0], figure[1], figure[4])
        for key, figure in work.figures(by_window=False).items()}
    rows = world.spark.read.parquet(str(tmp_path / "spans")).selectExpr(
        "COUNT(*)", "COUNT(DISTINCT msgId)", "COUNT(endToEndMs)",
        "COUNT_IF(outcome = 'FAILED')", "COUNT_IF(retries = 1)").first()
    calls = sum(figure[0] for key, figure in work.expected.items() if key[1] == "consume")
    failed = sum(figure[1] for key, figure in work.expected.items() if key[1] == "consume")
    unsent = sum(number % 17 == 5 for number in range(COUNT))
    assert tuple(rows) == (calls + unsent, COUNT, calls - failed, failed, failed)

    send(world, topic, [pub(9, LATER_MS, 1, True)])                 # closes all windows before
    stream_job(world.spark, cluster, output, checkpoint, maxOffsetsPerTrigger=3, **options)
    send(world, topic, [pub(9, BEGIN_MS, 1, True)])                 # ten hours late
    report = stream_job(world.spark, cluster, output, checkpoint, **options).figures
    assert told(world.spark.read.parquet(output)) == work.figures(by_window=True)
    assert report["late"] == 1
    assert report["readUntil"] == {topic: {world.broker_name: {"0": 6}}}


def test_traces_of_clients_are_read_and_so_are_javas(world: World) -> None:
    from mqcore.spark.jobs.trace import spans, trace

    topic, traces, group = world.topic(1), world.topic(1), "traced-group"
    cluster = {"nameServer": world.namesrv}
    with Producer("traced", namesrv=world.namesrv, trace=True, trace_topic=traces) as producer:
        for number in range(5):
            producer.send(Message(topic, f"{number}", keys=f"k{number}"))
    with Consumer(group, topic, namesrv=world.namesrv, start="earliest", trace=True,
                  trace_topic=traces) as consumer:
        assert len(list(itertools.islice(consumer, 5))) == 5
    send(world, traces, [
        JAVA.replace("|", "\x01").replace("#", "\x02"), "Pub\x01not a time\x02", "\x02",
        end_transaction_record(
            time_ms=1_700_000_000_100, region="R", group="PG", topic="T", message_id="0A000007",
            tags=None, keys=None, store_host="h:1", message_type=2, transaction_id="X",
            state="COMMIT_MESSAGE", from_check=True)])
    wait_until(lambda: trace(world.spark, cluster, topic=traces).figures["records"].get(
        "SubAfter", 0) == 5, "the traces of five messages", 60)

    report = trace(world.spark, cluster, topic=traces).figures
    assert report["records"] == {"Pub": 6, "SubBefore": 5, "SubAfter": 5, "EndTransaction": 1}
    assert report["ends"] == [{"producerGroup": "PG", "topic": "T", "state": "COMMIT_MESSAGE",
                               "fromCheck": True, "count": 1}]
    (way,) = report["endToEnd"]
    assert (way["topic"], way["group"], way["host"], way["calls"], way["failed"]) == (
        topic, group, "127.0.0.1", 5, 0)
    with spans(world.spark, cluster, topic=traces) as frame:
        row = frame.where("msgId = '0A000007'").first()
    assert (row.topic, row.keys, row.broker, row.sendMs, row.sent, row.state, row.fromCheck) == (
        "T", "k1 k2", "10.0.0.7:10911", 3, True, "COMMIT_MESSAGE", True)
