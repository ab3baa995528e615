"""
What transactions cost, and what a check round over many of them does to everybody else.

    python -m perf.transactions --pending 1000000

Four figures on one broker: transactions a second and the CPU of one (a half message, its final
message, its op record); a million half messages that nobody ends, and the memory of the process
that checks them; sends at a steady rate without a round and during one; and how many questions (39)
a second reach a connected producer.
"""
from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any

from mqcore.admin.bench_control import find_target
from mqcore.admin.bench_load import ProduceOptions, Report, Span, produce
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.transactions.producer import HALF_TOPIC, Producer
from tests.workers.processes import by_role, wait_for

CHECKER = "transaction-check"
GROUP = "mqcore_bench"
RECEIVE_BYTES = 1 << 20
SPARE_S = 120.0


class Questions:
    """A producer of the group, in a process of its own, that counts what it is asked."""

    def __init__(self, address: str) -> None:
        self._numbers = multiprocessing.Array("d", 3)        # count, first and last second
        self._process = multiprocessing.Process(target=self._receive, args=(address,), daemon=True)
        self._process.start()

    def _receive(self, address: str) -> None:
        numbers: Any = self._numbers.get_obj()
        producer, data = Producer(address, GROUP), bytearray()
        producer.socket.settimeout(None)
        while True:
            data += producer.socket.recv(RECEIVE_BYTES)
            at = 0
            while len(data) - at >= 4:
                end = at + 4 + int.from_bytes(data[at:at + 4], "big")
                if end > len(data):
                    break
                at = end
                numbers[0] += 1
            del data[:at]
            numbers[2] = time.monotonic()
            numbers[1] = numbers[1] or numbers[2]

    def stop(self) -> None:
        self._process.terminate()
        self._process.join()

    @property
    def count(self) -> int:
        return int(self._numbers[0])

    @property
    def rate(self) -> float:
        return self.count / max(self._numbers[2] - self._numbers[1], 1e-9)


def private_bytes(broker: MqcoreProcess, role: str) -> int:
    """Memory that only this process has."""
    text = Path(f"/proc/{by_role(broker)[role]}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) * 1024 for line in text.splitlines()
               if line.startswith(("Private_Clean", "Private_Dirty", "Private_Hugetlb")))


def steady(target: object, rate: float, seconds: float) -> Report:
    return produce(target, ProduceOptions(                           # type: ignore[arg-type]
        span=Span(seconds=seconds), connections=4, rate=rate, heartbeat=False))


def measure(folder: Path, *, pending: int, rate: float, seconds: float, flush: str) -> None:
    """One run; prints its figures."""
    settings = {
        "store.flush": flush, "store.segment_size_bytes": 1 << 30,
        "store.queue_file_entry_count": 300_000, "store.index_slot_count": 5_000_000,
        "store.index_entry_count": 20_000_000,
        "broker.transaction_timeout_ms": 1, "broker.transaction_check_interval_ms": 600_000,
    }
    with mqcore_up(folder, settings) as broker:
        target = find_target("tx_perf", broker=broker.broker_addr, namesrv=None, queues=8,
                             create=True)
        done = produce(target, ProduceOptions(
            span=Span(seconds=seconds, warmup=20_000), transactional=True,
            broker_pids=tuple(broker.family()[:1])))
        print(f"transactions, 8 connections x 32, 128 B, {flush}: {done.rate_per_s:,.0f}/s, "
              f"{done.broker_cpu_us or 0:.2f} us broker CPU each")
    settings["broker.transaction_check_interval_ms"] = int(
        1000 * (pending / 150_000 + seconds + 10))
    with mqcore_up(folder, settings) as broker:
        began = time.monotonic()
        target = find_target("tx_perf", broker=broker.broker_addr, namesrv=None, queues=8,
                             create=True)
        empty = private_bytes(broker, CHECKER)
        produce(target, ProduceOptions(span=Span(count=pending), undecided=True))
        before = steady(target, rate, seconds)
        questions = Questions(broker.broker_addr)
        print(f"{pending:,} half messages {time.monotonic() - began:.0f} s after the start; "
              f"the round begins {settings['broker.transaction_check_interval_ms']} ms after it")
        wait_for(lambda: questions.count, "the round", SPARE_S)
        during = steady(target, rate, seconds)
        full = private_bytes(broker, CHECKER)
        wait_for(lambda: questions.count >= pending, f"{pending} questions", SPARE_S)
        questions.stop()
        with Producer(broker.broker_addr, "LOOKER") as looker:
            wait_for(lambda: looker.offset(HALF_TOPIC) >= pending, "the round's end", SPARE_S)
        print(f"memory of {CHECKER}: {empty / 1e6:.1f} MB at its start, {full / 1e6:.1f} MB in the "
              "round")
        print(f"questions to one connected producer: {questions.rate:,.0f}/s, with sends beside")
        for name, report in (("without a round", before), ("during the round", during)):
            print(f"{rate:,.0f} sends/s {name}: p50 {report.latency_us['p50_us']:.0f} us, "
                  f"p99 {report.latency_us['p99_us']:.0f} us, {report.errors} errors")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--pending", type=int, default=1_000_000, help="undecided half messages")
    parser.add_argument("--rate", type=float, default=5_000, help="sends a second beside a round")
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement")
    parser.add_argument("--flush", default="async", choices=("async", "sync", "transient-pool"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mqcore-transactions-") as folder:
        measure(Path(folder), pending=given.pending, rate=given.rate, seconds=given.seconds,
                flush=given.flush)


if __name__ == "__main__":
    main()
