"""Messages as a consumer gets them, without a broker."""
from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from sqlalchemy import Engine, insert

from mqcore.client import (
    Admin,
    LocalTransactionState,
    Message,
    MessageQueue,
    NoRouteError,
    Reader,
    ReceivedMessage,
    TransactionProducer,
)
from mqcore.client.patterns import TransactionLog
from mqcore.testing import Broker
from mqcore.wire.records import Record
from tests.patterns.programs import orders
from tests.support.waiting import wait_until

QUEUE = MessageQueue("T", "b", 0)


def first_deliveries(namesrv: str, topic: str, count: int,
                     before: Callable[[], object] = lambda: None) -> list[str]:
    """The texts of a topic's messages, each id once, in their queues' order; waits until there
    are `count`: a reader sees what is stored a moment later. before: each look."""
    first: dict[str, str] = {}

    def look() -> bool:
        before()
        first.clear()
        with Reader(topic, namesrv=namesrv, stop="end") as reader:
            for message in reader:
                first.setdefault(message.message_id, message.text())
        return len(first) >= count

    wait_until(look, f"{count} messages")
    return list(first.values())


def give_up(
    log: TransactionLog, engine: Engine, forgetful: Broker, topic: str, numbers: Iterable[int]
) -> None:
    """Commit orders whose program dies before the decision, and wait until the broker has given
    their messages up. A question that comes before that, on a slow machine, gets no decision."""
    keys = set()
    with TransactionProducer(f"PG_{topic}", check=lambda _: LocalTransactionState.UNKNOWN,
                             namesrv=forgetful.namesrv) as producer:
        for number in numbers:
            message = Message(topic, f"{number}")
            keys.add(producer.begin(message, None).message_id)
            with engine.begin() as connection:
                connection.execute(insert(orders).values(id=number))
                log.record(connection, message)
    with Admin(forgetful.namesrv) as admin:
        def given_up() -> set[str]:
            try:
                return {each.message_id for each in admin.read("TRANS_CHECK_MAX_TIME_TOPIC")}
            except NoRouteError:
                return set()

        wait_until(lambda: keys <= given_up(), "what is given up")


def received(key: str | None = "ID", body: bytes = b"x", *, age_s: float = 0.0,
             position: int = 0, **properties: str) -> ReceivedMessage:
    """A message with UNIQ_KEY `key`, sent `age_s` seconds ago."""
    born_ms = int((time.time() - age_s) * 1_000)
    if key is not None:
        properties["UNIQ_KEY"] = key
    return ReceivedMessage.from_record(Record(
        topic="T", queue_id=0, queue_offset=0, physical_offset=position, flag=0, sys_flag=0,
        body_crc=0, born_timestamp_ms=born_ms, born_host=("127.0.0.1", 1),
        store_timestamp_ms=born_ms, store_host=("127.0.0.1", 1), reconsume_times=0,
        prepared_transaction_offset=0, body=body, properties=properties, size=0), QUEUE)
