"""Segments are made (F4) and warmed (P1, P2) before a message needs them."""
from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.layout import PUT_OK, REFUSAL_FLUSH_FAILED
from mqcore.store import files
from mqcore.store.log.append_loop import AppendLoop
from mqcore.store.log.log_folders import make_segment
from mqcore.store.probes import append_probe
from mqcore.store.probes.append_probe import AppendProbe
from mqcore.store.probes.io_stall import Stall
from tests.store.harness import Run
from tests.store.stalling import stall
from tests.support.mqcore_process import mqcore_up
from tests.support.waiting import wait_until
from tests.workers.load import Asker, send_request

SEGMENT = 8192
BIG_SEGMENT = 16 << 20
WARM_MARGIN = 4 << 20                 # zeros are no nearer to the log's end (prepare.pyx)
TURN_MS = 1000

__all__ = ["stall"]                   # a fixture


@contextlib.contextmanager
def served(loop: AppendLoop) -> Iterator[None]:
    """All services of the writer beside the block."""
    threads = [threading.Thread(target=loop.run_service, args=[name]) for name in loop.services()]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        loop.finish()
        loop.stop_service()
        for thread in threads:
            thread.join()


def segments(run: Run) -> list[int]:
    return sorted(int(path.name) for path in run.log_folder.iterdir())


def wait_for_segments(run: Run, wanted: list[int]) -> None:
    wait_until(lambda: segments(run) == wanted, f"segments {wanted}")


def append(loop: AppendLoop, probe: AppendProbe, numbers: range, size: int) -> None:
    for number in numbers:
        assert probe.send("topic", 0, [b"%-*d" % (size, number)], opaque=number)
    found: list[int] = []

    def answered() -> bool:
        loop.run(0)
        found.extend(status for _, status, *_ in probe.take())
        return len(found) == len(numbers)

    wait_until(answered, "answers")
    assert set(found) == {PUT_OK}


@pytest.mark.parametrize("mode", ["async", "transient-pool"])
def test_the_next_segment_is_made_before_it_is_needed(tmp_path: Path, mode: str) -> None:
    run = Run(tmp_path / "store", segment_size=SEGMENT, file_entries=20)
    loop = run.writer(mode, 0, flush_interval_ms=1, commit_thorough_interval_ms=1)
    probe = run.probe()
    with served(loop):
        for number in range(3):
            append(loop, probe, range(number, number + 1), 8000)        # a segment each
            wait_for_segments(run, [base * SEGMENT for base in range(number + 2)])
    assert (run.log_folder / f"{3 * SEGMENT:020d}").read_bytes() == bytes(SEGMENT)


def test_a_disk_that_refuses_the_next_segment_disturbs_nobody(tmp_path: Path) -> None:
    run = Run(tmp_path / "store", segment_size=SEGMENT, file_entries=20)
    append_probe.watch(run.segment)
    try:
        loop, probe = run.writer("async", 0, flush_interval_ms=1), run.probe()
        append(loop, probe, range(1), 100)
        append_probe.fail("truncate", errno.ENOSPC, times=2)
        with served(loop):
            wait_until(lambda: append_probe.events()[-1][0] != "write", "a try")
            append(loop, probe, range(1, 2), 100)
            wait_until(lambda: segments(run) == [0, SEGMENT], "another try")
        assert run.segment.log_state()["refusal"] == 0
    finally:
        append_probe.unwatch()


def test_recovery_removes_what_was_made_ahead(tmp_path: Path) -> None:
    run = Run(tmp_path / "store", segment_size=SEGMENT, file_entries=20)
    loop, probe = run.writer("async", 0, flush_interval_ms=1), run.probe()
    append(loop, probe, range(1), 100)
    with served(loop):
        wait_until(lambda: len(segments(run)) == 2, "the next segment")
    end = run.segment.log_state()["published"]
    after = Run(run.root, SEGMENT, 20)

    assert (after.recover(clean=False).end, segments(after)) == (end, [0])


@pytest.mark.parametrize("removals", range(4))
def test_segments_made_ahead_go_in_an_order_that_leaves_no_gap(                            # P3
    tmp_path: Path, removals: int,
) -> None:
    """A writer that dies while it removes them is followed by one that finds its log."""
    run = Run(tmp_path / "store", segment_size=SEGMENT, file_entries=20)
    loop, probe = run.writer("async", 0), run.probe()
    append(loop, probe, range(1), 100)
    end = run.segment.log_state()["published"]
    for number in range(1, 5):
        make_segment(str(run.log_folder).encode(), number * SEGMENT, SEGMENT)
    removed: list[str] = []

    def unlink(path: str) -> None:
        if len(removed) == removals:
            raise OSError(errno.EIO, "dies here")
        removed.append(path)
        os.unlink(path)

    with files.replaced(unlink=unlink), pytest.raises(OSError, match="dies here"):
        run.recover_tail()
    assert segments(run) == [number * SEGMENT for number in range(5 - removals)]
    assert (run.recover_tail().end, segments(run)) == (end, [0])


def test_zeros_never_run_ahead_into_a_segment_whose_neighbour_is_not_there(                # P3
    tmp_path: Path,
) -> None:
    run = Run(tmp_path / "store", segment_size=SEGMENT, file_entries=20)
    assert WARM_MARGIN > 100 * SEGMENT
    loop, probe = run.writer("sync", 0), run.probe()
    with served(loop):
        append(loop, probe, range(10), 4000)
    assert segments(run) == [number * SEGMENT for number in range(len(segments(run)))]


