"""`mqcore top`: rates of brokers and of groups, again and again."""
from __future__ import annotations

import asyncio
import time
from typing import Any
from weakref import WeakKeyDictionary

import click
from msgspec import Struct

from mqcore.admin.nouns.parameters import cluster_option
from mqcore.admin.shell import units
from mqcore.admin.shell.runner import reads
from mqcore.admin.shell.view import Column, Table, View
from mqcore.client import AsyncAdmin
from mqcore.client.admin import BrokerStatus, Found, GroupBacklog
from mqcore.client.admin.groups import is_system_group

INTERVAL_S = 1.0
ROWS = 20

BROKERS = (
    Column("BROKER", "broker"), Column("ID", "id", right=True),
    Column("IN", "putPerSecond", units.rate, right=True),
    Column("OUT", "getPerSecond", units.rate, right=True),
    Column("P99", "putP99Seconds", lambda value: _milliseconds(value), right=True),
    Column("BEHIND", "dispatchBehindBytes", units.size, right=True),
    Column("DISK", "diskRatio", lambda ratio: units.UNKNOWN if ratio is None else f"{ratio:.0%}",
           right=True),
    Column("UP", "upSeconds", units.age, right=True, wide=True),
)
GROUPS = (
    Column("GROUP", "group"), Column("TOPIC", "topic"),
    Column("LAG", "lag", units.count, right=True),
    Column("IN", "putPerSecond", units.rate, right=True),
    Column("OUT", "consumedPerSecond", units.rate, right=True),
    Column("DONE IN", "doneSeconds", lambda age: "-" if age is None else units.age(age),
           right=True),
)


class Sample(Struct, frozen=True):
    """
    Offsets at one moment, each the sum over queues and brokers, by group and topic.

    at         seconds of a steady clock
    stored     the offset that the next message gets
    consumed   the committed offset
    """

    at: float
    stored: dict[tuple[str, str], int]
    consumed: dict[tuple[str, str], int]


_last: WeakKeyDictionary[AsyncAdmin, Sample] = WeakKeyDictionary()


@click.command("top")
@click.option("--rows", default=ROWS, show_default=True, type=click.IntRange(1, 10_000),
              help="Groups that are shown, those with the largest lag.")
@click.option("-a", "--all", "every", is_flag=True, help="Also the brokers' own groups.")
@cluster_option
@reads(items=True, every_s=INTERVAL_S)
async def top_command(
    admin: AsyncAdmin, rows: int, every: bool, cluster: str | None,
) -> View:
    """Rates, latency and lag of brokers and groups, every second until Ctrl-C."""
    if admin not in _last:
        _last[admin] = sample(await admin.backlogs(cluster=cluster), every)
        await asyncio.sleep(INTERVAL_S)
    status, backlogs = await asyncio.gather(
        admin.cluster_status(cluster), admin.backlogs(cluster=cluster))
    before, now = _last[admin], sample(backlogs, every)
    _last[admin] = now
    groups = group_rows(before, now)
    brokers = [broker_row(one) for one in status]
    missing = {one.address: one for one in (*backlogs.unreachable, *status.unreachable)}
    return View(
        {"brokers": brokers, "groups": groups[:rows], "groupsInAll": len(groups)},
        [Table(BROKERS, brokers, "no broker is registered"),
         Table(GROUPS, groups[:rows], "no group has committed an offset")],
        items="groups", name="group", missing=tuple(missing.values()))


def sample(backlogs: Found[GroupBacklog], every: bool) -> Sample:
    """The sums of the backlogs of all brokers."""
    found = Sample(time.monotonic(), {}, {})
    for one in backlogs:
        if not every and is_system_group(one.group):
            continue
        for lag in one.queues:
            pair = one.group, lag.queue.topic
            found.stored[pair] = found.stored.get(pair, 0) + lag.broker_offset
            found.consumed[pair] = found.consumed.get(pair, 0) + lag.consumer_offset
    return found


def group_rows(before: Sample, now: Sample) -> list[dict[str, Any]]:
    """A row for each group and topic, the largest lag first; a rate is unknown in its first."""
    seconds = max(now.at - before.at, 0.001)
    rows = []
    for pair, stored in now.stored.items():
        consumed = now.consumed[pair]
        put = got = None
        if pair in before.stored:
            put = max(0.0, (stored - before.stored[pair]) / seconds)
            got = max(0.0, (consumed - before.consumed[pair]) / seconds)
        lag = stored - consumed
        gain = 0.0 if put is None or got is None else got - put
        rows.append({
            "group": pair[0], "topic": pair[1], "lag": lag,
            "putPerSecond": None if put is None else round(put, 1),
            "consumedPerSecond": None if got is None else round(got, 1),
            "doneSeconds": round(lag / gain, 1) if lag > 0 and gain > 0 else None})
    return sorted(rows, key=lambda row: (-row["lag"], row["group"], row["topic"]))


def broker_row(one: BrokerStatus) -> dict[str, Any]:
    """A broker's rates, and how it is."""
    return {
        "broker": one.broker_name, "id": one.broker_id, "address": one.address,
        "putPerSecond": one.put_tps, "getPerSecond": one.get_tps,
        "putP99Seconds": _number(one.values.get("putLatency99"), 1000),
        "dispatchBehindBytes": _whole(one.values.get("dispatchBehindBytes")),
        "diskRatio": None if one.disk_ratio < 0 else round(one.disk_ratio, 4),
        "upSeconds": units.seconds_since(one.started),
    }


def _number(text: str | None, divisor: float) -> float | None:
    """A broker may say anything; what is no number is unknown."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return round(value / divisor, 6) if 0 <= value < float("inf") else None


def _whole(text: str | None) -> int | None:
    value = _number(text, 1)
    return None if value is None else int(value)


def _milliseconds(seconds: float | None) -> str:
    return units.UNKNOWN if seconds is None else f"{seconds * 1000:.2f} ms"
