"""Acknowledgements that wait until others have the record: G5 to G8, G11 of replica_gate.pxd."""
from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mqcore.client import AsyncProducer, Message, SendStatus
from mqcore.layout import (
    PUT_DISK_FAILED,
    PUT_FLUSH_TIMEOUT,
    PUT_OK,
    PUT_SERVICE_NOT_AVAILABLE,
    PUT_SLAVE_NOT_AVAILABLE,
    PUT_SLAVE_TIMEOUT,
    PUT_WRITER_RESTARTED,
)
from mqcore.participants import HA_MASTER, WRITER
from mqcore.shm.figure_slots import FigureSlots
from mqcore.shm.latencies import Latencies
from mqcore.shm.replica_gate import ReplicaPen
from mqcore.store.log.append_loop import AppendLoop
from mqcore.store.probes import append_probe
from mqcore.store.probes.append_probe import AppendProbe
from mqcore.store.probes.io_stall import Stall
from tests.store.harness import Run
from tests.store.stalling import stall
from tests.support.mqcore_process import mqcore_up
from tests.support.waiting import wait_until

TURN_MS = 1000                    # ends at once when nothing waits
SHORT_MS = 60
LONG_MS = 60_000
MODES = ("async", "sync", "transient-pool")

__all__ = ["stall"]               # a fixture


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "store", segment_size=8192, file_entries=20)


@pytest.fixture
def pen(run: Run) -> ReplicaPen:
    return ReplicaPen(run.segment)


def gated(run: Run, mode: str, timeout_ms: int = LONG_MS, **changes: Any) -> AppendLoop:
    return run.writer(mode, 0, wait_replicated=True, slave_timeout_ms=timeout_ms, **changes)


def send(loop: AppendLoop, probe: AppendProbe, *numbers: int, **changes: Any) -> None:
    """A turn with a request for each number."""
    for number in numbers:
        assert probe.send("topic", 0, [b"%d" % number], opaque=number, **changes)
    loop.run(TURN_MS)


def turn(loop: AppendLoop) -> None:
    loop.run(TURN_MS)


def taken(probe: AppendProbe) -> list[tuple[int, int]]:
    """(number, status) of each result that is there now."""
    return [(number, status) for number, status, *_ in probe.take()]


def end_of(run: Run) -> int:
    return int(run.segment.log_state()["published"])


def settle(run: Run, loop: AppendLoop, mode: str) -> int:
    """The end of the log, all of it in the files."""
    if mode == "transient-pool":
        loop.stop_service()
        for service in loop.services():
            loop.run_service(service)
    return end_of(run)


# -- passing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_without_a_gate_nobody_waits_for_others(run: Run, pen: ReplicaPen, mode: str) -> None:
    loop, probe = run.writer(mode, 0), run.probe()
    pen.move(0)
    send(loop, probe, 1, 2)

    assert taken(probe) == [(1, PUT_OK), (2, PUT_OK)]


@pytest.mark.parametrize("mode", MODES)
def test_a_result_comes_when_others_have_the_whole_record(
    run: Run, pen: ReplicaPen, mode: str,
) -> None:
    loop, probe = gated(run, mode), run.probe()
    pen.move(0)
    send(loop, probe, 1)
    end = settle(run, loop, mode)
    assert end > 0
    pen.move(end - 1)
    turn(loop)
    assert taken(probe) == []
    pen.move(end)
    turn(loop)

    assert taken(probe) == [(1, PUT_OK)]
    turn(loop)
    assert taken(probe) == []
    assert pen.replicated == end


def test_others_who_are_ahead_of_the_disk_do_not_speak_for_it(run: Run, pen: ReplicaPen) -> None:
    """Sync mode: the record is flushed first, and one whose flush failed is not acknowledged."""
    loop, probe = gated(run, "sync"), run.probe()
    pen.move(1 << 40)
    append_probe.watch(run.segment)
    try:
        send(loop, probe, 1)
        assert [call for call, *_ in append_probe.events() if call == "sync"]
        assert {tail for call, tail, *_ in append_probe.events() if call == "sync"} == {0}
        assert taken(probe) == [(1, PUT_OK)]
        append_probe.fail("sync", errno.EIO)
        send(loop, probe, 2)
    finally:
        append_probe.unwatch()

    assert taken(probe) == [(2, PUT_DISK_FAILED)]


