"""
The access files whose rules are in force, in memory that processes of a run inherit.

A successor that begins while a file cannot be used continues with these. They hold keys: the memory
has no name, and ends with the process that made it and its children.
"""
from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable

import msgspec

from mqcore.acl.rules import AclFile, read_file

DIGEST_SIZE = hashlib.sha256().digest_size
PLACES = 2


class _Kept(msgspec.Struct, array_like=True):
    """number: of all that were kept, in order; files: path and content."""

    number: int
    files: list[tuple[str, bytes]]


class KeptFiles:
    """
    One process writes, any may read. There are two places: who dies while he writes one leaves the
    other, and what is half written is told by its digest.
    """

    def __init__(self) -> None:
        self._places = [os.memfd_create("access-files", os.MFD_CLOEXEC) for _ in range(PLACES)]
        self._last: tuple[int, int] | None = None          # number and place, of who writes

    def put(self, files: Iterable[AclFile]) -> None:
        """Keep these in place of all that were kept. Raises OSError, and those before stay."""
        number, at = self._last or self._found()
        number, at = number + 1, (at + 1) % PLACES
        place = self._places[at]
        data = msgspec.msgpack.encode(_Kept(number, [(file.path, file.raw) for file in files]))
        os.ftruncate(place, 0)
        with open(place, "wb", closefd=False) as written:
            written.seek(0)
            written.write(hashlib.sha256(data).digest())
            written.write(data)
        self._last = number, at

    def _found(self) -> tuple[int, int]:
        """What a predecessor wrote last."""
        found = [self._read(place) for place in self._places]
        return max((one.number if one is not None else 0, at) for at, one in enumerate(found))

    def get(self) -> list[AclFile] | None:
        """What was kept last; None: nothing was."""
        found = [one for place in self._places if (one := self._read(place)) is not None]
        if not found:
            return None
        return [read_file(path, raw) for path, raw in max(
            found, key=lambda one: one.number).files]

    def _read(self, place: int) -> _Kept | None:
        data = os.pread(place, os.fstat(place).st_size, 0)
        if hashlib.sha256(data[DIGEST_SIZE:]).digest() != data[:DIGEST_SIZE]:
            return None
        return msgspec.msgpack.decode(data[DIGEST_SIZE:], type=_Kept)
