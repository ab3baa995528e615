"""The job `dlq` tells dead letters apart, and sends each again once."""
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mqcore.client import Message, MessageQueue, PushConsumer
from tests.spark.world import World
from tests.support.waiting import wait_until

COUNT = 150


def fail_all(world: World, group: str, topic: str, letters: int) -> None:
    """A group that gives up everything, until it has so many dead letters."""
    def listen(message: Any) -> None:
        raise RuntimeError("not today")

    dead = MessageQueue(f"%DLQ%{group}", world.broker_name, 0)
    with PushConsumer(group, topic, listen, namesrv=world.namesrv, start="earliest", max_retries=0):
        wait_until(lambda: world.admin.committed(
            group, MessageQueue(topic, world.broker_name, 0)) == end_of(world, topic)
            and end_of(world, dead.topic) == letters, "all dead letters", 120)


def end_of(world: World, topic: str) -> int:
    return world.admin.max_offset(MessageQueue(topic, world.broker_name, 0))


@dataclass(frozen=True)
class Letters:
    """Dead letters of a group, which come from a topic of one queue."""

    topic: str
    group: str
    ledger: Path

    @classmethod
    def given_up(cls, world: World, ledger: Path) -> Letters:
        """COUNT of them: half with each tag, a third of them with a cause."""
        topic = world.topic(1)
        made = cls(topic, f"{topic}-group", ledger)
        world.producer.send_many([Message(
            topic, f"{number}", tags=f"t{number % 2}", keys=[f"k{number}"],
            properties={"exception": f"refused after {number} ms\nat x"} if number % 3 == 0
            else {}) for number in range(COUNT)])
        fail_all(world, made.group, topic, COUNT)
        return made

    def resume(self, world: World) -> None:
        """After a job has been killed that had begun to send all of them again."""
        from mqcore.spark.jobs.dlq import dlq

        topic, group, ledger = self.topic, self.group, self.ledger
        cluster = {"nameServer": world.namesrv}
        assert COUNT < end_of(world, topic) < 2 * COUNT

        ended = dlq(world.spark, cluster, group, redrive=True, ledger=ledger, rate=5_000,
                    count_max=2 * COUNT, list_count=0).figures
        assert (ended["resumed"], ended["chosen"], ended["sent"]) == (COUNT, 0, 0)
        sent = world.read(topic).where("properties['MQCORE_ORIGIN_TOPIC'] IS NOT NULL").selectExpr(
            "COUNT(*)", "COUNT(DISTINCT properties['MQCORE_ORIGIN_MESSAGE_ID'])",
            "COUNT(DISTINCT body)", "MIN(properties['MQCORE_ORIGIN_TOPIC'])",
            "COUNT(DISTINCT tags, keys[0])").first()
        assert tuple(sent) == (COUNT, COUNT, COUNT, f"%DLQ%{group}", COUNT)
        assert end_of(world, topic) == 2 * COUNT

        fail_all(world, group, topic, 2 * COUNT)
        report = dlq(world.spark, cluster, group, ledger=ledger, list_count=0).figures
        assert (report["letters"], report["chosen"]) == (
            {"rows": 2 * COUNT, "messages": COUNT, "notSendable": 0, "redriven": COUNT,
             "cameBack": COUNT}, 0)
        some = dlq(world.spark, cluster, group, ledger=ledger, again=True, count_max=COUNT - 1,
                   list_count=0)
        assert some.figures["chosen"] == COUNT - 1


@pytest.mark.spark
def test_dead_letters_are_told_apart_and_sent_only_with_a_ledger(
        world: World, tmp_path: Path) -> None:
    """Sent they are, by a job that is killed, in test_killed_drivers.py."""
    from mqcore.spark.errors import OptionError
    from mqcore.spark.jobs.dlq import DeadLetterChoice, dlq

    letters = Letters.given_up(world, tmp_path / "ledger")
    topic, group = letters.topic, letters.group
    cluster = {"nameServer": world.namesrv}

    report = dlq(world.spark, cluster, group, choice=DeadLetterChoice(tags=["t1"])).figures
    assert (report["letters"]["messages"], report["chosen"], report["dryRun"]) == (COUNT, 75, True)
    assert [(one["topic"], one["tags"], one["cause"], one["messages"])
            for one in report["clusters"]["dead"]["cause"]] == [
        (topic, "t0", None, 50), (topic, "t1", None, 50),
        (topic, "t0", "refused after # ms", 25), (topic, "t1", "refused after # ms", 25)]
    assert [one["host"] for one in report["clusters"]["dead"]["host"]] == ["127.0.0.1"] * 2
    with pytest.raises(OptionError, match="needs a ledger"):
        dlq(world.spark, cluster, group, redrive=True)
    with pytest.raises(OptionError, match=r"where 'nothing > 1': .*nothing"):
        dlq(world.spark, cluster, group, choice=DeadLetterChoice(where="nothing > 1"))


def test_a_ledger_is_of_one_group_and_of_one_job_at_a_time(tmp_path: Path) -> None:
    import pyarrow

    from mqcore.spark.errors import OptionError, SparkSourceError
    from mqcore.spark.jobs.dlq_ledger import Ledger

    ledger = Ledger(tmp_path / "ledger", "G", write=True)
    table = pyarrow.table({"queueOffset": [3, 5]})
    with ledger.alone():
        run = ledger.begin(table)
        with pytest.raises(SparkSourceError, match="another job"), Ledger(
                tmp_path / "ledger", "G", write=True).alone():
            raise AssertionError("it had it")
    assert [(one.number, one.is_done, one.table()) for one in ledger.runs()] == [(1, False, table)]
    ledger.finish(run)
    assert [one.is_done for one in ledger.runs()] == [True]
    assert ledger.begin(table).identity != run.identity
    with pytest.raises(OptionError, match="ledger of group G"):
        Ledger(tmp_path / "ledger", "H", write=False)
