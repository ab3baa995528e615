"""The data source `rocketmq-store` in Spark, against what stock brokers wrote."""
from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.spark.native.test_store_at_rest import read
from tests.store.golden import manifest, unpack
from tests.verify.stores import flip

pytestmark = pytest.mark.spark


def load(spark: Any, root: Path, **options: object) -> Any:
    return spark.read.format("rocketmq-store").options(**options).load(str(root))


@pytest.fixture(scope="module")
def basic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("basic", tmp_path_factory.mktemp("basic"))


def test_rows_are_the_records_in_every_field(spark: Any, basic: Path) -> None:
    records = {one.physical_offset: one for one in read(basic)[0]}

    rows = load(spark, basic, splitBytes="40k", brokerName="b-a").collect()

    assert sorted(row.commitLogOffset for row in rows) == sorted(records)
    for row in rows:
        one = records[row.commitLogOffset]
        assert (row.topic, row.queueId, row.queueOffset, row.flag, row.sysFlag, row.bodyCRC) == (
            one.topic, one.queue_id, one.queue_offset, one.flag, one.sys_flag, one.body_crc)
        assert (bytes(row.body), row.properties, row.tags, row.msgId, row.brokerName) == (
            one.plain_body(), one.properties, one.tags, one.message_id, "b-a")
        assert (row.bornHost, row.storeHost) == tuple(
            f"{address}:{port}" for address, port in (one.born_host, one.store_host))
        assert row.storeTimestamp.timestamp() * 1000 == pytest.approx(one.store_timestamp_ms)
        assert row.reconsumeTimes == one.reconsume_times
        assert row.preparedTransactionOffset == one.prepared_transaction_offset


def test_a_view_in_sql_has_what_its_filters_leave(spark: Any, basic: Path) -> None:
    messages = manifest("basic")["messages"]
    topic = messages[0]["topic"]
    expected = [one["physicalOffset"] for one in messages
                if one["topic"] == topic and one["queueId"] in (0, 1)]

    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW stored USING `rocketmq-store` "
              f"OPTIONS (path '{basic}', columns 'topic,queueId,commitLogOffset', "
              "pushFilters 'true')")
    found = spark.sql(f"SELECT commitLogOffset FROM stored WHERE topic = '{topic}' "
                      "AND queueId IN (0, 1) ORDER BY commitLogOffset")

    assert [row[0] for row in found.collect()] == expected
    assert spark.sql("SELECT count(*) FROM stored").first()[0] == len(messages)


def test_store_times_narrow_what_is_read(spark: Any, basic: Path) -> None:
    messages = manifest("basic")["messages"]
    times = sorted(one["storeTimestamp"] for one in messages)
    low, high = times[100], times[400]

    found = load(spark, basic, splitBytes="20k").where(
        f"storeTimestamp >= timestamp_millis({low}) AND storeTimestamp < timestamp_millis({high})")
    assert found.count() == sum(low <= time < high for time in times)
    optioned = load(spark, basic, startingTimestamp=low, endingTimestamp=high)
    assert optioned.count() == found.count()
    whole = load(spark, basic, splitBytes="20k")
    assert optioned.rdd.getNumPartitions() < whole.rdd.getNumPartitions()


def test_queries_of_one_frame_do_not_share_their_filters(spark: Any, basic: Path) -> None:
    """Spark 4.3 would, if the source took them."""
    frame = load(spark, basic, columns="queueId", pushFilters=True)
    messages = manifest("basic")["messages"]

    ones = frame.where("queueId = 1").count()

    assert ones == sum(one["queueId"] == 1 for one in messages)
    assert frame.count() == len(messages)
    assert frame.where("queueId = 1").union(frame.where("queueId = 0")).count() == sum(
        one["queueId"] < 2 for one in messages)


def test_a_schema_chooses_the_columns(spark: Any, basic: Path) -> None:
    frame = spark.read.format("rocketmq-store").schema(
        "queueOffset bigint, properties string").load(str(basic))

    assert frame.columns == ["queueOffset", "properties"]
    assert frame.where("get_json_object(properties, '$.UNIQ_KEY') is not null").count() > 600
    with pytest.raises(Exception, match=r"there is no column queueOfset: did you mean queueOffset"):
        load(spark, basic, columns="queueOfset").count()


