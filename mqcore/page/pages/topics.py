"""Topics, and one topic: settings, queues, groups."""
from __future__ import annotations

import asyncio
import shlex

from starlette.responses import Response

from mqcore.admin.nouns import topic as nouns
from mqcore.admin.shell import units
from mqcore.admin.shell.view import Column, Table, View
from mqcore.client import AsyncAdmin
from mqcore.page.asking import told
from mqcore.page.context import Page

KINDS = ("user", "retry", "dead letters", "system")


async def topics(page: Page) -> Response:
    """All topics of a kind."""
    kind = page.text("kind", "user")
    answer = await page.ask(nouns.list_command, "mqcore topic ls" + (
        "" if kind == "user" else " --all"), every=kind != "user", groups=False, cluster=None)
    listing = page.listing(answer, 0, keep=lambda row: kind in ("all", row["kind"]), links={
        "name": lambda row: page.url("/topic", name=row["name"])})
    return page.render("topics.html", "Topics", {"answer": answer}, listing=listing, kind=kind,
                       kinds=(*KINDS, "all"))


async def topic(page: Page) -> Response:
    """One topic."""
    name = page.needed("name")
    answer, activity = await asyncio.gather(
        page.ask(nouns.show_command, f"mqcore topic show {shlex.quote(name)}", topic=name),
        told(_activity(page.admin, name)))
    return page.render(
        "topic.html", "Topic", {"answer": answer, "activity": activity}, name=name,
        settings=page.listing(answer, 0, sortable=False),
        queues=page.listing(answer, 1, name="broker", links={
            "maxOffset": lambda row: page.url(
                "/message", place=f"{name}/{row['broker']}/{row['queueId']}/{row['maxOffset'] - 1}")
            if row["messages"] else ""}),
        groups=page.listing(activity, 0, name="group", links={
            "group": lambda row: page.url("/group", name=row["group"])}))


ACTIVITY = (
    Column("GROUP", "group"), Column("LAG", "lag", units.count, right=True),
    Column("OUT", "outPerSecond", units.rate, right=True),
    Column("TODAY", "outDay", units.count, right=True),
)


async def _activity(admin: AsyncAdmin, name: str) -> View:
    """How busy a topic is, and each of its groups."""
    found = await admin.stats_all(name)
    rows = [{"group": one.group, "lag": one.lag, "outPerSecond": round(one.out_tps, 3),
             "outDay": one.out_day} for one in found if one.group]
    return View({
        "topic": name, "inPerSecond": round(max((one.in_tps for one in found), default=0.0), 3),
        "inDay": max((one.in_day for one in found), default=0), "groups": rows,
    }, [Table(ACTIVITY, rows, "no group has committed an offset")], missing=found.unreachable)
