"""The outbox: a message is kept in the business transaction, and a relay sends it.

Order. Rows of one topic and key are numbered in the order of the commits: SQLite has one writer at
a time, in PostgreSQL a lock of the key is held until the commit. A row is sent after the one before
it was stored. Two relays at a time, or one that begins again, send some twice with the same message
id; the first of each still come in order, whatever the lease says.
"""
from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Engine, Row, Table, func, insert, select, update

from mqcore.client import Message
from mqcore.client.patterns.tables import (
    DAY_S,
    PREFIX,
    begin,
    check_connection,
    check_count,
    check_engine,
    check_key,
    check_seconds,
    message_values,
    now_ms,
    purge,
    shown_message,
    tables_of,
    whole_rows,
)

UNSENT, SENT, PARKED = 0, 1, 2
KEEP_S = 3 * DAY_S


@dataclass(frozen=True, slots=True)
class ParkedMessage:
    """
    A message that brokers refuse, as people see it; those behind it, of its key, wait.

    number   its place in the outbox
    key      its order key, None if it has none
    error    why it was refused
    since    when it was parked
    """

    number: int
    key: str | None
    message: Message
    error: str
    since: datetime


class Outbox:
    """
    Messages that belong to transactions of a database.

        with engine.begin() as connection:
            connection.execute(...)
            outbox.add(connection, Message("orders", "created"), key="order-7")
    """

    def __init__(self, engine: Engine, *, keep: float = KEEP_S, prefix: str = PREFIX) -> None:
        """
        engine   of the database of the business transactions
        keep     seconds that messages are kept which were sent
        prefix   of the tables' names: each prefix is an outbox of its own
        Raises ConfigError.
        """
        self.engine: Engine = check_engine(engine)
        self._keep = check_seconds(keep, "keep", 0.0, 3_650 * DAY_S)
        tables = tables_of(prefix)
        self.prefix: str = prefix
        self._table = tables.outbox
        self.leases: Table = tables.leases

    def add(self, connection: Connection, message: Message, *, key: str | None = None) -> str:
        """Keep a message in the transaction that `connection` is in; its id.

        key   messages of one topic and key are sent in the order of their transactions, to the
              queue that `shard=key` has. In PostgreSQL the transactions of a key go one after the
              other from here on; one with several keys should add them in a fixed order, else two
              may wait for each other (the database ends one). None: no order
        With asyncio: `await connection.run_sync(lambda c: outbox.add(c, message))`. Raises
        ConfigError, SQLAlchemyError.
        """
        check_connection(connection)
        values = message_values(message)
        if key is not None:
            check_key(key, "key")
            if connection.dialect.name == "postgresql":
                connection.execute(select(func.pg_advisory_xact_lock(
                    _lock_number(self._table.name, message.topic, key))))
        connection.execute(insert(self._table).values(
            **values, order_key=key, state=UNSENT, refusals=0, changed_ms=now_ms()))
        return str(values["message_id"])

    def waiting(self) -> int:
        """How many messages are not sent yet; those that are parked are not counted."""
        with self.engine.connect() as connection:
            return connection.execute(select(func.count()).select_from(self._table).where(
                self._table.c.state == UNSENT)).scalar_one()

    # -- people ------------------------------------------------------------------------------------

    def parked(self, *, rows_max: int = 100) -> list[ParkedMessage]:
        """Messages that brokers refused so often that people have to look, the oldest first,
        `rows_max` at most. Raises SQLAlchemyError."""
        table = self._table
        with self.engine.connect() as connection:
            rows = connection.execute(
                select(table).where(table.c.state == PARKED).order_by(table.c.id)
                .limit(check_count(rows_max, "rows_max", 1, 10_000)))
            return [ParkedMessage(row.id, row.order_key, shown_message(row), row.error or "",
                                  datetime.fromtimestamp(row.changed_ms / 1_000, UTC))
                    for row in rows]

    def try_again(self, number: int) -> bool:
        """Send the parked message with this `number` again, in its place; whether there was one.
        Raises SQLAlchemyError."""
        return self._unpark(number, UNSENT)

    def drop(self, number: int) -> bool:
        """Give the parked message with this `number` up for good: those behind it continue. Whether
        there was one. Raises SQLAlchemyError."""
        return self._unpark(number, SENT)

    def _unpark(self, number: int, state: int) -> bool:
        table = self._table
        with begin(self.engine) as connection:
            return connection.execute(
                update(table).where(
                    table.c.id == check_count(number, "number", 1, (1 << 63) - 1),
                    table.c.state == PARKED)
                .values(state=state, refusals=0, changed_ms=now_ms())).rowcount == 1

    def purge(self, *, rows_max: int = 100_000) -> int:
        """Forget messages that were sent more than `keep` seconds ago, `rows_max` at most; how
        many. Raises SQLAlchemyError."""
        table = self._table
        return purge(self.engine, table, table.c.state == SENT,
                     table.c.changed_ms <= now_ms() - int(self._keep * 1_000), rows_max=rows_max)

    # -- of the relay ------------------------------------------------------------------------------

    def page(
        self, after: int, without_topics: Collection[str], rows_max: int,
        without: Collection[int] = (),
    ) -> list[Row[Any]]:
        """Of the relay: the next unsent rows behind a number, in order.

        without_topics, without   topics and rows that are passed over
        None whose topic and key has an unsent row up to that number (it failed, or was committed
        since), or before it a parked one or one that is passed over.
        """
        table = self._table
        before = table.alias("before")
        of_key = (before.c.topic == table.c.topic, before.c.order_key == table.c.order_key)
        has_unsent = select(before.c.id).where(
            before.c.state == UNSENT, *of_key, before.c.id <= after).exists()
        has_parked = select(before.c.id).where(
            before.c.state == PARKED, *of_key, before.c.id < table.c.id).exists()
        conditions = [table.c.state == UNSENT, table.c.id > after,
                      table.c.topic.not_in(without_topics), ~has_unsent, ~has_parked]
        if without:
            conditions += [table.c.id.not_in(without), ~select(before.c.id).where(
                before.c.id.in_(without), before.c.state == UNSENT, *of_key,
                before.c.id < table.c.id).exists()]
        with self.engine.connect() as connection:
            return whole_rows(connection, table, select(table).where(*conditions).order_by(
                table.c.id).limit(rows_max))

    def settle(self, sent: Iterable[int]) -> None:
        """Of the relay: these are stored."""
        numbers = list(sent)
        if not numbers:
            return
        with begin(self.engine) as connection:
            connection.execute(
                update(self._table).where(self._table.c.id.in_(numbers))
                .values(state=SENT, changed_ms=now_ms(), error=None))

    def refused(self, rows: Iterable[Row[Any]], error: str, refusals_max: int) -> list[int]:
        """Of the relay: brokers, or the client, will not have these; the numbers of rows that are
        parked now."""
        last: list[int] = []
        others: list[int] = []
        for row in rows:
            (last if row.refusals + 1 >= refusals_max else others).append(row.id)
        table = self._table
        with begin(self.engine) as connection:
            for state, numbers in ((PARKED, last), (UNSENT, others)):
                connection.execute(
                    update(table).where(table.c.id.in_(numbers), table.c.state == UNSENT)
                    .values(state=state, refusals=table.c.refusals + 1, error=error,
                            changed_ms=now_ms()))
        return last


def _lock_number(table: str, topic: str, key: str) -> int:
    """64 bits, with sign, that stand for a key; two keys with the same wait for each other."""
    digest = hashlib.blake2b("\0".join((table, topic, key)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
