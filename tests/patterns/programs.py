"""The programs that tests/patterns/test_kills.py kills, and the business tables they change."""
from __future__ import annotations

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    insert,
    select,
    update,
)

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
    Compensation,
    IdempotentConsumer,
    Outbox,
    OutboxRelay,
    Step,
    StepCall,
    TransactionLog,
    create_tables,
)
from tests.patterns.kills import Kills
from tests.support.waiting import wait_until

OF_CASE = 3                 # messages that a program of the outbox keeps in each transaction
CONSUMED = 4                # messages that the consumers of a test share
STEPS = ("flight", "hotel", "car")

business = MetaData()
orders = Table("orders", business, Column("id", Integer, primary_key=True))
effects = Table("effects", business, Column("id", Integer, primary_key=True),
                Column("body", String(100), nullable=False))
# -- another company's: knows a request by its id, and is no part of our transactions
bookings = Table("bookings", business, Column("request", String(100), primary_key=True),
                 Column("booked", Integer, nullable=False),
                 Column("cancelled", Integer, nullable=False))
seats = Table("seats", business, Column("id", Integer, primary_key=True),
              Column("run_id", String(100), nullable=False),
              Column("step", String(100), nullable=False),
              Column("change", Integer, nullable=False))


def create_all(engine: Engine) -> None:
    create_tables(engine)
    business.create_all(engine)


def keep_and_relay(kills: Kills, number: int, url: str, namesrv: str, topic: str) -> None:
    """An order and its messages in one transaction, then a pass of the relay."""
    engine = kills.engine(url)
    outbox = Outbox(engine)
    with engine.begin() as connection:
        connection.execute(insert(orders).values(id=number))
        for each in range(OF_CASE):
            outbox.add(connection, Message(topic, f"{number}:{each}"), key=f"key {number % 2}")
    with Producer("PG_OUTBOX", namesrv=namesrv) as producer:
        producer.send_many = kills.around(producer.send_many)       # type: ignore[method-assign]
        with OutboxRelay(outbox, producer, lease=0.01) as relay:
            relay.run_once()
            wait_until(lambda: relay.run_once() == 0 and not outbox.waiting(), "an empty outbox")


def order_in_transaction(kills: Kills, number: int, url: str, namesrv: str, topic: str) -> None:
    """A half message, an order, the decision."""
    engine = kills.engine(url)
    log = TransactionLog(engine, grace=0.3)
    with TransactionProducer("PG_LOG", check=TransactionLog(engine).check,
                             namesrv=namesrv) as producer:
        producer.begin = kills.around(producer.begin)               # type: ignore[method-assign]
        producer.end = kills.around(producer.end)                   # type: ignore[method-assign]
        with log.transaction(producer, Message(topic, f"{number}")) as connection:
            connection.execute(insert(orders).values(id=number))


def resume(kills: Kills, number: int, url: str, namesrv: str) -> None:
    """A turn of the job that resumes what brokers gave up."""
    log = TransactionLog(kills.engine(url))
    with Admin(namesrv) as admin:
        resume_one = kills.around(admin.resume_transaction)
        admin.resume_transaction = resume_one   # type: ignore[method-assign,misc,assignment]
        log.resume_given_up(admin)


def consume_all(kills: Kills, number: int, url: str, namesrv: str, topic: str) -> None:
    """One member of a group that has CONSUMED messages to do."""
    engine = kills.engine(url)
    looking = Kills(0).engine(url)
    once = IdempotentConsumer(engine, "GROUP")

    def effect(message: ReceivedMessage, connection: Connection) -> None:
        connection.execute(insert(effects).values(body=message.text()))

    def count() -> int:
        with looking.connect() as connection:
            return len(connection.execute(select(effects.c.id)).all())

    with PushConsumer("CG_KILLED", topic, kills.around(once.listener(effect)), namesrv=namesrv,
                      start="earliest", concurrency=1) as consumer:
        wait_until(lambda: count() >= CONSUMED, "all effects")
        consumer.suspend()


def order_until_confirmed(kills: Kills, number: int, url: str, namesrv: str, topic: str) -> None:
    """An order and its message in one transaction, then a turn of the job."""
    engine = kills.engine(url)
    with Producer("PG_PENDING", namesrv=namesrv) as producer:
        producer.send = kills.around(producer.send)                 # type: ignore[method-assign]
        pending = CheckBack(engine, producer, count_max=20, wait=2.0, wait_max=2.0)
        with engine.begin() as connection:
            connection.execute(insert(orders).values(id=number))
            pending.add(connection, Message(topic, f"{number}"))
        pending.run_once()


def trips(engine: Engine, service: Engine, kills: Kills) -> Compensation:
    """Each step books with the other company, and changes a table of ours. Of a run with an odd
    number the last step fails after its booking."""
    def do(call: StepCall) -> str:
        with service.begin() as other:
            if other.execute(select(bookings).where(bookings.c.request == call.id)).first() is None:
                other.execute(insert(bookings).values(request=call.id, booked=1, cancelled=0))
        step = call.id.rpartition("/")[2]
        call.connection.execute(insert(seats).values(run_id=call.run_id, step=step, change=1))
        if step == STEPS[-1] and call.data["fails"]:
            raise ValueError("no car is left")
        return f"number of {step}"

    def undo(call: StepCall) -> None:
        step = call.id.rpartition("/")[2]
        with service.begin() as other:
            other.execute(update(bookings).where(bookings.c.request == call.id)
                          .values(cancelled=1))
        if step in call.results and call.results[step] is not None:
            call.connection.execute(insert(seats).values(
                run_id=call.run_id, step=step, change=-1))

    return Compensation(engine, "trips", [
        Step(name, kills.around(do), kills.around(undo)) for name in STEPS], lease=0.05)


def book_trip(kills: Kills, number: int, url: str, fails: bool) -> None:
    service = Kills(0).engine(url)
    trips(kills.engine(url), service, kills).start(f"trip {number}", {"fails": fails})
