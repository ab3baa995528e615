"""
What Spark reads from a store at rest in a second, beside its own scan of the same rows in Parquet.

    python -m perf.spark_store [--rows 1000000] [--folder DIR] [--runs 4]

Rows of 1 KiB in four queues, all columns; `local[2]` with the settings of mqcore.spark.builder, the
rows go nowhere (`noop`). The constant is a source whose tasks give one record batch of such rows,
made once, again and again: what Spark takes from any source in Python, at most. CPU of the JVM and
of Python: microseconds a row. The first run of each warms up. The store and the Parquet files stay
in the folder.
"""
from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mqcore.bench.cpu import cpu_seconds, process_tree
from mqcore.layout import (
    MAGIC_BLANK,
    RECORD_LOG_POSITION,
    RECORD_QUEUE_ID,
    RECORD_QUEUE_OFFSET,
)
from mqcore.spark import builder
from mqcore.spark.columns import Cutter, all_columns
from mqcore.wire.records import Record, encode_record

SEGMENT_BYTES = 1 << 30
QUEUES = 4
SIZE = 1_024
TASKS, BATCH_ROWS = 4, 4_000        # of the constant


def template() -> Any:
    """One record; place and number are put in for each row."""
    return np.frombuffer(encode_record(Record(
        topic="stored", queue_id=0, queue_offset=0, physical_offset=0, flag=0, sys_flag=0,
        body_crc=0, born_timestamp_ms=1_700_000_000_000, born_host=("10.0.0.1", 5000),
        store_timestamp_ms=1_700_000_000_000, store_host=("10.0.0.2", 10911), reconsume_times=0,
        prepared_transaction_offset=0, body=np.random.default_rng(1).bytes(SIZE), size=0,
        properties={"UNIQ_KEY": "7F0000010A0A18B4AAC2000000000001", "KEYS": "order-1234567",
                    "TAGS": "TagA", "WAIT": "true", "CLUSTER": "DefaultCluster"})), np.uint8)


def fill(root: Path, rows: int) -> None:
    """A commit log of `rows` records, without queues."""
    (root / "commitlog").mkdir(parents=True)
    one = template()
    done = base = 0
    while done < rows:
        count = min((SEGMENT_BYTES - 8) // len(one), rows - done)
        number = np.arange(done, done + count)
        made = np.tile(one, (count, 1))
        for at, width, values in (
                (RECORD_QUEUE_ID, 4, number % QUEUES), (RECORD_QUEUE_OFFSET, 8, number // QUEUES),
                (RECORD_LOG_POSITION, 8, base + np.arange(count) * len(one))):
            made[:, at:at + width] = (
                values.astype(f">i{width}").view(np.uint8).reshape(count, width))
        with open(root / "commitlog" / f"{base:020d}", "wb") as file:
            file.write(made.data)
            if done + count < rows:
                left = SEGMENT_BYTES - count * len(one)
                file.write(left.to_bytes(4, "big") + MAGIC_BLANK.to_bytes(4, "big", signed=True))
            file.truncate(SEGMENT_BYTES)
        done += count
        base += SEGMENT_BYTES


def measure(label: str, frame: Any, rows: int, jvm: int) -> None:
    def cpu() -> tuple[float, float]:
        workers = [pid for pid in process_tree(jvm) if pid != jvm]
        return cpu_seconds(jvm), sum(map(cpu_seconds, workers))

    before, began = cpu(), time.monotonic()
    frame.write.format("noop").mode("overwrite").save()
    took, after = time.monotonic() - began, cpu()
    print(f"{label:24} {rows / took:12,.0f} rows/s   JVM {(after[0] - before[0]) / rows * 1e6:5.2f}"
          f"   Python {(after[1] - before[1]) / rows * 1e6:5.2f} us a row", flush=True)


def constant(spark: Any, rows: int) -> Any:
    """The frame of a source that does nothing but give rows."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Reader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(rows // TASKS) for _ in range(TASKS)]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            batch = Cutter(all_columns()).cut(
                [template().tobytes() * BATCH_ROWS], BATCH_ROWS, broker="b")
            for begin in range(0, partition.value, BATCH_ROWS):
                yield batch.slice(0, min(BATCH_ROWS, partition.value - begin))

    class Constant(DataSource):
        @classmethod
        def name(cls) -> str:
            return "constant"

        def schema(self) -> str:
            return all_columns().ddl

        def reader(self, schema: Any) -> DataSourceReader:
            return Reader()

    spark.dataSource.register(Constant)
    return spark.read.format("constant").load()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "spark_store")
    asked = parser.parse_args()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    root = asked.folder / f"store-{asked.rows}"
    if not root.exists():
        fill(root, asked.rows)
    spark = (builder("perf").master("local[2]").config("spark.ui.enabled", "false")
             .config("spark.ui.showConsoleProgress", "false").config("spark.driver.memory", "2g")
             .getOrCreate())
    spark.sparkContext.setLogLevel("OFF")
    jvm = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())

    def store(**options: str) -> Any:
        return spark.read.format("rocketmq-store").options(**options).load(str(root))

    parquet = str(asked.folder / f"parquet-{asked.rows}")
    if not Path(parquet).exists():
        store().write.option("compression", "uncompressed").parquet(parquet)
    few = "topic,queueId,queueOffset,storeTimestamp,commitLogOffset"
    for _ in range(asked.runs):
        measure("store, all columns", store(), asked.rows, jvm)
        measure("Parquet, all columns", spark.read.parquet(parquet), asked.rows, jvm)
        measure("constant, all columns", constant(spark, asked.rows), asked.rows, jvm)
        measure("store, five columns", store(columns=few), asked.rows, jvm)
        measure("Parquet, five columns", spark.read.parquet(parquet).select(*few.split(",")),
                asked.rows, jvm)
    print("load average", *(f"{load:.1f}" for load in os.getloadavg()))
    spark.stop()


if __name__ == "__main__":
    main()
