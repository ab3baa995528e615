"""
What Spark reads from topics and writes to them in a second, and what that costs whom.

    python -m perf.spark [read] [narrow] [write] [batches] [archive] [replay]      (all by default)

read      messages of 1 KiB, all columns: rows/s
narrow    the same, offsets alone
write     rows of 1 KiB, with tags and keys, to a topic: rows/s
batches   micro-batches of a few rows: seconds of one, median
archive   messages of 1 KiB, all columns, to a table of Parquet files with zstd: rows/s
replay    such a table to a topic, each queue in its order: rows/s

`local[2]` with the settings of mqcore.spark.builder, a broker of its own beside it, eight queues,
RUNS times each. CPU of the JVM, of Python (driver and workers), and of the broker: microseconds a
row. The first run of each warms up.
"""
from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from mqcore.bench.cpu import cpu_seconds, process_tree
from mqcore.client import Message, Producer
from mqcore.client.admin import Admin
from mqcore.spark import builder
from mqcore.spark.jobs.archive import archive
from mqcore.spark.jobs.replay import Choice, replay
from mqcore.testing import Broker, broker

CASES = ["read", "narrow", "write", "batches", "archive", "replay"]
READ_COUNT = 1_000_000
WRITE_COUNT = 500_000
RUNS = 4
BATCHES = 40
SIZE = 1_024
SETTINGS = {"store.segment_size_bytes": 1 << 30, "store.queue_file_entry_count": 300_000}


class Meter:
    """CPU of the JVM, of Python and of the broker."""

    def __init__(self, jvm: int, mq: Broker) -> None:
        self._jvm = jvm
        self._mq = mq

    def read(self) -> tuple[float, float, float]:
        workers = [pid for pid in process_tree(self._jvm) if pid != self._jvm]
        return (cpu_seconds(self._jvm), sum(map(cpu_seconds, [os.getpid(), *workers])),
                sum(map(cpu_seconds, process_tree(self._mq.pid))))


def fill(mq: Broker) -> str:
    subprocess.run(
        [sys.executable, "-m", "mqcore.admin.cli", "bench", "produce", "-b", mq.broker, "-t",
         "read", "-s", str(SIZE), "--count", str(READ_COUNT)],
        check=True, stdout=subprocess.DEVNULL)
    return "read"


def measured(name: str, meter: Meter, count: int, run: Callable[[], object]) -> None:
    for number in range(RUNS):
        before, began = meter.read(), time.perf_counter()
        run()
        took_s = time.perf_counter() - began
        jvm, python, mq = ((after - first) / count * 1e6
                           for after, first in zip(meter.read(), before, strict=True))
        print(f"{name:8} {'warm-up' if number == 0 else '       '} {count / took_s:>10,.0f} rows/s"
              f" {count * SIZE / took_s / 1e6:>7,.0f} MB/s   CPU per row: JVM {jvm:.2f} us, "
              f"Python {python:.2f} us, broker {mq:.2f} us", flush=True)


def read(spark: Any, mq: Broker, meter: Meter, topic: str, *, columns: str | None = None) -> None:
    def run() -> None:
        reader = spark.read.format("rocketmq").option("nameServer", mq.namesrv).option(
            "topic", topic)
        if columns is not None:
            reader = reader.option("columns", columns)
        reader.load().write.format("noop").mode("overwrite").save()

    measured("read" if columns is None else "narrow", meter, READ_COUNT, run)


def write(spark: Any, mq: Broker, meter: Meter, folder: str) -> None:
    path = f"{folder}/rows"
    spark.range(0, WRITE_COUNT, 1, 2).selectExpr(
        f"cast(rpad(cast(id as string), {SIZE}, 'x') as binary) body",
        "concat('t', id % 5) tags", "array(concat('key', id)) keys").write.parquet(path)

    def run() -> None:
        spark.read.parquet(path).write.format("rocketmq").option("nameServer", mq.namesrv).option(
            "topic", "written").mode("append").save()

    measured("write", meter, WRITE_COUNT, run)


def batches(spark: Any, mq: Broker, folder: str) -> None:
    times: list[float] = []
    with Producer("perf", namesrv=mq.namesrv) as producer:
        producer.send(Message("small", b"first"))
        query = (
            spark.readStream.format("rocketmq").option("nameServer", mq.namesrv)
            .option("topic", "small").option("pollInterval", "10ms").load()
            .writeStream.format("noop").option("checkpointLocation", f"{folder}/batches").start())
        seen = -1
        deadline = time.monotonic() + 120
        while len(times) < BATCHES and time.monotonic() < deadline:
            producer.send_many([Message("small", b"x") for _ in range(10)])
            time.sleep(0.02)
            progress = query.lastProgress
            if progress and progress["batchId"] != seen and progress["numInputRows"]:
                seen = progress["batchId"]
                times.append(progress["durationMs"]["triggerExecution"] / 1000)
        query.stop()
    print(f"batches  median {statistics.median(times[5:]) * 1000:.0f} ms of {len(times)}")


def tables(
    spark: Any, mq: Broker, meter: Meter, topic: str, folder: str, wanted: list[str]
) -> None:
    numbers = itertools.count()
    source = {"nameServer": mq.namesrv}

    def archived() -> str:
        path = f"{folder}/table{next(numbers)}"
        archive(spark, path, {**source, "subscribe": topic})
        return path

    if "archive" in wanted:
        measured("archive", meter, READ_COUNT, archived)
    if "replay" in wanted:
        with Admin(namesrv=mq.namesrv) as admin:
            admin.create_topic("again", queues=8)
        path = archived()
        measured("replay", meter, READ_COUNT, lambda: replay(
            spark, path, "again", source, Choice(), name=f"replay{next(numbers)}"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="|".join(CASES))
    wanted = parser.parse_args().cases or CASES
    if not set(wanted) <= set(CASES):
        parser.error(f"expected some of {', '.join(CASES)}")
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    with broker(SETTINGS) as mq, tempfile.TemporaryDirectory() as folder:
        topic = fill(mq) if {"read", "narrow", "archive", "replay"} & set(wanted) else ""
        spark = builder("perf").master("local[2]").config("spark.ui.enabled", "false").config(
            "spark.ui.showConsoleProgress", "false").config(
            "spark.driver.memory", "2g").getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        meter = Meter(int(spark._jvm.java.lang.ProcessHandle.current().pid()), mq)
        if "read" in wanted:
            read(spark, mq, meter, topic)
        if "narrow" in wanted:
            read(spark, mq, meter, topic, columns="queueId,queueOffset")
        if "write" in wanted:
            write(spark, mq, meter, folder)
        if "batches" in wanted:
            batches(spark, mq, folder)
        if {"archive", "replay"} & set(wanted):
            tables(spark, mq, meter, topic, folder, wanted)
        spark.stop()


if __name__ == "__main__":
    main()