def test_readers_do_not_wait_for_others(run: Run, pen: ReplicaPen) -> None:
    loop, probe = gated(run, "sync"), run.probe()
    pen.move(0)
    send(loop, probe, 1)

    assert taken(probe) == []
    state = run.segment.log_state()
    assert state["published"] == state["flushed"] > 0


def test_turns_pass_one_after_the_other(run: Run, pen: ReplicaPen) -> None:
    loop, probe = gated(run, "async"), run.probe()
    pen.move(0)
    ends = []
    for number in range(5):
        send(loop, probe, 2 * number, 2 * number + 1)
        ends.append(end_of(run))
    for number, end in enumerate(ends):
        pen.move(end)
        turn(loop)
        assert taken(probe) == [(2 * number, PUT_OK), (2 * number + 1, PUT_OK)]


def test_more_turns_wait_than_there_are_marks(tmp_path: Path) -> None:
    run = Run(tmp_path / "store", segment_size=1 << 20)
    loop, probe, pen = gated(run, "async"), run.probe(), ReplicaPen(run.segment)
    pen.move(0)
    for number in range(1500):
        send(loop, probe, number)
    pen.move(end_of(run) - 1)
    turn(loop)
    early = taken(probe)
    pen.move(end_of(run))
    turn(loop)

    assert len(early) < 1500
    assert early + taken(probe) == [(number, PUT_OK) for number in range(1500)]


@pytest.mark.parametrize("unawaited", [{"waits": False}, {"oneway": True}],
                         ids=["WAIT=false", "one-way"])
def test_who_does_not_wait_is_kept_only_by_who_does(
    run: Run, pen: ReplicaPen, unawaited: dict[str, bool],
) -> None:
    loop, probe = gated(run, "async"), run.probe()
    pen.move(0)
    send(loop, probe, 1, **unawaited)
    assert taken(probe) == [(1, PUT_OK)]
    send(loop, probe, 2)
    first = end_of(run)
    send(loop, probe, 3, **unawaited)
    assert taken(probe) == []
    pen.move(first)
    turn(loop)

    assert taken(probe) == [(2, PUT_OK), (3, PUT_OK)]


def test_each_producer_waits_for_itself(run: Run, pen: ReplicaPen) -> None:
    loop, probe, other = gated(run, "async"), run.probe(), run.probe(producer=16)
    pen.move(0)
    send(loop, probe, 1)
    first = end_of(run)
    send(loop, other, 2)
    pen.move(first)
    turn(loop)
    assert (taken(probe), taken(other)) == ([(1, PUT_OK)], [])
    send(loop, other, 3, waits=False)
    assert taken(other) == []
    pen.move(end_of(run))
    turn(loop)

    assert taken(other) == [(2, PUT_OK), (3, PUT_OK)]


def test_a_refusal_in_its_turn_keeps_its_status(run: Run) -> None:
    loop, probe = gated(run, "async"), run.probe()
    assert probe.send("topic", 0, [b"x" * 9000], opaque=1)          # larger than a segment
    send(loop, probe, 2)
    (refused, stored) = taken(probe)

    assert refused[1] not in (PUT_OK, PUT_SLAVE_NOT_AVAILABLE)
    assert stored == (2, PUT_SLAVE_NOT_AVAILABLE)


def test_a_sleeping_writer_is_woken_by_who_replicates(run: Run, pen: ReplicaPen) -> None:
    loop, probe = gated(run, "async"), run.probe()
    pen.move(0)
    send(loop, probe, 1)
    run.segment.begin_incarnation(WRITER.slot)                      # take the stop back
    sleeping = threading.Thread(target=loop.run, args=[20_000])
    sleeping.start()
    try:
        pen.move(end_of(run))
        took_s = wait_until(lambda: taken(probe) == [(1, PUT_OK)], "the result")
    finally:
        run.segment.request_stop(WRITER.slot)
        sleeping.join()

    assert took_s < 5


