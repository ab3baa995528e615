"""
`mqcore transaction`: undecided transactions of a broker, and what an operator may do about them.

All of it is asked over the wire with RocketMQ's own requests (14, 30, 31, 33, 37, 321, 323), so it
works for any broker and from anywhere.
"""
from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click

from mqcore.admin.lines import say
from mqcore.broker.requests.transaction import CHECK_TIMES
from mqcore.broker.requests.transaction_checks import GROUP, RUNTIME_KEYS
from mqcore.broker.tables.topics import HALF_TOPIC, OP_TOPIC
from mqcore.client import RocketMQError
from mqcore.client.pool import ConnectionPool
from mqcore.wire.codes import RequestCode, ResponseCode
from mqcore.wire.command import Command, request
from mqcore.wire.ids import parse_offset_message_id
from mqcore.wire.printable import printable
from mqcore.wire.records import Record, decode_record

DEFAULT_BROKER = "127.0.0.1:10911"
ROWS_AT_ONCE = 512                  # queue entries of one 321
VIEWS_AT_ONCE = 64                  # records asked for at a time
ROLLBACK = 12


@dataclass(frozen=True)
class Pending:
    """One half message that nobody has ended."""

    record: Record

    @property
    def checks(self) -> int:
        return int(self.record.properties.get(CHECK_TIMES, "0"))

    def as_dict(self) -> dict[str, Any]:
        properties = self.record.properties
        return {
            "id": self.record.offset_message_id,
            "age_s": round(time.time() - self.record.born_timestamp_ms / 1000, 1),
            "producerGroup": properties.get("PGROUP", ""), "checks": self.checks,
            "topic": properties.get("REAL_TOPIC", ""), "queueId": properties.get("REAL_QID", ""),
            "uniqueKey": properties.get("UNIQ_KEY", ""), "keys": properties.get("KEYS", ""),
            "halfOffset": self.record.queue_offset, "bytes": len(self.record.body),
        }


class Transactions:
    """Questions to one broker."""

    def __init__(self, pool: ConnectionPool, broker: str) -> None:
        self._pool = pool
        self._broker = broker

    async def ask(self, code: int, ext: dict[str, str]) -> Command:
        return await self._pool.invoke(self._broker, request(code, dict(ext)))

    async def _number(self, code: int, topic: str) -> int:
        answer = await self.ask(code, {"topic": topic, "queueId": "0"})
        if answer.code != ResponseCode.SUCCESS:
            raise click.ClickException(f"{self._broker}: {answer.remark}")
        return int((answer.ext or {}).get("offset") or 0)

    async def _bounds(self, topic: str) -> tuple[int, int]:
        """From the first that is not known to be settled to the end of a system queue."""
        answer = await self.ask(RequestCode.QUERY_CONSUMER_OFFSET, {
            "consumerGroup": GROUP, "topic": topic, "queueId": "0"})
        committed = int((answer.ext or {}).get("offset") or 0) if answer.code == 0 else 0
        first = await self._number(RequestCode.GET_MIN_OFFSET, topic)
        return max(committed, first), await self._number(RequestCode.GET_MAX_OFFSET, topic)

    async def _positions(self, topic: str, first: int, end: int) -> AsyncIterator[tuple[int, int]]:
        """(queue offset, log position) of a system queue's entries."""
        while first < end:
            answer = await self.ask(RequestCode.QUERY_CONSUME_QUEUE, {
                "topic": topic, "queueId": "0", "index": str(first),
                "count": str(min(ROWS_AT_ONCE, end - first)), "consumerGroup": ""})
            rows = json.loads(answer.body).get("queueData") or [] if answer.code == 0 else []
            if not rows:
                return
            for number, row in enumerate(rows):
                yield first + number, int(row["physicOffset"])
            first += len(rows)

    async def view(self, position: int) -> Record | None:
        answer = await self.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(position)})
        return decode_record(answer.body) if answer.code == 0 else None

    async def _views(self, positions: list[int]) -> list[Record | None]:
        found: list[Record | None] = []
        for start in range(0, len(positions), VIEWS_AT_ONCE):
            found += await asyncio.gather(
                *(self.view(position) for position in positions[start:start + VIEWS_AT_ONCE]))
        return found

    async def settled(self) -> set[int]:
        """Half offsets that op records name, of those that are not passed yet."""
        first, end = await self._bounds(OP_TOPIC)
        positions = [position async for _, position in self._positions(OP_TOPIC, first, end)]
        return {int(record.body) for record in await self._views(positions)
                if record is not None and record.body.isdigit()}

    async def pending(self, limit: int) -> tuple[list[Pending], bool]:
        """The oldest `limit` undecided ones, and whether there are more."""
        settled = await self.settled()
        first, end = await self._bounds(HALF_TOPIC)
        positions: list[int] = []
        more = False
        async for offset, position in self._positions(HALF_TOPIC, first, end):
            if offset in settled:
                continue
            if len(positions) == limit:
                more = True
                break
            positions.append(position)
        records = await self._views(positions)
        return [Pending(record) for record in records if record is not None], more

    async def figures(self) -> dict[str, int]:
        """Counts of the broker (28; the keys of RUNTIME_KEYS); empty when it has none, as stock."""
        answer = await self.ask(RequestCode.GET_BROKER_RUNTIME_INFO, {})
        table = json.loads(answer.body).get("table", {}) if answer.code == 0 else {}
        return {name: int(table[key]) for name, key in RUNTIME_KEYS.items() if key in table}

    async def half(self, message_id: str) -> Record:
        """The message of an offset message id."""
        try:
            _, _, position = parse_offset_message_id(message_id)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="ID") from error
        record = await self.view(position)
        if record is None or record.offset_message_id != message_id.upper():
            raise click.ClickException(f"{self._broker} has no message {message_id}")
        return record

    async def is_pending(self, record: Record) -> bool:
        if record.topic != HALF_TOPIC:
            return False
        first, _ = await self._bounds(HALF_TOPIC)
        return record.queue_offset >= first and record.queue_offset not in await self.settled()

    async def roll_back(self, record: Record) -> None:
        """End a half message as its producer would; raises ClickException when it is refused."""
        answer = await self.ask(RequestCode.END_TRANSACTION, {
            "producerGroup": record.properties.get("PGROUP", ""),
            "tranStateTableOffset": str(record.queue_offset),
            "commitLogOffset": str(record.physical_offset), "commitOrRollback": str(ROLLBACK),
            "fromTransactionCheck": "false", "msgId": record.properties.get("UNIQ_KEY", ""),
        })
        if answer.code != ResponseCode.SUCCESS:
            raise click.ClickException(f"{self._broker}: {answer.remark}")

    async def revive(self, record: Record) -> None:
        """A fresh half message that was never asked about, in place of this one (323)."""
        answer = await self.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE,
                                {"msgId": record.offset_message_id})
        if answer.code != ResponseCode.SUCCESS:
            raise click.ClickException(f"{self._broker}: {answer.remark}")


