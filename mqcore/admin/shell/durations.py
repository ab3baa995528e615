"""Lengths of time as options of commands."""
from __future__ import annotations

import re
from typing import Any, Final

import click


class Duration(click.ParamType):
    """A number and its unit: `500us`, `5ms`, `30s`, `2m`; seconds."""

    name = "duration"
    UNITS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}

    def __init__(self, least: float, most: float) -> None:
        self.least, self.most = least, most

    def convert(self, value: Any, param: click.Parameter | None,
                ctx: click.Context | None) -> float:
        """Seconds."""
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(us|ms|s|m)", value, re.ASCII)
        if found is not None:
            seconds = float(found[1]) * self.UNITS[found[2]]
            if self.least <= seconds <= self.most:
                return seconds
        self.fail(f"{value!r}: expected a number and us, ms, s or m, from {self.least:g} s to "
                  f"{self.most:g} s", param, ctx)
