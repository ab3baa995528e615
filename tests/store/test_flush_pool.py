"""The transient pool keeps the rules K1 to K6 of mqcore/store/log/transient_pool.pxd."""
from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mqcore.bench.control import Target, create_topic
from mqcore.bench.load import ProduceOptions, Span, produce
from mqcore.layout import (
    PUT_OK,
    PUT_POOL_EXHAUSTED,
    PUT_SERVICE_NOT_AVAILABLE,
    REFUSAL_DISK_FULL,
    REFUSAL_NONE,
)
from mqcore.store.log.append_loop import AppendLoop
from mqcore.store.probes import append_probe
from mqcore.store.probes.append_probe import AppendProbe
from mqcore.store.probes.io_stall import Stall
from mqcore.store.verify.report import DAMAGE, Report
from mqcore.store.verify.store import verify
from mqcore.wire import command as wire
from mqcore.wire.codes import RequestCode
from tests.store.harness import Run
from tests.store.stalling import StallingBroker, stall, stalling_broker
from tests.support.dice import times
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.workers.load import Asker
from tests.workers.processes import by_role, kill

SEGMENT = 65536
TURN_MS = 1000
HOUR_MS = 3_600_000
POOL_BYTES = 1 << 20
BODY = 1000
RECORD = BODY + 91 + len("topic")

__all__ = ["stall", "stalling_broker"]      # fixtures


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "store", segment_size=SEGMENT, file_entries=20)


@pytest.fixture
def disk(run: Run) -> Iterator[Any]:
    append_probe.watch(run.segment)
    yield append_probe
    append_probe.unwatch()


def writer(run: Run, **changes: int) -> AppendLoop:
    """A writer whose commits come when enough waits, or when `changes` say so."""
    values = {"commit_thorough_interval_ms": HOUR_MS, "commit_interval_ms": HOUR_MS,
              "commit_least_bytes": 4096, "pool_bytes": POOL_BYTES, "end": 0} | changes
    return run.writer("transient-pool", values.pop("end"), **values)


@contextlib.contextmanager
def served(loop: AppendLoop) -> Iterator[None]:
    """Commit and flush thread beside the block, stopped in order after it."""
    threads = [threading.Thread(target=loop.run_service, args=[name]) for name in loop.services()]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        loop.finish()
        loop.stop_service()
        for thread in threads:
            thread.join()


@contextlib.contextmanager
def hanging(stall: Stall) -> Iterator[None]:
    """A disk that takes no writes, until the block says so or ends."""
    stall.writes(True)
    try:
        yield
    finally:
        stall.writes(False)


def send(probe: AppendProbe, numbers: range, size: int = BODY) -> None:
    for number in numbers:
        assert probe.send("topic", 0, [b"%-*d" % (size, number)], opaque=number)


def turn(loop: AppendLoop, probe: AppendProbe, count: int) -> list[int]:
    """Turns until `count` requests are answered; what they were told."""
    found: list[int] = []

    def answered() -> bool:
        loop.run(0)
        found.extend(statuses(probe.take()))
        return len(found) >= count

    wait_until(answered, f"{count} answers")
    return found


def statuses(taken: list[Any]) -> list[int]:
    return [status for _, status, *_ in taken]


def published(run: Run) -> int:
    end: int = run.segment.log_state()["published"]
    return end


def numbers_in(run: Run, end: int | None = None) -> list[int]:
    end = published(run) if end is None else end
    return [int(record["body"]) for record in run.records(end) if not record.get("blank")]


def test_the_services_of_the_mode_are_commit_and_flush(run: Run) -> None:
    assert writer(run).services() == ("commit", "flush")
    with pytest.raises(ValueError, match="expected one of commit, flush"):
        writer(run).run_service("watch")


def test_a_record_is_acknowledged_before_it_is_written_and_invisible_until_then(run: Run) -> None:
    loop, probe = writer(run), run.probe()
    send(probe, range(3))
    loop.run(TURN_MS)                                       # nobody commits

    assert statuses(probe.take()) == [PUT_OK] * 3
    assert published(run) == 0
    assert loop.pool_bytes_waiting() == 3 * RECORD
    assert not any(run.log_folder.iterdir())


def test_a_stop_commits_and_flushes_everything(run: Run) -> None:
    loop, probe = writer(run), run.probe()
    with served(loop):
        send(probe, range(200))
        loop.run(TURN_MS)
        assert statuses(probe.take()) == [PUT_OK] * 200

    state = run.segment.log_state()
    assert numbers_in(run) == list(range(200))
    assert state["flushed"] == state["published"] > 3 * SEGMENT
    assert loop.pool_bytes_waiting() == 0


