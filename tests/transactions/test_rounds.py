"""Rounds over half messages, step by step: rules U1 to U4 and B1 to B4, and stores of stock."""
from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from mqcore.broker.requests.check_sender import figures
from mqcore.participants import COORDINATOR
from mqcore.shm.check_ring import transaction_figures
from mqcore.wire.properties import decode_properties
from tests.store.golden import manifest, unpack
from tests.transactions.desk import (
    GIVEN_UP,
    HALF_TOPIC,
    OP_TOPIC,
    TIMEOUT_MS,
    Desk,
    said,
)

PROPERTIES_MAX = 32_767
CENTURY_MS = 100 * 365 * 24 * 3_600_000


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def pending(desk: Desk, *bodies: bytes, **properties: Any) -> None:
    for body in bodies:
        desk.prepare(body, **properties)
    desk.store()


# -- U1, U2: offsets -------------------------------------------------------------------------------


def test_offsets_pass_what_is_settled_and_nothing_else(desk: Desk) -> None:           # U1
    pending(desk, b"a", b"b", b"c", b"d")
    for half in (0, 1, 3):
        desk.end(half)
    desk.store()
    assert desk.round(later_ms=0) == []           # c is young

    assert desk.offsets == (2, 0)                 # the block of op records has one for d
    desk.end(2)
    desk.store()
    desk.round(later_ms=0)
    assert desk.offsets == desk.ends() == (4, 4)


def test_a_question_moves_the_offset_when_the_copy_is_stored(desk: Desk) -> None:     # B1, B2
    pending(desk, b"a")
    desk.pass_time(TIMEOUT_MS + 1)
    assert not desk.turn()
    assert desk.questions() == []                 # the writer has not seen the copy
    assert desk.offsets == (0, 0)
    desk.store()
    assert desk.turn()
    (asked,) = desk.questions()

    assert (asked.half_offset, asked.body, asked.times, asked.group) == (1, b"a", 1, "PG")
    assert desk.offsets == (1, 0)
    assert [said(one)["TRANSACTION_CHECK_TIMES"] for one in desk.records(HALF_TOPIC)[1:]] == ["1"]


def test_a_copy_that_a_pool_loses_with_its_writer_settles_nothing(desk: Desk) -> None:  # B1
    """The writer has said that it is stored, and it is not published."""
    pending(desk, b"a")
    desk.writer = desk.run.writer("transient-pool", int(desk.run.segment.log_state()["published"]))
    desk.pass_time(TIMEOUT_MS + 1)
    assert not desk.turn()
    desk.write()                                  # into the pool: no thread writes it
    desk.turn()
    assert (desk.questions(), desk.offsets) == ([], (0, 0))
    desk.kill_writer()
    desk.turn()
    assert (desk.questions(), desk.offsets) == ([], (0, 0))
    asked = desk.round() or desk.round()          # the one under way ends at the refusal
    assert [(one.half_offset, one.body) for one in asked] == [(1, b"a")]


def test_op_records_are_read_before_anything_is_asked(desk: Desk) -> None:            # B3
    pending(desk, *(b"%d" % number for number in range(3_000)))
    for number in range(3_000):
        if number != 1_500:
            desk.end(number)
        if number % 500 == 0:
            desk.store()
    desk.store()

    assert [asked.body for asked in desk.round()] == [b"1500"]
    assert desk.offsets[0] == 3_000


def test_at_most_so_many_copies_are_on_their_way(desk: Desk) -> None:                 # B4
    pending(desk, *(b"%d" % number for number in range(700)))
    desk.pass_time(TIMEOUT_MS + 1)
    for copies in (256, 256, 512):
        for _ in range(5):                        # of 84 each; nothing more without results
            assert not desk.turn()
        assert len(desk.records(HALF_TOPIC)) <= 700 + copies
        if desk.writer.run(0) == 0:
            desk.probe.take()
        desk.dispatch()
    while not desk.turn():
        desk.store()
    assert len(desk.questions()) == 700


def test_21_copies_a_millisecond_are_made_and_4_ms_of_lost_time_made_good(desk: Desk) -> None:  # B4
    pending(desk, *(b"%d" % number for number in range(200)))
    desk.pass_time(TIMEOUT_MS + 1)
    copies = []
    for passed_ms in (1_000, 0, 1, 2):
        assert not desk.turn(passed_ms)
        desk.store()
        copies.append(len(desk.records(HALF_TOPIC)) - 200)
    assert copies == [84, 84, 105, 147]


