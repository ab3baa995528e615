"""The relay of an outbox: one relay at a time sends, the others look on."""
from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from types import TracebackType
from typing import Any, Final, Self

from sqlalchemy import Engine, Row, Table, insert, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from mqcore.client import (
    BrokerError,
    ClosedError,
    ConfigError,
    Message,
    Producer,
    RocketMQError,
    SendManyError,
    SendResult,
)
from mqcore.client.patterns.outbox import Outbox
from mqcore.client.patterns.tables import (
    AWAY_TOPICS_MAX,
    UNIQ_KEY,
    begin,
    check_count,
    check_seconds,
    error_text,
    is_about_message,
    is_no_such_topic,
    message_of,
)

BACKOFF_MAX_S = 30.0
RESTS_MAX = 1_000               # topics and messages that failed and rest, each
PASS_ROWS_MAX = 10_000
SYSTEM_ERROR = 1                # the code of answers that do not say whose fault it is
UNKNOWN_MAX = 20                # such answers without a message stored: the brokers are away

log: Final = logging.getLogger("mqcore.client.patterns")


@dataclass(slots=True)
class _Outcome:
    """
    The outcome of rows of one topic, by their numbers.

    stored   brokers have them
    failed   each for itself: others of the topic may be stored
    is_away  no other of the topic would be stored now
    """

    stored: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    is_away: bool = False


