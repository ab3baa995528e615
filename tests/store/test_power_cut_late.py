"""
Power cuts in the modes that acknowledge before the disk has it: async and transient-pool.

What lies below the flushed position survives whatever the disk did with the rest, so that a cut
costs at most what came since the last flush; and the flush service flushes once an interval. Each
life of the run ends with the service's last flush, in one thread, so that every run is repeatable.
"""
from __future__ import annotations

import random
import shutil
import threading
import time
from pathlib import Path

import pytest

from mqcore.store.probes import io_recorder
from tests.store.harness import Run
from tests.store.power import Event
from tests.store.test_power_cut import (
    FILE_ENTRIES,
    IMAGES,
    SEED,
    SEGMENT,
    TURN_MS,
    images_of,
    memory,
    properties_of,
)
from tests.support.waiting import wait_until

__all__ = ["memory"]
LIVES, ROUNDS = 8, 7
INTERVAL_MS = 100
SLACK_S = 1.0                       # for a machine with other work
Rounds = list[tuple[int, list[tuple[int, bytes]]]]


def end_of_life(loop: object) -> None:
    """What stops a writer: what is staged is written, and the services do their last work."""
    loop.finish()                                           # type: ignore[attr-defined]
    loop.stop_service()                                     # type: ignore[attr-defined]
    for name in loop.services():                            # type: ignore[attr-defined]
        loop.run_service(name)                              # type: ignore[attr-defined]


def record_lives(root: Path, mode: str, dice: random.Random) -> tuple[list[Event], Rounds]:
    """Events; and for the end of each life their number, with what was flushed by then."""
    rounds: Rounds = []
    io_recorder.start()
    try:
        for _ in range(LIVES):
            run = Run(root, segment_size=SEGMENT, file_entries=FILE_ENTRIES)
            found = run.recover(clean=False)
            loop, probe = run.writer(mode, found.end), run.probe()
            dispatcher = run.dispatcher(index_enabled=False)
            sent: dict[int, bytes] = {}
            for opaque in range(ROUNDS * dice.randrange(1, 9)):
                sent[opaque] = dice.randbytes(dice.randrange(1, 700))
                assert probe.send("topic", dice.randrange(3), [sent[opaque]], opaque=opaque,
                                  properties=properties_of(sent[opaque]))
                if dice.random() < 0.3:
                    loop.run(TURN_MS)
                    assert dispatcher.run(TURN_MS) == 0
            loop.run(TURN_MS)
            taken = [(position, sent[opaque])
                     for opaque, status, _, position, _ in probe.take() if status == 0]
            assert len(taken) == len(sent)
            end_of_life(loop)
            assert dispatcher.run(TURN_MS) == 0
            dispatcher.sync()
            dispatcher.close()
            flushed = run.segment.log_state()["flushed"]
            assert flushed == run.segment.log_state()["published"]
            rounds.append((io_recorder.count(), taken))
    finally:
        events = io_recorder.stop()
    return events, rounds


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["async", "transient-pool"])
def test_a_power_cut_costs_only_what_was_not_flushed(mode: str, memory: Path) -> None:
    print(f"MQCORE_TEST_SEED={SEED}, {IMAGES} images")
    dice = random.Random(SEED)
    root = memory / "run"
    events, rounds = record_lives(root, mode, dice)
    images_of(events, rounds, memory, root, dice, promised=True, synced=False)
    shutil.rmtree(root)


@pytest.mark.parametrize("mode", ["async", "transient-pool"])
def test_what_is_acknowledged_is_flushed_within_the_interval(mode: str, tmp_path: Path) -> None:
    """In pool mode it is committed first, after its own interval."""
    run = Run(tmp_path / "store", segment_size=1 << 20)
    loop, probe = run.writer(mode, 0, flush_interval_ms=INTERVAL_MS, flush_least_bytes=0,
                             commit_interval_ms=INTERVAL_MS), run.probe()
    services = [threading.Thread(target=loop.run_service, args=[name])
                for name in loop.services()]
    for service in services:
        service.start()
    longest, ends = 0.0, [0]
    try:
        for number in range(8):
            assert probe.send("topic", 0, [b"x" * 100], opaque=number)
            began = time.monotonic()
            loop.run(TURN_MS)
            position = [result[3] for result in probe.take()][-1]

            def flushed(position: int = position) -> bool:
                loop.run(1)
                ends.append(run.segment.log_state()["flushed"])
                return ends[-1] > position

            wait_until(flushed, f"position {position} is flushed")
            longest = max(longest, time.monotonic() - began)
    finally:
        loop.stop_service()
        for service in services:
            service.join()
    assert ends == sorted(ends)
    assert longest <= 2 * INTERVAL_MS / 1000 + SLACK_S
