"""
Elections under crashes, cuts, drifting clocks and lost, late and repeated answers: nothing that was
acknowledged is missing in the log of one that leads, an offset means one message for all who read
it, and when all is well again, one leads.

A world has some forty troubles of twelve kinds; each run has others. ELECTION_SEEDS says how many
there are of each shape, MQCORE_TEST_SEED which ones.
"""
from __future__ import annotations

import dataclasses
import functools
import os
import random
from collections.abc import Callable, Mapping

import pytest

from mqcore.failover.election import Election, Transact, Words
from mqcore.failover.here import Here, Report
from mqcore.failover.keys import State, View
from mqcore.failover.storing import Moving
from mqcore.layout import REFUSAL_DISK_FULL, REFUSAL_NONE
from mqcore.shm.members import member_number
from tests.failover.world import Broker, World
from tests.support.dice import seed_of_run

SEEDS = int(os.environ.get("ELECTION_SEEDS", "1"))
SEED = seed_of_run()
TROUBLE_MS = 40_000
WORDS = Election.words


def disturb(world: World) -> None:
    """Something goes wrong, once in a second or so, and rights itself later."""
    dice = world.dice
    if dice.random() < 0.02:
        world.lost = dice.choice((0.0, 0.05, 0.3))
    if dice.random() > 0.02:
        return
    broker = dice.choice(world.brokers)
    what = dice.randrange(12)
    if what == 0 and broker.alive:
        world.crash(broker, dice.uniform(20, 6000))
    elif what == 1:
        broker.cut_off = not broker.cut_off
    elif what == 2:
        broker.unlinked = not broker.unlinked
    elif what == 3:
        broker.cut_off = broker.unlinked = False
    elif what == 4 and world.etcd.leases:
        world.etcd.revoke(dice.choice(sorted(world.etcd.leases)))       # etcd has lost its time
    elif what == 5:
        broker.offset_ms += dice.uniform(0, 500)                        # it slept
    elif what == 6 and broker.alive:
        broker.begin_anew()
    elif what == 7 and broker.alive:
        world.lose_queues(broker, dice.uniform(20, 6000))
    elif what == 8 and broker.alive and dice.random() < 0.3:
        world.lose_disk(broker, dice.uniform(20, 6000))
    elif what == 9 and broker.refusal == REFUSAL_NONE:
        world.fail_disk(broker)
    elif what == 9:
        broker.refusal = REFUSAL_NONE
    elif what == 10:
        world.retain(broker)
    elif what == 11:
        broker.lied_to = not broker.lied_to


def set_back(world: World) -> None:
    """Snapshots of disks are taken, and some disks are set back to them."""
    broker = world.dice.choice(world.brokers)
    if world.dice.random() < 0.01:
        world.take_snapshot(broker)
    elif world.dice.random() < 0.004 and broker.alive:
        world.set_back(broker, world.dice.uniform(20, 6000))


def disturb_all(world: World) -> None:
    disturb(world)
    set_back(world)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "min_in_sync"), [(2, 1), (3, 1), (3, 2), (5, 2)])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_acknowledged_is_lost_and_one_leads_in_the_end(
        seed: int, count: int, min_in_sync: int) -> None:
    print(f"MQCORE_TEST_SEED={SEED}")
    world = World(random.Random((SEED + seed) * 10 + count), count, min_in_sync=min_in_sync)
    world.deaths = 0.001
    world.run(TROUBLE_MS, lambda: disturb_all(world))
    world.be_well()
    world.run(30_000)              # who was away for long has much to take
    before = len(world.acknowledged)
    world.run(3_000)

    leading = [broker for broker in world.brokers if broker.leads]
    state = world.etcd.view().state
    assert len(leading) == 1
    assert state is not None
    assert (state.master, len(state.in_sync)) == (leading[0].member, count)
    assert len(world.acknowledged) > before
    assert world.changes > 0


def acknowledges_beside_one_that_cannot(trouble: Callable[[World, Broker], None],
                                        seed: int = SEED) -> bool:
    """Whether three acknowledge without their leader, which keeps its trouble."""
    world = World(random.Random(seed), 3)
    world.run(12_000)
    state = world.etcd.view().state
    assert state is not None
    assert state.in_sync == {1, 2, 3}
    leader = next(broker for broker in world.brokers if broker.leads)
    trouble(world, leader)
    world.run(6_000)
    for _ in range(4):
        before = len(world.acknowledged)
        world.run(2_000)
        if len(world.acknowledged) == before or leader.leads:
            return False
    return True


def fill(_world: World, broker: Broker) -> None:
    broker.refusal = REFUSAL_DISK_FULL


def cut_off_from_the_others(world: World, broker: Broker) -> None:
    broker.unlinked = True


@pytest.mark.parametrize("trouble", [World.fail_disk, fill, cut_off_from_the_others])
def test_who_cannot_store_leads_no_more_and_the_others_acknowledge(
        trouble: Callable[[World, Broker], None], monkeypatch) -> None:
    assert acknowledges_beside_one_that_cannot(trouble)
    monkeypatch.setattr(Election, "_give_up", lambda *_: None)
    assert not acknowledges_beside_one_that_cannot(trouble)


