"""The outbox: in order for each key, whatever fails, and whoever relays."""
from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, insert, update
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import create_async_engine

from mqcore.client import (
    Admin,
    BrokerError,
    ClosedError,
    ConfigError,
    ConnectError,
    Message,
    MessageQueue,
    NoRouteError,
    Producer,
    Reader,
    ReceivedMessage,
    RocketMQError,
    SendManyError,
    SendResult,
    SendStatus,
)
from mqcore.client.patterns import Outbox, OutboxRelay, create_tables, metadata
from mqcore.client.patterns.relay import UNKNOWN_MAX, Lease, Rests
from mqcore.testing import Broker, broker
from tests.patterns.databases import open_engine
from tests.patterns.messages import first_deliveries
from tests.patterns.programs import business, orders
from tests.support.waiting import wait_until


@pytest.fixture
def topic(request: pytest.FixtureRequest, running: Broker) -> str:
    name = "".join(each for each in request.node.name if each.isalnum())[:100]
    with Admin(running.namesrv) as admin:
        admin.create_topic(name, queues=4)
    return name


@pytest.fixture
def producer(running: Broker) -> Iterator[Producer]:
    with Producer("PG", namesrv=running.namesrv, message_size_max_bytes=1_000) as started:
        yield started


def keep(outbox: Outbox, topic: str, *bodies: str, key: str | None = None) -> None:
    with outbox.engine.begin() as connection:
        for body in bodies:
            outbox.add(connection, Message(topic, body), key=key)


def of_key(bodies: Iterable[str], key: str) -> list[str]:
    return [body for body in bodies if body.startswith(key)]


def all_of(running: Broker, topic: str) -> list[ReceivedMessage]:
    with Reader(topic, namesrv=running.namesrv, stop="end") as reader:
        return list(reader)


def test_what_a_message_has_is_kept(
    engine: Engine, topic: str, running: Broker, producer: Producer
) -> None:
    outbox = Outbox(engine)
    message = Message(topic, b"\0\xff", tags="new", keys=["1", "2"], properties={"a": "ü"}, flag=7,
                      wait_store=False)
    with engine.begin() as connection:
        key = outbox.add(connection, message)
    assert OutboxRelay(outbox, producer).run_once() == 1
    wait_until(lambda: all_of(running, topic), "the message")
    (got,) = all_of(running, topic)
    assert (got.body, got.tags, got.keys, got.properties["a"], got.flag, got.message_id) == (
        b"\0\xff", "new", ["1", "2"], "ü", 7, key)


def test_what_is_rolled_back_is_not_sent(engine: Engine, topic: str, producer: Producer) -> None:
    outbox = Outbox(engine)
    with engine.connect() as connection, connection.begin() as local:
        outbox.add(connection, Message(topic, "x"), key="a")
        local.rollback()
    assert OutboxRelay(outbox, producer).run_once() == 0


def test_transactions_of_a_key_are_numbered_as_they_commit(
    engine: Engine, topic: str, running: Broker, producer: Producer
) -> None:
    outbox = Outbox(engine)
    second = threading.Thread(target=keep, args=(outbox, topic, "a2"), kwargs={"key": "a"})
    with engine.begin() as connection:
        outbox.add(connection, Message(topic, "a1"), key="a")
        second.start()
        second.join(0.2)
        assert second.is_alive()            # it waits for the commit
    second.join(30)
    OutboxRelay(outbox, producer).run_once()
    assert first_deliveries(running.namesrv, topic, 2) == ["a1", "a2"]


def test_a_row_that_was_committed_behind_a_page_holds_its_key_back(engine: Engine) -> None:
    outbox = Outbox(engine)
    for body, key in (("1", "a"), ("2", "b"), ("3", "a"), ("4", "b"), ("5", "c")):
        keep(outbox, "T", body, key=key)

    assert [row.body for row in outbox.page(0, (), 10)] == [b"1", b"2", b"3", b"4", b"5"]
    assert [row.body for row in outbox.page(1, (), 10)] == [b"2", b"4", b"5"]
    assert [row.body for row in outbox.page(2, (), 10)] == [b"5"]
    assert [row.body for row in outbox.page(0, ("T",), 10)] == []


