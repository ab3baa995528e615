"""
`mqcore transaction`: undecided transactions of brokers, and what an operator may do about them.

Everything goes over RocketMQ's own requests, so it works for any broker and from anywhere.
"""
from __future__ import annotations

from typing import Any

import click

from mqcore.admin.nouns.parameters import masters
from mqcore.admin.shell import units
from mqcore.admin.shell.exits import Failure
from mqcore.admin.shell.runner import Plan, changes, reads
from mqcore.admin.shell.view import Column, Facts, Part, Table, Text, View
from mqcore.client import AsyncAdmin, RocketMQError
from mqcore.client.admin import HalfMessage, Unreachable
from mqcore.client.admin.transactions import PENDING, SETTLED
from mqcore.wire.codes import TRANSACTION_KEYS
from mqcore.wire.ids import parse_offset_message_id


def row_of(half: HalfMessage) -> dict[str, Any]:
    """A half message as people and programs read it."""
    properties = half.properties
    return {
        "id": half.message_id, "ageSeconds": units.seconds_since(half.born),
        "producerGroup": half.producer_group, "checks": half.checks, "topic": half.topic,
        "queueId": properties.get("REAL_QID", ""), "uniqueKey": half.unique_key,
        "keys": properties.get("KEYS", ""), "halfOffset": half.half_offset,
        "bytes": len(half.body),
    }


async def figures_of(admin: AsyncAdmin, broker: str) -> dict[str, int]:
    """Counts of a broker (the keys of TRANSACTION_KEYS); empty when it has none, as stock."""
    values = (await admin.broker_status(broker)).values
    return {name: int(values[key]) for name, key in TRANSACTION_KEYS.items() if key in values}


def _message_id(context: click.Context, parameter: click.Parameter, text: str) -> str:
    """An offset message id; a usage error for another text."""
    try:
        parse_offset_message_id(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="ID") from error
    return text


id_argument = click.argument("message_id", metavar="ID", callback=_message_id)
broker_option = click.option(
    "-b", "--broker", metavar="NAME|HOST:PORT",
    help="The broker to ask  [default: all masters; for one message, the broker in its ID].")


@click.group("transaction")
def transaction_group() -> None:
    """Undecided transactions: ls, show, check, rollback."""


ROWS = (
    Column("ID", "id"), Column("AGE", "ageSeconds", units.age, right=True),
    Column("CHECKS", "checks", right=True), Column("PRODUCER GROUP", "producerGroup"),
    Column("TOPIC", "topic"), Column("BROKER", "broker", wide=True),
)
FIGURES = (
    Column("BROKER", "broker"), Column("PENDING", "pending", right=True),
    Column("OLDEST", "oldest_s", units.age, right=True), Column("CHECKS", "checks", right=True),
    Column("GIVEN UP", "given_up", right=True), Column("ROUNDS", "rounds", right=True),
)


@transaction_group.command("ls")
@broker_option
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 100_000),
              help="At most so many of each broker, the oldest first.")
@reads(items=True)
async def list_command(admin: AsyncAdmin, broker: str | None, limit: int) -> View:
    """Transactions that no producer has committed or rolled back."""
    rows: list[dict[str, Any]] = []
    figures: list[dict[str, Any]] = []
    missing: list[Unreachable] = []
    more = False
    for name, address in await masters(admin, broker):
        try:
            found = await admin.pending_transactions(address, limit=limit)
            counts = await figures_of(admin, address)
        except RocketMQError as error:
            if broker is not None:
                raise
            missing.append(Unreachable(name, address, error))
            continue
        more |= found.more
        rows += [{"broker": name, **row_of(half)} for half in found]
        if counts:
            figures.append({"broker": name, **counts})
    parts: list[Part] = [Table(ROWS, rows, "no undecided transactions")]
    if more:
        parts.append(Text([f"there are more: --limit {limit} was reached"]))
    if figures:
        parts.append(Table(FIGURES, figures, title="since the start of each broker"))
    return View({"transactions": rows, "more": more, "figures": figures}, parts,
                items="transactions", name="id", missing=missing)


def _broker_of(message_id: str, broker: str | None) -> str:
    """The broker to ask about a message: its id begins with the address."""
    if broker is not None:
        return broker
    host, port, _ = parse_offset_message_id(message_id)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@transaction_group.command("show")
@broker_option
@id_argument
@reads()
async def show_command(admin: AsyncAdmin, broker: str | None, message_id: str) -> View:
    """One half message whole; ID as `ls` shows it."""
    half = await admin.transaction(message_id, broker=_broker_of(message_id, broker))
    state = half.state if half.state in (PENDING, SETTLED) else f"in {half.state}"
    shown = {"state": state, **row_of(half), "logPosition": half.log_position,
             "properties": dict(half.properties),
             "body": half.body.decode(errors="backslashreplace")}
    return View(shown, [Facts(list(shown.items()))])


@transaction_group.command("check")
@broker_option
@id_argument
@changes
async def check_command(admin: AsyncAdmin, broker: str | None, message_id: str) -> Plan:
    """
    Let brokers ask the producers about a half message again, from the first time on.

    Also for one that was given up (in TRANS_CHECK_MAX_TIME_TOPIC). The next round of the broker's
    transaction check asks.
    """
    half = await admin.transaction(message_id, broker=_broker_of(message_id, broker))

    async def work() -> View:
        await admin.resume_transaction(message_id, broker=_broker_of(message_id, broker))
        return View(row_of(half), [Text(["producers are asked in the next round"])])

    return Plan(View(row_of(half), [Text([f"ask producers about {message_id}"])]), work)


@transaction_group.command("rollback")
@broker_option
@id_argument
@changes
async def rollback_command(admin: AsyncAdmin, broker: str | None, message_id: str) -> Plan:
    """End a half message for good: no consumer will see it."""
    half = await admin.transaction(message_id, broker=_broker_of(message_id, broker))
    if half.state != PENDING:
        raise Failure(f"{message_id} is not pending")
    row = row_of(half)
    line = (f"roll back {row['bytes']} bytes for topic {row['topic']} of group "
            f"{row['producerGroup']}, {units.age(row['ageSeconds'])} old")

    async def work() -> View:
        await admin.roll_back_transaction(message_id, broker=_broker_of(message_id, broker))
        return View(row, [Text(["rolled back"])])

    return Plan(View(row, [Text([line])]), work, line, message_id)
