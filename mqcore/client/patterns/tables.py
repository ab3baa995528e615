"""The tables of the patterns, and what all patterns do with them."""
from __future__ import annotations

import contextlib
import functools
import inspect
import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Engine,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Row,
    Select,
    SmallInteger,
    String,
    Table,
    Text,
    delete,
    func,
    select,
    tuple_,
)
from sqlalchemy.exc import InvalidRequestError

from mqcore.client import (
    BrokerError,
    ConfigError,
    Message,
    NoRouteError,
    ReceivedMessage,
    RocketMQError,
    assign_message_id,
)

PREFIX = "mqcore_"
KEY_CHARACTERS_MAX = 255
ERROR_CHARACTERS_MAX = 1_000
PAGE_BYTES_MAX = 16 << 20            # of rows that are read together
AWAY_TOPICS_MAX = 1_000             # that a pass leaves out; with more it ends
PURGE_STEP_ROWS = 500               # of one transaction
DAY_S = 86_400.0
DIALECTS = ("sqlite", "postgresql")
UNIQ_KEY = "UNIQ_KEY"               # RocketMQ's names of properties
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
WAIT = "WAIT"

_NO_TEXT = re.compile("[\0\ud800-\udfff]")          # what databases have no text for
_NO_PROPERTY = re.compile("[\1\2\ud800-\udfff]")      # what messages have no text for
_PREFIX_FORM = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,30}")
_NUMBER = BigInteger().with_variant(Integer, "sqlite")      # SQLite counts only INTEGER keys
_KEY = String(KEY_CHARACTERS_MAX)


class Tables:
    """All tables of one prefix. Times are epoch ms, states small numbers that the pattern names."""

    def __init__(self, prefix: str) -> None:
        """Raises ConfigError for a prefix that is no beginning of a name."""
        if not isinstance(prefix, str) or not _PREFIX_FORM.fullmatch(prefix):
            raise ConfigError(f"prefix {prefix!r}: expected 1 to 31 of a-z A-Z 0-9 _, no digit"
                              " first")
        self.metadata: MetaData = MetaData()
        self.prefix: str = prefix
        self.consumed: Table = self._table(
            "consumed",
            Column("consumer_group", _KEY, primary_key=True),
            Column("message_key", _KEY, primary_key=True),
            Column("consumed_ms", BigInteger, nullable=False, index=True))
        self.transactions: Table = self._table(
            "transactions",
            Column("message_id", _KEY, primary_key=True),
            Column("state", SmallInteger, nullable=False),
            Column("recorded_ms", BigInteger, nullable=False, index=True))
        self.resumed: Table = self._table(
            "resumed",
            Column("half_id", _KEY, primary_key=True),      # the broker's, of what it gave up
            Column("message_id", _KEY, primary_key=True),
            Column("resumed_ms", BigInteger, nullable=False, index=True))
        self.pending: Table = self._table(
            "pending",
            Column("message_id", _KEY, primary_key=True), *_message_columns(),
            Column("send_count", Integer, nullable=False),
            Column("confirm", SmallInteger, nullable=False),
            Column("due_ms", BigInteger, nullable=False),
            Column("changed_ms", BigInteger, nullable=False),
            Column("error", Text))
        self._index(self.pending, "confirm", "due_ms")
        self.runs: Table = self._table(
            "runs",
            Column("name", _KEY, primary_key=True), Column("run_id", _KEY, primary_key=True),
            Column("state", SmallInteger, nullable=False),
            Column("data", Text, nullable=False),
            Column("turn", BigInteger, nullable=False),     # grows with each claim: fences others
            Column("due_ms", BigInteger, nullable=False),
            Column("changed_ms", BigInteger, nullable=False),
            Column("error", Text))
        self._index(self.runs, "name", "state", "due_ms")
        self.steps: Table = self._table(
            "steps",
            Column("name", _KEY, primary_key=True), Column("run_id", _KEY, primary_key=True),
            Column("position", Integer, primary_key=True, autoincrement=False),
            Column("step", _KEY, nullable=False),
            Column("state", SmallInteger, nullable=False),
            Column("tries", Integer, nullable=False),
            Column("result", Text, nullable=False))
        self.outbox: Table = self._table(
            "outbox",
            Column("id", _NUMBER, primary_key=True, autoincrement=True),
            Column("message_id", _KEY, nullable=False, unique=True),
            *_message_columns(),
            Column("order_key", _KEY),
            Column("state", SmallInteger, nullable=False),
            Column("refusals", Integer, nullable=False),
            Column("changed_ms", BigInteger, nullable=False),
            Column("error", Text))
        self._index(self.outbox, "state", "id")
        self._index(self.outbox, "state", "changed_ms")
        self._index(self.outbox, "state", "topic", "order_key", "id")
        self.leases: Table = self._table(
            "leases",
            Column("name", _KEY, primary_key=True),
            Column("owner", _KEY, nullable=False),
            Column("beat", BigInteger, nullable=False))

    def _table(self, name: str, *columns: Column[Any]) -> Table:
        # -- numbers of an outbox are never given twice: they are its order
        return Table(self.prefix + name, self.metadata, *columns, sqlite_autoincrement=True)

    def _index(self, table: Table, *columns: str) -> None:
        Index(f"ix_{table.name}_{'_'.join(columns)}", *(table.c[each] for each in columns))


