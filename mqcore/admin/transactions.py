"""
`mqcore transaction`: undecided transactions of a broker, and what an operator may do about them.

All of it is asked over the wire with RocketMQ's own requests, so it works for any broker and from
anywhere.
"""
from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import click

from mqcore.admin.lines import say
from mqcore.admin.signing import signed
from mqcore.broker.requests.transaction_checks import RUNTIME_KEYS
from mqcore.client import AsyncAdmin, ClientError, Credentials, RocketMQError
from mqcore.client.admin import HalfMessage
from mqcore.client.admin.transactions import PENDING, SETTLED
from mqcore.wire.ids import parse_offset_message_id
from mqcore.wire.printable import printable

DEFAULT_BROKER = "127.0.0.1:10911"


def row_of(half: HalfMessage) -> dict[str, Any]:
    """A half message as people and programs read it."""
    properties = half.properties
    born_s = half.born.timestamp() if half.born is not None else 0.0
    return {
        "id": half.message_id, "age_s": round(time.time() - born_s, 1),
        "producerGroup": half.producer_group, "checks": half.checks, "topic": half.topic,
        "queueId": properties.get("REAL_QID", ""), "uniqueKey": half.unique_key,
        "keys": properties.get("KEYS", ""), "halfOffset": half.half_offset,
        "bytes": len(half.body),
    }


async def figures_of(admin: AsyncAdmin, broker: str) -> dict[str, int]:
    """Counts of the broker (the keys of RUNTIME_KEYS); empty when it has none, as stock."""
    values = (await admin.broker_status(broker)).values
    return {name: int(values[key]) for name, key in RUNTIME_KEYS.items() if key in values}


def _run(command: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A command whose work is a coroutine, with the errors of a client told in one line."""

    async def work(credentials: Credentials | None, **options: Any) -> None:
        async with AsyncAdmin("", credentials=credentials) as admin:
            await command(admin, **options)

    @signed
    @wraps(command)
    def run(*, credentials: Credentials | None, **options: Any) -> None:
        try:
            asyncio.run(work(credentials, **options))
        except (RocketMQError, OSError) as error:
            raise click.ClickException(str(error)) from error

    return run


def _message_id(context: click.Context, parameter: click.Parameter, text: str) -> str:
    """An offset message id; a usage error for another text."""
    try:
        parse_offset_message_id(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="ID") from error
    return text


id_argument = click.argument("message_id", metavar="ID", callback=_message_id)
broker_option = click.option("-b", "--broker", default=DEFAULT_BROKER, show_default=True,
                             metavar="HOST:PORT", help="The broker to ask.")
json_option = click.option("--json", "as_json", is_flag=True, help="As one JSON document.")


@click.group("transaction")
def transaction_group() -> None:
    """Look at undecided transactions: list, show, check, rollback."""


@transaction_group.command("list")
@broker_option
@click.option("-n", "--limit", default=100, show_default=True, type=click.IntRange(1, 100_000),
              help="Show at most so many, the oldest first.")
@json_option
@_run
async def list_command(admin: AsyncAdmin, broker: str, limit: int, as_json: bool) -> None:
    """Transactions that nobody has committed or rolled back yet."""
    found = await admin.pending_transactions(broker, limit=limit)
    figures = await figures_of(admin, broker)
    rows = [row_of(half) for half in found]
    if as_json:
        click.echo(json.dumps({"pending": rows, "more": found.more, "figures": figures}, indent=2))
        return
    if not rows:
        click.echo("no undecided transactions")
        _echo_figures(figures)
        return
    click.echo(f"{'ID':<34}{'AGE':>10}  {'CHECKS':>6}  {'PRODUCER GROUP':<24}{'TOPIC'}")
    for row in rows:
        say(f"{row['id']:<34}{_age(row['age_s']):>10}  {row['checks']:>6}  "
            f"{row['producerGroup']:<24}{row['topic']}")
    if found.more:
        click.echo(f"... and more: --limit {limit} was reached")
    _echo_figures(figures)


@transaction_group.command("show")
@broker_option
@id_argument
@json_option
@_run
async def show_command(admin: AsyncAdmin, broker: str, message_id: str, as_json: bool) -> None:
    """One half message whole; ID as `list` shows it."""
    half = await admin.transaction(message_id, broker=broker)
    state = half.state if half.state in (PENDING, SETTLED) else f"in {half.state}"
    shown = {"state": state, **row_of(half), "logPosition": half.log_position,
             "properties": dict(half.properties),
             "body": half.body.decode(errors="backslashreplace")}
    if as_json:
        click.echo(json.dumps(shown, indent=2))
        return
    for name, value in shown.items():
        say(f"{name:<14} {value}")


@transaction_group.command("check")
@broker_option
@id_argument
@_run
async def check_command(admin: AsyncAdmin, broker: str, message_id: str) -> None:
    """
    Let producers be asked about a half message again, from the first time on.

    Also for one that was given up (in TRANS_CHECK_MAX_TIME_TOPIC). The next round of the broker's
    transaction check asks.
    """
    await admin.resume_transaction(message_id, broker=broker)
    click.echo("the producers are asked in the next round")


@transaction_group.command("rollback")
@broker_option
@id_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@_run
async def rollback_command(
    admin: AsyncAdmin, broker: str, message_id: str, yes: bool
) -> None:
    """End a half message for good: nobody will see it."""
    half = await admin.transaction(message_id, broker=broker)
    if half.state != PENDING:
        raise ClientError(f"{message_id} is not pending")
    if not yes:
        row = row_of(half)
        click.confirm(printable(
            f"roll back {row['bytes']} bytes for topic {row['topic']} of group "
            f"{row['producerGroup']}, {_age(row['age_s'])} old?"), abort=True)
    await admin.roll_back_transaction(message_id, broker=broker)
    click.echo("rolled back")


def _echo_figures(figures: dict[str, int]) -> None:
    """What the broker counts, in one line; a stock broker counts nothing."""
    if figures:
        click.echo(f"pending {figures['pending']}, the oldest for {_age(figures['oldest_s'])}; "
                   f"since the broker's start {figures['checks']} questions, "
                   f"{figures['given_up']} given up, {figures['rounds']} rounds")


def _age(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
