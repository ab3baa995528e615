"""Sync mode on a slow disk: the group commit keeps the rules G1 to G4 of group_commit.pxd."""
from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mqcore.client import AsyncProducer, Message, SendStatus
from mqcore.layout import PUT_FLUSH_TIMEOUT, PUT_OK, PUT_SERVICE_NOT_AVAILABLE, REFUSAL_FLUSH_FAILED
from mqcore.net.probes.write_stop import ResultStop
from mqcore.store.log.append_loop import AppendLoop
from mqcore.store.probes import append_probe
from mqcore.store.probes.append_probe import AppendProbe
from mqcore.store.probes.io_stall import Stall
from tests.store.harness import Run
from tests.store.stalling import StallingBroker, stall, stalling_broker
from tests.support.mqcore_process import MqcoreProcess
from tests.support.waiting import wait_until
from tests.workers.load import Asker

SEGMENT = 8192
TURN_MS = 1000
TIMEOUT_MS = 60

__all__ = ["stall", "stalling_broker"]      # fixtures


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "store", segment_size=SEGMENT, file_entries=20)


@contextlib.contextmanager
def watched(loop: AppendLoop) -> Iterator[threading.Thread]:
    """The watcher's thread beside the block."""
    watcher = threading.Thread(target=loop.run_service, args=["watch"])
    watcher.start()
    try:
        yield watcher
    finally:
        loop.stop_service()
        watcher.join()


@contextlib.contextmanager
def turning(loop: AppendLoop, stall: Stall) -> Iterator[None]:
    """One turn in a thread of its own, up to where its sync hangs; goes on after the block."""
    stall.syncs(True)
    turn = threading.Thread(target=loop.run, args=[TURN_MS])
    turn.start()
    try:
        wait_until(stall.hanging, "a sync that hangs")
        yield
    finally:
        stall.syncs(False)
        turn.join()


def statuses(taken: list[Any]) -> list[int]:
    return [status for _, status, *_ in taken]


def answers(probe: AppendProbe, count: int) -> list[Any]:
    """The next `count` results, as soon as they are there."""
    found: list[Any] = []

    def enough() -> bool:
        found.extend(probe.take())
        return len(found) >= count

    wait_until(enough, f"{count} results")
    return found


def published(run: Run) -> int:
    end: int = run.segment.log_state()["published"]
    return end


def test_a_hanging_sync_is_answered_at_its_deadline_while_it_hangs(run: Run, stall: Stall) -> None:
    loop, probe = run.writer("sync", 0, sync_timeout_ms=TIMEOUT_MS), run.probe()
    for number in range(5):
        assert probe.send("topic", 0, [b"x"], opaque=number)
    with watched(loop), turning(loop, stall):
        late = answers(probe, 5)
        assert stall.hanging() == 1
        assert statuses(late) == [PUT_FLUSH_TIMEOUT] * 5
        assert [offset for _, _, offset, _, _ in late] == list(range(5))
        assert published(run) == 0                          # not on the disk: nobody reads it (G3)
    assert loop.flush_timeouts() == 5


def test_what_was_answered_late_is_visible_once_flushed_and_not_answered_again(
    run: Run, stall: Stall,
) -> None:
    loop, probe = run.writer("sync", 0, sync_timeout_ms=TIMEOUT_MS), run.probe()
    assert probe.send("topic", 0, [b"late"], opaque=0)
    with watched(loop):
        with turning(loop, stall):
            assert statuses(answers(probe, 1)) == [PUT_FLUSH_TIMEOUT]
        assert probe.take() == []
    assert probe.send("topic", 0, [b"next"], opaque=1)      # no watcher: however slow the disk is
    loop.run(TURN_MS)

    assert statuses(probe.take()) == [PUT_OK]
    assert [record["body"] for record in run.records(published(run))] == [b"late", b"next"]
    state = run.segment.log_state()
    assert state["flushed"] == state["published"]


def test_who_does_not_wait_hears_ok_where_others_hear_of_the_time_out(
    run: Run, stall: Stall,
) -> None:
    loop, probe = run.writer("sync", 0, sync_timeout_ms=TIMEOUT_MS), run.probe()
    for number in range(6):
        assert probe.send("topic", 0, [b"x"], opaque=number, waits=number % 2 == 0)
    with watched(loop), turning(loop, stall):
        assert statuses(answers(probe, 6)) == [PUT_FLUSH_TIMEOUT, PUT_OK] * 3


