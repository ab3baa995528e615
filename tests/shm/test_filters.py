"""Filters in shared memory: V1 to V4 of mqcore/shm/filters.pxd, FC1 to FC3 of filter/loaded.pxd."""
from __future__ import annotations

import os
import select
import time

import pytest

from mqcore.filter.loaded import LoadedFilters
from mqcore.filter.sql92_filter import Filter
from mqcore.shm.filters import FilterReader, FilterWriter
from mqcore.shm.tables import TableFullError, TableReader
from tests.store.harness import new_segment
from tests.support.dice import times

PROGRAM, CODES, ALL = 1, 2, 3
NOW_MS = 1_795_000_000_000
RED, BLUE = b"color\x01red\x02", b"color\x01blue\x02"


@pytest.fixture
def segment():
    return new_segment(kind="named")


@pytest.fixture
def writer(segment):
    return FilterWriter(segment)


@pytest.fixture
def reader(segment):
    return FilterReader(segment)


@pytest.fixture
def loaded(segment):
    return LoadedFilters(segment)


def publish(writer, expression, *, group="g", topic="t", version=1, now_ms=NOW_MS, **times):
    writer.publish_program(
        group, topic, program=Filter.compile(expression).program, expression=expression,
        client_version=version, born_ms=times.get("born_ms", now_ms),
        dead_ms=times.get("dead_ms", 0), now_ms=now_ms,
        positions=times.get("positions", (57, 20, 98)), bit_count=112,
    )


def test_a_published_program_reads_as_it_was_published(writer, reader):
    publish(writer, "color = 'red'", version=77)

    found = reader.program("g", "t")

    assert (found["kind"], found["chunk"]) == (PROGRAM, Filter.compile("color = 'red'").program)
    assert (found["client_version"], found["born_ms"], found["dead_ms"]) == (77, NOW_MS, 0)
    assert (found["bit_count"], found["positions"]) == (112, [57, 20, 98])
    assert reader.program("g", "u") is None


def test_a_program_does_not_make_its_group_subscribe(writer, segment):
    publish(writer, "color = 'red'")

    assert TableReader(segment).subscription("g", "t") is None


def test_a_reader_runs_the_program_of_now(writer, loaded):
    assert loaded.passes("g", "t", RED) is None
    publish(writer, "color = 'red'")
    assert (loaded.passes("g", "t", RED), loaded.passes("g", "t", BLUE)) == (True, False)
    assert loaded.bytes == len(Filter.compile("color = 'red'").program)             # FC2

    publish(writer, "color = 'blue'", version=2)
    assert (loaded.passes("g", "t", RED), loaded.passes("g", "t", BLUE)) == (False, True)

    writer.remove_program("g", "t")
    assert loaded.passes("g", "t", BLUE) is None


def test_copies_take_64_mib_at_most_and_idle_ones_go_first(writer, loaded):   # FC3
    program = Filter.compile("color IN ('" + "x" * 32_000 + "')").program
    most = (64 << 20) // len(program)

    def another(number):
        """A program of the same size, to be kept."""
        writer.publish_program(
            "g", "t", program=program.replace(b"x" * 8, b"%08d" % number, 1),
            expression=str(number), client_version=1, born_ms=NOW_MS, dead_ms=0, now_ms=NOW_MS)
        return loaded.acquire("g", "t")

    try:
        assert all(another(number) for number in range(most))
        assert not any(another(most + number) for number in range(10))
        assert loaded.bytes == most * len(program)
        loaded.release()
        assert all(another(2 * most + number) for number in range(10))
    finally:
        loaded.release()


def test_a_version_is_kept_with_the_text_and_never_given_again(writer, reader):     # V3
    seen = set()
    for number in range(20):
        publish(writer, f"color = 'c{number}'", version=number)
        version = reader.program("g", "t")["version"]
        publish(writer, f"color = 'c{number}'", version=number + 1, dead_ms=NOW_MS)
        assert reader.program("g", "t")["version"] == version
        assert reader.program("g", "t")["dead_ms"] == NOW_MS
        assert version not in seen
        seen.add(version)


def test_bits_count_from_a_second_after_the_program_was_shown(writer, reader):
    publish(writer, "color = 'red'")
    publish(writer, "color = 'red'", version=2, now_ms=NOW_MS + 5000)
    assert reader.program("g", "t")["bits_from_ms"] == NOW_MS + 1000

    publish(writer, "color = 'blue'", version=3, now_ms=NOW_MS + 5000)
    assert reader.program("g", "t")["bits_from_ms"] == NOW_MS + 6000
    publish(writer, "color = 'blue'", version=3, now_ms=NOW_MS + 9000, positions=(1, 2, 3))
    assert reader.program("g", "t")["bits_from_ms"] == NOW_MS + 10_000


def test_each_change_of_a_filter_is_counted(writer, reader):                        # V4
    before = reader.changes
    publish(writer, "color = 'red'")
    publish(writer, "color = 'red'", version=2)
    writer.remove_program("g", "t")

    assert reader.changes == before + 3


def test_replaced_programs_give_their_memory_back(writer, loaded):
    long = "color IN ('" + "x" * 4000 + "')"
    publish(writer, long)
    once = writer.arena_used_bytes
    for number in range(times(40_000)):
        publish(writer, long if number % 2 else "color = 'red'", version=number)

    assert writer.arena_used_bytes == once
    assert loaded.passes("g", "t", b"color\x01" + b"x" * 4000) is True
    assert loaded.bytes < 10_000