def test_segments_end_as_in_the_other_modes(run: Run) -> None:                       # K2
    loop, probe = writer(run), run.probe()
    with served(loop):
        for start in range(0, 6000, 60):
            wait_until(lambda: loop.pool_bytes_waiting() < POOL_BYTES // 2, "room")
            send(probe, range(start, start + 60), 100 + start % 700)
            assert turn(loop, probe, 60) == [PUT_OK] * 60

    assert numbers_in(run) == list(range(6000))
    blanks = [r for r in run.records(published(run)) if r.get("blank")]
    assert len(blanks) == published(run) // SEGMENT > 2 * POOL_BYTES // SEGMENT
    for blank in blanks:
        base = blank["physicalOffset"] // SEGMENT * SEGMENT
        data = (run.log_folder / f"{base:020d}").read_bytes()
        assert set(data[blank["physicalOffset"] - base + 8:]) <= {0}


@pytest.mark.parametrize("end_of", [10, 0])
def test_a_new_run_goes_on_where_the_log_ends(run: Run, end_of: int) -> None:
    loop, probe = writer(run), run.probe()
    with served(loop):
        send(probe, range(end_of))
        loop.run(TURN_MS)
    after = Run(run.root, SEGMENT, 20)
    found = after.recover(clean=False)
    loop, probe = writer(after, end=found.end), after.probe()
    with served(loop):
        send(probe, range(end_of, end_of + 100))
        loop.run(TURN_MS)

    assert statuses(probe.take()) == [PUT_OK] * 100
    assert numbers_in(after) == list(range(end_of + 100))


# -- when it commits (K6, store.md 7.2) ------------------------------------------------------------


def test_the_first_record_after_a_pause_is_committed_at_once(run: Run) -> None:
    loop, probe = writer(run, commit_thorough_interval_ms=1), run.probe()
    with served(loop):
        for number in range(3):
            send(probe, range(number, number + 1))
            loop.run(TURN_MS)
            wait_until(lambda: published(run) == loop.restart_position(), "the commit")
    assert numbers_in(run) == [0, 1, 2]


def test_less_than_the_least_pages_waits_for_more(run: Run) -> None:
    loop, probe = writer(run), run.probe()
    with served(loop):
        send(probe, range(4))                               # more than 4096 bytes with their heads
        loop.run(TURN_MS)
        wait_until(lambda: published(run) == 4 * RECORD, "the first commit")
        send(probe, range(4, 6))
        loop.run(TURN_MS)
        end = time.monotonic() + 0.1
        while time.monotonic() < end:
            assert loop.pool_bytes_waiting() == 2 * RECORD
        send(probe, range(6, 8))
        loop.run(TURN_MS)
        wait_until(lambda: published(run) == 8 * RECORD, "the second commit")


def test_what_waits_is_committed_after_the_thorough_interval(run: Run) -> None:
    interval_ms = 150
    loop, probe = writer(run, commit_thorough_interval_ms=interval_ms), run.probe()
    with served(loop):
        send(probe, range(1))
        loop.run(TURN_MS)
        wait_until(lambda: published(run) == RECORD, "the first commit")
        began = time.monotonic()
        send(probe, range(1, 2))
        loop.run(TURN_MS)
        wait_until(lambda: published(run) == 2 * RECORD, "the second commit")
        assert interval_ms * 0.5 < (time.monotonic() - began) * 1000


def test_a_restart_position_is_one_that_the_files_have_reached(run: Run) -> None:
    loop, probe = writer(run), run.probe()
    send(probe, range(2))
    loop.run(TURN_MS)
    assert loop.restart_position() == -1                    # nobody commits
    with served(loop):
        assert loop.restart_position() == published(run) == 2 * RECORD


# -- no room, no disk ------------------------------------------------------------------------------


def fill(loop: AppendLoop, probe: AppendProbe) -> tuple[int, list[int]]:
    """Send until something is refused: how many were taken, and what the refused were told."""
    found: list[int] = []
    for number in range(0, 4 * POOL_BYTES // RECORD, 100):
        send(probe, range(number, number + 100))
        found += turn(loop, probe, 100)
        if set(found) != {PUT_OK}:
            break
    taken = found.index(next(status for status in found if status != PUT_OK))
    return taken, found[taken:]


def test_a_pool_without_room_refuses_after_a_while_and_takes_again_later(
    run: Run, stall: Stall,
) -> None:
    stall.writes(True)
    loop, probe = writer(run), run.probe()
    with served(loop):
        taken, refused = fill(loop, probe)
        assert set(refused) == {PUT_POOL_EXHAUSTED}
        assert taken * RECORD > POOL_BYTES // 2
        assert run.segment.log_state()["refusal"] == REFUSAL_NONE
        stall.writes(False)
        wait_until(lambda: loop.pool_bytes_waiting() < RECORD * 100, "room")
        send(probe, range(taken, taken + 10))
        loop.run(TURN_MS)
        assert statuses(probe.take()) == [PUT_OK] * 10

    assert numbers_in(run) == list(range(taken + 10))
    offsets = [r["queueOffset"] for r in run.records(published(run)) if not r.get("blank")]
    assert offsets == list(range(taken + 10))


def test_a_request_waits_a_moment_for_room_before_it_is_refused(run: Run, stall: Stall) -> None:
    """By the clock of the test: a machine that stands still for as long is refused as well."""
    loop, probe = writer(run), run.probe()
    count = 8 * POOL_BYTES // RECORD
    refused: set[int] = set()
    with served(loop), hanging(stall):
        answered = sent = 0
        had_room = time.monotonic()
        while answered < count:                             # much more than the pool, without pause
            while sent < count and probe.send("topic", 0, [b"%-*d" % (BODY, sent)], opaque=sent):
                sent += 1
            began = time.monotonic()
            loop.run(0)
            taken = probe.take()
            if not taken:
                stall.writes(False)                         # the pool was full
            for number, status, *_ in taken:
                answered += 1
                if status == PUT_OK:
                    had_room = began
                    continue
                assert status == PUT_POOL_EXHAUSTED
                assert time.monotonic() - had_room > 0.19, f"{number} did not wait"
                refused.add(number)
    assert numbers_in(run) == [number for number in range(count) if number not in refused]


def test_a_full_disk_keeps_what_is_acknowledged_and_refuses_more(run: Run, disk: Any) -> None:
    loop, probe = writer(run), run.probe()
    disk.fail("write", errno.ENOSPC, times=3, first_bytes=1500)
    with served(loop):
        send(probe, range(10))
        loop.run(TURN_MS)
        wait_until(lambda: run.segment.log_state()["refusal"] == REFUSAL_DISK_FULL, "the refusal")
        send(probe, range(90, 95))
        loop.run(0)
        assert statuses(probe.take()) == [PUT_OK] * 10 + [PUT_SERVICE_NOT_AVAILABLE] * 5
        assert loop.refusal() == (REFUSAL_DISK_FULL, errno.ENOSPC)
        wait_until(lambda: run.segment.log_state()["refusal"] == REFUSAL_NONE, "space")
        send(probe, range(10, 20))
        loop.run(TURN_MS)
        assert statuses(probe.take()) == [PUT_OK] * 10

    assert numbers_in(run) == list(range(20))


def test_a_stop_on_a_full_disk_ends_and_says_what_is_lost(run: Run, disk: Any) -> None:
    loop, probe = writer(run), run.probe()
    disk.fail("write", errno.ENOSPC, times=1_000_000)
    with served(loop):
        send(probe, range(2))
        loop.run(TURN_MS)
        loop.finish()
        loop.stop_service()
        wait_until(lambda: loop.refusal() == (REFUSAL_DISK_FULL, errno.ENOSPC), "a failed write")
        assert loop.pool_bytes_waiting() == 2 * RECORD      # tried until somebody gives up
        loop.give_up()
    assert loop.pool_bytes_waiting() == 2 * RECORD
    assert published(run) == 0


def test_readers_see_nothing_of_a_commit_before_all_of_it_is_written(                  # K3
    tmp_path: Path,
) -> None:
    """It takes two writes, and the disk is full before the second."""
    run = Run(tmp_path / "store", segment_size=4 << 20)
    append_probe.watch(run.segment)
    try:
        loop, probe = writer(run, pool_bytes=4 << 20, commit_least_bytes=4 << 20), run.probe()
        append_probe.fail("write", errno.ENOSPC, after=1, times=1_000_000)
        for number in range(0, 1_200, 400):
            send(probe, range(number, number + 400))
            loop.run(TURN_MS)
        with served(loop):
            loop.finish()
            loop.stop_service()
            wait_until(lambda: loop.refusal() == (REFUSAL_DISK_FULL, errno.ENOSPC), "a full disk")
            waiting, shown = loop.pool_bytes_waiting(), published(run)
            loop.give_up()
        assert (waiting, shown) == (1_200 * RECORD, 0)
    finally:
        append_probe.unwatch()


def test_the_memory_limit_is_only_a_warning(run: Run) -> None:
    """A child without the right to lock memory runs all the same."""
    pid = os.fork()
    if pid == 0:
        import resource

        ended = 1
        with contextlib.suppress(BaseException):
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
            if os.geteuid() == 0:
                os.setuid(65534)                            # root may lock whatever the limit
            loop, probe = writer(run), run.probe()
            send(probe, range(3))
            loop.run(TURN_MS)
            ended = 0 if not loop.pool_locked and statuses(probe.take()) == [PUT_OK] * 3 else 2
        os._exit(ended)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_what_was_not_committed_when_the_writer_is_killed_is_lost_and_its_offsets_come_again(
    run: Run,
) -> None:
    loop, probe = writer(run), run.probe()
    with served(loop):
        send(probe, range(5))
        loop.run(TURN_MS)
        wait_until(lambda: published(run) == 5 * RECORD, "the commit")
    lost = writer(run, end=published(run))
    send(probe, range(5, 7))
    lost.run(TURN_MS)                                       # acknowledged, and then it dies
    assert statuses(probe.take()) == [PUT_OK] * 7
    found = run.recover_tail()
    loop = writer(run, end=found.end)
    loop.drop_requests()
    with served(loop):
        send(probe, range(7, 8))
        loop.run(TURN_MS)
    assert [tuple(result[1:4]) for result in probe.take()] == [(PUT_OK, 5, 5 * RECORD)]
    assert numbers_in(run) == [0, 1, 2, 3, 4, 7]


# -- a whole broker --------------------------------------------------------------------------------


def send_request(number: int) -> wire.Command:
    return wire.request(RequestCode.SEND_MESSAGE, {
        "producerGroup": "PG", "topic": "pooled", "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0", "bornTimestamp": "1",
        "flag": "0", "properties": "", "reconsumeTimes": "0",
    }, b"%-10000d" % number)


@pytest.mark.slow
def test_a_broker_whose_pool_is_full_says_so_and_delivers_all_it_took(
    stalling_broker: StallingBroker,
) -> None:
    settings = {"store.flush": "transient-pool", "store.pool_bytes": 1 << 20,
                "store.message_size_max_bytes": 16384, "store.commit_thorough_interval_ms": 20}
    taken: list[bytes] = []
    with stalling_broker(settings) as (broker, disk), Asker(broker.broker_addr) as asker:
        disk.writes(True)
        for number in range(1000):
            request = send_request(number)
            answer = asker.ask(request)
            if answer.code != 0:
                break
            taken.append(request.body)
        assert (answer.code, (answer.remark or "")[:15]) == (2, "[REJECTREQUEST]")
        assert len(taken) * 10_000 > 1 << 19
        assert asker.queue("pooled", 0) == []               # nothing is in the files
        said = json.loads(asker.ask(wire.request(RequestCode.GET_BROKER_RUNTIME_INFO, {})).body)
        assert said["table"]["remainHowManyDataToCommit"].endswith(("KiB", "MiB"))
        disk.writes(False)
        wait_until(lambda: len(asker.queue("pooled", 0)) == len(taken), "what was taken")
        assert asker.ask(send_request(1)).code == 0
        taken.append(send_request(1).body)
        wait_until(lambda: [r.body for r in asker.queue("pooled", 0)] == taken, "all messages")


def produced(broker: MqcoreProcess, count: int) -> int:
    """Send `count` messages at full load; how many were acknowledged."""
    create_topic(broker.broker_addr, "load", 8)
    report = produce(Target(broker.broker_addr, "load", 8), ProduceOptions(span=Span(count=count)))
    assert report.errors == 0, report.first_error
    return report.items


def damage(report: Report) -> list[str]:
    return [finding.line() for finding in report.findings if finding.severity == DAMAGE]


def test_a_stop_after_a_load_leaves_every_message_in_a_sound_store(tmp_path: Path) -> None:
    with mqcore_up(tmp_path, {"store.flush": "transient-pool"}) as broker:
        count = produced(broker, times(50_000))
        broker.stop()
    report = verify(tmp_path / "store")
    assert (damage(report), report.figures["records"]) == ([], count)


def test_a_killed_writer_comes_back_and_the_store_stays_sound(tmp_path: Path) -> None:
    """What is lost is not seen by anybody; what comes later takes its queue offsets."""
    count = times(20_000)
    with mqcore_up(tmp_path, {"store.flush": "transient-pool"}) as broker:
        produced(broker, count)
        old = kill(broker, "writer")
        wait_until(lambda: by_role(broker).get("writer", old) != old, "another writer")
        with Asker(broker.broker_addr) as asker:
            wait_until(lambda: asker.ask(send_request(1)).code == 0, "a send")
        after = produced(broker, count)
        broker.stop()
    report = verify(tmp_path / "store")
    assert damage(report) == []
    assert after < report.figures["records"] <= 2 * count + 100