@pytest.mark.parametrize("unawaited", [{"waits": False}, {"oneway": True}],
                         ids=["WAIT=false", "one-way"])
def test_when_nobody_waits_the_results_go_out_before_the_sync(
    run: Run, stall: Stall, unawaited: dict[str, bool],
) -> None:
    loop, probe = run.writer("sync", 0), run.probe()
    for number in range(3):
        assert probe.send("topic", 0, [b"x"], opaque=number, **unawaited)
    with turning(loop, stall):                              # no watcher is there
        assert statuses(answers(probe, 3)) == [PUT_OK] * 3
        assert published(run) == 0
    assert published(run) > 0


def test_requests_that_come_during_a_late_sync_are_answered_after_their_own(
    run: Run, stall: Stall,
) -> None:
    loop, probe = run.writer("sync", 0, sync_timeout_ms=TIMEOUT_MS), run.probe()
    assert probe.send("topic", 0, [b"first"], opaque=0)
    with watched(loop), turning(loop, stall):
        assert probe.send("topic", 0, [b"second"], opaque=1)
        assert [opaque for opaque, *_ in answers(probe, 1)] == [0]
        stall.syncs(False)
        ((opaque, status, offset, *_),) = answers(probe, 1)
        assert (opaque, offset) == (1, 1)
        assert status in (PUT_OK, PUT_FLUSH_TIMEOUT)        # its own sync may be a slow one


def test_the_sync_of_a_segment_left_behind_is_watched_too(run: Run, stall: Stall) -> None:
    loop, probe = run.writer("sync", 0, sync_timeout_ms=TIMEOUT_MS), run.probe()
    for number in range(13):                                # one turn, over the end of the segment
        assert probe.send("topic", 0, [b"x" * 700], opaque=number)
    with watched(loop):
        loop.run(0)                                         # the folder is synced, all goes well
        answers(probe, 13)
        for number in range(13, 26):
            assert probe.send("topic", 0, [b"x" * 700], opaque=number)
        with turning(loop, stall):
            late = statuses(answers(probe, 1))
        late += statuses(answers(probe, 13 - len(late)))
    assert late[0] == PUT_FLUSH_TIMEOUT
    assert late == sorted(late, reverse=True)               # those behind the roll: in time, or
    assert set(late) <= {PUT_OK, PUT_FLUSH_TIMEOUT}         # late if their own sync is a slow one
    bodies = [r for r in run.records(published(run)) if not r.get("blank")]
    assert [r["queueOffset"] for r in bodies] == list(range(26))


def test_a_sync_that_fails_after_its_time_out_takes_nothing_back_and_refuses_the_rest(
    run: Run, stall: Stall,
) -> None:
    append_probe.watch(run.segment)
    try:
        loop, probe = run.writer("sync", 0, sync_timeout_ms=TIMEOUT_MS), run.probe()
        assert probe.send("topic", 0, [b"x"], opaque=0)
        loop.run(TURN_MS)
        assert statuses(probe.take()) == [PUT_OK]
        end = published(run)
        assert probe.send("topic", 0, [b"x"], opaque=1)
        append_probe.fail("sync", errno.EIO)
        append_probe.hang("sync", TIMEOUT_MS * 15)      # the watcher's thread may begin late
        with watched(loop):
            loop.run(TURN_MS)
            assert statuses(probe.take()) == [PUT_FLUSH_TIMEOUT]
            assert probe.send("topic", 0, [b"y"], opaque=2)
            loop.run(TURN_MS)
    finally:
        append_probe.unwatch()

    assert statuses(probe.take()) == [PUT_SERVICE_NOT_AVAILABLE]
    assert run.segment.log_state()["refusal"] == REFUSAL_FLUSH_FAILED
    assert published(run) == end


def test_a_thousand_races_for_the_answer_give_one_answer_each(run: Run) -> None:     # G1, G2
    """The time-out is as long as a sync takes: now the watcher is first, now the writer."""
    append_probe.watch(run.segment)
    append_probe.hang("sync", 1)
    try:
        loop, probe = run.writer("sync", 0, sync_timeout_ms=1), run.probe()
        found: list[Any] = []
        with watched(loop):
            for number in range(1000):
                assert probe.send("topic", 0, [b"x"], opaque=number)
                loop.run(0)
                found += probe.take()
    finally:
        append_probe.unwatch()

    assert [opaque for opaque, *_ in found] == list(range(1000))
    late = statuses(found).count(PUT_FLUSH_TIMEOUT)
    assert set(statuses(found)) <= {PUT_OK, PUT_FLUSH_TIMEOUT}
    assert late == loop.flush_timeouts()
    assert len([r for r in run.records(published(run)) if not r.get("blank")]) == 1000


