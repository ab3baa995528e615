"""`mqcore store backup` and `mqcore store restore` as people and scripts use them."""
from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from pathlib import Path

import click
import pytest

from mqcore.admin.backup import Position
from mqcore.backup.chain import Backups
from mqcore.backup.errors import BadBackupError
from mqcore.backup.make import Made, alone_in, to_folder
from mqcore.backup.pieces import Pace
from mqcore.backup.restore import Until, restore
from mqcore.backup.source import Source
from mqcore.store import files
from mqcore.store.repair.store import repair
from mqcore.store.verify.store import verify
from tests.backup.stores import (
    COMMAND,
    COMMAND_TIMEOUT_S,
    SETTINGS,
    assert_prefix,
    assert_sound,
    copied,
    run,
    snapshot,
)
from tests.support.mounted import mounted
from tests.support.mqcore_process import mqcore_up


def other_device(folder: Path, size: int = 64 << 20) -> contextlib.AbstractContextManager[Path]:
    return mounted(folder, f"size={size}")


def test_whole_segments_are_linked_and_the_last_one_is_copied(tmp_path: Path, store: Path) -> None:
    source = copied(store, tmp_path / "store")
    made = to_folder(source, tmp_path / "backups")
    segments = sorted((Path(made.path) / "commitlog").iterdir())
    inodes = [(source / "commitlog" / path.name).stat().st_ino == path.stat().st_ino
              for path in segments]

    assert inodes == [True] * (len(segments) - 1) + [False]
    assert segments[-1].stat().st_size == made.manifest.end % made.manifest.segment_bytes
    assert [path.stat().st_nlink for path in Path(made.path).rglob("*")
            if path.is_file() and path.parent.name != "commitlog"] == [1] * (
                len(made.manifest.files) - len(segments) + 1)


def test_a_repair_writes_to_its_own_copy_of_a_segment_that_a_backup_has_linked(
    tmp_path: Path, store: Path,
) -> None:
    source = copied(store, tmp_path / "store")
    made = to_folder(source, tmp_path / "backups")
    segment = source / "commitlog" / f"{made.manifest.segment_bytes:020d}"
    assert segment.stat().st_nlink == 2
    content = segment.read_bytes()

    with files.opened(segment, os.O_RDWR) as fd:           # in the backup as well, being one file
        files.write_all(fd, bytes(300), 4000)
    assert verify(source).status == 1
    assert repair(source, tmp_path / "found", dry=False).status in (0, 3)

    linked = Path(made.path) / "commitlog" / segment.name
    assert segment.stat().st_nlink == linked.stat().st_nlink == 1
    assert linked.read_bytes() == content[:4000] + bytes(300) + content[4300:]
    with pytest.raises(BadBackupError, match=segment.name):
        Backups(tmp_path / "backups").check(made.manifest, Pace())


def test_on_another_device_all_is_copied(tmp_path: Path, store: Path) -> None:
    with other_device(tmp_path / "mounted") as folder:
        done = run("store", "backup", store, folder / "backups", "--json")
        said = json.loads(done.stdout)
        assert (done.returncode, said["bytes"]["linked"]) == (0, 0)
        restore(folder / "backups", tmp_path / "restored")
    assert_prefix(store, tmp_path / "restored", 0, said["end"])
    assert_sound(tmp_path / "restored")


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path, store: Path) -> None:
    with other_device(tmp_path / "mounted", 400_000) as folder:
        done = run("store", "backup", store, folder / "backups")
        assert done.returncode == 2
        assert b"No space left on device" in done.stderr
        assert done.stderr.count(b"\n") == 1
        assert Backups(folder / "backups").ids() == []
        assert [path.name for path in (folder / "backups").iterdir()] == [".lock"]
        to_folder(store, tmp_path / "backups")
        done = run("store", "restore", tmp_path / "backups", folder / "restored")
        assert done.returncode == 2
        assert b"No space left on device" in done.stderr
        assert not (folder / "restored").exists()
    with Path("/dev/full").open("wb") as full:
        done_to_full = subprocess.run(
            [*COMMAND, "store", "backup", str(store), "-"], stdout=full, stderr=subprocess.PIPE,
            timeout=COMMAND_TIMEOUT_S, check=False)
    assert done_to_full.returncode == 2
    assert b"No space left on device" in done_to_full.stderr


