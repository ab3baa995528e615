"""
A shop as load for a page: topics, groups that keep up, one that is slow, one that fails, one whose
members disagree, undecided transactions, delayed messages.
"""
from __future__ import annotations

import contextlib
import json
import random
import threading
from collections.abc import Iterator

from mqcore.client import (
    Admin,
    LocalTransactionState,
    Message,
    Producer,
    PushConsumer,
    Reject,
    TransactionProducer,
)

TOPICS = {"orders": 8, "payments": 8, "shipments": 4, "stock-levels": 4, "emails": 4,
          "audit-log": 8}
GROUPS = ("billing", "shipping", "analytics", "mailer", "fraud-check")
_never = threading.Event()
CITIES = ("Berlin", "北京", "São Paulo", "Nairobi")


def order(number: int, dice: random.Random) -> Message:
    """An order of the shop."""
    body = {"order": number, "amount": round(dice.uniform(5, 900), 2),
            "customer": 9_007_199_254_740_993 + number, "city": dice.choice(CITIES),
            "lines": [{"article": dice.randrange(1000), "count": dice.randrange(1, 4)}
                      for _ in range(dice.randrange(1, 4))]}
    return Message("orders", json.dumps(body, ensure_ascii=False), keys=f"order-{number}",
                   tags=dice.choice(("created", "paid", "cancelled")))


def _keeps_up(_message: object) -> None:
    """A consumer without trouble."""


def _is_slow(_message: object) -> None:
    _never.wait(0.05)


def _fails(message: object) -> None:
    if int(getattr(message, "keys", ["0"])[0].rpartition("-")[2] or 0) % 9 == 0:
        raise Reject("no such address")


@contextlib.contextmanager
def shop(namesrv: str, *, per_second: float = 200.0) -> Iterator[threading.Event]:
    """The shop at work; the event is set once it has sold something."""
    with Admin(namesrv) as admin:
        for topic, queues in TOPICS.items():
            admin.create_topic(topic, queues=queues)
        for group in GROUPS:
            admin.create_group(group)
    stop, ready = threading.Event(), threading.Event()
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        at = {"namesrv": namesrv, "start": "earliest"}
        for number in range(3):
            enter(PushConsumer("billing", "orders", _keeps_up, trace=True, **at))
            if number < 2:
                enter(PushConsumer("fraud-check", "payments", _keeps_up, **at,
                                   filter="card" if number else "*"))
        enter(PushConsumer("shipping", "orders", _is_slow, **at))
        enter(PushConsumer("mailer", "emails", _fails, **at))
        enter(PushConsumer("analytics", "audit-log", _keeps_up, **at))
        producer = enter(Producer("shop", namesrv=namesrv, trace=True))
        transactions = enter(TransactionProducer(
            "shop-transactions", namesrv=namesrv,
            check=lambda _message: LocalTransactionState.UNKNOWN))
        with contextlib.suppress(KeyError):
            for number in range(3):
                with transactions.transaction(Message(
                        "payments", f"reservation {number}", keys=f"payment-{number}")):
                    raise KeyError              # undecided
        worker = threading.Thread(target=_sell, args=(producer, stop, ready, per_second))
        worker.start()
        try:
            yield ready
        finally:
            stop.set()
            worker.join()


def _sell(producer: Producer, stop: threading.Event, ready: threading.Event,
          per_second: float) -> None:
    dice = random.Random(7)
    number = 0
    while not stop.is_set():
        producer.send(order(number, dice))
        producer.send(Message("payments", f"payment {number}", keys=f"payment-{number}",
                              tags=dice.choice(("card", "invoice"))))
        producer.send(Message("emails", f"Dear customer {number}", keys=f"mail-{number}"))
        if number % 5 == 0:
            producer.send(Message("audit-log", bytes(dice.randrange(256) for _ in range(90))))
            producer.send(Message("shipments", f"parcel {number}", keys=f"parcel-{number}",
                                  delay_level=dice.choice((3, 4, 5, 9))))
        number += 1
        if number == 30:
            ready.set()
        stop.wait(4 / per_second)
