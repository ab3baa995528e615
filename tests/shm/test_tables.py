"""Topics, groups, subscriptions and queues in shared memory: T1 to T3 of mqcore/shm/tables.pxd."""
from __future__ import annotations

import os
import random
import signal
import time

import pytest

from mqcore.shm.filters import FilterReader, FilterWriter
from mqcore.shm.tables import QueueTable, TableFullError, TableReader, TableWriter
from mqcore.store.probes.append_probe import AppendProbe
from tests.store.harness import Run, new_segment

CAPACITY = 64
WHOLE_READS, CHANGES = 20_000, 100     # that a reader beside a busy writer sees at least
READ_S_MAX = 100
ALL, TAGS, OTHER, CODES = 0, 1, 2, 3
MULTI_TAG, SEND_ASKS = 1, 2
CONSUME_ENABLED, PULL_ASKS = 1, 2


@pytest.fixture
def segment():
    return new_segment(kind="named")


@pytest.fixture
def writer(segment):
    return TableWriter(segment)


@pytest.fixture
def reader(segment):
    return TableReader(segment)


# -- topics ----------------------------------------------------------------------------------------


def test_a_published_topic_reads_as_it_was_published(writer, reader):
    writer.publish_topic("orders", read_queues=4, write_queues=3, perm=6, multi_tag=True)
    writer.publish_topic("asks", read_queues=1, write_queues=1, perm=2, send_asks=True)
    assert reader.topic("orders") == (4, 3, 6, MULTI_TAG)
    assert reader.topic("asks") == (1, 1, 2, SEND_ASKS)
    assert reader.topic("order") is None


def test_publishing_again_changes_the_topic_and_takes_no_new_place(writer, reader):
    for number in range(10 * CAPACITY):
        writer.publish_topic("orders", read_queues=number, write_queues=number, perm=6)
    assert reader.topic("orders") == (639, 639, 6, 0)
    for number in range(CAPACITY - 1):
        writer.publish_topic(f"t{number}", read_queues=1, write_queues=1, perm=6)


def test_a_removed_topic_is_gone_until_it_is_published_again(writer, reader):
    writer.publish_topic("orders", read_queues=4, write_queues=4, perm=6)
    writer.remove_topic("orders")
    assert reader.topic("orders") is None
    writer.publish_topic("orders", read_queues=5, write_queues=5, perm=6)
    assert reader.topic("orders") == (5, 5, 6, 0)


def test_a_full_topic_table_refuses_new_names_and_keeps_the_old_ones(writer, reader):
    for number in range(CAPACITY):
        writer.publish_topic(f"t{number}", read_queues=number, write_queues=1, perm=6)
    with pytest.raises(TableFullError, match="topic_count_max"):
        writer.publish_topic("one more", read_queues=1, write_queues=1, perm=6)
    assert [reader.topic(f"t{number}")[0] for number in range(CAPACITY)] == list(range(CAPACITY))
    assert reader.topic("one more") is None
    writer.publish_topic("t5", read_queues=99, write_queues=1, perm=6)
    assert reader.topic("t5") == (99, 1, 6, 0)


@pytest.mark.parametrize("name", ["", "x" * 128, "é" * 64])
def test_a_topic_name_of_a_wrong_length_is_refused(writer, name):
    with pytest.raises(ValueError, match="topic"):
        writer.publish_topic(name, read_queues=1, write_queues=1, perm=6)


def test_the_longest_names_are_told_apart_to_the_last_byte(writer, reader):
    writer.publish_topic("x" * 126 + "a", read_queues=1, write_queues=1, perm=6)
    writer.publish_topic("x" * 126 + "b", read_queues=2, write_queues=1, perm=6)
    writer.publish_topic("x" * 126, read_queues=3, write_queues=1, perm=6)
    assert [reader.topic("x" * 126 + end)[0] for end in ("a", "b", "")] == [1, 2, 3]


def test_an_entry_that_a_dead_writer_left_half_written_reads_as_absent(writer, reader):
    writer.publish_topic("orders", read_queues=4, write_queues=4, perm=6)
    reader.break_off("orders")
    assert reader.topic("orders") is None              # and returns: nobody waits for the dead
    writer.publish_topic("orders", read_queues=5, write_queues=4, perm=6)
    assert reader.topic("orders") == (5, 4, 6, 0)


