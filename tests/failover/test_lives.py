"""
Topics and groups that are removed and made again while brokers elect who leads (lives.py): each
broker has the queues of its log, and what all had heard to be removed stays so. LIVES_SEEDS says
how many worlds there are, MQCORE_TEST_SEED which ones.
"""
from __future__ import annotations

import functools
import os
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mqcore.broker import following
from mqcore.shm.retention import QueueLives
from mqcore.store import cutting, files
from mqcore.workers.coordinator.shared_queues import Removal, SharedQueues
from tests.failover.lives import Host, LivingWorld
from tests.failover.test_worlds import disturb_all
from tests.support.dice import seed_of_run

SEEDS = int(os.environ.get("LIVES_SEEDS", "1"))
SEED = seed_of_run()
TROUBLE_MS, WELL_MS = 20_000, 20_000
CALM_MS = 8_000
Trouble = Callable[[LivingWorld], None]


def lived(folder: Path, seed: int, trouble: Trouble, ms: float = TROUBLE_MS) -> LivingWorld:
    """A world's troubles, and its end: all is well. AssertionError: it does not hold."""
    folder.mkdir()
    with files.replaced(sync=lambda _: None):            # no power is lost here
        world = LivingWorld(random.Random(seed), folder)
        world.run(ms, functools.partial(trouble, world))
        world.be_well()
        world.run(WELL_MS if ms == TROUBLE_MS else 0)
        world.hold_all()
    return world


def calm(_: LivingWorld) -> None:
    """Nothing goes wrong."""


def crash_and_cut(world: LivingWorld) -> None:
    """A leader that is cut off removes a topic, which no other broker hears of, and dies."""
    broker = world.dice.choice(world.brokers)
    topics = world.hosts[broker.member].topics()
    if broker.leads and topics and not broker.unlinked and world.dice.random() < 0.02:
        broker.unlinked = broker.cut_off = True
        world.remove(broker, world.dice.choice(topics))
    elif broker.unlinked and world.dice.random() < 0.03:
        world.crash(broker, world.dice.uniform(20, 3000))
        broker.unlinked = broker.cut_off = False


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_broker_has_the_queues_of_its_log_and_the_leaders_tables(
        tmp_path: Path, seed: int) -> None:
    print(f"MQCORE_TEST_SEED={SEED}")
    worlds = [lived(tmp_path / trouble.__name__, SEED + seed, trouble)
              for trouble in (disturb_all, crash_and_cut)]
    assert all(world.removals and world.changes for world in worlds)
    assert worlds[1].cuts


def trouble_of(folder: Path, *seeds: int, trouble: Trouble = calm) -> str:
    """The first world's fault that is found, in words; "": all worlds hold."""
    for seed in seeds:
        try:
            lived(folder / str(seed), seed, trouble, CALM_MS if trouble is calm else TROUBLE_MS)
        except AssertionError as error:
            return str(error)
    return ""


QUEUES, TABLES = "queues are others than its log's", "tables are others|back at member"
SOME = range(1, 9)


def test_worlds_without_troubles_hold(tmp_path: Path) -> None:
    assert trouble_of(tmp_path, 1, 2) == ""


def test_worlds_find_a_removal_that_is_not_in_the_log(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a life begins is known to who removed the queues, and to no copy of the log."""
    tick = Host.tick

    def by_itself(self: SharedQueues, _: Removal, queues: Sequence[tuple[str, int]]) -> None:
        self._lives.ask(self._lives.numbers(queues))

    def as_the_writer(self: Host) -> None:
        lives = QueueLives(self.disk.run.segment)
        lives.begin([queue.number for queue in lives.asked()], self.disk.loop.restart_position())
        tick(self)

    monkeypatch.setattr(SharedQueues, "_mark", by_itself)
    monkeypatch.setattr(Host, "tick", as_the_writer)
    assert QUEUES in trouble_of(tmp_path, *SOME)


def test_worlds_find_a_cut_that_gives_no_life_back(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "ends_lives", lambda *_: False)
    assert QUEUES in trouble_of(tmp_path, *range(4), trouble=crash_and_cut)


def test_worlds_find_a_removed_group_whose_offsets_come_back(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets only come to slaves, and none ever go, as in stock."""
    monkeypatch.setattr(following, "_remove_missing", lambda *_: ())
    assert re.search(TABLES, trouble_of(tmp_path, *SOME))


def test_worlds_find_offsets_of_a_topic_that_was_made_again(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that is deleted and made again between two looks was there at both."""
    monkeypatch.setattr(following, "_remove_missing", following._remove_deleted)
    assert re.search(TABLES, trouble_of(tmp_path, *SOME))
