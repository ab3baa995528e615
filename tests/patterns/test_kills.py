"""Each pattern is killed at every step: no business effect is lost, and none comes twice."""
from __future__ import annotations

import itertools
from collections import Counter

import pytest
from sqlalchemy import Engine, insert, select

from mqcore.client import (
    Admin,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    TransactionProducer,
)
from mqcore.client.patterns import (
    CheckBack,
    IdempotentConsumer,
    Outbox,
    OutboxRelay,
    RunState,
    TransactionLog,
    confirmation,
    metadata,
)
from mqcore.testing import Broker
from tests.patterns import programs
from tests.patterns.databases import open_engine
from tests.patterns.kills import Kills, killed_everywhere
from tests.patterns.messages import first_deliveries, give_up
from tests.patterns.programs import CONSUMED, OF_CASE, STEPS, bookings, effects, orders, seats
from tests.support.waiting import wait_until

_topics = itertools.count(1)


def new_topic(running: Broker) -> str:
    topic = f"killed{next(_topics)}"
    with Admin(running.namesrv) as admin:
        admin.create_topic(topic, queues=4)
    return topic


def committed(engine: Engine) -> set[int]:
    with engine.connect() as connection:
        return set(connection.execute(select(orders.c.id)).scalars())


@pytest.mark.slow
def test_an_outbox_sends_what_was_committed_in_order_and_nothing_else(
    url: str, running: Broker
) -> None:
    engine, topic = open_engine(url), new_topic(running)
    programs.create_all(engine)

    killed = killed_everywhere(programs.keep_and_relay, url, running.namesrv, topic)

    outbox = Outbox(engine)
    with Producer("PG", namesrv=running.namesrv) as producer, \
            OutboxRelay(outbox, producer, lease=0.01) as relay:
        wait_until(lambda: relay.run_once() == 0 and not outbox.waiting(), "an empty outbox")
    # -- what an idempotent consumer sees
    bodies = first_deliveries(running.namesrv, topic, OF_CASE * len(committed(engine)))
    assert killed > 10
    assert Counter(bodies) == Counter(
        f"{number}:{each}" for number in committed(engine) for each in range(OF_CASE))
    for parity in (0, 1):
        places = [tuple(map(int, body.split(":"))) for body in bodies
                  if int(body.split(":")[0]) % 2 == parity]
        assert places == sorted(places)
    engine.dispose()


@pytest.mark.slow
def test_messages_of_transactions_are_seen_if_their_database_transaction_committed(
    url: str, running: Broker
) -> None:
    engine, topic = open_engine(url), new_topic(running)
    programs.create_all(engine)

    killed = killed_everywhere(programs.order_in_transaction, url, running.namesrv, topic)

    log = TransactionLog(engine, grace=0.3)
    with TransactionProducer("PG_LOG", check=log.check, namesrv=running.namesrv, topics=[topic]), \
            Admin(running.namesrv) as admin:
        wait_until(lambda: not list(admin.pending_transactions(running.broker)), "all decisions")
        # -- each id once: a broker that asks just when the decision comes has two of them
        bodies = first_deliveries(running.namesrv, topic, len(committed(engine)))
    assert killed > 5
    assert 0 < len(committed(engine)) < killed
    assert Counter(map(int, bodies)) == Counter(committed(engine))
    engine.dispose()


@pytest.mark.slow
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_what_a_broker_gave_up_is_seen_although_its_resuming_is_killed_at_every_step(
    url: str, forgetful: Broker
) -> None:
    engine, topic = open_engine(url), new_topic(forgetful)
    programs.create_all(engine)
    log = TransactionLog(engine)
    give_up(log, engine, forgetful, topic, [1, 2])

    once = IdempotentConsumer(engine, "GROUP")
    listener = once.listener(lambda message, connection: connection.execute(
        insert(effects).values(body=message.text())))
    with TransactionProducer(f"PG_{topic}", check=log.check, namesrv=forgetful.namesrv,
                             topics=[topic]), \
            PushConsumer(f"CG_{topic}", topic, listener, namesrv=forgetful.namesrv,
                         start="earliest"), Admin(forgetful.namesrv) as admin:
        killed = killed_everywhere(programs.resume, url, forgetful.namesrv)

        def seen() -> list[str]:
            log.resume_given_up(admin)      # a question that came too late is asked again
            with engine.connect() as connection:
                return sorted(connection.execute(select(effects.c.body)).scalars())

        wait_until(lambda: len(seen()) >= 2, "both messages")
        wait_until(lambda: not list(admin.pending_transactions(forgetful.broker)), "decisions")
        wait_until(lambda: log.resume_given_up(admin) == 0, "nothing left to resume")
        assert seen() == ["1", "2"]
    assert killed > 6
    engine.dispose()


