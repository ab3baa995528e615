"""
The processor time of the source `rocketmq` in the JVM beside that of the one in Python.

    python -m perf.spark_jvm

Both sources read 200,000 messages of 1 KiB in eight queues, in turns, RUNS times each behind a
warm-up, in one session of `local[2]`: all columns, five columns, and a stream of four batches to
nowhere; a count with the sum of lengths; five columns to zstd Parquet. The source in Python is told
by `columns` which it needs where these are not all. Microseconds a row, medians: the JVM, Python's
workers with those that have ended, the broker; and the ratio of the sums.
"""
from __future__ import annotations

import os
import shutil
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mqcore.bench.cpu import cpu_seconds, process_tree
from mqcore.spark import builder
from mqcore.testing import broker
from perf import spark as of_python
from tests.spark.world import PYTHON, python_source

COUNT = 200_000
RUNS = 3
BATCHES = 4
FIVE = ["body", "keys", "queueId", "queueOffset", "storeTimestamp"]
SOURCES = (PYTHON, "rocketmq")


def ended_seconds(pid: int) -> float:
    """The processor time of the processes that a process has started, and that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def session_seconds(jvm: int) -> tuple[float, float]:
    """The processor time of a session's JVM, and of its Python workers with those that ended."""
    tree = process_tree(jvm)
    return (cpu_seconds(jvm), sum(cpu_seconds(pid) for pid in tree if pid != jvm)
            + sum(map(ended_seconds, tree)))


class Meter:
    """The seconds of the JVM, of Python's workers, of the broker."""

    def __init__(self, jvm: int, broker_pid: int) -> None:
        self._jvm = jvm
        self._broker = broker_pid

    def read(self) -> tuple[float, float, float]:
        return (*session_seconds(self._jvm), sum(map(cpu_seconds, process_tree(self._broker))))


def main() -> None:
    of_python.READ_COUNT = COUNT
    with tempfile.TemporaryDirectory() as folder, broker(of_python.SETTINGS) as mq:
        spark = (builder("perf").master("local[2]").config("spark.ui.enabled", "false")
                 .config("spark.ui.showConsoleProgress", "false")
                 .config("spark.driver.memory", "2g").getOrCreate())
        spark.sparkContext.setLogLevel("ERROR")
        spark.dataSource.register(python_source())
        topic = of_python.fill(mq)
        meter = Meter(int(spark._jvm.java.lang.ProcessHandle.current().pid()), mq.pid)

        def source(reader: Any, name: str, columns: list[str] | None) -> Any:
            reader = reader.format(name).option("nameServer", mq.namesrv).option("topic", topic)
            if columns is not None and name == SOURCES[0]:
                reader = reader.option("columns", ",".join(columns))
            return reader

        def frame(name: str, columns: list[str] | None) -> Any:
            found = source(spark.read, name, columns).load()
            return found if columns is None else found.select(columns)

        def nowhere(found: Any) -> None:
            found.write.format("noop").mode("overwrite").save()

        def stream(name: str) -> None:
            shutil.rmtree(f"{folder}/checkpoint", ignore_errors=True)
            found = source(spark.readStream, name, FIVE).option(
                "startingOffsets", "earliest").option("maxOffsetsPerTrigger", COUNT // BATCHES)
            found.load().select(FIVE).writeStream.format("noop").option(
                "checkpointLocation", f"{folder}/checkpoint").trigger(
                availableNow=True).start().awaitTermination()

        cases: dict[str, Callable[[str], object]] = {
            "all columns": lambda name: nowhere(frame(name, None)),
            "five columns": lambda name: nowhere(frame(name, FIVE)),
            "count, lengths": lambda name: frame(name, ["body"]).selectExpr(
                "count(*)", "sum(length(body))").first(),
            "four batches": stream,
            "to Parquet": lambda name: frame(name, FIVE).write.mode("overwrite").option(
                "compression", "zstd").parquet(f"{folder}/parquet"),
        }
        for case, run in cases.items():
            compare(case, run, meter)
        spark.stop()


def compare(case: str, run: Callable[[str], object], meter: Meter) -> None:
    """Run one case on both sources in turns, and print what it took."""
    spent: dict[str, list[tuple[float, ...]]] = {name: [] for name in SOURCES}
    for _ in range(RUNS + 1):
        for name in SOURCES:
            before = meter.read()
            run(name)
            spent[name].append(tuple((after - first) / COUNT * 1e6 for after, first in zip(
                meter.read(), before, strict=True)))
    sums = {name: statistics.median(map(sum, runs[1:])) for name, runs in spent.items()}
    for name, runs in spent.items():
        jvm, python, mq = (statistics.median(one) for one in zip(*runs[1:], strict=True))
        print(f"{case:15} {name:15} JVM {jvm:5.2f} us, Python {python:5.2f} us, broker {mq:5.2f}"
              f" us, together {sums[name]:5.2f} us a row, {sums[name] / sums[SOURCES[0]]:.2f}",
              flush=True)


if __name__ == "__main__":
    main()