def _message_columns() -> tuple[Column[Any], ...]:
    return (Column("topic", _KEY, nullable=False), Column("body", LargeBinary, nullable=False),
            Column("flag", Integer, nullable=False), Column("properties", Text, nullable=False))


@functools.lru_cache(maxsize=32)
def tables_of(prefix: str) -> Tables:
    """The tables of a prefix; raises ConfigError for one that is no beginning of a name."""
    return Tables(prefix)


def metadata(prefix: str = PREFIX) -> MetaData:
    """All tables of the patterns: for Alembic, `target_metadata = [yours, metadata()]`.

    prefix   what the names of the tables begin with
    Raises ConfigError.
    """
    return tables_of(prefix).metadata


def create_tables(engine: Engine, *, prefix: str = PREFIX) -> None:
    """Create those tables of all patterns that are missing.

    engine   of the database that they are for
    prefix   what their names begin with; patterns with another prefix share nothing
    Raises ConfigError for another database than SQLite or PostgreSQL, SQLAlchemyError.
    """
    tables_of(prefix).metadata.create_all(check_engine(engine))


# -- checks of arguments --------------------------------------------------------------------------


def check_engine(engine: Engine) -> Engine:
    """The engine itself; raises ConfigError unless it is one of a database that was tested."""
    if not isinstance(engine, Engine):
        raise ConfigError(f"engine: expected a sqlalchemy.Engine, not {type(engine).__name__}")
    if engine.dialect.name not in DIALECTS:
        raise ConfigError(f"engine: expected {' or '.join(DIALECTS)}, not {engine.dialect.name}")
    return engine


def check_connection(connection: Connection) -> Connection:
    """The connection itself; raises ConfigError unless it can be a part of a transaction."""
    if not isinstance(connection, Connection):
        raise ConfigError(f"connection: expected a sqlalchemy.Connection, not"
                          f" {type(connection).__name__}; with asyncio:"
                          " await connection.run_sync(...)")
    if connection.dialect.name not in DIALECTS:
        raise ConfigError(
            f"connection: expected {' or '.join(DIALECTS)}, not {connection.dialect.name}")
    if (connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT"
            or _commits_each_statement(connection)):
        raise ConfigError("connection: expected one with transactions, not AUTOCOMMIT")
    return connection


def _commits_each_statement(connection: Connection) -> bool:
    """Whether its driver has no transaction, and begins none before a change."""
    if getattr(connection.connection.dbapi_connection, "autocommit", None) is True:
        return True
    if connection.dialect.name != "sqlite":
        return False
    if not connection.in_transaction():
        connection.begin()              # an application's own BEGIN runs now, as it would later
    driver = connection.connection.driver_connection
    # -- sqlite3 begins a transaction before a change by itself unless isolation_level is None
    return (getattr(driver, "isolation_level", "") is None
            and not getattr(driver, "in_transaction", True))


@contextlib.contextmanager
def begin(engine: Engine) -> Iterator[Connection]:
    """A connection in a transaction, which is committed by leaving it well; raises ConfigError
    when the engine's connections have none (AUTOCOMMIT), SQLAlchemyError."""
    with engine.begin() as connection:
        yield check_connection(connection)


def check_whole(connection: Connection, row: ColumnElement[bool]) -> None:
    """Raises unless the transaction that wrote a row is still the one that is to be committed.

    row   what finds it, in its table
    InvalidRequestError: the transaction was ended meanwhile, or the database rolled it back by
    itself. DBAPIError: one of its statements failed in PostgreSQL, and the error was caught;
    PostgreSQL then rolls it back at the commit without an error.
    """
    if connection.execute(select(1).where(row)).first() is None:
        raise InvalidRequestError("the transaction was rolled back before its end")


def check_key(key: str, parameter: str) -> str:
    """The key itself; raises ConfigError when a row cannot have it."""
    if (not isinstance(key, str) or not 0 < len(key) <= KEY_CHARACTERS_MAX
            or _NO_TEXT.search(key)):
        raise ConfigError(f"{parameter} {key!r:.300}: expected a str of 1 to {KEY_CHARACTERS_MAX}"
                          " characters, without NUL or a lone surrogate")
    return key


def check_seconds(value: float, parameter: str, low: float, high: float) -> float:
    """The value itself; raises ConfigError unless it is seconds in the range."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ConfigError(f"{parameter} {value!r}: expected {low:g} to {high:g} seconds")
    return float(value)


def check_count(value: int, parameter: str, low: int, high: int) -> int:
    """The value itself; raises ConfigError unless it is a whole number in the range."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{parameter} {value!r}: expected a whole number, {low} to {high}")
    return value


