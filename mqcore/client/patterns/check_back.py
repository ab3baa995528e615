"""The check-back table: messages that wait for the consumer's word.

A row with COUNT and CONFIRM is written in the business transaction. A job sends what is due, asks
or sends again after growing waits, and gives up to people after so many times. The consumer
confirms. COUNT is raised and committed before a send: a message that kills its sender is given up,
too.
"""
from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Row,
    and_,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.exc import SQLAlchemyError

from mqcore.client import (
    ClosedError,
    ConfigError,
    Message,
    Producer,
    ReceivedMessage,
    RocketMQError,
)
from mqcore.client.patterns.tables import (
    AWAY_TOPICS_MAX,
    DAY_S,
    PREFIX,
    begin,
    check_connection,
    check_count,
    check_engine,
    check_function,
    check_key,
    check_seconds,
    error_text,
    identity,
    is_about_message,
    is_no_such_topic,
    message_of,
    message_values,
    now_ms,
    purge,
    shown_message,
    tables_of,
    whole_rows,
)

WAITING, CONFIRMED, GIVEN_UP = 0, 1, 2      # CONFIRM
CONFIRMS = "CONFIRMS"                       # the property that a confirmation names a message by

Ask = Callable[[Message], bool | None]

log: Final = logging.getLogger("mqcore.client.patterns")


@dataclass(frozen=True, slots=True)
class PendingMessage:
    """
    A message that was given up, as people see it.

    count   how often it was sent, or was about to be
    error   why the last send failed; None: it did not
    since   when it was given up
    """

    message_id: str
    message: Message
    count: int
    error: str | None
    since: datetime


def confirmation(message: ReceivedMessage, topic: str) -> Message:
    """A consumer's word that its work is done and committed: the message that CheckBack waits
    for.

    message   the one that is done
    topic     that `confirm_listener` listens to
    Raises ConfigError.
    """
    key = identity(message)
    return Message(topic, key, keys=key, properties={CONFIRMS: key})


