"""The transaction log: message and local transaction agree, whatever the answers' time."""
from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from dataclasses import replace
from datetime import datetime

import pytest
from sqlalchemy import Connection, Engine, event, insert, select
from sqlalchemy.exc import DBAPIError, IntegrityError, InvalidRequestError, OperationalError

from mqcore.client import (
    Admin,
    AsyncTransactionProducer,
    ClientError,
    ConfigError,
    ConnectError,
    LocalTransactionState,
    Message,
    MessageQueue,
    ReceivedMessage,
    RocketMQError,
    TransactionProducer,
    assign_message_id,
)
from mqcore.client.admin import Found
from mqcore.client.patterns import (
    RolledBack,
    TransactionLog,
    create_tables,
    metadata,
    transaction_log,
)
from mqcore.testing import Broker
from mqcore.wire.records import decode_record
from tests.patterns.messages import first_deliveries, give_up, received
from tests.patterns.programs import business, orders
from tests.support.waiting import wait_until

COMMIT, ROLLBACK, UNKNOWN = (
    LocalTransactionState.COMMIT, LocalTransactionState.ROLLBACK, LocalTransactionState.UNKNOWN)
DAY_MS = 86_400_000
NOW_MS = round(time.time() * 1_000)


@pytest.fixture(autouse=True)
def _business(engine: Engine) -> None:
    business.create_all(engine)


def half(key: str) -> Message:
    message = Message("T", "x")
    message.properties["UNIQ_KEY"] = key
    return message


def committed(engine: Engine) -> list[int]:
    with engine.connect() as connection:
        return list(connection.execute(select(orders.c.id)).scalars())


def test_the_row_answers(engine: Engine) -> None:
    log = TransactionLog(engine, grace=60.0)
    with engine.begin() as connection:
        log.record(connection, half("1"))

    assert log.check(received("1")) is COMMIT
    assert log.check(received("2", age_s=59)) is UNKNOWN
    assert log.check(received("2", age_s=61)) is ROLLBACK
    assert log.check(received("2", age_s=0)) is ROLLBACK            # it stays
    assert log.check(received("1", age_s=1e6)) is COMMIT
    assert log.check(received(None, age_s=1e6)) is UNKNOWN


def test_nothing_commits_after_a_rollback_was_answered(engine: Engine) -> None:
    log = TransactionLog(engine, grace=0.0)
    assert log.check(received("1", age_s=1)) is ROLLBACK

    def late() -> None:
        with engine.begin() as connection:
            connection.execute(insert(orders).values(id=1))
            log.record(connection, half("1"))

    with pytest.raises(RolledBack, match="answered ROLLBACK"):
        late()
    assert committed(engine) == []