def test_only_committed_transactions_come_when_asked(spark: Any, tmp_path: Path) -> None:
    root = unpack("transactions", tmp_path)

    topics = {row.topic for row in load(spark, root, transactions="committed").select(
        "topic").distinct().collect()}

    everything = {row.topic for row in load(spark, root).select("topic").distinct().collect()}
    assert everything - topics == {"RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
                                   "TRANS_CHECK_MAX_TIME_TOPIC"}


def test_entries_of_queues_and_index_join_their_records(spark: Any, basic: Path) -> None:
    records = load(spark, basic, columns="topic,queueId,queueOffset,commitLogOffset")
    queues = load(spark, basic, what="consumequeue")
    index = load(spark, basic, what="index")

    joined = records.join(queues, ["topic", "queueId", "queueOffset", "commitLogOffset"])
    assert joined.count() == len(manifest("basic")["messages"]) == queues.count()
    assert index.join(records, "commitLogOffset", "left_anti").count() == 0
    assert index.count() == sum(
        file["indexCount"] - 1 for file in manifest("basic")["indexFiles"])


def test_a_torn_end_stops_nobody_and_is_told_when_asked(spark: Any, tmp_path: Path) -> None:
    root = unpack("crashed_torn", tmp_path)

    assert load(spark, root).count() == 839
    told = load(spark, root, failOnDamage=False).where("damage is not null").collect()
    assert [(row.commitLogOffset, row.topic) for row in told] == [(282_812, None)]
    assert told[0].damage.startswith("torn end: commitlog/00000000000000262144 at 20668: ")


def test_damage_fails_in_one_line_or_is_a_row(spark: Any, tmp_path: Path) -> None:
    root = unpack("basic", tmp_path)
    records = read(root)[0]
    record = next(one for one in records[300:] if len(one.body) > 10)
    path = root / "commitlog" / f"{record.physical_offset // 65536 * 65536:020d}"
    with flip(path, record.physical_offset % 65536 + 92):
        with pytest.raises(Exception, match="damage") as caught:
            load(spark, root).count()
        rows = load(spark, root, failOnDamage="false", splitBytes="30k").collect()

    assert f"{root}: commitlog/{path.name} at {record.physical_offset % 65536}: " in str(
        caught.value)
    assert "failOnDamage=false" in str(caught.value)
    assert sorted(row.commitLogOffset for row in rows if row.damage is None) == [
        one.physical_offset for one in records if one is not record]
    assert [row.commitLogOffset for row in rows if row.damage is not None] == [
        record.physical_offset]


@pytest.mark.parametrize(("options", "said"), [
    ({"what": "log"}, "what 'log': expected one of commitlog, consumequeue, index"),
    ({"topicc": "a"}, "option topicc is unknown: did you mean topic?"),
    ({"queueIds": "1,x"}, "queueIds '1,x': expected numbers"),
    ({"commitLogPaths": "/no/such/folder"}, "/no/such/folder: there is no such directory"),
    ({"splitBytes": "0"}, "splitBytes '0': expected bytes"),
    ({"what": "index", "topic": "a"}, "topic: rows of what=index cannot be chosen by it"),
])
def test_options_that_cannot_be_are_named(
        options: dict[str, str], said: str, spark: Any, basic: Path) -> None:
    with pytest.raises(Exception) as caught:
        load(spark, basic, **options).count()

    assert said in str(caught.value)


def test_what_is_no_store_is_named(spark: Any, basic: Path, tmp_path: Path) -> None:
    shutil.copytree(basic / "consumequeue", tmp_path / "half" / "consumequeue")
    for path, said in ((tmp_path / "none", "there is no such directory"),
                       (tmp_path, "no store: neither commitlog nor consumequeue is there"),
                       (tmp_path / "half", "there is no commitlog in this store")):
        with pytest.raises(Exception) as caught:
            load(spark, path).count()
        assert said in str(caught.value)
    with pytest.raises(Exception) as caught:
        spark.read.format("rocketmq-store").load().count()
    assert "expected the store's folder: .load(DIR)" in str(caught.value)