def test_a_new_coordinator_takes_over_what_is_there(segment, writer, reader, loaded):   # V3
    publish(writer, "color = 'red'")
    publish(writer, "color = 'blue'", topic="u")
    writer.publish_request("SQL92", "a = 1", now_ms=NOW_MS, program=Filter.compile("a = 1").program)
    used, version = writer.arena_used_bytes, reader.program("g", "t")["version"]

    second = FilterWriter(segment)
    assert second.arena_used_bytes == used
    assert second.programs() == [("g", "t"), ("g", "u")]
    publish(second, "color = 'red'", version=2)
    publish(second, "color = 'green'", topic="u", version=2)
    second.publish_request("SQL92", "a = 1", now_ms=NOW_MS)

    assert reader.program("g", "t")["version"] == version
    assert loaded.passes("g", "u", b"color\x01green") is True
    assert reader.request("SQL92", "a = 1")["kind"] == PROGRAM


def test_an_entry_that_a_dead_coordinator_left_open_is_not_read_and_then_forgotten(
    segment, writer, reader
):
    publish(writer, "color = 'red'")
    reader.break_off("g", "t")
    assert reader.program("g", "t") is None

    second = FilterWriter(segment)
    assert (reader.program("g", "t"), second.programs()) == (None, [])
    publish(second, "color = 'red'")
    assert reader.program("g", "t")["kind"] == PROGRAM


def test_more_codes_than_a_subscription_holds_are_found_beside_it(writer, reader):
    codes = [*range(-2000, 2000, 7), 2**31 - 1, -2**31]
    writer.publish_codes("g", "t", codes)

    found = reader.codes("g", "t")
    assert found["kind"] == CODES
    assert memoryview(found["chunk"]).cast("i").tolist() == sorted(codes)
    assert reader.program("g", "t") is None
    writer.remove_codes("g", "t")
    assert reader.codes("g", "t") is None


def test_an_expression_of_a_pull_is_found_by_type_and_text(writer, reader):
    writer.publish_request("SQL92", "a", now_ms=NOW_MS)
    writer.publish_request("TAG", "a || b", now_ms=NOW_MS, codes=[97, 98])

    assert reader.request("SQL92", "a")["kind"] == ALL
    assert reader.request("TAG", "a || b")["kind"] == CODES
    assert reader.request("TAG", "a") is None
    assert reader.request("SQL92", "a || b") is None


def test_the_oldest_expressions_of_pulls_make_room_after_ten_seconds(writer, reader):
    shown, refused = [], 0
    for number in range(4_000):
        try:
            writer.publish_request("SQL92", f"a = {number}", now_ms=NOW_MS)
            shown.append(number)
        except TableFullError:
            refused += 1
    assert len(shown) > 1_500
    assert refused > 1_500
    assert {reader.request("SQL92", f"a = {number}")["kind"] for number in shown} == {ALL}

    for number in range(4_000, 4_200):
        writer.publish_request("SQL92", f"a = {number}", now_ms=NOW_MS + 10_000)
        assert reader.request("SQL92", f"a = {number}")["kind"] == ALL
    assert sum(reader.request("SQL92", f"a = {number}") is None for number in shown) >= 150


def test_a_full_arena_refuses_and_keeps_what_is_there(writer, reader, loaded):
    program = Filter.compile("color = 'red'").program
    big = "x" * (4 << 20)
    for number in range(15):
        writer.publish_program("g", f"t{number}", program=program, expression=big,
                               client_version=1, born_ms=0, dead_ms=0, now_ms=NOW_MS)
    with pytest.raises(TableFullError, match="64 MiB"):
        writer.publish_program("g", "t0", program=program, expression=big + "y" * (1 << 20),
                               client_version=2, born_ms=0, dead_ms=0, now_ms=NOW_MS)

    assert reader.program("g", "t0")["client_version"] == 1
    assert loaded.passes("g", "t0", RED) is True


def test_a_reader_never_runs_half_a_program(segment, writer, loaded):               # V2
    """A writer in another process changes the program all the time; each read says red or blue."""
    expressions = ["color IN ('red'" + ",'x'" * 500 + ")", "color = 'blue'"]
    publish(writer, expressions[1], version=0)
    end, other_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(other_end)
        number = 0
        parent = select.poll()                  # select takes no descriptor above 1,023
        parent.register(end, select.POLLIN | select.POLLHUP)
        while not parent.poll(0):
            number += 1
            publish(writer, expressions[number % 2], version=number)
        os._exit(0)
    seen, reads, deadline = set(), 0, time.monotonic() + 20
    try:
        while not seen >= {True, False} or reads < 5_000:
            assert time.monotonic() < deadline, seen
            seen.add(loaded.passes("g", "t", RED))
            reads += 1
    finally:
        os.close(other_end)
        os.waitpid(child, 0)
    # None: the writer was interrupted in a change; a serving process asks the coordinator then
    assert seen - {None} == {True, False}


def test_a_copy_of_a_program_is_whole(writer, reader):                              # V2
    """Another process shows two large ones in turns, at one place of the arena."""
    large, small = [bytes([byte]) * (8 << 20) for byte in (1, 2)], b"\3"
    end, other_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(other_end)
        parent = select.poll()
        parent.register(end, select.POLLIN | select.POLLHUP)
        while not parent.poll(0):
            for program in (large[0], small, large[1], small):
                writer.publish_program("g", "t", program=program, expression="", client_version=1,
                                       born_ms=NOW_MS, dead_ms=0, now_ms=NOW_MS)
        os._exit(0)
    seen, deadline = [], time.monotonic() + 100
    try:
        while len(seen) < 100 or len(set(seen)) < 3:
            assert time.monotonic() < deadline, len(seen)
            if found := reader.program("g", "t"):
                chunk = found["chunk"]
                assert chunk.count(chunk[:1]) == len(chunk)
                seen.append(chunk[:1])
    finally:
        os.close(other_end)
        os.waitpid(child, 0)
