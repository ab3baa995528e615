"""Killed at any call on the disk, a backup or a restore leaves nothing that is taken for one."""
from __future__ import annotations

import os
import random
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqcore.backup.chain import Backups
from mqcore.backup.errors import BackupError
from mqcore.backup.make import to_folder
from mqcore.backup.pieces import Pace
from mqcore.backup.restore import restore
from mqcore.store import files
from tests.backup.stores import assert_prefix, assert_sound, snapshot
from tests.support.dice import seed_of_run

SEED = seed_of_run()
KILLS = 12
COUNTED = ("open", "write_at", "truncate", "sync", "rename", "unlink", "make_folder",
           "remove_folder")


def in_child(work: Callable[[], object], kill_at: int) -> int:
    """
    `work` in a process that is killed before its call number `kill_at` on the disk; how many calls
    there were, when it got to its end: 0 else.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            os.write(writer, counted(work, kill_at).to_bytes(4, "big"))
        except BaseException:
            traceback.print_exc(file=sys.stderr)
        finally:
            os._exit(0)
    os.close(writer)
    said = os.read(reader, 4)
    os.close(reader)
    _, status = os.waitpid(child, 0)
    assert said or os.WTERMSIG(status) == signal.SIGKILL
    return int.from_bytes(said, "big")


def counted(work: Callable[[], object], kill_at: int) -> int:
    calls = 0

    def wrapped(name: str) -> Callable[..., Any]:
        real = getattr(files.calls, name)

        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **named)
        return call

    with files.replaced(**{name: wrapped(name) for name in COUNTED}):
        work()
    return calls


def test_a_killed_backup_is_no_backup_and_the_next_one_takes_its_rest_away(
    tmp_path: Path, store: Path,
) -> None:
    print(f"seed {SEED}")
    draw = random.Random(SEED)
    before = snapshot(store)
    folder = tmp_path / "backups"
    to_folder(store, folder)
    calls = in_child(lambda: to_folder(store, tmp_path / "others"), 0)
    assert calls > 50
    for _ in range(KILLS):
        at = draw.randrange(1, calls + 1)
        in_child(lambda: to_folder(store, folder, copy=draw.random() < 0.5), at)
        backups = Backups(folder)
        for id_ in backups.ids()[-2:]:
            backups.check(backups.manifest(id_), Pace())

    made = to_folder(store, folder, incremental=True)

    assert [path.name for path in folder.iterdir() if path.name.endswith(".unfinished")] == []
    assert made.manifest.parent == Backups(folder).ids()[-2]
    restore(folder, tmp_path / "restored")
    assert_prefix(store, tmp_path / "restored", 0, made.manifest.end)
    assert snapshot(store) == before


def test_a_killed_restore_leaves_no_store_or_a_whole_one(
    tmp_path: Path, store: Path, backups: Path,
) -> None:
    print(f"seed {SEED}")
    draw = random.Random(SEED)
    calls = in_child(lambda: restore(backups, tmp_path / "whole"), 0)
    last = calls - 30                            # where names move into place
    for number in range(KILLS):
        target = tmp_path / f"restored-{number}"
        at = draw.randrange(1, calls + 1) if number % 2 else draw.randrange(last, calls + 1)
        in_child(lambda target=target: restore(backups, target), at)   # type: ignore[misc]
        if (target / "commitlog").exists():
            assert_sound(target)
            assert_prefix(store, target, 0, Backups(backups).newest().end)  # type: ignore[union-attr]
        elif target.exists() and any(target.iterdir()):
            with pytest.raises(BackupError, match="not empty"):
                restore(backups, target)
