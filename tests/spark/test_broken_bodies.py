"""Bodies that nobody can decompress: what moves messages stops there, or does as it was told."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from mqcore.client.admin import Admin
from mqcore.spark.errors import SparkSourceError
from mqcore.spark.jobs.frame import one_line
from mqcore.spark.jobs.migrate import Migration
from mqcore.spark.jobs.replay import Choice, replay
from mqcore.wire.codes import RequestCode
from tests.spark.test_archive import archived
from tests.spark.world import World
from tests.support.mqcore_process import MqcoreProcess
from tests.wire_live.peer import Peer, send_fields

COMPRESSED, LZ4 = 0x1, 0x100
BROKEN = ((b"this is no zlib", COMPRESSED), (b"nor is this lz4", COMPRESSED | LZ4))


def send_broken(broker: MqcoreProcess, topic: str, number: int) -> None:
    body, sys_flag = BROKEN[number]
    with Peer(broker.broker_addr) as peer:
        answer = peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields(
            topic, properties="n\x01-1\x02", flag=7, sys_flag=sys_flag), body)
    assert answer.code == 0


def refusal(run: Any) -> str:
    """The one line that a job says."""
    with pytest.raises(Exception, match="nobody can decompress") as caught:
        run()
    assert not isinstance(caught.value, SparkSourceError)           # it comes through Spark
    return one_line(caught.value)


def test_a_migration_stops_at_them_or_copies_them_as_they_are(
        world: World, broker: MqcoreProcess, target: Admin, tmp_path: Path) -> None:
    topic = world.topic(1)
    world.send(topic, 20)
    send_broken(broker, topic, 0)
    world.send(topic, 20, begin=20)
    send_broken(broker, topic, 1)

    def migration(broken: str) -> Migration:
        return Migration({"nameServer": world.namesrv}, {"nameServer": target.namesrv},
                         tmp_path / "state", topics=topic, broken=broken)

    assert "from offset 20: --broken raw" in refusal(lambda: migration("fail").copy(world.spark))
    first = migration("raw").copy(world.spark)
    world.send(topic, 1, begin=40)              # a copy that looks back meets a broken one
    done = migration("raw").copy(world.spark)
    verified = migration("raw").verify(world.spark)

    assert (first.figures["broken"], first.figures["there"], first.figures["behind"]) == (2, 42, 0)
    assert (done.status, done.figures["broken"], done.figures["there"]) == (0, 2, 43)
    assert (verified.status, verified.figures["right"]) == (0, 43)
    columns = "queueOffset,body,brokenBody,flag,sysFlag,bornTimestamp"
    there = world.spark.read.format("rocketmq").options(
        nameServer=target.namesrv, topic=topic, columns=columns).load()
    assert sorted(there.collect()) == sorted(world.read(topic, columns=columns).collect())


def test_a_replay_stops_at_them_or_leaves_them_out_and_goes_on(
        world: World, broker: MqcoreProcess, tmp_path: Path) -> None:
    topic, again = world.topic(1), world.topic(1)
    world.send(topic, 700)
    send_broken(broker, topic, 0)
    world.send(topic, 50, begin=700)
    archived(world, tmp_path / "lake", topic)

    def run(broken: str) -> Any:
        return replay(world.spark, tmp_path / "lake", again, {"nameServer": world.namesrv},
                      Choice(), broken=broken)

    assert "--broken skip" in refusal(lambda: run("fail"))
    done = run("skip")
    repeated = run("fail")

    assert (done.figures["resumed"], done.figures["messages"], done.figures["broken"]) == (
        True, 751, 1)
    assert repeated.figures["broken"] == 1
    assert world.numbers(world.read(again)) == list(range(750))
