"""
What `Reader` reads in a second: one Python process, a broker of its own beside it.

    python -m perf.client_read [raw] [arrow] [messages]            (all of them by default)

raw        raw batches of 128 B messages: messages/s
arrow      Arrow batches of 1 KiB messages: MB/s of bodies
messages   decoded messages of 128 B, merged by store time: messages/s

Eight queues, RUNS times each; also CPU of this process and of the broker, microseconds a message.
The broker's settings are its defaults.
"""
from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Iterator

from mqcore.bench.cpu import CpuMeter
from mqcore.client import Reader
from mqcore.testing import Broker, broker

COUNTS = {128: 2_000_000, 1024: 1_000_000}
MERGED = 200_000
RUNS = 4
SETTINGS = {"store.segment_size_bytes": 1 << 30, "store.queue_file_entry_count": 300_000}


def fill(mq: Broker, size: int) -> str:
    """A topic with COUNTS[size] messages in eight queues."""
    topic = f"read_{size}"
    subprocess.run(
        [sys.executable, "-m", "mqcore.admin.cli", "bench", "produce", "-b", mq.broker, "-t",
         topic, "-s", str(size), "--count", str(COUNTS[size])],
        check=True, stdout=subprocess.DEVNULL)
    return topic


def raw(reader: Reader) -> Iterator[tuple[int, int]]:
    for batch in reader.batches():
        yield batch.count, len(batch.records)


def arrow(reader: Reader) -> Iterator[tuple[int, int]]:
    for batch in reader.batches(arrow=True):
        yield batch.num_rows, batch.column("body").get_total_buffer_size() - 4 * batch.num_rows


def messages(reader: Reader) -> Iterator[tuple[int, int]]:
    for number, message in enumerate(reader):
        yield 1, len(message.body)
        if number == MERGED:
            return


CASES = {"raw": (raw, 128), "arrow": (arrow, 1024), "messages": (messages, 128)}


def own_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measure(mq: Broker, name: str, topic: str) -> None:
    case, _ = CASES[name]
    for _ in range(RUNS):
        with Reader(topic, namesrv=mq.namesrv, stop="end") as reader:
            meter, cpu_s, began = CpuMeter([mq.pid]), own_cpu_s(), time.perf_counter()
            meter.start()
            count = size = 0
            for rows, amount in case(reader):
                count += rows
                size += amount
            took_s = time.perf_counter() - began
            own_us = (own_cpu_s() - cpu_s) / count * 1e6
            print(f"{name:8} {count / took_s:>10,.0f} msg/s {size / took_s / 1e6:>8,.0f} MB/s   "
                  f"CPU per message: reader {own_us:.2f} us, "
                  f"broker {meter.read() / count * 1e6:.2f} us", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="|".join(CASES))
    wanted = parser.parse_args().cases or list(CASES)
    if not set(wanted) <= CASES.keys():
        parser.error(f"expected some of {', '.join(CASES)}")
    with broker(SETTINGS) as mq:
        topics = {size: fill(mq, size) for size in sorted({CASES[name][1] for name in wanted})}
        for name in wanted:
            measure(mq, name, topics[CASES[name][1]])


if __name__ == "__main__":
    main()
