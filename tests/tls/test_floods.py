"""
Honest clients beside peers that only begin handshakes. For SOAK_SECONDS, else for a moment; how
long sends take at how many handshakes a second, `python -m perf.handshakes` says.
"""
from __future__ import annotations

import os
import time

import pytest

from tests.attacks.honest import Honest, median, p99
from tests.support.mqcore_process import MqcoreProcess
from tests.tls.floods import KINDS, flood

SECONDS = float(os.environ.get("SOAK_SECONDS", "0")) / len(KINDS)
SENDS = 100
RATE = 2_000                        # that is asked of the peers; a machine may give less
FLOOR_MS = 25.0                     # what a loaded machine may take for nothing


@pytest.mark.timeout(SECONDS + 120)
@pytest.mark.parametrize("kind", KINDS)
def test_an_honest_client_waits_no_longer_beside_peers_that_begin_handshakes(
    broker: MqcoreProcess, kind: str,
) -> None:
    with Honest(broker.broker_addr, topic=f"beside-{kind.replace(' ', '-')}") as honest:
        calm = honest.measure(SENDS)
        end = time.monotonic() + SECONDS
        with flood(kind, broker.broker_addr, rate=RATE) as counts, honest.span() as attacked:
            honest.until(lambda: counts.begun > SENDS and len(attacked.sends_ms) > SENDS
                         and time.monotonic() > end, "sends beside the peers", SECONDS + 60)
        assert median(attacked.sends_ms) <= max(2 * median(calm.sends_ms), FLOOR_MS)
        if SECONDS:
            assert p99(attacked.sends_ms) <= max(2 * p99(calm.sends_ms), FLOOR_MS), attacked.line()
        honest.check()
