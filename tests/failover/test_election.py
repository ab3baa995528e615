"""One election after the other: what is asked of etcd, and what follows from its answers."""
from __future__ import annotations

from dataclasses import replace

import pytest

from mqcore.failover.election import (
    LEAD_WAIT_LEASES,
    OTHERS_WAIT_MS,
    Election,
    Transact,
)
from mqcore.failover.here import Report
from mqcore.failover.keys import OTHERS_MAX, View
from tests.failover.world import MS, NAMES, RULES, Broker, FakeEtcd

LEASE = RULES.lease_ms
STEP = 10


class Set:
    """Brokers and an etcd, turned by hand."""

    def __init__(self, count: int = 2) -> None:
        self.etcd = FakeEtcd()
        self.now = 0.0
        self.brokers = [Broker(member) for member in range(1, count + 1)]

    def run(self, ms: float, *brokers: Broker) -> list[str]:
        """What was asked by transactions meanwhile."""
        asked = []
        until = self.now + ms
        while self.now < until:
            self.now += STEP
            self.etcd.expire(self.now)
            for broker in brokers or self.brokers:
                found = broker.ask(self.etcd, self.now)
                if isinstance(found, Transact):
                    asked.append(f"{broker.member} {found.what}")
                follow(broker)
        return asked

    def until(self, broker: Broker, what: str, outcome: str) -> Transact:
        """Turn this one until it asks for `what`; the answer is then `outcome`."""
        for _ in range(2000):
            self.now += STEP
            self.etcd.expire(self.now)
            asked = broker.election.next(broker.here(self.now))
            if asked is None:
                continue
            if isinstance(asked, Transact) and asked.what == what:
                broker.put(asked, self.etcd, self.now, outcome)
                return asked
            broker.put(asked, self.etcd, self.now, "answered")
            follow(broker)
        raise AssertionError(f"never asked: {what}")

    @property
    def view(self) -> View:
        return self.etcd.view()


def number(member: int, store: str = "") -> int:
    return Broker(member, store).number


def numbers(*members: int) -> tuple[int, ...]:
    return tuple(sorted(map(number, members)))


def follow(broker: Broker) -> None:
    """The supervisor and ha-master at once."""
    words = broker.words
    broker.leads, broker.applied = words.leads, words.waited_for


def led(count: int = 2) -> Set:
    """A set that the first of them leads, all in it."""
    made = Set(count)
    made.run(LEASE + 600)
    first = made.brokers[0]
    assert first.leads == 1
    for other in made.brokers[1:]:
        first.reports[other.number] = Report(0, 0, True)
    made.run(100)
    assert made.view.state.in_sync == frozenset(range(1, count + 1))
    return made


# -- the very first time (FO7) ---------------------------------------------------------------------


def test_nobody_leads_before_all_had_a_leases_time_to_show_themselves() -> None:
    made = Set()
    assert not [one for one in made.run(LEASE) if "claim" in one]
    assert made.run(200).count("1 claim") == 1
    assert (made.view.master.member, made.view.state.epoch, made.view.state.in_sync) == (1, 1, {1})


@pytest.mark.parametrize(("logs", "first"), [
    (([], []), 1), (([], [(1, 1)]), 2), (([(1, 1)], [(1, 1), (1, 2)]), 2),
    (([(1, 1), (1, 2)], [(2, 3)]), 2), (([(2, 1)], [(2, 1)]), 1)])
def test_the_greatest_epoch_and_end_come_first_then_the_smallest_id(logs, first) -> None:
    made = Set()
    for broker, log in zip(made.brokers, logs, strict=True):
        broker.log = log
    made.run(LEASE + 600)
    assert made.view.master.member == first
    assert made.view.state.epoch == max([0, *(epoch for log in logs for epoch, _ in log)]) + 1


def test_an_empty_store_never_comes_before_one_with_messages_that_is_there() -> None:
    made = Set()
    empty, full = made.brokers
    full.log = [(1, 1)]
    made.until(full, "renew", "answered")
    made.run(LEASE / 2, empty)                # while it is known, and says nothing
    assert "1 claim" not in made.run(LEASE / 3, empty)


# -- claims (FO8) ----------------------------------------------------------------------------------


def test_a_member_of_the_set_leads_when_the_lease_has_run_out_and_the_set_stays() -> None:
    made = led()
    second = made.brokers[1]
    assert "2 claim" in made.run(LEASE + 1000, second)
    assert (made.view.master.member, made.view.master.epoch) == (2, 2)
    assert made.view.state.in_sync == {1, 2}
    assert second.words.waited_for == numbers(1)