class Lease:
    """
    A row that one owner at a time holds.

    The holder counts its `beat` up. A relay that sees it stand still for `seconds`, by a
    clock that is never set, takes the row: no two machines' clocks are compared.
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
                with begin(self._engine) as connection:
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
        with begin(self._engine) as connection:
            connection.execute(update(self._table).where(
                self._table.c.name == self._name, self._table.c.owner == self._owner)
                .values(owner="", beat=self._table.c.beat + 1))

    def _change(self, seen: tuple[str, int], owner: str) -> bool:
        table = self._table
        with begin(self._engine) as connection:
            return connection.execute(
                update(table).where(table.c.name == self._name, table.c.owner == seen[0],
                                    table.c.beat == seen[1])
                .values(owner=owner, beat=seen[1] + 1)).rowcount == 1


class Rests:
    """Failed topics and rows. Each rests, twice as long each time, up to BACKOFF_MAX_S."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._found: dict[Any, tuple[float, float]] = {}    # until when, and how long

    def failed(self, what: str | int, interval: float) -> None:
        """It rests for 2 `interval` seconds, or twice as long as the last time."""
        last = self._found.pop(what, (0.0, interval))[1]
        pause = min(2 * last, max(interval, BACKOFF_MAX_S))
        if len(self._found) >= RESTS_MAX:
            del self._found[next(iter(self._found))]        # the one that failed longest ago
        self._found[what] = (self._clock() + pause, pause)

    def worked(self, what: str | int) -> None:
        """It has no pause next time."""
        self._found.pop(what, None)

    def now(self) -> list[Any]:
        """Topics and rows that rest just now, in no order."""
        time_s = self._clock()
        return [what for what, (until, _) in self._found.items() if until > time_s]


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
        self._topics = Rests()
        self._rows = Rests()

    def run_once(self, *, rows_max: int = PASS_ROWS_MAX) -> int:
        """Send what waits, about `rows_max` messages at most; how many were sent. 0 also while
        another relay is at work.

        Failures of brokers are logged: what is behind them in their topic and key waits. Raises
        ClosedError when the producer is not running, SQLAlchemyError.
        """
        return self._pass(check_count(rows_max, "rows_max", 1, 1_000_000_000), None)

    def _pass(self, rows_max: int, interval: float | None) -> int:
        """Send what waits; with an interval (seconds) but for what failed a short while ago."""
        sent = after = 0
        away: set[str] = set()          # topics whose brokers do not answer, or that are not there
        resting: list[int] = []
        if interval is not None:
            away.update(self._topics.now())
            resting = self._rows.now()
        while sent < rows_max and len(away) <= AWAY_TOPICS_MAX and self._lease.hold():
            rows = self._outbox.page(after, sorted(away), self._batch, resting)
            if not rows:
                break
            after = rows[-1].id
            for topic, of_topic in groupby(sorted(rows, key=_topic_and_number), key=_topic):
                outcome = self._send(list(of_topic))
                sent += len(outcome.stored)
                if outcome.is_away:
                    away.add(topic)
                if interval is not None:
                    self._leave_alone(topic, outcome, interval)
        return sent

    def _leave_alone(self, topic: str, outcome: _Outcome, interval: float) -> None:
        if outcome.is_away:
            self._topics.failed(topic, interval)
        elif outcome.stored:
            self._topics.worked(topic)
        for number in outcome.stored:
            self._rows.worked(number)
        for number in outcome.failed:
            self._rows.failed(number, interval)

    def run(self, stop: threading.Event, *, interval: float = 0.5) -> None:
        """Send until `stop` is set; look for new messages every `interval` seconds.

        A database or a topic's brokers that are away, and messages that are refused, are logged
        and tried again, each less often each time; all others continue. With asyncio:
        `asyncio.to_thread(relay.run, stop)`. Raises ClosedError, ConfigError.
        """
        check_seconds(interval, "interval", 0.001, 3_600.0)
        pause = interval
        while not stop.is_set():
            try:
                sent = self._pass(PASS_ROWS_MAX, interval)
            except SQLAlchemyError as error:
                log.warning("the database of the outbox does not answer: %s", error)
                pause = min(2 * pause, max(interval, BACKOFF_MAX_S))
            else:
                pause = interval
                if sent:
                    continue
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

    def _send(self, rows: list[Row[Any]]) -> _Outcome:
        """Send rows of one topic together; if some are refused, find out one by one which."""
        outcome = _Outcome()
        made = self._made(rows, outcome)
        if not made:
            return outcome
        shards = {message.properties[UNIQ_KEY]: _shard(row) for row, message in made}
        results: Sequence[SendResult | RocketMQError]
        try:
            results = self._producer.send_many(
                [message for _, message in made], timeout=self._timeout, in_order=True,
                shard=lambda message: shards[message.properties[UNIQ_KEY]])
        except ClosedError:
            raise
        except RocketMQError as error:
            results = error.results if isinstance(error, SendManyError) else [error] * len(made)
            log.warning("messages of the outbox to %s were not sent: %s", rows[0].topic, error)
        outcome.stored = [row.id for (row, _), result in zip(made, results, strict=True)
                          if isinstance(result, SendResult)]
        self._outbox.settle(outcome.stored)
        errors = [result for result in results if isinstance(result, RocketMQError)]
        left = [each for each, result in zip(made, results, strict=True)
                if isinstance(result, RocketMQError)]
        if errors and all(is_no_such_topic(error) for error in errors):
            self._refuse(_heads(row for row, _ in left), errors[0], outcome)
            outcome.is_away = True
        elif any(isinstance(error, BrokerError) or is_about_message(error) for error in errors):
            self._send_alone(left, outcome)
        elif errors:
            outcome.is_away = not outcome.stored
            outcome.failed += [row.id for row, _ in left]
        return outcome

    def _made(self, rows: list[Row[Any]], outcome: _Outcome) -> list[tuple[Row[Any], Message]]:
        """The rows with their messages; without those that no message can be made of, and what is
        behind them in their key."""
        made: list[tuple[Row[Any], Message]] = []
        blocked: set[str] = set()
        for row in rows:
            if row.order_key in blocked:
                continue
            try:
                made.append((row, message_of(row)))
            except (TypeError, ValueError) as error:        # ConfigError is one
                if row.order_key is not None:
                    blocked.add(row.order_key)
                self._refuse([row], error, outcome)
        return made

    def _send_alone(self, made: list[tuple[Row[Any], Message]], outcome: _Outcome) -> None:
        """The same one by one, to find those that fail for themselves."""
        blocked: set[str] = set()
        unknown = 0                     # answers which do not say whose fault it is
        for row, message in made:
            if row.order_key in blocked:
                continue
            try:
                self._producer.send(message, timeout=self._timeout, shard=_shard(row))
            except ClosedError:
                raise
            except RocketMQError as error:
                if is_about_message(error):
                    self._refuse([row], error, outcome)
                else:
                    log.warning("message %d of the outbox was not sent: %s", row.id, error)
                    outcome.failed.append(row.id)
                    unknown += 1
                    if (error.code != SYSTEM_ERROR
                            or (unknown >= UNKNOWN_MAX and not outcome.stored)):
                        outcome.is_away = True
                        return
                if row.order_key is not None:
                    blocked.add(row.order_key)
            else:
                self._outbox.settle([row.id])
                outcome.stored.append(row.id)

    def _refuse(self, rows: list[Row[Any]], error: Exception, outcome: _Outcome) -> None:
        outcome.failed += [row.id for row in rows]
        for number in self._outbox.refused(rows, error_text(error), self._refusals_max):
            log.error("message %d of the outbox is refused and waits for people: %s", number, error)


def _heads(rows: Iterable[Row[Any]]) -> list[Row[Any]]:
    """The first row of each key, and all without one."""
    found: dict[object, Row[Any]] = {}
    for row in rows:
        found.setdefault(row.id if row.order_key is None else row.order_key, row)
    return list(found.values())


def _shard(row: Row[Any]) -> str:
    """The text that its queue is chosen by: without an order key any will do."""
    return str(row.message_id if row.order_key is None else row.order_key)


def _topic(row: Row[Any]) -> str:
    return str(row.topic)


def _topic_and_number(row: Row[Any]) -> tuple[str, int]:
    return row.topic, row.id