def test_a_new_coordinator_starts_from_nothing_even_after_a_death_in_between(writer, reader):
    writer.publish_topic("orders", read_queues=4, write_queues=4, perm=6)
    writer.publish_group("group")
    reader.break_off("orders")
    writer.clear()
    assert (reader.topic("orders"), reader.group("group")) == (None, None)
    writer.publish_topic("orders", read_queues=1, write_queues=1, perm=6)
    assert reader.topic("orders") == (1, 1, 6, 0)


# -- groups ----------------------------------------------------------------------------------------


def test_a_group_reads_as_it_was_published(writer, reader):
    writer.publish_group("a")
    writer.publish_group("b", consume_enabled=False, pull_asks=True)
    assert [reader.group(name) for name in "abc"] == [CONSUME_ENABLED, PULL_ASKS, None]
    writer.publish_group("b", consume_enabled=True)
    writer.remove_group("a")
    assert [reader.group(name) for name in "ab"] == [None, CONSUME_ENABLED]


def test_a_full_group_table_names_its_setting(writer, reader):
    for number in range(CAPACITY):
        writer.publish_group(f"g{number}")
    with pytest.raises(TableFullError, match="group_count_max"):
        writer.publish_group("one more")
    assert reader.group("g63") == CONSUME_ENABLED


# -- subscriptions ---------------------------------------------------------------------------------


def test_a_subscription_reads_as_it_was_published(writer, reader):
    writer.publish_subscription("g", "all", version=1)
    writer.publish_subscription("g", "tags", version=-2, codes=[5, -5, 2**31 - 1, -2**31])
    writer.publish_subscription("g", "sql", version=3, other=True)
    assert reader.subscription("g", "all") == (1, ALL, [])
    assert reader.subscription("g", "tags") == (-2, TAGS, [5, -5, 2**31 - 1, -2**31])
    assert reader.subscription("g", "sql") == (3, OTHER, [])
    assert reader.subscription("gt", "ags") is None


def test_more_codes_than_an_entry_holds_are_said_to_be_elsewhere(writer, reader):
    writer.publish_subscription("g", "240", version=1, codes=list(range(240)))
    writer.publish_subscription("g", "241", version=1, codes=list(range(241)))
    assert reader.subscription("g", "240") == (1, TAGS, list(range(240)))
    assert reader.subscription("g", "241") == (1, CODES, [])


def test_a_removed_subscription_is_gone_and_can_come_back(writer, reader):
    writer.publish_subscription("g", "t", version=1, codes=[1])
    writer.remove_subscription("g", "t")
    assert reader.subscription("g", "t") is None
    writer.publish_subscription("g", "t", version=2)
    assert reader.subscription("g", "t") == (2, ALL, [])


def test_a_full_subscription_table_names_its_setting(writer):
    for number in range(CAPACITY):
        writer.publish_subscription("g", f"t{number}", version=1)
    with pytest.raises(TableFullError, match="subscription_count_max"):
        writer.publish_subscription("g", "one more", version=1)


def test_places_of_pairs_that_are_gone_go_to_others(writer, reader):
    dice, shown = random.Random(7), {}
    for version in range(40 * CAPACITY):
        pair = f"g{dice.randrange(4)}", f"t{dice.randrange(2 * CAPACITY)}"
        if pair in shown and dice.random() < 0.5:
            writer.remove_subscription(*pair)
            del shown[pair]
        elif len(shown) < CAPACITY or pair in shown:
            writer.publish_subscription(*pair, version=version, codes=[version])
            shown[pair] = version
        else:
            with pytest.raises(TableFullError):
                writer.publish_subscription(*pair, version=version)
    pairs = [(f"g{group}", f"t{topic}") for group in range(4) for topic in range(2 * CAPACITY)]
    found = {pair: reader.subscription(*pair) for pair in pairs}
    assert len(shown) > CAPACITY // 2
    assert {pair: is_there for pair, is_there in found.items() if is_there} == {
        pair: (version, TAGS, [version]) for pair, version in shown.items()}


