"""The source in the JVM: its rows are those of the source in Python, and what only it can."""
from __future__ import annotations

import json
import random
import uuid
from datetime import datetime, timedelta

import pytest

pytest.importorskip("pyspark")

from mqcore.client.core.compression import Compression, Compressor
from mqcore.spark.columns import COLUMNS, all_columns
from mqcore.spark.jvm import JAR
from mqcore.spark.options import BATCH, READ, ROCKETMQ, STREAM, WRITE
from mqcore.wire.codes import RequestCode
from tests.spark.test_broken_bodies import send_broken
from tests.spark.world import PYTHON, forget_commit
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, send_fields

NAME = "rocketmq"
KEY = ["brokerName", "queueId", "queueOffset"]
PLACES = {READ: "batch read or stream read", BATCH: "batch read", STREAM: "stream read",
          WRITE: "write"}


def frames(world, topic, **options):
    """The same read by both sources: in Python, in the JVM."""
    made = []
    for world.source in (PYTHON, NAME):
        made.append(world.read(topic, **options))
    return made


def shown(frame):
    """Rows that can be compared, in order."""
    columns = [f"to_json(array_sort(map_entries({name})))" if kind.startswith("map") else name
               for name, kind in frame.dtypes]
    return [tuple(row) for row in frame.selectExpr(*columns).orderBy(
        *[name for name in KEY if name in frame.columns]).collect()]


def plan(frame):
    return frame._jdf.queryExecution().executedPlan().toString()


def test_the_jar_is_small():
    assert JAR.stat().st_size < 400 << 10


def test_options_are_those_of_the_source_in_python(world):
    found = {}
    for line in world.spark._jvm.mqcore.spark.Source.options():
        name, also, place, default = line.split("\t")
        found[name] = also, place, default

    expected = {option.name: option for option in ROCKETMQ}
    assert list(found) == list(expected)
    for name, (also, place, default) in found.items():
        option = expected[name]
        assert also == ",".join(option.also)
        assert place == " or ".join(PLACES[one] for one in option.on), name
        assert (None if default == "-" else option.parse(name, default) if default else ""
                ) == option.default, name


def test_columns_are_those_of_the_source_in_python(world):
    topic = world.topic(1)
    every = ",".join(column.name for column in COLUMNS)

    python, jvm = frames(world, topic, columns=every)

    assert jvm.dtypes == python.dtypes
    assert frames(world, topic)[1].columns == list(all_columns().names)


def hostile(broker, topic):
    """Messages with properties, hosts and bodies that are seldom."""
    many = "".join(f"p{number}\x01v\x02" for number in range(100))
    for properties, body in (
            ("", b"none"), ("a\x011\x02a\x012\x02b\x013\x02a\x014\x02", b"twice"),
            ("\x01x\x02y\x01\x02z\x02n\x010\x02", b"no name, no value"),
            ("ü\x01größe\x02n\x01\u65e5\x02", b"utf-8"), ("q\x01\"\\\t\x02", b"json"),
            ("KEYS\x01 a  b\tc \x02TAGS\x01t\x02", b"keys"), (many, b"many"),
            ("TAGS\x01x\x02TAGS\x01y\x02", b"two tags"),
            ("KEYS\x01" + " ".join(map(str, range(50))) + "\x02", b"many keys")):
        with Peer(broker.broker_addr) as peer:
            answer = peer.ask(RequestCode.SEND_MESSAGE_V2,
                              send_fields(topic, properties=properties), body)
        assert answer.code == 0


def test_rows_are_those_of_the_source_in_python(world, broker):
    topic = world.topic(2)
    world.send(topic, 300)
    world.send(topic, 50, begin=300, body=9_000)              # compressed by the client
    hostile(broker, topic)
    send_broken(broker, topic, 0)
    send_broken(broker, topic, 1)
    every = ",".join(column.name for column in COLUMNS)

    for options in ({"columns": every}, {"columns": every, "propertiesAs": "json"},
                    {"rowsPerBatch": 7}, {"columns": "queueId,body"}):
        python, jvm = frames(world, topic, **options)
        assert shown(jvm) == shown(python)
    assert jvm.count() == 361