def check_function(function: object, parameter: str) -> None:
    """Raises ConfigError for what cannot be called, or would not do its work when it is."""
    if not callable(function):
        raise ConfigError(f"{parameter} {function!r}: expected a function")
    if inspect.iscoroutinefunction(function):
        raise ConfigError(f"{parameter} {function!r}: expected a plain function; it is called in a"
                          " thread, with a connection that blocks")


# -- rows -----------------------------------------------------------------------------------------


def now_ms() -> int:
    """Epoch ms."""
    return time.time_ns() // 1_000_000


def error_text(error: BaseException) -> str:
    """The text of an error that is kept for people."""
    try:
        said = str(error)
    except Exception:                   # the application's class: whatever it raises
        said = "(it cannot be told)"
    return _NO_TEXT.sub("?", f"{type(error).__name__}: {said}"[:ERROR_CHARACTERS_MAX])


def is_no_such_topic(error: RocketMQError) -> bool:
    """Whether a send failed because its topic is not there, as name servers say."""
    return isinstance(error, NoRouteError) and error.is_no_such_topic


def is_about_message(error: RocketMQError) -> bool:
    """Whether a send failed for what the message is, or where it goes to: it would fail again."""
    return isinstance(error, ConfigError | BrokerError) and not error.retryable


def identity(message: ReceivedMessage) -> str:
    """The id that all sends and deliveries of a message share: UNIQ_KEY, or without one the
    broker's id of its first delivery."""
    properties = message.properties
    return (properties.get(UNIQ_KEY) or properties.get(ORIGIN_MESSAGE_ID)
            or message.offset_message_id)


def message_values(message: Message) -> dict[str, Any]:
    """The columns that keep a message to send, its id among them; raises ConfigError."""
    if not isinstance(message, Message):
        raise ConfigError(f"message: expected a Message, not {type(message).__name__}")
    check_key(message.topic, "topic")
    # -- its attributes are anybody's to set: what they are now
    made = Message(message.topic, message.body, flag=message.flag)
    if not made.body:
        raise ConfigError("body: expected at least one byte")
    for name, value in message.properties.items():
        if (not isinstance(name, str) or not isinstance(value, str)
                or _NO_PROPERTY.search(name + value)):
            raise ConfigError(f"property {name!r:.100}: {value!r:.100}: expected two str without"
                              " the characters 1 and 2 or a lone surrogate")
    message_id = check_key(assign_message_id(message), "message id")
    properties = {**message.properties, WAIT: "true"}       # what is kept here is waited for
    return {"message_id": message_id, "topic": made.topic, "body": made.body,
            "flag": made.flag, "properties": json.dumps(properties)}


def message_of(row: Row[Any]) -> Message:
    """The message that a row keeps, with its id."""
    message = Message(row.topic, row.body, flag=row.flag)
    properties = json.loads(row.properties)
    message.properties = {str(name): str(value) for name, value in properties.items()}
    return message


def shown_message(row: Row[Any]) -> Message:
    """The same for people, without what no message can have."""
    try:
        return message_of(row)
    except (TypeError, ValueError):         # ConfigError is one
        return Message(row.topic, row.body)


def whole_rows(connection: Connection, table: Table, chosen: Select[Any]) -> list[Row[Any]]:
    """The first rows that a statement chooses, in its order: PAGE_BYTES_MAX of bodies, one row at
    least; without those that are not chosen any more when they are read."""
    (key,) = table.primary_key.columns
    size = func.length(table.c.body) + func.length(table.c.properties)
    numbers: list[Any] = []
    left = PAGE_BYTES_MAX
    for number, row_bytes in connection.execute(chosen.with_only_columns(key, size)).all():
        left -= row_bytes
        if numbers and left < 0:
            break
        numbers.append(number)
    return list(connection.execute(chosen.where(key.in_(numbers))))


def purge(
    engine: Engine, table: Table, *conditions: ColumnElement[bool], rows_max: int,
    before_step: Callable[[Connection], None] | None = None,
) -> int:
    """Delete rows in transactions of PURGE_STEP_ROWS, up to `rows_max`; how many went.

    before_step   called in the transaction of each step, before it deletes
    """
    check_count(rows_max, "rows_max", 1, 1_000_000_000)
    keys = tuple_(*table.primary_key.columns)
    deleted = 0
    while deleted < rows_max:
        step = min(PURGE_STEP_ROWS, rows_max - deleted)
        with begin(engine) as connection:
            if before_step is not None:
                before_step(connection)
            count = connection.execute(delete(table).where(*conditions, keys.in_(
                select(*table.primary_key.columns).where(*conditions).limit(step)))).rowcount
        deleted += count
        if count < step:
            break
    return deleted
