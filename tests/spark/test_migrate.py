"""The job `migrate`: from a broker to another, with all that its clients go by."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mqcore.client import Message, Producer
from mqcore.client.admin import Admin
from mqcore.client.message import MessageQueue
from tests.spark.world import KeptSession, World

COUNT = 900


def migration(world: World, target: str, state: Path, **more: Any) -> Any:
    from mqcore.spark.jobs.migrate import Migration

    return Migration({"nameServer": world.namesrv}, {"nameServer": target}, state, **more)


def rows(frame: Any) -> list[tuple[Any, ...]]:
    """What has to be the same, in the order of queues."""
    own = "map_filter(properties, (k, v) -> NOT startswith(k, 'MQCORE_ORIGIN_'))"
    found = frame.selectExpr(
        "queueId", "queueOffset", "cast(body AS string) body", "flag", "bornTimestamp", "msgId",
        "reconsumeTimes", f"to_json({own}) properties").orderBy("queueId", "queueOffset").collect()
    return [tuple(row) for row in found]


def test_settings_messages_and_offsets_move_and_every_phase_can_be_repeated(
        world: World, target: Admin, tmp_path: Path) -> None:
    topic, group = world.topic(3), "movers"
    world.admin.create_group(group, retry_max_times=3)
    world.send(topic, COUNT)
    queues = [MessageQueue(topic, world.broker_name, number) for number in range(3)]
    for queue in queues:
        world.admin.set_offset(group, queue, 100 + queue.queue_id)
    moving = migration(world, target.namesrv, tmp_path / "state", messages_max=500,
                       topics=topic, groups=group)
    again = migration(world, target.namesrv, tmp_path / "fresh", topics=topic, groups=group)

    first = moving.copy(world.spark)
    world.send(topic, 60, begin=COUNT)
    world.admin.set_offset(group, queues[0], 300)
    repeated = again.copy(world.spark)                  # a state that was lost costs nothing
    over = moving.cutover(world.spark, quiet_s=0.1, wait_s=60)

    assert (first.status, first.figures["copied"], first.figures["behind"]) == (0, COUNT, 0)
    assert (repeated.figures["copied"], repeated.figures["there"]) == (60, COUNT + 60)
    assert (over.status, over.figures["copied"], over.figures["duplicates"]) == (0, 0, 0)
    assert over.figures["groups"][group] == {"queues": 3, "moved": 3, "lag": COUNT + 60 - 503}
    there = world.spark.read.format("rocketmq").options(
        nameServer=target.namesrv, topic=topic).load()
    assert rows(there) == rows(world.read(topic))
    (config,) = [one.config for one in target.group_config(group)]
    assert config.retry_max_times == 3
    for queue, offset in zip(queues, (300, 101, 102), strict=True):
        assert target.committed(group, MessageQueue(topic, "new-a", queue.queue_id)) == offset


def failing(frame: Any, broken: Path) -> Any:
    """The same rows; first tries of tasks fail in the middle, and all tries while a file is there.
    """
    from pyspark.sql.functions import udf

    @udf("binary", useArrow=False)
    def given(body: bytes) -> bytes:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        number = int(body.split(b":")[0])
        if (number >= 300 and context.attemptNumber() == 0) or (number >= 400 and broken.exists()):
            raise RuntimeError("this try ends here")
        return body

    return frame.withColumn("body", given("body"))


def test_a_migration_that_dies_in_the_middle_goes_on_where_it_was(
        world: World, target: Admin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mqcore.spark.jobs.migrate.copying import Copying

    topic, broken = world.topic(2), tmp_path / "broken"
    world.send(topic, 600, body=4_000)
    target.create_topic(topic, queues=2, broker="new-a")
    with Producer("others", namesrv=target.namesrv) as producer:       # a copy of another queue
        producer.send(
            Message(topic, "x", properties={
                "MQCORE_ORIGIN_BROKER": "b", "MQCORE_ORIGIN_QUEUE_ID": "0",
                "MQCORE_ORIGIN_OFFSET": "9999"}),
            queue=MessageQueue(topic, "new-a", 0))
    read = Copying._read

    def reading(self: Copying, cluster: Any, *args: Any) -> Any:
        self._spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
        frame = read(self, cluster, *args)
        return failing(frame, broken) if cluster.word == "source" else frame

    monkeypatch.setattr(Copying, "_read", reading)
    moving = migration(world, target.namesrv, tmp_path / "state", topics=topic,
                       sink={"sendBatchRows": "20"})
    broken.touch()
    with pytest.raises(Exception, match="this try ends here"):
        moving.copy(world.spark)
    stored = target.max_offset(MessageQueue(topic, "new-a", 0))
    broken.unlink()
    done = moving.copy(world.spark)
    monkeypatch.setattr(Copying, "_read", read)
    verified = moving.verify(world.spark)

    assert 1 < stored < 301
    assert done.figures["foreign"] == 1
    assert (done.status, done.figures["there"], done.figures["duplicates"]) == (0, 600, 0)
    assert (verified.status, verified.figures["right"]) == (0, 600)


@pytest.mark.parametrize(("arguments", "said"), [
    (["--phase", "verify"], "knows of no message that was copied"),
    (["--phase", "copy", "--topics", "("], "--topics '(':"),
    (["--phase", "copy", "--broker", "a=b"], "--broker a=b: the old cluster has mqcore-a"),
    (["--phase", "copy", "--source-option", "topik=x"], "did you mean topic?"),
])
def test_what_cannot_be_done_is_one_line(
        world: World, target: Admin, tmp_path: Path, capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str) -> None:
    from mqcore.spark.jobs import frame
    from mqcore.spark.jobs.migrate import command

    monkeypatch.setattr(frame, "session", lambda *_: KeptSession(world.spark))
    with pytest.raises(SystemExit) as ended:
        command.main(["--source", world.namesrv, "--target", target.namesrv, "--state",
                      str(tmp_path), *arguments])

    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
