"""Settings of brokers, one at a time."""
from __future__ import annotations

import asyncio
import shlex

from starlette.responses import Response

from mqcore.admin.nouns import broker as nouns
from mqcore.admin.nouns import cluster
from mqcore.page.context import Page


async def settings(page: Page) -> Response:
    """The settings of the broker in the URL, or of the first one."""
    brokers = await page.ask(cluster.show_command, "", cluster=None)
    rows = brokers.document.get("brokers", ())
    broker = page.text("broker") or (rows[0]["address"] if rows else "")
    if not broker:
        return page.render("settings.html", "Settings", {"answer": brokers}, broker="", rows=rows,
                           listing=None, state=None)
    answer, state = await asyncio.gather(
        page.ask(nouns.show_command, f"mqcore broker show {shlex.quote(broker)} --settings",
                 broker=broker, with_settings=True, part=""),
        page.ask(nouns.show_command, f"mqcore broker show {shlex.quote(broker)}",
                 broker=broker, with_settings=False, part=""))
    return page.render(
        "settings.html", "Settings", {"answer": answer, "state": state}, broker=broker, rows=rows,
        listing=page.listing(answer, 0), state_listing=page.listing(state, 0, sortable=False))
