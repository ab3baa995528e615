"""
All attacks in random order, beside an honest client: nothing is lost, nobody waits much longer.

The seed is printed when the test fails (MQCORE_ATTACK_SEED runs it again); SOAK_SECONDS makes it
longer: `make soak`. Then a table says for each attack how long the honest waited beside it, what it
sent, and the same of its attackers with a share of the machine of their own: that is the work of
two machines on one, so it is shown and not judged. `turning` is no attack: what the machine costs.
"""
from __future__ import annotations

import os
import random
import time
from collections import defaultdict
from pathlib import Path

import pytest

from tests.attacks.honest import Honest, Span, p99
from tests.attacks.run import Attackers, Effort, names
from tests.hostile.watch import Watch
from tests.support.mqcore_process import mqcore_up

SOAK_S = float(os.environ.get("SOAK_SECONDS", "0"))
SEED = int(os.environ.get("MQCORE_ATTACK_SEED", str(random.SystemRandom().randrange(1 << 32))))
ROUND_S = 0.4 if SOAK_S == 0 else 5.0
CALM_SENDS = 100 if SOAK_S == 0 else 200
REST = 1.0 if SOAK_S == 0 else 0.5                         # of the honest client
WAYS = (True,) if SOAK_S == 0 else (True, False)           # idle
TIMES = 3.0                     # how much longer than in peace the honest may wait (p99)
FLOOR_MS = 100.0 if SOAK_S < 600 else 0.0       # a short run says little about the machine
LIMITS = {"limits.address_connection_count": 10_000}       # so that addresses have places
KINDS = ("sends_ms", "deliveries_ms", "beats_ms")


def extend(into: Span, span: Span) -> None:
    for kind in (*KINDS, "refusals"):
        getattr(into, kind).extend(getattr(span, kind))


def table(spans: dict[tuple[str, bool], Span], efforts: dict[tuple[str, bool], Effort]) -> str:
    """An attack's lines, the worst first: p99 of what the honest did beside it, and its effort."""
    worst = sorted(spans, key=lambda one: -p99(spans[one].sends_ms))
    return "\n".join(
        f"{name:22} {'idle' if idle else 'busy'}  p99 of sends "
        f"{p99(spans[name, idle].sends_ms):6.1f}, deliveries "
        f"{p99(spans[name, idle].deliveries_ms):6.1f}, beats "
        f"{p99(spans[name, idle].beats_ms):6.1f} ms; {efforts[name, idle].line()}"
        for name, idle in worst)


@pytest.mark.slow
@pytest.mark.timeout(SOAK_S + 600)
def test_all_attacks_one_after_another_lose_nothing_and_delay_nobody(tmp_path: Path) -> None:
    dice, peace, war = random.Random(SEED), Span(), Span()
    spans: dict[tuple[str, bool], Span] = defaultdict(Span)
    efforts: dict[tuple[str, bool], Effort] = defaultdict(Effort)
    with (mqcore_up(tmp_path, LIMITS) as broker, Attackers() as attackers,
          Honest(broker.broker_addr, rest=REST) as honest):
        watch = Watch(broker)
        end = time.monotonic() + SOAK_S
        while not spans or time.monotonic() < end:
            order = [(name, idle) for name in names() for idle in WAYS]
            dice.shuffle(order)
            for name, idle in order:
                calm = honest.measure(CALM_SENDS)
                with honest.span() as attacked:
                    effort = attackers.attack(
                        name, broker.broker_addr, broker.namesrv_addr, ROUND_S,
                        dice.randrange(1 << 32), idle=idle)
                extend(spans[name, idle], attacked)
                efforts[name, idle].add(effort)
                if idle:
                    extend(peace, calm)
                    extend(war, attacked)
                watch.assert_unharmed()
                if SOAK_S and time.monotonic() > end:
                    break
        honest.caught_up()
        honest.check()
    story = f"seed {SEED}\n{table(spans, efforts)}"
    assert not war.refusals, f"{war.refusals[:5]}, {story}"
    print(f"peace: {peace.line()}\nattacks: {war.line()}\n{story}")
    for kind in KINDS:
        before, during = p99(getattr(peace, kind)), p99(getattr(war, kind))
        assert during <= max(TIMES * before, FLOOR_MS), (
            f"{kind}: p99 {before:.1f} -> {during:.1f} ms, {story}")
