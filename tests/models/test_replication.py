"""
The protocols of replication in shared memory: the third gate, raw bytes on their way to a writer,
the sign of where the master is. As in test_protocols.py: they hold in every order of steps, deaths
among them, and break without any one of their rules.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.models.explorer import Steps, Stuck, Thread, breaks, holds, mortal

# -- replica_gate.pxd G5, master.pxd HM3: who waits for others, and who says what they have --------

OK, NOT_AVAILABLE, TIMEOUT = 1, 2, 3


def said(reports: tuple[int, ...], without: str = "") -> Steps:
    """master.pyx, judge: slaves have reported these positions."""
    for position in reports:
        present = yield ("load", "present")
        changed = not present
        if without == "order":
            yield ("release", "present", 1)
        if without == "never back" or position > (yield ("load", "replicated")):
            yield ("store" if without == "release" else "release", "replicated", position)
            changed = True
        if changed:
            yield ("release", "present", 1)
            if without != "ring":
                yield ("fence",)                               # doorbell_ring
            if (yield ("load", "asleep")) and (yield ("exchange", "asleep", 0)):
                yield ("ring", "writer's bell")


def waited(without: str = "", timed: bool = False) -> Steps:
    """
    replica_gate.pyx: a record that ends at 1 waits; others that are behind by 1 are not usable.
    """
    present = yield ("load", "present")                        # gate_usable
    usable = present and 1 - (yield ("load", "replicated")) < 1
    while True:
        if (yield ("load", "replicated")) >= 1:                # verdict
            return OK
        assert not present, "G5: who is present has what was reported"
        if not usable and timed:
            return NOT_AVAILABLE
        if timed and (yield ("load", "time")):
            return TIMEOUT
        yield ("release", "asleep", 1)                         # doorbell_arm
        if without != "arm":
            yield ("fence",)
        if (yield ("load", "replicated")) < 1 and not (timed and (yield ("load", "time"))):
            yield ("sleep", "writer's bell")
        yield ("release", "asleep", 0)


def test_a_result_that_waits_for_slaves_is_woken_by_their_report():
    assert holds(lambda: said((1,)), waited) > 30


@pytest.mark.parametrize("without", ["ring", "arm"])
def test_without_a_fence_a_report_is_slept_through(without: str):
    assert isinstance(breaks(lambda: said((1,), without), lambda: waited(without)), Stuck)


def test_slaves_that_are_present_before_their_report_look_like_none():
    assert "G5" in str(breaks(lambda: said((1,), "order"), waited))


def gate_deaths(without: str = "") -> tuple[tuple[Thread, ...], Callable[..., None]]:
    """ha-master dies anywhere; its successor hears of a slave that has less. Time passes."""

    def ha_master() -> Steps:
        yield from mortal(said((1, 2)))
        yield ("fence",)
        yield ("release", "present", 0)                        # MasterLoop: an earlier one's slaves
        yield from said((1,), without)

    def clock() -> Steps:
        yield ("release", "time", 1)
        yield ("fence",)
        yield ("ring", "writer's bell")

    def writer() -> Steps:
        present = yield ("load", "present")
        usable = present and 1 - (yield ("load", "replicated")) < 1
        before = 0
        while True:
            position = yield ("load", "replicated")
            assert position >= before, "HM3: the mark never goes back"
            before = position
            if position >= 2:
                return OK
            if not usable:
                return NOT_AVAILABLE
            if (yield ("load", "time")):
                return TIMEOUT
            yield ("release", "asleep", 1)
            yield ("fence",)
            if (yield ("load", "replicated")) < 2 and not (yield ("load", "time")):
                yield ("sleep", "writer's bell")
            yield ("release", "asleep", 0)

    def at_end(memory: dict[str, int], ends: list[Any]) -> None:
        assert memory["present"] == 1, "HM3: a slave has reported"
        assert ends[-1] != OK or memory["replicated"] == 2, "G5: OK is what others have"

    return (ha_master, clock, writer), at_end


def test_a_death_of_who_replicates_loses_no_answer_and_no_mark():
    threads, at_end = gate_deaths()
    assert holds(*threads, at_end=at_end) > 1000


def test_a_successor_that_believes_a_lesser_report_moves_the_mark_back():
    threads, at_end = gate_deaths("never back")
    said_of_it = str(breaks(*threads, at_end=at_end))
    assert "HM3" in said_of_it or "G5" in said_of_it


# -- replica_gate.pxd G9, slave.pxd HS9, dispatch.pxd D5: what a follower shows --------------------

SHOWN_UP_TO = 1


def rung(without: str = "") -> Steps:
    if without != "ring":
        yield ("fence",)                                       # doorbell_ring
    if (yield ("load", "asleep")) and (yield ("exchange", "asleep", 0)):
        yield ("ring", "dispatcher's bell")


def appended() -> Steps:
    """The writer of a follower: two records, of which the second is its and the master's alone."""
    for end in (1, 2):
        yield ("release", "published", end)
        yield from rung()


