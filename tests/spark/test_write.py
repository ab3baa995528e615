"""Sinks to topics."""
from __future__ import annotations

import pytest

from tests.spark.world import forget_commit

SEVERAL = {"sendBatchRows": 50, "sendsInFlight": 4}


def frame_of(world, count, parts=2, size=0):
    """Rows of numbers, with all that a sink takes."""
    return world.spark.range(0, count, 1, parts).selectExpr(
        f"cast(rpad(concat(id, ':'), greatest({size}, length(id) + 1), 'x') as binary) body",
        "concat('t', id % 3) tags", "array(concat('k', id)) keys",
        "map('n', cast(id as string)) properties", "cast(id % 7 as string) shardingKey")


def failing_once(frame):
    """The same rows; the first try of the second task fails when it has given most of them."""
    from pyspark.sql.functions import udf

    @udf("binary", useArrow=False)
    def given(body):
        from pyspark import TaskContext

        context = TaskContext.get()
        if body.startswith(b"900:") and (context.partitionId(), context.attemptNumber()) == (1, 0):
            raise RuntimeError("this try ends here")
        return body

    return frame.withColumn("body", given("body"))


def test_what_is_written_is_read(world):
    """Apache's sink writes body, topic and tags alone."""
    topic = world.topic()
    world.write(frame_of(world, 2_000), topic)

    rows = world.read(topic).selectExpr(
        "cast(body as string) body", "tags", "keys", "properties['n'] n", "queueId").collect()

    assert sorted((row["body"], row["tags"], row["keys"][0], row["n"]) for row in rows) == sorted(
        (f"{n}:", f"t{n % 3}", f"k{n}", str(n)) for n in range(2_000))
    queues = {}
    for row in rows:
        queues.setdefault(int(row["n"]) % 7, set()).add(row["queueId"])
    assert all(len(ids) == 1 for ids in queues.values())


def test_rows_say_topic_queue_and_delay(world):
    first, second = world.topic(2), world.topic(2)
    frame = world.spark.range(0, 40, 1, 1).selectExpr(
        "concat(id, ':') body", f"if(id < 20, '{first}', '{second}') topic",
        "cast(id % 2 as int) queueId", "if(id = 5, 1, 0) delayTimeLevel")
    world.write(frame, None)

    out = world.read(subscribe=f"{first},{second}", columns="body,topic,queueId,queueOffset")
    rows = [(row["topic"], row["queueId"], int(row["body"].split(b":")[0]))
            for row in out.orderBy("topic", "queueId", "queueOffset").collect()]
    expected = sorted((first if n < 20 else second, n % 2, n) for n in range(40) if n != 5)
    assert [row for row in rows if row[2] != 5] == expected


def test_a_frame_of_one_topic_can_go_to_another(world):
    source, target = world.topic(2), world.topic(2)
    world.send(source, 500)

    world.write(world.read(source), target)

    key = ["queueId", "queueOffset"]
    kept = ["queueId", "keys", "tags", "body"]
    assert world.read(target).orderBy("body").select(kept).collect() == world.read(
        source).orderBy("body").select(kept).collect()
    assert world.read(target).select(key).distinct().count() == 500


@pytest.mark.parametrize(("guarantee", "times"), [("at-least-once", 2), ("effectively-once", 1)])
def test_a_task_that_is_tried_again_repeats_itself_only_without_identity(world, guarantee, times):
    topic = world.topic()
    world.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        world.write(failing_once(frame_of(world, 1_000, size=4_000)), topic,
                    deliveryGuarantee=guarantee, **SEVERAL)
    finally:
        world.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "4000")

    numbers = world.numbers(world.read(topic))
    assert sorted(set(numbers)) == list(range(1_000))
    assert (len(numbers) > 1_000) == (times == 2)


def test_a_batch_that_is_done_again_after_a_crash_sends_nothing_twice(world, tmp_path):
    """Apache's sink knows the last batch in memory only."""
    source, target = world.topic(2), world.topic(2)
    world.send(source, 1_500)

    def run():
        return world.run(
            world.stream(source, startingOffsets="earliest", maxOffsetsPerTrigger=800)
            .drop("queueId"), tmp_path, topic=target, deliveryGuarantee="effectively-once",
            **SEVERAL)

    run()
    assert world.numbers(world.read(target)) == list(range(1_500))
    forget_commit(tmp_path, 1)
    query = run()
    assert [progress["batchId"] for progress in query.recentProgress] == [1]
    assert world.numbers(world.read(target)) == list(range(1_500))


def test_a_write_that_no_broker_answers_fails(world):
    """Apache's task ends well with its sends still under way."""
    topic = world.topic(1)
    world.admin.create_topic(topic, queues=1, perm=4)

    with pytest.raises(Exception, match=r"no route to write|takes no message|tries failed"):
        world.write(frame_of(world, 10, 1), topic, retries=0, timeout="2s")


@pytest.mark.parametrize(("rows", "options", "said"), [
    ("cast(null as binary) body", {}, "brokers take none without"),
    ("'x' body, 'y' colour", {}, "the sink has no column colour"),
    ("'x' tags", {}, "needs a column body"),
    ("1 body", {}, "column body is int: expected binary or string"),
    ("'x' body", {"deliveryGuarantee": "exactly-once"}, "expected one of at-least-once"),
    ("'x' body, 99 queueId", {}, "queue 99 of topic"),
])
def test_a_mistake_is_told(world, rows, options, said):
    topic = world.topic(1)
    with pytest.raises(Exception, match=said):
        world.write(world.spark.range(1).selectExpr(*[part.strip() for part in rows.split(", ")]),
                    topic, **options)


def test_a_topic_is_not_overwritten(world):
    with pytest.raises(Exception, match="mode append"):
        frame_of(world, 1).write.format("rocketmq").option("nameServer", world.namesrv).option(
            "topic", "x").mode("overwrite").save()
