"""`mqcore cluster`: brokers and their state, a round trip, definitions as a file."""
from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from mqcore.admin.nouns.definitions import (
    Definitions,
    apply_changes,
    changes_between,
    read_file,
    to_toml,
)
from mqcore.admin.nouns.health import health_command
from mqcore.admin.nouns.parameters import cluster_option, topic_option
from mqcore.admin.shell import units
from mqcore.admin.shell.exits import Exit
from mqcore.admin.shell.runner import Plan, changes, reads
from mqcore.admin.shell.view import Column, Table, Text, View
from mqcore.client import AsyncAdmin
from mqcore.client.admin import BrokerStatus


@click.group("cluster")
def cluster_group() -> None:
    """The cluster: show, health, test, export, diff, apply."""


cluster_group.add_command(health_command)


BROKERS = (
    Column("CLUSTER", "cluster"), Column("BROKER", "broker"), Column("ID", "id", right=True),
    Column("ADDRESS", "address"), Column("VERSION", "version"),
    Column("UP", "upSeconds", units.age, right=True),
    Column("IN", "putPerSecond", units.rate, right=True),
    Column("OUT", "getPerSecond", units.rate, right=True),
    Column("TODAY", "putToday", units.count, right=True, wide=True),
    Column("OLDEST", "oldestSeconds", lambda age: "-" if age is None else units.age(age),
           right=True, wide=True),
    Column("DISK", "diskRatio", lambda ratio: units.UNKNOWN if ratio is None else f"{ratio:.0%}",
           right=True),
)


@cluster_group.command("show")
@cluster_option
@reads(items=True)
async def show_command(admin: AsyncAdmin, cluster: str | None) -> View:
    """All brokers, slaves included: version, rates, how full their disks are."""
    clusters, found = await asyncio.gather(admin.clusters(), admin.cluster_status(cluster))
    names = {broker.broker_name: one.name for one in clusters for broker in one.brokers}
    rows = [_row(one, names.get(one.broker_name, "")) for one in found]
    return View({"brokers": rows}, [Table(BROKERS, rows, "no broker is registered")],
                items="brokers", name="broker", missing=found.unreachable)


def _row(one: BrokerStatus, cluster: str) -> dict[str, Any]:
    return {
        "cluster": cluster, "broker": one.broker_name, "id": one.broker_id,
        "address": one.address, "version": one.version, "started": units.iso(one.started),
        "upSeconds": units.seconds_since(one.started), "putPerSecond": one.put_tps,
        "getPerSecond": one.get_tps, "putToday": one.put_today, "getToday": one.get_today,
        "oldestMessage": units.iso(one.earliest_message),
        "oldestSeconds": units.seconds_since(one.earliest_message),
        "diskRatio": None if one.disk_ratio < 0 else round(one.disk_ratio, 4),
    }


TESTED = (
    Column("BROKER", "broker"), Column("SENDS", "sends", right=True),
    Column("FAILED", "failed", right=True), Column("P50", "p50Seconds", right=True,
                                                   show=lambda value: _milliseconds(value)),
    Column("MAX", "maxSeconds", right=True, show=lambda value: _milliseconds(value)),
    Column("ERROR", "error"),
)


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.2f} ms"


@cluster_group.command("test")
@topic_option(required=True, help="The topic that gets the messages.")
@click.option("--count", default=10, show_default=True, type=click.IntRange(1, 1_000),
              help="Messages for each broker.")
@click.option("--size", default=128, show_default=True, type=click.IntRange(1, 4 << 20),
              help="Bytes of a message.")
@reads(items=True)
async def test_command(admin: AsyncAdmin, topic: str, count: int, size: int) -> View:
    """Send messages to each broker and say how long that takes."""
    from statistics import median  # which loads decimal numbers and fractions

    route = await admin.topic_route(topic)
    rows = []
    for broker in sorted(queue.broker_name for queue in route.queues):
        times = await admin.send_times(topic, count=count, size=size, broker_name=broker)
        took = [one.took for one in times if one.error is None]
        errors = [str(one.error) for one in times if one.error is not None]
        rows.append({
            "broker": broker, "sends": len(times), "failed": len(errors),
            "p50Seconds": round(median(took), 6) if took else None,
            "maxSeconds": round(max(took), 6) if took else None,
            "error": errors[0] if errors else None,
        })
    failed = any(row["failed"] for row in rows)
    return View({"topic": topic, "brokers": rows}, [Table(TESTED, rows)], items="brokers",
                name="broker", status=Exit.UNHEALTHY if failed else Exit.DONE)


# -- definitions ----------------------------------------------------------------------------------

@cluster_group.command("export")
@cluster_option
@reads()
async def export_command(admin: AsyncAdmin, cluster: str | None) -> View:
    """Print topics and groups as TOML, for a file under version control."""
    found = await Definitions.of_cluster(admin, cluster)
    return View(found.document(), [Text(to_toml(found).splitlines())],
                missing=found.missing)


CHANGES = (Column("", "sign"), Column("KIND", "kind"), Column("NAME", "name"),
           Column("CHANGE", "text"))
prune_option = click.option("--prune", is_flag=True,
                            help="Also delete topics and groups that the file does not have.")
file_argument = click.argument(
    "file", type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True))


@cluster_group.command("diff")
@file_argument
@prune_option
@cluster_option
@reads(items=True)
async def diff_command(
    admin: AsyncAdmin, file: Path, prune: bool, cluster: str | None,
) -> View:
    """Compare a file of definitions with the cluster; ends with 10 when they differ."""
    wanted = read_file(file)
    found = await Definitions.of_cluster(admin, cluster)
    rows = [one.row() for one in changes_between(found, wanted, prune=prune)]
    return View({"changes": rows}, [Table(CHANGES, rows, "no differences")], items="changes",
                missing=found.missing, status=Exit.UNHEALTHY if rows else Exit.DONE)


@cluster_group.command("apply")
@file_argument
@prune_option
@cluster_option
@changes
async def apply_command(
    admin: AsyncAdmin, file: Path, prune: bool, cluster: str | None,
) -> Plan:
    """Make the cluster's topics and groups those of a file."""
    wanted = read_file(file)
    found = await Definitions.of_cluster(admin, cluster)
    planned = changes_between(found, wanted, prune=prune)
    rows = [one.row() for one in planned]
    before = View({"changes": rows}, [Table(CHANGES, rows, "no differences")],
                  missing=found.missing)

    async def work() -> View:
        await apply_changes(admin, planned, cluster)
        return View({"changes": rows},
                    [Table(CHANGES, rows, "no differences"), Text([f"{len(rows)} changes made"])])

    deletes = any(one.sign == "-" for one in planned)
    question = f"make {len(rows)} changes" if rows else ""
    return Plan(before, work, question, cluster or "delete" if deletes else "")