def test_bodies_of_each_codec_come_out_alike_whole_and_damaged(world, broker):
    """Cut off, with a bit changed, with something behind: a body or none, never another one."""
    topic = world.topic(1)
    chance = random.Random(11)
    plain = b"".join(b"%d;" % number for number in range(300))
    sent = 0
    with Peer(broker.broker_addr) as peer:
        for kind in Compression:
            body, flags = Compressor(kind, 3).compress(plain)
            damaged = [body, body + b"more", body + body]
            for _ in range(30):
                at = chance.randrange(1, len(body))
                damaged += [body[:at],
                            body[:at] + bytes([body[at] ^ 1 << chance.randrange(8)])
                            + body[at + 1:]]
            for one in damaged:
                answer = peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields(
                    topic, sys_flag=flags), one)
                assert answer.code == 0
            sent += len(damaged)

    python, jvm = frames(world, topic, columns="queueOffset,body,brokenBody")
    rows = jvm.orderBy("queueOffset").collect()

    assert rows == python.orderBy("queueOffset").collect()
    assert len(rows) == sent
    whole = [row["queueOffset"] for row in rows if bytes(row["body"] or b"") == plain]
    assert {0, 63, 126} <= set(whole)
    assert any(row["brokenBody"] is not None for row in rows)


def test_what_a_query_asks_for_is_all_that_is_read(world):
    topic = world.topic()
    world.send(topic, 4_000)
    frame = frames(world, topic)[1]

    found = frame.where("queueId = 1 and queueOffset >= 10 and queueOffset < 15").select(
        "queueId", "queueOffset")

    assert "Filter (" not in plan(found)
    assert sorted(map(tuple, found.collect())) == [(1, offset) for offset in range(10, 15)]
    assert found.rdd.getNumPartitions() == 1
    assert "body" not in plan(found)
    later = frame.where("storeTimestamp > timestamp '2100-01-01 00:00:00'")
    assert (later.count(), later.rdd.getNumPartitions()) == (0, 0)
    assert len(frame.limit(3).collect()) == 3


def test_random_queries_give_what_they_give_without_pushdown(world):
    """Filters, columns, limits and unions, on one frame that all queries use."""
    topic = world.topic(3)
    world.send(topic, 500)
    python, frame = frames(world, topic)
    python = python.persist()
    middle = python.selectExpr("percentile_approx(storeTimestamp, 0.5)").first()[0]
    chance = random.Random(7)
    parts = ["queueId = 1", "queueId in (0, 2)", "queueId <> 1", "queueOffset > 40",
             "queueOffset between 10 and 90", "queueOffset <= 7", "tags = 't1'",
             "tags in ('t0', 't2')", "tags is null", "tags is not null", "tags = 'none'",
             f"storeTimestamp >= timestamp '{middle}'", f"storeTimestamp < timestamp '{middle}'",
             f"brokerName = '{world.broker_name}'", "brokerName = 'x'", f"topic = '{topic}'",
             "queueId is null", "length(body) > 0", "array_contains(keys, 'k7')", "1 = queueId",
             "queueOffset = 5 or queueId = 2", "not (queueId = 0)", "queueOffset <=> 3"]
    columns = ["queueId", "queueOffset", "tags", "msgId", "body", "keys"]
    try:
        for _ in range(200):
            chosen = [" and ".join(chance.sample(parts, chance.randint(0, 3))) or "true"
                      for _ in range(chance.randint(1, 2))]
            wanted = [*KEY, *chance.sample(columns[2:], chance.randint(0, 3))]

            def query(one, chosen=chosen, wanted=wanted):
                sides = [one.where(text).select(wanted) for text in chosen]
                return sides[0] if len(sides) == 1 else sides[0].union(sides[1])

            expected = sorted(map(str, query(python).collect()))
            assert sorted(map(str, query(frame).collect())) == expected, chosen
            limit = chance.randint(0, 20)
            some = list(map(str, query(frame).limit(limit).collect()))
            assert len(some) == min(limit, len(expected))
            assert set(some) <= set(expected)
    finally:
        python.unpersist()


