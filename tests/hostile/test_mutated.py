"""
Random and mutated frames from several processes, while an honest client works.

The seed is printed when the test fails (MQCORE_HOSTILE_SEED runs it again); SOAK_SECONDS makes it
longer (`make soak`).
"""
from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from mqcore.wire.records import decode_records
from tests.hostile.mutate import Mutator
from tests.hostile.watch import Watch
from tests.support.mqcore_process import MqcoreProcess
from tests.wire_live.peer import pull_fields
from tests.wire_live.state import State

SECONDS = float(os.environ.get("SOAK_SECONDS", "4"))
SETTLE_S = 3.0                        # answers that nobody reads go with their connections
WARM_UP_SECONDS = 2.0                 # tables, arenas and buffers reach their size
GROWTH_KIB_MAX = 10 << 10
P99_S_MAX = 0.25                      # four attackers share two cores with all of it
ROUND_PAUSE_S = 0.005
PIECES_MIN = 1_000                    # an attacker that sends less did not attack


@pytest.fixture
def seed() -> int:
    given = os.environ.get("MQCORE_HOSTILE_SEED")
    return int(given) if given else random.randrange(2**32)


class Attackers:
    """Four processes: two at the main port, one at the fast port, one at the name server."""

    def __init__(self, target: MqcoreProcess, seed: int, seconds: float) -> None:
        host, _, port = target.broker_addr.rpartition(":")
        at = ((target.broker_addr, "broker"), (target.broker_addr, "broker"),
              (f"{host}:{int(port) - 2}", "broker"), (target.namesrv_addr, "namesrv"))
        self._running = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.hostile.attack", address, peer, str(seed + number),
                 str(seconds)], stdout=subprocess.PIPE, text=True)
            for number, (address, peer) in enumerate(at)
        ]

    def still_run(self) -> bool:
        return any(attacker.poll() is None for attacker in self._running)

    def counts(self) -> list[dict[str, int]]:
        """What each did; AssertionError when one could not go on."""
        found = [attacker.communicate()[0] for attacker in self._running]
        assert [attacker.returncode for attacker in self._running] == [0] * len(found)
        return [json.loads(text) for text in found]

    def kill(self) -> None:
        for attacker in self._running:
            attacker.kill()
            attacker.wait()


def rounds(honest: State, topic: str) -> Iterator[float]:
    """Send a message and receive it by a held pull, again and again; how long each took, in s."""
    while True:
        began = time.monotonic()
        stored = honest.message(topic, body=b"honest")
        offset = int((stored.ext or {})["queueOffset"] or 0)
        found = honest.ask(11, pull_fields(topic, offset=offset, sys_flag=6, suspend_ms=5_000))
        took_s = time.monotonic() - began
        assert decode_records(found.body)[0].body == b"honest"
        yield took_s


def under_attack(
    target: MqcoreProcess, honest: State, seed: int, seconds: float
) -> list[float]:
    """The honest client's rounds while the attackers run, in s."""
    attackers = Attackers(target, seed, seconds)
    took_s: list[float] = []
    try:
        for one in rounds(honest, "Honest"):
            took_s.append(one)
            if not attackers.still_run():
                break
            assert honest.silent_for(ROUND_PAUSE_S)
        counts = attackers.counts()
    finally:
        attackers.kill()
    assert min(count["pieces"] for count in counts) > PIECES_MIN * seconds / 25, counts
    return took_s


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 120)
def test_mutated_frames_harm_neither_processes_nor_memory_nor_others(
    target: MqcoreProcess, honest: State, seed: int
) -> None:
    print(f"MQCORE_HOSTILE_SEED={seed}")
    honest.topic("Honest", 1)
    under_attack(target, honest, seed + 1_000, WARM_UP_SECONDS)
    watch = Watch(target)
    took_s = sorted(under_attack(target, honest, seed, SECONDS))

    watch.assert_unharmed()
    growth = watch.growth_kib_within(GROWTH_KIB_MAX, SETTLE_S)
    assert max(growth.values()) <= GROWTH_KIB_MAX, growth
    assert took_s[int(len(took_s) * 0.99)] < P99_S_MAX, took_s[-20:]


def test_the_same_seed_makes_the_same_bytes() -> None:
    first, second = Mutator(7, "broker"), Mutator(7, "broker")

    assert [first.bytes() for _ in range(500)] == [second.bytes() for _ in range(500)]
    assert Mutator(8, "broker").bytes() != Mutator(7, "broker").bytes()