class CheckBack:
    """
    Messages that are sent until their consumer has confirmed them.

    `add` keeps one in the business transaction, `run` is the job that sends, `confirm_listener`
    hears the confirmations. Any number of jobs may run beside each other.
    """

    def __init__(
        self, engine: Engine, producer: Producer | None = None, *, ask: Ask | None = None,
        count_max: int = 5, wait: float = 30.0, wait_max: float = 3_600.0, keep: float = 7 * DAY_S,
        prefix: str = PREFIX,
    ) -> None:
        """
        engine     of the database of the business transactions
        producer   what the job sends with; None where no job runs
        ask        called before a message is sent again: whether its consumer has done it, as far
                   as can be told (None, or what it raises: cannot). True confirms it
        count_max  sends of a message, then it is given up to people
        wait       seconds for the first confirmation; twice as long each time, up to wait_max
        keep       seconds that confirmed messages are kept
        prefix     of the tables' names
        Raises ConfigError.
        """
        self._engine = check_engine(engine)
        if producer is not None and not isinstance(producer, Producer):
            raise ConfigError(f"producer: expected a Producer, not {type(producer).__name__}")
        if ask is not None:
            check_function(ask, "ask")
        self._producer = producer
        self._ask = ask
        self._count_max = check_count(count_max, "count_max", 1, 1_000)
        self._wait_ms = int(1_000 * check_seconds(wait, "wait", 0.001, 30 * DAY_S))
        self._wait_max_ms = int(1_000 * check_seconds(wait_max, "wait_max", wait, 30 * DAY_S))
        self._keep = check_seconds(keep, "keep", 60.0, 3_650 * DAY_S)
        self._table = tables_of(prefix).pending

    # -- the business transaction, and the word of the consumer ------------------------------------

    def add(self, connection: Connection, message: Message) -> str:
        """Keep a message in the transaction that `connection` is in; its id. The job sends it once
        that is committed. Raises ConfigError, SQLAlchemyError."""
        values = message_values(message)
        now = now_ms()
        check_connection(connection).execute(insert(self._table).values(
            **values, send_count=0, confirm=WAITING, due_ms=now, changed_ms=now))
        return str(values["message_id"])

    def confirm(self, message_id: str) -> bool:
        """The consumer has done it; whether that was new. Also of one that was given up.

        message_id   what `add` returned
        Raises ConfigError, SQLAlchemyError.
        """
        table = self._table
        with begin(self._engine) as connection:
            return connection.execute(
                update(table).where(table.c.message_id == check_key(message_id, "message_id"),
                                    table.c.confirm != CONFIRMED)
                .values(confirm=CONFIRMED, changed_ms=now_ms(), error=None)).rowcount == 1

    def confirm_listener(self, message: ReceivedMessage) -> None:
        """A listener for PushConsumer, on the topic of the confirmations. One that names no
        message is logged and done: it could never be otherwise."""
        try:
            key = check_key(message.properties.get(CONFIRMS, ""), CONFIRMS)
        except ConfigError as error:
            log.warning("%s is no confirmation: %s", message, error)
        else:
            self.confirm(key)

    # -- the job -----------------------------------------------------------------------------------

    def run_once(self, *, rows_max: int = 100) -> int:
        """Look at what is due, `rows_max` at most, and send, confirm or give up; how many.

        Raises ConfigError without a producer, ClosedError, SQLAlchemyError. A topic whose brokers
        are away, or that is not there, is passed over until the next time; brokers that are away
        do not count for the message.
        """
        if self._producer is None:
            raise ConfigError("producer: expected one for the job")
        check_count(rows_max, "rows_max", 1, 10_000)
        done: set[str] = set()
        away: set[str] = set()
        while len(done) < rows_max and len(away) <= AWAY_TOPICS_MAX:
            rows = [row for row in self._due(rows_max - len(done), away)
                    if row.message_id not in done]          # it may be due again by now
            if not rows:
                break
            for row in rows:
                if row.topic in away:
                    continue
                if self._turn(self._producer, row):
                    done.add(row.message_id)
                else:
                    away.add(row.topic)
        return len(done)

    def run(self, stop: threading.Event, *, interval: float = 1.0) -> None:
        """Run the job until `stop` is set, with pauses of `interval` seconds when nothing is due.

        A database or a broker that is away is logged, and tried again. With asyncio:
        `asyncio.to_thread(check_back.run, stop)`. Raises ConfigError, ClosedError.
        """
        check_seconds(interval, "interval", 0.001, DAY_S)
        while not stop.is_set():
            try:
                is_idle = not self.run_once()
            except SQLAlchemyError as error:
                log.warning("the database of the check-back table does not answer: %s", error)
                is_idle = True
            if is_idle:
                stop.wait(interval)

    def _due(self, rows_max: int, without_topics: Collection[str]) -> list[Row[Any]]:
        table = self._table
        with self._engine.connect() as connection:
            return whole_rows(
                connection, table, select(table).where(
                    table.c.confirm == WAITING, self._is_due(),
                    table.c.topic.not_in(without_topics))
                .order_by(table.c.due_ms).limit(rows_max))

    def _is_due(self) -> ColumnElement[bool]:
        """Its time has come; or lies so far ahead that the clock was set back since."""
        due, now = self._table.c.due_ms, now_ms()
        return or_(due <= now, due > now + 2 * self._wait_max_ms)

    def _turn(self, producer: Producer, row: Row[Any]) -> bool:
        """One row that is due; False when others of its topic would not be stored either."""
        try:
            message = message_of(row)
        except (TypeError, ValueError) as error:        # ConfigError is one
            self._change(row, confirm=GIVEN_UP, error=error_text(error))
            log.error("message %s to %s cannot be made and waits for people: %s", row.message_id,
                      row.topic, error)
            return True
        if row.send_count > 0 and self._is_done(message):
            self.confirm(row.message_id)
            return True
        if row.send_count >= self._count_max:
            self._change(row, confirm=GIVEN_UP)
            log.error("message %s to %s was sent %d times and not confirmed: it waits for people",
                      row.message_id, row.topic, row.send_count)
            return True
        wait_ms = min(self._wait_ms << min(row.send_count, 40), self._wait_max_ms)
        if not self._change(row, send_count=row.send_count + 1, due_ms=now_ms() + wait_ms):
            return True                     # another job has it, or it was confirmed just now
        try:
            producer.send(message)
        except RocketMQError as error:
            is_refused = is_about_message(error)
            self._failed(row, error, is_refused)
            if isinstance(error, ClosedError):
                raise
            return is_refused
        return True

    def _is_done(self, message: Message) -> bool:
        if self._ask is None:
            return False
        try:
            return self._ask(message) is True
        except Exception:               # the application's code: whatever it raises, it cannot tell
            log.warning("it is unknown whether message %s to %s is done", message.unique_key,
                        message.topic, exc_info=True)
            return False

    def _failed(self, row: Row[Any], error: RocketMQError, is_refused: bool) -> None:
        """A send that stored nothing does not count, unless there is no such topic; a message that
        is refused is given up."""
        log.warning("message %s to %s was not sent: %s", row.message_id, row.topic, error)
        table = self._table
        here = and_(table.c.message_id == row.message_id, table.c.confirm == WAITING,
                    table.c.send_count == row.send_count + 1)
        values: dict[str, Any] = {"error": error_text(error), "changed_ms": now_ms()}
        if error.stored is False and not is_no_such_topic(error):
            values["send_count"] = row.send_count
            values["due_ms"] = now_ms() + self._wait_ms
        if is_refused:
            values["confirm"] = GIVEN_UP
        with begin(self._engine) as connection:
            connection.execute(update(table).where(here).values(**values))

    def _change(self, row: Row[Any], **values: Any) -> bool:
        """Change a row if it has not changed since it was read."""
        table = self._table
        with begin(self._engine) as connection:
            return connection.execute(
                update(table).where(
                    table.c.message_id == row.message_id, table.c.confirm == row.confirm,
                    table.c.send_count == row.send_count, table.c.due_ms == row.due_ms)
                .values(**values, changed_ms=now_ms())).rowcount == 1

    # -- people ------------------------------------------------------------------------------------

    def given_up(self, *, rows_max: int = 100) -> list[PendingMessage]:
        """Messages that wait for people, the oldest first, `rows_max` at most. Raises
        SQLAlchemyError."""
        table = self._table
        with self._engine.connect() as connection:
            rows = connection.execute(
                select(table).where(table.c.confirm == GIVEN_UP).order_by(table.c.changed_ms)
                .limit(check_count(rows_max, "rows_max", 1, 10_000)))
            return [PendingMessage(row.message_id, shown_message(row), row.send_count, row.error,
                                   datetime.fromtimestamp(row.changed_ms / 1_000, UTC))
                    for row in rows]

    def try_again(self, message_id: str) -> bool:
        """Begin anew with one that was given up, by its `message_id`; whether it was. `confirm`
        ends one for good. Raises SQLAlchemyError."""
        table, now = self._table, now_ms()
        with begin(self._engine) as connection:
            return connection.execute(
                update(table).where(table.c.message_id == check_key(message_id, "message_id"),
                                    table.c.confirm == GIVEN_UP)
                .values(confirm=WAITING, send_count=0, due_ms=now, changed_ms=now, error=None)
            ).rowcount == 1

    def purge(self, *, rows_max: int = 100_000) -> int:
        """Forget messages that were confirmed more than `keep` seconds ago, `rows_max` at most; how
        many. Raises SQLAlchemyError."""
        table = self._table
        return purge(self._engine, table, table.c.confirm == CONFIRMED,
                     table.c.changed_ms < now_ms() - int(self._keep * 1_000), rows_max=rows_max)