# -- nobody, or too late ---------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_when_nobody_is_there_the_answer_says_so_at_once(run: Run, mode: str) -> None:
    loop, probe = gated(run, mode), run.probe()
    send(loop, probe, 1, 2)
    send(loop, probe, 3, waits=False)

    assert taken(probe) == [
        (1, PUT_SLAVE_NOT_AVAILABLE), (2, PUT_SLAVE_NOT_AVAILABLE), (3, PUT_OK)]
    assert [record["body"] for record in run.records(settle(run, loop, mode))] == [
        b"1", b"2", b"3"]
    assert FigureSlots(run.segment).total("not_replicated") == 2


def test_who_waits_goes_on_when_the_last_one_leaves(run: Run, pen: ReplicaPen) -> None:
    """As in stock: one may come back in time."""
    loop, probe = gated(run, "async"), run.probe()
    pen.move(0)
    send(loop, probe, 1)
    first = end_of(run)
    send(loop, probe, 2)
    second = end_of(run)
    pen.move(first)
    pen.leave()
    send(loop, probe, 3)
    assert not pen.present
    assert taken(probe) == [(1, PUT_OK)]
    pen.move(second)
    turn(loop)

    assert taken(probe) == [(2, PUT_OK), (3, PUT_SLAVE_NOT_AVAILABLE)]


def test_others_who_are_too_far_behind_are_as_nobody(run: Run, pen: ReplicaPen) -> None:
    loop, probe = gated(run, "async", slave_fallbehind_bytes=1), run.probe()
    pen.move(0)
    send(loop, probe, 1)
    assert taken(probe) == [(1, PUT_SLAVE_NOT_AVAILABLE)]
    loop.configure_gate(LONG_MS, 1 << 20)
    send(loop, probe, 2)
    assert taken(probe) == []
    pen.move(end_of(run))
    turn(loop)

    assert taken(probe) == [(2, PUT_OK)]


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_what_others_do_not_have_in_time_is_answered_and_stays(
    run: Run, pen: ReplicaPen, mode: str,
) -> None:
    loop, probe = gated(run, mode, SHORT_MS), run.probe()
    pen.move(0)
    began = time.monotonic()
    send(loop, probe, 1)
    assert taken(probe) == []
    run.segment.begin_incarnation(WRITER.slot)                      # take the stop back
    sleeping = threading.Thread(target=loop.run, args=[20_000])     # nobody rings
    sleeping.start()
    try:
        found: list[tuple[int, int]] = []
        wait_until(lambda: found.extend(taken(probe)) or found, "the answer")
    finally:
        run.segment.request_stop(WRITER.slot)
        sleeping.join()

    assert (time.monotonic() - began) * 1000 >= SHORT_MS
    assert found == [(1, PUT_SLAVE_TIMEOUT)]
    assert [record["body"] for record in run.records(end_of(run))] == [b"1"]
    pen.move(end_of(run))
    turn(loop)
    assert taken(probe) == []                                       # once
    send(loop, probe, 2, waits=False)
    assert taken(probe) == [(2, PUT_OK)]


def test_waits_are_counted_by_turn_and_refusals_are_none(run: Run, pen: ReplicaPen) -> None:
    loop, probe = gated(run, "async"), run.probe()
    send(loop, probe, 1)                                            # no slave is there: no wait
    assert Latencies(run.segment).total("slave_wait").count == 0
    pen.move(0)
    send(loop, probe, 2, waits=False)
    began = time.monotonic()
    send(loop, probe, 3, 4)                                         # one turn
    wait_until(lambda: time.monotonic() - began >= 0.02, "some milliseconds")
    pen.move(end_of(run))
    turn(loop)
    loop.configure_gate(0, 1 << 28)
    send(loop, probe, 5)                                            # too late: it has waited, too
    turn(loop)
    took_us = (time.monotonic() - began) * 1e6

    assert taken(probe) == [(1, PUT_SLAVE_NOT_AVAILABLE), (2, PUT_OK), (3, PUT_OK), (4, PUT_OK),
                            (5, PUT_SLAVE_TIMEOUT)]
    found = Latencies(run.segment).total("slave_wait")
    assert found.count == 2
    assert 20_000 <= found.sum_us <= took_us


