"""
What readers get of a broker of ours that says more to those that replay, in turns with the limits
of everybody's pulls.

    python -m perf.replays [reader] [spark]                        (both by default)

Messages of 1 KiB in eight queues. A: `store.transfer_replay_*` as those of ordinary pulls (32
messages and 256 KiB in memory, 8 and 64 KiB on the disk); B: as shipped. warm: all of it counts as
in memory, and is there; cold: nothing counts as in memory, nothing is in the page cache. ROUNDS
times A B, after one of each that warms up: rows/s, messages in a pull, CPU of the broker.
"""
from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mqcore.bench.cpu import cpu_seconds, process_tree
from mqcore.client import Reader
from mqcore.client.admin import Admin
from mqcore.shm.figure_slots import FigureSlots
from mqcore.shm.segment import Segment, stale_segments
from mqcore.spark import builder
from mqcore.testing import Broker, broker
from tests.support.cold_files import make_cold

CASES = ["reader", "spark"]
COUNT = 1_000_000
SIZE = 1_024
ROUNDS = 3
SETTINGS = {"store.segment_size_bytes": 1 << 30, "store.queue_file_entry_count": 300_000}
ORDINARY = {"warm": (32, 262_144), "cold": (8, 65_536)}
LARGE = (1_024, 131_072)


def fill(mq: Broker) -> None:
    subprocess.run(
        [sys.executable, "-m", "mqcore.admin.cli", "bench", "produce", "-b", mq.broker, "-t",
         "read", "-s", str(SIZE), "--count", str(COUNT)], check=True, stdout=subprocess.DEVNULL)


def reading(mq: Broker) -> None:
    with Reader("read", namesrv=mq.namesrv, stop="end") as reader:
        count = sum(batch.count for batch in reader.batches())
    assert count == COUNT


@contextmanager
def session() -> Iterator[Callable[[Broker], None]]:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = builder("perf").master("local[2]").config("spark.ui.enabled", "false").config(
        "spark.ui.showConsoleProgress", "false").config("spark.driver.memory", "2g").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    def run(mq: Broker) -> None:
        spark.read.format("rocketmq").option("nameServer", mq.namesrv).option(
            "topic", "read").load().write.format("noop").mode("overwrite").save()

    yield run
    spark.stop()


def compare(mq: Broker, name: str, run: Callable[[Broker], None]) -> None:
    for state in ("warm", "cold"):
        with Admin(namesrv=mq.namesrv) as admin:
            admin.update_broker_config({
                "accessMessageInMemoryMaxRatio": 40 if state == "warm" else 0}, broker=mq.broker)
        rates: dict[str, list[float]] = {"A": [], "B": []}
        for turn in range(ROUNDS + 1):
            for side, (count, size) in (("A", ORDINARY[state]), ("B", LARGE)):
                with Admin(namesrv=mq.namesrv) as admin:
                    admin.update_broker_config({
                        "store.transfer_replay_count_max": count,
                        "store.transfer_replay_bytes_max": size}, broker=mq.broker)
                time.sleep(1.5)                          # each process takes it up within a second
                if state == "cold":
                    make_cold(mq.store)
                cpu_s, pulls, began = used(mq), figure(mq), time.perf_counter()
                run(mq)
                rate = COUNT / (time.perf_counter() - began)
                pulled = figure(mq) - pulls
                print(f"{name:7} {state} {side} {'warm-up' if not turn else '       '}"
                      f" {rate:>10,.0f} rows/s {COUNT / pulled:>7.1f} messages a pull, broker"
                      f" {(used(mq) - cpu_s) / COUNT * 1e6:.2f} us a message", flush=True)
                if turn:
                    rates[side].append(rate)
        middle = {side: statistics.median(those) for side, those in rates.items()}
        print(f"{name:7} {state} B/A {middle['B'] / middle['A']:.2f}", flush=True)


def used(mq: Broker) -> float:
    return sum(map(cpu_seconds, process_tree(mq.pid)))


def figure(mq: Broker) -> int:
    """Pulls that its serving processes have taken."""
    (name,) = (name for name in stale_segments("mqcore-") if name.endswith(f"-{mq.pid}"))
    return int(FigureSlots(Segment.attach(name)).shown()["serving"]["pulls"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="|".join(CASES))
    wanted = parser.parse_args().cases or CASES
    if not set(wanted) <= set(CASES):
        parser.error(f"expected some of {', '.join(CASES)}")
    with broker(SETTINGS) as mq:
        fill(mq)
        if "reader" in wanted:
            compare(mq, "reader", reading)
        if "spark" in wanted:
            with session() as run:
                compare(mq, "spark", run)


if __name__ == "__main__":
    main()
