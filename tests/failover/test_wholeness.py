"""A member that has deleted more than the others is elected behind them (FO12)."""
from __future__ import annotations

from mqcore.failover.etcd import Key
from mqcore.failover.here import Report
from mqcore.failover.keys import Names, view_of
from mqcore.layout import REFUSAL_DISK_FULL
from tests.failover.test_election import LEASE, Set, led
from tests.failover.world import NAMES, Broker


def near(leader: Broker, *others: Broker, now: float) -> None:
    for other in others:
        leader.reports[other.number] = Report(0, int(leader.clock(now)), True)


def lacking(count: int) -> Set:
    """A set whose last member has deleted what all others have."""
    made = led(count)
    near(made.brokers[0], *made.brokers[1:], now=made.now)
    made.brokers[-1].first = 100
    made.run(LEASE)
    return made


def test_who_has_deleted_more_than_the_leader_leaves_the_set_where_enough_stay() -> None:
    assert lacking(3).view.state.in_sync == {1, 2}
    assert lacking(2).view.state.in_sync == {1, 2}


def test_who_lacks_something_comes_in_only_while_too_few_others_are_near() -> None:
    made = lacking(3)
    first, second, third = made.brokers
    made.run(LEASE)
    assert made.view.state.in_sync == {1, 2}
    first.reports[second.number] = Report(0, int(first.clock(made.now)), False)
    made.run(LEASE + 600, first, third)
    assert made.view.state.in_sync == {1, 3}
    near(first, second, third, now=made.now)
    made.run(LEASE)
    assert made.view.state.in_sync == {1, 2}
    assert third.number not in first.words.waited_for


def test_it_is_whole_again_when_the_leader_has_deleted_as_much() -> None:
    made = lacking(3)
    made.brokers[0].first = 100
    made.run(LEASE)
    assert made.view.state.in_sync == {1, 2, 3}
    assert made.view.state.whole_from == 100


def test_who_lacks_something_claims_behind_a_longer_wait_and_behind_all_others() -> None:
    made = lacking(2)
    second = made.brokers[1]
    made.run(LEASE + 1000, second)
    assert second.leads == 0
    made.run(2 * LEASE, second)
    assert second.leads == 2

    made = led(3)
    second, third = made.brokers[1:]
    second.log, second.first = [(1, 1)], 100           # it has most of the log's end
    made.run(LEASE + 1000, second, third)
    assert (second.leads, third.leads) == (0, 2)


def test_who_cannot_store_leads_on_where_the_others_lack_something() -> None:
    made = lacking(2)
    first, second = made.brokers
    first.refusal = REFUSAL_DISK_FULL
    assert "1 resign" not in made.run(3 * LEASE)
    second.first = 0
    assert "1 resign" in made.run(3 * LEASE)


def test_a_run_that_was_killed_takes_the_lead_back_only_with_what_the_set_keeps() -> None:
    for first, claims in ((0, True), (100, False)):
        made = led(2)
        back = Broker(1)
        back.first = first
        assert ("1 claim" in made.run(LEASE / 4, back)) == claims


def test_keys_of_a_broker_that_says_nothing_of_it_lack_nothing() -> None:
    names = Names.of("c", "b")
    view = view_of(names, [
        Key(names.state, b'{"epoch": 1, "master": 1, "inSync": [1], "stores": {"1": "a"}}', 1, 0),
        Key(names.member(1), b'{"address": "a", "ha": "b", "epoch": 1, "end": 7, "store": "a"}',
            1, 0)])
    assert view.members[1].first == 0
    assert view.state.whole_from is None
    assert view.state.gap(1_000_000) == 0
    assert names == NAMES
