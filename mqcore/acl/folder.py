"""
Where the rules lie: `plain_acl.yml` and all `*.yml`, `*.yaml` below `acl/`, in one folder.

The files below `acl/` count before plain_acl.yml, in the order of their names.
"""
from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mqcore.acl.nodes import SIZE_MAX, AclFileError
from mqcore.acl.rules import AclFile, Rules, read_file
from mqcore.stamps import Stamp, stamp
from mqcore.store import files

DEFAULT_NAME = "plain_acl.yml"
FOLDER_NAME = "acl"
SUFFIXES = (".yml", ".yaml")
FILES_MAX = 1000
NEW_MODE = 0o600                   # of a file that holds keys

FolderStamp = tuple[tuple[str, Stamp], ...]


class AclFolder:
    """The access files of one broker."""

    def __init__(self, home: Path) -> None:
        self.home = home

    @property
    def default_file(self) -> Path:
        return self.home / DEFAULT_NAME

    def paths(self) -> list[Path]:
        """
        All files that there are, and what stands in the place of one. Raises AclFileError for more
        than FILES_MAX and where there is no folder, and OSError: a folder that cannot be read is
        not one without files.
        """
        self._must_be_there()
        found = sorted(self._below(self.home / FOLDER_NAME))
        if self.default_file.exists():
            found.append(self.default_file)
        if len(found) > FILES_MAX:
            raise AclFileError(str(self.home), 0,
                               f"{len(found)} files: expected at most {FILES_MAX}")
        return found

    def _must_be_there(self) -> None:
        try:
            is_folder = stat.S_ISDIR(os.stat(self.home).st_mode)
        except FileNotFoundError:
            is_folder = False
        if not is_folder:
            raise AclFileError(str(self.home), 0, f"no folder: expected the one of {DEFAULT_NAME} "
                                                  f"and {FOLDER_NAME}/, which acl.folder names")

    def _below(self, folder: Path) -> Iterator[Path]:
        def refuse(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError | NotADirectoryError):
                raise error

        for root, _, names in os.walk(folder, onerror=refuse):
            for name in names:
                path = Path(root, name)
                if path.suffix in SUFFIXES and path.exists():
                    yield path

    def stamp(self) -> FolderStamp:
        """Another one after each change of a file; raises OSError, AclFileError."""
        return tuple((str(path), stamp(path)) for path in self.paths())

    def read(self, *, stock_permissions: bool) -> Rules:
        """What the files say now. Raises AclFileError, OSError."""
        return Rules([self.read_one(path) for path in self.paths()],
                     stock_permissions=stock_permissions)

    def read_one(self, path: Path) -> AclFile:
        """Raises AclFileError, OSError. Waits for no pipe, and ends with an endless file."""
        with (files.opened(path, os.O_RDONLY | os.O_NONBLOCK) as fd,
              open(fd, "rb", closefd=False) as file):
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise AclFileError(str(path), 0, "no regular file: expected one")
            raw = file.read(SIZE_MAX + 1)
        return read_file(str(path), raw)

    def write(self, path: Path, document: dict[str, Any]) -> AclFile:
        """
        Replace a file, whole, after a look whether it can be read again; a new one is for its owner
        alone. Raises AclFileError, and OSError, and nothing has changed.
        """
        from mqcore.acl import documents  # YAML, as in rules.py

        raw = documents.dumped(document)
        written = read_file(str(path), raw)
        mode = path.stat().st_mode & 0o777 if path.exists() else NEW_MODE
        files.write_atomically(path, raw, mode=mode)
        return written


def is_open_to_others(path: Path) -> bool:
    """Whether others than its owner may read a file of keys."""
    return bool(os.stat(path).st_mode & 0o077)
