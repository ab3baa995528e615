"""
What comes from outside, where people and other programs read it: on lines of logs and terminals,
and in names that stand in many tables.
"""
from __future__ import annotations

import json
from typing import Any

_PARTING = "\"'\\/"                   # characters that end or part what a name stands in

SHOWN_MAX = 120                  # characters of a wrong value in a message


def printable(text: str) -> str:
    """The text with all escaped that is no visible character or blank (\\n, \\x1b, \\u202e)."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def json_line(value: Any) -> str:
    """A JSON document on one line: text as it is, but nothing in it that is not printable."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def label_trouble(name: str, bytes_max: int) -> str | None:
    """
    What is asked of a broker's, cluster's or region's name that it is not; None: all is well.

    Such names stand in answers, in properties of messages and in tables of other programs, and two
    of them are names of topics.
    """
    if not name.isprintable():
        return "no control characters"
    for character in _PARTING:
        if character in name:
            return f"no {character}"
    if len(name.encode()) > bytes_max:
        return f"at most {bytes_max} bytes"
    return None if name not in (".", "..") else "a name that a folder can have"