class Failing(Producer):
    """Fails as it is told: by the body of a message, in order."""

    def __init__(self, namesrv: str, **options: Any) -> None:
        super().__init__("PG", namesrv=namesrv, **options)
        self.fails: dict[str, RocketMQError] = {}

    def send_many(self, messages: Iterable[Message], **options: Any) -> list[SendResult]:
        batch = list(messages)
        shard = options["shard"]
        broken: dict[object, RocketMQError] = {}
        for message in batch:
            error = self.fails.get(message.body.decode())
            if error is not None:
                broken.setdefault(shard(message), error)
        good = []
        seen: set[object] = set()
        for message in batch:
            if self.fails.get(message.body.decode()):
                seen.add(shard(message))
            if shard(message) not in seen:
                good.append(message)
        results = super().send_many(good, **options)
        if len(good) == len(batch):
            return results
        outcomes = {message.unique_key: result
                    for message, result in zip(good, results, strict=True)}
        raise SendManyError("some", [
            outcomes.get(message.unique_key) or broken[shard(message)] for message in batch],
            stored=None)


def test_a_key_whose_send_fails_waits_and_the_others_go_on(
    engine: Engine, topic: str, running: Broker
) -> None:
    outbox = Outbox(engine)
    for number in range(20):
        for key in "ab":
            keep(outbox, topic, f"{key}{number}", key=key)
    with Failing(running.namesrv) as producer:
        producer.fails["a3"] = ConnectError("gone", stored=None)
        relay = OutboxRelay(outbox, producer, batch=8)
        assert relay.run_once() == 23
        bodies = first_deliveries(running.namesrv, topic, 23)
        assert of_key(bodies, "a") == ["a0", "a1", "a2"]
        assert len(of_key(bodies, "b")) == 20
        producer.fails.clear()
        assert relay.run_once() == 17
    bodies = first_deliveries(running.namesrv, topic, 40)
    assert of_key(bodies, "a") == [f"a{number}" for number in range(20)]
    assert outbox.parked() == []


def test_a_message_that_is_refused_is_parked_and_its_key_waits(
    engine: Engine, topic: str, running: Broker, producer: Producer
) -> None:
    outbox = Outbox(engine)
    keep(outbox, topic, "a1", "a" * 2_000, "a3", key="a")
    keep(outbox, topic, "b1", key="b")
    keep(outbox, topic, "n1", "n" * 2_000, "n3")
    relay = OutboxRelay(outbox, producer, refusals_max=2)

    assert relay.run_once() == 4
    assert outbox.parked() == []
    assert relay.run_once() == 0
    first, second = outbox.parked()
    assert (first.number, first.key, first.message.body) == (2, "a", b"a" * 2_000)
    assert "body of 2000 bytes: expected 1 to 1000" in first.error
    assert outbox.waiting() == 1
    assert relay.run_once() == 0
    assert outbox.try_again(first.number)
    assert not outbox.try_again(first.number)
    assert [relay.run_once(), relay.run_once()] == [0, 0]
    assert outbox.drop(first.number)
    assert outbox.drop(second.number)
    assert relay.run_once() == 1
    bodies = first_deliveries(running.namesrv, topic, 5)
    assert of_key(bodies, "a") == ["a1", "a3"]
    assert sorted(of_key(bodies, "n")) == ["n1", "n3"]


def test_no_relay_can_turn_an_order_round_by_being_late(
    engine: Engine, topic: str, running: Broker, producer: Producer
) -> None:
    """One that stood still between its look and its sends, while another sent all."""
    outbox = Outbox(engine)
    keep(outbox, topic, *(f"a{number}" for number in range(10)), key="a")
    other = OutboxRelay(outbox, producer, lease=0.001)

    class Late(Producer):
        def send_many(self, messages: Iterable[Message], **options: Any) -> list[SendResult]:
            wait_until(other.run_once, "the other relay's pass")
            keep(outbox, topic, "a10", key="a")
            wait_until(other.run_once, "the other relay's next pass")
            return super().send_many(messages, **options)

    with Late("PG", namesrv=running.namesrv) as late:
        OutboxRelay(outbox, late, batch=5).run_once(rows_max=5)
    wait_until(lambda: len(all_of(running, topic)) == 16, "five of them twice")
    assert first_deliveries(running.namesrv, topic, 11) == [f"a{number}" for number in range(11)]


