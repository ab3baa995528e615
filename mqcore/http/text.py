"""
The text that Prometheus reads: its format 0.0.4, or OpenMetrics 1.0 for who accepts that.

A label may hold any text, as names of topics do: what the formats escape is a backslash, a quote
and a newline, and nothing else ends a value.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

PLAIN = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
TOTAL = "_total"
HISTOGRAM = "histogram"

_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True)
class Distribution:
    """A histogram's sample. below: how many of all do not exceed each of the bounds."""

    bounds: tuple[float, ...]
    below: list[int]
    count: int
    sum: float


def accepted(accept: str) -> str:
    """The content type for a scrape with this Accept header."""
    return OPEN_METRICS if "application/openmetrics-text" in accept else PLAIN


def label(name: str, value: str) -> str:
    """One label with its value."""
    return f'{name}="{value.translate(_ESCAPED)}"'


def head(name: str, kind: str, description: str, content_type: str) -> str:
    """The lines before a metric's samples. OpenMetrics names a counter without its end."""
    if content_type == OPEN_METRICS and kind == "counter":
        name = name.removesuffix(TOTAL)
    return f"# HELP {name} {description}\n# TYPE {name} {kind}\n"


def samples(name: str, common: str, names: tuple[str, ...],
            values: Iterable[tuple[tuple[str, ...], float]]) -> Iterator[str]:
    """A line for each of `values`: what the labels `names` say, and the number."""
    if not names:
        for _, value in values:
            yield f"{name}{{{common}}} {value}\n"
        return
    for texts, value in values:
        labels = ",".join(map(label, names, texts))
        yield f"{name}{{{common},{labels}}} {value}\n"


def histogram(name: str, common: str, names: tuple[str, ...],
              values: Iterable[tuple[tuple[str, ...], Distribution]]) -> Iterator[str]:
    """The lines of each of `values`, as many for each as there are bounds, and three."""
    for texts, found in values:
        labels = ",".join((common, *map(label, names, texts)))
        for bound, below in zip(found.bounds, found.below, strict=True):
            yield f'{name}_bucket{{{labels},le="{bound}"}} {below}\n'
        yield f'{name}_bucket{{{labels},le="+Inf"}} {found.count}\n'
        yield f"{name}_sum{{{labels}}} {found.sum}\n{name}_count{{{labels}}} {found.count}\n"


def end(content_type: str) -> str:
    """The last line."""
    return "# EOF\n" if content_type == OPEN_METRICS else ""