def test_another_time_limit_counts_for_what_comes_then(run: Run, pen: ReplicaPen) -> None:
    loop, probe = gated(run, "async"), run.probe()
    pen.move(0)
    send(loop, probe, 1)
    first = end_of(run)
    loop.configure_gate(0, 1 << 28)
    send(loop, probe, 2)
    assert taken(probe) == []                                       # behind the first (G6)
    pen.move(first)
    turn(loop)

    assert taken(probe) == [(1, PUT_OK), (2, PUT_SLAVE_TIMEOUT)]


def test_the_end_of_the_writer_leaves_nobody_waiting(run: Run, pen: ReplicaPen) -> None:
    loop, probe = gated(run, "async"), run.probe()
    pen.move(0)
    send(loop, probe, 1)
    loop.finish()

    assert taken(probe) == [(1, PUT_SLAVE_TIMEOUT)]


# -- beside what else may happen -------------------------------------------------------------------


def test_a_writer_that_dies_leaves_the_requests_to_its_successor(
    run: Run, pen: ReplicaPen,
) -> None:
    loop, probe = gated(run, "async"), run.probe()
    pen.move(0)
    send(loop, probe, 1)
    pen.move(end_of(run))
    turn(loop)
    send(loop, probe, 2, 3)
    del loop
    after = run.writer("async", end_of(run))
    after.drop_requests()

    assert taken(probe) == [(1, PUT_OK), (2, PUT_WRITER_RESTARTED), (3, PUT_WRITER_RESTARTED)]


def test_a_failed_sync_is_not_the_fault_of_what_waits_from_before(
    run: Run, pen: ReplicaPen,
) -> None:
    loop, probe = gated(run, "sync"), run.probe()
    pen.move(0)
    send(loop, probe, 1)
    first = end_of(run)
    append_probe.watch(run.segment)
    try:
        append_probe.fail("sync", errno.EIO)
        send(loop, probe, 2)
        assert taken(probe) == []
        pen.move(first)
        turn(loop)
    finally:
        append_probe.unwatch()

    assert taken(probe) == [(1, PUT_OK), (2, PUT_DISK_FAILED)]


def test_a_failed_write_is_not_the_fault_of_what_waits_from_before(
    run: Run, pen: ReplicaPen,
) -> None:
    loop, probe = gated(run, "async"), run.probe()
    pen.move(0)
    send(loop, probe, 1)
    first = end_of(run)
    append_probe.watch(run.segment)
    try:
        append_probe.fail("write", errno.EIO, times=3)
        send(loop, probe, 2)
        pen.move(first)
        turn(loop)
    finally:
        append_probe.unwatch()

    assert taken(probe) == [(1, PUT_OK), (2, PUT_SERVICE_NOT_AVAILABLE)]


@pytest.mark.parametrize(("position", "said"), [(0, PUT_SLAVE_TIMEOUT), (1 << 40, PUT_OK)],
                         ids=["others are behind", "others have it"])
def test_a_hanging_sync_is_answered_behind_what_waits_from_before(
    run: Run, pen: ReplicaPen, stall: Stall, position: int, said: int,
) -> None:
    """G8: the watcher answers for both, the writer's thread hangs."""
    loop, probe = gated(run, "sync", SHORT_MS, sync_timeout_ms=SHORT_MS), run.probe()
    pen.move(0)
    send(loop, probe, 1)
    assert taken(probe) == []
    assert probe.send("topic", 0, [b"2"], opaque=2)
    found: list[tuple[int, int]] = []
    with service(loop, "watch"):
        stall.syncs(True)
        hanging = threading.Thread(target=loop.run, args=[TURN_MS])
        hanging.start()
        try:
            wait_until(lambda: stall.hanging() or found.extend(taken(probe)) or found, "a sync")
            pen.move(position)
            wait_until(lambda: found.extend(taken(probe)) or len(found) == 2, "both answers")
        finally:
            stall.syncs(False)
            hanging.join()
        turn(loop)

    assert found[1] == (2, PUT_FLUSH_TIMEOUT)
    assert found[0] in {(1, said), (1, PUT_SLAVE_TIMEOUT)}           # its time may be over as well
    assert taken(probe) == []


