"""The native core, piece by piece: what the parts of one message's way cost in one process."""
from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import threading
import zlib
from collections.abc import Iterator
from mmap import mmap
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from mqcore.bench.templates import pull_template, send_template
from mqcore.layout import sizes
from mqcore.shm.ring import RingEnd, consume_fixed, produce_fixed
from mqcore.store.crc32 import crc32
from mqcore.store.reader import StoreReader
from mqcore.store.record import parse
from mqcore.wire.command import Codec
from mqcore.wire.header import read
from tests.store.harness import Run

RING_BYTES = 1 << 20
RING_RECORDS = 1_000_000
APPENDS = 2000                      # of one round: they fit the ring and one turn or two
DISPATCHED = 50_000
SEGMENT_BYTES = 1 << 26
POOL_BYTES = 1 << 26
TURN_MS = 1000


@pytest.fixture
def run() -> Iterator[Run]:
    """A store in memory: the disk is measured elsewhere."""
    root = Path(tempfile.mkdtemp(prefix="mqcore-bench-", dir="/dev/shm"))
    yield Run(root, segment_size=SEGMENT_BYTES, file_entries=300_000, index_slots=100_000,
              index_entries=400_000)
    shutil.rmtree(root)


def ring_memory() -> mmap:
    return mmap(-1, sizes()["RING_CURSORS_SIZE"] + RING_BYTES)


# -- ring ------------------------------------------------------------------------------------------


def bench_ring_1_to_1_128B(benchmark: BenchmarkFixture) -> None:
    """A million records from one process to another, 32 to a publish and to a release."""

    def cross() -> int:
        memory = ring_memory()
        pid = os.fork()
        if pid == 0:
            try:
                produce_fixed(memory, RING_BYTES, RING_RECORDS, 128)
            finally:
                os._exit(0)
        right: int = consume_fixed(memory, RING_BYTES, RING_RECORDS, 128)
        os.waitpid(pid, 0)
        return right

    assert benchmark.pedantic(cross, rounds=5) == RING_RECORDS
    benchmark.extra_info["records"] = RING_RECORDS


def bench_ring_send_receive_128B(benchmark: BenchmarkFixture) -> None:
    """One record through both ends from Python: the shells' cost, not the ring's."""
    memory = ring_memory()
    producer, consumer = RingEnd(memory, RING_BYTES), RingEnd(memory, RING_BYTES, consumer=True)
    record = b"x" * 128

    def once() -> object:
        producer.send(record)
        return consumer.receive()

    assert benchmark(once) == record


# -- bytes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [128, 1024])
def bench_crc32(benchmark: BenchmarkFixture, length: int) -> None:
    body = os.urandom(length)
    assert benchmark(crc32, body) == zlib.crc32(body)


def bench_record_parse_128B(benchmark: BenchmarkFixture, run: Run) -> None:
    record = stored_record(run)
    assert benchmark(parse, record, 0)["body"] == b"x" * 128


def stored_record(run: Run) -> bytes:
    loop, probe = run.writer("async", 0), run.probe()
    assert probe.send("TopicTest", 0, [b"x" * 128], opaque=1, properties=b"TAGS\x01TagA")
    loop.run(TURN_MS)
    end = run.segment.log_state()["published"]
    with open(run.log_folder / f"{0:020d}", "rb") as file:
        return file.read(end)


@pytest.mark.parametrize("codec", [Codec.JSON, Codec.ROCKETMQ], ids=["json", "binary"])
@pytest.mark.parametrize("kind", ["send_v2", "pull"])
def bench_fast_header(benchmark: BenchmarkFixture, kind: str, codec: Codec) -> None:
    frame = (send_template("TopicTest", 3, b"", codec=codec)[0] if kind == "send_v2"
             else pull_template("TopicTest", 3, group="G", batch=32, codec=codec)[0])
    header = bytes(frame[8:8 + (int.from_bytes(frame[4:8], "big") & 0xFFFFFF)])
    result, _ = benchmark(read, header, codec == Codec.ROCKETMQ)
    assert result == 0


# -- the way of a message --------------------------------------------------------------------------


def bench_encode_into_ring_2000_of_128B(benchmark: BenchmarkFixture, run: Run) -> None:
    """What a serving process does for a send behind its header, with a thin Python shell each."""
    probe, body = run.probe(), b"x" * 128
    loop = run.writer("async", 0)

    def empty() -> None:
        loop.run(TURN_MS)
        probe.take()

    benchmark.pedantic(lambda: fill(probe, body), setup=empty, rounds=20)


def fill(probe: object, body: bytes) -> None:
    for number in range(APPENDS):
        assert probe.send("TopicTest", number & 3, [body], opaque=number)  # type: ignore[attr-defined]


