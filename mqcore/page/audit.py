"""The audit of the page: a line of the logger mqcore.audit for each change, the last ones here."""
from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import asdict, dataclass, field

from mqcore.wire.printable import printable

LINES_MAX = 500
TEXT_MAX = 400

log = logging.getLogger("mqcore.audit")


@dataclass(frozen=True)
class Line:
    """
    One change, or one login.

    at        epoch seconds
    what      the command that does the same
    outcome   "done", or why not
    """

    at: float
    user: str
    remote: str
    what: str
    outcome: str


@dataclass
class Trail:
    """The newest lines, the newest first."""

    lines: deque[Line] = field(default_factory=lambda: deque(maxlen=LINES_MAX))

    def add(self, user: str, remote: str, what: str, outcome: str) -> None:
        """Note a line and log it."""
        line = Line(time.time(), _short(user) or "-", remote, _short(what), _short(outcome))
        self.lines.appendleft(line)
        log.info("page account=%s from=%s did=%s outcome=%s", *list(asdict(line).values())[1:])


def _short(text: str) -> str:
    return printable(text[:TEXT_MAX])
