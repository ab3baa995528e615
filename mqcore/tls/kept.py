"""
Copies of TLS files as they were when they could be used, in memory that children inherit.

They hold keys: the memory has no name, and ends with the processes that have it.
"""
from __future__ import annotations

import os
from pathlib import Path

from msgspec.structs import replace

from mqcore.tls.contexts import TlsFileError
from mqcore.tls.settings import TlsSettings, files_in_use


class Copies:
    """settings: the given ones, with the copies in place of the files that are read."""

    def __init__(self, tls: TlsSettings) -> None:
        """Raises TlsFileError, OSError."""
        self._memory: dict[str, int] = {}
        try:
            for path in {getattr(tls, name) for name in files_in_use(tls)}:
                self._memory[path] = _copied(path)
        except BaseException:
            self.close()
            raise
        self.settings = replace(tls, **{
            name: _place(self._memory[getattr(tls, name)]) for name in files_in_use(tls)})

    def named(self, text: str) -> str:
        """A text about copies, with the names of the files that they are of."""
        for path, memory in sorted(self._memory.items(), key=lambda one: -one[1]):
            text = text.replace(_place(memory), path)
        return text

    def close(self) -> None:
        """Nobody of this process needs them any more."""
        while self._memory:
            os.close(self._memory.popitem()[1])


def _place(memory: int) -> str:
    return f"/proc/self/fd/{memory}"


def _copied(path: str) -> int:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise TlsFileError(f"{path}: cannot be read: {error.strerror}") from None
    memory = os.memfd_create("tls-file", os.MFD_CLOEXEC)
    try:
        with open(memory, "wb", closefd=False) as written:
            written.write(content)
    except BaseException:
        os.close(memory)
        raise
    return memory
