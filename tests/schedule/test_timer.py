"""Delivery at a time, turn by turn, at a clock that the test sets."""
from __future__ import annotations

from pathlib import Path

import pytest

from mqcore.shm.delays import timer_lateness, timer_next
from mqcore.store.probes.append_probe import fail, unwatch, watch
from mqcore.wire.properties import decode_properties, encode_properties
from tests.schedule.desk import TIMER_TOPIC, Desk, now_ms
from tests.support.waiting import wait_until

DAY_MS = 86_400_000
ENOSPC = 28


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.settle(now_ms())
    return desk


def test_a_message_is_delivered_in_the_millisecond_of_its_time_and_not_before(desk: Desk) -> None:
    due_ms = now_ms() + 5_432
    desk.at_time(due_ms, b"one")
    desk.settle(due_ms - 1)
    assert desk.bodies() == []
    assert desk.turn(due_ms - 1) == due_ms
    desk.settle(due_ms)
    assert desk.bodies() == [b"one"]
    assert desk.turn(due_ms + 5_000) == -1


def test_messages_come_in_the_order_of_their_times(desk: Desk) -> None:
    base = now_ms() + 3_000
    for late in (900, 20, 4_000, 21, 2_500, 1):
        desk.at_time(base + late, b"%d" % late)
    desk.settle(base + 10_000)
    assert desk.bodies() == [b"1", b"20", b"21", b"900", b"2500", b"4000"]


