"""No attack: a process that only turns, as busy as one that attacks; what the machine costs."""
from __future__ import annotations

import random
import time


def run(broker_addr: str, namesrv_addr: str, seconds: float, rng: random.Random) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        rng.random()