@asynccontextmanager
async def transactions(broker: str) -> AsyncIterator[Transactions]:
    pool = ConnectionPool()
    try:
        yield Transactions(pool, broker)
    finally:
        await pool.close()


def _run(command: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A command whose work is a coroutine, with the errors of a client told in one line."""

    @wraps(command)
    def run(**options: Any) -> None:
        try:
            asyncio.run(command(**options))
        except (RocketMQError, OSError) as error:
            raise click.ClickException(str(error)) from error

    return run


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
async def list_command(broker: str, limit: int, as_json: bool) -> None:
    """Transactions that nobody has committed or rolled back yet."""
    async with transactions(broker) as asked:
        pending, more = await asked.pending(limit)
        figures = await asked.figures()
    rows = [each.as_dict() for each in pending]
    if as_json:
        click.echo(json.dumps({"pending": rows, "more": more, "figures": figures}, indent=2))
        return
    if not rows:
        click.echo("no undecided transactions")
        _echo_figures(figures)
        return
    click.echo(f"{'ID':<34}{'AGE':>10}  {'CHECKS':>6}  {'PRODUCER GROUP':<24}{'TOPIC'}")
    for row in rows:
        say(f"{row['id']:<34}{_age(row['age_s']):>10}  {row['checks']:>6}  "
            f"{row['producerGroup']:<24}{row['topic']}")
    if more:
        click.echo(f"... and more: --limit {limit} was reached")
    _echo_figures(figures)


@transaction_group.command("show")
@broker_option
@click.argument("message_id", metavar="ID")
@json_option
@_run
async def show_command(broker: str, message_id: str, as_json: bool) -> None:
    """One half message whole; ID as `list` shows it."""
    async with transactions(broker) as asked:
        record = await asked.half(message_id)
        state = "pending" if await asked.is_pending(record) else (
            "settled" if record.topic == HALF_TOPIC else f"in {record.topic}")
    shown = {"state": state, **Pending(record).as_dict(), "logPosition": record.physical_offset,
             "properties": record.properties,
             "body": record.body.decode(errors="backslashreplace")}
    if as_json:
        click.echo(json.dumps(shown, indent=2))
        return
    for name, value in shown.items():
        say(f"{name:<14} {value}")


@transaction_group.command("check")
@broker_option
@click.argument("message_id", metavar="ID")
@_run
async def check_command(broker: str, message_id: str) -> None:
    """
    Let producers be asked about a half message again, from the first time on.

    Also for one that was given up (in TRANS_CHECK_MAX_TIME_TOPIC). The next round of the broker's
    transaction check asks.
    """
    async with transactions(broker) as asked:
        record = await asked.half(message_id)
        pending = await asked.is_pending(record)
        if not pending and record.topic == HALF_TOPIC:
            raise click.ClickException(f"{message_id} is settled: there is nothing to ask")
        await asked.revive(record)
        if pending:                     # the fresh one stands in its place
            await asked.roll_back(record)
    click.echo("the producers are asked in the next round")


@transaction_group.command("rollback")
@broker_option
@click.argument("message_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_run
async def rollback_command(broker: str, message_id: str, yes: bool) -> None:
    """End a half message for good: nobody will see it."""
    async with transactions(broker) as asked:
        record = await asked.half(message_id)
        if not await asked.is_pending(record):
            raise click.ClickException(f"{message_id} is not pending")
        if not yes:
            row = Pending(record).as_dict()
            click.confirm(printable(
                f"roll back {row['bytes']} bytes for topic {row['topic']} of group "
                f"{row['producerGroup']}, {_age(row['age_s'])} old?"), abort=True)
        await asked.roll_back(record)
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