def test_the_writer_waits_until_the_watcher_has_answered(run: Run, stall: Stall) -> None:    # G2
    """The watcher is stopped where it publishes, and the sync ends."""
    loop, probe = run.writer("sync", 0, sync_timeout_ms=TIMEOUT_MS), run.probe()
    for number in range(100):                       # the next result lies on another page
        assert probe.send("topic", 0, [b"x"], opaque=number)
    loop.run(TURN_MS)
    assert len(probe.take()) == 100
    end = published(run)
    assert probe.send("topic", 0, [b"late"], opaque=100)
    stall.syncs(True)
    stop = ResultStop(run.segment, 0)
    turn = threading.Thread(target=loop.run, args=[TURN_MS])
    with watched(loop):
        turn.start()
        try:
            assert stop.wait(30)
            stall.syncs(False)
            turn.join(0.2)
            assert turn.is_alive()
            assert published(run) == end
        finally:
            stall.syncs(False)
            stop.resume()
            turn.join()
            stop.end()
    assert statuses(probe.take()) == [PUT_FLUSH_TIMEOUT]
    assert published(run) > end


def test_a_quiet_watcher_sleeps_a_whole_time_out_and_ends_when_told(run: Run) -> None:     # G4
    loop = run.writer("sync", 0, sync_timeout_ms=3_600_000)

    def slept() -> int:
        status = Path(f"/proc/self/task/{watcher.native_id}/status").read_text(encoding="ascii")
        return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])

    with watched(loop) as watcher:
        wait_until(lambda: slept() > 0, "the watcher asleep")
        before, end = slept(), time.monotonic() + 0.2
        while time.monotonic() < end:
            loop.run(TURN_MS)
        assert slept() - before < 10


# -- a whole broker --------------------------------------------------------------------------------


def test_a_client_hears_of_a_late_disk_in_time_and_reads_the_message_later(
    stalling_broker: StallingBroker,
) -> None:
    settings = {"store.flush": "sync", "store.sync_flush_timeout_ms": 200}

    async def sends(broker: MqcoreProcess, disk: Stall) -> None:
        async with AsyncProducer(
                "PG", namesrv=broker.namesrv_addr, send_timeout=30.0) as producer:
            assert (await producer.send(Message("late", b"good"))).status is SendStatus.SEND_OK
            disk.syncs(True)
            began = time.monotonic()
            waiting = await producer.send(Message("late", b"waiting"))
            took = time.monotonic() - began
            assert waiting.status is SendStatus.FLUSH_DISK_TIMEOUT
            assert took >= 0.19
            assert waiting.message_id
            disk.syncs(False)
            unawaited = await producer.send(Message("late", b"unawaited", wait_store=False))
            assert unawaited.status is SendStatus.SEND_OK

    with stalling_broker(settings) as (broker, disk):
        asyncio.run(sends(broker, disk))
        with Asker(broker.broker_addr) as asker:

            def bodies() -> list[bytes]:
                return sorted(record.body for queue in range(4)
                              for record in asker.queue("late", queue))

            wait_until(lambda: bodies() == [b"good", b"unawaited", b"waiting"], "all messages")
        wait_until(lambda: "FLUSH_DISK_TIMEOUT" in broker.tail(), "a line in the log")


def test_with_wait_false_a_client_hears_ok_while_the_disk_hangs(
    stalling_broker: StallingBroker,
) -> None:
    async def send(broker: MqcoreProcess, disk: Stall) -> None:
        async with AsyncProducer(
                "PG", namesrv=broker.namesrv_addr, send_timeout=30.0) as producer:
            await producer.send(Message("topic", b"first"))
            disk.syncs(True)
            result = await producer.send(Message("topic", b"x", wait_store=False))
            assert result.status is SendStatus.SEND_OK

    with stalling_broker({"store.flush": "sync"}) as (broker, disk):
        asyncio.run(send(broker, disk))
