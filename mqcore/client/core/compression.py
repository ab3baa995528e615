"""Bodies that are compressed before they are sent, and the flags that say so (client.md 2.6)."""
from __future__ import annotations

import importlib
import logging
import zlib
from collections.abc import Callable
from enum import Enum
from typing import Final

from mqcore.client.errors import ConfigError
from mqcore.wire.records import (
    COMPRESSION_LZ4,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
    FLAG_COMPRESSED,
)

log: Final = logging.getLogger("mqcore.client")


class Compression(Enum):
    """How; LZ4 and ZSTD need the packages lz4 and zstandard, here and at the consumers."""

    ZLIB = "zlib"
    LZ4 = "lz4"
    ZSTD = "zstd"


_FLAGS = {Compression.ZLIB: COMPRESSION_ZLIB, Compression.LZ4: COMPRESSION_LZ4,
          Compression.ZSTD: COMPRESSION_ZSTD}


class Compressor:
    """Compresses bodies in one way; safe for several threads."""

    def __init__(self, kind: Compression, level: int) -> None:
        """Raises ConfigError when the package for `kind` is missing."""
        if not isinstance(kind, Compression):
            raise ConfigError(f"compression {kind!r}: expected one of"
                              f" {', '.join(str(each) for each in Compression)}")
        self._flags = FLAG_COMPRESSED | _FLAGS[kind]
        self._compress = _function(kind, level)

    def compress(self, body: bytes) -> tuple[bytes, int]:
        """The body and the sysFlag bits to set; unchanged, and 0, when that fails or does not make
        it smaller: a body of 4 MiB would grow beyond what a broker takes."""
        try:
            made = self._compress(body)
            return (made, self._flags) if len(made) < len(body) else (body, 0)
        except Exception:       # a library's own errors: the message goes out uncompressed
            log.warning("a body of %d bytes could not be compressed", len(body), exc_info=True)
            return body, 0


def _function(kind: Compression, level: int) -> Callable[[bytes], bytes]:
    if kind is Compression.ZLIB:
        return lambda body: zlib.compress(body, level)
    module = "lz4.frame" if kind is Compression.LZ4 else "zstandard"
    try:
        library = importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"compression {kind.name}: needs the Python package {module.partition('.')[0]}"
        ) from error
    if kind is Compression.LZ4:
        return lambda body: bytes(library.compress(body))

    def zstd(body: bytes) -> bytes:
        made: bytes = library.ZstdCompressor(level=level, write_content_size=False).compress(body)
        return made
    return zstd
