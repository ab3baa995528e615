"""Brokers and disks; of the broker that serves the page also processes and latencies."""
from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from mqcore.admin.nouns import cluster as nouns
from mqcore.admin.shell import units
from mqcore.admin.shell.view import Column, Table, View
from mqcore.client import AsyncAdmin
from mqcore.page.asking import Answer, told
from mqcore.page.context import Page
from mqcore.page.local import Local

SHADES = 5
OCTAVES_FROM_S, SECONDS_MAX = 1e-6, 86_400.0

PROCESSES = (
    Column("PROCESS", "name"), Column("PID", "pid", right=True), Column("STATE", "state"),
    Column("STARTS", "starts", right=True), Column("UP", "upSeconds", units.age, right=True),
    Column("PROCESSOR", "cpuSeconds", units.age, right=True),
    Column("MEMORY", "residentBytes", units.size, right=True), Column("TROUBLE", "trouble"),
)
DISKS = (
    Column("FOLDER", "folder"), Column("FREE", "freeBytes", units.size, right=True),
    Column("USED", "usedShare", lambda share: f"{share:.0%}", right=True),
)


async def store(page: Page) -> Response:
    """All brokers; processes and latencies of the one in the URL, else of the one beside."""
    answers = {"answer": await page.ask(nouns.show_command, "mqcore cluster show", cluster=None)}
    rows = answers["answer"].document.get("brokers", ())
    local = page.site.local
    chosen = page.text("broker") or (local.address if local else "") or (
        rows[0]["address"] if rows else "")
    if local is not None and chosen == local.address:
        answers["broker"] = _beside(local)
    elif chosen:
        answers["broker"] = await told(_elsewhere(page.admin, chosen),
                                       shlex.join(["mqcore", "status", "--broker", chosen]))
    broker = answers.get("broker", Answer())
    return page.render(
        "store.html", "Store", answers, rows=rows, chosen=chosen, standing=broker,
        brokers=page.listing(answers["answer"], 0, name="broker", links={
            "broker": lambda row: page.url("/settings", broker=row["address"])}, flags={
            "diskRatio": lambda row: "" if (row["diskRatio"] or 0) < 0.75 else
            "bad" if row["diskRatio"] >= 0.9 else "warn"}),
        processes=page.listing(broker, 0, sortable=False, flags={
            "trouble": lambda row: "bad" if row["trouble"] else "",
            "starts": lambda row: "warn" if row["starts"] > 1 else ""}),
        disks=page.listing(broker, 1, sortable=False), log=_positions(broker.document),
        heat=heat_map(broker.document.get("latencies", ())))


def _positions(document: Mapping[str, Any]) -> Mapping[str, int] | None:
    """Of the log; None where a broker leaves one out."""
    log = document.get("log", {})
    return log if {"first", "published", "flushed", "dispatched"} <= set(log) else None


def _beside(local: Local) -> Answer:
    standing, disks = local.standing(), local.disks()
    return Answer(View({**standing, "disks": disks, "checks": local.checks()}, [
        Table(PROCESSES, standing["processes"]), Table(DISKS, disks)]), command="mqcore status")


async def _elsewhere(admin: AsyncAdmin, broker: str) -> View:
    """The same of a broker that is asked; its disks are in the table of all."""
    found = await admin.broker_standing(broker)
    if found is None:
        return View({}, [])
    standing = msgspec.to_builtins(found)
    return View(standing, [Table(PROCESSES, standing["processes"])])


def heat_map(latencies: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """
    Rows of latencies, columns of octaves from a microsecond up: how many took so long. The shade is
    by the logarithm, so that a few slow ones among millions are seen.
    """
    rows = []
    for one in latencies:
        octaves: dict[int, int] = {}
        for bucket in one["buckets"]:
            seconds = min(max(bucket["fromSeconds"], OCTAVES_FROM_S), SECONDS_MAX)
            octave = int(math.log2(seconds / OCTAVES_FROM_S) + 1e-9)
            octaves[octave] = octaves.get(octave, 0) + bucket["count"]
        rows.append({**one, "octaves": octaves})
    used = [octave for row in rows for octave, count in row["octaves"].items() if count]
    span = range(min(used, default=0), max(used, default=-1) + 1)
    most = max((count for row in rows for count in row["octaves"].values()), default=0)
    for row in rows:
        row["cells"] = [(row["octaves"].get(octave, 0), _shade(row["octaves"].get(octave, 0), most))
                        for octave in span]
    return {"rows": rows, "heads": [OCTAVES_FROM_S * 2 ** octave for octave in span]}


def _shade(count: int, most: int) -> int:
    """0 of nothing, else 1 to SHADES."""
    if not count:
        return 0
    return 1 + round((SHADES - 1) * math.log(count + 1) / math.log(most + 1))
