"""The relay of an outbox: one of them at a time sends, the others look on."""
from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from itertools import groupby
from types import TracebackType
from typing import Any, Final, Self

from sqlalchemy import Engine, Row, Table, insert, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from mqcore.client import (
    ClosedError,
    ConfigError,
    Producer,
    RocketMQError,
    SendManyError,
    SendResult,
)
from mqcore.client.patterns.outbox import Outbox
from mqcore.client.patterns.tables import (
    UNIQ_KEY,
    check_count,
    check_seconds,
    error_text,
    is_about_message,
    message_of,
)

BACKOFF_MAX_S = 30.0
AWAY_TOPICS_MAX = 1_000         # topics that a pass leaves out; with more of them it ends

log: Final = logging.getLogger("mqcore.client.patterns")


class Lease:
    """
    A row that one owner at a time holds.

    The holder counts its `beat` up. Who sees it stand still for `seconds`, by the clock that is
    never set, takes the row: no two machines' clocks are compared.
    """

    def __init__(self, engine: Engine, table: Table, name: str, seconds: float,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._table = table
        self._name = name
        self._seconds = seconds
        self._clock = clock
        self._owner = uuid.uuid4().hex
        self._seen = ("", 0)
        self._since = 0.0

    def hold(self) -> bool:
        """Take it, or show that the holder lives; whether it is held. Raises SQLAlchemyError."""
        table = self._table
        with self._engine.connect() as connection:
            row = connection.execute(select(table.c.owner, table.c.beat).where(
                table.c.name == self._name)).first()
        if row is None:
            try:
                with self._engine.begin() as connection:
                    connection.execute(insert(table).values(
                        name=self._name, owner=self._owner, beat=1))
            except IntegrityError:
                return False
            return True
        seen = (row.owner, row.beat)
        if row.owner not in ("", self._owner):
            if seen != self._seen:
                self._seen, self._since = seen, self._clock()
                return False
            if self._clock() - self._since < self._seconds:
                return False
        return self._change(seen, self._owner)

    def give_up(self) -> None:
        """Let another have it at once, if it is held."""
        with self._engine.begin() as connection:
            connection.execute(update(self._table).where(
                self._table.c.name == self._name, self._table.c.owner == self._owner)
                .values(owner="", beat=self._table.c.beat + 1))

    def _change(self, seen: tuple[str, int], owner: str) -> bool:
        table = self._table
        with self._engine.begin() as connection:
            return connection.execute(
                update(table).where(table.c.name == self._name, table.c.owner == seen[0],
                                    table.c.beat == seen[1])
                .values(owner=owner, beat=seen[1] + 1)).rowcount == 1


class OutboxRelay:
    """
    Sends what an outbox keeps, in order for each topic and key, at least once.

        with OutboxRelay(outbox, producer) as relay:
            relay.run(stop)
    """

    def __init__(
        self, outbox: Outbox, producer: Producer, *, batch: int = 200, refusals_max: int = 10,
        lease: float = 15.0, timeout: float = 5.0,
    ) -> None:
        """
        batch         rows that are read and sent together
        refusals_max  how often brokers may refuse a message (or the client: too large) before it is
                      parked for people, and its key with it
        lease         seconds without a sign of life after which another relay takes over
        timeout       seconds for each send
        Raises ConfigError.
        """
        if not isinstance(outbox, Outbox):
            raise ConfigError(f"outbox: expected an Outbox, not {type(outbox).__name__}")
        if not isinstance(producer, Producer):
            raise ConfigError(f"producer: expected a Producer, not {type(producer).__name__}")
        self._outbox = outbox
        self._producer = producer
        self._batch = check_count(batch, "batch", 1, 10_000)
        self._refusals_max = check_count(refusals_max, "refusals_max", 1, 1_000_000)
        self._timeout = check_seconds(timeout, "timeout", 0.001, 600.0)
        self._lease = Lease(outbox.engine, outbox.leases, f"{outbox.prefix}outbox",
                            check_seconds(lease, "lease", 0.001, 86_400.0))
        self._failed = False            # in the last pass something was not stored

    def run_once(self, *, rows_max: int = 10_000) -> int:
        """Send what waits, about `rows_max` messages at most; how many were sent. 0 also while
        another relay is at work.

        Failures of brokers are logged: what is behind them in their topic and key waits. Raises
        ClosedError when the producer is not running, SQLAlchemyError.
        """
        check_count(rows_max, "rows_max", 1, 1_000_000_000)
        self._failed = False
        sent = after = 0
        away: set[str] = set()          # topics whose brokers do not answer
        while sent < rows_max and len(away) <= AWAY_TOPICS_MAX and self._lease.hold():
            rows = self._outbox.page(after, sorted(away), self._batch)
            if not rows:
                break
            after = rows[-1].id
            for topic, of_topic in groupby(sorted(rows, key=_topic_and_number), key=_topic):
                stored, is_away = self._send(list(of_topic))
                sent += len(stored)
                if is_away:
                    away.add(topic)
        self._failed = self._failed or bool(away)
        return sent

    def run(self, stop: threading.Event, *, interval: float = 0.5) -> None:
        """Send until `stop` is set; look for new messages every `interval` seconds.

        A database or brokers that are away are logged and tried again, less often each time. With
        asyncio: `asyncio.to_thread(relay.run, stop)`. Raises ClosedError, ConfigError.
        """
        check_seconds(interval, "interval", 0.001, 3_600.0)
        pause = interval
        while not stop.is_set():
            try:
                if self.run_once() and not self._failed:
                    pause = interval
                    continue
            except SQLAlchemyError as error:
                log.warning("the database of the outbox does not answer: %s", error)
                self._failed = True
            pause = min(2 * pause, max(interval, BACKOFF_MAX_S)) if self._failed else interval
            stop.wait(pause)

    def close(self) -> None:
        """Let another relay take over at once. Raises SQLAlchemyError."""
        self._lease.give_up()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except SQLAlchemyError as failure:
            log.warning("the lease of the outbox runs out by itself: %s", failure)

    # -- the rows of one topic ---------------------------------------------------------------------

    def _send(self, rows: list[Row[Any]]) -> tuple[list[int], bool]:
        """The numbers of those that are stored, and whether the topic's brokers are away."""
        messages = [message_of(row) for row in rows]
        shards = {message.properties[UNIQ_KEY]: _shard(row)
                  for row, message in zip(rows, messages, strict=True)}
        try:
            self._producer.send_many(
                messages, timeout=self._timeout, in_order=True,
                shard=lambda message: shards[message.properties[UNIQ_KEY]])
        except ClosedError:
            raise
        except RocketMQError as error:
            outcomes = error.results if isinstance(error, SendManyError) else [error] * len(rows)
            log.warning("messages of the outbox to %s were not sent: %s", rows[0].topic, error)
        else:
            self._outbox.settle(row.id for row in rows)
            return [row.id for row in rows], False
        self._failed = True
        stored = [row.id for row, outcome in zip(rows, outcomes, strict=True)
                  if isinstance(outcome, SendResult)]
        self._outbox.settle(stored)
        if not any(isinstance(outcome, RocketMQError) and is_about_message(outcome)
                   for outcome in outcomes):
            return stored, not stored
        more, is_away = self._send_alone([row for row in rows if row.id not in stored])
        return stored + more, is_away

    def _send_alone(self, rows: list[Row[Any]]) -> tuple[list[int], bool]:
        """The same one by one, to find the one that is refused."""
        stored: list[int] = []
        blocked: set[str] = set()
        for row in rows:
            if row.order_key in blocked:
                continue
            try:
                self._producer.send(message_of(row), timeout=self._timeout, shard=_shard(row))
            except ClosedError:
                raise
            except RocketMQError as error:
                if not is_about_message(error):
                    log.warning("message %d of the outbox was not sent: %s", row.id, error)
                    return stored, True
                if row.order_key is not None:
                    blocked.add(row.order_key)
                if self._outbox.refused(row, error_text(error), self._refusals_max):
                    log.error("message %d of the outbox, key %s, is refused and waits for people:"
                              " %s", row.id, row.order_key, error)
            else:
                self._outbox.settle([row.id])
                stored.append(row.id)
        return stored, False


def _shard(row: Row[Any]) -> str:
    """What its queue is chosen by: without an order key any will do."""
    return str(row.message_id if row.order_key is None else row.order_key)


def _topic(row: Row[Any]) -> str:
    return str(row.topic)


def _topic_and_number(row: Row[Any]) -> tuple[str, int]:
    return row.topic, row.id
