"""The checker sees each kind of bad history, and nothing wrong in good ones."""
from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.replication.faults.checker import check, summary
from tests.replication.faults.history import Delivery, History, Send, body_of, name_in

SEED = 1


def history() -> History:
    """
    Two queues. Of queue 0: key 0 and 2 acknowledged, key 4 timed out (12) and was sent again, key 6
    without an answer, key 8 refused. Of queue 1: key 1 acknowledged.
    """
    made = History(SEED)
    made.sends = [
        Send(0, 1, 0, 1, 1.0, 2.0, 0, 0), Send(1, 1, 1, 1, 1.1, 2.1, 0, 0),
        Send(2, 1, 0, 1, 1.2, 2.2, 0, 1), Send(4, 1, 0, 1, 3.0, 4.0, 12, 2),
        Send(4, 2, 0, 2, 5.0, 6.0, 0, 3), Send(6, 1, 0, 2, 5.1), Send(8, 1, 0, 2, 5.2, 6.1, 14),
    ]
    kept = [(0, 0, "0.1"), (0, 1, "2.1"), (0, 2, "4.1"), (0, 3, "4.2"), (0, 4, "6.1"),
            (1, 0, "1.1")]
    made.deliveries = [Delivery(*one, "a") for one in kept[:3]]
    made.final = {broker: [Delivery(*one, broker) for one in kept] for broker in "ab"}
    return made


def without(found: list[Delivery], name: str) -> list[Delivery]:
    return [one for one in found if one.name != name]


def test_a_good_history_has_no_faults() -> None:
    assert check(history()) == []


def test_what_nobody_knows_or_timed_out_may_be_missing() -> None:
    good = history()
    for broker, found in good.final.items():
        good.final[broker] = without(found, "6.1")
    assert check(good) == []
    other = history()                     # cut by a failover, and the second attempt moved up
    other.sends[4].offset = 2
    for broker in other.final:
        other.final[broker] = [
            replace(one, offset=one.offset - (one.queue == 0 and one.offset > 2))
            for one in without(other.final[broker], "4.1")]
    other.deliveries = [one for one in other.deliveries if one.name != "4.1"]
    assert check(other) == []


def test_what_was_read_at_a_host_that_is_lost_may_be_another_one() -> None:
    good = history()
    good.lasting = False
    good.deliveries.append(Delivery(0, 4, "4.1", "a"))
    assert check(good) == []


def lose(bad: History) -> None:
    bad.final["b"] = without(bad.final["b"], "1.1")


def lose_in_the_middle(bad: History) -> None:
    for broker, found in bad.final.items():
        bad.final[broker] = without(found, "2.1")


def swap_on_a_link(bad: History) -> None:
    """A second of a link before its first, which nobody has an answer for."""
    bad.sends[4] = replace(bad.sends[4], answered=None, code=None, offset=None)
    names = {3: "6.1", 4: "4.2"}
    for broker, found in bad.final.items():
        bad.final[broker] = [replace(one, name=names.get(one.offset, one.name)) for one in found]


def swap_over_links(bad: History) -> None:
    """What was sent when another one's answer was there stands before that."""
    bad.sends[3] = replace(bad.sends[3], offset=None)
    bad.sends[4] = replace(bad.sends[4], offset=None)
    bad.deliveries = bad.deliveries[:2]
    names = {2: "4.2", 3: "4.1"}
    for broker, found in bad.final.items():
        bad.final[broker] = [
            replace(one, name=names.get(one.offset, one.name) if one.queue == 0 else one.name)
            for one in found]


def reuse_an_offset_that_was_read(bad: History) -> None:
    bad.deliveries.append(Delivery(0, 4, "4.1", "a"))


def reuse_an_acknowledged_offset(bad: History) -> None:
    bad.sends[5].code, bad.sends[5].offset, bad.sends[5].answered = 0, 1, 7.0


def move_a_message(bad: History) -> None:
    bad.sends[3].offset = 7


def invent(bad: History) -> None:
    for broker, found in bad.final.items():
        found.append(Delivery(1, 1, "99.1", broker))


def store_what_was_refused(bad: History) -> None:
    for broker, found in bad.final.items():
        found.append(Delivery(0, 5, "8.1", broker))


def change_the_bytes(bad: History) -> None:
    body = bytearray(body_of(SEED, "6.1"))
    body[-1] ^= 1
    for broker, found in bad.final.items():
        bad.final[broker] = [*without(found, "6.1"),
                             Delivery(0, 4, name_in(SEED, bytes(body)), broker)]


def store_in_another_queue(bad: History) -> None:
    for broker, found in bad.final.items():
        bad.final[broker] = [*without(found, "6.1"), Delivery(1, 1, "6.1", broker)]


def double_an_attempt(bad: History) -> None:
    for broker, found in bad.final.items():
        found.append(Delivery(0, 5, "6.1", broker))


def double_an_acknowledged_message(bad: History) -> None:
    bad.sends[3].code = 0


def take_back(bad: History) -> None:
    bad.deliveries.append(Delivery(0, 5, "6.1", "a"))
    for broker, found in bad.final.items():
        bad.final[broker] = without(found, "6.1")


def leave_a_hole(bad: History) -> None:
    bad.lasting = False
    for broker, found in bad.final.items():
        bad.final[broker] = without(found, "4.1")


@pytest.mark.parametrize(("spoil", "kind"), [
    (lose, "lost"), (lose_in_the_middle, "lost"), (swap_on_a_link, "order"),
    (swap_over_links, "order"), (reuse_an_offset_that_was_read, "reused"),
    (reuse_an_acknowledged_offset, "reused"), (move_a_message, "reused"), (invent, "phantom"),
    (store_what_was_refused, "phantom"), (change_the_bytes, "phantom"),
    (store_in_another_queue, "phantom"), (double_an_attempt, "doubled"),
    (double_an_acknowledged_message, "doubled"), (take_back, "taken back"), (leave_a_hole, "hole"),
], ids=lambda value: getattr(value, "__name__", value))
def test_a_bad_history_is_caught(spoil: Callable[[History], None], kind: str) -> None:
    bad = history()
    spoil(bad)
    assert kind in {fault.kind for fault in check(bad)}
    assert f"{kind}: " in summary(check(bad))


def test_a_written_history_is_judged_again(tmp_path: Path) -> None:
    bad = history()
    lose(bad)
    bad.note("all of a killed")
    bad.write(tmp_path / "history")
    assert History.read(tmp_path / "history") == bad
    done = subprocess.run(
        [sys.executable, "-m", "tests.replication.faults.checker", tmp_path / "history"],
        capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[0]) == (1, "lost: 1")