@pytest.mark.slow
def test_op_records_beyond_number_cost_blocks_and_no_more(tmp_path: Path) -> None:
    """Half message 0 stays open while 600,000 op records come: the blocks double twice."""
    desk = Desk(tmp_path, segment_size=16 << 20, file_entries=100_000)
    pending(desk, b"open", b"ended")
    began = time.monotonic()
    memory = desk.check.memory_bytes
    desk.end(1)
    desk.write()
    sent = 1
    while sent < 600_000:
        sent += desk.probe.repeat(600_000 - sent)
        desk.write()
        desk.probe.drain()
    desk.dispatch()
    took_ms = int(1000 * (time.monotonic() - began))      # on a slow machine longer than it waits
    assert [asked.body for asked in desk.round(later_ms=-took_ms)] == []
    assert desk.offsets == (0, 0)
    assert desk.check.memory_bytes == memory

    desk.end(0)
    desk.store()
    desk.round(later_ms=0)
    assert desk.offsets == desk.ends() == (2, 600_001)


@pytest.mark.parametrize(("body", "tag"), [
    (b"0", b"x"), (b"", b"d"), (b"-1", b"d"), (b"1e3", b"d"), (b"9" * 19, b"d"),
    (b"1", b"d"), (b"999999999999999", b"d"),
])
def test_an_op_record_that_names_no_half_message_settles_nothing_and_is_passed(
    desk: Desk, body: bytes, tag: bytes,
) -> None:
    pending(desk, b"a")
    memory = desk.check.memory_bytes
    desk.op(body, tag=tag)
    desk.store()

    assert [asked.body for asked in desk.round()] == [b"a"]
    assert desk.offsets == (1, 1)
    assert (desk.check.strange, desk.check.memory_bytes) == (1, memory)


# -- U3: late ends ---------------------------------------------------------------------------------


def test_a_late_end_settles_the_copy_wherever_the_offset_is(desk: Desk) -> None:      # U3
    pending(desk, b"a", b"b")
    assert [asked.half_offset for asked in desk.round()] == [2, 3]
    desk.end(0)
    desk.end(1)
    desk.store()

    assert desk.round() == []
    assert desk.offsets == desk.ends() == (4, 2)


@pytest.mark.parametrize("ends", [1, 1_100])     # more than are read in one step
def test_an_end_that_comes_while_the_copy_is_on_its_way_settles_it(desk: Desk, ends: int) -> None:
    pending(desk, b"a")
    desk.pass_time(TIMEOUT_MS + 1)
    desk.turn()                                   # the copy waits for the writer
    for _ in range(ends):
        desk.end(0)
    desk.store()
    while not desk.turn():
        desk.store()

    assert desk.questions() == []
    assert desk.round() == []
    assert desk.offsets == desk.ends() == (2, ends)


def test_a_copy_of_a_copy_is_settled_by_an_end_of_the_first(desk: Desk) -> None:
    pending(desk, b"a")
    for _ in range(10):
        assert len(desk.round()) == 1
    desk.end(0)
    desk.store()

    assert desk.round() == []


def test_an_immune_message_put_back_more_often_than_moves_are_followed_is_settled_by_its_end(
    desk: Desk,
) -> None:
    pending(desk, b"a", CHECK_IMMUNITY_TIME_IN_SECONDS="100000")
    for _ in range(70):
        assert desk.round(later_ms=2) == []
    assert len(desk.records(HALF_TOPIC)) == 71
    assert {said(one)["TRAN_PREPARED_QUEUE_OFFSET"] for one in desk.records(HALF_TOPIC)[1:]} == {
        "0"}
    assert "TRANSACTION_CHECK_TIMES" not in said(desk.records(HALF_TOPIC)[-1])
    desk.end(0)
    desk.store()

    assert desk.round(later_ms=100_000_000) == []
    assert desk.offsets == desk.ends()


def test_an_end_of_an_immune_message_settles_its_copy_in_the_next_life_as_well(desk: Desk) -> None:
    pending(desk, b"first")
    desk.prepare(b"immune", CHECK_IMMUNITY_TIME_IN_SECONDS="100")
    desk.store()
    assert [asked.body for asked in desk.round()] == [b"first"]
    desk.end(1)
    desk.store()
    desk.begin((0, 0))                            # all died, the offsets were never saved
    asked = desk.round(later_ms=200_000)          # the immunity is over

    assert [one.body for one in asked] == [b"first", b"first"]


# -- B6 --------------------------------------------------------------------------------------------


