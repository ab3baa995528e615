"""Delivery, turn by turn, at a clock that the test sets."""
from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from mqcore.participants import DISPATCHER
from mqcore.shm.retention import QueueLives
from mqcore.store.probes.append_probe import fail, unwatch, watch
from mqcore.store.schedule.levels import NoteKind
from mqcore.wire.properties import encode_properties
from tests.schedule.desk import DELAYS_MS, SCHEDULE_TOPIC, TURN_MS, Desk, now_ms

ENOSPC = 28
KEPT = ("flag", "sysFlag", "bornTimestamp", "body", "properties", "preparedTransactionOffset")
HEAD_BEFORE_STORE_TIME = slice(40, 56)        # born time and host
HOSTS_AFTER_STORE_TIME = slice(64, 76)        # store host and reconsume times


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.settle(now_ms())
    return desk


def test_a_message_is_delivered_in_the_millisecond_after_its_time_and_not_before(
    desk: Desk,
) -> None:
    desk.delay(1, b"one")
    due_ms = desk.due(1, 0)

    desk.settle(due_ms - 500)
    assert desk.bodies() == []
    assert desk.turn(due_ms - 500) == due_ms + 1        # when it wants to be woken
    desk.settle(due_ms)
    assert desk.bodies() == []
    desk.settle(due_ms + 1)
    assert desk.bodies() == [b"one"]
    assert desk.turn(due_ms + 1) == -1                  # nothing waits: only the bell wakes it


def test_a_delivery_is_the_message_in_its_real_topic_with_all_properties_as_they_were(
    desk: Desk,
) -> None:
    properties = {"KEYS": "k1 k2", "DELAY": "2", "REAL_TOPIC": "Orders", "REAL_QID": "7",
                  "TAGS": "TagA", "WAIT": "false", "UNIQ_KEY": "0A"}
    desk.delay(2, "Grüße".encode(), properties=properties, sys_flag=0x1, born_ms=1234567)
    desk.settle(desk.due(2, 0) + 1)

    delayed, delivery = desk.records()
    assert (delivery["topic"], delivery["queueId"], delivery["queueOffset"]) == ("Orders", 7, 0)
    assert {name: delivery[name] for name in KEPT} == {name: delayed[name] for name in KEPT}
    assert delivery["properties"] == encode_properties(properties).encode()
    assert delivery["storeTimestamp"] >= delayed["storeTimestamp"]
    raw = (desk.run.log_folder / f"{0:020d}").read_bytes()
    one, other = raw[:delayed["size"]], raw[delivery["physicalOffset"]:]
    assert other[HEAD_BEFORE_STORE_TIME] == one[HEAD_BEFORE_STORE_TIME]
    assert other[HOSTS_AFTER_STORE_TIME] == one[HOSTS_AFTER_STORE_TIME]
    assert desk.run.queue_ranges()["Orders", 7] == (0, 1)


def test_a_delivery_is_not_stamped_before_its_time_whatever_the_writers_turn_began_at(
    desk: Desk,
) -> None:
    desk.delay(3, b"one")
    due_ms = desk.due(3, 0)
    desk.settle(due_ms + 1)                       # the writer's clock is a minute behind that
    assert desk.delivered()[0].record["storeTimestamp"] >= due_ms


def test_a_level_keeps_its_order_and_waits_for_no_other(desk: Desk) -> None:
    for number in range(5):
        desk.delay(3, b"slow %d" % number)
        desk.delay(1, b"quick %d" % number)
    desk.settle(desk.due(1, 4) + 1)
    assert desk.bodies() == [b"quick %d" % number for number in range(5)]
    desk.settle(desk.due(3, 4) + 1)
    assert desk.bodies()[5:] == [b"slow %d" % number for number in range(5)]
    assert desk.offsets() == {1: 5, 3: 5}


def test_a_message_that_comes_while_its_level_is_empty_is_seen_by_the_bell(desk: Desk) -> None:
    assert desk.turn(now_ms()) == -1
    desk.delay(1, b"first of its level")
    assert desk.turn(now_ms()) == desk.due(1, 0) + 1
    desk.settle(desk.due(1, 0) + 1)
    desk.delay(1, b"second")
    desk.settle(desk.due(1, 1) + 1)
    assert desk.bodies() == [b"first of its level", b"second"]