def whole(run: Run, segment: int) -> bool:
    """Whether every block of a segment behind the margin is written."""
    path = run.log_folder / f"{segment:020d}"
    if not path.exists():
        return False
    with open(path, "rb") as file:
        return (os.fstat(file.fileno()).st_size == BIG_SEGMENT
                and os.lseek(file.fileno(), WARM_MARGIN, os.SEEK_HOLE) == BIG_SEGMENT)


def test_a_writer_that_is_back_writes_no_zeros_where_the_one_before_did(tmp_path: Path) -> None:
    run = Run(tmp_path / "store", segment_size=BIG_SEGMENT, file_entries=20)
    with served(run.writer("sync", 0)):
        wait_until(lambda: whole(run, 0), "zeros in the first segment")
    changed = (run.log_folder / f"{0:020d}").stat().st_mtime_ns
    for path in run.log_folder.iterdir():
        if int(path.name):
            path.unlink()
    with served(run.writer("sync", 0)):
        wait_until(lambda: allocated(run) > BIG_SEGMENT, "zeros in the second one")
    assert (run.log_folder / f"{0:020d}").stat().st_mtime_ns == changed


def test_a_clean_stop_removes_what_was_made_ahead(tmp_path: Path) -> None:
    with mqcore_up(tmp_path, {"store.flush_interval_ms": 10}) as broker:
        folder = broker.store / "commitlog"
        with Asker(broker.broker_addr) as asker:
            assert asker.ask(send_request("TBW102", (0, 0), 1)).code == 0
        wait_until(lambda: len(list(folder.iterdir())) == 2, "the next segment")
        broker.stop()
        assert [path.name for path in folder.iterdir()] == [f"{0:020d}"]


def allocated(run: Run) -> int:
    """Bytes for which the log's files have blocks."""
    return sum(path.stat().st_blocks * 512 for path in run.log_folder.iterdir())


@pytest.mark.parametrize("mode", ["async", "transient-pool"])
def test_warm_segments_have_their_blocks_before_the_messages_come(
    tmp_path: Path, mode: str,
) -> None:
    run = Run(tmp_path / "store", segment_size=BIG_SEGMENT, file_entries=20)
    loop = run.writer(mode, 0, warm_segments=True, commit_thorough_interval_ms=1)
    probe = run.probe()
    assert "prepare" in loop.services()
    with served(loop):
        append(loop, probe, range(10), 1000)
        wait_until(lambda: allocated(run) > 2 * BIG_SEGMENT, "blocks")
    assert run.segment.log_state()["published"] < 1 << 16


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["async", "transient-pool"])
def test_zeros_that_run_ahead_never_hit_a_record(tmp_path: Path, mode: str) -> None:       # P1
    run = Run(tmp_path / "store", segment_size=BIG_SEGMENT, file_entries=20)
    loop, probe = run.writer(mode, 0, warm_segments=True, flush_interval_ms=5), run.probe()
    count, size = 60, 16000
    with served(loop):
        for start in range(0, 40 * count, count):
            append(loop, probe, range(start, start + count), size)

    end = run.segment.log_state()["published"]
    found = [int(r["body"]) for r in run.records(end) if not r.get("blank")]
    assert found == list(range(40 * count))
    assert end > 2 * BIG_SEGMENT > WARM_MARGIN


def test_zeros_for_a_place_that_the_log_has_reached_meanwhile_are_not_written(         # P1
    tmp_path: Path, stall: Stall,
) -> None:
    """The service has chosen 4 MiB, and hangs in opening the segment until the log is behind it."""
    run = Run(tmp_path / "store", segment_size=BIG_SEGMENT, file_entries=20)
    loop, probe = run.writer("async", 0, warm_segments=True), run.probe()
    stall.next_open(True)
    service = threading.Thread(target=loop.run_service, args=["prepare"])
    service.start()
    try:
        wait_until(stall.hanging, "an open that hangs")
        for start in range(0, 360, 60):
            append(loop, probe, range(start, start + 60), 16_000)
    finally:
        loop.stop_service()
        stall.next_open(False)
        service.join()
    end = run.segment.log_state()["published"]
    assert end > 5 << 20
    assert [int(record["body"]) for record in run.records(end)] == list(range(360))


def test_a_later_record_of_a_flushed_segment_is_flushed_too(tmp_path: Path) -> None:     # F1, F2
    run = Run(tmp_path / "store", segment_size=SEGMENT, file_entries=20)
    loop, probe = run.writer("async", 0, flush_interval_ms=1, flush_least_bytes=0), run.probe()

    def state(name: str) -> int:
        return int(run.segment.log_state()[name])

    append_probe.watch(run.segment)
    service = threading.Thread(target=loop.run_service)
    service.start()
    try:
        append(loop, probe, range(1), 100)
        wait_until(lambda: state("flushed") == state("published"), "the first flush")
        before = state("published")
        append_probe.fail("sync", errno.EIO)
        append(loop, probe, range(1, 2), 100)
        wait_until(lambda: state("refusal") == REFUSAL_FLUSH_FAILED, "a failed flush")
    finally:
        loop.stop_service()
        service.join()
        append_probe.unwatch()
    assert state("flushed") == before


@pytest.mark.parametrize("mode", ["async", "transient-pool"])
def test_nobody_warms_segments_unless_asked(tmp_path: Path, mode: str) -> None:
    run = Run(tmp_path / "store", segment_size=BIG_SEGMENT, file_entries=20)
    assert "prepare" not in run.writer(mode, 0).services()
    assert "prepare" in run.writer("sync", 0).services()