def test_what_a_message_says_of_its_immunity_keeps_no_other_from_being_asked_about(
    desk: Desk,
) -> None:
    desk.prepare(b"forged", CHECK_IMMUNITY_TIME_IN_SECONDS="100000000",
                 TRAN_PREPARED_QUEUE_OFFSET="-1")
    pending(desk, b"a", b"b")
    assert [asked.body for asked in desk.round()] == [b"a", b"b"]
    desk.prepare(b"c")
    desk.store()
    assert b"c" in [asked.body for asked in desk.round()]


def test_a_message_that_was_born_later_than_it_was_stored_holds_up_no_other(desk: Desk) -> None:
    desk.ahead_ms += TIMEOUT_MS // 2
    desk.prepare(b"later")
    desk.ahead_ms -= TIMEOUT_MS // 2
    pending(desk, b"a")
    assert [asked.body for asked in desk.round()] == [b"a"]
    assert [asked.body for asked in desk.round()] == [b"later", b"a"]


def test_a_message_from_the_future_has_no_immunity(desk: Desk) -> None:
    desk.ahead_ms += CENTURY_MS
    desk.prepare(b"later", CHECK_IMMUNITY_TIME_IN_SECONDS="100000000")
    desk.ahead_ms -= CENTURY_MS
    pending(desk, b"a")
    assert [asked.body for asked in desk.round()] == [b"later", b"a"]


def test_no_immunity_is_longer_than_messages_are_kept(tmp_path: Path) -> None:
    desk = Desk(tmp_path, reserved_ms=60_000)
    pending(desk, b"a", CHECK_IMMUNITY_TIME_IN_SECONDS="100000000")
    assert desk.round() == []
    desk.round(later_ms=60_000)
    assert len(desk.records(HALF_TOPIC)) == 2          # put back once
    assert [one["body"] for one in desk.records(GIVEN_UP)] == [b"a"]


# -- U4 and what cannot be copied ------------------------------------------------------------------


def test_what_cannot_be_read_is_neither_gone_nor_settled(desk: Desk, tmp_path: Path) -> None:
    pending(desk, b"a")
    for folder in (desk.run.log_folder, desk.run.queue_folder):
        away = tmp_path / "away"
        folder.rename(away)
        desk.begin_check()                        # nothing is mapped or open yet
        assert desk.round() == []
        assert desk.offsets == (0, 0)
        away.rename(folder)
    desk.begin_check()

    assert [asked.body for asked in desk.round()] == [b"a"]


def test_a_message_whose_properties_have_no_room_for_a_number_is_given_up(desk: Desk) -> None:
    pending(desk, b"long", filler="x" * (PROPERTIES_MAX - 100))
    room = PROPERTIES_MAX - len(desk.records(HALF_TOPIC)[0]["properties"])
    assert 0 <= room < len("TRANSACTION_CHECK_TIMES")

    assert desk.round() == []
    assert desk.offsets == (1, 0)
    (given_up,) = desk.records(GIVEN_UP)
    assert given_up["properties"] == desk.records(HALF_TOPIC)[0]["properties"]


def test_a_round_ends_at_a_message_that_is_too_young(desk: Desk) -> None:
    pending(desk, b"old")
    desk.pass_time(TIMEOUT_MS + 1)
    pending(desk, b"young")

    assert [asked.body for asked in desk.round(later_ms=0)] == [b"old"]
    assert desk.offsets == (1, 0)


def test_a_message_older_than_the_log_is_kept_is_given_up_unasked(tmp_path: Path) -> None:
    desk = Desk(tmp_path, reserved_ms=1_000_000)
    pending(desk, b"old")

    assert desk.round(later_ms=1_000_001) == []
    assert desk.bodies(GIVEN_UP) == [b"old"]


# -- what the coordinator keeps --------------------------------------------------------------------


def test_a_coordinator_that_died_is_told_again(desk: Desk) -> None:
    pending(desk, b"a")
    desk.round()
    desk.questions()
    assert desk.known == (1, 0)
    desk.known = (0, 0)                           # the successor's file is older
    desk.run.segment.begin_incarnation(COORDINATOR.slot)
    desk.check.wait(0)
    desk.questions()

    assert desk.known == (1, 0)


def test_op_records_are_read_between_rounds(desk: Desk) -> None:
    pending(desk, b"a", b"b")
    desk.end(0)
    desk.end(1)
    desk.store()
    desk.check.wait(0)
    desk.questions()

    assert desk.offsets == desk.known == (2, 2)


# -- figures ---------------------------------------------------------------------------------------


