"""`mqcore namesrv`: settings and key-values; `run` is in mqcore/admin/run.py."""
from __future__ import annotations

from collections.abc import Sequence

import click

from mqcore.admin.nouns.broker import SETTINGS, pairs_of
from mqcore.admin.shell.exits import NotFound
from mqcore.admin.shell.runner import Plan, changes, reads
from mqcore.admin.shell.view import Column, Table, Text, View
from mqcore.client import AsyncAdmin


@click.command("show")
@click.argument("name_server", metavar="[HOST:PORT]", required=False)
@reads(items=True)
async def show_command(admin: AsyncAdmin, name_server: str | None) -> View:
    """Settings of a name server."""
    values = await admin.name_server_config(name_server)
    rows = [{"name": name, "value": values[name]} for name in sorted(values)]
    return View({"values": rows}, [Table(SETTINGS, rows)], items="values")


@click.command("set")
@click.argument("settings", nargs=-1, required=True, metavar="NAME=VALUE...")
@changes
async def set_command(admin: AsyncAdmin, settings: Sequence[str]) -> Plan:
    """Change settings of all name servers, by RocketMQ's names."""
    given = pairs_of(settings)
    now = await admin.name_server_config()
    rows = [{"name": name, "before": now.get(name), "after": value}
            for name, value in given.items()]
    view = View({"changes": rows}, [Table((
        Column("SETTING", "name"), Column("FROM", "before"), Column("TO", "after")), rows)])

    async def work() -> View:
        await admin.update_name_server_config(given)
        return view

    return Plan(view, work, f"change {len(given)} settings of all name servers")


@click.group("kv")
def kv_group() -> None:
    """Key-values of name servers: ls, get, set, rm."""


@kv_group.command("ls")
@click.argument("namespace")
@reads(items=True)
async def kv_list(admin: AsyncAdmin, namespace: str) -> View:
    """The keys and values of a namespace."""
    values = await admin.kv_of(namespace)
    rows = [{"name": name, "value": values[name]} for name in sorted(values)]
    return View({"namespace": namespace, "values": rows},
                [Table((Column("KEY", "name"), Column("VALUE", "value")), rows, "no keys")],
                items="values")


@kv_group.command("get")
@click.argument("namespace")
@click.argument("key")
@reads()
async def kv_get(admin: AsyncAdmin, namespace: str, key: str) -> View:
    """One value."""
    value = await admin.kv(namespace, key)
    if value is None:
        raise NotFound(f"key of namespace {namespace}", key, tuple(await admin.kv_of(namespace)))
    return View({"namespace": namespace, "name": key, "value": value}, [Text(value.splitlines())])


@kv_group.command("set")
@click.argument("namespace")
@click.argument("key")
@click.argument("value")
@changes
async def kv_set(admin: AsyncAdmin, namespace: str, key: str, value: str) -> Plan:
    """Set a value on all name servers."""
    before = await admin.kv(namespace, key)
    document = {"namespace": namespace, "name": key, "before": before, "after": value}
    view = View(document, [Text([f"{namespace} {key}: {before or '-'} -> {value}"])])

    async def work() -> View:
        await admin.put_kv(namespace, key, value)
        return view

    return Plan(view, work, f"replace {before!r}" if before is not None else "")


@kv_group.command("rm")
@click.argument("namespace")
@click.argument("key")
@changes
async def kv_remove(admin: AsyncAdmin, namespace: str, key: str) -> Plan:
    """Delete a key from all name servers."""
    before = await admin.kv(namespace, key)
    if before is None:
        raise NotFound(f"key of namespace {namespace}", key, tuple(await admin.kv_of(namespace)))
    view = View({"namespace": namespace, "name": key, "before": before},
                [Text([f"delete {namespace} {key}: {before}"])])

    async def work() -> View:
        await admin.delete_kv(namespace, key)
        return view

    return Plan(view, work, f"delete {namespace} {key}", key)