def test_a_place_with_a_filter_does_not_go_to_others(segment, writer, reader):
    filters, program = FilterWriter(segment), {
        "program": b"p", "expression": "a = 1", "client_version": 1, "born_ms": 5, "now_ms": 5}
    for number in range(CAPACITY):
        writer.publish_subscription("g", f"t{number}", version=1, other=True)
    filters.publish_program("g", "t0", dead_ms=0, **program)
    filters.publish_program("g", "t1", dead_ms=9, **program)
    for number in range(2):
        writer.remove_subscription("g", f"t{number}")
    with pytest.raises(TableFullError):
        writer.publish_subscription("g", "new", version=1)
    assert filters.forget_dead(10) == 1                 # of t1: its group is gone
    writer.publish_subscription("g", "new", version=2)
    assert reader.subscription("g", "new") == (2, ALL, [])
    assert filters.programs() == [("g", "t0")]
    with pytest.raises(TableFullError):
        writer.publish_subscription("g", "newer", version=1)


def test_looking_for_what_is_not_there_takes_no_place(segment, writer):
    filters = FilterWriter(segment)
    for number in range(CAPACITY):
        filters.remove_program("g", f"x{number}")
        filters.remove_codes("g", f"x{number}")
        assert FilterReader(segment).codes("g", f"y{number}") is None
    for number in range(CAPACITY):
        writer.publish_subscription("g", f"t{number}", version=1)


# -- a busy writer beside a reader -----------------------------------------------------------------


def busy_writer(segment):
    """A process that changes one topic and one subscription for ever, all words to one number."""
    pid = os.fork()
    if pid:
        return pid
    writer, number = TableWriter(segment), 0
    try:
        while True:
            number = (number + 1) % 1000
            writer.publish_topic("busy", read_queues=number, write_queues=number, perm=number)
            writer.publish_subscription("g", "busy", version=number,
                                        codes=[number] * (1 + number % 240))
    finally:
        os._exit(1)


@pytest.mark.slow
def test_a_reader_in_another_process_never_sees_a_torn_entry(segment, writer, reader):
    writer.publish_topic("busy", read_queues=0, write_queues=0, perm=0)
    writer.publish_subscription("g", "busy", version=0, codes=[0])
    pid = busy_writer(segment)
    topics, subscriptions, absent = set(), [], 0
    deadline = time.monotonic() + READ_S_MAX
    try:
        while len(topics) < CHANGES or len(subscriptions) < WHOLE_READS:
            assert time.monotonic() < deadline, (len(topics), len(subscriptions), absent)
            topic, subscription = reader.topic("busy"), reader.subscription("g", "busy")
            # absent: the writer was held up in the middle of a change, nobody waits for it (T3);
            # that lasts while the machine lets it wait
            absent += (topic is None) + (subscription is None)
            topics |= set() if topic is None else {topic}
            subscriptions += [] if subscription is None else [subscription]
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    for topic in topics:
        assert topic[0] == topic[1] == topic[2], topic
    for version, kind, codes in subscriptions:
        assert (kind, set(codes), len(codes)) == (TAGS, {version}, 1 + version % 240)


# -- queues ----------------------------------------------------------------------------------------


def test_queues_show_the_dispatchers_range_after_dispatch(tmp_path):
    run = Run(tmp_path / "store")
    table, probe = QueueTable(run.segment), AppendProbe(run.segment)
    loop = run.writer("async", 0)
    for number in range(12):
        assert probe.send("orders", number % 2, [b"x"], opaque=number)
    loop.run(1000)
    assert table.range("orders", 0) == (0, 0)           # stored, not yet dispatched
    run.dispatch_all(run.segment.log_state()["published"])

    assert table.range("orders", 0) == table.range("orders", 1) == (0, 6)
    assert table.range("orders", 2) is None
    assert table.range("", 0) is table.range("x" * 128, 0) is None
    assert sorted(table.all()) == [("orders", 0, 0, 6), ("orders", 1, 0, 6)]