def test_who_is_not_in_the_set_waits_for_ever() -> None:
    made = Set()
    made.run(LEASE + 600)
    assert made.view.state.in_sync == {1}
    assert not [one for one in made.run(20_000, made.brokers[1]) if "claim" in one]


def test_a_member_that_has_another_store_now_is_none() -> None:
    made = led()
    other = Broker(2, store="another")
    assert not [one for one in made.run(20_000, other) if "claim" in one]


def test_of_two_candidates_the_one_with_less_waits_longer() -> None:
    made = led(3)
    second, third = made.brokers[1:]
    third.log = [(1, 1)]
    made.run(LEASE, second, third)
    while made.view.master is not None:
        made.run(STEP, second)
    began = made.now
    assert not [one for one in made.run(OTHERS_WAIT_MS - 2 * STEP, second) if "claim" in one]
    made.run(100, second)
    assert made.view.master.member == 2
    assert made.now - began > OTHERS_WAIT_MS - 5 * STEP


def test_of_two_claims_at_one_time_one_is_made() -> None:
    made = led(3)
    second, third = made.brokers[1:]
    third.log = second.log = [(1, 1)]
    asked = [made.until(broker, "claim", "unasked") for broker in (second, third)]
    assert [made.etcd.transact(one) for one in asked] == [True, False]
    made.run(500, second, third)
    assert (second.election.leads, third.election.leads) == (2, 0)


def test_a_broker_that_comes_back_at_once_takes_over_from_its_last_run() -> None:
    made = led()
    first = made.brokers[0]
    first.election, first.leads = first.begin(), 0
    made.run(100, first)
    assert (made.view.master.epoch, first.leads) == (2, 2)


def test_a_broker_that_lost_the_end_of_its_log_does_not_take_over_from_its_last_run() -> None:
    made = led(3)
    first, second, third = made.brokers
    first.log = second.log = third.log = [(1, 1), (1, 2)]
    made.run(LEASE, *made.brokers)
    first.log = [(1, 1)]                             # its host lost power, and is there again
    first.election, first.leads = first.begin(), 0
    asked = made.run(LEASE + 1000, *made.brokers)
    assert "1 claim" not in asked
    assert made.view.master.member in {2, 3}


# -- what who was elected shows (FO10) -------------------------------------------------------------


def elected(count: int, log: list[tuple[int, int]], begun: int) -> tuple[Set, Broker]:
    """The second leads after the first, which is gone, and began with `begun` messages."""
    made = led(count)
    second = made.brokers[1]
    second.log, second.begun = log, begun
    made.run(LEASE + 1000, second)
    assert second.leads > 1
    return made, second


def test_all_that_came_from_the_former_leader_is_shown_where_nobody_else_may_be_elected() -> None:
    _, second = elected(2, [(1, 1), (1, 2)], 2)
    assert (second.words.former, second.words.shown) == (number(1), 2)


def test_what_another_member_may_lack_is_shown_when_it_has_it() -> None:
    made, second = elected(3, [(1, 1), (1, 2)], 2)
    assert second.words.shown == 0
    for acked, shown in ((1, 0), (2, 2)):
        second.reports[number(3)] = Report(acked, int(second.clock(made.now)), True)
        made.run(100, second)
        assert second.words.shown == shown
    assert made.view.state.in_sync == {2, 3}


def test_of_a_log_that_the_former_leader_may_lack_it_has_to_report_all() -> None:
    """It led an epoch of which there is nothing here: the log came from somebody else."""
    made, second = elected(2, [], 0)
    assert second.words.former == 0
    second.begun = 1
    second.election, second.leads = second.begin(), 0
    made.run(100, second)                            # its own last run, which only it has
    assert (second.leads, second.words.former, second.words.shown) == (3, 0, 0)
    second.reports[number(1)] = Report(1, int(second.clock(made.now)), True)
    made.run(100, second)
    assert second.words.shown == 1


def test_the_next_process_of_an_election_knows_whose_log_it_was() -> None:
    made, second = elected(3, [(1, 1), (1, 2)], 2)
    second.begin_anew()
    made.run(100, second)
    assert (second.words.former, second.words.shown) == (number(1), 0)
    second.reports[number(3)] = Report(2, int(second.clock(made.now)), True)
    made.run(100, second)
    assert second.words.shown == 2


