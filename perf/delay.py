"""
How late delayed messages are, and what a delivery costs.

    python -m perf.delay --rate 20000 --seconds 10

Sends delayed messages at a rate, waits until the last is sent, and then measures while they become
due at the same rate: lateness is the store time of the delivery less the delivery time, CPU that of
all broker processes for one delivered message.
"""
from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from mqcore.bench.control import find_target
from mqcore.bench.cpu import cpu_seconds
from mqcore.bench.load import ProduceOptions, Span, produce
from mqcore.shm.delays import delay_offsets
from tests.schedule.ledger import read_ledger
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.workers.processes import by_role
from tests.workers.test_end import segment_of

SEGMENT_BYTES = 1 << 28
TOPIC = "delayed"
SPARE_S = 30.0


def spent(broker: MqcoreProcess) -> dict[str, float]:
    """CPU seconds so far, by process."""
    return {role: cpu_seconds(pid) for role, pid in by_role(broker).items()}


def measure(folder: Path, *, rate: int, seconds: int, size: int, flush: str) -> None:
    """One run; prints its figures."""
    count = rate * seconds
    settings = {"store.segment_size_bytes": SEGMENT_BYTES, "store.flush": flush,
                "store.queue_file_entry_count": 300_000,
                "broker.message_delay_levels": f"{seconds + 1}s"}
    with mqcore_up(folder, settings) as broker:
        segment = segment_of(broker)
        target = find_target(TOPIC, broker=broker.broker_addr, namesrv=None, queues=8, create=True)
        sent = produce(target, ProduceOptions(span=Span(count=count), connections=4, size=size,
                                              rate=float(rate), delay_level=1))
        if sent.errors or sent.lost:
            raise SystemExit(f"{sent.errors} sends failed: {sent.first_error}")
        before, began = spent(broker), time.monotonic()
        already = (delay_offsets(segment) or {}).get(1, 0)
        wait_until(lambda: (delay_offsets(segment) or {}).get(1, 0) >= count, "all is delivered",
                   2 * seconds + SPARE_S)
        took, after = time.monotonic() - began, spent(broker)
    late = read_ledger(folder / "store" / "commitlog", {1: 1000 * (seconds + 1)}).lateness_ms()
    done = count - already
    cost = {role: (after[role] - before[role]) / done * 1e6 for role in after}
    print(f"{count} messages of {size} B, {flush}: {done / took:,.0f} delivered/s; late "
          f"p50 {late[len(late) // 2]} ms, p99 {late[len(late) * 99 // 100]} ms, "
          f"max {late[-1]} ms, min {late[0]} ms")
    print(f"CPU of a delivered message: {sum(cost.values()):.2f} us ("
          + ", ".join(f"{role} {each:.2f}" for role, each in cost.items() if each >= 0.005) + ")")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--rate", type=int, default=20_000, help="due messages a second")
    parser.add_argument("--seconds", type=int, default=10, help="how long")
    parser.add_argument("--size", type=int, default=128, help="bytes of a body")
    parser.add_argument("--flush", default="async", choices=("async", "sync", "transient-pool"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mqcore-delay-") as folder:
        measure(Path(folder), rate=given.rate, seconds=given.seconds, size=given.size,
                flush=given.flush)


if __name__ == "__main__":
    main()
