"""The transaction log: the database says what became of a local transaction.

A row is written in the local transaction, so it is there if, and only if, that committed. An
answer ROLLBACK writes a tombstone in its place first: a local transaction that would commit later
fails by the primary key. So no answer depends on a clock; the grace time only spares transactions
that run long.
"""
from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Final, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    case,
    exists,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.exc import IntegrityError

from mqcore.client import (
    Admin,
    AsyncTransactionProducer,
    ClientError,
    ConfigError,
    LocalTransactionState,
    Message,
    NoRouteError,
    ReceivedMessage,
    RocketMQError,
    TransactionProducer,
)
from mqcore.client.patterns.tables import (
    DAY_S,
    PREFIX,
    UNIQ_KEY,
    begin,
    check_connection,
    check_count,
    check_engine,
    check_key,
    check_seconds,
    check_whole,
    now_ms,
    purge,
    tables_of,
)

GRACE_S = 60.0
KEEP_S = 7 * DAY_S          # longer than brokers keep half messages (72 h), and ask about them
LOCK_WAIT_MS = 2_000        # that a check waits for a local transaction which runs just now

COMMITTED, TOMBSTONE, WATERMARK = 1, 2, 3
_ANSWERS = {COMMITTED: LocalTransactionState.COMMIT, TOMBSTONE: LocalTransactionState.ROLLBACK}
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"   # where brokers put what they asked about too often
CODE_NO_MESSAGE = 208
PAGE_ROWS = 500                                 # of that topic's queues, looked at together
_WATERMARK_ID = "(forgotten)"       # its recorded_ms: no row up to then is sure to be there
T = TypeVar("T")

log: Final = logging.getLogger("mqcore.client")


class RolledBack(ClientError):
    """The local transaction took longer than the grace time: ROLLBACK was answered, the message is
    gone, and this transaction must not commit. Begin again with a new message."""


