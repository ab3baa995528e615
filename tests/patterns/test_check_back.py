"""The check-back table: sent until it is confirmed, so often, and then people hear of it."""
from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, update
from sqlalchemy.exc import IntegrityError

from mqcore.client import (
    BrokerError,
    ClosedError,
    ConfigError,
    ConnectError,
    Message,
    NoRouteError,
    Producer,
    Reader,
    RequestTimeout,
    RocketMQError,
    SendResult,
)
from mqcore.client.patterns import CheckBack, check_back, confirmation, metadata
from mqcore.testing import Broker
from tests.patterns.messages import first_deliveries, received
from tests.support.waiting import wait_until

HOUR = 3_600.0


class Sends(Producer):
    """Counts what it sends, and fails as it is told."""

    def __init__(self, namesrv: str) -> None:
        super().__init__("PG", namesrv=namesrv, message_size_max_bytes=1_000)
        self.error: Exception | None = None
        self.fails = {"pending"}            # topics
        self.sent: list[str] = []

    def send(self, message: Message, **options: object) -> SendResult:      # type: ignore[override]
        if self.error is not None and message.topic in self.fails:
            raise self.error
        result = super().send(message)
        self.sent.append(message.unique_key or "")
        return result


@pytest.fixture
def producer(running: Broker) -> Iterator[Sends]:
    with Sends(running.namesrv) as started:
        yield started


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What the table's clock says, in ms."""
    now = [check_back.now_ms()]
    monkeypatch.setattr(check_back, "now_ms", lambda: now[0])
    return now


def add(engine: Engine, pending: CheckBack, body: str = "x") -> str:
    with engine.begin() as connection:
        return pending.add(connection, Message("pending", body))


@pytest.mark.slow
def test_it_is_sent_ever_later_and_then_given_up(
    engine: Engine, producer: Sends, clock: list[int]
) -> None:
    pending = CheckBack(engine, producer, count_max=4, wait=10.0, wait_max=30.0)
    key = add(engine, pending)
    times = []
    for second in range(0, 200):
        sent = len(producer.sent)
        if pending.run_once() and len(producer.sent) > sent:
            times.append(second)
        clock[0] += 1_000

    assert times == [0, 10, 30, 60]
    assert producer.sent == [key] * 4
    (given_up,) = pending.given_up()
    assert (given_up.message_id, given_up.message.body, given_up.count) == (key, b"x", 4)
    assert pending.try_again(key)
    assert not pending.try_again(key)
    assert pending.run_once() == 1
    assert len(producer.sent) == 5
    assert pending.confirm(key)
    assert not pending.confirm(key)
    clock[0] += 100_000
    assert (pending.run_once(), pending.given_up()) == (0, [])


def test_the_consumers_word_ends_it_even_late(engine: Engine, producer: Sends) -> None:
    pending = CheckBack(engine, producer, count_max=1, wait=0.001, wait_max=0.001)
    key = add(engine, pending)
    wait_until(lambda: pending.run_once() or pending.given_up(), "it is sent")
    wait_until(lambda: pending.run_once() and pending.given_up(), "it is given up")
    word = confirmation(received(key), "T")
    heard = received("other", word.body, CONFIRMS=word.properties["CONFIRMS"])
    for _ in range(2):
        pending.confirm_listener(heard)
    assert (pending.given_up(), pending.run_once()) == ([], 0)


