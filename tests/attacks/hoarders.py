"""Long polls without end on a few connections, and messages to all of them now and then."""
from __future__ import annotations

import random
import time

from mqcore.wire.command import encode, request
from tests.pull.puller import Puller

HOLD_MS = 600_000


def run(broker_addr: str, namesrv_addr: str, seconds: float, rng: random.Random) -> None:
    end = time.monotonic() + seconds
    topic = f"Hoarded{rng.randrange(1 << 32)}"
    hoarders = [Puller(broker_addr) for _ in range(rng.randrange(1, 5))]
    try:
        hoarders[0].topic(topic, 1)
        hoarders[0].pull(topic)                              # its group is known from now on
        while time.monotonic() < end:
            fields = hoarders[0].fields(topic, sysFlag=6, suspendTimeoutMillis=HOLD_MS)
            for hoarder in hoarders:
                hoarder.send(encode(request(11, fields)) * 200)
                while not hoarder.silent_for(0.001):         # what was answered early, and others
                    continue
            hoarders[0].batch(topic, [{}])
    finally:
        for hoarder in hoarders:
            hoarder.close()
