"""The idempotent consumer: one effect for a message, whoever delivers it how often and when."""
from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, event, insert, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError, InvalidRequestError

from mqcore.client import (
    AsyncPushConsumer,
    ConfigError,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    Reject,
)
from mqcore.client.patterns import IdempotentConsumer, Outbox, create_tables, idempotent
from mqcore.testing import Broker
from tests.patterns.databases import open_engine
from tests.patterns.messages import received
from tests.patterns.programs import business, effects
from tests.support.waiting import wait_until, wait_until_async


@pytest.fixture(autouse=True)
def _business(engine: Engine) -> None:
    business.create_all(engine)


def write(message: ReceivedMessage, connection: Connection) -> None:
    connection.execute(insert(effects).values(body=message.text()))


def bodies(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.execute(select(effects.c.body).order_by(effects.c.id)).scalars())


def test_a_message_has_its_effect_once_for_each_group(engine: Engine) -> None:
    groups = [IdempotentConsumer(engine, name) for name in ("a", "b")]

    assert [group.consume(received(), write) for group in groups * 2] == [True, True, False, False]
    assert bodies(engine) == ["x", "x"]


def test_an_effect_that_fails_leaves_nothing_and_is_tried_again(engine: Engine) -> None:
    once = IdempotentConsumer(engine, "a")

    def fail(message: ReceivedMessage, connection: Connection) -> None:
        write(message, connection)
        raise Reject

    for _ in range(2):
        with pytest.raises(Reject):
            once.consume(received(), fail)
    assert bodies(engine) == []
    assert once.consume(received(), write)


def test_an_error_of_the_effects_own_rows_is_no_duplicate(engine: Engine) -> None:
    once = IdempotentConsumer(engine, "a")

    def collide(message: ReceivedMessage, connection: Connection) -> None:
        for _ in range(2):
            connection.execute(insert(effects).values(id=1, body="x"))

    for _ in range(2):
        with pytest.raises(IntegrityError):
            once.consume(received(), collide)
    assert bodies(engine) == []


def test_an_error_that_the_effect_caught_cannot_make_a_commit_a_rollback(engine: Engine) -> None:
    """PostgreSQL says nothing when it is told to commit after a failed statement."""
    once = IdempotentConsumer(engine, "a")

    def insert_twice(message: ReceivedMessage, connection: Connection) -> None:
        for _ in range(2):
            with contextlib.suppress(IntegrityError):
                connection.execute(insert(effects).values(id=1, body="x"))

    if engine.dialect.name == "postgresql":
        with pytest.raises(DBAPIError, match="transaction is aborted"):
            once.consume(received(), insert_twice)
        assert bodies(engine) == []
        assert once.consume(received(), write)
    else:
        assert once.consume(received(), insert_twice)
        assert bodies(engine) == ["x"]


@pytest.mark.parametrize("fails", [False, True])
def test_of_two_deliveries_at_a_time_one_waits_for_the_other(engine: Engine, fails: bool) -> None:
    once = IdempotentConsumer(engine, "a")
    entered, may_end = threading.Event(), threading.Event()
    answers: list[object] = []

    def slow(message: ReceivedMessage, connection: Connection) -> None:
        write(message, connection)
        entered.set()
        may_end.wait(30)
        if fails:
            raise ValueError("later")

    def deliver(effect: Callable[[ReceivedMessage, Connection], None]) -> None:
        try:
            answers.append(once.consume(received(), effect))
        except ValueError:
            answers.append("failed")

    first = threading.Thread(target=deliver, args=(slow,))
    second = threading.Thread(target=deliver, args=(write,))
    first.start()
    assert entered.wait(30)
    second.start()
    second.join(0.2)
    assert second.is_alive()                    # neither done again nor called done
    may_end.set()
    first.join(30)
    second.join(30)
    assert set(answers) == ({"failed", True} if fails else {True, False})
    assert bodies(engine) == ["x"]


def test_what_tells_messages_apart(engine: Engine) -> None:
    once = IdempotentConsumer(engine, "a")
    by_order = IdempotentConsumer(engine, "b", key=lambda message: f"paid:{message.keys[0]}")

    assert once.consume(received("1"), write)
    assert once.consume(received("2"), write)
    assert once.consume(received(None, position=7), write)
    assert once.consume(received(None, position=8), write)
    first_id = received(None, position=7).offset_message_id
    assert not once.consume(received(None, position=99, ORIGIN_MESSAGE_ID=first_id), write)
    assert by_order.consume(received("1", KEYS="order-1"), write)
    assert not by_order.consume(received("2", KEYS="order-1"), write)
    assert by_order.consume(received("3", KEYS="order-2"), write)


@pytest.mark.parametrize("key", ["", "x" * 256, "a\0b", "a\ud800", 7, None])
def test_a_key_that_no_row_can_have_is_told(engine: Engine, key: object) -> None:
    once = IdempotentConsumer(engine, "a", key=lambda message: key)      # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="expected a str of 1 to 255"):
        once.consume(received(), write)
    assert bodies(engine) == []


