"""`mqcore broker`: settings and state of running brokers; `run` is in mqcore/admin/run.py."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from mqcore.admin.nouns.parameters import broker_option, cluster_option, masters
from mqcore.admin.shell import units
from mqcore.admin.shell.exits import Failure
from mqcore.admin.shell.runner import Plan, changes, reads
from mqcore.admin.shell.view import Column, Facts, Table, Text, View
from mqcore.client import AsyncAdmin

SETTINGS = (Column("SETTING", "name"), Column("VALUE", "value"))
broker_argument = click.argument("broker", metavar="NAME|HOST:PORT")


@click.command("show")
@broker_argument
@click.option("--settings", "with_settings", is_flag=True, help="Its settings instead.")
@click.option("--grep", "part", default="", metavar="TEXT", help="Only names with this in them.")
@reads(items=True)
async def show_command(
    admin: AsyncAdmin, broker: str, with_settings: bool, part: str,
) -> View:
    """A broker's state in its own words (runtime info), or its settings."""
    if with_settings:
        values = dict(await admin.broker_config(broker))
        parts: list[Any] = []
    else:
        status = await admin.broker_status(broker)
        values = dict(status.values)
        parts = [] if part else [Facts([
            ("broker", f"{status.broker_name} {status.address}"), ("version", status.version),
            ("up", units.age(units.seconds_since(status.started))),
            ("in", units.rate(status.put_tps)), ("out", units.rate(status.get_tps)),
        ])]
    rows = [{"name": name, "value": values[name]} for name in sorted(values)
            if part.lower() in name.lower()]
    return View({"broker": broker, "values": rows}, [*parts, Table(SETTINGS, rows, "none")],
                items="values")


@click.command("set")
@click.argument("settings", nargs=-1, required=True, metavar="NAME=VALUE...")
@broker_option
@cluster_option
@changes
async def set_command(
    admin: AsyncAdmin, settings: Sequence[str], broker: str | None, cluster: str | None,
) -> Plan:
    """Change settings of running brokers, by RocketMQ's names (`broker show --settings`)."""
    given = pairs_of(settings)
    rows = []
    for name, address in await masters(admin, broker, cluster):
        now = await admin.broker_config(address)
        rows += [{"broker": name, "name": key, "before": now.get(key), "after": value}
                 for key, value in given.items()]
    table = Table((Column("BROKER", "broker"), Column("SETTING", "name"),
                   Column("FROM", "before"), Column("TO", "after")), rows)
    view = View({"changes": rows}, [table])

    async def work() -> View:
        await admin.update_broker_config(given, broker=broker, cluster=cluster)
        return view

    return Plan(view, work, f"change {len(given)} settings", broker or cluster or "all")


def pairs_of(settings: Sequence[str]) -> dict[str, str]:
    """The pairs of NAME=VALUE arguments. Raises click.BadParameter."""
    found: dict[str, str] = {}
    for pair in settings:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{pair!r}: expected NAME=VALUE", param_hint="NAME=VALUE")
        if name in found:
            raise click.BadParameter(f"{name} is given twice", param_hint="NAME=VALUE")
        found[name] = value
    return found


# -- drain, undrain -------------------------------------------------------------------------------

@click.command("drain")
@click.argument("broker", metavar="NAME")
@changes
async def drain_command(admin: AsyncAdmin, broker: str) -> Plan:
    """
    Let name servers tell producers to send to other brokers; consumers read on.

    Holds until `undrain`, or until the broker registers a change.
    """
    line = f"producers stop sending to broker {broker}"

    async def work() -> View:
        counts = await admin.wipe_write_perm(broker)
        return _counts(broker, counts, f"broker {broker} is drained")

    return Plan(View({"broker": broker}, [Text([line])]), work, f"drain broker {broker}", broker)


@click.command("undrain")
@click.argument("broker", metavar="NAME")
@changes
async def undrain_command(admin: AsyncAdmin, broker: str) -> Plan:
    """Let producers send to a drained broker again."""
    line = f"producers may send to broker {broker}"

    async def work() -> View:
        counts = await admin.add_write_perm(broker)
        return _counts(broker, counts, f"broker {broker} takes messages again")

    return Plan(View({"broker": broker}, [Text([line])]), work)


def _counts(broker: str, counts: dict[str, int], line: str) -> View:
    if not any(counts.values()):
        raise Failure(f"no name server knows topics of broker {broker}")
    rows = [{"nameServer": address, "topics": count} for address, count in counts.items()]
    return View({"broker": broker, "nameServers": rows}, [
        Text([line]),
        Table((Column("NAME SERVER", "nameServer"), Column("TOPICS", "topics", right=True)), rows)])


@click.command("gc")
@broker_option
@cluster_option
@changes
async def gc_command(admin: AsyncAdmin, broker: str | None, cluster: str | None) -> Plan:
    """Delete expired files of the commit log now."""
    where = broker or (f"cluster {cluster}" if cluster else "all brokers")

    async def work() -> View:
        names = await admin.delete_expired_log(broker=broker, cluster=cluster)
        return View({"brokers": list(names)}, [Text([f"asked {', '.join(names)}"])])

    line = f"delete expired files of the commit log on {where}"
    return Plan(View({"broker": broker, "cluster": cluster}, [Text([line])]), work, line)