@pytest.mark.parametrize("order", [(PYTHON, NAME, PYTHON), (NAME, PYTHON, NAME)])
def test_each_source_continues_the_checkpoint_of_the_other(world, tmp_path, order, monkeypatch):
    topic = world.topic(3)
    rows: list[int] = []
    for number, source in enumerate(order):
        monkeypatch.setattr(world, "source", source)
        world.send(topic, 100, begin=100 * number)
        frame = world.stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=70)
        writer = frame.writeStream.foreachBatch(
            lambda part, _: rows.extend(world.numbers(part)))
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(
            availableNow=True).start()
        query.awaitTermination()
        if number < 2:                              # the next one repeats this batch
            last = query.lastProgress
            before = len(rows)
            forget_commit(tmp_path, last["batchId"])
            del rows[before - last["numInputRows"]:]

    assert sorted(rows) == list(range(300))


def test_a_streams_progress_says_how_far_it_is_behind(world, tmp_path):
    topic = world.topic(2)
    world.send(topic, 100)
    query = world.run(world.stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=60),
                      tmp_path, "noop")

    behind = [progress["sources"][0]["metrics"] for progress in query.recentProgress]
    assert [one["messagesBehind"] for one in behind] == ["40", "0"]
    assert [one[f"messagesBehind.{topic}"] for one in behind] == ["40", "0"]
    assert topic in query.lastProgress["sources"][0]["description"]


def test_a_table_in_sql_keeps_its_options(world):
    topic = world.topic(2)
    world.send(topic, 60)
    name = f"t{uuid.uuid4().hex}"
    options = f"nameServer '{world.namesrv}', topic '{topic}'"
    sql = world.spark.sql
    sql(f"CREATE TABLE {name} USING `{NAME}` OPTIONS ({options})")
    sql(f"CREATE TABLE {name}_few (queueOffset bigint, tags string) USING `{NAME}` "
        f"OPTIONS ({options}, topik 'x')")
    try:
        assert sql(f"SELECT count(*) FROM {name} WHERE tags = 't1'").first()[0] == 20
        assert world.spark.table(name).columns == list(all_columns().names)
        assert sql(f"SELECT * FROM {name} WITH (maxRecordsPerPartition = 7)"
                   ).rdd.getNumPartitions() >= 9
        with pytest.raises(Exception, match="topik is unknown: did you mean topic"):
            sql(f"SELECT * FROM {name}_few").collect()
    finally:
        sql(f"DROP TABLE {name}")
        sql(f"DROP TABLE {name}_few")


def test_a_view_in_sql_reads_a_topic(world):
    topic = world.topic(2)
    world.send(topic, 60)
    name = f"v{uuid.uuid4().hex}"

    world.spark.sql(f"CREATE TEMPORARY VIEW {name} USING `{NAME}` OPTIONS "
                    f"(nameServer '{world.namesrv}', topic '{topic}')")

    assert world.spark.sql(f"SELECT count(*) FROM {name} WHERE tags = 't1'").first()[0] == 20
    assert world.spark.sql(f"SELECT count(*) FROM {name}").first()[0] == 60


@pytest.fixture
def catalog(world):
    """The name of the cluster as a catalog of Spark's."""
    name = f"c{uuid.uuid4().hex}"
    world.spark.conf.set(f"spark.sql.catalog.{name}", "mqcore.spark.TopicCatalog")
    world.spark.conf.set(f"spark.sql.catalog.{name}.nameServer", world.namesrv)
    yield name
    world.spark.conf.unset(f"spark.sql.catalog.{name}.nameServer")
    world.spark.conf.unset(f"spark.sql.catalog.{name}")


