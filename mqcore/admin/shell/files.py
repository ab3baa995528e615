"""Files that commands read: documents of a bounded size, or standard input."""
from __future__ import annotations

import sys
from pathlib import Path

from mqcore.admin.shell.exits import Failure

DOCUMENT_BYTES_MAX = 64 << 20


def read(file: Path) -> bytes:
    """All of a file; - is standard input. Raises Failure."""
    try:
        if str(file) == "-":
            raw = sys.stdin.buffer.read(DOCUMENT_BYTES_MAX + 1)
        else:
            with file.open("rb") as opened:
                raw = opened.read(DOCUMENT_BYTES_MAX + 1)
    except OSError as error:
        raise Failure(f"{file}: cannot be read: {error.strerror}") from None
    if len(raw) > DOCUMENT_BYTES_MAX:
        raise Failure(f"{file}: expected at most {DOCUMENT_BYTES_MAX} bytes")
    return raw