def test_bad_arguments_are_told(engine: Engine) -> None:
    async def coroutine(message: ReceivedMessage, connection: Connection) -> None:
        raise AssertionError

    once = IdempotentConsumer(engine, "a")
    for wrong, said in (
            (lambda: IdempotentConsumer("sqlite://", "a"), "engine: expected"),
            (lambda: IdempotentConsumer(engine, ""), "group"),
            (lambda: IdempotentConsumer(engine, "a", keep=1), "keep 1: expected 60 to"),
            (lambda: IdempotentConsumer(engine, "a", key=3), "key 3: expected a function"),
            (lambda: IdempotentConsumer(engine, "a", prefix="7; drop"), "prefix '7; drop'"),
            (lambda: once.listener(coroutine), "expected a plain function"),
            (lambda: once.purge(rows_max=0), "rows_max 0")):
        with pytest.raises(ConfigError, match=said):
            wrong()


def test_old_keys_go_in_steps_and_no_more_than_asked(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    once, other = (IdempotentConsumer(engine, name, keep=3_600) for name in ("a", "b"))
    now = idempotent.now_ms()
    monkeypatch.setattr("mqcore.client.patterns.tables.PURGE_STEP_ROWS", 2)
    monkeypatch.setattr(idempotent, "now_ms", lambda: now - 3_601_000)
    for key in "12345":
        once.consume(received(key), write)
    other.consume(received("1"), write)
    monkeypatch.setattr(idempotent, "now_ms", lambda: now)
    once.consume(received("new"), write)

    assert once.purge(rows_max=3) == 3
    assert once.purge() == 2
    assert once.purge() == 0
    assert not once.consume(received("new"), write)
    assert not other.consume(received("1"), write)


def test_listeners_of_all_consumers(engine: Engine, running: Broker) -> None:
    topic = f"idempotent{engine.dialect.name}"
    once = [IdempotentConsumer(engine, name) for name in ("concurrent", "orderly", "asyncio")]
    with Producer("PG", namesrv=running.namesrv) as producer:
        for number in range(3):
            message = Message(topic, f"{number}")
            for _ in range(2):
                producer.send(message)

    def keys() -> int:
        with engine.connect() as connection:
            return int(connection.execute(
                text("select count(*) from mqcore_consumed")).scalar_one())

    assert once[0].listener(write).__qualname__ == "write"
    with PushConsumer(f"CG_{topic}", topic, once[0].listener(write), namesrv=running.namesrv,
                      start="earliest"), \
            PushConsumer(f"CO_{topic}", topic, once[1].listener(write), orderly=True,
                         namesrv=running.namesrv, start="earliest"):
        wait_until(lambda: keys() == 6, "six effects")

    async def consume() -> None:
        async with AsyncPushConsumer(f"CA_{topic}", topic, once[2].async_listener(write),
                                     namesrv=running.namesrv, start="earliest"):
            await wait_until_async(lambda: keys() == 9, "nine effects")

    asyncio.run(consume())
    assert sorted(bodies(engine)) == ["0"] * 3 + ["1"] * 3 + ["2"] * 3


@pytest.mark.parametrize("option", ["of the engine", "of its connections"])
def test_an_engine_without_transactions_is_refused_before_anything_is_kept(
    engine: Engine, option: str
) -> None:
    if option == "of the engine":
        auto = open_engine(str(engine.url), isolation_level="AUTOCOMMIT")
    else:
        auto = engine.execution_options(isolation_level="AUTOCOMMIT")
    with pytest.raises(ConfigError, match="not AUTOCOMMIT"):
        IdempotentConsumer(auto, "a").consume(received(), write)
    auto.dispose()
    assert bodies(engine) == []
    assert IdempotentConsumer(engine, "a").consume(received(), write)


@pytest.mark.parametrize("end", ["rollback", "commit"])
def test_an_effect_that_ends_the_transaction_is_told(engine: Engine, end: str) -> None:
    once = IdempotentConsumer(engine, "a")

    def quit_early(message: ReceivedMessage, connection: Connection) -> None:
        write(message, connection)
        getattr(connection, end)()

    with pytest.raises(InvalidRequestError):
        once.consume(received(), quit_early)
    assert bodies(engine) == ([] if end == "rollback" else ["x"])
    assert once.consume(received(), write) == (end == "rollback")


def test_a_rollback_that_the_database_makes_by_itself_is_told(tmp_path: Path) -> None:
    """SQLite, by a conflict clause; the effect goes on in the transaction after it."""
    engine = open_engine(f"sqlite:///{tmp_path / 'own.db'}")
    create_tables(engine)
    business.create_all(engine)
    once = IdempotentConsumer(engine, "a")

    def collide(message: ReceivedMessage, connection: Connection) -> None:
        for _ in range(2):
            with contextlib.suppress(IntegrityError):
                connection.execute(text("insert or rollback into effects values (1, 'x')"))
        write(message, connection)

    with pytest.raises(InvalidRequestError, match="rolled back before its end"):
        once.consume(received(), collide)
    assert bodies(engine) == []
    engine.dispose()


def test_an_application_may_begin_the_transactions_of_sqlite_itself(tmp_path: Path) -> None:
    """SQLAlchemy's recipe: the driver begins none, an event does."""
    engine = open_engine(f"sqlite:///{tmp_path / 'own.db'}")

    @event.listens_for(engine, "connect")
    def by_hand(driver: sqlite3.Connection, _: object) -> None:
        driver.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    create_tables(engine)
    business.create_all(engine)
    once = IdempotentConsumer(engine, "a")
    assert [once.consume(received(), write) for _ in range(2)] == [True, False]
    with engine.connect() as connection:
        Outbox(engine).add(connection, Message("T", "x"))
        connection.rollback()
    assert Outbox(engine).waiting() == 0
    engine.dispose()