@pytest.mark.parametrize("length", [128, 1024])
def bench_append_2000_async(benchmark: BenchmarkFixture, run: Run, length: int) -> None:
    """The writer's turn over 2000 encoded records: places, copy, pwrite, results."""
    probe, body = run.probe(), b"x" * length
    loop = run.writer("async", 0)
    count = min(APPENDS, 900_000 // (length + 200))
    settled = itertools.count()

    def prepare() -> None:
        settled_now = probe.take()
        assert all(status == 0 for _, status, *_ in settled_now), next(settled)
        for number in range(count):
            assert probe.send("TopicTest", number & 3, [body], opaque=number)

    benchmark.pedantic(lambda: loop.run(TURN_MS), setup=prepare, rounds=20)
    assert all(status == 0 for _, status, *_ in probe.take())
    benchmark.extra_info["records"] = count


@pytest.mark.parametrize("mode", ["async", "transient-pool"])
def bench_append_path_alone_128B(benchmark: BenchmarkFixture, run: Run, mode: str) -> None:
    """
    The writer's thread by itself: records that are encoded already, in 8 queues, as many as fit the
    ring. The benchmark's `per_second` is records a second of one core; in the pool's mode the
    commit thread's work is not part of it.
    """
    probe = run.probe()
    loop = run.writer(mode, 0, commit_least_bytes=1, pool_bytes=POOL_BYTES)
    services = [threading.Thread(target=loop.run_service, args=[name]) for name in loop.services()]
    assert probe.send("TopicTest", 0, [b"x" * 128], opaque=1, properties=b"TAGS\x01TagA")
    loop.run(TURN_MS)
    assert probe.drain() == 1
    for service in services:
        service.start()
    counts: list[int] = []

    def fill_ring() -> None:
        loop.restart_position()                      # what came before is in the file
        found = probe.drain()
        assert found == (counts[-1] if counts else 0)
        counts.append(probe.repeat(1_000_000, 8))

    benchmark.pedantic(lambda: loop.run(TURN_MS), setup=fill_ring, rounds=300, warmup_rounds=20)
    assert probe.drain() == counts[-1] > 2000
    loop.finish()
    loop.stop_service()
    for service in services:
        service.join()
    benchmark.extra_info["records"] = counts[-1]
    if benchmark.stats is not None:                  # None: --benchmark-disable
        per_second = counts[-1] / benchmark.stats.stats.median
        benchmark.extra_info["per_second"] = round(per_second)


@pytest.mark.parametrize("keys", [False, True], ids=["queues", "queues_and_keys"])
def bench_dispatch_50000(benchmark: BenchmarkFixture, run: Run, keys: bool) -> None:
    """The dispatcher over 50,000 records of 128 B in 4 queues, two keys each, from the start."""
    loop, probe = run.writer("async", 0), run.probe()
    for number in range(DISPATCHED):
        properties = b"KEYS\x01k%d\x02UNIQ_KEY\x01u%d\x02TAGS\x01TagA" % (number, number)
        while not probe.send("TopicTest", number & 3, [b"x" * 128], opaque=number,
                             properties=properties):
            loop.run(TURN_MS)
            probe.take()
    loop.run(TURN_MS)
    probe.take()
    end = run.segment.log_state()["published"]

    def again() -> None:
        """A new run over the same log, its queues and keys gone."""
        for folder in (run.queue_folder, run.index_folder):
            shutil.rmtree(folder)
        fresh = Run(run.root, run.segment_size, run.file_entries, run.index_slots,
                    run.index_entries)
        found = fresh.recover(clean=False)
        assert found.end == end
        fresh.writer("async", end)
        runs.append((fresh, fresh.dispatcher(index_enabled=keys)))

    runs: list[tuple[Run, object]] = []
    benchmark.pedantic(lambda: runs[-1][1].run(TURN_MS * 60),  # type: ignore[attr-defined]
                       setup=again, rounds=3)
    assert all(each.segment.log_state()["dispatched"] == end for each, _ in runs)
    benchmark.extra_info["records"] = DISPATCHED


def bench_consume_queue_walk_50000(benchmark: BenchmarkFixture, run: Run) -> None:
    """One queue's entries from its files, decoded, as a pull walks them."""
    loop, probe = run.writer("async", 0), run.probe()
    for number in range(DISPATCHED):
        while not probe.send("TopicTest", 0, [b"x" * 128], opaque=number):
            loop.run(TURN_MS)
            probe.take()
    loop.run(TURN_MS)
    run.dispatch_all(run.segment.log_state()["published"])
    reader = StoreReader(
        run.segment, os.fsencode(run.log_folder), os.fsencode(run.queue_folder),
        file_entries=run.file_entries, memory_bytes=1 << 30)

    found, size = benchmark(reader.walk, "TopicTest", 0, 0, DISPATCHED)

    assert found == DISPATCHED
    assert size == run.segment.log_state()["published"]