@pytest.mark.parametrize("dies", [False, True])
def test_an_epoch_that_was_claimed_and_not_begun_changes_nothing(dies) -> None:
    """Its answer was lost until the lease was over; or its process died before the broker led."""
    made = led(2)
    second = made.brokers[1]
    second.log, second.begun = [(1, 1), (1, 2)], 2
    made.until(second, "claim", "answered" if dies else "unanswered")
    if dies:
        made.run(100, second)
        second.leads = 0                             # as the supervisor has it
        second.begin_anew()
    made.now += 2 * LEASE
    made.run(1000, second)
    assert second.leads == 3
    assert (second.words.former, second.words.shown) == (number(1), 2)


def test_who_never_came_leaves_before_the_one_whose_log_it_was() -> None:
    made, second = elected(3, [(1, 1), (1, 2)], 2)
    made.run(RULES.in_sync_timeout_ms + 500, second)
    assert made.view.state.in_sync == {1, 2, 3}      # another one might lead meanwhile
    made.run(LEASE, second)
    assert made.view.state.in_sync == {1, 2}
    assert second.words.shown == 2                   # the third can be elected no more


def test_before_the_broker_leads_nothing_is_shown() -> None:
    made = led(2)
    second = made.brokers[1]
    second.log, second.begun = [(1, 1)], 1
    made.until(second, "claim", "answered")
    second.ask(made.etcd, made.now)
    assert second.words.leads == 2
    assert second.words.shown == 0


# -- lost answers (FO4) ----------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", ["unasked", "unanswered"])
def test_a_claim_whose_answer_is_lost_is_read_again(outcome) -> None:
    made = led()
    second = made.brokers[1]
    made.until(second, "claim", outcome)
    assert second.election.leads == 0
    made.run(300, second)
    assert second.election.leads == 2
    assert second.may_acknowledge(made.now)


@pytest.mark.parametrize("outcome", ["unasked", "unanswered"])
def test_who_may_have_come_in_is_waited_for(outcome) -> None:
    made = led(2)
    first = made.brokers[0]
    first.reports[number(3)] = Report(0, 0, True)
    third = Broker(3)
    made.run(1000, first, third)
    assert made.view.state.in_sync == {1, 2, 3}      # so it goes when nothing is lost

    fourth = Broker(4)
    made.run(200, fourth)
    made.until(first, "renew", "answered")           # no other transaction comes in between
    first.reports[number(4)] = Report(0, 0, True)
    asked = made.until(first, "set", outcome)
    first.reports[number(4)] = Report(0, 0, False)           # it has left
    assert asked.adds == {number(4)}
    assert number(4) in first.words.waited_for
    made.run(60, first)
    if outcome == "unasked":                         # written anew: it can be made no more
        assert first.words.waited_for == numbers(2, 3)
        assert not made.etcd.transact(asked)
    else:
        assert first.words.waited_for == numbers(2, 3, 4)


@pytest.mark.parametrize("outcome", ["unasked", "unanswered"])
def test_a_renewal_whose_answer_is_lost_moves_the_deadline_only_when_it_was_made(outcome) -> None:
    made = led()
    first = made.brokers[0]
    before = first.words.deadline_ns
    made.until(first, "renew", outcome)
    assert first.words.deadline_ns == before
    first.ask(made.etcd, made.now)                   # the look
    assert (first.words.deadline_ns > before) == (outcome == "unanswered")


# -- the lease (FO5, FO6, FO9) ---------------------------------------------------------------------