def test_a_message_for_the_second_that_has_begun_is_not_late(desk: Desk) -> None:
    base = (now_ms() // 1000 + 2) * 1000
    desk.at_time(base + 900, b"before")
    desk.settle(base + 100)
    desk.at_time(base + 300, b"late")
    desk.at_time(base + 50, b"over")
    desk.settle(base + 100)
    assert desk.bodies() == [b"over"]
    desk.settle(base + 299)
    assert desk.bodies() == [b"over"]
    desk.settle(base + 300)
    assert desk.bodies() == [b"over", b"late"]
    desk.settle(base + 5_000)
    assert desk.bodies() == [b"over", b"late", b"before"]


def test_a_delivery_says_where_it_came_from_and_nothing_of_its_wait(desk: Desk) -> None:
    due_ms = now_ms() + 2_000
    desk.at_time(due_ms, b"one", topic="Bills", queue_id=3, unique="0A")
    desk.settle(due_ms + 17)
    [delivered] = desk.delivered()
    assert (delivered.topic, delivered.queue_id) == ("Bills", 3)
    properties = decode_properties(delivered.properties.decode())
    assert properties.pop("TIMER_ENQUEUE_MS") == str(desk.records()[0]["storeTimestamp"])
    assert int(properties.pop("TIMER_DEQUEUE_MS")) >= due_ms
    assert properties == {"UNIQ_KEY": "0A", "TIMER_DELIVER_MS": str(due_ms)}
    assert delivered.record["preparedTransactionOffset"] == desk.records()[0]["physicalOffset"]


def test_a_message_beyond_the_wheel_is_stored_again_and_comes_at_its_time(desk: Desk) -> None:
    start = now_ms()
    due_ms = start + 5 * DAY_MS + 7
    desk.at_time(due_ms, b"far")
    for hours in range(0, 120, 6):
        desk.settle(start + hours * 3_600_000)
    assert desk.bodies() == []
    waiting = [r for r in desk.records() if r["topic"] == TIMER_TOPIC]
    rolled = [decode_properties(r["properties"].decode()).get("TIMER_ROLL_TIMES") for r in waiting]
    assert rolled == [None, "1", "2"]
    desk.settle(due_ms - 1)
    assert desk.bodies() == []
    desk.settle(due_ms)
    assert desk.bodies() == [b"far"]


def test_a_message_that_is_taken_back_is_not_delivered_and_others_are(desk: Desk) -> None:
    due_ms = now_ms() + 4_000
    desk.at_time(due_ms, b"goes", unique="0A")
    desk.at_time(due_ms, b"stays", unique="0B")
    desk.at_time(due_ms, b"other topic", unique="0A", topic="Bills")
    desk.recall(due_ms, "0A")
    desk.recall(due_ms, "0A")
    desk.settle(due_ms + 3_000)
    assert desk.bodies() == [b"stays", b"other topic"]
    assert desk.turn(due_ms + 10_000) == -1


def test_a_message_of_the_second_that_has_begun_can_be_taken_back(desk: Desk) -> None:
    base = (now_ms() // 1000 + 2) * 1000
    desk.at_time(base + 900, b"goes", unique="0A")
    desk.settle(base + 100)
    desk.at_time(base + 800, b"late and goes", unique="0B")
    desk.settle(base + 100)
    desk.recall(base + 900, "0A")
    desk.recall(base + 800, "0B")
    desk.settle(base + 5_000)
    assert desk.bodies() == []


@pytest.mark.parametrize("load", [True, False])
def test_a_new_process_goes_on_where_the_last_one_was(desk: Desk, load: bool) -> None:
    base = (now_ms() // 1000 + 2) * 1000
    for late in range(0, 4_000, 250):
        desk.at_time(base + late, b"%d" % late)
    desk.settle(base + 1_600)
    desk.at_time(base + 1_700, b"late")
    desk.turn(base + 1_700)                       # handed over, its result is not read
    if load:
        desk.scheduler = desk.new_scheduler()
    else:
        desk.begin(load=False)
        desk.scheduler.load({}, 0)
        desk.scheduler.load_timer(0, 0, trusted=True)
    desk.settle(base + 10_000)
    assert sorted(desk.bodies()) == sorted(
        [b"%d" % late for late in range(0, 4_000, 250)] + [b"late"])


@pytest.mark.parametrize("searches", [True, False])
def test_a_lost_wheel_is_made_again_from_the_queue(desk: Desk, searches: bool) -> None:
    base = (now_ms() // 1000 + 2) * 1000
    for late in range(1, 6_000, 250):
        desk.at_time(base + late, b"%d" % late)
    desk.turn(base - 1_500)
    desk.settle(base + 3_000)
    second, offset, _ = desk.scheduler.snapshot().timer
    assert second * 1000 == base + 3_000
    for file in desk.root.glob("timerlog/*"):
        file.unlink()
    (desk.root / "timerwheel").unlink()
    desk.begin(load=False)
    desk.scheduler.load({}, 0 if searches else -1)
    desk.scheduler.load_timer(second, offset, trusted=False)
    desk.settle(base + 10_000)
    assert desk.bodies() == [b"%d" % late for late in range(1, 6_000, 250)]


def test_a_second_with_more_messages_than_memory_comes_in_order(desk: Desk) -> None:
    base = (now_ms() // 1000 + 2) * 1000
    desk.scheduler.set_collected_max(3)
    for number in (9, 4, 1, 8, 2, 6, 3, 7, 5, 0):
        desk.at_time(base + 100 + number // 2, b"%d" % number)
        desk.turn(base - 1_500)
    desk.settle(base + 5_000)
    assert desk.bodies() == [b"1", b"0", b"2", b"3", b"4", b"5", b"6", b"7", b"9", b"8"]


def test_the_last_unit_of_a_process_that_died_before_it_was_in_its_slot_comes(desk: Desk) -> None:
    base = (now_ms() // 1000 + 3) * 1000
    desk.at_time(base + 500, b"the last")
    desk.turn(base - 2_000)
    second = base // 1000
    with (desk.root / "timerwheel").open("r+b") as file:
        file.seek(second % 1_209_600 * 32)
        assert int.from_bytes(file.read(8), "big") == second
        file.seek(second % 1_209_600 * 32)
        file.write(bytes(32))
    desk.scheduler = desk.new_scheduler()
    desk.settle(base + 5_000)
    assert desk.bodies() == [b"the last"]


def test_what_is_in_the_wheel_is_not_put_there_again(desk: Desk) -> None:
    base = (now_ms() // 1000 + 3) * 1000
    for number in range(3):
        desk.at_time(base + number, b"%d" % number)
    desk.turn(base - 2_000)
    with (desk.root / "config/timercheck").open("r+b") as file:
        file.seek(16)
        assert int.from_bytes(file.read(8), "big") == 3
        file.seek(16)
        file.write(bytes(16))                     # where it stood before the three
    desk.scheduler = desk.new_scheduler()
    desk.settle(base + 5_000)
    assert desk.bodies() == [b"0", b"1", b"2"]


def test_late_messages_of_two_processes_before_are_not_taken_for_settled(desk: Desk) -> None:
    base = (now_ms() // 1000 + 2) * 1000
    desk.at_time(base + 900, b"of the second")
    desk.turn(base - 1_500)
    desk.settle(base + 100)
    desk.at_time(base + 950, b"late")              # its unit is in the next slot
    desk.turn(base + 100)
    for _ in range(2):
        desk.scheduler = desk.new_scheduler()
        desk.turn(base + 200)
    desk.settle(base + 940)
    second, offset, _ = desk.scheduler.snapshot().timer
    assert offset == 1
    (desk.root / "timerwheel").unlink()
    desk.begin(load=False)
    desk.scheduler.load({}, -1)
    desk.scheduler.load_timer(second + 5, offset, trusted=False)
    desk.settle(base + 9_000)
    assert desk.bodies() == [b"of the second", b"late"]


@pytest.mark.parametrize("body", [b"other", b"quite another size"])
def test_a_record_that_took_the_place_of_a_lost_one_comes_at_its_own_time(
    desk: Desk, body: bytes,
) -> None:
    base = (now_ms() // 1000 + 3) * 1000
    desk.at_time(base + 9_000, b"stays")
    desk.at_time(base + 500, b"lost!")
    desk.turn(base - 2_000)
    lost = desk.records()[-1]
    log = desk.run.log_folder / f"{0:020d}"
    with log.open("r+b") as file:                 # as a power cut does, or a pool's end
        file.seek(lost["physicalOffset"])
        file.write(bytes(lost["size"]))
    desk.begin(load=False)
    desk.scheduler.load({}, -1)
    desk.scheduler.load_timer(0, 0, trusted=True)
    desk.at_time(base + 4_000, body)
    assert desk.records()[-1]["physicalOffset"] == lost["physicalOffset"]
    desk.settle(base + 3_999)
    assert desk.bodies() == []
    desk.settle(base + 4_000)
    assert desk.bodies() == [body]
    desk.settle(base + 9_000)
    assert desk.bodies() == [body, b"stays"]


def test_a_second_is_not_settled_before_what_was_handed_over_is(desk: Desk) -> None:
    base = (now_ms() // 1000 + 2) * 1000
    desk.at_time(base + 10, b"one")
    desk.turn(base - 1_500)
    desk.turn(base + 5_000)                       # handed over; the writer has not taken it
    assert desk.scheduler.snapshot().timer[0] == base // 1000
    desk.settle(base + 5_000)
    assert desk.scheduler.snapshot().timer[0] == base // 1000 + 5


def test_a_late_message_that_was_refused_comes_from_a_new_process(desk: Desk) -> None:
    base = (now_ms() // 1000 + 2) * 1000
    desk.at_time(base + 10, b"first")
    desk.turn(base - 1_500)
    desk.settle(base + 3_000)
    watch(desk.run.segment)
    try:
        desk.at_time(base + 500, b"late")
        fail("write", ENOSPC)
        desk.turn(base + 3_001)
        desk.store()
    finally:
        unwatch()
    desk.scheduler = desk.new_scheduler()
    later = iter(range(3_000, 10_000_000, 1_000))

    def came() -> bool:                           # the writer looks at the disk now and then
        desk.back_off()
        desk.settle(base + next(later))
        return len(desk.bodies()) == 2

    wait_until(came, "the message")
    assert desk.bodies() == [b"first", b"late"]


def test_messages_on_their_way_are_settled_before_a_wrong_wheel_is_made_anew(desk: Desk) -> None:
    base = (now_ms() // 1000 + 3) * 1000
    desk.at_time(base + 8_000, b"at position 0")
    for number in range(4):
        desk.at_time(base + 100 + number, b"%d" % number)
    desk.at_time(base + 500, b"lost!")
    desk.turn(base - 2_000)
    lost = desk.records()[-1]
    with (desk.run.log_folder / f"{0:020d}").open("r+b") as file:
        file.seek(lost["physicalOffset"])
        file.write(bytes(lost["size"]))
    desk.begin(load=False)
    desk.scheduler.load({}, -1)
    desk.scheduler.load_timer(0, 0, trusted=True)
    desk.at_time(base + 4_000, b"other")
    desk.at_time(base + 5_000, b"last")
    desk.settle(base - 1_000)
    desk.turn(base + 600)                         # four are handed over, then the wrong one is met
    desk.settle(base + 600)
    desk.settle(base + 3_999)
    assert desk.bodies() == [b"0", b"1", b"2", b"3"]
    desk.settle(base + 9_000)
    assert desk.bodies() == [b"0", b"1", b"2", b"3", b"other", b"last", b"at position 0"]


def test_the_record_at_the_begin_of_the_log_is_found_delivered(desk: Desk) -> None:
    base = (now_ms() // 1000 + 2) * 1000
    desk.at_time(base + 10, b"first")
    assert desk.records()[0]["physicalOffset"] == 0
    desk.turn(base - 1_500)
    desk.turn(base + 10)                          # handed over, its result is not read
    desk.store()
    desk.scheduler = desk.new_scheduler()
    desk.settle(base + 5_000)
    assert desk.bodies() == [b"first"]


def test_a_recall_counts_for_its_own_topic_only(desk: Desk) -> None:
    due_ms = now_ms() + 4_000
    desk.at_time(due_ms, b"stays", unique="0A", topic="Bills")
    desk.at_time(due_ms, b"0", properties={
        "TAGS": "_RECALL_TAG_", "TIMER_DEL_UNIQKEY": "Bills+0A", "REAL_QID": "0",
        "TIMER_OUT_MS": str((due_ms - 1) // 1000 * 1000), "REAL_TOPIC": "Orders"})
    desk.settle(due_ms + 3_000)
    assert desk.bodies() == [b"stays"]


@pytest.mark.parametrize("rolled", [False, True])
def test_recalls_outlive_a_process_and_a_long_rest(desk: Desk, rolled: bool) -> None:
    """Of the second that has begun; of a message that is stored again when it is due already."""
    base = (now_ms() // 1000 + 2) * 1000
    due_ms = base + (3 * DAY_MS if rolled else 900)
    desk.at_time(due_ms, b"goes", unique="0A")
    desk.settle(base + 100)
    desk.recall(due_ms, "0A")
    desk.turn(base + 100)
    desk.scheduler = desk.new_scheduler()
    desk.turn(base + 200)
    desk.settle(due_ms + 5_000)
    desk.settle(due_ms + 5_000)
    assert desk.bodies() == []


def test_a_recall_counts_for_a_late_message_of_a_process_before_the_clock_stepped_back(
    desk: Desk,
) -> None:
    base = (now_ms() // 1000 + 4) * 1000
    desk.at_time(base + 10, b"of the second")
    desk.settle(base + 20)
    desk.at_time(base + 500, b"late", unique="0A")
    desk.settle(base + 20)
    desk.recall(base + 500, "0A")
    desk.scheduler = desk.new_scheduler()
    desk.turn(base - 1_000)
    for _ in range(2):                            # it counts for processes that come later
        desk.scheduler = desk.new_scheduler()
        desk.settle(base + 400)
    desk.settle(base + 5_000)
    assert desk.bodies() == [b"of the second"]


def rolled(desk: Desk, due_ms: int, body: bytes, unique: str, times: int) -> None:
    """As a stock broker stores a message again: without the older record's position."""
    desk.at_time(due_ms, body, properties={
        "UNIQ_KEY": unique, "TIMER_DELIVER_MS": str(due_ms), "TIMER_ROLL_TIMES": str(times),
        "TIMER_OUT_MS": str((due_ms - 1) // 1000 * 1000), "REAL_TOPIC": "Orders", "REAL_QID": "0"})


def test_what_a_stock_broker_stored_again_comes_once(desk: Desk) -> None:
    base = (now_ms() // 1000 + 2) * 1000
    due_ms = base + 5 * DAY_MS
    desk.at_time(due_ms, b"far", unique="0A")
    rolled(desk, due_ms, b"far", "0A", 1)
    rolled(desk, due_ms, b"far", "0A", 2)
    rolled(desk, due_ms, b"other", "0A", 1)       # one id, but another body, or another time
    rolled(desk, due_ms + 1, b"far", "0A", 1)
    desk.at_time(due_ms, b"far", unique="0A", topic="Bills")
    desk.begin(load=False)
    desk.scheduler.load({}, -1)
    desk.scheduler.load_timer(base // 1000 + 4 * 86_400, 6, trusted=False)
    for _ in range(4):                            # each is stored again, and comes then
        desk.settle(due_ms + 3 * DAY_MS)
    assert sorted((one.topic, one.body) for one in desk.delivered()) == [
        ("Bills", b"far"), ("Orders", b"far"), ("Orders", b"far"), ("Orders", b"other")]


def test_a_far_message_that_was_refused_is_not_taken_for_its_own_twin(desk: Desk) -> None:
    base = (now_ms() // 1000 + 2) * 1000
    rolled(desk, base + 500, b"far", "0A", 1)
    desk.turn(base - 1_500)
    watch(desk.run.segment)
    try:
        fail("write", ENOSPC)
        desk.turn(base + 600)
        desk.store()
    finally:
        unwatch()
    later = iter(range(1_000, 10_000_000, 1_000))

    def came() -> bool:                           # the writer looks at the disk now and then
        desk.back_off()
        desk.settle(base + next(later))
        return len(desk.bodies()) == 1

    wait_until(came, "the message")


def test_a_repeated_recall_takes_no_more_time_than_another(desk: Desk) -> None:
    base = (now_ms() // 1000 + 2) * 1000
    desk.at_time(base + 900, b"goes", unique="0A")
    desk.at_time(base + 950, b"stays", unique="0B")
    for _ in range(200):
        desk.recall(base + 900, "0A")
    desk.settle(base + 5_000)
    assert desk.bodies() == [b"stays"]


def test_lateness_and_the_next_second_are_shown(desk: Desk) -> None:
    base = (now_ms() // 1000 + 2) * 1000
    for late in (100, 130, 5_000):
        desk.at_time(base + late, b"%d" % late)
    desk.turn(base - 1_500)
    assert timer_next(desk.run.segment) == base // 1000
    desk.settle(base + 133)                       # 33 and 3 ms late
    counts, sum_ms = timer_lateness(desk.run.segment)
    assert counts == [0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    assert sum_ms == 36
    desk.settle(base + 5_000)
    desk.settle(base + 6_000)
    assert timer_next(desk.run.segment) == 0


def test_a_recall_far_behind_its_message_counts_when_both_waited_to_be_read(desk: Desk) -> None:
    base = (now_ms() // 1000 + 2) * 1000
    desk.at_time(base + 500, b"goes", unique="0A")
    far = encode_properties({
        "TIMER_DELIVER_MS": str(base + DAY_MS), "TIMER_OUT_MS": str(base + DAY_MS - 1000),
        "REAL_TOPIC": "Orders", "REAL_QID": "0"}).encode()
    for number in range(4_200):                   # more than a turn reads
        assert desk.probe.send(TIMER_TOPIC, 0, [b"x"], opaque=1, properties=far, born_ms=1)
        if number % 50 == 49:
            desk.store()
    desk.recall(base + 500, "0A")
    desk.settle(base + 10_000)
    assert desk.bodies() == []
