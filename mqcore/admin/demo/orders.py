"""Order events of a made-up shop: the same ones for the same seed."""
from __future__ import annotations

import json
import random
from dataclasses import dataclass

EVENTS = ("created", "paid", "packed", "shipped", "delivered", "cancelled")
EVENT_WEIGHTS = (10, 9, 8, 8, 7, 1)
ARTICLES = (
    ("kettle-1.7l", 3490), ("tea-assam-500g", 1290), ("mug-blue", 890), ("mug-white", 890),
    ("filter-100", 450), ("grinder-hand", 5900), ("scale-0.1g", 2400), ("tray-oak", 3200),
)
CITIES = ("Lisbon", "Köln", "Kraków", "Lyon", "Turin", "Ghent", "Malmö", "Brno")


@dataclass(frozen=True, slots=True)
class OrderEvent:
    """`id` is unique in a run and travels as the message's key, `event` as its tag."""

    id: str
    event: str
    body: bytes


def order_events(source: str, count: int, seed: int = 4) -> list[OrderEvent]:
    """`count` events of the shop `source`; bodies are JSON of 150 to 400 bytes."""
    chance = random.Random(f"{source}-{seed}")
    return [_order_event(f"{source}-{number:05d}", chance) for number in range(count)]


def _order_event(event_id: str, chance: random.Random) -> OrderEvent:
    event = chance.choices(EVENTS, EVENT_WEIGHTS)[0]
    bought = [(article, chance.randint(1, 3), cents)
              for article, cents in chance.sample(ARTICLES, chance.randint(1, 4))]
    body = {
        "id": event_id, "order": f"{chance.randrange(10**8):08d}", "event": event,
        "customer": f"c{chance.randrange(10**5):05d}", "city": chance.choice(CITIES),
        "lines": [dict(zip(("article", "quantity", "cents"), line, strict=True))
                  for line in bought],
        "currency": "EUR", "totalCents": sum(quantity * cents for _, quantity, cents in bought),
    }
    return OrderEvent(event_id, event, json.dumps(body, ensure_ascii=False).encode())