def test_a_clock_that_is_a_year_ahead_makes_no_wrong_answer(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = TransactionLog(engine)
    now = transaction_log.now_ms()
    monkeypatch.setattr(transaction_log, "now_ms", lambda: now + 365 * DAY_MS)
    assert log.check(received("1")) is ROLLBACK
    monkeypatch.setattr(transaction_log, "now_ms", lambda: now)
    with pytest.raises(RolledBack), engine.begin() as connection:
        log.record(connection, half("1"))


@pytest.mark.parametrize("commits", [True, False])
def test_a_check_waits_for_a_transaction_that_runs_just_now(engine: Engine, commits: bool) -> None:
    log = TransactionLog(engine, grace=0.0)
    answers: list[LocalTransactionState] = []
    checking = threading.Thread(target=lambda: answers.append(log.check(received("1", age_s=9))))
    with engine.connect() as connection, connection.begin() as local:
        log.record(connection, half("1"))
        checking.start()
        checking.join(0.2)
        assert checking.is_alive()
        if commits:
            local.commit()
        else:
            local.rollback()
    checking.join(30)
    assert answers == [COMMIT if commits else ROLLBACK]


def test_a_check_does_not_wait_for_ever(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is UNKNOWN to the producer, and the broker asks again."""
    monkeypatch.setattr(transaction_log, "LOCK_WAIT_MS", 50)
    log = TransactionLog(engine, grace=0.0)
    with engine.connect() as connection, connection.begin():
        log.record(connection, half("1"))
        if engine.dialect.name == "sqlite":
            with engine.connect() as other:
                other.exec_driver_sql("pragma busy_timeout = 50")   # of the pooled connection
        with pytest.raises(OperationalError, match="lock"):
            log.check(received("1", age_s=9))


def test_what_is_as_old_as_forgotten_rows_is_not_rolled_back(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = TransactionLog(engine, grace=0.0)
    now = transaction_log.now_ms()
    monkeypatch.setattr(transaction_log, "now_ms", lambda: now - 8 * DAY_MS)
    with engine.begin() as connection:
        log.record(connection, half("1"))
    monkeypatch.setattr(transaction_log, "now_ms", lambda: now)
    with engine.begin() as connection:
        log.record(connection, half("2"))

    assert log.purge() == 1
    assert log.purge() == 0
    assert log.check(received("1", age_s=8.1 * 86_400)) is UNKNOWN
    assert log.check(received("2", age_s=1)) is COMMIT
    assert log.check(received("3", age_s=1)) is ROLLBACK


def test_bad_arguments_are_told(engine: Engine) -> None:
    log = TransactionLog(engine)
    with engine.connect() as connection:
        with pytest.raises(ConfigError, match="half message is stored"):
            log.record(connection, Message("T", "x"))
        with pytest.raises(ConfigError, match="connection: expected a sqlalchemy"):
            log.record(engine, half("1"))           # type: ignore[arg-type]
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection, \
            pytest.raises(ConfigError, match="not AUTOCOMMIT"):
        log.record(connection, half("1"))
    for wrong in (-1, "x", True, float("nan")):
        with pytest.raises(ConfigError, match="grace"):
            TransactionLog(engine, grace=wrong)     # type: ignore[arg-type]


def test_a_block_that_raises_and_a_commit_that_fails(engine: Engine, running: Broker) -> None:
    topic = f"log{engine.dialect.name}"
    with Admin(running.namesrv) as admin:
        admin.create_topic(topic, queues=1)
    log = TransactionLog(engine, grace=0.1)

    def fail(connection: object) -> None:
        raise OperationalError("commit", None, Exception("the connection is gone"))

    with TransactionProducer(f"PG_{topic}", check=log.check, namesrv=running.namesrv) as producer:
        def order(number: int) -> None:
            with log.transaction(producer, Message(topic, f"{number}")) as connection:
                connection.execute(insert(orders).values(id=number))
                if number == 1:
                    raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            order(1)
        order(2)
        event.listen(engine, "commit", fail)
        with pytest.raises(OperationalError):
            order(3)
        event.remove(engine, "commit", fail)
        if engine.dialect.name == "postgresql":
            # -- it rolls a transaction with a failed statement back when it is told to commit
            with pytest.raises(DBAPIError, match="transaction is aborted"), \
                    log.transaction(producer, Message(topic, "4")) as connection, \
                    contextlib.suppress(IntegrityError):
                connection.execute(insert(orders).values(id=2))
        found = first_deliveries(running.namesrv, topic, 1)
        with Admin(running.namesrv) as admin:
            wait_until(lambda: not list(admin.pending_transactions(running.broker)), "decisions")
    assert found == ["2"]
    assert committed(engine) == [2]


def test_the_same_with_asyncio(engine: Engine, running: Broker) -> None:
    topic = f"asynclog{engine.dialect.name}"
    with Admin(running.namesrv) as admin:
        admin.create_topic(topic, queues=1)
    log = TransactionLog(engine)

    async def scenario() -> None:
        async with AsyncTransactionProducer(
                f"PG_{topic}", check=log.check, namesrv=running.namesrv) as producer:
            def order(connection: Connection) -> str:
                connection.execute(insert(orders).values(id=1))
                return "ordered"

            assert await log.run(producer, Message(topic, "1"), order) == "ordered"
            with pytest.raises(ZeroDivisionError):
                await log.run(producer, Message(topic, "2"), lambda connection: 1 // 0)

    asyncio.run(scenario())
    with Admin(running.namesrv) as admin:
        wait_until(lambda: not list(admin.pending_transactions(running.broker)), "decisions")
    assert first_deliveries(running.namesrv, topic, 1) == ["1"]
    assert committed(engine) == [1]


def test_a_message_that_has_an_id_keeps_it(engine: Engine) -> None:
    message = Message("T", "x")
    key = assign_message_id(message)
    log = TransactionLog(engine)
    with engine.begin() as connection:
        log.record(connection, message)
    assert log.check(received(key)) is COMMIT


def test_a_clock_that_is_set_back_does_not_move_what_is_forgotten_back(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = TransactionLog(engine, grace=0.0)
    now = transaction_log.now_ms()

    def forget(key: str, days: float) -> None:
        monkeypatch.setattr(transaction_log, "now_ms", lambda: now - int(days * DAY_MS))
        with engine.begin() as connection:
            log.record(connection, half(key))
        monkeypatch.setattr(transaction_log, "now_ms", lambda: now)
        assert log.purge() == 1

    forget("1", 8)
    forget("2", 80)
    assert log.check(received("1", age_s=8.1 * 86_400)) is UNKNOWN
    forget("3", 7.5)
    assert log.check(received("3", age_s=7.6 * 86_400)) is UNKNOWN


@pytest.mark.parametrize("end", ["rollback", "commit"])
def test_a_block_that_ends_the_transaction_leaves_the_decision_to_the_check(
    engine: Engine, running: Broker, end: str
) -> None:
    topic = f"ended{end}{engine.dialect.name}"
    with Admin(running.namesrv) as admin:
        admin.create_topic(topic, queues=1)
    log = TransactionLog(engine, grace=0.1)
    with TransactionProducer(f"PG_{topic}", check=log.check, namesrv=running.namesrv) as producer:
        def order(number: int, ends: bool) -> None:
            with log.transaction(producer, Message(topic, f"{number}")) as connection:
                connection.execute(insert(orders).values(id=number))
                if ends:
                    getattr(connection, end)()
                if number == 2:
                    raise ValueError("later")

        with pytest.raises(InvalidRequestError):
            order(1, ends=True)
        with pytest.raises(ValueError, match="later"):
            order(2, ends=True)
        order(3, ends=False)
        expected = [3] if end == "rollback" else [1, 2, 3]
        # -- while there is somebody to ask: what the dispatcher has not seen yet is not pending
        found = first_deliveries(running.namesrv, topic, len(expected))
        with Admin(running.namesrv) as admin:
            wait_until(lambda: not list(admin.pending_transactions(running.broker)), "decisions")
    assert committed(engine) == expected
    assert sorted(found) == list(map(str, expected))


def test_asyncio_work_that_ends_the_transaction_is_told(engine: Engine, running: Broker) -> None:
    topic = f"asyncended{engine.dialect.name}"
    with Admin(running.namesrv) as admin:
        admin.create_topic(topic, queues=1)
    log = TransactionLog(engine)

    async def scenario() -> None:
        async with AsyncTransactionProducer(
                f"PG_{topic}", check=log.check, namesrv=running.namesrv) as producer:
            with pytest.raises(InvalidRequestError):
                await log.run(producer, Message(topic, "1"), Connection.commit)
            bodies = await asyncio.to_thread(first_deliveries, running.namesrv, topic, 1)
            assert bodies == ["1"]

    asyncio.run(scenario())


def test_what_a_broker_gave_up_is_asked_about_again_if_it_was_committed(
    engine: Engine, forgetful: Broker
) -> None:
    topic = f"givenup{engine.dialect.name}"
    log = TransactionLog(engine, grace=0.0)
    with Admin(forgetful.namesrv) as admin:
        admin.create_topic(topic, queues=1)
        give_up(log, engine, forgetful, topic, [1, 2])
        other = TransactionLog(engine, prefix="other_")
        create_tables(engine, prefix="other_")
        assert other.resume_given_up(admin) == 0            # it knows nothing of them

        assert log.resume_given_up(admin, rows_max=1) == 1
        assert log.resume_given_up(admin) >= 1
        with TransactionProducer(f"PG_{topic}", check=log.check, namesrv=forgetful.namesrv,
                                 topics=[topic]):
            wait_until(lambda: log.resume_given_up(admin) == 0 and not list(
                admin.pending_transactions(forgetful.broker)), "decisions")
            # it is there to answer until then: what is resumed waits unseen for a moment, and a
            # machine that is slow lets the broker give up once more
            assert sorted(first_deliveries(
                forgetful.namesrv, topic, 2,
                before=lambda: log.resume_given_up(admin))) == ["1", "2"]
            wait_until(lambda: log.resume_given_up(admin) == 0 and not list(
                admin.pending_transactions(forgetful.broker)), "nothing left to resume")


def test_nothing_is_resumed_where_nothing_was_given_up(engine: Engine, running: Broker) -> None:
    log = TransactionLog(engine)
    with Admin(running.namesrv) as admin:
        assert log.resume_given_up(admin) == 0
        with pytest.raises(ConfigError, match="rows_max"):
            log.resume_given_up(admin, rows_max=0)
    with pytest.raises(ConfigError, match="expected an Admin, not str"):
        log.resume_given_up("127.0.0.1:9876")   # type: ignore[arg-type]


def given_up(number: int, broker: str) -> ReceivedMessage:
    """One that a broker gave up; two have one store time."""
    message = received(str(number), position=number)
    return ReceivedMessage.from_record(
        replace(decode_record(message.record), store_timestamp_ms=NOW_MS + number // 2),
        MessageQueue("TRANS_CHECK_MAX_TIME_TOPIC", broker, 0))


def test_each_of_many_pages_is_resumed_once_and_what_fails_later(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = TransactionLog(engine)
    kept = [given_up(number, "away" if number == 5 else "b") for number in range(20)]
    with engine.begin() as connection:
        for number in range(19):                # the last one's row is not there
            log.record(connection, half(str(number)))
    trouble: dict[str, RocketMQError] = {
        kept[5].offset_message_id: ConnectError("no connection"),
        kept[8].offset_message_id: ClientError("no message", 208)}
    resumed: list[str] = []

    def read(_: Admin, topic: str, *, begin: datetime, count: int) -> Found[ReceivedMessage]:
        found = [[each for each in kept if each.queue.broker_name == name
                  and each.store_timestamp_ms >= round(begin.timestamp() * 1_000)]
                 for name in ("b", "away")]
        return Found(tuple(each for queue in found for each in queue[:count]),
                     more=any(len(queue) > count for queue in found))

    def resume(_: Admin, message_id: str, *, broker: str) -> None:
        if message_id in trouble:
            raise trouble[message_id]
        resumed.append(message_id)

    monkeypatch.setattr(transaction_log, "PAGE_ROWS", 3)
    monkeypatch.setattr(Admin, "read", read)
    monkeypatch.setattr(Admin, "resume_transaction", resume)
    admin = Admin("127.0.0.1:1")
    with pytest.raises(ConnectError):
        log.resume_given_up(admin)
    trouble.popitem()
    with pytest.raises(ConnectError):
        log.resume_given_up(admin)
    trouble.clear()
    assert log.resume_given_up(admin) == 1
    assert log.resume_given_up(admin) == 0
    assert sorted(resumed) == sorted(each.offset_message_id for each in kept[:19])

    monkeypatch.setattr(transaction_log, "now_ms", lambda: NOW_MS + 8 * DAY_MS)
    assert log.purge() == 19
    with engine.connect() as connection:
        table = metadata().tables["mqcore_resumed"]
        assert connection.execute(select(table)).all() == []
