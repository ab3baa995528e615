"""Pulls by an SQL92 expression that is dear to evaluate, eight ahead on each connection."""
from __future__ import annotations

import random
import time

from tests.pull.puller import Puller, next_offset

MESSAGES = 300
LONG = "7" * 15_000                    # of two properties: each comparison looks at all of it


def run(broker_addr: str, namesrv_addr: str, seconds: float, rng: random.Random) -> None:
    end = time.monotonic() + seconds
    topic = f"Dear{rng.randrange(1 << 32)}"
    expression = "a = b AND " * rng.randrange(20, 600) + "a <> b"
    pullers = [Puller(broker_addr) for _ in range(rng.randrange(1, 5))]
    try:
        pullers[0].topic(topic, 1)
        pullers[0].batch(topic, [{"a": LONG, "b": LONG}] * MESSAGES)
        at = 0
        while time.monotonic() < end:
            asked = [(puller, [puller.ask_to_pull(
                topic, subscription=expression, queueOffset=at, expressionType="SQL92")
                for _ in range(8)]) for puller in pullers]
            for puller, opaques in asked:
                answers = [puller.answer_to(opaque, 60) for opaque in opaques]
            at = next_offset(answers[0]) % MESSAGES if answers[0].code == 20 else 0
    finally:
        for puller in pullers:
            puller.close()