@pytest.mark.slow
def test_a_consumer_that_is_killed_again_and_again_has_each_effect_once(
    url: str, running: Broker
) -> None:
    engine, topic = open_engine(url), new_topic(running)
    programs.create_all(engine)
    with Producer("PG", namesrv=running.namesrv) as producer:
        producer.send_many(Message(topic, f"{number}") for number in range(CONSUMED))

    killed = killed_everywhere(programs.consume_all, url, running.namesrv, topic)

    with engine.connect() as connection:
        bodies = list(connection.execute(select(effects.c.body)).scalars())
    assert killed > 5
    assert Counter(bodies) == Counter(map(str, range(CONSUMED)))
    engine.dispose()


@pytest.mark.slow
def test_what_a_check_back_table_keeps_has_its_effect_once_and_is_confirmed(
    url: str, running: Broker
) -> None:
    engine, topic, confirmations = open_engine(url), new_topic(running), new_topic(running)
    programs.create_all(engine)

    killed = killed_everywhere(programs.order_until_confirmed, url, running.namesrv, topic)

    once = IdempotentConsumer(engine, "GROUP")
    with Producer("PG", namesrv=running.namesrv) as producer:
        def handle(message: ReceivedMessage) -> None:
            once.consume(message, lambda message, connection: connection.execute(
                insert(effects).values(body=message.text())))
            producer.send(confirmation(message, confirmations))

        pending = CheckBack(engine, producer, count_max=20, wait=2.0, wait_max=2.0)
        with PushConsumer(f"CG_{topic}", topic, handle, namesrv=running.namesrv,
                          start="earliest"), \
                PushConsumer(f"CG_{confirmations}", confirmations, pending.confirm_listener,
                             namesrv=running.namesrv, start="earliest"):
            wait_until(lambda: pending.run_once() == 0 and not waiting(engine), "confirmations")
    with engine.connect() as connection:
        bodies = list(connection.execute(select(effects.c.body)).scalars())
    assert killed > 5
    assert Counter(map(int, bodies)) == Counter(committed(engine))
    assert pending.given_up() == []
    engine.dispose()


def waiting(engine: Engine) -> int:
    table = metadata().tables["mqcore_pending"]
    with engine.connect() as connection:
        return len(connection.execute(select(table).where(table.c.confirm != 1)).all())


@pytest.mark.slow
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_run_that_is_killed_is_done_as_a_whole(url: str) -> None:
    """PostgreSQL sees the same steps in the run that fails."""
    engine = open_engine(url)
    programs.create_all(engine)

    killed = killed_everywhere(programs.book_trip, url, False, rehearse=True)
    check_trips(engine, killed, RunState.DONE)


@pytest.mark.slow
def test_a_run_that_fails_and_is_killed_is_undone_as_a_whole(url: str) -> None:
    engine = open_engine(url)
    programs.create_all(engine)

    killed = killed_everywhere(programs.book_trip, url, True, rehearse=True)
    check_trips(engine, killed, RunState.UNDONE)


def check_trips(engine: Engine, killed: int, end: RunState) -> None:
    trips = programs.trips(engine, engine, Kills(0))

    def is_over() -> bool:
        trips.run_once()
        return not any(run_state in (0, 1) for _, run_state in found())

    def found() -> list[tuple[str, int]]:
        table = metadata().tables["mqcore_runs"]
        with engine.connect() as connection:
            return [(row.run_id, row.state) for row in connection.execute(select(table))]

    wait_until(is_over, "the end of all runs")
    with engine.connect() as connection:
        changes = connection.execute(select(seats).order_by(seats.c.id)).all()
        booked = connection.execute(select(bookings)).all()
    states = {run_id: trips.get(run_id).state for run_id, _ in found()}
    assert killed > 20
    assert set(states.values()) == {end}
    assert len(states) > killed - 5             # the first ones die before their run is recorded
    for run_id in states:
        mine = [(row.step, row.change) for row in changes if row.run_id == run_id]
        requests = [row for row in booked if f"/{run_id}/" in row.request]
        if end is RunState.DONE:
            assert mine == [(step, 1) for step in STEPS]
            assert [row.cancelled for row in requests] == [0] * len(STEPS)
        else:
            assert mine == [("flight", 1), ("hotel", 1), ("hotel", -1), ("flight", -1)]
            assert [row.cancelled for row in requests] == [1] * len(STEPS)
    assert {row.run_id for row in changes} <= set(states)
    engine.dispose()
