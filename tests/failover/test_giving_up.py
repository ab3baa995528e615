"""A lost member leaves the set, and a leader that cannot store gives up (FO2, FO11)."""
from __future__ import annotations

import itertools

import pytest

from mqcore.failover.election import OTHERS_WAIT_MS
from mqcore.failover.here import Report
from mqcore.failover.storing import Storing
from mqcore.layout import (
    REFUSAL_DISK_FULL,
    REFUSAL_FLUSH_FAILED,
    REFUSAL_NONE,
    REFUSAL_WRITE_FAILED,
)
from tests.failover.test_election import LEASE, follow, led
from tests.failover.world import RULES


def test_who_is_gone_from_etcd_and_has_no_link_leaves_at_once() -> None:
    made = led(3)
    first, second, third = made.brokers
    end = int(first.clock(made.now))
    for other, linked in ((second, True), (third, False)):
        first.reports[other.number] = Report(0, end, linked)
    made.run(LEASE / 2, first, second)
    assert made.view.state.in_sync == {1, 2, 3}      # its lease holds
    made.run(LEASE / 2 + 600, first, second)
    assert made.view.state.in_sync == {1, 2}


def test_who_has_a_link_and_no_key_stays_and_the_last_that_are_needed_stay() -> None:
    made = led(3)
    first, second, third = made.brokers
    end = int(first.clock(made.now))
    first.reports[second.number] = Report(0, end, False)
    first.reports[third.number] = Report(0, end, True)
    made.run(LEASE + 600, first)
    assert made.view.state.in_sync == {1, 2, 3} - {2}     # the third keeps its link
    first.reports[third.number] = Report(0, end, False)
    made.run(100, first)
    assert made.view.state.in_sync == {1, 3}


def test_who_ends_in_order_takes_itself_out_of_the_set_where_enough_stay() -> None:
    for count, stay in ((2, {1, 2}), (3, {2, 3})):
        made = led(count)
        first = made.brokers[0]
        while (asked := first.election.leave()) is not None:
            first.put(asked, made.etcd, made.now, "answered")
        assert made.view.master is None
        assert made.view.state.in_sync == stay


@pytest.mark.parametrize(("count", "refusal", "stay"), [
    (3, REFUSAL_DISK_FULL, {2, 3}), (3, REFUSAL_FLUSH_FAILED, {2, 3}),
    (2, REFUSAL_WRITE_FAILED, {1, 2}), (2, REFUSAL_FLUSH_FAILED, {2})])
def test_who_cannot_store_gives_it_up_and_leaves_the_set(count, refusal, stay) -> None:
    made = led(count)
    first, second = made.brokers[:2]
    first.refusal = refusal
    asked = made.until(first, "resign", "answered")
    assert asked.why
    assert made.view.master is None
    assert made.view.state.in_sync == stay
    follow(first)
    assert first.leads == 0
    made.run(OTHERS_WAIT_MS + 100)
    assert second.leads == 2


def test_who_cannot_store_leads_on_where_nobody_else_is_there() -> None:
    made = led(2)
    first = made.brokers[0]
    made.run(LEASE + 600, first)                     # the second one's key is gone
    first.refusal = REFUSAL_WRITE_FAILED
    assert "1 resign" not in made.run(3 * LEASE, first)
    assert first.leads == 1


def test_a_resignation_whose_answer_is_lost_is_no_reason_to_go_on() -> None:
    for count, outcome in itertools.product((2, 3), ("unanswered", "unasked")):
        made = led(count)
        first = made.brokers[0]
        first.refusal = REFUSAL_WRITE_FAILED
        made.until(first, "resign", outcome)
        first.refusal, first.storing = REFUSAL_NONE, Storing()
        made.run(1000 + LEASE, first)
        view = made.view
        assert (view.master is None) == (outcome == "unanswered")
        assert (first.leads == 1) == (1 in view.state.stores)


def test_whose_disk_fails_claims_after_all_others() -> None:
    made = led(3)
    second, third = made.brokers[1:]
    second.log, second.refusal = [(1, 1)], REFUSAL_DISK_FULL      # else it would be the first
    made.run(LEASE + 1000, second, third)
    assert (second.leads, third.leads) == (0, 2)
    made = led(2)
    second = made.brokers[1]
    second.refusal = REFUSAL_DISK_FULL
    made.run(LEASE + 1000, second)
    assert second.leads == 0
    made.run(2 * LEASE, second)
    assert second.leads == 2


def test_who_is_cut_off_from_all_others_gives_it_up() -> None:
    made = led(3)
    first = made.brokers[0]
    first.log = [(1, 1)]
    assert "1 resign" not in made.run(RULES.in_sync_timeout_ms - 100)
    assert made.view.state.in_sync == {1, 2, 3}
    assert "1 resign" in made.run(300)
    assert made.view.state.in_sync == {2, 3}


@pytest.mark.parametrize("why", ["idle", "slow", "one other is gone"])
def test_who_has_no_better_one_beside_it_leads_on(why) -> None:
    made = led(3)
    first, second, third = made.brokers
    turning = [first, second, third][:2 if why == "one other is gone" else 3]
    for step in range(60):
        if why != "idle":
            first.log.append((1, step))
        acked = step if why == "slow" else 0
        first.reports[second.number] = Report(acked, 0, True)
        assert "1 resign" not in made.run(100, *turning)
    assert first.leads == 1


def test_a_log_takes_nothing_when_its_writer_refuses_for_long_or_is_silent() -> None:
    storing = Storing()

    def look(now_ms: int, refusal: int = REFUSAL_NONE, published: int = 0, *,
             waits: bool = False) -> bool:
        return bool(storing.look(now_ms, refusal, published, waits=waits, patience_ms=3000))

    assert not look(0)
    assert look(1, REFUSAL_FLUSH_FAILED)
    storing = Storing()
    assert not look(0, REFUSAL_DISK_FULL)
    assert not look(500)                              # it takes one write, and fails again
    assert not look(900, REFUSAL_DISK_FULL)
    assert look(1000, REFUSAL_DISK_FULL)
    assert look(1100)                                 # it has to take some for a while
    assert not look(2100)
    assert not look(2200, REFUSAL_WRITE_FAILED)       # a failure of its own
    storing = Storing()
    assert not look(0, waits=True)
    assert not look(2900, published=1, waits=True)
    assert not look(5900, published=1, waits=True)
    assert look(5901, published=1, waits=True)
    assert not look(5902, published=1)
    assert not look(9000, published=1)


def test_a_log_whose_queues_stay_behind_takes_nothing() -> None:
    storing = Storing()

    def look(now_ms: int, *, unreadable: bool) -> bool:
        return bool(storing.look(now_ms, REFUSAL_NONE, now_ms, waits=False, patience_ms=3000,
                                 unreadable=unreadable))

    assert not look(0, unreadable=True)
    assert not look(2900, unreadable=True)
    assert not look(2950, unreadable=False)           # the dispatcher has caught up
    assert not look(3100, unreadable=True)
    assert not look(6100, unreadable=True)
    assert look(6101, unreadable=True)
    assert not look(6200, unreadable=False)
