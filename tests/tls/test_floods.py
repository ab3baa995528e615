"""
Honest clients beside peers that only begin handshakes. For SOAK_SECONDS, else for a moment; how
long sends take at how many handshakes a second, `python -m perf.handshakes` says.

In a moment peers are few, and have a share of the machine: those that take what is left of it get
nowhere while others use all of it.
"""
from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from tests.attacks.honest import Honest, median, p99
from tests.support.mqcore_process import MqcoreProcess
from tests.tls.floods import KINDS, flood

SECONDS = float(os.environ.get("SOAK_SECONDS", "0")) / len(KINDS)
SENDS = 100 if SECONDS else 40
BEGUN = 40                          # peers beside whom it is measured, at least
RATE = 2_000 if SECONDS else 200    # that is asked of the peers; a machine may give less
FLOOR_MS = 25.0                     # what a loaded machine may take for nothing


@pytest.fixture(scope="module")
def honest(broker: MqcoreProcess) -> Iterator[Honest]:
    with Honest(broker.broker_addr, topic="beside-handshakes") as made:
        yield made
        made.caught_up()
    made.check()


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 120)
@pytest.mark.parametrize("kind", KINDS)
def test_an_honest_client_waits_no_longer_beside_peers_that_begin_handshakes(
    broker: MqcoreProcess, honest: Honest, kind: str,
) -> None:
    calm = honest.measure(SENDS)
    end = time.monotonic() + SECONDS
    with flood(kind, broker.broker_addr, rate=RATE, idle=SECONDS > 0) as counts, \
            honest.span() as attacked:
        honest.until(lambda: counts.begun > BEGUN and len(attacked.sends_ms) > SENDS
                     and time.monotonic() > end, "sends beside the peers", SECONDS + 60)
    assert median(attacked.sends_ms) <= max(2 * median(calm.sends_ms), FLOOR_MS)
    if SECONDS:
        assert p99(attacked.sends_ms) <= max(2 * p99(calm.sends_ms), FLOOR_MS), attacked.line()