def test_a_cluster_is_a_catalog_of_its_topics(world, catalog, tmp_path):
    topic, target = world.topic(2), world.topic(2)
    world.send(topic, 60)
    sql = world.spark.sql

    names = {row["tableName"] for row in sql(f"SHOW TABLES IN {catalog}").collect()}
    assert {topic, target} <= names
    assert not [name for name in names if "%" in name or name == "SCHEDULE_TOPIC_XXXX"]
    assert sql(f"SHOW TABLES IN {catalog}.`x`").collect() == []
    found = sql(f"SELECT queueOffset FROM {catalog}.`{topic}` WHERE queueId = 1 AND tags = 't1'")
    assert found.collect() == world.read(topic).where("queueId = 1 AND tags = 't1'").select(
        "queueOffset").collect()
    assert sql(f"SELECT * FROM {catalog}.`{topic}` WITH (maxRecordsPerPartition = 7)"
               ).rdd.getNumPartitions() >= 9
    described = {row["col_name"] for row in sql(f"DESCRIBE {catalog}.`{topic}`").collect()}
    assert {"body", "storeTimestamp"} <= described

    sql(f"INSERT INTO {catalog}.`{target}` SELECT body, tags, keys FROM {catalog}.`{topic}`")
    assert world.numbers(world.read(target)) == list(range(60))
    sql(f"INSERT INTO {catalog}.`{target}` (body, tags) VALUES ('60:', 'new')")
    assert world.numbers(world.read(target).where("tags = 'new'")) == [60]
    stream = world.spark.readStream.option("startingOffsets", "earliest").table(
        f"{catalog}.`{topic}`").select("body")
    query = stream.writeStream.option("checkpointLocation", str(tmp_path)).trigger(
        availableNow=True).toTable(f"{catalog}.`{target}`")
    query.awaitTermination()
    assert world.read(target).count() == 121


def test_a_topic_of_a_catalog_is_read_as_it_was(world, catalog):
    topic = world.topic(2)
    world.send(topic, 20)
    last = world.read(topic).selectExpr("max(storeTimestamp)").first()[0]
    until = json.dumps({topic: {world.broker_name: {"0": 3, "1": 0}}})
    wait_until(lambda: datetime.now() > last + timedelta(milliseconds=20), "a later millisecond")
    world.send(topic, 20, begin=20)
    of = f"SELECT body FROM {catalog}.`{topic}`"

    assert world.numbers(world.spark.sql(f"{of} TIMESTAMP AS OF '{last}'")) == list(range(20))
    assert world.spark.sql(f"{of} VERSION AS OF '{until}'").count() == 3
    assert world.spark.sql(of).count() == 40


@pytest.mark.parametrize(("said", "expected"), [
    ("SELECT * FROM {}.`not-there`", "TABLE_OR_VIEW_NOT_FOUND"),
    ("SELECT * FROM {}.x.`y`", "TABLE_OR_VIEW_NOT_FOUND"),
    ("SELECT * FROM {}.`{{}}`", "TABLE_OR_VIEW_NOT_FOUND"),
    ("CREATE TABLE {}.t (body string)", "makes, changes and drops no topics"),
    ("DROP TABLE {}.`TOPIC`", "makes, changes and drops no topics"),
    ("INSERT OVERWRITE {}.`TOPIC` SELECT 'x' body", "write with mode append"),
    ("SELECT * FROM {}.`TOPIC` VERSION AS OF 'x'", "endingOffsets: expected a word or JSON"),
])
def test_what_a_catalog_cannot_do_is_told(world, catalog, said, expected):
    topic = world.topic(1)
    with pytest.raises(Exception, match=expected):
        world.spark.sql(said.format(catalog).replace("TOPIC", topic)).collect()


def test_a_catalog_says_which_of_its_options_is_wrong(world, catalog):
    world.spark.conf.set(f"spark.sql.catalog.{catalog}.nameSrv", "x")
    try:
        with pytest.raises(Exception, match="are the same: give one"):
            world.spark.sql(f"SHOW TABLES IN {catalog}").collect()
    finally:
        world.spark.conf.unset(f"spark.sql.catalog.{catalog}.nameSrv")


def test_one_table_is_read_streamed_and_written(world, tmp_path):
    """Each leaves out the table's options that mean nothing to it."""
    topic = world.topic(2)
    world.send(topic, 30)
    name = f"t{uuid.uuid4().hex}"
    sql = world.spark.sql
    sql(f"CREATE TABLE {name} USING {NAME} OPTIONS (nameServer '{world.namesrv}', topic '{topic}',"
        " maxOffsetsPerTrigger 20, startingOffsets 'earliest', endingOffsets 'latest',"
        " deliveryGuarantee 'effectively-once')")
    try:
        sql(f"INSERT INTO {name} SELECT '30:' body, 'new' tags")
        assert world.numbers(sql(f"SELECT body FROM {name}")) == list(range(31))
        query = world.run(world.spark.readStream.table(name), tmp_path, "noop")
        assert [one["numInputRows"] for one in query.recentProgress] == [20, 11]
    finally:
        sql(f"DROP TABLE {name}")
