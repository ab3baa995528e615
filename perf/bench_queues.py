"""Dispatch and append with the queues' extras: extension files, filter bits, multi-dispatch."""
from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from mqcore.filter.bloom import BloomFilter
from mqcore.filter.filter_bits import FilterBits
from mqcore.filter.sql92_filter import Filter
from mqcore.shm.filters import FilterWriter
from mqcore.store.queue.dispatch import DispatchLoop
from tests.store.harness import Run

TURN_MS = 60_000
RECORDS = 50_000
APPENDS = 2_000
BLOOM = BloomFilter.for_rate()
EXPRESSION = "n > 50 AND color IS NULL"
PROPERTIES = b"KEYS\x01k1\x02UNIQ_KEY\x01u1\x02TAGS\x01TagA\x02n\x0177"
NAMED = b"\x02INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b"


def new_run(root: Path) -> Run:
    return Run(root, segment_size=1 << 28, file_entries=300_000, multi_dispatch=True)


def store(run: Run, properties: bytes) -> None:
    loop, probe = run.writer("async", 0), run.probe()
    loop.name_queues(True, 20_000)
    for number in range(RECORDS):
        while not probe.send("TopicTest", number & 3, [b"x" * 128], opaque=number,
                             properties=properties):
            loop.run(TURN_MS)
            probe.take()
    loop.run(TURN_MS)
    probe.take()


@pytest.mark.parametrize(("extension", "filters", "named"), [
    (False, 0, False), (True, 0, False), (True, 1, False), (True, 5, False), (False, 0, True),
], ids=["plain", "extension", "1_filter", "5_filters", "3_queues_each"])
def bench_dispatch_extras_50000(
    benchmark: BenchmarkFixture, tmp_path: Path, extension: bool, filters: int, named: bool,
) -> None:
    """The dispatcher over 50,000 records of 128 B in 4 queues, without the key index."""
    root = tmp_path / "store"
    store(new_run(root), PROPERTIES + NAMED * named)
    loops: list[tuple[Run, DispatchLoop]] = []

    def again() -> None:
        run = new_run(root)
        shutil.rmtree(run.queue_folder)
        shutil.rmtree(run.extension_folder, ignore_errors=True)
        end = run.recover(clean=False).end
        run.writer("async", end)
        writer = FilterWriter(run.segment)
        for number in range(filters):
            writer.publish_program(
                f"g{number}", "TopicTest", program=Filter.compile(EXPRESSION).program,
                expression=EXPRESSION, client_version=1, born_ms=1, dead_ms=0, now_ms=1,
                positions=BLOOM.subscription_positions(f"g{number}", "TopicTest"),
                bit_count=BLOOM.bit_count)
        extras = {"extension_folder": os.fsencode(run.extension_folder),
                  "extension_file_bytes": 48 << 20,
                  "bits": FilterBits(run.segment, BLOOM.map_size)} if extension else {}
        loops.append((run, run.dispatcher(index_enabled=False, multi_dispatch=named,
                                          light_queues=named, **extras)))

    benchmark.pedantic(lambda: loops[-1][1].run(TURN_MS), setup=again, rounds=5)
    for run, _ in loops:
        state = run.segment.log_state()
        assert state["dispatched"] == state["published"]
        if named:
            assert run.queue_ranges()["%LMQ%a", 0] == (0, RECORDS)
    benchmark.extra_info["records"] = RECORDS


@pytest.mark.parametrize(("enabled", "named"), [(False, False), (True, False), (True, True)],
                         ids=["off", "on", "on_2_named"])
def bench_append_multi_dispatch_2000(
    benchmark: BenchmarkFixture, tmp_path: Path, enabled: bool, named: bool,
) -> None:
    """The writer over 2,000 records of 128 B, async flush, with and without queues to name."""
    run = new_run(tmp_path / "store")
    loop, probe = run.writer("async", 0), run.probe()
    if enabled:
        loop.name_queues(True, 20_000)
    properties = PROPERTIES + NAMED * named

    def prepare() -> None:
        assert all(status == 0 for _, status, *_ in probe.take())
        for number in range(APPENDS):
            assert probe.send("TopicTest", number & 3, [b"x" * 128], opaque=number,
                              properties=properties)

    benchmark.pedantic(lambda: loop.run(TURN_MS), setup=prepare, rounds=20)
    assert all(status == 0 for _, status, *_ in probe.take())
    benchmark.extra_info["records"] = APPENDS
