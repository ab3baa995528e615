"""The trace of a message: who sent it, who tried it, how long each took, on one line of time."""
from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from mqcore.admin.nouns import message as nouns
from mqcore.page.asking import Answer
from mqcore.page.context import Page

BARS_MAX = 200
WIDTH, LEFT, ROW = 900, 250, 24
BAR_MIN = 3


async def trace(page: Page) -> Response:
    """A form, or the trace of the id in the URL."""
    name, topic = page.text("id").strip(), page.text("topic", "RMQ_SYS_TRACE_TOPIC")
    answer = Answer() if not name else await page.ask(
        nouns.trace_command, f"mqcore message trace {shlex.quote(name)}", message_id=name,
        trace_topic=topic)
    return page.render(
        "trace.html", "Trace", {"answer": answer}, id=name, topic=topic,
        picture=waterfall(answer.document) if answer.view else None,
        tables=[page.listing(answer, number, sortable=False)
                for number in range(1 if name and answer.view else 0, len(answer.tables) + 1)],
        status=None if name else HTTPStatus.OK)


def waterfall(document: Mapping[str, Any]) -> dict[str, Any]:
    """
    A bar for each send and try, placed on a common line of time.

    A client's clock is its own: a bar may begin before the send.
    """
    bars = [{"kind": "send", "label": f"{one['group']} → {one['topic']}", "at": _time(one["at"]),
             "seconds": one["seconds"], "failed": not one["success"]} for one in document["sends"]]
    bars += [{"kind": "consume", "label": f"{one['group']} #{one['retries'] + 1}",
              "at": _time(one["at"]), "seconds": one["seconds"], "failed": one["success"] is False}
             for one in document["consumes"]]
    bars = sorted((bar for bar in bars if bar["at"] is not None), key=lambda bar: bar["at"])
    left_out = max(0, len(bars) - BARS_MAX)
    bars = bars[:BARS_MAX]
    begin = min((bar["at"] for bar in bars), default=0.0)
    span = max((bar["at"] + bar["seconds"] for bar in bars), default=0.0) - begin or 0.001
    scale = (WIDTH - LEFT - 90) / span
    for number, bar in enumerate(bars):
        bar["x"] = round(LEFT + (bar["at"] - begin) * scale, 1)
        bar["width"] = round(max(BAR_MIN, bar["seconds"] * scale), 1)
        bar["y"] = number * ROW
    return {"bars": bars, "width": WIDTH, "height": max(1, len(bars)) * ROW + 4, "left": LEFT,
            "span": span, "more": left_out}


def _time(text: str | None) -> float | None:
    return None if text is None else datetime.fromisoformat(text).timestamp()
