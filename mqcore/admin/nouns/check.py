"""`mqcore check`: checks for monitoring: ready, lag, stalled, dlq, disk."""
from __future__ import annotations

from asyncio import sleep as pause
from collections.abc import Callable, Coroutine, Sequence
from enum import IntEnum
from functools import wraps
from typing import Any

import click
from msgspec import Struct

from mqcore.admin.nouns.dlq import dead_letter_stats
from mqcore.admin.nouns.parameters import group_option
from mqcore.admin.shell import units
from mqcore.admin.shell.durations import Duration
from mqcore.admin.shell.exits import Exit, Failure
from mqcore.admin.shell.runner import reads
from mqcore.admin.shell.view import Column, Table, Text, View
from mqcore.client import AsyncAdmin, RocketMQError
from mqcore.client.admin import BrokerStatus
from mqcore.client.admin.groups import QueueLag, is_system_group
from mqcore.wire.codes import DLQ_PREFIX


class Level(IntEnum):
    """How bad a finding is; the numbers are Nagios' exit statuses."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


class Finding(Struct, frozen=True):
    """
    One thing that was looked at.

    name    what it is: a broker, a group, a group's queue
    value   the number that was compared, None when it is unknown
    text    the number for people
    """

    name: str
    level: Level
    value: float | None
    text: str


STALLED_MAX_S = 3600.0

ROWS = (Column("", "level"), Column("NAME", "name"), Column("", "text"))


@click.group("check")
def check_group() -> None:
    """Checks for monitoring: ready, lag, stalled, dlq, disk. They end with 10 when one fails."""


def finds(
    command: Callable[..., Coroutine[Any, Any, Sequence[Finding]]],
) -> Callable[..., None]:
    """A command that prints findings: as a view, or as one line for Nagios."""

    @wraps(command)
    async def view(admin: AsyncAdmin, nagios: bool, **options: Any) -> View:
        try:
            found = await command(admin, **options)
        except (RocketMQError, OSError) as error:
            if not nagios:
                raise
            found = [Finding(command.__name__, Level.UNKNOWN, None, str(error))]
        return _view(command.__name__.removesuffix("_command"), found, nagios=nagios)

    return reads(items=True)(click.option(
        "--nagios", is_flag=True,
        help="One line, and Nagios' statuses: 0, 1 warning, 2 critical, 3 unknown.")(view))


def _view(name: str, found: Sequence[Finding], *, nagios: bool) -> View:
    worst = max((one.level for one in found), default=Level.OK)
    rows = [{"name": one.name, "level": one.level.name.lower(), "value": one.value,
             "text": one.text} for one in found]
    document = {"check": name, "level": worst.name.lower(), "findings": rows}
    if nagios:
        bad = [f"{one.name} {one.text}" for one in found if one.level]
        said = "; ".join(bad) or f"{len(found)} looked at"
        line = f"MQCORE {name.upper()} {worst.name} - {said}"
        return View(document, [Text([line])], items="findings", status=Exit(int(worst)))
    return View(document, [Table(ROWS, rows, "nothing to look at")], items="findings",
                status=Exit.UNHEALTHY if worst else Exit.DONE)


def level_of(value: float, warning: float, critical: float) -> Level:
    if value >= critical:
        return Level.CRITICAL
    return Level.WARNING if value >= warning else Level.OK


def _thresholds(unit: str, warning: float, critical: float) -> Callable[[Any], Any]:
    def add(command: Any) -> Any:
        for option in (
            click.option("--crit", "critical", type=click.FloatRange(0), default=critical,
                         show_default=True, help=f"Critical from so many {unit} on."),
            click.option("--warn", "warning", type=click.FloatRange(0), default=warning,
                         show_default=True, help=f"A warning from so many {unit} on."),
        ):
            command = option(command)
        return command
    return add


@check_group.command("ready")
@finds
async def ready_command(admin: AsyncAdmin) -> Sequence[Finding]:
    """Every broker that is registered answers."""
    clusters = await admin.clusters()
    found = []
    for cluster in clusters:
        for broker in cluster.brokers:
            for broker_id, address in sorted(broker.addresses.items()):
                found.append(await _ready(admin, broker.broker_name, broker_id, address))
    if not found:
        raise Failure("no broker is registered", Exit.UNHEALTHY)
    return found


async def _ready(
    admin: AsyncAdmin, name: str, broker_id: int, address: str,
) -> Finding:
    shown = f"{name} id {broker_id} {address}"
    try:
        status = await admin.broker_status(address)
    except RocketMQError as error:
        return Finding(shown, Level.CRITICAL, None, f"no answer: {error}")
    return Finding(shown, Level.OK, None, f"ready, {status.version}")


@check_group.command("lag")
@group_option(help="Only this group.")
@_thresholds("messages", 10_000, 100_000)
@finds
async def lag_command(
    admin: AsyncAdmin, group: str | None, warning: float, critical: float,
) -> Sequence[Finding]:
    """No group has too many messages before it."""
    lags: dict[str, int] = {}
    for backlog in await admin.backlogs():
        if group in (None, backlog.group) and not is_system_group(backlog.group):
            lags[backlog.group] = lags.get(backlog.group, 0) + backlog.total
    return [Finding(name, level_of(lag, warning, critical), lag, f"{units.count(lag)} messages")
            for name, lag in sorted(lags.items())]


@check_group.command("stalled")
@group_option(help="Only this group.")
@click.option("--for", "watched_s", type=Duration(0.1, STALLED_MAX_S), default="30s",
              show_default=True, help="How long offsets are watched; clients commit every 5 s.")
@finds
async def stalled_command(
    admin: AsyncAdmin, group: str | None, watched_s: float,
) -> Sequence[Finding]:
    """
    No group stands still: messages wait for it, and it commits nothing.

    Offsets are read twice. A queue is critical when its lag has grown meanwhile, else a warning.
    """
    before = await _lags(admin, group)
    await pause(watched_s)
    after = await _lags(admin, group)
    found = []
    for place, now in sorted(after.items()):
        was = before.get(place)
        if was is None or now.lag <= 0 or was.lag <= 0 or (
                now.consumer_offset != was.consumer_offset):
            continue
        name, topic, broker, queue_id = place
        grown = now.lag - was.lag
        found.append(Finding(
            f"{name} {topic} {broker}/{queue_id}", Level.CRITICAL if grown > 0 else Level.WARNING,
            now.lag, f"{units.count(now.lag)} messages, {units.count(grown)} more than "
                     f"{units.age(watched_s)} ago, nothing committed since"))
    return found or [Finding(group or "all groups", Level.OK, 0, "no queue stands still")]


async def _lags(
    admin: AsyncAdmin, group: str | None,
) -> dict[tuple[str, str, str, int], QueueLag]:
    """By group, topic, broker and queue."""
    return {(backlog.group, one.queue.topic, one.queue.broker_name, one.queue.queue_id): one
            for backlog in await admin.backlogs()
            if group in (None, backlog.group) and not is_system_group(backlog.group)
            for one in backlog.queues}


@check_group.command("dlq")
@group_option(help="Only this group.")
@_thresholds("dead letters", 1, 1_000)
@finds
async def dlq_command(
    admin: AsyncAdmin, group: str | None, warning: float, critical: float,
) -> Sequence[Finding]:
    """No group has too many dead letters."""
    return [Finding(stats.topic.removeprefix(DLQ_PREFIX),
                    level_of(stats.message_count, warning, critical), stats.message_count,
                    f"{units.count(stats.message_count)} dead letters")
            for stats in await dead_letter_stats(admin, group=group)]


@check_group.command("disk")
@_thresholds("percent", 75, 90)
@finds
async def disk_command(
    admin: AsyncAdmin, warning: float, critical: float,
) -> Sequence[Finding]:
    """No broker's disk is too full."""
    statuses = await admin.cluster_status()
    found = [disk_finding(one, warning, critical) for one in statuses]
    found += [Finding(one.name, Level.UNKNOWN, None, f"no answer: {one.error}")
              for one in statuses.unreachable]
    return found


def disk_finding(one: BrokerStatus, warning: float, critical: float) -> Finding:
    """How full the disk of a broker is, in percent."""
    name = f"{one.broker_name} id {one.broker_id}"
    if one.disk_ratio < 0:
        return Finding(name, Level.UNKNOWN, None, "does not tell how full its disk is")
    percent = round(one.disk_ratio * 100, 1)
    return Finding(name, level_of(percent, warning, critical), percent, f"{percent} % used")
