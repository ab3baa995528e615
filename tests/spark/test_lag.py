"""The job `lag` says how far groups and streams are behind, and where that is uneven."""
from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark")

from mqcore.client import Message, MessageQueue
from mqcore.spark import Progress
from tests.spark.world import World

LONG, SHORT, DONE = 400, 20, 5


def filled(world: World) -> list[MessageQueue]:
    """Four queues: one has twenty times as many messages as the others, half of one key."""
    topic = world.topic(4)
    queues = [MessageQueue(topic, world.broker_name, number) for number in range(4)]
    for queue in queues:
        world.producer.send_many([Message(
            topic, b"x" * 50, tags="hot" if queue.queue_id == 0 else f"t{number % 7}",
            keys=["k" if number % 2 and queue.queue_id == 0 else f"{queue.queue_id}-{number}"])
            for number in range(LONG if queue.queue_id == 0 else SHORT)], queue=queue)
    return queues


def check(topic: dict[str, Any], who: str, positions: list[int], since_ms: int) -> None:
    lags = [end - at for end, at in zip([LONG, SHORT, SHORT, SHORT], positions, strict=True)]
    queues = topic["queues"]
    assert (topic["who"], topic["lag"], topic["lost"]) == (who, sum(lags), 0)
    assert [queue["lag"] for queue in queues] == lags
    assert [queue["bytes"] for queue in queues] == [50 * lag for lag in lags]
    assert [queue["isSkewed"] for queue in queues] == [True, False, False, False]
    assert [queue["isWrittenMore"] for queue in queues] == [True, False, False, False]
    now_ms = time.time_ns() // 1_000_000
    assert all(0 < queue["behindMs"] <= now_ms - since_ms for queue in queues if queue["lag"])
    assert all(queue["behindMs"] == 0 for queue in queues if not queue["lag"])


@pytest.mark.spark
def test_a_skewed_queue_and_hot_keys_are_seen(world: World, tmp_path: Path) -> None:
    from mqcore.spark.jobs.lag import lag

    cluster = {"nameServer": world.namesrv}
    since_ms = time.time_ns() // 1_000_000
    queues = filled(world)
    topic = queues[0].topic
    group = f"{topic}-group"
    world.admin.create_group(group)
    for queue in queues:
        world.admin.set_offset(group, queue, SHORT if queue.queue_id == 3 else DONE)
    query = world.run(world.stream(topic, startingOffsets="earliest"), tmp_path, "noop")
    progress = Progress("Q", 7, 3, dict.fromkeys(queues, DONE), {})

    found = lag(world.spark, cluster, groups=[group], progress=[progress],
                checkpoints=[tmp_path], lag_max=1_000, behind_max_s=3_600.0)

    by_query, stored, by_group = (next(one for one in found.figures["topics"] if one["who"] == who)
                                  for who in ("query Q", f"query {query.id}", f"group {group}"))
    check(by_group, f"group {group}", [DONE, DONE, DONE, SHORT], since_ms)
    check(by_query, "query Q", [DONE] * 4, since_ms)
    assert (stored["lag"], stored["behindMs"]) == (0, 0)
    hot = {(one["what"], one["value"]): one["share"] for one in by_group["hot"]}
    assert set(hot) == {("tag", "hot"), ("key", "k")}
    assert hot["tag", "hot"] == 200 / (200 + 2 * (SHORT - DONE))
    assert (found.status, found.figures["overLimit"]) == (0, [])
    assert lag(world.spark, cluster, groups=[group], lag_max=100, sample=0).status == 1


def test_what_cannot_be_is_said_in_one_line(tmp_path: Path) -> None:
    from mqcore.spark.errors import OptionError
    from mqcore.spark.jobs import lag, transactions

    with pytest.raises(OptionError, match="is no checkpoint of a query"):
        lag.of_checkpoint(tmp_path)
    for command, arguments, said in (
            (lag.command, ["-n", "h:1", "--behind-max", "soon"], "expected a time, as in 500ms"),
            (transactions.command, ["--since", "now", "-n", "h:1"], "expected milliseconds since"),
            (transactions.command, [], "give --namesrv of a cluster, or --store")):
        outcome = CliRunner(env={"NAMESRV_ADDR": ""}).invoke(command, arguments)
        assert (outcome.exit_code, said in outcome.output) == (2, True), outcome.output
