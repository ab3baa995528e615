"""
Each protocol of mqcore/shm and of the group commit in the smallest form that has its trouble. What
it promises holds in every order of steps; without any one of its fences or second looks it does
not, which shows that the model could tell. The words are those of the code.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.models.explorer import Steps, Stuck, Thread, breaks, holds

# -- ring.pxd R1 to R4, with the doorbells of segment.pxd on both sides ----------------------------

def ring(count: int, capacity: int, without: str = "") -> tuple[Thread, Thread]:
    """`count` records through a ring with room for `capacity` of them."""

    def fence(name: str) -> Steps:
        if name != without:
            yield ("fence",)

    def producer() -> Steps:
        head = 0
        for number in range(count):
            if number - head == capacity:                      # ring_claim: full
                head = yield ("load", "head")
            while number - head == capacity:
                yield ("release", "producer_waits", 1)         # ring_wait_for_room
                yield from fence("wait for room")
                head = yield ("load", "head")
                if number - head == capacity:
                    yield ("sleep", "producer's bell")
                    head = yield ("load", "head")
            yield ("store", f"record {number % capacity}", number + 1)
            yield ("store" if without == "release tail" else "release", "tail", number + 1)
            yield from fence("ring")                           # doorbell_ring
            if (yield ("load", "asleep")) and (yield ("exchange", "asleep", 0)):
                yield ("ring", "consumer's bell")

    def consumer() -> Steps:
        tail = 0
        for number in range(count):
            tail = yield ("load", "tail")
            while tail == number:
                yield ("release", "asleep", 1)                 # doorbell_arm
                yield from fence("arm")
                tail = yield ("load", "tail")
                if tail == number:
                    yield ("sleep", "consumer's bell")
                yield ("release", "asleep", 0)                 # doorbell_disarm
                tail = yield ("load", "tail")
            assert number < tail <= number + capacity, "R1"
            assert (yield ("load", f"record {number % capacity}")) == number + 1, "R3, R4"
            yield ("release", "head", number + 1)              # ring_release
            yield from fence("release")
            if (yield ("load", "producer_waits")) and (yield ("exchange", "producer_waits", 0)):
                yield ("ring", "producer's bell")

    return producer, consumer


@pytest.mark.slow
@pytest.mark.parametrize(("count", "capacity"), [(3, 1), (3, 2)])
def test_a_ring_brings_each_record_once_and_nobody_sleeps_for_ever(count: int, capacity: int):
    assert holds(*ring(count, capacity)) > 1000


@pytest.mark.parametrize("without", ["arm", "ring", "wait for room", "release"])
def test_without_one_of_its_fences_a_ring_loses_a_wake_up(without: str):
    assert isinstance(breaks(*ring(2, 1, without)), Stuck)


def test_a_tail_that_is_no_release_shows_records_before_they_are_there():
    assert "R3" in str(breaks(*ring(2, 1, "release tail")))


# -- tables.pxd T3, store_clock.pxd, filters.pxd V2: a copy under a sequence -----------------------

def changed(before: int, after: int, without: str = "") -> Steps:
    """open_entry, two words of it, close_entry; `before` is what the sequence is now."""
    if without != "odd":
        yield ("release", "sequence", before | 1)
    if without != "release fence":
        yield ("release fence",)
    yield ("store", "a", after)
    yield ("store", "b", after)
    yield ("store" if without == "close" else "release", "sequence", (before | 1) + 1)


def entry(without: str = "", dies: bool = False) -> tuple[Thread, Thread]:

    def writer() -> Steps:
        if dies:                                               # between any two of its stores ...
            steps = list(changed(0, 1))
            yield from steps[:(yield ("choose", len(steps) + 1))]
            yield ("fence",)
            found = yield ("load", "sequence")                 # ... and its successor goes on
            yield from changed(found, 2)
            return
        yield from changed(0, 1, without)
        yield from changed(2, 2, without)

    def reader() -> Steps:
        for _ in range(2):
            sequence = yield ("load", "sequence")              # look_begin
            if sequence & 1:
                continue
            if without == "acquire fence":
                a, b, again = yield ("loads", ("a", "b", "sequence"))
            else:
                a, b = yield ("loads", ("a", "b"))
                again = yield ("load", "sequence")             # look_holds
            if again == sequence or without == "second look":
                assert a == b, "T3"
                assert dies or a == sequence // 2, "T3"
                return

    return writer, reader


def test_a_copy_under_a_sequence_is_whole():
    assert holds(*entry()) > 1000


def test_a_writer_that_dies_over_an_entry_leaves_nothing_that_is_taken_for_whole():
    assert holds(*entry(dies=True)) > 1000


@pytest.mark.parametrize(
    "without", ["odd", "release fence", "close", "acquire fence", "second look"])
def test_without_one_of_its_steps_a_torn_copy_is_taken_for_whole(without: str):
    assert "T3" in str(breaks(*entry(without)))


# -- store_clock.pyx: knots move down when the table is full ---------------------------------------

def test_knots_that_move_down_are_read_as_they_were_or_as_they_are():
    """Two places for knots; the third knot drops the first. A knot is one word here: its number."""

    def writer() -> Steps:
        yield ("release", "sequence", 1)
        yield ("release fence",)
        yield ("store", "first", 2)
        yield ("store", "second", 3)
        yield ("release", "sequence", 2)

    def reader() -> Steps:
        for _ in range(2):
            sequence = yield ("load", "sequence")
            first, second = yield ("loads", ("first", "second"))
            if not sequence & 1 and (yield ("load", "sequence")) == sequence:
                assert (first, second) == ((1, 2) if sequence == 0 else (2, 3)), "T9"
                return

    assert holds(writer, reader, memory={"first": 1, "second": 2}) > 30


# -- group_commit.pxd G1, G2: who answers a sync ---------------------------------------------------

IDLE, SYNCING, TAKEN, ANSWERED, PHASES = range(5)


def group_commit(without: str = "") -> tuple[tuple[Thread, Thread], Callable[..., None]]:
    """
    Two syncs. The watcher may find that a deadline has come whenever it looks; `rings` counts who
    is in the result rings.
    """

    def in_rings(who: str, sync: int) -> Steps:
        others = yield ("exchange", "rings", 1)
        assert others == 0, "G2"
        before = yield ("exchange", f"answered {sync}", who == "writer" or 2)
        assert before == 0, "G1"
        yield ("exchange", "rings", 0)

    def writer() -> Steps:
        phase = IDLE
        for sync in range(2):
            yield ("release", "phase", phase + SYNCING)
            mine = yield ("swap", "phase", phase + SYNCING, phase + PHASES)
            if mine:
                yield from in_rings("writer", sync)
            elif without != "waits":
                while (yield ("load", "phase")) % PHASES != ANSWERED:
                    yield ("sleep", "answered")                # usleep, and a later look
                yield ("release", "phase", phase + PHASES)
            phase = phase + PHASES if without != "number" else IDLE
            if without == "number":
                yield ("release", "phase", IDLE)

    def watcher() -> Steps:
        for _ in range(3):
            seen = yield ("load", "phase")
            if seen % PHASES == SYNCING and (yield ("choose", 2)) and (
                    yield ("swap", "phase", seen, seen - SYNCING + TAKEN)):
                yield from in_rings("watcher", seen // PHASES)
                yield ("release", "phase", seen - SYNCING + ANSWERED)
                yield ("fence",)
                yield ("ring", "answered")

    def at_end(memory: dict[str, int], _: list[Any]) -> None:
        assert all(memory.get(f"answered {sync}") for sync in range(2)), "G1"

    return (writer, watcher), at_end


def test_each_sync_is_answered_once_by_the_writer_or_by_the_watcher():
    threads, at_end = group_commit()
    assert holds(*threads, at_end=at_end) > 100


@pytest.mark.parametrize("without", ["waits", "number"])
def test_without_its_rules_a_sync_is_answered_twice_or_not_at_all(without: str):
    threads, at_end = group_commit(without)
    assert str(breaks(*threads, at_end=at_end))[:2] in ("G1", "G2")


# -- limits.pxd T5: a place and two keys -----------------------------------------------------------

OLD, NEW, CLAIM = 100, 200, 3


def limit_place(without: str = "") -> tuple[tuple[Thread, Thread], Callable[..., None]]:
    """Process 0 counts a connection of OLD, whose idle place it is; process 1 wants the place."""

    def counted(own: int, key: int) -> Steps:
        """limit_enter, with the place at hand: whether it stays counted."""
        yield ("release", f"count {own}", 1)
        if without != "fence":
            yield ("fence",)
        if (yield ("load", "key")) == key:
            return True
        yield ("release", f"count {own}", 0)
        return False

    def enters() -> Steps:
        if (yield ("load", "key")) != OLD:
            return False
        return (yield from counted(0, OLD))

    def takes() -> Steps:
        if (yield ("load", "count 0")):
            return False
        if without == "claim":                                 # the key is changed at once
            if not (yield ("swap", "key", OLD, NEW)):
                return False
        else:
            if not (yield ("swap", "key", OLD, CLAIM)):
                return False
            if (yield ("load", "count 0")):
                yield ("release", "key", OLD)
                return False
            yield ("release", "key", NEW)
        return (yield from counted(1, NEW))

    def at_end(memory: dict[str, int], ends: list[Any]) -> None:
        assert not all(ends), "T5"
        if ends[0]:
            assert memory["key"] == OLD, "T5"
        if ends[1]:
            assert memory["key"] == NEW, "T5"

    return (enters, takes), at_end


def test_a_place_has_connections_of_one_key_alone():
    threads, at_end = limit_place()
    assert holds(*threads, memory={"key": OLD}, at_end=at_end) > 20


@pytest.mark.parametrize("without", ["fence", "claim"])
def test_without_a_claim_and_a_fence_two_keys_count_in_one_place(without: str):
    threads, at_end = limit_place(without)
    assert "T5" in str(breaks(*threads, memory={"key": OLD}, at_end=at_end))


# -- held.pxd H1, H2 and dispatch.pxd D3: a pull is listed while a message comes -------------------

def held_pull(without: str = "") -> tuple[Thread, Thread]:

    def dispatcher() -> Steps:
        yield ("release", "max_offset", 1)
        if without != "dispatcher":
            yield ("fence",)
        if (yield ("load", "interest")):
            yield ("ring", "serving's bell")

    def serving() -> Steps:
        if (yield ("load", "max_offset")):
            return
        yield ("release", "interest", 1)
        if without != "serving":
            yield ("fence",)
        if not (yield ("load", "max_offset")):
            yield ("sleep", "serving's bell")
            assert (yield ("load", "max_offset")), "D2"

    return dispatcher, serving


def test_no_held_pull_is_missed():
    assert holds(*held_pull()) > 10


@pytest.mark.parametrize("without", ["dispatcher", "serving"])
def test_without_its_fence_a_held_pull_is_missed(without: str):
    assert isinstance(breaks(*held_pull(without)), Stuck)


# -- dispatch.pxd D6: a dispatcher rests while a message comes and a pull begins to wait for it ----

def resting_dispatcher(without: str = "") -> tuple[Thread, ...]:
    """One message, one pull. The rest has no end here: no process may have to wait for it."""

    def fence(name: str) -> Steps:
        if name != without:
            yield ("fence",)

    def hurry() -> Steps:                                          # doorbell_hurry
        yield ("fence",)
        if not (yield ("load", "hurry")):
            yield ("release", "hurry", 1)
        yield from fence("ring")
        if (yield ("load", "asleep")) and (yield ("exchange", "asleep", 0)):
            yield ("ring", "dispatcher's bell")

    def writer() -> Steps:
        yield ("release", "published", 1)
        yield from fence("writer")                                 # is_awaited
        if (yield ("load", "interest")):
            yield from hurry()

    def serving() -> Steps:
        yield ("release", "interest", 1)
        yield from fence("serving")                                # H2
        if (yield ("load", "max_offset")):
            return
        if without != "second look" and (yield ("load", "published")) > (
                yield ("load", "dispatched")):
            yield from hurry()                                     # dispatch_hurry
        yield ("sleep", "serving's bell")
        assert (yield ("load", "max_offset")), "D2"

    def take_hurry() -> Steps:                                     # doorbell_take_hurry
        if (yield ("load", "hurry")):
            yield ("exchange", "hurry", 0)

    def dispatcher() -> Steps:
        while True:
            if without != "taken first":
                yield from take_hurry()
            published = yield ("load", "published")
            if without == "taken first":
                yield from take_hurry()
            if published:
                yield ("release", "max_offset", 1)
                yield ("release", "dispatched", 1)
                yield ("fence",)                                   # tell
                if (yield ("load", "interest")):
                    yield ("ring", "serving's bell")
                return
            yield ("release", "asleep", 1)                         # doorbell_rest
            yield from fence("rest")
            if not (yield ("load", "hurry")):
                yield ("sleep", "dispatcher's bell")
            yield ("release", "asleep", 0)

    return writer, serving, dispatcher


def test_a_dispatcher_does_not_rest_while_a_pull_waits_for_what_is_published():
    assert holds(*resting_dispatcher()) > 1000


@pytest.mark.parametrize(
    "without", ["writer", "serving", "second look", "taken first", "ring", "rest"])
def test_without_one_of_its_looks_a_dispatcher_rests_while_a_pull_waits(without: str):
    assert isinstance(breaks(*resting_dispatcher(without)), Stuck)


# -- shm/segment.pxd: a hurry that finds an earlier one --------------------------------------------

def second_hurry(without: str = "") -> tuple[Thread, ...]:
    """A hurry is there already when the next one comes, for what was published behind it."""

    def hurries() -> Steps:
        yield ("release", "published", 1)
        if without != "fence":
            yield ("fence",)
        if not (yield ("load", "hurry")):
            yield ("release", "hurry", 1)
        yield ("fence",)
        if (yield ("load", "asleep")) and (yield ("exchange", "asleep", 0)):
            yield ("ring", "bell")

    def worker() -> Steps:
        while True:
            if (yield ("load", "hurry")):
                yield ("exchange", "hurry", 0)
            if (yield ("load", "published")):
                return
            yield ("release", "asleep", 1)
            yield ("fence",)
            if not (yield ("load", "hurry")):
                yield ("sleep", "bell")
            yield ("release", "asleep", 0)

    return hurries, worker


def test_a_second_hurry_is_heard_as_the_first_is_taken():
    assert holds(*second_hurry(), memory={"hurry": 1}) > 10


def test_without_its_fence_a_second_hurry_is_lost():
    assert isinstance(breaks(*second_hurry("fence"), memory={"hurry": 1}), Stuck)