def test_a_word_about_nothing_is_logged(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        CheckBack(engine).confirm_listener(received("1"))
    assert "is no confirmation: CONFIRMS ''" in caplog.text
    assert not CheckBack(engine).confirm("unknown")


@pytest.mark.parametrize(("answer", "sends"), [
    (True, 1), (False, 2), (None, 2), (ValueError("no line"), 2)])
def test_who_can_tell_is_asked_before_it_is_sent_again(
    engine: Engine, producer: Sends, clock: list[int], answer: bool | Exception | None, sends: int
) -> None:
    asked = []

    def ask(message: Message) -> bool | None:
        asked.append(message.body)
        if isinstance(answer, Exception):
            raise answer
        return answer

    pending = CheckBack(engine, producer, ask=ask, wait=10.0)
    add(engine, pending)
    pending.run_once()
    assert asked == []
    clock[0] += 10_000
    pending.run_once()
    assert (asked, len(producer.sent)) == ([b"x"], sends)


def test_many_jobs_send_each_message_once(engine: Engine, producer: Sends) -> None:
    pending = CheckBack(engine, producer, wait=HOUR)
    keys = {add(engine, pending) for _ in range(20)}
    jobs = [threading.Thread(target=pending.run_once) for _ in range(4)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(30)
    wait_until(lambda: pending.run_once() == 0, "all are sent")
    assert sorted(producer.sent) == sorted(keys)


def test_brokers_that_are_away_do_not_count_but_lost_answers_do(
    engine: Engine, producer: Sends, clock: list[int]
) -> None:
    pending = CheckBack(engine, producer, count_max=2, wait=10.0, wait_max=10.0)
    add(engine, pending)
    add(engine, pending)
    producer.error = ConnectError("nobody there", stored=False)
    for _ in range(10):
        assert pending.run_once() == 0
        clock[0] += 10_000
    assert pending.given_up() == []
    producer.error = RequestTimeout("no answer", stored=None)
    for _ in range(10):
        pending.run_once()
        clock[0] += 10_000
    assert [one.count for one in pending.given_up()] == [2, 2]
    assert "no answer" in (pending.given_up()[0].error or "")


def test_a_message_that_no_broker_takes_is_given_up_at_once(
    engine: Engine, producer: Sends
) -> None:
    pending = CheckBack(engine, producer)
    add(engine, pending, "x" * 2_000)
    good = add(engine, pending)
    assert pending.run_once() == 2
    (given_up,) = pending.given_up()
    assert "body of 2000 bytes" in (given_up.error or "")
    assert producer.sent == [good]


def test_a_closed_producer_is_told_and_counts_for_nothing(
    engine: Engine, running: Broker
) -> None:
    pending = CheckBack(engine, Producer("PG", namesrv=running.namesrv), count_max=1, wait=0.001)
    add(engine, pending)
    for _ in range(3):
        with pytest.raises(ClosedError):
            wait_until(pending.run_once, "it is due")
    assert pending.given_up() == []


def test_a_clock_that_was_set_back_holds_nothing_up(
    engine: Engine, producer: Sends, clock: list[int]
) -> None:
    pending = CheckBack(engine, producer, wait=10.0, wait_max=60.0)
    key = add(engine, pending)
    clock[0] -= 1_000 * 86_400_000
    assert pending.run_once() == 1
    assert producer.sent == [key]


def test_what_is_rolled_back_or_kept_twice(engine: Engine, producer: Sends) -> None:
    pending = CheckBack(engine, producer)
    message = Message("pending", "x")
    with engine.connect() as connection, connection.begin() as local:
        pending.add(connection, message)
        local.rollback()
    assert pending.run_once() == 0
    with engine.begin() as connection:
        pending.add(connection, message)
    with engine.connect() as connection, pytest.raises(IntegrityError):
        pending.add(connection, message)


def test_confirmed_ones_are_purged_by_age(engine: Engine, producer: Sends) -> None:
    pending = CheckBack(engine, producer, keep=60.0)
    confirmed, waits = add(engine, pending), add(engine, pending)
    pending.confirm(confirmed)
    table = metadata().tables["mqcore_pending"]
    assert pending.purge() == 0
    with engine.begin() as connection:
        connection.execute(update(table).values(changed_ms=1))
    assert pending.purge() == 1
    assert pending.confirm(waits)


def test_bad_arguments_are_told(engine: Engine) -> None:
    for wrong, said in (
            (lambda: CheckBack(engine, "x"), "producer: expected a Producer"),
            (lambda: CheckBack(engine, count_max=0), "count_max 0: expected"),
            (lambda: CheckBack(engine, wait=60.0, wait_max=1.0), r"wait_max 1\.0: expected 60 to"),
            (lambda: CheckBack(engine, ask=1), "ask 1: expected a function"),
            (lambda: CheckBack(engine).run_once(), "producer: expected one for the job"),
            (lambda: CheckBack(engine).confirm(""), "message_id ''"),
            (lambda: CheckBack(engine).given_up(rows_max=0), "rows_max 0")):
        with pytest.raises(ConfigError, match=said):
            wrong()


def test_a_confirmation_travels(engine: Engine, running: Broker, producer: Sends) -> None:
    topic = f"word{engine.dialect.name}"
    producer.send(confirmation(received("the-id"), topic))
    assert first_deliveries(running.namesrv, topic, 1) == ["the-id"]
    with Reader(topic, namesrv=running.namesrv, stop="end") as reader:
        (got,) = list(reader)
    pending = CheckBack(engine, producer)
    message = Message("pending", "x")
    message.properties["UNIQ_KEY"] = "the-id"
    with engine.begin() as connection:
        pending.add(connection, message)
    pending.confirm_listener(got)
    assert pending.run_once() == 0


@pytest.mark.parametrize("error", [
    ConnectError("nobody there", stored=False), BrokerError(1, "a number was expected")])
def test_a_topic_that_fails_is_passed_over_and_the_others_go_on(
    engine: Engine, producer: Sends, clock: list[int], error: RocketMQError
) -> None:
    pending = CheckBack(engine, producer)
    for _ in range(5):
        add(engine, pending)
        clock[0] += 1
    with engine.begin() as connection:
        good = [pending.add(connection, Message(f"good{number}", "x")) for number in range(2)]
    producer.error = error
    assert pending.run_once(rows_max=3) == 2
    assert sorted(producer.sent) == sorted(good)


def test_a_topic_that_is_not_there_is_given_up_after_its_turns(
    engine: Engine, producer: Sends, clock: list[int]
) -> None:
    pending = CheckBack(engine, producer, count_max=3, wait=10.0, wait_max=10.0)
    key = add(engine, pending)
    error = NoRouteError("no route to write to topic pending")
    producer.error = error
    for _ in range(5):
        pending.run_once()
        clock[0] += 10_000
    assert pending.given_up() == []             # nobody has said that it is not there
    error.is_no_such_topic = True
    for _ in range(4):
        assert pending.given_up() == []
        pending.run_once()
        clock[0] += 10_000
    (given_up,) = pending.given_up()
    assert (given_up.message_id, given_up.count) == (key, 3)
    assert "no route" in (given_up.error or "")


def test_a_row_that_no_message_can_be_made_of_is_given_up(
    engine: Engine, producer: Sends
) -> None:
    pending = CheckBack(engine, producer)
    bad, good = add(engine, pending), add(engine, pending)
    table = metadata().tables["mqcore_pending"]
    with engine.begin() as connection:
        connection.execute(update(table).where(table.c.message_id == bad).values(properties="{"))
    assert pending.run_once() == 2
    assert producer.sent == [good]
    (given_up,) = pending.given_up()
    assert (given_up.message_id, given_up.message.body) == (bad, b"x")


def test_a_word_that_no_row_can_have_is_logged(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        CheckBack(engine).confirm_listener(received("1", CONFIRMS="a\0b"))
    assert "is no confirmation: CONFIRMS" in caplog.text