def test_a_level_that_begins_to_wait_wakes_a_resting_dispatcher(desk: Desk) -> None:  # S7
    desk.settle(now_ms())
    desk.delay(1, b"due")
    assert desk.probe.send("Orders", 0, [b"published, and not dispatched"], opaque=1)
    desk.writer.run(TURN_MS)
    bell = desk.run.segment.bell(DISPATCHER.slot)
    with contextlib.suppress(BlockingIOError):
        os.eventfd_read(bell)
    desk.run.segment.arm(DISPATCHER.slot)
    desk.turn(desk.due(1, 0) + 1)
    assert os.eventfd_read(bell) == 1


def test_more_messages_than_may_be_in_flight_are_all_delivered_in_order(tmp_path: Path) -> None:
    desk = Desk(tmp_path, segment_size=1 << 22, file_entries=700)
    for number in range(3000):
        assert desk.probe.send(SCHEDULE_TOPIC, 0, [b"%d" % number], opaque=1, properties=(
            b"DELAY\x011\x02REAL_TOPIC\x01Orders\x02REAL_QID\x010"))
        if number % 500 == 0:
            desk.store()
    desk.store()
    desk.settle(desk.due(1, 2999) + 1)
    assert desk.bodies() == [b"%d" % number for number in range(3000)]
    assert desk.offsets() == {1: 3000}


# -- clocks (broker.md 4.4 step 3) ----------------------------------------------------------------


def test_a_clock_that_was_set_back_far_makes_waiting_messages_due_now(desk: Desk) -> None:
    desk.delay(2, b"stored by the wrong clock")
    stored_ms = desk.due(2, 0) - DELAYS_MS[1]
    desk.turn(stored_ms - 3_600_000)
    desk.settle(stored_ms - 3_600_000 + 1)
    assert desk.bodies() == [b"stored by the wrong clock"]


def test_a_clock_that_was_set_back_a_little_makes_messages_late_and_not_early(desk: Desk) -> None:
    desk.delay(2, b"patient")
    for back_ms in (5_000, 3_000, 1):
        desk.settle(desk.due(2, 0) - DELAYS_MS[1] - back_ms)
        desk.settle(desk.due(2, 0) - DELAYS_MS[1] - back_ms)
    assert desk.bodies() == []
    desk.settle(desk.due(2, 0) + 1)
    assert desk.bodies() == [b"patient"]


def test_a_message_stored_after_the_turn_took_its_time_is_not_early(desk: Desk) -> None:
    at = now_ms() - 3_600_000                # a turn that has been asleep since
    desk.delay(2, b"younger than the turn")
    desk.turn(at)
    desk.store()
    assert desk.bodies() == []


# -- what cannot be delivered ----------------------------------------------------------------------


@pytest.mark.parametrize(("properties", "note"), [
    ({"DELAY": "1", "REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"}, NoteKind.NOTE_HALF),
    ({"DELAY": "1", "REAL_QID": "0"}, NoteKind.NOTE_NO_PLACE),
    ({"DELAY": "1", "REAL_TOPIC": "Orders"}, NoteKind.NOTE_NO_PLACE),
    ({"DELAY": "1", "REAL_TOPIC": "Orders", "REAL_QID": "one"}, NoteKind.NOTE_NO_PLACE),
    ({"DELAY": "1", "REAL_TOPIC": "Orders", "REAL_QID": "-1"}, NoteKind.NOTE_NO_PLACE),
    ({"DELAY": "1", "REAL_TOPIC": "O" * 128, "REAL_QID": "0"}, NoteKind.NOTE_NO_PLACE),
])
def test_a_message_without_a_place_is_skipped_in_its_order_and_noted(
    desk: Desk, properties: dict[str, str], note: int
) -> None:
    desk.delay(1, b"before")
    desk.delay(1, b"nowhere", properties=properties)
    desk.delay(1, b"after")
    desk.settle(desk.due(1, 2) + 1)

    assert desk.bodies() == [b"before", b"after"]
    assert desk.offsets() == {1: 3}
    assert desk.scheduler.notes() == ([(note, 1, 1, desk.entry(1, 1)[0])], 0)


