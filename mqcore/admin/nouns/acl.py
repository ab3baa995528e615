"""`mqcore acl user|rm|white|versions`: accounts of running brokers."""
from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from mqcore.admin.nouns.parameters import broker_option, cluster_option
from mqcore.admin.shell import units
from mqcore.admin.shell.exits import Failure
from mqcore.admin.shell.runner import Plan, changes, reads
from mqcore.admin.shell.view import Column, Table, Text, View
from mqcore.client import AsyncAdmin

SECRET_VARIABLE = "MQCORE_NEW_SECRET_KEY"
PERMISSIONS = ("DENY", "PUB", "SUB", "PUB|SUB")
permission = click.Choice(PERMISSIONS)


def permission_pairs(pairs: Sequence[str], option: str) -> dict[str, str] | None:
    """NAME=PERM options; None without any."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, perm = pair.partition("=")
        if not name or not equals or perm not in PERMISSIONS:
            raise click.BadParameter(
                f"{pair!r}: expected NAME=PERM, PERM one of {', '.join(PERMISSIONS)}",
                param_hint=option)
        found[name] = perm
    return found or None


@click.command("user")
@click.argument("account", metavar="ACCESS_KEY")
@click.option("--admin/--no-admin", "is_admin", default=None, help="Whether it may administrate.")
@click.option("--topic-default", type=permission, help="Permission for topics without their own.")
@click.option("--group-default", type=permission, help="Permission for groups without their own.")
@click.option("--topic", "topics", multiple=True, metavar="NAME=PERM", help="For one topic.")
@click.option("--group", "groups", multiple=True, metavar="NAME=PERM", help="For one group.")
@click.option("--address", metavar="PATTERN", help="Addresses that need no signature.")
@broker_option
@cluster_option
@changes
async def user_command(
    admin: AsyncAdmin, account: str, topics: Sequence[str],
    groups: Sequence[str], broker: str | None, cluster: str | None, address: str | None,
    topic_default: str | None, group_default: str | None, is_admin: bool | None,
) -> Plan:
    """
    Create an account, or change one.

    Brokers replace the given fields; the others stay. They want the account's secret key as well:
    it comes from MQCORE_NEW_SECRET_KEY, or is asked for.
    """
    secret = _secret(account)
    asked = {
        "admin": is_admin, "default_topic_perm": topic_default,
        "default_group_perm": group_default, "white_address": address,
        "topic_perms": permission_pairs(topics, "--topic"),
        "group_perms": permission_pairs(groups, "--group"),
    }
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    shown = {"accessKey": account, **given}
    line = f"set account {account}: " + ", ".join(
        ["secret key", *(f"{name.replace('_', ' ')} {value}" for name, value in given.items())])

    async def work() -> View:
        names = await admin.update_acl(account, secret, broker=broker, cluster=cluster,
                                       **given)
        return View({**shown, "brokers": list(names)},
                    [Text([f"account {account} is set on {', '.join(names)}"])])

    return Plan(View(shown, [Text([line])]), work, line, account)


def _secret(account: str) -> str:
    given = os.environ.get(SECRET_VARIABLE)
    if given:
        return given
    if not sys.stdin.isatty():
        raise Failure(f"the secret key of {account} is not in {SECRET_VARIABLE}, and there is "
                      "no terminal to ask for it")
    return str(click.prompt(f"new secret key of {account}", hide_input=True,
                            confirmation_prompt=True, err=True))


@click.command("rm")
@click.argument("account", metavar="ACCESS_KEY")
@broker_option
@cluster_option
@changes
async def remove_command(
    admin: AsyncAdmin, account: str, broker: str | None, cluster: str | None,
) -> Plan:
    """Delete an account from running brokers."""
    line = f"delete account {account}"

    async def work() -> View:
        names = await admin.delete_acl(account, broker=broker, cluster=cluster)
        return View({"accessKey": account, "brokers": list(names)},
                    [Text([f"deleted account {account} from {', '.join(names)}"])])

    return Plan(View({"accessKey": account}, [Text([line])]), work, line, account)


@click.command("white")
@click.argument("addresses", nargs=-1, metavar="[ADDRESS...]")
@broker_option
@cluster_option
@changes
async def white_command(
    admin: AsyncAdmin, addresses: Sequence[str], broker: str | None, cluster: str | None,
) -> Plan:
    """Set the addresses that need no account at all; without any, the list is emptied."""
    line = f"addresses without an account: {', '.join(addresses) or 'none'}"

    async def work() -> View:
        names = await admin.update_white_addresses(addresses, broker=broker, cluster=cluster)
        return View({"addresses": list(addresses), "brokers": list(names)}, [Text([line])])

    return Plan(View({"addresses": list(addresses)}, [Text([line])]), work, line)


VERSIONS = (Column("BROKER", "broker"), Column("FILE", "file"), Column("CHANGES", "counter",
                                                                       right=True),
            Column("CHANGED", "changedSeconds", units.moment))


@click.command("versions")
@broker_option
@cluster_option
@reads(items=True)
async def versions_command(
    admin: AsyncAdmin, broker: str | None, cluster: str | None,
) -> View:
    """The access files of each broker, with the count and the time of their changes."""
    found = await admin.acl_versions(broker=broker, cluster=cluster)
    rows = [{"broker": one.broker_name, "file": path, "counter": version.counter,
             "changedSeconds": version.timestamp / 1000}
            for one in found for path, version in one.files]
    return View({"files": rows}, [Table(VERSIONS, rows, "no access files")], items="files",
                name="file", missing=found.unreachable)
