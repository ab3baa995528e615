"""
All attacks in random order, beside an honest client: nothing is lost, nobody waits much longer.

The seed is printed when the test fails (MQCORE_ATTACK_SEED runs it again); SOAK_SECONDS makes it
longer: `make soak`.
"""
from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.attacks.honest import Honest, Span, p99
from tests.attacks.run import attack, names
from tests.hostile.watch import Watch
from tests.support.mqcore_process import mqcore_up

SOAK_S = float(os.environ.get("SOAK_SECONDS", "0"))
SEED = int(os.environ.get("MQCORE_ATTACK_SEED", str(random.SystemRandom().randrange(1 << 32))))
ROUND_S = 1.5 if SOAK_S == 0 else 10.0
TIMES = 3.0                     # how much longer than in peace the honest may wait (p99)


@pytest.mark.slow
@pytest.mark.timeout(SOAK_S + 600)
def test_all_attacks_one_after_another_lose_nothing_and_delay_nobody(tmp_path: Path) -> None:
    dice, peace, war = random.Random(SEED), Span(), Span()
    done: list[str] = []
    with mqcore_up(tmp_path) as broker, Honest(broker.broker_addr) as honest:
        watch = Watch(broker)
        end = time.monotonic() + SOAK_S
        while not done or time.monotonic() < end:
            order = names()
            dice.shuffle(order)
            for name in order:
                calm = honest.measure(200)
                with honest.span() as attacked:
                    attack(name, broker.broker_addr, broker.namesrv_addr, ROUND_S,
                           dice.randrange(1 << 32))
                for into, span in ((peace, calm), (war, attacked)):
                    for kind in ("sends_ms", "deliveries_ms", "beats_ms", "refusals"):
                        getattr(into, kind).extend(getattr(span, kind))
                done.append(f"{name}: {attacked.line()}")
                watch.assert_unharmed()
                if SOAK_S and time.monotonic() > end:
                    break
        honest.caught_up()
        honest.check()
    story = f"seed {SEED}\n" + "\n".join(done[-40:])
    assert not war.refusals, f"{war.refusals[:5]}, {story}"
    kinds = ("sends_ms", "deliveries_ms", "beats_ms")
    before = max(p99(getattr(peace, kind)) for kind in kinds)      # how busy the machine is
    for kind in kinds:
        during = p99(getattr(war, kind))
        assert during <= max(TIMES * before, 100.0), (
            f"{kind}: p99 {before:.1f} -> {during:.1f} ms, {story}")
    print(f"peace: {peace.line()}\nattacks: {war.line()}\n{story}")
