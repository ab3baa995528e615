"""Metrics of a name server that runs without a broker: its figures, in the table's words."""
from __future__ import annotations

from collections.abc import Iterator, Mapping

from mqcore.figures import FIGURES
from mqcore.http import text
from mqcore.http.names import described
from mqcore.participants import NAMESRV


def scrape(figures: Mapping[str, int], node: str, content_type: str) -> Iterator[str]:
    """figures: what the name server has told, by their names; node: where it listens."""
    common = ",".join((text.label("node_type", "nameserver"), text.label("node_id", node)))
    for figure in FIGURES:
        if figure.role is NAMESRV and figure.name in figures:
            name, kind, meaning, _ = described(figure)
            yield text.head(name, kind, meaning, content_type)
            yield from text.samples(name, common, (), [((), figures[figure.name])])
    yield text.end(content_type)
