"""The words of who leads: what one process writes, the others read."""
from __future__ import annotations

import time

import pytest

from mqcore.layout import (
    LEADERSHIP_FOLLOWS,
    LEADERSHIP_LEADS,
    LEADERSHIP_MEMBERS_MAX,
    LEADERSHIP_NONE,
)
from mqcore.shm.leadership import LeadershipPen
from mqcore.shm.segment import Segment
from tests.shm.test_segment import SMALL


@pytest.fixture
def pen():
    segment = Segment.create("/mqcore-test-leadership", **SMALL, kind="memfd")
    segment.make_bells()
    return LeadershipPen(segment)


def test_a_run_begins_without_a_word(pen) -> None:
    assert (pen.requested, pen.role, pen.leads, pen.holds) == (
        (LEADERSHIP_NONE, 0), (LEADERSHIP_NONE, 0), False, False)
    assert (pen.members, pen.reports, pen.leader()) == ([], {}, (0, 0, "", "", 0, []))


def test_what_is_wanted_and_what_is_are_two_words_with_their_epochs(pen) -> None:
    pen.request(LEADERSHIP_LEADS, (1 << 61) - 1)
    assert (pen.requested, pen.leads) == ((LEADERSHIP_LEADS, (1 << 61) - 1), False)
    pen.become(LEADERSHIP_LEADS, 7)
    assert (pen.role, pen.leads) == ((LEADERSHIP_LEADS, 7), True)
    pen.become(LEADERSHIP_FOLLOWS, 8)
    assert (pen.role, pen.leads) == ((LEADERSHIP_FOLLOWS, 8), False)


@pytest.mark.parametrize(("state", "epoch"), [(3, 1), (-1, 1), (1, -1)])
def test_what_is_no_state_or_epoch_is_refused(pen, state, epoch) -> None:
    with pytest.raises(ValueError):
        pen.request(state, epoch)
    with pytest.raises(ValueError):
        pen.become(state, epoch)


def test_the_lease_holds_until_its_deadline(pen) -> None:
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    pen.hold_until(now + 60_000_000_000)
    assert pen.holds
    pen.hold_until(now)
    assert not pen.holds
    assert pen.deadline_ns == now


def test_members_are_counted_as_taken_when_ha_master_has_said_so(pen) -> None:
    assert pen.applied
    pen.wait_for([3, 1])
    assert (pen.members, pen.applied) == ([3, 1], False)
    with pytest.raises(ValueError, match="at most 16"):
        pen.wait_for(list(range(LEADERSHIP_MEMBERS_MAX + 1)))


def test_who_leads_is_said_with_both_addresses(pen) -> None:
    pen.say_leader(3, "h:10911", "i:10912", 7, [1, 3])
    version, *rest = pen.leader()
    assert (version, rest) == (pen.leader_version, [3, "h:10911", "i:10912", 7, [1, 3]])
    pen.say_leader(0, "", "", 7, [1, 3])
    assert pen.leader() == (version + 2, 0, "", "", 7, [1, 3])
    with pytest.raises(ValueError, match="expected at most"):
        pen.say_leader(1, "h" * 480, "", 7, [])
    ids = range(1 << 30, (1 << 30) + 17)
    pen.say_leader((1 << 31) - 1, "h" * 220, "i" * 220, (1 << 53) - 1, ids)
    found = pen.leader()
    assert found is not None
    assert found[1:5] == ((1 << 31) - 1, "h" * 220, "i" * 220, (1 << 53) - 1)
    assert found[5] == [*ids[:len(found[5])]]        # as many as have room
