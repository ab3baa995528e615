"""A disk that refuses checksums: as if it had refused the log (A1, A4, A5), and nothing is cut."""
from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from mqcore.store.probes import append_probe
from tests.store.harness import Run, log_records
from tests.store.test_append import (
    PUT_DISK_FAILED,
    PUT_OK,
    PUT_SERVICE_NOT_AVAILABLE,
    REFUSAL_FLUSH_FAILED,
    TURN_MS,
    refusal,
    statuses,
)
from tests.store.test_checksums import SEGMENT, checksums, expected

TRIES = {errno.EIO: 3, errno.ENOSPC: 1}          # of a batch, before its requests are refused


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "store", segment_size=SEGMENT)


@pytest.fixture
def disk(run: Run) -> Iterator[ModuleType]:
    append_probe.watch(run.segment)
    yield append_probe
    append_probe.unwatch()


def send(run: Run, loop: object, probe: object, body: bytes, opaque: int) -> None:
    assert probe.send("topic", 0, [body], opaque=opaque)                # type: ignore[attr-defined]
    loop.run(TURN_MS)                                                   # type: ignore[attr-defined]


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("first_bytes", [0, 3])
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_what_has_no_checksum_is_not_stored(
    run: Run, disk: ModuleType, mode: str, error: int, first_bytes: int
) -> None:
    loop, probe = run.writer(mode, 0), run.probe()
    send(run, loop, probe, b"before", 0)
    end = run.segment.log_state()["published"]
    disk.fail("checksums write", error, first_bytes=first_bytes, times=TRIES[error])
    send(run, loop, probe, b"refused", 1)

    assert statuses(probe.take()) == [PUT_OK, PUT_SERVICE_NOT_AVAILABLE]
    assert run.segment.log_state()["published"] == end
    found = Run(run.root, segment_size=SEGMENT).recover(clean=False)
    assert found.end == end
    assert checksums(run) == expected(run, 0, end)


def test_a_full_disk_that_has_room_again_takes_messages_with_their_checksums(
    run: Run, disk: ModuleType
) -> None:
    loop, probe = run.writer("async", 0), run.probe()
    send(run, loop, probe, b"before", 0)
    disk.fail("checksums write", errno.ENOSPC)
    send(run, loop, probe, b"refused", 1)
    while refusal(run):
        loop.run(TURN_MS)
    send(run, loop, probe, b"after", 2)

    assert statuses(probe.take()) == [PUT_OK, PUT_SERVICE_NOT_AVAILABLE, PUT_OK]
    end = run.segment.log_state()["published"]
    assert checksums(run) == expected(run, 0, end)
    assert [record["body"] for record in log_records(run.log_folder, SEGMENT, end)] == [
        b"before", b"after"]


@pytest.mark.parametrize("call", ["checksums push", "checksums sync"])
def test_checksums_that_do_not_reach_the_disk_are_a_failed_flush(
    run: Run, disk: ModuleType, call: str
) -> None:
    loop, probe = run.writer("sync", 0), run.probe()
    good = 3 if call == "checksums push" else 0
    for number in range(good):
        send(run, loop, probe, b"before", number)
    end = run.segment.log_state()["published"]
    disk.fail(call, errno.EIO)
    send(run, loop, probe, b"refused", good)
    send(run, loop, probe, b"refused", good + 1)

    assert statuses(probe.take()) == [PUT_OK] * good + [
        PUT_DISK_FAILED, PUT_SERVICE_NOT_AVAILABLE]
    assert refusal(run) == REFUSAL_FLUSH_FAILED
    assert run.segment.log_state()["flushed"] == run.segment.log_state()["published"] == end


def test_checksums_that_an_async_flush_cannot_sync_are_a_failed_flush(
    run: Run, disk: ModuleType
) -> None:
    loop, probe = run.writer("async", 0), run.probe()
    send(run, loop, probe, b"x", 1)
    disk.fail("checksums sync", errno.EIO)
    loop.stop_service()
    loop.run_service()
    assert refusal(run) == REFUSAL_FLUSH_FAILED
    assert run.segment.log_state()["flushed"] == 0
