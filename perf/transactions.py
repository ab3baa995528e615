"""
What transactions cost, and what a check round over many of them does to everybody else.

    python -m perf.transactions --pending 1000000
    python -m perf.transactions --pending 400000 --flush sync --seconds 5 --rounds 4

Four figures on one broker: transactions a second and the CPU of one (a half message, its final
message, its op record); many half messages that nobody ends, and the memory of the process that
checks them; sends at a steady rate between rounds and during them, in turn, `--rounds` times each;
and how many questions (39) a second reach a connected producer.
"""
from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from mqcore.admin.status import PREFIX, describe
from mqcore.bench.control import Target, find_target
from mqcore.bench.load import ProduceOptions, Report, Span, produce
from mqcore.shm.segment import stale_segments
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import encode, request
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.transactions.producer import Producer
from tests.workers.processes import by_role

CHECKER = "transaction-check"
GROUP = "mqcore_bench"
RECEIVE_BYTES = 1 << 20
SPARE_S = 120.0
HEARTBEAT_S = 10.0
REST_S = 3.0                      # between the end of a measurement and the next round


class Questions:
    """A producer of the group, in a process of its own, that counts what it is asked."""

    def __init__(self, address: str) -> None:
        self._number = multiprocessing.Value("q", 0)
        self._process = multiprocessing.Process(target=self._receive, args=(address,), daemon=True)
        self._process.start()

    def _receive(self, address: str) -> None:
        number: Any = self._number.get_obj()
        producer, data = Producer(address, GROUP), bytearray()
        producer.socket.settimeout(HEARTBEAT_S)
        beat = time.monotonic()
        while True:
            if time.monotonic() - beat > HEARTBEAT_S:       # or the broker takes it for gone
                producer.send(encode(request(Code.HEART_BEAT, None, producer.heartbeat,
                                             oneway=True)))
                beat = time.monotonic()
            try:
                came = producer.socket.recv(RECEIVE_BYTES)
            except TimeoutError:
                continue
            if not came:
                raise SystemExit("the broker has closed the producer's connection")
            data += came
            at = 0
            while len(data) - at >= 4:
                end = at + 4 + int.from_bytes(data[at:at + 4], "big")
                if end > len(data):
                    break
                at = end
                number.value += 1
            del data[:at]

    def stop(self) -> None:
        self._process.terminate()
        self._process.join()

    @property
    def count(self) -> int:
        return int(self._number.value)

    def wait_for_more(self) -> None:
        """Until a question comes."""
        known = self.count
        wait_until(lambda: self.count > known, "a question", SPARE_S)


def private_bytes(broker: MqcoreProcess, role: str) -> int:
    """Memory that only this process has."""
    text = Path(f"/proc/{by_role(broker)[role]}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) * 1024 for line in text.splitlines()
               if line.startswith(("Private_Clean", "Private_Dirty", "Private_Hugetlb")))


def steady(target: Target, rate: float, seconds: float, broker: MqcoreProcess) -> Report:
    return produce(target, ProduceOptions(
        span=Span(seconds=seconds), connections=4, rate=rate, heartbeat=False,
        broker_pids=tuple(broker.family()[:1])))


def base_settings(flush: str, interval_ms: int) -> dict[str, object]:
    return {
        "store.flush": flush, "store.segment_size_bytes": 1 << 30,
        "store.queue_file_entry_count": 300_000, "store.index_slot_count": 5_000_000,
        "store.index_entry_count": 20_000_000, "broker.transaction_timeout_ms": 1,
        "broker.transaction_check_max": 1_000, "broker.transaction_check_interval_ms": interval_ms,
    }


def transactions(folder: Path, *, seconds: float, flush: str) -> None:
    """How many a second, and their CPU."""
    with mqcore_up(folder, base_settings(flush, 600_000)) as broker:
        target = find_target("tx_perf", broker=broker.broker_addr, namesrv=None, queues=8,
                             create=True)
        done = produce(target, ProduceOptions(
            span=Span(seconds=seconds, warmup=20_000), transactional=True,
            broker_pids=tuple(broker.family()[:1])))
    print(f"transactions, 8 connections x 32, 128 B, {flush}: {done.rate_per_s:,.0f}/s, "
          f"{done.broker_cpu_us or 0:.2f} us broker CPU each")


def rounds_ended(broker: MqcoreProcess) -> int:
    """How many rounds are over, as `mqcore status` says it."""
    (name,) = [name for name in stale_segments(PREFIX) if name.endswith(f"-{broker.pid}")]
    found: Any = describe(name)
    return int(found["transactions"]["rounds"])


def next_round_end(broker: MqcoreProcess) -> None:
    ended = rounds_ended(broker)
    wait_until(lambda: rounds_ended(broker) > ended, "a round's end", SPARE_S)


def show(name: str, rate: float, report: Report) -> float:
    """One line; returns the p99 in us."""
    print(f"{rate:,.0f} sends/s {name}: p50 {report.latency_us['p50_us']:.0f} us, "
          f"p99 {report.latency_us['p99_us']:.0f} us, {report.errors} errors, others took "
          f"{report.others_cpu_share or 0:.0%}", flush=True)
    return report.latency_us["p99_us"]


def rounds(folder: Path, *, pending: int, rate: float, seconds: float, flush: str,
           count: int) -> None:
    """`count` times: sends between rounds, sends during a round. A round has to outlast them."""
    interval_ms = int(1000 * (seconds + REST_S))
    with mqcore_up(folder, base_settings(flush, interval_ms)) as broker:
        target = find_target("tx_perf", broker=broker.broker_addr, namesrv=None, queues=8,
                             create=True)
        empty = private_bytes(broker, CHECKER)
        questions = Questions(broker.broker_addr)
        produce(target, ProduceOptions(span=Span(count=pending), undecided=True))
        quiet, busy, full = [], [], 0
        next_round_end(broker)
        for _ in range(count):
            ended, asked = rounds_ended(broker), questions.count
            quiet.append(show("between rounds", rate, steady(target, rate, seconds, broker)))
            if rounds_ended(broker) > ended or questions.count > asked:
                raise SystemExit("a round began between rounds: the machine is too slow for this")
            questions.wait_for_more()
            asked, began = questions.count, time.monotonic()
            busy.append(show("during a round", rate, steady(target, rate, seconds, broker)))
            if rounds_ended(broker) > ended:
                raise SystemExit(f"--pending {pending}: expected more, a round is over in less "
                                 f"than {seconds} s")
            speed = (questions.count - asked) / (time.monotonic() - began)
            print(f"questions to one connected producer: {speed:,.0f}/s", flush=True)
            full = max(full, private_bytes(broker, CHECKER))
            next_round_end(broker)
        questions.stop()
    print(f"memory of {CHECKER}: {empty / 1e6:.1f} MB at its start, {full / 1e6:.1f} MB in a round")
    print(f"median p99, {flush}: {statistics.median(quiet):.0f} us between rounds, "
          f"{statistics.median(busy):.0f} us during them")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--pending", type=int, default=1_000_000, help="undecided half messages")
    parser.add_argument("--rate", type=float, default=5_000, help="sends a second beside a round")
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement")
    parser.add_argument("--flush", default="async", choices=("async", "sync", "transient-pool"))
    parser.add_argument("--rounds", type=int, default=2, help="how often each is measured")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mqcore-transactions-") as folder:
        transactions(Path(folder, "ends"), seconds=given.seconds, flush=given.flush)
        rounds(Path(folder, "rounds"), pending=given.pending, rate=given.rate,
               seconds=given.seconds, flush=given.flush, count=given.rounds)


if __name__ == "__main__":
    main()
