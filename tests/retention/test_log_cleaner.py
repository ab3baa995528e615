"""Commit log segments go when and as far as store.md 6.6 says, and never further."""
from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mqcore.shm.retention import LogWords
from mqcore.store.log import retention
from mqcore.store.log.folders import LogFolders
from mqcore.store.log.retention import (
    HOUR_MS,
    UNKNOWN_PERCENT,
    LogCleaner,
    Policy,
    Reason,
    missed_from,
    used_percent,
)
from tests.store.harness import Run

SEGMENT = 8192
POLICY = Policy(delete_when_hours=frozenset({4}), reserved_ms=72 * HOUR_MS, used_max_percent=75,
                clean_percent=85, clean_enable=True, refuse_percent=90)
NO_CLEAN = Policy(frozenset({4}), 72 * HOUR_MS, 75, 85, False, 90)
ANY_AGE = Reason("a test", any_age=True)
EXPIRED = Reason("a test", any_age=False)
NOON_MS = int(time.mktime((2026, 11, 21, 12, 0, 0, 0, 0, -1)) * 1000)
FOUR_MS = int(time.mktime((2026, 11, 21, 4, 59, 0, 0, 0, -1)) * 1000)


class Disk:
    """How full the test says that the disks are, by folder name."""

    def __init__(self, **percents: int) -> None:
        self.percents = percents

    def __call__(self, folder: Path) -> int:
        return self.percents.get(folder.name, 10)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A store with six segments, all of it dispatched."""
    run = Run(tmp_path / "store", segment_size=SEGMENT, file_entries=20)
    loop, probe = run.writer("async", 0), run.probe()
    for number in range(46):
        assert probe.send("topic", number % 2, [b"x" * 800], opaque=number)
    loop.run(1000)
    assert len(probe.take()) == 46
    run.dispatch_all(run.segment.log_state()["published"])
    return run


def cleaner_of(run: Run, policy: Policy = POLICY, disk: Disk | None = None) -> LogCleaner:
    return LogCleaner(run.log_folder, SEGMENT, policy, LogWords(run.segment),
                      other_folders=[run.queue_folder], usage=disk or Disk())


def ages(run: Run, hours: float, *names: int) -> None:
    """Let segments look as if they were last written `hours` before noon."""
    for start in names:
        at = NOON_MS / 1000 - hours * 3600
        os.utime(run.log_folder / f"{start:020d}", (at, at))


def since_noon(file_ms: int) -> int:
    return NOON_MS - file_ms


@pytest.mark.parametrize(("now_ms", "disk", "policy", "manual", "wanted"), [
    (NOON_MS, Disk(), POLICY, False, None),
    (FOUR_MS, Disk(), POLICY, False, False),
    (NOON_MS, Disk(), POLICY, True, False),
    (NOON_MS, Disk(commitlog=75), POLICY, False, None),
    (NOON_MS, Disk(commitlog=76), POLICY, False, False),
    (NOON_MS, Disk(commitlog=85), POLICY, False, False),
    (NOON_MS, Disk(commitlog=86), POLICY, False, True),
    (NOON_MS, Disk(consumequeue=86), POLICY, False, True),
    (NOON_MS, Disk(commitlog=86), NO_CLEAN, False, False),
    (NOON_MS, Disk(commitlog=UNKNOWN_PERCENT), POLICY, False, False),
])
def test_a_pass_deletes_by_hour_by_disk_or_on_demand(
    run: Run, now_ms: int, disk: Disk, policy: Policy, manual: bool, wanted: bool | None,
) -> None:
    reason = cleaner_of(run, policy, disk).reason(now_ms, manual=manual)

    assert (None if reason is None else reason.any_age) == wanted


def test_a_segment_goes_when_its_time_is_over_and_the_oldest_goes_first(run: Run) -> None:
    cleaner = cleaner_of(run)
    assert cleaner.segments() == [n * SEGMENT for n in range(6)]
    ages(run, 73, 0, SEGMENT, 3 * SEGMENT)
    ages(run, 71, 2 * SEGMENT)

    assert cleaner.delete_oldest(since_noon, EXPIRED) == run.log_folder / f"{0:020d}"
    assert cleaner.delete_oldest(since_noon, EXPIRED) == run.log_folder / f"{SEGMENT:020d}"
    assert cleaner.delete_oldest(since_noon, EXPIRED) is None     # behind it an older one: it waits
    assert cleaner.segments() == [n * SEGMENT for n in range(2, 6)]
    assert run.segment.log_state()["first"] == 2 * SEGMENT


def test_a_segment_goes_in_the_millisecond_in_which_its_time_is_over(run: Run) -> None:
    cleaner = cleaner_of(run)
    ages(run, 72, 0)

    assert cleaner.delete_oldest(lambda file_ms: since_noon(file_ms) - 1, EXPIRED) is None
    assert cleaner.delete_oldest(since_noon, EXPIRED) == run.log_folder / f"{0:020d}"


def test_the_disk_knows_of_each_deletion_before_the_next_one(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it may forget the second one only: a gap in the log."""
    done: list[Path] = []

    def noted(work: Callable[[Path], None]) -> Callable[[Path], None]:
        def call(path: Path) -> None:
            work(path)
            done.append(path)
        return call

    for name in ("unlink", "sync_folder"):
        monkeypatch.setattr(retention, name, noted(getattr(retention, name)))
    cleaner = cleaner_of(run)
    first, second = (cleaner.delete_oldest(since_noon, ANY_AGE) for _ in range(2))

    assert done == [first, run.log_folder, second, run.log_folder]