def oldest_s(desk: Desk) -> int:
    """The age of the oldest open message, by the desk's clock."""
    now_ms = time.time_ns() // 1_000_000 + desk.ahead_ms
    return figures(transaction_figures(desk.run.segment), now_ms)["oldest_s"]


def test_the_oldest_message_is_known_when_its_copy_is_behind_younger_ones(desk: Desk) -> None:
    pending(desk, b"oldest", b"old")
    desk.pass_time(TIMEOUT_MS + 54_000)
    pending(desk, b"young")
    assert [asked.body for asked in desk.round(later_ms=0)] == [b"oldest", b"old"]
    assert 60 <= oldest_s(desk) < 120
    desk.pass_time(120_000)
    assert [asked.body for asked in desk.round(later_ms=0)] == [b"young", b"oldest", b"old"]
    assert 180 <= oldest_s(desk) < 240

    for body in (b"oldest", b"old"):
        desk.end([record["body"] for record in desk.records(HALF_TOPIC)].index(body))
    desk.store()
    desk.check.wait(0)
    assert 120 <= oldest_s(desk) < 180
    desk.end(2)
    desk.store()
    desk.check.wait(0)
    assert oldest_s(desk) == 0


def test_questions_given_up_messages_and_rounds_are_counted(tmp_path: Path) -> None:
    desk = Desk(tmp_path, check_max=2)
    pending(desk, b"a", b"b")
    counted = []
    for _ in range(3):
        desk.round()
        found = figures(transaction_figures(desk.run.segment), 0)
        counted.append(tuple(found[name] for name in ("pending", "checks", "given_up", "rounds")))

    assert counted == [(2, 2, 0, 1), (2, 4, 0, 2), (0, 4, 2, 3)]


# -- a store of stock 4.9.8 ------------------------------------------------------------------------


def test_what_is_undecided_in_a_stock_store_is_asked_about_and_what_is_decided_is_not(
    tmp_path: Path,
) -> None:
    found = manifest("transactions")
    said_offsets = found["config"]["consumerOffset"]["offsetTable"]
    offsets = tuple(said_offsets[f"{topic}@CID_RMQ_SYS_TRANS"]["0"]
                    for topic in (HALF_TOPIC, OP_TOPIC))
    assert offsets == (115, 54)
    open_ones = {record["properties"]["UNIQ_KEY"]: record["properties"]
                 for record in found["messages"]
                 if record["topic"] == HALF_TOPIC and record["queueOffset"] >= offsets[0]}
    desk = stock_desk(tmp_path, offsets)
    asked = desk.round()

    copies = [said(record) for record in desk.records(HALF_TOPIC)[-len(asked):]]
    assert len(asked) == len(open_ones) == 4
    assert {one.group for one in asked} == {"pg_golden_tx"}
    for copy in copies:
        before = open_ones[copy["UNIQ_KEY"]]
        times = int(before.get("TRANSACTION_CHECK_TIMES", "0"))
        assert copy == before | {"TRANSACTION_CHECK_TIMES": str(times + 1)}
    for one in asked[:2]:
        desk.end(one.half_offset, commit=one.body, topic="golden_tx")
    for one in asked[2:]:
        desk.end(one.half_offset)
    desk.store()
    assert desk.round() == []
    assert desk.offsets == desk.ends() == (123, 58)


def test_a_stock_store_without_offsets_asks_about_no_more(tmp_path: Path) -> None:
    """From the beginning on, with all op records: what was put back by stock is passed as well."""
    desk = stock_desk(tmp_path, (0, 0))
    named = {int(body) for body in desk.bodies(OP_TOPIC)}
    open_ones = [said(record)["UNIQ_KEY"] for record in desk.records(HALF_TOPIC)
                 if record["queueOffset"] not in named]
    asked = desk.round()

    assert len(asked) <= len(open_ones)
    assert desk.offsets[0] >= 119


def stock_desk(tmp_path: Path, offsets: tuple[Any, ...]) -> Desk:
    unpack("transactions", tmp_path)
    desk = Desk(tmp_path / "transactions", reserved_ms=CENTURY_MS, queues=128)
    desk.check.seek(*offsets)
    return desk


def test_the_desk_writes_what_a_serving_process_writes(desk: Desk) -> None:
    """So far as the transaction check reads it; tests/wire_live shows the serving process's."""
    pending(desk, b"a")
    desk.end(0, commit=b"a")
    desk.store()

    (op,) = desk.records(OP_TOPIC)
    assert (op["body"], decode_properties(op["properties"])) == (
        b"0", {"WAIT": "true", "TAGS": "d"})
    assert desk.records("Orders")[0]["sysFlag"] == 8