def tells(positions: tuple[int, ...], without: str = "") -> Steps:
    """slave.pyx, feed_word; a master that was elected later has counted less at first."""
    for position in positions:
        if without == "never back" or position > (yield ("load", "told")):
            yield ("release", "told", position)
            yield from rung(without)


def shows(without: str = "") -> Steps:
    """dispatch.pyx: up to readable_end, until that is all that others have."""
    shown = before = 0
    while shown < SHOWN_UP_TO:
        told = yield ("load", "told")
        assert told >= before, "G9: it only grows"
        before = told
        end = min((yield ("load", "published")), told)
        if without == "D5":
            end = yield ("load", "published")
        if end > shown:
            shown = end
            assert shown <= SHOWN_UP_TO, "D5: others do not have the second record"
            yield ("store", "shown", shown)
            continue
        yield ("release", "asleep", 1)                         # doorbell_arm
        if without != "arm":
            yield ("fence",)
        if min((yield ("load", "published")), (yield ("load", "told"))) <= shown:
            yield ("sleep", "dispatcher's bell")
        yield ("release", "asleep", 0)


def told(without: str = "", positions: tuple[int, ...] = (SHOWN_UP_TO,)) -> tuple[Thread, ...]:
    return appended, lambda: tells(positions, without), lambda: shows(without)


def shown_in_the_end(memory: dict[str, int], _: list[Any]) -> None:
    assert memory["shown"] == SHOWN_UP_TO


@pytest.mark.parametrize("positions", [(SHOWN_UP_TO,), (SHOWN_UP_TO, 0)])
def test_a_follower_shows_what_others_have_and_no_more(positions: tuple[int, ...]):
    assert holds(*told(positions=positions), at_end=shown_in_the_end) > 100


def test_a_follower_without_its_rule_shows_what_its_master_may_lose():
    assert "D5" in str(breaks(*told("D5")))


def test_a_lesser_word_of_a_new_master_takes_nothing_back():
    assert "G9" in str(breaks(*told("never back", (SHOWN_UP_TO, 0))))


@pytest.mark.parametrize("without", ["ring", "arm"])
def test_without_a_fence_what_others_have_is_slept_through(without: str):
    assert isinstance(breaks(*told(without)), Stuck)


# -- raw.pxd A7, slave.pxd HS5, replica_gate.pxd G7: raw bytes on their way to the writer ----------

RECORDS = 1
TAKEN, NOT_AT_END, RESTARTED = 1, 2, 3
LIFE = 10                              # of who asked, beside a result's status


def follows(life: int) -> Steps:
    """ha-slave: every record from the log's end on, until all are stored; then its links end."""
    asked = heard = 0
    if life > 1:
        asked = yield ("load", "requests tail")
        heard = yield ("load", "results head")
    while (end := (yield ("load", "end"))) < RECORDS:
        outstanding = 0
        for position in range(end, RECORDS):
            yield ("store", f"request {asked}", LIFE * life + position)
            asked += 1
            outstanding += 1
        yield ("release", "requests tail", asked)
        yield ("ring", "writer's bell")
        while outstanding:                                     # a link that failed waits for all
            tail = yield ("load", "results tail")
            if tail == heard:
                yield ("sleep", "slave's bell")
                continue
            while heard < tail:
                result = yield ("load", f"result {heard}")
                heard += 1
                if result // LIFE == life:                     # of an earlier life: nobody's
                    outstanding = max(outstanding - 1, 0)      # two answers: see G7
            yield ("release", "results head", heard)


