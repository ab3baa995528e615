"""Whichever process dies in the middle of deliveries: each message is delivered once."""
from __future__ import annotations

import os
import random
import signal
import threading
from mmap import mmap
from pathlib import Path

import pytest

from mqcore.participants import WRITER
from mqcore.shm.replica_gate import ReplicaPen
from mqcore.store.log.append_loop import AppendLoop
from mqcore.store.probes.io_stall import Stall
from mqcore.store.schedule.loop import Snapshot
from tests.schedule.desk import TURN_MS, WORKER_RUNNING, Desk, now_ms
from tests.support.dice import seed_of_run
from tests.support.waiting import wait_until

SEED = seed_of_run()
ROUNDS = int(os.environ.get("MQCORE_TEST_ROUNDS", "60"))
NUMBERS = [b"%d" % number for number in range(6)]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Six messages of level 1 wait; the scheduler is past its start."""
    return waiting(Desk(tmp_path))


def waiting(desk: Desk) -> Desk:
    desk.settle(now_ms())
    for body in NUMBERS:
        desk.delay(1, body)
    return desk


def late(desk: Desk) -> int:
    return desk.due(1, len(NUMBERS) - 1) + 1


def delivered_once(desk: Desk) -> None:
    assert desk.bodies() == NUMBERS
    assert desk.offsets() == {1: 6}


# -- deaths ----------------------------------------------------------------------------------------


def kill_scheduler(desk: Desk) -> None:
    desk.scheduler = desk.new_scheduler()


def kill_writer(desk: Desk) -> None:
    """A new writer has found the log's end and answered what was in flight; `shown` is next."""
    desk.run.segment.begin_incarnation(WRITER.slot)
    desk.run.segment.request_stop(WRITER.slot)
    end = desk.run.recover_tail().end
    desk.writer = AppendLoop(
        desk.run.segment, os.fsencode(desk.run.log_folder), desk.mode, end, flush_interval_ms=500,
        flush_least_bytes=16384, flush_thorough_interval_ms=10_000, sync_timeout_ms=5000,
        commit_interval_ms=200, commit_least_bytes=16384)
    desk.writer.drop_requests()
    desk.probe.take()


def shown(desk: Desk) -> None:
    """The rest of a writer's start."""
    desk.writer.publish_start(0)
    desk.run.segment.set_state(WRITER.slot, WORKER_RUNNING)


def kill_all(desk: Desk) -> None:
    """Nothing is left but the store and a delayOffset.json that was just written."""
    begin_again(desk, desk.scheduler.snapshot())


def begin_again(desk: Desk, saved: Snapshot) -> None:
    """Nothing is left but the store and what delayOffset.json said last."""
    desk.begin(load=False)
    desk.scheduler.load(saved.offsets, saved.position, saved.ahead)


def writer_that_dies_before_it_answers(desk: Desk) -> None:
    """It has written what the rings hold, and is killed while the disk keeps it waiting."""
    memory = mmap(-1, 4096)
    stall = Stall(memory)
    stall.syncs(True)
    pid = os.fork()
    if pid == 0:
        try:
            stall.install()
            desk.writer.run(60_000)
        finally:
            os._exit(1)
    wait_until(stall.hanging, "the writer's sync hangs")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


# -- the scheduler ---------------------------------------------------------------------------------


def test_a_scheduler_killed_before_the_writer_looked_doubles_nothing(desk: Desk) -> None:
    at = late(desk)
    desk.turn(at)                                 # handed over; nobody has taken it
    kill_scheduler(desk)
    desk.settle(at)
    delivered_once(desk)


def test_a_scheduler_killed_before_it_read_the_results_doubles_nothing(desk: Desk) -> None:
    at = late(desk)
    desk.turn(at)
    desk.store()
    assert desk.bodies() == NUMBERS
    assert desk.offsets() == {}
    kill_scheduler(desk)
    desk.settle(at)
    delivered_once(desk)


def test_a_successor_hands_nothing_over_before_the_writer_has_answered(desk: Desk) -> None:
    at = late(desk)
    desk.turn(at)
    kill_scheduler(desk)
    for _ in range(3):
        assert desk.turn(at) > at                 # it looks again by itself
    assert not desk.scheduler.delivering
    desk.settle(at)
    assert desk.scheduler.delivering
    delivered_once(desk)


# -- the writer ------------------------------------------------------------------------------------


def test_a_writer_killed_before_it_took_them_loses_nothing(desk: Desk) -> None:
    at = late(desk)
    desk.turn(at)
    kill_writer(desk)
    shown(desk)
    desk.settle(at)
    delivered_once(desk)


@pytest.mark.parametrize("with_scheduler", [False, True], ids=["alone", "with the scheduler"])
def test_deliveries_that_a_dead_writer_stored_and_did_not_answer_are_found_in_the_log(
    tmp_path: Path, with_scheduler: bool
) -> None:
    desk = waiting(Desk(tmp_path, mode="sync"))
    at = late(desk)
    desk.turn(at)
    writer_that_dies_before_it_answers(desk)
    if with_scheduler:
        kill_scheduler(desk)
    desk.turn(at)
    kill_writer(desk)
    for _ in range(3):
        desk.turn(at)                             # the new writer has not shown the log yet
    assert not desk.scheduler.delivering
    shown(desk)
    desk.settle(at)
    delivered_once(desk)


