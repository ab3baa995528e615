"""
A name server beside peers that flood it: who asks for routes, and who registers, waits little.

For SOAK_SECONDS; in what order they are served tests/namesrv/test_floods.py says, how long it takes
at how many a second `python -m perf.handshakes --server namesrv`.
"""
from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

import pytest

from tests.acl.test_broker import ADMIN, RULES
from tests.attacks.honest import median, p99
from tests.attacks.honest_names import HonestNames, Span
from tests.attacks.medians import FLOOR_MS, P99_FLOOR_MS, TIMES
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.stretch import Stretch
from tests.tls.certificates import careless
from tests.tls.floods import KINDS, OTHERS, flood
from tests.workers.processes import pid_of

SECONDS = float(os.environ.get("SOAK_SECONDS", "0")) / len(KINDS + OTHERS)
BEGUN = 30                          # peers beside whom it is measured, at least
RATE = 2_000                        # that is asked of the peers; a machine may give less
REGISTRATIONS = 50


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    """Its name server asks who registers; 127.9.0.1 is asked for nothing."""
    folder = tmp_path_factory.mktemp("flooded")
    (folder / "plain_acl.yml").write_text(RULES)
    with mqcore_up(folder, {"acl.enable": True, "tls.test_mode": True,
                            "tls.handshake_ms_max": 5_000}) as running:
        yield running


@pytest.fixture(scope="module")
def honest(broker: MqcoreProcess) -> Iterator[dict[str, HonestNames]]:
    """In the clear, and by TLS."""
    with contextlib.ExitStack() as ends:
        yield {way: ends.enter_context(HonestNames(broker.namesrv_addr, account=ADMIN, tls=tls))
               for way, tls in (("in the clear", None), ("by TLS", careless()))}


def assert_hardly_slower(
    what: str, now: list[float], before: list[float], stretch: float,
) -> None:
    print(f"{what}: p50 {median(before):.1f} to {median(now):.1f} ms, p99 {p99(before):.1f} to "
          f"{p99(now):.1f} ms, {len(now)} of them, stretch {stretch:.1f}")
    assert median(now) <= max(TIMES * median(before), FLOOR_MS * stretch), (
        f"{what}: median {median(now):.1f} ms, before {median(before):.1f} ms")
    assert p99(now) <= max(TIMES * p99(before), P99_FLOOR_MS * stretch), (
        f"{what}: p99 {p99(now):.1f} ms, before {p99(before):.1f} ms")


@pytest.mark.skipif(SECONDS == 0, reason="only for as long as SOAK_SECONDS says")
@pytest.mark.timeout(SECONDS + 120)
@pytest.mark.parametrize("kind", KINDS + OTHERS)
def test_routes_and_registrations_wait_little_for_as_long_as_asked(
    broker: MqcoreProcess, honest: dict[str, HonestNames], kind: str,
) -> None:
    calm = {way: one.measure(REGISTRATIONS) for way, one in honest.items()}
    attacked: dict[str, Span] = {}
    end = time.monotonic() + SECONDS
    own = Stretch.of((os.getpid(), pid_of(broker, "namesrv")))
    with contextlib.ExitStack() as spans, flood(
            kind, broker.namesrv_addr, rate=RATE) as counts:
        for way, one in honest.items():
            attacked[way] = spans.enter_context(one.span())
        for way, one in honest.items():
            one.until(lambda way=way: counts.begun > BEGUN and time.monotonic() > end and all(
                len(took) >= REGISTRATIONS for took in attacked[way].values()),
                "requests beside the peers", SECONDS + 60)
        print(f"\n{kind}: {counts.begun / counts.seconds:.0f} a second")
    stretch = own.value()
    for way, span in attacked.items():
        for what, took in span.items():
            assert_hardly_slower(f"{what} {way}", took, calm[way][what], stretch)
