"""Templates, and what they have beside HTML: numbers, times and words for people."""
from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from mqcore import __version__
from mqcore.admin.nouns import stored
from mqcore.admin.shell import units
from mqcore.admin.shell.view import Column, Facts, Table, Text
from mqcore.page import words
from mqcore.wire.printable import printable

HERE = Path(__file__).parent
STATIC = HERE / "static"


@cache
def environment() -> Environment:
    """The templates, compiled when they are first used."""
    found = Environment(loader=FileSystemLoader(HERE / "templates"), autoescape=True,
                        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
                        auto_reload=False)
    found.filters.update({
        "count": units.count, "size": units.size, "rate": units.rate, "age": units.age,
        "moment": units.moment, "shown": _shown, "seconds": _seconds, "percent": _percent,
        "attribute": _attribute, "milliseconds": stored.moment, "body": _body,
        "compact": _compact,
    })
    found.tests.update({
        "table": lambda part: isinstance(part, Table),
        "facts": lambda part: isinstance(part, Facts),
        "lines": lambda part: isinstance(part, Text),
    })
    found.globals.update({"static": static, "version": __version__, "cell": _cell})
    return found


def html(template: str, language: str, **values: Any) -> str:
    """A page, or a part of one."""
    translate = words.translator(language)
    return environment().get_template(template).render(
        t=translate, language=language, **values)


@cache
def static(path: str) -> str:
    """The URL of a file in `static`; another content has another URL."""
    digest = hashlib.sha256((STATIC / path).read_bytes()).hexdigest()[:12]
    return f"/static/{path}?v={digest}"


def _shown(value: Any) -> str:
    """Any value as text without control characters; "-" for nothing."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return units.yes(value)
    if isinstance(value, list | tuple):
        return printable(", ".join(map(str, value)) or "-")
    return printable(str(value))


def _body(text: str) -> str:
    """Text of several lines; what else is no visible character is escaped."""
    return "\n".join(printable(line.replace("\t", "    ")) for line in text.splitlines())


def _cell(column: Column, row: Mapping[str, Any]) -> str:
    return column.text(row)


def _seconds(value: float | None) -> str:
    """A length of time from microseconds up."""
    if value is None:
        return units.UNKNOWN
    if value < 0.001:
        return f"{value * 1e6:.0f} µs"
    if value < 1:
        return f"{value * 1e3:.3g} ms"
    return units.age(value)


def _compact(value: int) -> str:
    """A count in few characters: 12, 3.4k, 56M."""
    amount = float(value)
    for unit in ("", "k", "M", "G"):
        if amount < 1000 or unit == "G":
            return f"{amount:.0f}{unit}" if amount >= 10 or not unit else f"{amount:.1f}{unit}"
        amount /= 1000
    raise AssertionError("the loop ends at the last unit")


def _percent(value: float | None) -> str:
    return units.UNKNOWN if value is None else f"{value:.0%}"


def _attribute(value: Any) -> Markup:
    """JSON for a data attribute: quotes are escaped, so that it stands between any quotes."""
    return Markup.escape(json.dumps(value, ensure_ascii=True))
