"""No request holds the coordinator for longer because a table is large (docs/architecture.md)."""
from __future__ import annotations

import gc
import time
from collections.abc import Generator, Iterator

import pytest

from mqcore.broker.request import Request
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import Command
from mqcore.wire.topics import TopicConfig
from tests.attacks import coordinator_hogs as hogs
from tests.broker.fakes import NOW_MS, Bench, make_bench, settings_in

PAIRS = 100_000
CONFIGS = 10_000
UNITS_MAX = 4.0
CHANGING = (Code.DELETE_SUBSCRIPTIONGROUP, Code.DELETE_TOPIC_IN_BROKER, Code.CLEAN_UNUSED_TOPIC)


def unit() -> float:
    """CPU seconds of a list of PAIRS texts: some ten milliseconds."""
    best = 1e9
    for _ in range(5):
        began = time.thread_time()
        assert len([str(number) for number in range(PAIRS)]) == PAIRS
        best = min(best, time.thread_time() - began)
    return best


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Offsets of one group of many topics, of one topic by many groups; many topics and groups."""
    bench = make_bench(settings_in(tmp_path_factory.mktemp("full") / "store"))
    core = bench.broker.core
    for number in range(PAIRS):
        core.offsets.commit("one-group", f"T-{number}", 0, 5)
        core.offsets.commit(f"G-{number}", "one-topic", 0, 5)
    for number in range(CONFIGS):
        core.topics.update(TopicConfig(f"T-{number}", 1, 1, 6), NOW_MS)
        core.groups.find_or_create(f"G-{number}", NOW_MS)
    core.topics.update(TopicConfig("one-topic", 4, 4, 6), NOW_MS)
    core.groups.find_or_create("one-group", NOW_MS)
    core.topics.persist()
    core.groups.persist()
    gc.collect()
    gc.freeze()                            # as the coordinator does
    yield bench
    gc.unfreeze()


def longest_turn(bench: Bench, code: int, fields: dict[str, str | None]) -> float:
    """CPU seconds of a request's longest stretch between two pauses."""
    command = Command(code, version=409, opaque=7, ext=dict(fields), body=hogs.bodies(code))
    request = Request(1, "10.0.0.1:4000", command, NOW_MS)
    began = time.thread_time()
    outcome = bench.broker.begin(request)
    longest = time.thread_time() - began
    if not isinstance(outcome, Generator):
        return longest
    while True:
        began = time.thread_time()
        try:
            next(outcome)
        except StopIteration:
            return max(longest, time.thread_time() - began)
        longest = max(longest, time.thread_time() - began)


@pytest.mark.parametrize("names", [
    {"topic": "one-topic", "group": "one-group"}, {"topic": "T-1", "group": "G-1"},
    {"topic": "", "group": "one-group"},
], ids=["the largest", "small ones", "all of a group"])
def test_no_request_takes_long_turns_over_the_largest_tables(
    full: Bench, names: dict[str, str]
) -> None:
    fields = {**hogs.FIELDS, "topic": names["topic"], **dict.fromkeys(
        ("group", "consumerGroup", "producerGroup", "srcGroup"), names["group"])}
    taken = {Code(code).name: longest_turn(full, code, fields) / unit()
             for code in hogs.CODES if code not in CHANGING}
    assert len(taken) > 40
    assert {name: units for name, units in taken.items() if units > UNITS_MAX} == {}


def test_neither_do_those_that_remove_much(full: Bench) -> None:
    fields = {**hogs.FIELDS, "groupName": "one-group", "topic": "one-topic"}
    taken = {code.name: longest_turn(full, code, fields) / unit() for code in CHANGING}
    assert {name: units for name, units in taken.items() if units > UNITS_MAX} == {}
    assert full.broker.core.offsets.topics_of("one-group") == []
