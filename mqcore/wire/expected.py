"""What messages say of settings: which values a field takes, and the one that was given."""
from __future__ import annotations

import re
from collections.abc import Collection
from difflib import get_close_matches
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from msgspec import Meta

from mqcore.wire.printable import SHOWN_MAX

PORT_MAX = 65_535
NEAR_MAX = 3                       # names that a message offers
LISTED_MAX = 12                    # names that it lists when none looks like the wrong one


def is_address(text: str) -> bool:
    """Whether it is host:port."""
    host, _, port = text.rpartition(":")
    return bool(host) and re.fullmatch("[0-9]{1,5}", port) is not None and (
        0 < int(port) <= PORT_MAX)


def wrong(source: str, key: str, value: Any, wanted: str) -> str:
    """The one shape of a message about a bad value."""
    return f"{source}: {key} = {shown_value(value)}: expected {wanted}"


def known_names(name: str, known: Collection[str]) -> str:
    """Names to use instead of one that is not known: those that look like it, else all of a few."""
    near = get_close_matches(name, known, n=NEAR_MAX, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(near)}?"
    if len(known) <= LISTED_MAX:
        return f"expected one of {', '.join(known)}"
    return f"none of the {len(known)} that are known looks like it"


def expected(kind: Any) -> str:
    """What a field takes, in words."""
    if get_origin(kind) is Annotated:
        base, *marks = get_args(kind)
        for meta in marks:
            if not isinstance(meta, Meta):
                continue
            if base is int and meta.ge is not None:
                if meta.le is None:
                    return f"a whole number of at least {meta.ge}"
                return f"a whole number from {meta.ge} to {meta.le}"
            if base is str:
                least, most = meta.min_length or 0, meta.max_length
                return f"text of at least {least}" + (
                    f" and at most {most} characters" if most else " characters"
                )
        return expected(base)
    if get_origin(kind) is Union:
        return ", or ".join(map(expected, get_args(kind)))
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(f'"{choice}"' for choice in get_args(kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "one of " + ", ".join(f'"{choice.value}"' for choice in kind)
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        return "a list of texts" if item is str else f"a list, each item {expected(item)}"
    return {bool: "true or false", int: "a whole number", str: "text"}.get(kind, str(kind))


def shown_value(value: Any) -> str:
    """A value as a message shows it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{one_line(value)}"'
    if isinstance(value, tuple):
        return one_line(list(value))
    return one_line(value)


def one_line(value: Any) -> str:
    """Text for a message: of one line, printable, and not too long."""
    try:
        text = str(value)
    except ValueError:                   # Python does not print numbers of thousands of digits
        return "a number without an end"
    shown = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text[:SHOWN_MAX])
    return shown if len(text) <= SHOWN_MAX else f"{shown}... ({len(text)} characters)"
