"""
Whole numbers that a peer sent as text: header fields, properties, members of JSON bodies.

remoting.md 4.0 (Java's Integer.parseInt and Long.parseLong). Python's int() takes more: blanks,
underscores, digits of any script. The native reader takes exactly what is taken here
(`text_i64` of wire/header.pyx), so that no request is regular for one and irregular for the other.
"""
from __future__ import annotations

import re

I32_MIN, I32_MAX = -(1 << 31), (1 << 31) - 1
I64_MIN, I64_MAX = -(1 << 63), (1 << 63) - 1
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


def whole_number(text: str, low: int = I64_MIN, high: int = I64_MAX) -> int | None:
    """The number; None for text that is none, and for one below `low` or above `high`."""
    if _WHOLE.fullmatch(text) is None:
        return None
    number = int(text)
    return number if low <= number <= high else None
