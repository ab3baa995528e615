"""Queues and index follow the commit log's beginning (store.md 3.4, 4.5, 6.6)."""
from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from mqcore.shm.retention import LogWords, QueueLives
from mqcore.store.queue.trim import QueueTrimmer, trim_all, trim_index
from mqcore.store.reader import StoreReader
from tests.store.harness import Run, read_entries

SEGMENT = 8192
FILE_ENTRIES = 5


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Two queues of 40 messages each and a quiet one whose two are the oldest; keys on all."""
    run = Run(tmp_path / "store", segment_size=SEGMENT, file_entries=FILE_ENTRIES,
              index_entries=20)
    loop, probe = run.writer("async", 0), run.probe()
    for number in range(2):
        assert probe.send("quiet", 0, [b"q"], opaque=number, properties=b"KEYS\x01q")
    for number in range(80):
        assert probe.send("busy", number % 2, [b"x" * 800], opaque=number,
                          properties=b"KEYS\x01k%d" % number)
    loop.run(1000)
    run.dispatch_all(run.segment.log_state()["published"])
    return run


def trim(run: Run, first: int) -> tuple[int, int]:
    LogWords(run.segment).raise_first(first)
    lives = QueueLives(run.segment)
    done = trim_all(QueueTrimmer(lives, run.queue_folder, FILE_ENTRIES), lives, run.index_folder,
                    first, threading.Lock())
    return done.queue_files, done.index_files


def files(folder: Path) -> list[int]:
    """Queue offsets at which the files of a queue begin."""
    return sorted(int(name) // 20 for name in os.listdir(folder))


@pytest.mark.parametrize("segments", [1, 2, 4, 7])
def test_files_below_the_log_go_and_the_first_offset_is_the_first_record_that_is_left(
    run: Run, segments: int,
) -> None:
    first = segments * SEGMENT
    trim(run, first)

    for queue in (0, 1):
        least, most = run.queue_ranges()["busy", queue]
        kept = files(run.queue_folder / "busy" / str(queue))
        entries = run.entries("busy", queue, kept[0], most)
        below = [entry for entry in entries if entry[0] < first]
        assert most == 40
        assert least == kept[0] + len(below)
        assert len(below) < FILE_ENTRIES                       # else their file would have gone
        assert kept == list(range(kept[0], 40, FILE_ENTRIES))
        assert kept[0] == least // FILE_ENTRIES * FILE_ENTRIES


def test_the_last_file_of_a_queue_stays_with_its_first_offset_though_all_is_deleted(
    run: Run,
) -> None:
    trim(run, 3 * SEGMENT)

    assert files(run.queue_folder / "quiet" / "0") == [0]
    assert run.queue_ranges()["quiet", 0] == (0, 2)


def test_a_pass_may_be_repeated_and_finds_nothing(run: Run) -> None:
    assert trim(run, 4 * SEGMENT)[0] > 0
    ranges = run.queue_ranges()

    assert trim(run, 4 * SEGMENT) == (0, 0)
    assert run.queue_ranges() == ranges


def test_index_files_that_end_below_the_log_go_but_never_the_newest(run: Run) -> None:
    before = sorted(os.listdir(run.index_folder))
    assert len(before) == 5

    _, deleted = trim(run, 4 * SEGMENT)
    assert 0 < deleted < 4
    assert sorted(os.listdir(run.index_folder)) == before[deleted:]
    assert trim_index(run.index_folder, 1 << 40) == 4 - deleted
    assert sorted(os.listdir(run.index_folder)) == before[-1:]


def test_fillers_at_the_start_of_a_queue_count_as_below_the_log(tmp_path: Path) -> None:
    run = Run(tmp_path / "store", segment_size=SEGMENT, file_entries=FILE_ENTRIES)
    loop, probe = run.writer("async", 0), run.probe()
    for number in range(12):
        assert probe.send("topic", 0, [b"x" * 800], opaque=number)
    loop.run(1000)
    folder = run.queue_folder / "topic" / "0"
    folder.mkdir(parents=True)
    run.dispatch_all(run.segment.log_state()["published"])
    filler = b"\0" * 8 + b"\x7f\xff\xff\xff" + b"\0" * 8
    with open(folder / f"{0:020d}", "r+b") as file:
        file.write(filler * 3)

    trim(run, SEGMENT)
    least, most = run.queue_ranges()["topic", 0]
    assert run.entries("topic", 0, least, most)[0][0] >= SEGMENT
    assert read_entries(folder, least - 1, least, FILE_ENTRIES)[0][0] < SEGMENT


def test_a_reader_lets_go_of_deleted_segments_and_queue_files(run: Run) -> None:
    reader = StoreReader(run.segment, os.fsencode(run.log_folder), os.fsencode(run.queue_folder),
                         file_entries=FILE_ENTRIES, memory_bytes=1 << 30)
    assert reader.record(0) is not None
    assert reader.entry("busy", 0, 0) is not None
    for segment in range(3):
        os.unlink(run.log_folder / f"{segment * SEGMENT:020d}")
    assert held(run.root) == {"00000000000000000000"}            # the mapping, not a descriptor

    trim(run, 3 * SEGMENT)
    assert len(deleted_descriptors(run.root)) == 1
    reader.forget_deleted()
    assert held(run.root) == set()
    assert deleted_descriptors(run.root) == []
    assert reader.record(0) is None
    assert reader.entry("busy", 0, 0) is None
    least, _ = run.queue_ranges()["busy", 0]
    entry = reader.entry("busy", 0, least)
    assert entry is not None
    assert reader.record(entry[0]) is not None


def held(root: Path) -> set[str]:
    """Names of deleted commit log files that this process has mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {Path(line.split()[5]).name for line in lines
            if line.endswith("(deleted)") and str(root / "commitlog") in line}


def deleted_descriptors(root: Path) -> list[str]:
    """Deleted queue files that this process has open."""
    targets = []
    for name in os.listdir("/proc/self/fd"):
        try:
            targets.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:                    # the one that listed the folder
            continue
    return [target for target in targets
            if target.startswith(str(root / "consumequeue")) and target.endswith("(deleted)")]
