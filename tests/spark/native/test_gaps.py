"""`archive --gaps row`: what is not there is a row of the files that its tasks write."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from mqcore.client.message import MessageQueue
from mqcore.spark.columns import all_columns
from mqcore.spark.errors import DataLoss
from mqcore.spark.lake.filing import FilingReader
from mqcore.spark.lake.options import LAKE
from mqcore.spark.lake.rows import MESSAGES, form_of, shape_of
from mqcore.spark.options import ROCKETMQ, STREAM, WRITE, read_options
from mqcore.spark.topics.ranges import OffsetRange
from mqcore.spark.topics.topic_read import GroupedPartition, RangePartition, TopicRead
from tests.spark.fake_broker import FakeBroker, serving

pq = pytest.importorskip("pyarrow.parquet")


def archived(broker: FakeBroker, root: Path, end: int, *, gaps: str) -> list[dict[str, object]]:
    """The rows of the files of a task that reads up to `end`."""
    source = read_options({
        "nameServer": "127.0.0.1:1", "topic": "t", "failOnDataLoss": str(gaps == "fail")},
        ROCKETMQ, STREAM, "rocketmq")
    sink = read_options({"partitionBy": "topic"}, LAKE, WRITE, "rocketmq-lake")
    reader = FilingReader(TopicRead(source, MESSAGES), root, shape_of(sink, root), form_of(sink))
    whole = OffsetRange(MessageQueue("t", "b", 0), 0, end)
    task = GroupedPartition([RangePartition(whole, "t", broker.address)])
    (batch,) = reader.read(task)
    return [row for text in batch.column(0).to_pylist()
            for row in pq.ParquetFile(root / json.loads(text)["path"]).read().to_pylist()]


def test_offsets_that_are_not_there_are_rows_or_end_the_task(tmp_path):
    there = [*range(10, 20), *range(25, 30)]
    with serving(FakeBroker(there)) as broker:
        rows = archived(broker, tmp_path / "row", 30, gaps="row")
        with pytest.raises(DataLoss, match="offsets 0 to 9 of"):
            archived(broker, tmp_path / "fail", 30, gaps="fail")

    assert [row["queueOffset"] for row in rows if row["gapEnd"] is None] == there
    gaps = [(row["queueOffset"], row["gapEnd"]) for row in rows if row["gapEnd"] is not None]
    covered = {offset for begin, end in gaps for offset in range(begin, end)}
    assert covered == set(range(30)) - set(there)
    assert {(row["topic"], row["brokerName"], row["queueId"]) for row in rows} == {("t", "b", 0)}
    assert not list((tmp_path / "fail").rglob("*.parquet"))


def test_tables_have_the_columns_that_they_always_had():
    """Another one would let no archive go on with the table that it began."""
    assert MESSAGES.names == (*all_columns().names, "gapEnd")
