"""Logins and changes by this page; brokers write audit lines of their own."""
from __future__ import annotations

from dataclasses import asdict

from starlette.responses import Response

from mqcore.admin.shell import units
from mqcore.admin.shell.view import Column, Table, View
from mqcore.page.asking import Answer
from mqcore.page.context import Page

LINES = (
    Column("AT", "at", units.moment), Column("USER", "user"), Column("FROM", "remote"),
    Column("DID", "what"), Column("OUTCOME", "outcome"),
)


async def audit(page: Page) -> Response:
    """The newest lines since the start of this process."""
    rows = [asdict(line) for line in page.site.trail.lines]
    answer = Answer(View({"lines": rows}, [Table(LINES, rows, "nothing was changed by this page")]))
    return page.render("audit.html", "Audit", {"answer": answer}, listing=page.listing(
        answer, 0, name="what", flags={
            "outcome": lambda row: "good" if row["outcome"] == "done" else "warn"}))
