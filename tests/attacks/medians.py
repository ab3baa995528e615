"""Latency beside an attack on a machine that others use: medians, and a p99 that is not theirs."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tests.attacks.honest import Honest, Span, median, p99

TIMES = 5.0
FLOOR_MS = 25.0                 # of a median; without the rules these attacks make it 25 to 430
P99_FLOOR_MS = 600.0


def assert_hardly_slower(attacked: Span, calm: Span) -> None:
    """
    Sends and deliveries take about as long as before, and none takes much longer; all of it takes
    as much longer as a machine with other work makes the client's own work.
    """
    print(calm.line(), attacked.line(), f"stretch {attacked.stretch:.1f}", sep="\n")
    assert not attacked.refusals
    for name in ("sends_ms", "deliveries_ms"):
        now, before = getattr(attacked, name), getattr(calm, name)
        assert now, f"no {name} in the attack"
        assert median(now) <= max(TIMES * median(before), FLOOR_MS * attacked.stretch), (
            f"{name}: median {median(now):.1f} ms, before {median(before):.1f} ms")
        assert p99(now) <= max(TIMES * p99(before), P99_FLOOR_MS * attacked.stretch), (
            f"{name}: p99 {p99(now):.1f} ms, before {p99(before):.1f} ms")


@contextlib.contextmanager
def hardly_slower(honest: Honest, sends: int = 40) -> Iterator[None]:
    """Whatever the block does, the client is served about as before; of so many sends, at least."""
    calm = honest.measure(sends)
    with honest.span() as attacked:
        yield
        honest.until(lambda: len(attacked.sends_ms) >= sends, f"{sends} sends")
    assert_hardly_slower(attacked, calm)


@contextlib.contextmanager
def honest_beside(address: str, *, topic: str = "beside") -> Iterator[None]:
    """A client of its own beside the block: hardly slower, and what it was promised is there."""
    with Honest(address, topic=topic) as honest:
        with hardly_slower(honest):
            yield
        honest.caught_up()
    honest.check()
