"""The idempotent consumer: a message that comes twice has one effect.

The row that says "done" is written in the transaction of the effect, before it: of two deliveries
at the same time the database lets one through, and the other waits for its outcome.
"""
from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from sqlalchemy import ColumnElement, Connection, Engine, and_, insert, select
from sqlalchemy.exc import IntegrityError

from mqcore.client import ReceivedMessage
from mqcore.client.patterns.tables import (
    DAY_S,
    PREFIX,
    check_connection,
    check_engine,
    check_function,
    check_key,
    check_seconds,
    check_whole,
    identity,
    now_ms,
    purge,
    tables_of,
)

KEEP_S = 7 * DAY_S          # longer than brokers keep messages (72 h) and bring them again

F = TypeVar("F", bound=Callable[..., Any])
Effect = Callable[[ReceivedMessage, Connection], object]

log: Final = logging.getLogger("mqcore.client.patterns")


class IdempotentConsumer:
    """Runs the effect of a message once for a consumer group, in a transaction of the database."""

    def __init__(
        self, engine: Engine, group: str, *, key: Callable[[ReceivedMessage], str] | None = None,
        keep: float = KEEP_S, prefix: str = PREFIX,
    ) -> None:
        """
        engine   of the database that the effects are in
        group    the consumer group: each has its own effects
        key      what two deliveries of the same message have in common; None: the message id,
                 the same for all tries of one send and all deliveries. A business key, such as
                 `lambda message: f"paid:{message.keys[0]}"`, holds for messages that the
                 application sent twice, too
        keep     seconds that keys are kept: longer than a message may come again
        prefix   of the tables' names
        Raises ConfigError.
        """
        self._engine = check_engine(engine)
        self._group = check_key(group, "group")
        if key is not None:
            check_function(key, "key")
        self._key = key or identity
        self._keep = check_seconds(keep, "keep", 60.0, 3_650 * DAY_S)
        self._table = tables_of(prefix).consumed

    def consume(self, message: ReceivedMessage, effect: Effect) -> bool:
        """Call `effect(message, connection)` unless this group has done so with this message.

        The connection is in a transaction, which is committed when `effect` returns: it must not
        end it itself. Returns whether it was called; False: a duplicate. Raises what `effect`
        raises, SQLAlchemyError (also when the transaction was rolled back on the way), and
        ConfigError for a key that no row can have or an engine without transactions: nothing is
        kept then, and the message may come again.
        """
        key = check_key(self._key(message), "key")
        row = {"consumer_group": self._group, "message_key": key, "consumed_ms": now_ms()}
        with self._engine.connect() as connection, connection.begin() as transaction:
            check_connection(connection)
            try:
                connection.execute(insert(self._table).values(row))
            except IntegrityError as error:
                transaction.rollback()
                refused = error
            else:
                effect(message, connection)
                check_whole(connection, self._has(key))
                return True
        # -- a second connection while the first is held could be one more than the pool has
        if not self._is_done(key):
            raise refused
        log.debug("group %s has done %s before", self._group, key)
        return False

    def listener(self, effect: Effect) -> Callable[[ReceivedMessage], None]:
        """A listener for PushConsumer, concurrent or orderly, and for AsyncPushConsumer with
        run_in_thread=True: it calls `effect(message, connection)`.

        What `effect` raises, Retry and Reject too, undoes the transaction and continues to the
        consumer. Raises ConfigError.
        """
        check_function(effect, "effect")

        def listen(message: ReceivedMessage) -> None:
            self.consume(message, effect)

        return _named(listen, effect)

    def async_listener(
        self, effect: Effect
    ) -> Callable[[ReceivedMessage], Coroutine[Any, Any, None]]:
        """The same for AsyncPushConsumer: `effect`, a plain function, runs in a thread of asyncio's
        default executor."""
        check_function(effect, "effect")

        async def listen(message: ReceivedMessage) -> None:
            await asyncio.to_thread(self.consume, message, effect)

        return _named(listen, effect)

    def purge(self, *, rows_max: int = 100_000) -> int:
        """Forget keys that are older than `keep`, `rows_max` at most; how many. Many short
        transactions, beside consumers that run. Raises SQLAlchemyError."""
        table = self._table
        return purge(self._engine, table, table.c.consumer_group == self._group,
                     table.c.consumed_ms < now_ms() - self._keep * 1_000, rows_max=rows_max)

    def _is_done(self, key: str) -> bool:
        with self._engine.connect() as connection:
            return connection.execute(select(self._table.c.message_key).where(
                self._has(key))).first() is not None

    def _has(self, key: str) -> ColumnElement[bool]:
        return and_(self._table.c.consumer_group == self._group, self._table.c.message_key == key)


def _named(function: F, after: Callable[..., Any]) -> F:
    """The name of the application's function is what a consumer's warnings show."""
    function.__qualname__ = getattr(after, "__qualname__", repr(after))
    return function
