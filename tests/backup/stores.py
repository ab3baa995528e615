"""Stores to back up, and what a restored one has to be."""
from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from mqcore.admin.cli import main
from mqcore.backup.manifest import NAME, Manifest, decode, encode
from mqcore.store.log.folders import LogFolders
from mqcore.store.verify.report import STATUS_MEND
from mqcore.store.verify.store import verify
from tests.support.mqcore_process import mqcore_up
from tests.verify.stores import OWN_SETTINGS
from tests.workers.load import Promises, audit

COMMAND = (sys.executable, "-m", "mqcore.admin.cli")
COMMAND_TIMEOUT_S = 60
SETTINGS: dict[str, object] = {**OWN_SETTINGS, "processes.serving_count": 1}


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it said."""

    returncode: int
    stdout: bytes
    stderr: bytes


def run(*arguments: object, stdin: bytes | None = None) -> Done:
    """The `mqcore` command to its end, in this process."""
    result = CliRunner().invoke(main, list(map(str, arguments)), input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Done(result.exit_code, result.stdout_bytes, result.stderr_bytes)


def log_bytes(root: Path, first: int, end: int) -> bytes:
    """The log of a store between two positions."""
    pieces = []
    for start, path in LogFolders((root / "commitlog",)).segments():
        with path.open("rb") as file:
            raw = file.read()
        pieces.append(raw[max(first - start, 0):max(end - start, 0)])
    return b"".join(pieces)


def assert_prefix(store: Path, restored: Path, first: int, end: int) -> None:
    """The restored log is the other's from `first` to `end`, byte by byte, then zeros."""
    assert log_bytes(restored, first, end) == log_bytes(store, first, end)
    assert not log_bytes(restored, end, 1 << 62).strip(b"\0")


def assert_starts(restored: Path, folder: Path, promises: Promises | None = None,
                  settings: Mapping[str, object] = SETTINGS) -> Path:
    """
    A broker starts on the restored store, which moves below `folder`, has what was promised, and
    leaves it sound.
    """
    assert verify(restored).status in (0, STATUS_MEND)
    folder.mkdir()
    restored.rename(folder / "store")
    with mqcore_up(folder, settings) as broker:
        if promises is not None:
            audit(broker.broker_addr, promises)
    assert_sound(folder / "store")
    return folder / "store"


def assert_sound(store: Path) -> None:
    report = verify(store)
    assert report.status == 0, [finding.line() for finding in report.findings]
    assert [finding.line() for finding in report.findings] == []


def changed_manifest(backup: Path, **members: object) -> Manifest:
    """A manifest with other members, and the sum that goes with them."""
    path = backup / NAME
    manifest, _ = decode(path.read_bytes(), path)
    for name, value in members.items():
        setattr(manifest, name, value)
    path.write_bytes(encode(manifest))
    return manifest


def snapshot(root: Path) -> dict[str, tuple[int, int, int]]:
    """What a backup must not change of a store at rest: sizes, times, files."""
    return {str(path.relative_to(root)): (status.st_size, status.st_mtime_ns, status.st_mode)
            for path in sorted(root.rglob("*")) if (status := path.stat())}


def quoted(path: Path) -> str:
    """The text of a file of stock's form, in which keys are bare numbers, as JSON."""
    return re.sub(r"([{,]\s*)(\d+):", r'\1"\2":', path.read_text())


def offsets(store: Path) -> dict[str, dict[str, int]]:
    """The consumer offsets in a store's file."""
    table: dict[str, dict[str, int]] = json.loads(
        quoted(store / "config" / "consumerOffset.json"))["offsetTable"]
    return table


def copied(store: Path, into: Path) -> Path:
    """A copy with its times."""
    return Path(shutil.copytree(store, into, copy_function=shutil.copy2))


def mtimes_back(root: Path, seconds: int) -> None:
    """As if nobody had written for a while."""
    for path in root.rglob("*"):
        if path.is_file():
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                os.utime(path, ns=(status.st_atime_ns,
                                   status.st_mtime_ns - seconds * 1_000_000_000))
