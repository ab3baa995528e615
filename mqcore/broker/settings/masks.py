"""Lines of `http.masks`: parts of messages that the page hides."""
from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from mqcore.wire.properties import KEYS, RESERVED, TAGS

MASKS_MAX: Final = 1_000
LINE_MAX: Final = 2_048
EXPECTED: Final = (
    "lines TOPIC=json:$.PATH, TOPIC=property:NAME or TOPIC=text:REGEX, where * in TOPIC, at most "
    "three times, stands for any characters")
TOPIC: Final = re.compile(r"[^=\s*]{0,255}(?:\*[^=\s*]{0,255}){0,3}")
DEEP: Final = ".."                      # in the steps of a path: at any depth
ANY: Final = "*"
STEP: Final = re.compile(r"""\.\.(?=[^.])|\.?\*|\.?\[\*\]|\.?\[(\d{1,9})\]|\.?\['([^']+)'\]"""
                         r"""|\.?([^.\[\]*'\s]+)""")

Kind = Literal["json", "property", "text"]


class Mask(Struct, frozen=True):
    """
    One line: what is hidden in messages of some topics.

    topic   a name; `*` in it stands for any characters
    kind    json: a path in the body; property: a name; text: a regular expression, in bodies and
            in values of properties
    """

    topic: str
    kind: Kind
    what: str

    @property
    def line(self) -> str:
        """As the setting has it."""
        return f"{self.topic}={self.kind}:{self.what}"

    def fits(self, topic: str) -> bool:
        """Whether it is about this topic."""
        parts = self.topic.split("*")
        return re.fullmatch(".*".join(map(re.escape, parts)), topic, re.DOTALL) is not None


def parsed(line: str) -> Mask:
    """The mask of a line. Raises ValueError, which says what is wrong."""
    if len(line) > LINE_MAX:
        raise ValueError(f"expected at most {LINE_MAX} characters")
    topic, found, rest = line.partition("=")
    kind, colon, what = rest.partition(":")
    if not (found and topic and colon and what) or TOPIC.fullmatch(topic) is None:
        raise ValueError("expected TOPIC=KIND:WHAT")
    if kind == "json":
        steps_of(what)
    elif kind == "property":
        if what in RESERVED - {KEYS, TAGS}:
            raise ValueError(f"{what} is RocketMQ's own: only KEYS, TAGS and an application's "
                             "properties are hidden")
    elif kind == "text":
        try:
            re.compile(what)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"no regular expression: {error}") from None
    else:
        raise ValueError(f"{kind!r}: expected json, property or text")
    return Mask(topic, kind, what)  # type: ignore[arg-type]


def all_parsed(lines: Sequence[str]) -> tuple[Mask, ...]:
    """The masks of some lines. Raises ValueError with the line."""
    if len(lines) > MASKS_MAX:
        raise ValueError(f"expected at most {MASKS_MAX:,} lines")
    found = []
    for line in lines:
        try:
            found.append(parsed(line))
        except ValueError as error:
            raise ValueError(f"{line!r:.200}: {error}") from None
    return tuple(found)


def steps_of(path: str) -> tuple[str | int, ...]:
    """
    The steps of a JSON path: names, numbers of list items, ANY, DEEP. Raises ValueError.

    $.card.number   $.lines[*].price   $.lines[0]   $..password   $['a name']   $ (all of a body)
    """
    if not path.startswith("$"):
        raise ValueError(f"{path!r:.100}: expected a path that begins with $")
    steps: list[str | int] = []
    at = 1
    while at < len(path):
        found = STEP.match(path, at)
        if found is None or (at == 1 and path[1] not in ".["):
            raise ValueError(f"{path!r:.100}: expected .NAME, ..NAME, .*, [NUMBER], [*] or ['NAME']"
                             f" at character {at + 1}")
        at = found.end()
        number, quoted, name = found.groups()
        if number is not None:
            steps.append(int(number))
        elif quoted is not None or name is not None:
            steps.append(quoted or name)
        else:
            steps.append(DEEP if found[0] == ".." else ANY)
    if steps and steps[-1] == DEEP:
        raise ValueError(f"{path!r:.100}: expected a name after ..")
    return tuple(steps)