def test_deliveries_that_a_dead_writer_stored_in_part_are_delivered_for_the_rest(
    tmp_path: Path,
) -> None:
    desk = waiting(Desk(tmp_path, mode="sync"))
    desk.turn(desk.due(1, 2) + 1)                 # some of them, by the clock of their store
    writer_that_dies_before_it_answers(desk)
    desk.turn(late(desk))
    kill_writer(desk)
    shown(desk)
    desk.settle(late(desk))
    delivered_once(desk)


def test_deliveries_that_a_pool_lost_with_its_writer_are_made_again(desk: Desk) -> None:     # S5
    """Their results have come, and say that all is well."""
    at = late(desk)
    desk.writer = desk.run.writer("transient-pool", int(desk.run.segment.log_state()["published"]))
    desk.turn(at)
    desk.writer.run(TURN_MS)                      # into the pool: no thread writes it
    kill_writer(desk)
    shown(desk)
    desk.settle(at)
    delivered_once(desk)


# -- a run that ends while results wait for slaves -------------------------------------------------


def gated(desk: Desk) -> ReplicaPen:
    """From now on results come when slaves have their records, as far as the pen says."""
    end = int(desk.run.segment.log_state()["published"])
    desk.writer = desk.run.writer("async", end, wait_replicated=True, slave_timeout_ms=600_000)
    pen = ReplicaPen(desk.run.segment)
    pen.move(end)
    return pen


def test_deliveries_that_are_published_and_not_answered_are_found_by_the_next_run(      # S2
    desk: Desk,
) -> None:
    at = late(desk)
    gated(desk)
    desk.turn(at)
    desk.store()
    assert desk.bodies() == NUMBERS
    desk.turn(at)
    assert desk.offsets() == {}
    kill_all(desk)
    desk.settle(at)
    delivered_once(desk)


def test_a_result_says_nothing_of_what_the_log_has_behind_its_record(tmp_path: Path) -> None:   # S3
    desk = Desk(tmp_path)
    desk.settle(now_ms())
    for level in (1, 2):
        desk.delay(level, b"%d" % level)
    pen = gated(desk)
    ends = []
    for level in (1, 2):
        desk.turn(desk.due(level, 0) + 1)
        desk.store()
        ends.append(int(desk.run.segment.log_state()["published"]))
    assert desk.bodies() == [b"1", b"2"]
    pen.move(ends[0])
    desk.store()
    at = desk.due(2, 0) + 1
    desk.turn(at)
    assert desk.offsets() == {1: 1}
    kill_all(desk)
    desk.settle(at)
    assert desk.bodies() == [b"1", b"2"]


# -- everything ------------------------------------------------------------------------------------


def test_a_new_run_finds_what_was_delivered_behind_the_saved_offsets(desk: Desk) -> None:
    saved = desk.scheduler.snapshot()
    desk.settle(late(desk))
    delivered_once(desk)
    begin_again(desk, saved)
    desk.settle(late(desk))
    delivered_once(desk)


def test_a_new_run_that_knows_no_position_takes_the_offsets_as_exact(desk: Desk) -> None:
    desk.settle(late(desk))
    begin_again(desk, Snapshot({1: 4}, -1, [], 0))
    desk.settle(late(desk))
    assert desk.bodies() == [*NUMBERS, b"4", b"5"]


