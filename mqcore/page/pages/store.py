"""Brokers and disks; of the broker that serves the page also processes and latencies."""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from mqcore.admin.nouns import cluster as nouns
from mqcore.admin.shell import units
from mqcore.admin.shell.view import Column, Table, View
from mqcore.page.asking import Answer
from mqcore.page.context import Page
from mqcore.page.local import Local

SHADES = 5
OCTAVES_FROM_S = 1e-6

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
    """All brokers, and what shared memory says of the one beside."""
    answers = {"answer": await page.ask(nouns.show_command, "mqcore cluster show", cluster=None)}
    local = page.site.local
    if local is not None:
        answers["broker"] = _broker(local)
    broker = answers.get("broker", Answer())
    return page.render(
        "store.html", "Store", answers,
        brokers=page.listing(answers["answer"], 0, name="broker", links={
            "broker": lambda row: page.url("/settings", broker=row["address"])}, flags={
            "diskRatio": lambda row: "" if (row["diskRatio"] or 0) < 0.75 else
            "bad" if row["diskRatio"] >= 0.9 else "warn"}),
        processes=page.listing(broker, 0, sortable=False, flags={
            "trouble": lambda row: "bad" if row["trouble"] else "",
            "starts": lambda row: "warn" if row["starts"] > 1 else ""}),
        disks=page.listing(broker, 1, sortable=False), log=broker.document.get("log"),
        heat=heat_map(broker.document.get("latencies", ())))


def _broker(local: Local) -> Answer:
    processes, disks = local.processes(), local.disks()
    document = {"processes": processes, "disks": disks, "log": dict(local.log()),
                "checks": local.checks(), "latencies": local.latencies()}
    return Answer(View(document, [Table(PROCESSES, processes), Table(DISKS, disks)]),
                  command="mqcore status")


def heat_map(latencies: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """
    Rows of latencies, columns of octaves from a microsecond up: how many took so long. The shade is
    by the logarithm, so that a few slow ones among millions are seen.
    """
    rows = []
    for one in latencies:
        octaves: dict[int, int] = {}
        for bucket in one["buckets"]:
            octave = max(0, int(math.log2(max(bucket["fromSeconds"], OCTAVES_FROM_S)
                                          / OCTAVES_FROM_S) + 1e-9))
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
