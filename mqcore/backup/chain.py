"""A folder of backups: which there are, and what each continues from."""
from __future__ import annotations

import os
from pathlib import Path

from mqcore.backup.errors import BackupError, BadBackupError
from mqcore.backup.manifest import ID, MANIFEST_BYTES_MAX, NAME, Manifest, decode, part_name
from mqcore.backup.pieces import Pace, opened_below, read_part


class Backups:
    """The finished backups in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[str, tuple[Manifest, int]] = {}

    @classmethod
    def at(cls, path: Path) -> tuple[Backups, str]:
        """
        (those in a folder, the name of the newest), or of one backup's own folder that one. Raises
        BackupError.
        """
        if not path.is_dir():
            raise BackupError(f"{path}: no folder of backups")
        absolute = path.absolute()
        if ID.fullmatch(absolute.name):
            return cls(absolute.parent), absolute.name
        backups = cls(absolute)
        ids = backups.ids()
        if not ids:
            raise BackupError(f"{path}: no finished backup is there")
        return backups, ids[-1]

    def ids(self) -> list[str]:
        """The names of all, the oldest first. Raises OSError."""
        return sorted(entry.name for entry in os.scandir(self.folder)
                      if ID.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False))

    def newest(self) -> Manifest | None:
        ids = self.ids()
        return self.manifest(ids[-1]) if ids else None

    def manifest(self, id_: str) -> Manifest:
        """Raises BadBackupError, OSError."""
        return self._known(id_)[0]

    def sum_of(self, id_: str) -> int:
        """The sum over a backup's manifest, by which those that continue from it know it."""
        return self._known(id_)[1]

    def _known(self, id_: str) -> tuple[Manifest, int]:
        if id_ not in self._read:
            where = self.folder / id_ / NAME
            with opened_below(self.folder, f"{id_}/{NAME}") as fd:
                if os.fstat(fd).st_size > MANIFEST_BYTES_MAX:
                    raise BadBackupError(f"{where}: too long for a manifest")
                with open(fd, "rb", closefd=False) as file:
                    found = decode(file.read(), where)
            if found[0].id != id_:
                raise BadBackupError(f"{where}: it is that of {found[0].id}")
            self._read[id_] = found
        return self._read[id_]

    def chain(self, manifest: Manifest) -> list[Manifest]:
        """A backup and those that it continues from, the newest first. Raises BadBackupError."""
        found = [manifest]
        while found[-1].parent:
            child = found[-1]
            if child.parent >= child.id:
                raise BadBackupError(f"{self.folder / child.id}: it goes on from {child.parent}, "
                                     "which is not before it")
            try:
                parent = self.manifest(child.parent)
            except BadBackupError as error:
                raise BadBackupError(f"{self.folder / child.id} goes on from {child.parent}: "
                                     f"{error}") from None
            if self.sum_of(child.parent) != child.parent_sum:
                raise BadBackupError(f"{self.folder / child.id} goes on from another "
                                     f"{child.parent} than is there")
            found.append(parent)
        return found

    def needed_by(self, manifest: Manifest) -> set[str]:
        """Those that it has parts in, and that it continues from. Raises BadBackupError."""
        return {one.id for one in self.chain(manifest)} | {
            part.backup for entry in manifest.files for part in entry.parts}

    def check_there(self, manifest: Manifest) -> None:
        """That no link of its chain and no file is missing. Raises BadBackupError, OSError."""
        self.chain(manifest)
        for entry in manifest.files:
            for part in entry.parts:
                name = f"{part.backup}/{part_name(entry.name, part)}"
                with opened_below(self.folder, name) as fd:
                    size = os.fstat(fd).st_size
                    if size != part.size:
                        raise BadBackupError(f"{self.folder / name}: {size} bytes, expected "
                                             f"{part.size}")

    def check(self, manifest: Manifest, pace: Pace) -> None:
        """All of its bytes against their sums. Raises BadBackupError, OSError."""
        self.check_there(manifest)
        for entry in manifest.files:
            for part in entry.parts:
                read_part(self.folder, entry, part, pace, None)