def test_the_last_segment_with_records_stays_though_the_next_one_is_prepared(run: Run) -> None:
    cleaner = cleaner_of(run)
    while cleaner.delete_oldest(since_noon, ANY_AGE):
        pass
    end = 6 * SEGMENT
    with (run.log_folder / f"{end:020d}").open("wb") as file:
        file.truncate(SEGMENT)
    run.segment.set_dispatched(end, 1)

    assert cleaner.delete_oldest(since_noon, ANY_AGE) is None
    assert cleaner.segments() == [5 * SEGMENT, end]


def test_the_segment_that_is_written_stays_however_full_the_disk_is(run: Run) -> None:
    cleaner = cleaner_of(run)
    deleted = 0
    while cleaner.delete_oldest(since_noon, ANY_AGE):
        deleted += 1
        assert deleted < 10

    assert deleted == 5
    assert cleaner.segments() == [5 * SEGMENT]


def test_a_segment_that_is_not_dispatched_stays(run: Run) -> None:
    run.segment.set_dispatched(2 * SEGMENT - 1, 1)
    cleaner = cleaner_of(run)

    assert cleaner.delete_oldest(since_noon, ANY_AGE) is not None
    assert cleaner.delete_oldest(since_noon, ANY_AGE) is None
    assert cleaner.segments()[0] == SEGMENT


def test_what_a_dead_writer_left_below_the_first_position_goes_at_any_age(run: Run) -> None:
    LogWords(run.segment).raise_first(SEGMENT)

    assert cleaner_of(run).delete_oldest(since_noon, EXPIRED) == run.log_folder / f"{0:020d}"
    assert run.segment.log_state()["first"] == SEGMENT


def test_the_first_position_never_moves_back_nor_past_what_is_dispatched(run: Run) -> None:
    words = LogWords(run.segment)
    words.raise_first(SEGMENT)

    with pytest.raises(ValueError, match="expected 8192 to"):
        words.raise_first(0)
    with pytest.raises(ValueError, match="expected 8192 to"):
        words.raise_first(100 * SEGMENT)


def test_a_disk_above_the_limit_is_too_full_for_writes_until_there_is_room(run: Run) -> None:
    disk = Disk(commitlog=91)
    cleaner = cleaner_of(run, disk=disk)
    words = LogWords(run.segment)

    words.set_disk_full(cleaner.disk_full_percent())
    loop, probe = run.writer("async", run.segment.log_state()["published"]), run.probe()
    assert probe.send("topic", 0, [b"refused"], opaque=1)
    loop.run(1000)
    assert [result[1] for result in probe.take()] == [4]           # PUT_SERVICE_NOT_AVAILABLE

    disk.percents["commitlog"] = 90
    words.set_disk_full(cleaner.disk_full_percent())
    assert probe.send("topic", 0, [b"taken"], opaque=2)
    loop.run(1000)
    assert [result[1] for result in probe.take()] == [0]


def test_the_use_of_a_disk_is_what_df_says_and_unknown_without_a_folder(tmp_path: Path) -> None:
    disk = os.statvfs(tmp_path)
    used = disk.f_blocks - disk.f_bfree
    assert abs(used_percent(tmp_path) - 100 * used / (used + disk.f_bavail)) <= 1
    assert used_percent(tmp_path / "missing") == UNKNOWN_PERCENT


def test_what_goes_before_its_time_is_counted(run: Run) -> None:
    cleaner = cleaner_of(run)
    ages(run, 73, 0)
    ages(run, 71, SEGMENT)
    assert cleaner.delete_oldest(since_noon, ANY_AGE) == run.log_folder / f"{0:020d}"
    assert cleaner.young == 0
    assert cleaner.delete_oldest(since_noon, ANY_AGE) == run.log_folder / f"{SEGMENT:020d}"
    assert cleaner.young == 1


@pytest.mark.parametrize(("hours", "wanted"), [((64, 64), 0), ((65, 64), SEGMENT),
                                               ((73, 65), 2 * SEGMENT)])
def test_a_copy_misses_what_is_not_in_the_last_tenth_of_its_time(
        run: Run, hours: tuple[int, int], wanted: int) -> None:
    folders = LogFolders((run.log_folder,))
    ages(run, 1, *(n * SEGMENT for n in range(6)))
    for start, passed in zip((0, SEGMENT), hours, strict=True):
        ages(run, passed, start)
    assert missed_from(folders, SEGMENT, 72 * HOUR_MS, since_noon) == wanted


def test_of_a_copied_log_the_messages_say_how_old_it_is(run: Run) -> None:
    """Its files were all written now."""
    folders = LogFolders((run.log_folder,))
    stored_ms = int(time.time() * 1000)
    for start in range(6):
        os.utime(run.log_folder / f"{start * SEGMENT:020d}", (stored_ms // 1000 + 10**6,) * 2)

    def later(hours: int) -> int:
        return missed_from(folders, SEGMENT, 72 * HOUR_MS,
                           lambda ms: stored_ms + hours * HOUR_MS - ms)

    assert later(60) == 0
    assert later(66) == 5 * SEGMENT
    assert missed_from(LogFolders((run.queue_folder,)), SEGMENT, HOUR_MS, since_noon) == 0
