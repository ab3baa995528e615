"""How long syncs and dispatch take, as the writer and the dispatcher note it."""
from __future__ import annotations

from pathlib import Path

import pytest

from mqcore.shm.latencies import Histogram, Latencies
from mqcore.store.probes import append_probe
from tests.store.harness import TURN_MS_MAX, Run

HUNG_MS = 50


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run(tmp_path)
    made.recover(clean=True)
    return made


def times(run: Run, name: str) -> Histogram:
    return Latencies(run.segment).total(name)


def send(run: Run, count: int, mode: str) -> int:
    """Store messages; the log's end."""
    writer, probe = run.writer(mode, 0), run.probe()
    for number in range(count):
        assert probe.send("T", 0, [b"body"], opaque=number)
    writer.run(TURN_MS_MAX)
    assert len(probe.take()) == count
    return int(run.segment.log_state()["published"])


def test_each_sync_is_timed(run: Run) -> None:
    append_probe.watch(run.segment)
    try:
        append_probe.hang("sync", HUNG_MS)
        send(run, 3, "sync")
    finally:
        append_probe.unwatch()
    found = times(run, "flush")
    assert found.count >= 1
    assert found.sum_us >= 1000 * HUNG_MS
    assert found.quantile_us(1.0) > 1000 * HUNG_MS


def test_each_record_is_timed_from_its_publishing_to_its_entry(run: Run) -> None:
    end = send(run, 5, "async")
    run.dispatch_all(end)
    found = times(run, "dispatch")
    assert found.count == 5
    assert 0 < found.sum_us < 5 * 600_000_000


def test_records_of_an_earlier_turn_waited_longer(run: Run) -> None:
    """Both count as long as the older one."""
    writer, probe = run.writer("async", 0), run.probe()
    for number in range(2):
        assert probe.send("T", 0, [b"body"], opaque=number)
        writer.run(TURN_MS_MAX)
        if number == 0:
            first_ms = run.segment.store_time_ms()
            while run.segment.store_time_ms() < first_ms + 5:
                pass
    run.dispatch_all(int(run.segment.log_state()["published"]))
    found = times(run, "dispatch")
    assert found.count == 2
    assert found.sum_us >= 2 * 4000
