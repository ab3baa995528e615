"""
The folders of the commit log, one or several (store.md 6.7), for Python.

The native side gets them as one text (log_folders.pxd): a path a line, sorted, "-" before a path
that takes no new segments, at last "+" before the folder of checksums where the log is not in
STORE/commitlog alone.
"""
from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from mqcore.store.files import OWN_FOLDER_MODE, make_folders, unlink

FOLDERS_MAX = 64                 # LOG_FOLDERS_MAX and LOG_PATH_MAX of the native side
FOLDERS_BYTES_MAX = 4095
PATH_BYTES_MAX = 4000            # of one folder: the name of a segment follows
LOG = "commitlog"                # in the store, where no other folder is named
CHECKSUMS = "checksums"          # in the store, wherever its log is (log_checksums_folder)


@dataclass(frozen=True)
class LogFolders:
    """
    Folders that take new segments, and further ones that are only read. store: whose log it is,
    None: the folder that has the first of them.
    """

    writable: tuple[Path, ...]
    read_only: tuple[Path, ...] = ()
    store: Path | None = None

    @classmethod
    def parse(cls, text: bytes) -> LogFolders:
        """The reverse of `text`; a single path is a text, too."""
        lines = text.split(b"\n")
        checksums = Path(os.fsdecode(lines.pop()[1:])) if lines[-1].startswith(b"+") else None
        return cls(
            tuple(Path(os.fsdecode(line)) for line in lines if not line.startswith(b"-")),
            tuple(Path(os.fsdecode(line[1:])) for line in lines if line.startswith(b"-")),
            checksums.parent if checksums is not None else None)

    def text(self) -> bytes:
        """As the native side takes them. Raises ValueError when they are too many or too long."""
        lines = sorted((os.fsencode(path), b"-" if path in self.read_only else b"")
                       for path in self.all())
        named = [mark + path for path, mark in lines]
        if self.elsewhere:
            named.append(b"+" + os.fsencode(self.checksums_folder))
        text = b"\n".join(named)
        if len(lines) > FOLDERS_MAX or len(text) > FOLDERS_BYTES_MAX:
            raise ValueError(f"at most {FOLDERS_MAX} paths of {FOLDERS_BYTES_MAX} bytes together")
        longest = max(len(path) for path, _ in lines)
        if longest > PATH_BYTES_MAX:
            raise ValueError(f"paths of at most {PATH_BYTES_MAX} bytes, not {longest}")
        return text

    def all(self) -> list[Path]:
        """Every folder, each once."""
        return list(dict.fromkeys((*self.writable, *self.read_only)))

    @property
    def elsewhere(self) -> bool:
        """Whether the log is not in the store's own folder alone: who reads it has to be told."""
        return self.store is not None and self.all() != [self.store / LOG]

    @property
    def checksums_folder(self) -> Path:
        """Where the checksums of every segment are: positions in a store's log are its own."""
        if self.store is not None:
            return self.store / CHECKSUMS
        return min(self.all(), key=os.fsencode).parent / CHECKSUMS

    def checksums_of(self, start: int) -> Path:
        """Where the checksums of the segment that begins at `start` are, if there are any."""
        return self.checksums_folder / f"{start:020d}"

    def remove_checksums(self, start: int) -> None:
        """Those of a segment that goes; before it does. Raises OSError."""
        path = self.checksums_of(start)
        if path.exists():
            unlink(path)

    def make(self) -> None:
        """
        Make the folders that take new segments, and that of checksums; new ones, and a new store's
        own, are for their owner alone, whatever the modes of files in them. Raises OSError.
        """
        for folder in self.writable:
            if folder not in self.read_only:
                make_folders(folder, OWN_FOLDER_MODE)
        make_folders(self.checksums_folder, OWN_FOLDER_MODE)

    def entries(self) -> list[os.DirEntry[str]]:
        """Everything that lies in the folders, by name. Raises OSError."""
        return sorted((entry for folder in self.all() if folder.is_dir()
                       for entry in os.scandir(folder)), key=lambda entry: entry.name)

    def segments(self) -> list[tuple[int, Path]]:
        """(log position of its first byte, file) of each segment, ascending. Raises OSError."""
        return [(int(entry.name), Path(entry.path)) for entry in self.entries()
                if entry.name.isdigit()]

    def checksums(self) -> list[Path]:
        """The files of checksums that there are, by name. Raises OSError."""
        folder = self.checksums_folder
        return sorted(path for path in (folder.iterdir() if folder.is_dir() else ())
                      if path.name.isdigit() and len(path.name) == 20)

    def path(self, start: int) -> Path:
        """The segment that begins at `start`. Raises FileNotFoundError: no folder has it."""
        name = f"{start:020d}"
        for folder in self.all():
            if (folder / name).exists():
                return folder / name
        raise FileNotFoundError(2, "there is no such commit log segment", name)

    def name(self, start: int) -> str:
        """What to call the segment that begins at `start` in a message, be it there or not."""
        with contextlib.suppress(FileNotFoundError):
            return str(self.path(start))
        return str(self.writable[0] / f"{start:020d}")

    def __str__(self) -> str:
        return ", ".join(map(str, self.all()))
