"""
`mqcore store verify` against a start, on stores that were changed at random: what it calls sound or
mended by the next start is started, and after a clean stop holds every message; what a start
refuses it calls damaged.
"""
from __future__ import annotations

import dataclasses
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mqcore.store import last_run
from mqcore.store.log.owner import mark_alone
from mqcore.store.recovery import queue_ends
from mqcore.store.recovery.errors import DamagedStoreError
from mqcore.store.repair.store import repair
from mqcore.store.verify.report import STATUS_DAMAGED, Report
from mqcore.store.verify.store import verify
from tests.recovery.conftest import Store

SEED, STORES = 20261123, 80
NOISE = ("Host's port is", "checkpoint: missing")       # of the harness that wrote the store
Change = Callable[[random.Random, bytes], bytes]


def somewhere(chance: random.Random, content: bytes) -> tuple[int, int]:
    """Ends of a stretch, most of them short."""
    begin = chance.randrange(len(content) + 1)
    return begin, min(len(content), begin + chance.choice((1, 4, 20, 200, 20_000)))


def flipped(chance: random.Random, content: bytes) -> bytes:
    at = chance.randrange(max(len(content), 1))
    return content[:at] + bytes(one ^ 1 << chance.randrange(8) for one in content[at:at + 1]) + (
        content[at + 1:])


def zeroed(chance: random.Random, content: bytes) -> bytes:
    begin, end = somewhere(chance, content)
    return content[:begin] + bytes(end - begin) + content[end:]


def scribbled(chance: random.Random, content: bytes) -> bytes:
    begin, end = somewhere(chance, content)
    return content[:begin] + chance.randbytes(end - begin) + content[end:]


def moved(chance: random.Random, content: bytes) -> bytes:
    begin, end = somewhere(chance, content)
    at = chance.randrange(len(content) + 1)
    return (content[:at] + content[begin:end] + content[at + end - begin:])[:len(content)]


def cut(chance: random.Random, content: bytes) -> bytes:
    return content[:somewhere(chance, content)[0]]


def longer(chance: random.Random, content: bytes) -> bytes:
    return content + bytes(chance.choice((1, 20, 4096)))


CHANGES: tuple[Change, ...] = (flipped, flipped, zeroed, zeroed, scribbled, moved, cut, longer)


def change(root: Path, chance: random.Random) -> str:
    """One file or folder is as it should not be; what was done."""
    files = sorted(path for folder in ("commitlog", "checksums", "consumequeue")
                   for path in (root / folder).rglob("*") if path.is_file())
    path, other = chance.sample([*files, root / "config" / queue_ends.NAME], 2)
    status = path.stat()
    what = chance.randrange(10)
    if what == 0:
        path.unlink()
        return f"{path.relative_to(root)} is gone"
    folders = [each for each in sorted((root / "consumequeue").rglob("*")) if each.is_dir()]
    if what == 1 and folders:
        folder = chance.choice(folders)
        shutil.rmtree(folder)
        return f"{folder.relative_to(root)} is gone"
    if what == 2:
        shutil.copy2(other, path)
        return f"{path.relative_to(root)} is {other.relative_to(root)}"
    how = chance.choice(CHANGES)
    path.write_bytes(how(chance, path.read_bytes()))
    if chance.random() < 0.5:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    return f"{path.relative_to(root)} is {how.__name__}"


def is_damaged(report: Report) -> bool:
    report.findings = [one for one in report.findings
                       if not any(noise in one.line() for noise in NOISE)]
    return report.status == STATUS_DAMAGED


def started(store: Store, clean: bool) -> str:
    """What a start says that refuses the store; "": it takes it."""
    try:
        store.start(clean=clean, ends=queue_ends.read(store.ends) if clean else None)
    except DamagedStoreError as error:
        return str(error)
    return ""


def test_an_end_of_the_log_that_only_the_last_stop_tells_of_is_missed(store: Store) -> None:
    mark_alone(store.root / "lock")
    shutil.rmtree(store.root / "consumequeue")
    last = sorted((store.root / "commitlog").iterdir())[-1]
    last.write_bytes(bytes(last.stat().st_size))
    report = verify(store.root, index=False)

    assert is_damaged(report)
    assert f"it ended at {store.end} when the broker was stopped" in "".join(report.lines())
    assert "records are gone" in started(store, True)
    repair(store.root, store.root.with_name("found"), dry=False, index=False)
    assert not is_damaged(verify(store.root, index=False))
    assert started(store, True) == ""


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("gone", [1, 2, 99], ids=["last-segment", "two-segments", "all"])
def test_segments_that_were_on_the_disk_and_are_gone_are_missed(
    gone: int, clean: bool, store: Store,
) -> None:
    mark_alone(store.root / "lock")
    ends = dataclasses.replace(queue_ends.read(store.ends), flushed=store.end)
    queue_ends.write(store.ends, ends, time.time_ns())
    if not clean:
        last_run.mark(store.root / "abort", "async")
    for path in sorted((store.root / "commitlog").iterdir())[-gone:]:
        path.unlink()

    assert is_damaged(verify(store.root, index=False))
    with pytest.raises(DamagedStoreError, match=r"commitlog.*(gone|damage)"):
        store.start(clean=clean, ends=ends)
    repair(store.root, store.root.with_name("found"), dry=False, index=False)
    assert not is_damaged(verify(store.root, index=False))
    store.start(clean=clean, ends=queue_ends.read(store.ends) if store.ends.exists() else None)


@pytest.mark.parametrize("gone", [1, 2, 99], ids=["last-segment", "two-segments", "all"])
def test_queues_miss_segments_in_the_boot_that_wrote_them(gone: int, store: Store) -> None:
    """A process that was killed soon after its start has left no other word."""
    segments = sorted((store.root / "commitlog").iterdir())
    for path in segments[-gone:]:
        path.unlink()

    with pytest.raises(DamagedStoreError, match=r"consume queue.*records are gone"):
        store.start(clean=False, same_boot=True)
    whole = sum(path.stat().st_size for path in segments[:-gone])
    _, found = store.start(clean=False)                        # after a power cut
    assert whole - 16384 < found.end <= whole or gone == 99


def test_the_checkpoint_of_any_broker_says_that_a_log_without_segments_had_records(
    store: Store,
) -> None:
    shutil.rmtree(store.root / "commitlog")
    with pytest.raises(DamagedStoreError, match="no segment of the commit log, and the checkpoint"):
        store.start(clean=False, flushed_ms=1)


@pytest.mark.slow
def test_what_is_not_called_damaged_is_started_whole(first_store: Store, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    whole = first_store.content()
    said = {"fine": 0, "damaged": 0, "refused": 0}
    for number in range(STORES):
        root = shutil.copytree(first_store.root, tmp_path / str(number))
        mark_alone(root / "lock")
        done = [change(root, chance) for _ in range(chance.choice((1, 1, 1, 2)))]
        clean = chance.random() < 0.7
        if not clean:
            (root / "abort").touch()
        report = verify(root, index=False)
        damaged = is_damaged(report)
        store = Store(root, first_store.end)
        refused = started(store, clean)
        said["refused" if refused else "damaged" if damaged else "fine"] += 1
        assert damaged or not refused, (number, done, report.lines(), refused)
        assert damaged or not clean or store.content() == whole, (number, done, report.lines())
        shutil.rmtree(root)
    assert min(said.values()) > STORES // 20, said
