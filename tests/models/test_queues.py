"""Lives of queues, places of subscriptions, and counts of pulls: see test_protocols.py."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.models.explorer import Steps, Thread, breaks, holds, mortal

# -- retention.pyx Q1 to Q4, dispatch.pxd D4: a life of a queue ends, another one begins -----------

SEEN_FIRST, SCANNED_FIRST = "begun is read first", "published is read first"


def lives(without: str = "", dies: bool = False) -> tuple[tuple[Thread, ...], Callable[..., None]]:
    """
    Record 0 is of the old life, record 1, which comes behind the removal, of the new one. `file` is
    a set of bits: the records that the queue's file has entries of.
    """

    def ends() -> Steps:
        """The writer, Q2."""
        yield ("release", "restart", 1)
        if without != "counted later":
            yield ("release", "begun", 1)
            yield ("release", "removals_begun", 1)
        yield ("release", "published", 2)
        if without == "counted later":
            yield ("release", "begun", 1)
            yield ("release", "removals_begun", 1)

    def writer() -> Steps:
        if dies:
            if (yield from mortal(ends())):
                return
            yield ("fence",)
        yield from ends()                                      # Q4: the same once more

    def dispatcher() -> Steps:
        position = seen = 0
        while position < 2:
            if without == SCANNED_FIRST:
                begun = yield ("load", "removals_begun")
                published = yield ("load", "published")
            else:
                published = yield ("load", "published")
                begun = yield ("load", "removals_begun")
            if begun != seen:
                if without == SEEN_FIRST:                      # _remove_queues, the other way round
                    asked = (yield ("load", "begun")) != (yield ("load", "done"))
                    begun = yield ("load", "removals_begun")
                else:
                    asked = (yield ("load", "begun")) != (yield ("load", "done"))
                if asked:
                    yield ("store", "file", 0)
                    yield ("release", "max_offset", 0)
                    yield ("release", "done", 1)
                seen = begun
                continue
            if published == position:
                yield ("fence",)                               # a turn without work
                if (yield ("load", "published")) == position:
                    return position
                continue
            file = yield ("load", "file")
            for number in range(position, published):
                if number >= (yield ("load", "restart")):      # D4, for each record
                    file |= 1 << number
            yield ("store", "file", file)
            yield ("release", "max_offset", 1)
            position = published
        return position

    def at_end(memory: dict[str, int], found: list[Any]) -> None:
        if found[-1] == 2:
            assert memory["file"] == 0b10, "Q3: the new life has its record, and no other"
            assert memory["done"] == 1, "Q3"

    return (writer, dispatcher), at_end


@pytest.mark.parametrize("dies", [False, True])
def test_a_new_life_has_its_own_records_and_no_others(dies: bool):
    threads, at_end = lives(dies=dies)
    assert holds(*threads, memory={"published": 1}, at_end=at_end) > 50


@pytest.mark.parametrize("without", ["counted later", SCANNED_FIRST])
def test_without_their_order_a_new_life_loses_its_records(without: str):
    threads, at_end = lives(without)
    assert "Q3" in str(breaks(*threads, memory={"published": 1}, at_end=at_end))


# -- tables.pxd T4: a subscription's place goes to another pair ------------------------------------

OURS, OTHER = 1, 2


def place(without: str = "") -> tuple[Thread, Thread]:
    """The place of OURS, which is gone, is given to OTHER, whose codes are set after that."""

    def coordinator() -> Steps:
        for sequence, words in ((0, {"life": 2, "key": OTHER, "codes": 0}), (2, {"codes": OTHER})):
            yield ("release", "sequence", sequence | 1)
            yield ("release fence",)
            for word, value in words.items():
                yield ("store", word, value)
            yield ("release", "sequence", sequence + 2)

    def serving() -> Steps:
        """subscription_find for OURS, whose number it has; then by what it knows of it."""
        if without == "key" and (yield ("load", "key")) != OURS:
            return
        known = None
        for _ in range(2):
            sequence = yield ("load", "sequence")
            if sequence & 1:
                continue
            life, key, codes = yield ("loads", ("life", "key", "codes"))
            if (yield ("load", "sequence")) != sequence:
                continue
            if known is None:
                if key == OURS or without == "key":
                    assert codes == OURS, "T4: codes are those of the pair"
                known = life
            elif life == known or without == "life":
                assert key == (OURS if known == 1 else OTHER), "T4: a number with its life"

    return coordinator, serving


def test_a_place_that_goes_to_another_pair_is_seen_by_all_who_know_its_number():
    assert holds(*place(), memory={"life": 1, "key": OURS, "codes": OURS}) > 50


@pytest.mark.parametrize("without", ["key", "life"])
def test_without_key_and_life_another_pairs_codes_are_taken_for_ones_own(without: str):
    assert "T4" in str(breaks(*place(without), memory={"life": 1, "key": OURS, "codes": OURS}))


# -- pull_counts.pxd Z1, Z2; tables.pxd T2: what is named before it is found -----------------------

def named(without: str = "", dies: bool = False) -> tuple[Thread, Thread]:

    def adds(pair: int) -> Steps:
        count = yield ("load", "count")
        yield ("store", f"name {count}", pair)
        yield ("store" if without == "release" else "release", "count", count + 1)

    def serving() -> Steps:
        if dies and not (yield from mortal(adds(1))):
            yield ("fence",)
        elif not dies:
            yield from adds(1)
        yield from adds(2)

    def reader() -> Steps:
        for number in range((yield ("load", "count"))):
            assert (yield ("load", f"name {number}")) in (1, 2), "Z2"

    return serving, reader


@pytest.mark.parametrize("dies", [False, True])
def test_what_is_counted_has_its_name(dies: bool):
    assert holds(*named(dies=dies)) > 10


def test_a_count_that_is_no_release_shows_entries_without_a_name():
    assert "Z2" in str(breaks(*named("release")))
