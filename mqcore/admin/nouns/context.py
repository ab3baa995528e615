"""`mqcore context`: name servers and accounts under a name."""
from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from mqcore.admin.lines import say
from mqcore.admin.shell import contexts
from mqcore.admin.shell.contexts import Context
from mqcore.admin.shell.exits import Exit, Failure
from mqcore.admin.shell.runner import at_a_terminal, reads
from mqcore.admin.shell.view import Column, Facts, Table, Text, View
from mqcore.client import AsyncAdmin

ROWS = (Column("", "mark"), Column("CONTEXT", "name"), Column("NAME SERVERS", "namesrv"),
        Column("ACCOUNT", "accessKey"), Column("CONFIRM", "confirm"), Column("TROUBLE", "error"))
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document.")
name_argument = click.argument("name")


@click.group("context")
def context_group() -> None:
    """Clusters by name: ls, show, add, use, rm, check."""


@context_group.command("ls")
@json_option
def list_command(as_json: bool) -> None:
    """List contexts; `*` marks the one in use."""
    used = contexts.current()
    rows = [_row(name, used) for name in contexts.names()]
    _print({"contexts": rows}, [Table(ROWS, rows, "no contexts; `mqcore context add`")], as_json)


def _row(name: str, used: str | None) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "inUse": name == used, "mark": "*" if name == used else ""}
    try:
        found = contexts.load(name)
    except Failure as error:
        return {**row, "error": error.message}
    return {**row, **_document(found)}


def _document(found: Context) -> dict[str, Any]:
    """A context without its secret."""
    secret = ("command" if found.secret_command else "file") if found.access_key else None
    return {"name": found.name, "namesrv": found.namesrv, "accessKey": found.access_key or None,
            "secret": secret, "confirm": found.confirm, "error": None}


def _print(document: dict[str, Any], parts: Sequence[Table | Facts | Text], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(document, indent=2))
    else:
        say(View(document, parts).lines())


@context_group.command("show")
@click.argument("name", required=False)
@json_option
def show_command(name: str | None, as_json: bool) -> None:
    """Show a context, or the one in use; never its secret."""
    chosen = name or contexts.current()
    if chosen is None:
        raise Failure("no context is in use: `mqcore context use NAME`", Exit.NOT_FOUND)
    document = _document(contexts.load(chosen))
    _print(document, [Facts([
        ("context", document["name"]), ("name servers", document["namesrv"]),
        ("account", document["accessKey"] or "none"),
        ("secret", f"from a {document['secret']}" if document["secret"] else "-"),
        ("confirm", "yes" if document["confirm"] else "no"),
    ])], as_json)


@context_group.command("add")
@name_argument
@click.argument("namesrv")
@click.option("--access-key", default="", metavar="KEY", help="The account; its secret is asked "
              "for, unless --secret-command is given.")
@click.option("--secret-command", default="", metavar="COMMAND",
              help="A program that prints the secret key.")
@click.option("--confirm", is_flag=True, help="Deletes and resets want names typed, or --yes.")
@click.option("--replace", is_flag=True, help="Write one that exists again.")
@click.option("--use", "in_use", is_flag=True, help="Use it from now on.")
def add_command(
    name: str, namesrv: str, access_key: str, secret_command: str, confirm: bool, replace: bool,
    in_use: bool,
) -> None:
    """
    Add a context for the name servers NAMESRV.

    NAMESRV is HOST:PORT;HOST:PORT or a rocketmq:// URL.
    """
    secret = ""
    if access_key and not secret_command:
        secret = str(click.prompt(f"secret key of {access_key}", hide_input=True, err=True))
    file = contexts.save(Context(name, namesrv, access_key, secret, secret_command,
                                 confirm=confirm), replace=replace)
    if in_use:
        contexts.use(name)
    say(f"added context {name}: {file}")


@context_group.command("use")
@click.argument("name", required=False)
@click.option("--none", "nothing", is_flag=True, help="Use no context.")
def use_command(name: str | None, nothing: bool) -> None:
    """Use a context in commands that name none."""
    if (name is None) != nothing:
        raise click.UsageError("give a NAME or --none")
    contexts.use(name)
    say(f"context {name} is in use" if name else "no context is in use")


@context_group.command("rm")
@name_argument
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove_command(name: str, dry_run: bool, yes: bool) -> None:
    """Delete a context, with the secret key that it may hold."""
    question = f"delete context {contexts.checked_name(name)}"
    if dry_run:
        contexts.load(name)
        say(f"{question}: {contexts.file_of(name)}")
        return
    if not yes:
        at_a_terminal(question)
        click.confirm(f"{question}?", abort=True, err=True)
    contexts.remove(name)
    say(f"removed context {name}")


@context_group.command("check")
@reads()
async def check_command(admin: AsyncAdmin) -> View:
    """Connect: name servers, brokers and account of a context (-x), or of the one in use."""
    found = await admin.cluster_status()
    rows = [{"broker": one.broker_name, "id": one.broker_id, "address": one.address,
             "version": one.version} for one in found]
    return View({"brokers": rows}, [Table((
        Column("BROKER", "broker"), Column("ID", "id", right=True), Column("ADDRESS", "address"),
        Column("VERSION", "version")), rows, "no broker is registered")],
        items="brokers", name="broker", missing=found.unreachable)