def cut_off_beside_strangers(world: World, broker: Broker) -> None:
    cut_off_from_the_others(world, broker)
    broker.lied_to = True


def test_reports_of_strangers_keep_no_leader_that_is_cut_off(monkeypatch) -> None:
    assert acknowledges_beside_one_that_cannot(cut_off_beside_strangers)
    still_ms = Moving.still_ms

    def of_all(self: Moving, _others: object, reports: Mapping[int, Report], *rest: int) -> int:
        return still_ms(self, reports, reports, *rest)

    monkeypatch.setattr(Moving, "still_ms", of_all)
    assert not acknowledges_beside_one_that_cannot(cut_off_beside_strangers)


def fill_and_crash(world: World) -> None:
    """Disks fill, and who leads is lost, while all others are there."""
    broker = world.dice.choice(world.brokers)
    if world.dice.random() < 0.01 and broker.alive:
        world.retain(broker)
    elif broker.leads and world.dice.random() < 0.01 and all(one.alive for one in world.brokers):
        world.crash(broker, world.dice.uniform(1000, 6000))


def leads_with_what_others_have(seed: int) -> bool:
    world = World(random.Random(seed), 3)
    try:
        world.run(TROUBLE_MS, functools.partial(fill_and_crash, world))
    except AssertionError as error:
        if "has deleted what" not in str(error):
            raise
        return False
    return True


def test_who_deleted_what_others_have_leads_behind_them(monkeypatch) -> None:
    assert all(leads_with_what_others_have(seed) for seed in (3, 5, SEED))
    monkeypatch.setattr(State, "gap", lambda *_: 0)
    assert not leads_with_what_others_have(3)
    assert not leads_with_what_others_have(5)


@pytest.mark.parametrize("seed", [3, 4, 13, 27])
def test_a_leader_that_lost_one_follower_before_the_other_gives_up(seed: int) -> None:
    """Else the one that it lost first leaves the set, and no other one may lead."""
    assert acknowledges_beside_one_that_cannot(cut_off_from_the_others, seed)


def some_world_loses(*seeds: int, trouble: Callable[[World], None] = disturb) -> bool:
    """Whether one of these worlds finds that a message is lost, or shown and then another one."""
    for seed in seeds:
        world = World(random.Random(seed), 3)
        try:
            world.run(TROUBLE_MS, functools.partial(trouble, world))
        except AssertionError:
            return True
    return False


def test_worlds_find_out_when_who_is_late_is_not_waited_for(monkeypatch) -> None:
    def nearest(self: Election) -> Words | None:
        words = WORDS(self)
        return None if words is None else dataclasses.replace(
            words, waited_for=words.waited_for[:1])

    monkeypatch.setattr(Election, "words", nearest)
    assert some_world_loses(71, 128)


@pytest.mark.slow
def test_worlds_find_out_when_anybody_may_lead(monkeypatch) -> None:
    def anybody(self: Election, view: View, here: Here) -> Transact | None:
        if view.master is not None or view.state is None or here.leads:
            return None
        return self._take(view, here, dataclasses.replace(
            view.state, epoch=max(view.state.epoch, here.epoch) + 1, master=self._me.member))

    claim = Election._claim
    monkeypatch.setattr(Election, "_claim", lambda self, view, here: (
        anybody(self, view, here) or claim(self, view, here)))
    assert some_world_loses(*range(12))


def test_worlds_find_out_when_who_is_elected_shows_all_at_once(monkeypatch) -> None:
    def at_once(self: Election, _state: State, here: Here) -> None:
        self._shown = here.begun

    monkeypatch.setattr(Election, "_show", at_once)
    assert some_world_loses(0, 13, 23)


def test_worlds_find_out_when_members_come_in_unasked(monkeypatch) -> None:
    """FO3 without its waiting."""
    def at_once(self: Election, view: View, _state: State, here: Here) -> dict[int, str]:
        reports = {member: here.reports.get(member_number(member, one.store))
                   for member, one in view.members.items()}
        return {member: view.members[member].store
                for member, report in reports.items() if report is not None and report.connected}

    monkeypatch.setattr(Election, "_ready", at_once)
    assert some_world_loses(2, 5, 6)


def crash_and_set_back(world: World) -> None:
    set_back(world)
    broker = world.dice.choice(world.brokers)
    if broker.alive and world.dice.random() < 0.005:
        world.crash(broker, world.dice.uniform(1000, 6000))


def test_worlds_find_out_when_a_disk_that_was_set_back_counts(monkeypatch) -> None:
    """FO13."""
    seeds = range(4)
    assert not some_world_loses(*seeds, trouble=crash_and_set_back)
    monkeypatch.setattr(Election, "_is_set_back", lambda *_: False)
    assert some_world_loses(*seeds, trouble=crash_and_set_back)
