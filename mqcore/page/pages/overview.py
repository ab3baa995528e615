"""The first page: what is wrong comes first, then rates, lag, brokers and groups as they change."""
from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from mqcore.admin.nouns import check, top
from mqcore.admin.shell.exits import Exit
from mqcore.admin.shell.view import Table, View
from mqcore.page import rendering
from mqcore.page.asking import Answer
from mqcore.page.context import Page
from mqcore.page.listing import Listing, listed
from mqcore.page.sampler import Now, TooManyWatchersError

NAMES_MAX = 8                          # series of one chart
SPANS = (900, 86_400)
LEVELS = ("critical", "warning", "unknown")
GROUPS_SHOWN = 15
FINDINGS_SHOWN = 50


async def overview(page: Page) -> Response:
    """What /readyz and `mqcore check` find, and the newest look at the cluster."""
    ready, lag, dead, disk = await asyncio.gather(
        page.ask(check.ready_command, "mqcore check ready", nagios=False),
        page.ask(check.lag_command, "mqcore check lag", nagios=False, group=None,
                 warning=10_000, critical=100_000),
        page.ask(check.dlq_command, "mqcore check dlq", nagios=False, group=None, warning=1,
                 critical=1_000),
        page.ask(check.disk_command, "mqcore check disk", nagios=False, warning=75, critical=90))
    answers = {"ready": ready, "lag": lag, "dlq": dead, "disk": disk}
    if page.site.local is not None:
        answers["broker"] = _local(page.site.local.checks())
    found = [row for name, answer in answers.items() for row in _findings(page, name, answer)]
    found.sort(key=lambda row: LEVELS.index(row["level"]))
    letters = sum(row["value"] for row in dead.document.get("findings", ()))
    now = page.sampler.now
    return page.render(
        "overview.html", "Overview", answers, findings=found[:FINDINGS_SHOWN],
        more=max(0, len(found) - FINDINGS_SHOWN), now=now, letters=letters if dead.view else None,
        brokers=_brokers(page, now), groups=_groups(page, now),
        checked=sum(len(answer.document.get("findings", ())) for answer in answers.values()),
        status=HTTPStatus.OK)


def _local(checks: list[dict[str, Any]]) -> Answer:
    rows = [{"name": one["name"], "level": "ok" if one["ok"] else "critical", "value": None,
             "text": one["detail"]} for one in checks]
    return Answer(View({"check": "broker", "findings": rows}), "", Exit.DONE, "")


def _findings(page: Page, name: str, answer: Answer) -> list[dict[str, Any]]:
    """The findings of a check that are not in order, with the page that says more."""
    if answer.view is None:
        return [{"level": "critical", "name": name, "text": answer.error, "link": ""}]
    places = {"lag": "/group", "dlq": "/dead-letters/group"}
    return [{
        **row,
        "link": page.url(places[name], name=row["name"]) if name in places
        else page.url("/store") if name in ("disk", "broker") else "",
    } for row in answer.document["findings"] if row["level"] != "ok"]


def _brokers(page: Page, now: Now) -> Listing:
    columns = [column for column in top.BROKERS if not column.wide]
    return listed(Table(columns, now.brokers, "no broker is registered"), sortable=False, links={
        "broker": lambda row: page.url("/settings", broker=row["address"])})


def _groups(page: Page, now: Now) -> Listing:
    rows = [row for row in now.groups if row["lag"] or row["putPerSecond"]][:GROUPS_SHOWN]
    return listed(Table(top.GROUPS, rows, "no group has a lag"), sortable=False, links={
        "group": lambda row: page.url("/group", name=row["group"]),
        "topic": lambda row: page.url("/topic", name=row["topic"])})


# -- live -----------------------------------------------------------------------------------------

async def live(page: Page) -> Response:
    """Server-sent events: the parts that change, and a sample for the charts."""
    watching = page.sampler.watch()
    try:
        first = await anext(watching)
    except TooManyWatchersError:
        return PlainTextResponse("too many pages are open: reload\n",
                                 HTTPStatus.SERVICE_UNAVAILABLE)

    async def events() -> AsyncIterator[bytes]:
        async with aclosing(watching):
            yield _event(page, first)
            async for now in watching:
                yield _event(page, now)

    return StreamingResponse(events(), media_type="text/event-stream")


def _event(page: Page, now: Now) -> bytes:
    tiles = rendering.html("overview_live.html", page.language, page=page, now=now)
    tables = rendering.html("overview_tables.html", page.language, page=page, now=now,
                            brokers=_brokers(page, now), groups=_groups(page, now))
    text = (f'{tiles}<hx-partial hx-target="#live-tables" hx-swap="innerMorph">{tables}'
            '</hx-partial>')
    sample = json.dumps({"at": int(now.at), "values": now.points()})
    lines = "".join(f"data: {line}\n" for line in text.splitlines())
    return f"{lines}\nevent: sample\ndata: {sample}\n\n".encode(errors="replace")


async def history(page: Page) -> Response:
    """Values of a chart's series: ?names=in,out&span=900."""
    names = page.needed("names").split(",")[:NAMES_MAX]
    span = page.number("span", SPANS[0], SPANS[0], SPANS[-1])
    return JSONResponse(page.sampler.history.chart(names, time.time(), span))


# -- the field at the top -------------------------------------------------------------------------

async def find(page: Page) -> Response:
    """A topic or group of this name, else a message with this id."""
    text = page.needed("q").strip()
    topics, groups = await asyncio.gather(page.admin.topics(), page.admin.groups(user_only=False))
    if text in topics:
        return page.redirect("/topic", name=text)
    if text in groups:
        return page.redirect("/group", name=text)
    if len(text) in (32, 56) and all(sign in "0123456789abcdefABCDEF" for sign in text):
        return page.redirect("/messages", which=text)
    wanted = text.casefold()
    if not any(wanted in name.casefold() for name in topics) and any(
            wanted in name.casefold() for name in groups):
        return page.redirect("/groups", q=text)
    return page.redirect("/topics", q=text)