def test_one_relay_at_a_time_works(engine: Engine, topic: str, producer: Producer) -> None:
    outbox = Outbox(engine)
    first, second = (OutboxRelay(outbox, producer, lease=3_600.0) for _ in range(2))
    keep(outbox, topic, "x")
    assert first.run_once() == 1
    keep(outbox, topic, "y")
    assert second.run_once() == 0
    first.close()
    assert second.run_once() == 1


def test_a_lease_is_taken_from_one_that_stands_still(engine: Engine) -> None:
    now = 0.0
    first, second = (Lease(engine, metadata().tables["mqcore_leases"], "x", 10.0, lambda: now)
                     for _ in range(2))
    assert first.hold()
    assert not second.hold()
    now = 9.0
    assert first.hold()
    assert not second.hold()
    now = 18.0
    assert not second.hold()
    now = 19.1
    assert second.hold()
    assert not first.hold()
    first.give_up()                             # it is not its own any more
    assert second.hold()


def test_a_database_and_brokers_that_are_away_are_waited_for(
    engine: Engine, topic: str, running: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = Outbox(engine)
    keep(outbox, topic, "x", key="a")
    stop, is_gone = threading.Event(), True

    def fail(connection: Connection, *_: object) -> None:
        if is_gone:
            raise OperationalError("select", None, Exception("the server is gone"))

    def count(text: str) -> int:
        return sum(text in record.message for record in caplog.records)

    with Failing(running.namesrv) as producer, caplog.at_level(logging.WARNING):
        producer.fails["x"] = ConnectError("no broker", stored=False)
        event.listen(engine, "before_cursor_execute", fail)
        relay = threading.Thread(
            target=OutboxRelay(outbox, producer, refusals_max=1).run, args=(stop,),
            kwargs={"interval": 0.01})
        relay.start()
        try:
            wait_until(lambda: count("database of the outbox does not answer") > 1, "two tries")
            is_gone = False
            wait_until(lambda: count("not sent") > 1, "two sends")
            producer.fails.clear()
            wait_until(lambda: not outbox.waiting(), "the message")
        finally:
            stop.set()
            relay.join(30)
    assert outbox.parked() == []
    assert first_deliveries(running.namesrv, topic, 1) == ["x"]


def test_a_producer_that_is_closed_is_told_and_nothing_is_parked(
    engine: Engine, running: Broker
) -> None:
    outbox = Outbox(engine)
    keep(outbox, "T", "x")
    relay = OutboxRelay(outbox, Producer("PG", namesrv=running.namesrv), refusals_max=1)
    with pytest.raises(ClosedError, match="not started"):
        relay.run(threading.Event())
    assert outbox.waiting() == 1


def test_what_was_sent_is_purged_by_age(engine: Engine, topic: str, producer: Producer) -> None:
    old, new = Outbox(engine, keep=0.0), Outbox(engine, keep=60.0)
    keep(old, topic, "x", "y")
    OutboxRelay(old, producer).run_once()
    keep(old, topic, "z")
    assert new.purge() == 0
    assert old.purge(rows_max=1) == 1
    assert old.purge() == 1
    assert old.waiting() == 1


def test_two_outboxes_of_one_database_share_nothing(engine: Engine, running: Broker) -> None:
    create_tables(engine, prefix="other_")
    keep(Outbox(engine, prefix="other_"), "T", "x")
    assert (Outbox(engine).waiting(), Outbox(engine, prefix="other_").waiting()) == (0, 1)


def test_a_transaction_of_asyncio(postgres_address: str, running: Broker) -> None:
    url = f"postgresql+psycopg://{postgres_address}"
    engine = open_engine(url)
    metadata("async_").create_all(engine)
    business.create_all(engine)
    outbox = Outbox(engine, prefix="async_")

    async def scenario() -> None:
        made = create_async_engine(url)
        async with made.begin() as connection:
            await connection.execute(insert(orders).values(id=1))
            with pytest.raises(ConfigError, match="run_sync"):
                outbox.add(connection, Message("T", "x"))       # type: ignore[arg-type]
            await connection.run_sync(lambda c: outbox.add(c, Message("T", "x"), key="a"))
        await made.dispose()

    asyncio.run(scenario())
    assert outbox.waiting() == 1
    business.drop_all(engine)
    engine.dispose()


def test_bad_arguments_are_told(engine: Engine, producer: Producer) -> None:
    outbox = Outbox(engine)
    with engine.begin() as connection:
        for wrong, said in (
                (lambda: outbox.add(connection, "x"), "message: expected a Message"),
                (lambda: outbox.add(connection, Message("T", "")), "body: expected"),
                (lambda: outbox.add(connection, Message("", "x")), "topic"),
                (lambda: outbox.add(connection, Message("T", "x"), key=""), "key ''"),
                (lambda: OutboxRelay(engine, producer), "outbox: expected an Outbox"),
                (lambda: OutboxRelay(outbox, None), "producer: expected a Producer"),
                (lambda: OutboxRelay(outbox, producer, batch=0), "batch 0"),
                (lambda: OutboxRelay(outbox, producer, lease=0), "lease 0"),
                (lambda: outbox.drop(-1), "number -1")):
            with pytest.raises(ConfigError, match=said):
                wrong()


class Refusing(Producer):
    """Counts its calls, and raises what it is told to for a topic, or for a body sent alone."""

    def __init__(self, namesrv: str) -> None:
        super().__init__("PG", namesrv=namesrv)
        self.errors: dict[str, RocketMQError] = {}
        self.stored: list[str] = []
        self.calls = 0

    def send_many(self, messages: Iterable[Message], **options: Any) -> list[SendResult]:
        batch = list(messages)
        self.calls += 1
        failed = [error for each in batch if (error := self._error(each)) is not None]
        if failed:
            raise SendManyError("all", [failed[0]] * len(batch), stored=False)
        self.stored += [each.body.decode() for each in batch]
        return [RESULT] * len(batch)

    def send(self, message: Message, **options: Any) -> SendResult:    # type: ignore[override]
        self.calls += 1
        error = self._error(message)
        if error is not None:
            raise error
        self.stored.append(message.body.decode())
        return RESULT

    def _error(self, message: Message) -> RocketMQError | None:
        return self.errors.get(message.topic) or self.errors.get(message.body.decode())


RESULT = SendResult(SendStatus.SEND_OK, "ID", "ID", MessageQueue("T", "b", 0), 0)


def no_such_topic() -> NoRouteError:
    error = NoRouteError("no route to write to topic")
    error.is_no_such_topic = True
    return error


def test_a_topic_that_is_not_there_is_told_from_name_servers_that_know_none() -> None:
    with broker({"broker.auto_create_topic": False}) as started, \
            Producer("PG", namesrv=started.namesrv) as sending, \
            pytest.raises(NoRouteError) as refused:
        sending.send("missing", "x")
    assert refused.value.is_no_such_topic
    assert not NoRouteError("no name server").is_no_such_topic


def test_a_topic_that_is_not_there_parks_the_first_of_each_key(
    engine: Engine, running: Broker
) -> None:
    outbox = Outbox(engine)
    keep(outbox, "missing", "a1", "a2", key="a")
    keep(outbox, "missing", "b1", key="b")
    keep(outbox, "there", "c1")
    producer = Refusing(running.namesrv)
    producer.errors["missing"] = no_such_topic()
    relay = OutboxRelay(outbox, producer, refusals_max=2)

    assert [relay.run_once() for _ in range(3)] == [1, 0, 0]
    assert [each.message.body for each in outbox.parked()] == [b"a1", b"b1"]
    producer.errors.clear()
    for each in outbox.parked():
        assert outbox.try_again(each.number)
    assert relay.run_once() == 3
    assert sorted(producer.stored) == ["a1", "a2", "b1", "c1"]


def test_brokers_that_are_away_park_nothing(engine: Engine, running: Broker) -> None:
    outbox = Outbox(engine)
    keep(outbox, "away", "x")
    producer = Refusing(running.namesrv)
    producer.errors["away"] = NoRouteError("no route to write to topic")
    relay = OutboxRelay(outbox, producer, refusals_max=1)
    assert [relay.run_once() for _ in range(3)] == [0, 0, 0]
    assert (outbox.waiting(), outbox.parked()) == (1, [])


@pytest.mark.parametrize("error", [no_such_topic(), ConnectError("gone", stored=None)])
def test_a_topic_that_fails_for_ever_slows_no_other(
    engine: Engine, running: Broker, error: RocketMQError
) -> None:
    outbox = Outbox(engine)
    keep(outbox, "bad", "x")
    producer = Refusing(running.namesrv)
    producer.errors["bad"] = error
    relay, stop = OutboxRelay(outbox, producer), threading.Event()
    thread = threading.Thread(target=relay.run, args=(stop,), kwargs={"interval": 0.01})
    thread.start()
    try:
        wait_until(lambda: len(relay._topics.now()) == 1 and producer.calls > 4, "a long pause")
        for number in range(3):
            keep(outbox, "good", f"{number}")
            wait_until(lambda: outbox.waiting() == 1, "the message", timeout_s=10.0)
    finally:
        stop.set()
        thread.join(30)
    assert producer.stored == ["0", "1", "2"]


def test_an_answer_that_says_nothing_holds_up_its_own_key_alone(
    engine: Engine, running: Broker
) -> None:
    outbox = Outbox(engine)
    keep(outbox, "T", "poison", "behind", key="a")
    keep(outbox, "T", "b1", "b2", key="b")
    producer = Refusing(running.namesrv)
    producer.errors["poison"] = BrokerError(1, "a number was expected")
    relay = OutboxRelay(outbox, producer, refusals_max=1)

    assert relay._pass(10, 0.5) == 2
    calls = producer.calls
    keep(outbox, "T", "b3", key="b")
    assert relay._pass(10, 0.5) == 1            # together, for the poison is left alone
    assert producer.calls == calls + 1
    assert producer.stored == ["b1", "b2", "b3"]
    assert (outbox.waiting(), outbox.parked()) == (2, [])
    producer.errors.clear()
    assert relay.run_once() == 2
    assert producer.stored[3:] == ["poison", "behind"]


def test_brokers_that_answer_nothing_else_are_not_asked_about_each_message(
    engine: Engine, running: Broker
) -> None:
    outbox = Outbox(engine)
    keep(outbox, "T", *map(str, range(100)))
    producer = Refusing(running.namesrv)
    producer.errors["T"] = BrokerError(1, "the disk is full")
    assert OutboxRelay(outbox, producer, batch=50).run_once() == 0
    assert producer.calls == 1 + UNKNOWN_MAX


def test_pauses_grow_and_end() -> None:
    now = 0.0
    rests = Rests(lambda: now)
    ends = []
    for _ in range(8):
        rests.failed("T", 0.5)
        began = now
        while rests.now():
            now += 0.5
        ends.append(now - began)
    assert ends == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    rests.worked("T")
    rests.failed("T", 0.5)
    now += 1.0
    assert rests.now() == []
    for number in range(2_000):
        rests.failed(number, 0.5)
    assert rests.now() == list(range(1_000, 2_000))


def test_a_row_that_no_message_can_be_made_of_is_parked(
    engine: Engine, running: Broker
) -> None:
    outbox = Outbox(engine)
    keep(outbox, "T", "a1", "a2", key="a")
    keep(outbox, "T", "b1")
    with engine.begin() as connection:
        table = metadata().tables["mqcore_outbox"]
        connection.execute(update(table).where(table.c.id == 1).values(properties="{"))
    producer = Refusing(running.namesrv)
    relay = OutboxRelay(outbox, producer, refusals_max=2)
    assert [relay.run_once(), relay.run_once()] == [1, 0]
    (parked,) = outbox.parked()
    assert (parked.number, parked.key, parked.message.body) == (1, "a", b"a1")
    assert "JSONDecodeError" in parked.error
    assert outbox.drop(1)
    assert relay.run_once() == 1
    assert producer.stored == ["b1", "a2"]


def test_pages_are_bounded_by_bytes(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqcore.client.patterns.tables.PAGE_BYTES_MAX", 250)
    outbox = Outbox(engine)
    keep(outbox, "T", "1" * 1_000, "2", "3", "4" * 1_000, "5")
    found, after = [], 0
    while rows := outbox.page(after, (), 10):
        found.append([row.id for row in rows])
        after = rows[-1].id
    assert found == [[1], [2, 3], [4], [5]]


@pytest.mark.parametrize(("attribute", "value"), [
    ("flag", 1 << 40), ("flag", "x"), ("body", 7), ("properties", {"a": 5}),
    ("properties", {"a": None}), ("properties", {"a": "b\1"}), ("properties", {"a": "\ud800"}),
    ("topic", "t\ud800")])
def test_a_message_that_could_not_be_sent_is_not_kept(
    engine: Engine, attribute: str, value: object
) -> None:
    message = Message("T", "x")
    setattr(message, attribute, value)
    with engine.begin() as connection, pytest.raises(ConfigError):
        Outbox(engine).add(connection, message)
    assert Outbox(engine).waiting() == 0
