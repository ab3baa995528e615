"""Writes the table of metrics into docs/metrics.md, from the one that makes a scrape."""
from __future__ import annotations

from pathlib import Path

from mqcore.http.metrics import METRICS, QUEUES

DOCUMENT = Path(__file__).with_name("metrics.md")
HEAD = "| metric | type | labels | meaning |\n|---|---|---|---|\n"


def rows() -> str:
    """The table, without its head."""
    return "".join(
        f"| `{metric.name}` | {metric.kind} | {', '.join(f'`{name}`' for name in metric.labels)} "
        f"| {metric.help.replace('|', '/')} |\n".replace("|  |", "| |")
        for metric in (*METRICS, *QUEUES))


def document(text: str) -> str:
    """The document with the current table at its end."""
    return text[:text.index(HEAD)] + HEAD + rows()


if __name__ == "__main__":
    DOCUMENT.write_text(document(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