def test_of_two_failures_the_others_counts(run: Run, stall: Stall) -> None:
    """G8: the disk is late, and there was nobody besides."""
    loop, probe = gated(run, "sync", SHORT_MS, sync_timeout_ms=SHORT_MS), run.probe()
    found: list[tuple[int, int]] = []
    assert probe.send("topic", 0, [b"1"], opaque=1)
    with service(loop, "watch"):
        stall.syncs(True)
        hanging = threading.Thread(target=loop.run, args=[TURN_MS])
        hanging.start()
        try:
            wait_until(lambda: found.extend(taken(probe)) or found, "the answer")
        finally:
            stall.syncs(False)
            hanging.join()

    assert found == [(1, PUT_SLAVE_NOT_AVAILABLE)]


@contextlib.contextmanager
def service(loop: AppendLoop, name: str) -> Iterator[None]:
    thread = threading.Thread(target=loop.run_service, args=[name])
    thread.start()
    try:
        yield
    finally:
        loop.stop_service()
        thread.join()


# -- who sends it on (G11) -------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "waits", "there", "rung"), [
    ("async", True, True, True), ("async", True, False, False), ("async", False, True, False),
    ("sync", True, True, False)])
def test_who_sends_it_on_is_rung_before_what_is_waited_for_is_written(
    run: Run, pen: ReplicaPen, stall: Stall, mode: str, waits: bool, there: bool, rung: bool,
) -> None:
    """While the write hangs it has been rung, or it has not."""
    loop, probe, bell = gated(run, mode), run.probe(), run.segment.bell(HA_MASTER.slot)
    if there:
        pen.move(0)
    run.segment.arm(HA_MASTER.slot)
    assert probe.send("topic", 0, [b"1"], opaque=1, waits=waits)
    stall.writes(True)
    writing = threading.Thread(target=turn, args=[loop])
    writing.start()
    try:
        wait_until(stall.hanging, "a write that hangs")
        if rung:
            assert os.eventfd_read(bell) == 1
        else:
            with pytest.raises(BlockingIOError):
                os.eventfd_read(bell)
    finally:
        stall.writes(False)
        writing.join()


# -- a whole broker --------------------------------------------------------------------------------

GATED_BROKER = """
import sys
from mqcore.shm.replica_gate import ReplicaPen
from mqcore.workers.writer import writer

replicated = int(sys.argv.pop(1))
loop = writer.AppendLoop

def gated(segment, *rest, **more):
    if replicated >= 0:
        ReplicaPen(segment).move(replicated)
    return loop(segment, *rest, **more | {"wait_replicated": True, "slave_timeout_ms": 300})

writer.AppendLoop = gated
from mqcore.admin.cli import main
main()
"""


@pytest.fixture
def gated_broker(tmp_path: Path) -> Callable[..., Any]:
    """Starts a broker whose acknowledgements wait for others, who have the log up to a position."""

    def start(replicated: int) -> Any:
        return mqcore_up(tmp_path, {"store.sync_flush_timeout_ms": 300},
                         program=(sys.executable, "-c", GATED_BROKER, str(replicated)))

    return start


@pytest.mark.parametrize(("replicated", "status"), [
    (-1, SendStatus.SLAVE_NOT_AVAILABLE), (0, SendStatus.FLUSH_SLAVE_TIMEOUT),
    (1 << 60, SendStatus.SEND_OK)], ids=["nobody", "behind", "ahead"])
def test_producers_hear_what_became_of_their_messages(
    gated_broker: Callable[..., Any], replicated: int, status: SendStatus,
) -> None:
    async def one(namesrv: str) -> Any:
        async with AsyncProducer("gate", namesrv=namesrv) as producer:
            return await producer.send(Message("TopicTest", b"waits for others"))

    with gated_broker(replicated) as broker:
        result = asyncio.run(one(broker.namesrv_addr))

    assert result.status == status
    assert result.queue_offset == 0
    assert result.message_id
