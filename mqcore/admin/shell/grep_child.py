"""The part of --grep that runs in a process of its own: it imports little, and may be ended."""
from __future__ import annotations

import re
import struct
from functools import lru_cache
from typing import Final

SIZE: Final = struct.Struct("<I")


@lru_cache(1)
def _pattern(text: bytes) -> re.Pattern[bytes]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(str(error)) from None


def work(request: bytes) -> bytes:
    """
    Whether a regular expression is found in each body.

    request   the expression, then the bodies, each with its SIZE before it
    answer    a byte for each body, 0 or 1
    """
    parts = []
    at = 0
    while at < len(request):
        size, = SIZE.unpack_from(request, at)
        at += SIZE.size
        parts.append(request[at:at + size])
        at += size
    pattern = _pattern(parts[0])
    return bytes(pattern.search(body) is not None for body in parts[1:])