def writes(life: int, without: str = "") -> Steps:
    """The writer: its log has what its file has; what an earlier life left is answered first."""
    end = taken = answered = dropped = 0
    if life > 1:
        while end < RECORDS and (yield ("load", f"log {end}")):
            end += 1                                           # published, or in the file alone
        yield ("release", "end", end)
        taken = yield ("load", "requests head")
        answered = yield ("load", "results tail")
        dropped = yield ("load", "requests tail")
    while True:
        tail = yield ("load", "requests tail")
        if tail == taken:
            if (yield ("load", "over")):
                return
            yield ("sleep", "writer's bell")
            continue
        request = yield ("load", f"request {taken}")
        status = NOT_AT_END
        if taken < dropped:
            status = RESTARTED
        elif without == "A7" or request % LIFE == end:
            assert request % LIFE == end, "A7: bytes lie where they say"
            yield ("store", f"log {end}", 1)
            end += 1
            yield ("release", "end", end)
            status = TAKEN
        taken += 1
        if without == "G7":
            yield ("release", "requests head", taken)
        yield ("store", f"result {answered}", LIFE * (request // LIFE) + status)
        answered += 1
        yield ("release", "results tail", answered)
        if without != "G7":
            yield ("release", "requests head", taken)
        yield ("ring", "slave's bell")


def raw_bytes(dies: str, without: str = "") -> tuple[Thread, Thread]:

    def slave() -> Steps:
        if dies == "slave":
            yield from mortal(follows(1))
            yield ("fence",)
        yield from follows(2 if dies == "slave" else 1)
        yield ("release", "over", 1)
        yield ("ring", "writer's bell")

    def writer() -> Steps:
        if dies == "writer":
            if (yield from mortal(writes(1, without))):
                return
            yield ("ring", "slave's bell")                     # who sleeps looks once a second
            yield from writes(2)
        else:
            yield from writes(1, without)

    return slave, writer


def all_there(memory: dict[str, int], _: list[Any]) -> None:
    assert memory["end"] == RECORDS
    assert all(memory[f"log {position}"] == 1 for position in range(RECORDS))


@pytest.mark.parametrize("dies", ["slave", "writer"])
def test_a_followed_log_is_whole_whoever_dies(dies: str):
    assert holds(*raw_bytes(dies), at_end=all_there) > 500


def test_without_a_look_at_places_what_a_dead_slave_left_is_stored_twice():
    assert "A7" in str(breaks(*raw_bytes("slave", "A7"), at_end=all_there))


def test_a_request_that_leaves_its_ring_before_its_result_is_never_answered():
    assert isinstance(breaks(*raw_bytes("writer", "G7"), at_end=all_there), Stuck)


# -- text_board.pxd: a text, its length, and who reads it

FIRST, SECOND = 1, 2                   # addresses; their lengths are the same numbers


def written(address: int, without: str = "") -> Steps:
    """board_write, and the bell of who reads."""
    odd = (yield ("load", "sequence")) | 1
    if without != "odd":
        yield ("release", "sequence", odd)
    if without != "release fence":
        yield ("release fence",)
    yield ("store", "text", address)
    yield ("store", "length", address)
    yield ("release", "sequence", odd + 1)
    if without != "ring":
        yield ("fence",)                                       # doorbell_ring
    if (yield ("load", "asleep")) and (yield ("exchange", "asleep", 0)):
        yield ("ring", "slave's bell")


def sign(without: str = "", dies: bool = False) -> tuple[Thread, Thread]:
    """The coordinator writes one address, then another; ha-slave looks until it has that."""

    def coordinator() -> Steps:
        if dies:
            yield from mortal(written(FIRST))
            yield ("fence",)
        else:
            yield from written(FIRST, without)
        yield from written(SECOND, without)
        if dies:                                               # between a swap and its bell: who
            yield ("ring", "slave's bell")                     # sleeps looks once a second

    def copied() -> Steps:
        sequence = yield ("load", "sequence")                  # board_read
        if sequence & 1:
            return None
        length, text = yield ("loads", ("length", "text"))
        if without != "second look" and (yield ("load", "sequence")) != sequence:
            return None
        assert length == text, "T3"
        return text

    def slave() -> Steps:
        while True:
            yield ("release", "asleep", 1)
            yield ("fence",)
            if (yield from copied()) == SECOND:
                return
            yield ("sleep", "slave's bell")

    return coordinator, slave


@pytest.mark.parametrize("dies", [False, True])
def test_a_slave_learns_of_its_master_and_of_a_whole_address(dies: bool):
    assert holds(*sign(dies=dies)) > 500


@pytest.mark.parametrize("without", ["odd", "release fence", "second look"])
def test_without_its_rules_an_address_is_torn(without: str):
    assert "T3" in str(breaks(*sign(without)))


def test_without_a_fence_a_new_master_is_slept_through():
    assert isinstance(breaks(*sign("ring")), Stuck)
