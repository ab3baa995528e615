"""The Python side's door to the disk, and that there is no other one."""
from __future__ import annotations

import ast
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqcore.broker.tables import config_file
from mqcore.store import checkpoint, files
from mqcore.store.checkpoint import Checkpoint
from mqcore.store.log import retention
from mqcore.store.paths import remove_queue
from mqcore.store.recovery import queue_ends

ROOT = Path(files.__file__).parents[2]
# What changes a disk, of the modules os and shutil and of paths.
CHANGES = {
    "replace", "rename", "renames", "unlink", "remove", "rmdir", "removedirs", "mkdir", "makedirs",
    "write", "pwrite", "pwritev", "writev", "ftruncate", "truncate", "fsync", "fdatasync", "rmtree",
    "copyfile", "copy", "copy2", "move", "link", "symlink", "posix_fallocate",
}
OF_A_PATH = {"write_bytes", "write_text", "touch", "unlink", "rmdir", "mkdir", "rename"}
DOOR = ("files", "files.calls", "disk")       # the names that it goes by
HOUSEKEEPING = ["mqcore/store/*.py", "mqcore/broker/tables/config_file.py",
                "mqcore/broker/tables/queue_restarts.py"]


def changes_of(source: str) -> list[tuple[int, str]]:
    """(line, call) of everything that goes to the disk without the door."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func.value)
            name = node.func.attr
            if (owner in ("os", "shutil") and name in CHANGES) or (
                    owner not in ("os", "shutil", *DOOR) and name in OF_A_PATH):
                found.append((node.lineno, f"{owner}.{name}"))
        wanted = [word.value for word in [*node.args, *(k.value for k in node.keywords)]
                  if isinstance(word, ast.Constant) and isinstance(word.value, str)]
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(
            node.func, "id", "")
        if name == "open" and any(set(mode) <= set("rwxab+t") and set(mode) & set("wxa+")
                                  for mode in wanted):
            found.append((node.lineno, "open for writing"))
    return found


def test_the_store_changes_files_only_through_the_door() -> None:
    others = {str(path.relative_to(ROOT)): changes_of(path.read_text())
              for pattern in HOUSEKEEPING for path in sorted(ROOT.glob(pattern))
              if path.name != "files.py"}
    assert {path: found for path, found in others.items() if found} == {}


@pytest.mark.parametrize("line", [
    "os.replace(a, b)", "path.unlink()", "(folder / 'x').write_bytes(b'')", "path.open('wb')",
    "open(path, 'r+b', buffering=0)", "os.fdatasync(fd)", "shutil.rmtree(folder)",
])
def test_the_scan_sees_every_form(line: str) -> None:
    assert changes_of(line)


@pytest.mark.parametrize("line", ["text.replace('a', 'b')", "path.open('rb')", "os.open(p, 0)",
                                  "files.unlink(path)"])
def test_the_scan_leaves_reading_alone(line: str) -> None:
    assert not changes_of(line)


# -- what it does ----------------------------------------------------------------------------------


def failing(error: int, *, after: int = 0) -> Callable[..., Any]:
    """A call that goes wrong, after some that do not and do nothing."""
    left = [after]

    def call(*_args: object, **_named: object) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(error, os.strerror(error))

    return call


def test_a_replaced_file_has_the_new_content_and_the_old_one_is_kept(tmp_path: Path) -> None:
    path, kept = tmp_path / "deep" / "file.json", tmp_path / "deep" / "file.json.bak"
    files.write_atomically(path, b"one", keep=kept)
    assert (path.read_bytes(), kept.exists()) == (b"one", False)
    files.write_atomically(path, b"two", keep=kept)
    assert (path.read_bytes(), kept.read_bytes()) == (b"two", b"one")
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["file.json", "file.json.bak"]


@pytest.mark.parametrize("call", ["open", "write_at", "sync", "rename"])
def test_a_failure_leaves_the_old_file_whole(call: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    files.write_atomically(path, b"old")
    with files.replaced(**{call: failing(errno.EIO)}), pytest.raises(OSError, match="Input/output"):
        files.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"


def test_short_writes_are_carried_on(tmp_path: Path) -> None:
    def one_byte(fd: int, data: memoryview, offset: int) -> int:
        return os.pwrite(fd, data[:1], offset)

    with files.replaced(write_at=one_byte):
        files.write_new(tmp_path / "file", b"a few bytes")
        checkpoint.write(tmp_path / "checkpoint", Checkpoint(1, 2, 3))
    assert (tmp_path / "file").read_bytes() == b"a few bytes"
    assert checkpoint.read(tmp_path / "checkpoint") == Checkpoint(1, 2, 3)


def test_a_replacement_is_synced_before_its_name_and_the_folder_after_it(tmp_path: Path) -> None:
    order: list[str] = []

    def noted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any) -> Any:
            order.append(name)
            return call(*args)
        return wrapped

    with files.replaced(sync=noted("sync", os.fsync), rename=noted("rename", os.replace),
                        write_at=noted("write", os.pwrite)):
        config_file.save(tmp_path / "topics.json", {"a": 1})
    assert order == ["write", "sync", "rename", "sync"]


def test_housekeeping_uses_the_door(tmp_path: Path) -> None:
    """Each of them fails when the door is closed."""
    queue = tmp_path / "queue" / "0"
    queue.mkdir(parents=True)
    (queue / f"{0:020d}").write_bytes(b"")
    closed = {name: failing(errno.EROFS) for name in ("open", "unlink", "remove_folder")}
    attempts: list[Callable[[], object]] = [
        lambda: checkpoint.write(tmp_path / "checkpoint", Checkpoint()),
        lambda: config_file.save(tmp_path / "topics.json", {}),
        lambda: remove_queue(tmp_path, "queue", 0, None),
        lambda: retention.sync_folder(tmp_path),
        lambda: queue_ends.write(tmp_path / "ends", queue_ends.QueueEnds(0, 0), 1),
    ]
    for attempt in attempts:
        with files.replaced(**closed), pytest.raises(OSError, match="Read-only"):
            attempt()
