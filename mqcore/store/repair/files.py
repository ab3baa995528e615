"""
What a repair does to files: nothing is changed or moved before its content is safe in the folder of
what was found (`lost+found`), and everything is said in its report.
"""
from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from mqcore.store import files

CHUNK_BYTES = 1 << 20


class Salvage:
    """
    The folder beside the store that keeps what a repair takes away, and the account of it.

    dry: nothing is written or moved, only told.
    """

    def __init__(self, root: Path, folder: Path, *, dry: bool) -> None:
        self.root = root
        self.folder = folder
        self.dry = dry
        self.actions: list[dict[str, Any]] = []
        self._written: dict[Path, list[tuple[int, int]]] = {}

    def tell(self, file: str, position: int | None, text: str, **more: Any) -> None:
        """Note what is done, or would be."""
        self.actions.append({"file": file, "position": position, "text": text, **more})

    def lines(self) -> list[str]:
        return [f"{action['file']}" + ("" if action["position"] is None
                                       else f" at {action['position']}") + f": {action['text']}"
                for action in self.actions]

    def move(self, name: str, text: str) -> None:
        """Move a file or folder of the store away."""
        self.tell(name, None, f"{text}: moved away")
        if self.dry or not (self.root / name).exists():
            return
        target = self._free(self.folder / name)
        files.make_folders(target.parent)
        files.calls.rename(self.root / name, target)
        files.sync_folder((self.root / name).parent)
        files.sync_folder(target.parent)

    def move_queues(self, name: str, kept: Collection[str], text: str) -> None:
        """Move a folder of queues away, but for those `kept`, which are named below the store."""
        self.tell(name, None, f"{text}: moved away, but for {len(kept)} queues without a record in "
                              "the log")
        if self.dry:
            return
        target = self._free(self.folder / name)
        staying = {queue.rpartition("/")[0] for queue in kept}
        changed = {self.root / name, target, target.parent}
        files.make_folders(target)
        for topic in list(os.scandir(self.root / name)):
            if f"{name}/{topic.name}" not in staying:
                files.calls.rename(topic.path, target / topic.name)
                continue
            files.make_folders(target / topic.name)
            changed |= {Path(topic.path), target / topic.name}
            for queue in list(os.scandir(topic.path)):
                if f"{name}/{topic.name}/{queue.name}" not in kept:
                    files.calls.rename(queue.path, target / topic.name / queue.name)
        for folder in changed:
            files.sync_folder(folder)

    def save(self, name: str, offset: int, length: int) -> str:
        """
        Copy bytes of a file of the store; what the disk cannot read is zeros. Returns the copy's
        name below the folder.
        """
        kept = f"{name}.{offset}-{offset + length}"
        if self.dry:
            return kept
        target = self._free(self.folder / kept)
        files.make_folders(target.parent)
        with files.opened(self.root / name, os.O_RDONLY) as source, \
                files.opened(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as copy:
            for at in range(0, length, CHUNK_BYTES):
                content = _read(source, offset + at, min(CHUNK_BYTES, length - at))
                if content.strip(b"\0"):
                    files.write_all(copy, content, at)
            files.calls.truncate(copy, length)
            files.calls.sync(copy)
        files.sync_folder(target.parent)
        return kept

    def write(self, name: str, base: int, parts: Iterable[tuple[int, bytes]]) -> None:
        """Write (log position, bytes) into a segment that begins at `base`; synced."""
        if self.dry:
            return
        ranges = self._written.setdefault(self.root / name, [])
        files.make_own(self.root / name)
        with files.opened(self.root / name, os.O_RDWR) as fd:
            for position, content in parts:
                files.write_all(fd, content, position - base)
                ranges.append((position - base, position - base + len(content)))
            files.calls.sync(fd)

    def written(self, folder: Path) -> list[tuple[Path, list[tuple[int, int]]]]:
        """(file of a folder, byte ranges) that were written since they were asked for."""
        return [(path, self._written.pop(path)) for path in sorted(self._written)
                if path.parent == folder]

    def report(self, **more: Any) -> Path:
        """Write what was done to report.json; its path. Raises OSError."""
        path = self.folder / "report.json"
        files.write_atomically(path, json.dumps(
            {"store": str(self.root), **more, "actions": self.actions}, indent=1).encode())
        return path

    def _free(self, path: Path) -> Path:
        number = 1
        target = path
        while target.exists():
            number += 1
            target = path.with_name(f"{path.name}.{number}")
        return target


def _read(fd: int, offset: int, length: int) -> bytes:
    try:
        return os.pread(fd, length, offset).ljust(length, b"\0")
    except OSError:                            # a bad sector somewhere in it: page by page
        parts = []
        for at in range(0, length, 4096):
            size = min(4096, length - at)
            try:
                parts.append(os.pread(fd, size, offset + at).ljust(size, b"\0"))
            except OSError:
                parts.append(bytes(size))
        return b"".join(parts)