class TransactionLog:
    """
    Answers brokers about local transactions of one database.

        log = TransactionLog(engine)
        with TransactionProducer("shop", check=log.check) as producer:
            with log.transaction(producer, message) as connection:
                connection.execute(...)
    """

    def __init__(
        self, engine: Engine, *, grace: float = GRACE_S, keep: float = KEEP_S,
        prefix: str = PREFIX,
    ) -> None:
        """
        engine   of the database that the local transactions are in
        grace    seconds after which a half message without a row is rolled back: longer than a
                 local transaction takes
        keep     seconds that rows are kept: longer than brokers keep half messages
        prefix   of the tables' names
        Raises ConfigError.
        """
        self._engine = check_engine(engine)
        self._grace = check_seconds(grace, "grace", 0.0, DAY_S)
        self._keep = check_seconds(keep, "keep", 60.0, 3_650 * DAY_S)
        self._table = tables_of(prefix).transactions
        self._resumed = tables_of(prefix).resumed

    def record(self, connection: Connection, message: Message) -> None:
        """Write the row of a half message, in the local transaction that `connection` is in.

        Raises RolledBack when a check has answered ROLLBACK meanwhile; the transaction has to be
        rolled back then, which leaving its context by this exception does. Raises ConfigError for
        a message that is not sent as a half message yet, SQLAlchemyError.
        """
        key = message.unique_key
        if key is None:
            raise ConfigError("message: expected one whose half message is stored: enter"
                              " producer.transaction(message) first")
        values = {"message_id": check_key(key, "message id"), "state": COMMITTED,
                  "recorded_ms": now_ms()}
        try:
            check_connection(connection).execute(insert(self._table).values(values))
        except IntegrityError as error:
            raise RolledBack(
                f"{key}: the local transaction was answered ROLLBACK {self._grace:g} s after its"
                " half message, or was recorded before", topic=message.topic) from error

    @contextlib.contextmanager
    def transaction(
        self, producer: TransactionProducer, message: Message, *, timeout: float | None = None,
    ) -> Iterator[Connection]:
        """Store the half message, and hand out a connection in a transaction that has its row.

        producer   whose `check` is this log's
        timeout    seconds for the send of the half message; None: the producer's send_timeout
        Leaving it well commits the transaction, then the message. An exception in the block rolls
        both back. When the commit itself fails its outcome is unknown: the message is
        left open, and `check` decides; so it does when the block has ended the transaction itself,
        which raises InvalidRequestError at the latest when the block is left. Raises like
        TransactionProducer.transaction, RolledBack, SQLAlchemyError.
        """
        with self._engine.connect() as connection, \
                producer.transaction(message, timeout=timeout) as half, connection.begin() as local:
            try:
                self.record(connection, message)
                yield connection
                check_whole(connection, self._has(message))
            except BaseException:
                if local.is_active:
                    half.rollback()         # COMMIT was not tried, so it cannot have happened
                    local.rollback()
                raise

    async def run(
        self, producer: AsyncTransactionProducer, message: Message,
        work: Callable[[Connection], T], *, timeout: float | None = None,
    ) -> T:
        """The same with asyncio: `work(connection)` runs in a thread; what it returns.

        producer   whose `check` is this log's
        message    whose half is stored first
        timeout    seconds for its send; None: the producer's send_timeout
        Raises like `transaction`, and what `work` raises.
        """
        async with producer.transaction(message, timeout=timeout) as half:
            has_failed = False

            def work_here() -> T:
                nonlocal has_failed
                with self._engine.connect() as connection, connection.begin() as local:
                    try:
                        self.record(connection, message)
                        result = work(connection)
                        check_whole(connection, self._has(message))
                        return result
                    except BaseException:
                        has_failed = local.is_active
                        raise

            try:
                return await asyncio.to_thread(work_here)
            except BaseException:
                if has_failed:
                    half.rollback()
                raise

    def check(self, message: ReceivedMessage) -> LocalTransactionState:
        """The `check` of a transaction producer: COMMIT if the row of this message is there,
        ROLLBACK when it never will be, UNKNOWN otherwise.

        Raises SQLAlchemyError when the database does not answer: the broker asks again then.
        """
        key = message.properties.get(UNIQ_KEY)
        if key is None:
            return LocalTransactionState.UNKNOWN        # no row could ever be found
        found = self._state(key)
        if found is not None:
            return _ANSWERS[found]
        age_s = (now_ms() - message.born_timestamp_ms) / 1_000
        if age_s < self._grace or message.born_timestamp_ms <= self._watermark():
            return LocalTransactionState.UNKNOWN
        with contextlib.suppress(IntegrityError), begin(self._engine) as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text(f"set local lock_timeout = {LOCK_WAIT_MS}"))
            connection.execute(insert(self._table).values(
                message_id=key, state=TOMBSTONE, recorded_ms=now_ms()))
        return _ANSWERS.get(self._state(key) or 0, LocalTransactionState.UNKNOWN)

    def purge(self, *, rows_max: int = 100_000) -> int:
        """Forget rows that are older than `keep`, `rows_max` at most; how many.

        A half message that is as old as a forgotten row is answered UNKNOWN from then on, never
        ROLLBACK, whatever the clocks say. Raises SQLAlchemyError.
        """
        table, until = self._table, now_ms() - int(self._keep * 1_000)

        def remember(connection: Connection) -> None:
            newest = connection.execute(
                select(func.max(table.c.recorded_ms)).where(*old)).scalar_one()
            if newest is None:
                return
            moved = connection.execute(
                update(table).where(table.c.message_id == _WATERMARK_ID)
                .values(recorded_ms=case((table.c.recorded_ms < newest, newest),
                                         else_=table.c.recorded_ms)))
            if moved.rowcount == 0:
                connection.execute(insert(table).values(
                    message_id=_WATERMARK_ID, state=WATERMARK, recorded_ms=newest))

        old = (table.c.recorded_ms < until, table.c.state != WATERMARK)
        count = purge(self._engine, table, *old, rows_max=rows_max, before_step=remember)
        if count < rows_max:
            resumed = self._resumed
            purge(self._engine, resumed, resumed.c.resumed_ms < until,
                  ~exists().where(table.c.message_id == resumed.c.message_id),
                  rows_max=rows_max - count)
        return count

    def resume_given_up(self, admin: Admin, *, rows_max: int = 100_000) -> int:
        """Have the producers asked again about messages that brokers gave up, and whose local
        transaction is committed; how many. A job for every few minutes.

        admin      of the cluster that the messages were sent to
        rows_max   at most so many
        A producer of their group has to run, with `check`: its answer is what lets them be seen.
        Each record that a broker put aside is resumed once, and once more when a run was killed
        before it noted that; its message comes twice then, with one message id. A message given up
        again is a new record. One that its broker has deleted meanwhile is logged. Raises
        RocketMQError of a broker that did not resume, after the others did; SQLAlchemyError.
        """
        if not isinstance(admin, Admin):
            raise ConfigError(f"admin: expected an Admin, not {type(admin).__name__}")
        check_count(rows_max, "rows_max", 1, 1_000_000_000)
        count, failures = 0, dict[str, RocketMQError]()
        begin_ms: int | None = now_ms() - int(self._keep * 1_000)   # before, no row is there
        while begin_ms is not None and count < rows_max:
            try:
                page = admin.read(GIVEN_UP_TOPIC, count=PAGE_ROWS, begin=datetime.fromtimestamp(
                    max(0, begin_ms) / 1_000, UTC))
            except NoRouteError:
                break                       # no broker ever gave one up
            failures.update((each.name, each.error) for each in page.unreachable)
            for message in self._to_resume(page):
                name = message.queue.broker_name
                if count == rows_max or name in failures:
                    continue
                try:
                    count += self._resume(admin, message)
                except RocketMQError as error:
                    failures[name] = error
            begin_ms = _next_page_ms(page, begin_ms) if page.more else None
        for failure in failures.values():
            raise failure
        return count

    def _to_resume(self, messages: Iterable[ReceivedMessage]) -> list[ReceivedMessage]:
        """Those whose local transaction is committed, and which were not resumed yet."""
        found = [(message.offset_message_id, message.properties.get(UNIQ_KEY), message)
                 for message in messages]
        table, resumed = self._table, self._resumed
        with self._engine.connect() as connection:
            committed = list(connection.execute(select(table.c.message_id).where(
                table.c.message_id.in_({key for _, key, _ in found}),
                table.c.state == COMMITTED)).scalars())
            done = {(row.half_id, row.message_id) for row in connection.execute(
                select(resumed).where(resumed.c.message_id.in_(committed)))}
        return [message for half_id, key, message in found
                if key in committed and (half_id, key) not in done]

    def _resume(self, admin: Admin, message: ReceivedMessage) -> bool:
        """Have the producers asked about one, and note that; False: the broker has deleted it."""
        half_id, key = message.offset_message_id, message.properties[UNIQ_KEY]
        try:
            admin.resume_transaction(half_id, broker=message.queue.broker_name)
        except ClientError as error:
            if error.code != CODE_NO_MESSAGE:
                raise
            log.error("the local transaction of %s is committed, and its message is deleted: %s",
                      key, error)
            return False
        with contextlib.suppress(IntegrityError), begin(self._engine) as connection:
            connection.execute(insert(self._resumed).values(
                half_id=half_id, message_id=key, resumed_ms=now_ms()))
        return True

    def _has(self, message: Message) -> ColumnElement[bool]:
        return self._table.c.message_id == message.unique_key

    def _state(self, key: str) -> int | None:
        with self._engine.connect() as connection:
            return connection.execute(select(self._table.c.state).where(
                self._table.c.message_id == key)).scalar_one_or_none()

    def _watermark(self) -> int:
        with self._engine.connect() as connection:
            return connection.execute(select(self._table.c.recorded_ms).where(
                self._table.c.message_id == _WATERMARK_ID)).scalar_one_or_none() or 0


def _next_page_ms(page: Iterable[ReceivedMessage], begin_ms: int) -> int:
    """Where the next page begins: at the last message of the queue that was cut first."""
    ends: dict[object, list[int]] = {}
    for message in page:
        ends.setdefault(message.queue, []).append(message.store_timestamp_ms)
    cut = [max(times) for times in ends.values() if len(times) >= PAGE_ROWS]
    return max(min(cut), begin_ms + 1)