def test_a_stream_goes_through_a_pipe_and_is_a_tar(tmp_path: Path, store: Path) -> None:
    before = snapshot(store)
    (tmp_path / "unpacked").mkdir()
    backup = run("store", "backup", store, "-")
    subprocess.run(["tar", "-x", "-C", tmp_path / "unpacked"], input=backup.stdout, check=True)

    done = run("store", "restore", "-", tmp_path / "restored", stdin=backup.stdout)

    assert backup.returncode == done.returncode == 0, done.stderr
    assert b"verdict: sound" in done.stdout
    assert (tmp_path / "unpacked" / "manifest.json").exists()
    assert_sound(tmp_path / "restored")
    assert sorted(path.name for path in (tmp_path / "restored").iterdir()) == [
        "checkpoint", "checksums", "commitlog", "config", "consumequeue", "index", "lock",
            "restored"]
    assert snapshot(store) == before


def test_backups_are_listed_and_checked_and_old_ones_go(tmp_path: Path, store: Path) -> None:
    folder = tmp_path / "backups"
    ids = [to_folder(store, folder, incremental=number in (1, 3)).manifest.id
           for number in range(4)]

    made = json.loads(run("store", "backup", store, folder, "--keep", 2, "--json").stdout)
    listed = [json.loads(line)["id"]
              for line in run("store", "restore", folder, "--list", "--json").stdout.splitlines()]
    checked = run("store", "restore", folder / ids[3], "--check")

    assert made["removed"] == ids[:2]            # the third is what the fourth goes on from
    assert listed == [ids[2], ids[3], made["id"]]
    assert (checked.returncode, b"sound" in checked.stdout) == (0, True)
    (folder / ids[2] / "commitlog" / f"{0:020d}").unlink()
    checked = run("store", "restore", folder / ids[3], "--check")
    assert checked.returncode == 1
    assert checked.stderr.count(b"\n") == 1


def test_statuses_and_what_is_asked_wrongly(tmp_path: Path, store: Path) -> None:
    (tmp_path / "none").mkdir()
    assert run("store", "backup", tmp_path / "none", tmp_path / "backups").returncode == 2
    assert run("store", "backup", store, "-", "--incremental").returncode == 2
    assert run("store", "restore", tmp_path / "none", tmp_path / "restored").returncode == 2
    assert run("store", "restore", tmp_path / "none").returncode == 2
    wrong = run("store", "restore", tmp_path / "none", tmp_path / "r", "--until", "@x")
    assert wrong.returncode == 2
    assert run("store", "restore", "-", tmp_path / "r", stdin=b"x" * 512).returncode == 1


def test_a_position_may_be_written_as_a_segment_is_called() -> None:
    assert Position().convert("@00000000001073741824", None, None) == Until(position=1 << 30)
    for none in ("@", "@-1", "@09223372036854775808", "@000000000000000000001"):
        with pytest.raises(click.BadParameter, match="expected @ and a log position in bytes"):
            Position().convert(none, None, None)


def test_one_backup_at_a_time_is_made_in_a_folder(tmp_path: Path, store: Path) -> None:
    (tmp_path / "backups").mkdir()
    with alone_in(tmp_path / "backups"):
        done = run("store", "backup", store, tmp_path / "backups")
    assert (done.returncode, b"another backup is being made there" in done.stderr) == (2, True)


def test_a_rate_is_kept(tmp_path: Path, store: Path) -> None:
    began = time.monotonic()
    made: Made = to_folder(store, tmp_path / "backups", rate=2_000_000)
    assert time.monotonic() - began >= made.manifest.bytes * 2 / 2_000_000 * 0.8


def test_a_start_beside_a_backup_is_not_kept_from_the_store(tmp_path: Path, store: Path) -> None:
    """No lock is taken; what the store's lock says is seen all the same."""
    running = copied(store, tmp_path / "broker" / "store")
    source = Source(running, None)
    try:
        assert not source.is_used()
        with mqcore_up(tmp_path / "broker", SETTINGS):
            assert source.is_used()
            to_folder(running, tmp_path / "backups")
        assert not source.is_used()
    finally:
        source.close()
    assert os.listdir(tmp_path / "backups" / Backups(tmp_path / "backups").ids()[0])


def test_a_log_that_lies_elsewhere_comes_back_in_the_store(tmp_path: Path, store: Path) -> None:
    moved = copied(store, tmp_path / "store")
    (moved / "commitlog").rename(tmp_path / "disk")

    assert run("store", "backup", moved, tmp_path / "backups").returncode == 2
    done = run("store", "backup", moved, tmp_path / "backups", "--commit-log", tmp_path / "disk")

    assert done.returncode == 0, done.stderr
    assert restore(tmp_path / "backups", tmp_path / "restored").report.status == 0