def test_an_entry_that_points_at_no_record_is_skipped(desk: Desk) -> None:
    desk.delay(1, b"before")
    desk.delay(1, b"lost")
    desk.delay(1, b"after")
    due_ms = desk.due(1, 2)
    with open(desk.run.queue_folder / SCHEDULE_TOPIC / "0" / f"{0:020d}", "r+b") as file:
        file.seek(20)
        file.write((7).to_bytes(8, "big"))
    desk.settle(due_ms + 1)

    assert desk.bodies() == [b"before", b"after"]
    assert desk.scheduler.notes() == ([(NoteKind.NOTE_UNREADABLE, 1, 1, 7)], 0)


def test_levels_beyond_the_configured_ones_wait_and_keep_their_offsets(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.delay(3, b"beyond")
    due_ms = desk.due(3, 0)
    desk.delays_ms = DELAYS_MS[:2]
    desk.begin()
    desk.settle(due_ms + 1)
    assert desk.bodies() == []
    desk.delays_ms = DELAYS_MS
    desk.begin()
    desk.settle(due_ms + 1)
    assert desk.bodies() == [b"beyond"]


# -- the queue's range -----------------------------------------------------------------------------


def test_an_offset_beyond_the_queue_moves_to_its_end(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.delay(1, b"there")
    desk.begin(load=False)
    desk.scheduler.load({1: 77, 2: 5}, -1)
    desk.settle(desk.due(1, 0) + 1)
    assert desk.offsets() == {1: 1}               # level 2 has no queue: it begins at 0
    desk.delay(1, b"next")
    desk.settle(desk.due(1, 1) + 1)
    assert desk.bodies() == [b"next"]


def test_a_search_without_offsets_begins_where_the_queue_does(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for number in range(4):
        desk.delay(1, b"%d" % number)
    desk.settle(desk.due(1, 3) + 1)
    desk.begin(load=False)
    queues = QueueLives(desk.run.segment)
    queues.set_min(queues.number(SCHEDULE_TOPIC, 0), 2)      # the entries before have expired
    desk.scheduler.load({}, 0)
    desk.settle(desk.due(1, 3) + 1)
    assert desk.bodies() == [b"0", b"1", b"2", b"3"]
    assert desk.offsets() == {1: 4}


def test_offsets_of_a_longer_log_are_not_believed(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for number in range(2):
        desk.delay(1, b"%d" % number)
    desk.settle(desk.due(1, 1) + 1)
    desk.delay(1, b"2")
    end = desk.run.segment.log_state()["published"]
    desk.begin(load=False)
    desk.scheduler.load({1: 3}, end + 1, [(1, 4)])           # its delivery lay behind this log
    desk.settle(desk.due(1, 2) + 1)
    assert desk.bodies() == [b"0", b"1", b"2"]
    assert desk.offsets() == {1: 3}


# -- refusals --------------------------------------------------------------------------------------


def test_a_refused_delivery_is_tried_again_after_a_pause_in_its_order(desk: Desk) -> None:
    for number in range(3):
        desk.delay(1, b"%d" % number)
    due_ms = desk.due(1, 2) + 1
    watch(desk.run.segment)
    try:
        fail("write", ENOSPC)
        desk.turn(due_ms)
        desk.store()
        assert desk.bodies() == []
        assert desk.offsets() == {}
    finally:
        unwatch()
    wanted_ms = desk.turn(due_ms)
    assert due_ms < wanted_ms <= due_ms + 101
    while not desk.bodies():                      # the writer looks at the disk now and then
        desk.back_off()
        desk.settle(due_ms)
    assert desk.bodies() == [b"0", b"1", b"2"]
    assert desk.offsets() == {1: 3}


def test_a_level_whose_message_is_refused_holds_back_no_other_level(desk: Desk) -> None:
    desk.delay(1, b"first", topic="Known")
    desk.delay(2, b"of another level", topic="Known")
    desk.settle(desk.due(1, 0) + 1)
    for number in range(61):                          # the table of queues has room for 64
        desk.probe.send("Filler", number, [b""], opaque=1)
    desk.store()
    desk.delay(1, b"to a queue that has no room", topic="Unknown")
    desk.settle(desk.due(2, 0) + 1)

    assert [one.body for one in desk.delivered() if one.topic == "Known"] == [
        b"first", b"of another level"]
    assert desk.offsets() == {1: 1, 2: 1}
