"""
What each result of an append promises of the record, against what the next start finds in the log:
"not stored" is never said of a record that is there, nor "stored" of one that is not.
"""
from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from mqcore.broker.ports import AppendStatus
from mqcore.layout import (
    PUT_CREATE_FILE_FAILED,
    PUT_DISK_FAILED,
    PUT_MESSAGE_ILLEGAL,
    PUT_OK,
    PUT_QUEUE_TABLE_FULL,
    PUT_SERVICE_NOT_AVAILABLE,
    PUT_WRITER_RESTARTED,
)
from mqcore.participants import WRITER
from mqcore.store.probes import append_probe
from mqcore.store.probes.append_probe import AppendProbe
from tests.store.harness import Run
from tests.support.waiting import wait_until

SEGMENT = 8192
TURN_MS = 1000
STORE_MD = Path(__file__).parents[2] / "docs/protocol/store.md"
NOT_KNOWN = {PUT_DISK_FAILED, PUT_WRITER_RESTARTED}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "store", segment_size=SEGMENT, file_entries=20)


@pytest.fixture
def disk(run: Run) -> Iterator[ModuleType]:
    append_probe.watch(run.segment)
    yield append_probe
    append_probe.unwatch()


def send(probe: AppendProbe, *numbers: int, size: int = 8) -> None:
    for number in numbers:
        assert probe.send("topic", 0, [b"%d:" % number + b"." * size], opaque=number)


def told(probe: AppendProbe) -> dict[int, int]:
    """The status that each number was answered with."""
    return {number: status for number, status, *_ in probe.take()}


def after_a_restart(run: Run) -> set[int]:
    """The numbers that the next start finds, after the writer was killed where it is now."""
    after = Run(run.root, SEGMENT, 20)
    found = after.recover(clean=False)
    return {int(record["body"].split(b":")[0]) for record in after.records(found.end)
            if not record.get("blank")}


def assert_true(run: Run, answers: dict[int, int]) -> set[int]:
    """Each answer holds; returns what is stored of those whose outcome is not known."""
    stored = after_a_restart(run)
    for number, status in answers.items():
        if status not in NOT_KNOWN:
            assert (number in stored) == (status == PUT_OK), (number, AppendStatus(status).name)
    return {number for number in stored if answers.get(number) in NOT_KNOWN}


def test_a_record_whose_flush_failed_may_be_stored_and_later_ones_are_not(
    run: Run, disk: ModuleType,
) -> None:
    loop, probe = run.writer("sync", 0), run.probe()
    send(probe, 0)
    loop.run(TURN_MS)
    disk.fail("sync", errno.EIO)
    send(probe, 1, 2)
    loop.run(TURN_MS)
    send(probe, 3)
    loop.run(TURN_MS)

    answers = told(probe)
    assert answers == {0: PUT_OK, 1: PUT_DISK_FAILED, 2: PUT_DISK_FAILED,
                       3: PUT_SERVICE_NOT_AVAILABLE}
    assert assert_true(run, answers) == {1, 2}


def test_of_a_turn_over_a_segments_end_those_in_the_file_may_be_stored(
    run: Run, disk: ModuleType,
) -> None:
    loop, probe = run.writer("sync", 0), run.probe()
    disk.fail("sync", errno.EIO)
    send(probe, *range(12), size=1000)
    loop.run(TURN_MS)

    answers = told(probe)
    known = [number for number in range(12) if answers[number] == PUT_SERVICE_NOT_AVAILABLE]
    assert known == list(range(known[0], 12))
    assert assert_true(run, answers) == set(range(known[0]))


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_a_write_that_failed_is_not_stored_once_it_is_wiped(
    run: Run, disk: ModuleType, mode: str,
) -> None:
    loop, probe = run.writer(mode, 0), run.probe()
    disk.fail("write", errno.ENOSPC, first_bytes=700)
    send(probe, *range(12))
    loop.run(TURN_MS)

    answers = told(probe)
    assert answers == dict.fromkeys(range(12), PUT_SERVICE_NOT_AVAILABLE)
    assert assert_true(run, answers) == set()


def test_what_has_no_place_is_not_stored(run: Run, disk: ModuleType) -> None:
    loop, probe = run.writer("async", 0), run.probe()
    send(probe, 0)
    send(probe, 1, size=SEGMENT)
    loop.run(TURN_MS)
    disk.fail("truncate", errno.EIO)
    send(probe, 2, size=SEGMENT // 2)
    send(probe, 3, size=SEGMENT // 2)
    loop.run(TURN_MS)

    answers = told(probe)
    assert answers == {0: PUT_OK, 1: PUT_MESSAGE_ILLEGAL, 2: PUT_OK, 3: PUT_CREATE_FILE_FAILED}
    assert_true(run, answers)


def test_a_queue_without_a_place_in_the_table_stores_nothing(run: Run) -> None:
    loop, probe = run.writer("async", 0), run.probe()
    for number in range(run.queues + 2):
        assert probe.send("topic", number, [b"%d:" % number], opaque=number)
    loop.run(TURN_MS)

    answers = told(probe)
    assert answers == {number: PUT_OK if number < run.queues else PUT_QUEUE_TABLE_FULL
                       for number in range(run.queues + 2)}
    assert_true(run, answers)


def test_what_a_killed_writer_had_in_flight_may_be_stored(run: Run) -> None:
    probe = run.probe()
    run.recover(clean=False)
    send(probe, 0, 1, 2)
    pid = os.fork()
    if pid == 0:
        try:
            append_probe.watch(run.segment)
            append_probe.hang("sync", 60_000)
            run.segment.begin_incarnation(WRITER.slot)
            run.writer("sync", 0).run(60_000)
        finally:
            os._exit(1)
    try:
        wait_until(lambda: any(b"2:...." in path.read_bytes() for path in
                               run.log_folder.glob("*")), "the records in the file")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert told(probe) == {}
    run.segment.begin_incarnation(WRITER.slot)
    found = run.recover_tail()
    loop = run.writer("sync", found.end)
    loop.drop_requests()

    answers = told(probe)
    assert answers == dict.fromkeys(range(3), PUT_WRITER_RESTARTED)
    assert assert_true(run, answers) == {0, 1, 2}


def test_the_documents_table_names_every_status_and_says_of_which_the_outcome_is_not_known(
) -> None:
    table = STORE_MD.read_text().split("### 7.4", 1)[1].split("###", 1)[0]
    rows = {name: [cell.strip() for cell in row[1:]]
            for row in re.findall(r"^\|(.*?)\|(.*?)\|(.*?)\|(.*?)\|$", table, re.MULTILINE)
            for name in re.findall(r"[A-Z_]{6,}", row[0])}
    assert {status.name for status in AppendStatus} <= rows.keys()
    for status in AppendStatus:
        _, stored, code = rows[status.name]
        if status in NOT_KNOWN:
            assert (stored, code) == ("perhaps", "1"), status.name
        else:
            assert stored.startswith("yes" if status.stored else "no"), status.name
