"""`mqcore client`: the connected producers and consumers of a cluster."""
from __future__ import annotations

import asyncio
from typing import Any

import click

from mqcore.admin.nouns.parameters import cluster_option, group_option
from mqcore.admin.shell import units
from mqcore.admin.shell.runner import reads
from mqcore.admin.shell.view import Column, Table, View
from mqcore.client import AsyncAdmin, RocketMQError
from mqcore.client.admin import ClientConnection, Unreachable
from mqcore.wire.codes import version_text

GROUPS_AT_ONCE = 16

ROWS = (
    Column("KIND", "kind"), Column("GROUP", "group"), Column("CLIENT", "clientId"),
    Column("ADDRESS", "address"), Column("LANGUAGE", "language"), Column("VERSION", "versionText"),
    Column("SILENT", "silentSeconds", lambda age: "-" if age is None else units.age(age),
           right=True, wide=True),
)


@click.group("client")
def client_group() -> None:
    """Connected clients: ls."""


@client_group.command("ls")
@click.option("--producers", "kind", flag_value="producer", help="Only producers.")
@click.option("--consumers", "kind", flag_value="consumer", help="Only consumers.")
@group_option(help="Only of this group.")
@cluster_option
@reads(items=True)
async def list_command(
    admin: AsyncAdmin, kind: str | None, group: str | None, cluster: str | None,
) -> View:
    """List connected clients with language and version."""
    rows: list[dict[str, Any]] = []
    missing: dict[str, Unreachable] = {}
    if kind != "consumer":
        rows += await _producers(admin, cluster, missing)
    if kind != "producer":
        rows += await _consumers(admin, group, cluster, missing)
    rows = [row for row in rows if group in (None, row["group"])]
    rows.sort(key=lambda row: (row["kind"], row["group"], row["clientId"]))
    return View({"clients": rows}, [Table(ROWS, rows, "no connected client")], items="clients",
                name="clientId", missing=list(missing.values()))


async def _producers(
    admin: AsyncAdmin, cluster: str | None, missing: dict[str, Unreachable],
) -> list[dict[str, Any]]:
    """Those of all brokers; one that is connected to several stands there once."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for one in await admin.clusters():
        for broker in one.brokers if cluster in (None, one.name) else ():
            for address in broker.addresses.values():
                try:
                    connected = await admin.all_producers(address)
                except RocketMQError as error:
                    missing[address] = Unreachable(broker.broker_name, address, error)
                    continue
                for producer in connected:
                    found[producer.group, producer.client.client_id] = _row(
                        "producer", producer.group, producer.client,
                        units.seconds_since(producer.last_heard))
    return list(found.values())


async def _consumers(
    admin: AsyncAdmin, group: str | None, cluster: str | None, missing: dict[str, Unreachable],
) -> list[dict[str, Any]]:
    """
    The members of all groups, which no single request tells: one to each broker of a group, some
    at a time. A member that is connected to several brokers stands there once.
    """
    asked: list[tuple[str, str, str | None]] = [] if group is None else [(group, "", None)]
    if group is None:
        groups = await admin.groups_on_brokers(cluster=cluster)
        missing.update((failure.address, failure) for failure in groups.unreachable)
        asked += [(one.config.name, one.broker_name, one.address) for one in groups]
    places = asyncio.Semaphore(GROUPS_AT_ONCE)
    found: dict[tuple[str, str], dict[str, Any]] = {}

    async def one(name: str, broker: str, address: str | None) -> None:
        async with places:
            if address in missing:
                return
            try:
                members = await admin.members(name, broker=address)
            except RocketMQError as error:
                if address is None:
                    raise
                missing[address] = Unreachable(broker, address, error)
                return
        missing.update((failure.address, failure) for failure in members.unreachable)
        for client in members.members:
            found[name, client.client_id] = _row("consumer", name, client, None)

    await asyncio.gather(*(one(*each) for each in asked))
    return list(found.values())


def _row(
    kind: str, group: str, client: ClientConnection, silent: float | None,
) -> dict[str, Any]:
    return {
        "kind": kind, "group": group, "clientId": client.client_id, "address": client.address,
        "language": client.language, "version": client.version,
        "versionText": version_text(client.version), "silentSeconds": silent,
    }