def test_a_new_run_tells_messages_with_the_same_body_apart(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.settle(now_ms())
    for born_ms in (1, 2, 3):
        desk.delay(1, b"the same", born_ms=born_ms)
    saved = desk.scheduler.snapshot()
    desk.settle(desk.due(1, 2) + 1)
    desk.delay(1, b"the same", born_ms=4)
    begin_again(desk, saved)
    desk.settle(desk.due(1, 3) + 1)
    assert [one.record["bornTimestamp"] for one in desk.delivered()] == [1, 2, 3, 4]


@pytest.mark.parametrize("death", ["kill_scheduler", "begin_again"])
def test_a_delivery_that_the_writer_put_into_more_queues_is_known_again(
    tmp_path: Path, death: str
) -> None:
    desk = Desk(tmp_path, multi_dispatch=True)
    desk.writer.name_queues(False, 100)
    desk.settle(now_ms())
    desk.delay(1, b"one", properties={
        "WAIT": "false", "DELAY": "1", "REAL_TOPIC": "Orders", "REAL_QID": "0",
        "INNER_MULTI_DISPATCH": "Other,Third", "KEYS": "k"})
    desk.delay(1, b"two")
    saved = desk.scheduler.snapshot()
    at = desk.due(1, 1) + 1
    desk.turn(at)
    desk.store()
    assert [b"INNER_MULTI_QUEUE_OFFSET\x010,0" in one.properties
            for one in desk.delivered()] == [True, False]
    if death == "kill_scheduler":
        kill_scheduler(desk)
    else:
        begin_again(desk, saved)
    desk.settle(at)
    assert desk.bodies() == [b"one", b"two"]
    assert desk.offsets() == {1: 2}


# -- after a refusal -------------------------------------------------------------------------------


def test_what_overtook_a_refused_message_is_not_delivered_again_by_a_successor(
    tmp_path: Path,
) -> None:
    desk = Desk(tmp_path)
    desk.settle(now_ms())
    fill_queue_table(desk, leave=2)
    desk.delay(1, b"there is room")
    desk.settle(desk.due(1, 0) + 1)
    desk.delay(1, b"no room", topic="Unknown")
    desk.delay(1, b"overtakes")
    at = desk.due(1, 2) + 1
    desk.settle(at)
    assert desk.bodies()[-2:] == [b"there is room", b"overtakes"]
    assert desk.offsets() == {1: 1}
    for _ in range(3):
        kill_scheduler(desk)
        desk.back_off()
        desk.settle(at)
    desk.sizes["queues"] = 128                    # processes.queue_count_max is raised
    kill_all(desk)
    desk.settle(at)
    desk.back_off()
    desk.settle(at)
    assert desk.bodies()[-3:] == [b"there is room", b"overtakes", b"no room"]
    assert desk.offsets() == {1: 3}


def test_a_refused_message_is_tried_again_when_no_later_one_is_on_its_way(                  # S4
    tmp_path: Path,
) -> None:
    """A pool answers before it publishes: the third is handed over before the refusal is read."""
    desk = Desk(tmp_path)
    desk.settle(now_ms())
    fill_queue_table(desk, leave=2)
    desk.delay(1, b"there is room")
    desk.settle(desk.due(1, 0) + 1)
    desk.delay(1, b"1")
    desk.delay(1, b"no room", topic="Unknown")
    wait_until(lambda: now_ms() > desk.due(1, 2) - 990, "later milliseconds")
    desk.delay(1, b"3")
    end, at = int(desk.run.segment.log_state()["published"]), desk.due(1, 3) + 1
    desk.writer = desk.run.writer(
        "transient-pool", end, commit_interval_ms=1, commit_least_bytes=0)
    desk.turn(desk.due(1, 2) + 1)
    desk.writer.run(TURN_MS)
    desk.turn(at)
    services = [threading.Thread(target=desk.writer.run_service, args=[name])
                for name in desk.writer.services()]
    for service in services:
        service.start()
    try:
        wait_until(lambda: desk.run.segment.log_state()["published"] > end, "the first")
        for _ in range(3):
            desk.turn(at)
            desk.back_off()
        wait_until(lambda: desk.settle(at) or len(desk.bodies()) >= 3 + 62, "the third")
    finally:
        desk.writer.finish()
        desk.writer.stop_service()
        for service in services:
            service.join()
    assert desk.bodies()[-3:] == [b"there is room", b"1", b"3"]


def fill_queue_table(desk: Desk, *, leave: int) -> None:
    """Queues with a message until the table has only room for `leave` more."""
    for number in range(64 - leave):
        desk.probe.send("Filler", number, [b""], opaque=1)
    desk.store()


# -- all of it, at random --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_deaths_at_random_moments_lose_and_double_nothing_and_keep_each_levels_order(
    tmp_path: Path, mode: str
) -> None:
    print(f"seed {SEED}")
    dice = random.Random(SEED)
    desk = Desk(tmp_path, mode=mode, segment_size=1 << 18)
    sent: dict[int, list[bytes]] = {1: [], 2: []}
    at = now_ms()
    saved = desk.scheduler.snapshot()
    for _ in range(ROUNDS):
        for _ in range(dice.randrange(5)):
            level = dice.choice((1, 2))
            sent[level].append(b"%d of level %d" % (len(sent[level]), level))
            desk.delay(level, sent[level][-1], topic=f"T{dice.randrange(3)}")
        at = max(at, now_ms()) + dice.choice((0, 1, 300, 2_000))
        for _ in range(dice.randrange(4)):
            desk.turn(at)
            if dice.random() < 0.5:
                desk.store()
        if dice.random() < 0.3:
            saved = desk.scheduler.snapshot()
        death = dice.randrange(8)
        if death == 0:
            kill_scheduler(desk)
        elif death == 1:
            kill_writer(desk)
            desk.turn(at)
            shown(desk)
        elif death == 2 and mode == "sync" and desk.turn(at) is not None and in_ring(desk):
            writer_that_dies_before_it_answers(desk)
            kill_writer(desk)
            if dice.random() < 0.5:
                kill_scheduler(desk)
            shown(desk)
        elif death == 3:
            begin_again(desk, saved)
    desk.settle(at + 10_000)
    for level, bodies in sent.items():
        mark = b"of level %d" % level
        assert [body for body in desk.bodies() if body.endswith(mark)] == bodies
    assert desk.offsets() == {level: len(bodies) for level, bodies in sent.items() if bodies}


def in_ring(desk: Desk) -> bool:
    return bool(desk.writer.has_work())