def test_the_deadline_is_counted_from_before_the_lease_was_asked_for() -> None:
    made = led()
    first = made.brokers[0]
    lease = made.etcd.keys[NAMES.master].lease
    asked = made.etcd.leases[lease] - LEASE          # etcd's own time of the grant
    assert first.words.deadline_ns == (asked + LEASE * 9 // 10) * MS   # a tenth for the clocks


@pytest.mark.parametrize("drift", [0.92, 1.0, 1.08])
def test_with_clocks_that_drift_nothing_is_acknowledged_when_another_one_leads(drift) -> None:
    made = led()
    first, second = made.brokers
    fast = Broker(1, drift=drift, offset_ms=12345)
    fast.election, fast.leads = fast.begin(leads=1), 1
    fast.reports = first.reports
    made.run(500, fast)
    while second.election.leads == 0:
        made.now += STEP
        made.etcd.expire(made.now)
        second.ask(made.etcd, made.now)
    assert not fast.may_acknowledge(made.now)


def test_without_etcd_a_leader_stops_at_its_deadline_and_goes_on_in_its_epoch() -> None:
    made = led()
    first = made.brokers[0]
    for _ in range(LEASE // STEP):
        made.now += STEP
        first.ask(made.etcd, made.now, "unasked")
    assert (first.election.leads, first.may_acknowledge(made.now)) == (1, False)
    made.now += LEASE
    made.etcd.expire(made.now)
    assert made.view.master is None
    assert "1 resume" in made.run(100, first)
    assert (first.election.leads, made.view.master.epoch) == (1, 1)
    assert first.may_acknowledge(made.now)


def test_who_was_led_over_meanwhile_does_not_take_its_lease_up_again() -> None:
    """It asked before; on the way another one was elected, and its lease ran out, too."""
    made = led()
    first, second = made.brokers
    for _ in range(LEASE // STEP):
        made.now += STEP
        first.ask(made.etcd, made.now, "unasked")
    made.now += LEASE
    asked = made.until(first, "resume", "unasked")
    made.run(LEASE + 1000, second)
    assert second.election.leads == 2
    made.etcd.revoke(made.etcd.keys[NAMES.master].lease)
    assert made.view.master is None
    assert not made.etcd.transact(asked)
    assert made.view.master is None


def test_who_finds_that_another_one_was_elected_follows() -> None:
    made = led()
    first, second = made.brokers
    made.run(LEASE + 1000, second)
    made.run(50, first)
    words = first.words
    assert (words.leads, words.epoch, words.deadline_ns, words.waited_for) == (0, 2, 0, ())
    assert words.leader.member == 2


def test_a_process_that_begins_anew_goes_on_leading() -> None:
    made = led()
    first = made.brokers[0]
    first.election = first.begin(leads=1)
    asked = made.run(1000, first)
    assert set(asked) == {"1 renew"}
    assert (first.election.leads, first.may_acknowledge(made.now)) == (1, True)


def test_a_process_that_begins_anew_waits_for_whom_the_dead_one_may_have_let_in() -> None:
    made = led(2)
    first = made.brokers[0]
    made.run(200, Broker(3))
    first.reports[number(3)] = Report(0, 0, True)
    asked = made.until(first, "set", "unasked")      # it is on its way still
    first.begin_anew()
    first.ask(made.etcd, made.now)
    assert first.words.waited_for == numbers(2, 3)
    first.reports[number(3)] = Report(0, 0, False)
    made.run(60, first)
    assert first.words.waited_for == numbers(2)
    assert not made.etcd.transact(asked)             # by now it can be made no more


def test_an_orderly_end_lets_another_one_lead_at_once() -> None:
    made = led()
    first, second = made.brokers
    while (asked := first.election.leave()) is not None:
        first.put(asked, made.etcd, made.now, "answered")
    assert made.view.master is None
    assert 1 not in made.view.members
    made.run(LEASE // 2, second)
    assert second.election.leads == 2


def test_who_cannot_begin_to_lead_lets_another_one_try() -> None:
    made = led()
    first, second = made.brokers
    second.log = [(1, 1)]
    asked = set()
    for _ in range(int((LEAD_WAIT_LEASES + 4) * LEASE / STEP)):
        made.now += STEP
        made.etcd.expire(made.now)
        found = second.ask(made.etcd, made.now)      # its supervisor does nothing
        asked |= {found.what} if isinstance(found, Transact) else set()
        if "resign" in asked:
            break
    assert "resign" in asked
    first.election, first.leads = first.begin(), 0
    made.run(500, first, second)
    assert first.election.leads == 3


def test_another_broker_with_the_same_id_takes_no_part() -> None:
    made = led()
    twin = Broker(2, store="another")
    made.run(100, made.brokers[1])
    made.run(100, twin)
    assert "another broker at h2:1 takes part as member 2" in twin.election.trouble
    assert made.view.members[2].store == "store2"
    made.run(LEASE + 1000, twin)                     # the first one is gone
    assert twin.election.trouble == ""


@pytest.mark.parametrize("member", [1, 2])
def test_a_copy_of_a_members_store_elsewhere_takes_no_part(member: int) -> None:
    """Of the one that leads, too: what the copy finds as its own last run goes on elsewhere."""
    made = led()
    copy = Broker(member, host="elsewhere")
    asked = [one for _ in range(30) for one in made.run(50, *made.brokers, copy)]
    assert set(asked) <= {"1 renew", "2 renew"}
    assert f"takes part as member {member}" in copy.election.trouble
    assert copy.words.leader is None                 # nor does it follow: its links would count
    assert made.brokers[0].may_acknowledge(made.now)


def test_a_set_has_no_more_members_than_there_are_places() -> None:
    made = led(2)
    first = made.brokers[0]
    more = [Broker(member) for member in range(3, 25)]
    made.run(300, *more)
    for broker in more:
        first.reports[broker.number] = Report(0, 0, True)
    for _ in range(20):
        made.run(50, first, *more)
        assert len(first.words.waited_for) <= OTHERS_MAX
    assert len(made.view.state.in_sync) == OTHERS_MAX + 1


# -- the set (FO2, FO3) ----------------------------------------------------------------------------


def test_who_is_late_leaves_in_etcd_first_and_only_while_enough_stay() -> None:
    made = led(3)
    first = made.brokers[0]
    first.log = [(1, 1)]
    late = RULES.in_sync_timeout_ms
    first.reports[number(2)] = Report(0, 0, True)
    first.reports[number(3)] = Report(0, -1, False)
    made.run(late / 2, first)
    first.reports[number(2)] = Report(0, int(made.now), True)
    assert made.view.state.in_sync == {1, 2, 3}
    asked = made.until(first, "set", "unasked")
    assert number(3) in first.words.waited_for    # etcd does not say so yet
    assert made.etcd.transact(asked)
    made.run(50, first)
    assert first.words.waited_for == numbers(2)
    made.run(3 * late, first)
    assert made.view.state.in_sync == {1, 2}         # min_in_sync


def test_who_comes_in_is_waited_for_first_and_has_what_was_acknowledged() -> None:
    made = led(2)
    first, third = made.brokers[0], Broker(3)
    first.log = [(1, 1), (1, 2), (1, 3)]
    first.reports[number(2)] = Report(3, 0, True)
    first.replicated = 3
    made.run(200, third)

    def turn(report: Report, taken: bool, ms: float = 400) -> None:
        first.reports[number(3)] = replace(report, even_ms=int(made.now))
        first.applied = numbers(2, 3) if taken else numbers(2)
        for _ in range(int(ms / STEP)):
            made.now += STEP
            first.ask(made.etcd, made.now)
            words = first.words
            first.applied = words.waited_for if taken else numbers(2)

    turn(Report(2, 0, True), taken=False)
    assert first.words.waited_for == numbers(2, 3)
    assert made.view.state.in_sync == {1, 2}
    turn(Report(2, 0, True), taken=True)
    assert made.view.state.in_sync == {1, 2}
    turn(Report(3, 0, True), taken=False)
    assert made.view.state.in_sync == {1, 2}
    turn(Report(3, 0, True), taken=True)
    assert made.view.state.in_sync == {1, 2, 3}


def test_a_member_with_a_new_store_is_put_down_anew_when_it_has_all() -> None:
    made = led(2)
    first, other = made.brokers[0], Broker(2, store="another")
    made.now += 2 * LEASE                            # the first store's key is gone
    made.run(600, first, other)
    first.reports[number(2)] = Report(0, int(made.now), True)        # a link of the first store
    made.run(300, first, other)
    assert made.view.state.stores == {1: "store1", 2: "store2"}      # says nothing of the new one
    first.reports[other.number] = Report(0, int(made.now), True)
    made.run(300, first, other)
    assert made.view.state.stores == {1: "store1", 2: "another"}


def test_a_member_that_no_key_speaks_of_does_not_come_in() -> None:
    made = led(2)
    first = made.brokers[0]
    first.reports[number(9)] = Report(0, 0, True)
    made.run(1000, first)
    assert made.view.state.in_sync == {1, 2}
    assert first.words.waited_for == numbers(2)


def test_words_of_one_who_follows_name_who_leads_and_nobody_is_waited_for() -> None:
    made = led()
    words = made.brokers[1].words
    assert (words.leads, words.epoch, words.waited_for, words.in_sync) == (0, 1, (), (1, 2))
    assert words.leader.ha == "h1:2"


def test_an_election_that_was_told_nothing_asks_for_the_keys_first() -> None:
    election = Election(NAMES, Broker(1).election._me, RULES)
    assert type(election.next(Broker(1).here(0.0))).__name__ == "Look"
    assert election.words() is None


def test_min_in_sync_may_change_while_it_runs() -> None:
    made = led(3)
    first = made.brokers[0]
    first.log = [(1, 1)]
    first.reports = {number(2): Report(0, 0, False), number(3): Report(1, 0, True)}
    first.election.configure(replace(RULES, min_in_sync=2))
    made.run(2 * RULES.in_sync_timeout_ms, first)
    assert made.view.state.in_sync == {1, 2, 3}
    first.election.configure(RULES)
    made.run(300, first)
    assert made.view.state.in_sync == {1, 3}
