"""A store that cannot be written: writes are refused with a reason, reads go on, nobody dies."""
from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from mqcore.participants import DISPATCHER
from mqcore.wire.codes import ResponseCode
from mqcore.workers.process.stopping import EXIT_UNFINISHED
from tests.support.dice import seed_of_run
from tests.support.mounted import mounted
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until_async
from tests.workers.load import QUEUES, TOPIC, Asker, Load, Name, Promises, audit, load
from tests.workers.processes import by_role, pid_of
from tests.workers.test_end import own_settings, refused, segment_of, set_all, update_offset

SEED = seed_of_run()
DISK = 12 << 20
RESUME_S_MAX = 1.0
STOP_S = 60.0
REFUSED = int(ResponseCode.SERVICE_NOT_AVAILABLE)


def fill(folder: Path, leave: int = 0) -> Path:
    """Take all space of a file system but `leave` bytes."""
    filler = folder / "filler"
    with filler.open("ab", buffering=0) as file:
        free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize - leave
        with contextlib.suppress(OSError):
            while free > 0:
                free -= file.write(b"x" * min(free, 1 << 16))
    return filler


async def until_refused(running: Load) -> None:
    before = running.promises.refused[REFUSED]
    await running.until(lambda promises: promises.refused[REFUSED] > before + 10, "refusals")
    assert "the disk of the store is" in running.promises.remarks[REFUSED]


def can_pull(broker: MqcoreProcess) -> None:
    with Asker(broker.broker_addr) as asker:
        assert all(asker.pull(TOPIC, queue_id, 0).code == 0 for queue_id in range(QUEUES))


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["async", "sync", "transient-pool"])
def test_a_full_disk_refuses_writes_until_there_is_space_and_loses_nothing(
    tmp_path: Path, flush: str
) -> None:
    print(f"seed {SEED}")
    settings = {"store.flush": flush}

    async def fill_and_free() -> Promises:
        async with load(broker.broker_addr, SEED) as running:
            await running.acknowledged(500)
            before = by_role(broker)
            for leave in (0, 300_000, 0):
                filler = fill(disk, leave)
                await until_refused(running)
                with running.calm():
                    await asyncio.to_thread(can_pull, broker)
                    filler.unlink()
                    began = time.monotonic()
                    await running.acknowledged(1)
                assert time.monotonic() - began <= RESUME_S_MAX
                await running.acknowledged(200)
            assert by_role(broker) == before, "a process died"
            return await running.stop()

    with mounted(tmp_path / "store", f"size={DISK}") as disk:
        with mqcore_up(tmp_path, settings) as broker:
            promises = asyncio.run(fill_and_free())
            audit(broker.broker_addr, promises)
        with mqcore_up(tmp_path, settings) as broker:
            audit(broker.broker_addr, promises)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["stopped", "killed"])
def test_a_broker_starts_on_a_full_disk_and_takes_writes_when_there_is_space(
    tmp_path: Path, way: str
) -> None:
    print(f"seed {SEED}")

    async def until_full() -> Promises:
        async with load(broker.broker_addr, SEED) as running:
            await running.acknowledged(500)
            fill(disk)
            await until_refused(running)
            return await running.stop()

    async def on_the_full_disk(promised: dict[Name, tuple[int, int]]) -> None:
        async with load(broker.broker_addr, SEED, first=50, make_topic=False) as running:
            await until_refused(running)
            with running.calm():
                await asyncio.to_thread(can_pull, broker)
                (disk / "filler").unlink()
                began = time.monotonic()
                await running.acknowledged(1)
            assert time.monotonic() - began <= RESUME_S_MAX
            await running.acknowledged(200)
            audit(broker.broker_addr, await running.stop(), others=promised)

    with mounted(tmp_path / "store", f"size={DISK}") as disk:
        with mqcore_up(tmp_path) as broker:
            promised = asyncio.run(until_full()).acknowledged
            if way == "killed":
                broker.kill()
        with mqcore_up(tmp_path) as broker:
            asyncio.run(on_the_full_disk(promised))


@pytest.mark.slow
@pytest.mark.parametrize("committed", [False, True])
def test_a_stop_on_a_full_disk_is_an_error_only_if_something_is_lost(
    tmp_path: Path, committed: bool
) -> None:
    """An offset that a consumer committed when there was no space left is something."""
    async def until_full() -> Promises:
        async with load(broker.broker_addr, SEED) as running:
            await running.acknowledged(500)
            promises = await running.stop()
            fill(disk)
            return promises

    with mounted(tmp_path / "store", f"size={DISK}") as disk:
        with mqcore_up(tmp_path) as broker:
            promises = asyncio.run(until_full())
            if committed:
                with Asker(broker.broker_addr) as asker:
                    update_offset(asker, 0, 1)
            broker.process.terminate()
            assert broker.process.wait(STOP_S) == (EXIT_UNFINISHED if committed else 0)
        said = broker.output.read_text()
        assert ("are lost of offsets of 1 groups and topics" in said) == committed
        assert "Traceback" not in said
        (disk / "filler").unlink()
        with mqcore_up(tmp_path) as broker:
            audit(broker.broker_addr, promises)


@pytest.mark.slow
def test_a_dispatcher_without_space_tries_again_and_leaves_no_junk(tmp_path: Path) -> None:
    async def behind_and_full() -> Promises:
        async with load(broker.broker_addr, SEED) as running:
            await running.acknowledged(500)
            dispatcher = pid_of(broker, "dispatcher")
            os.kill(dispatcher, signal.SIGSTOP)
            await running.acknowledged(4000)
            filler = fill(disk)
            os.kill(dispatcher, signal.SIGCONT)
            segment = segment_of(broker)
            beats: set[int] = set()

            def has_tried_often() -> bool:
                if segment.log_state()["queue_error"] == errno.ENOSPC:
                    beats.add(segment.slot(DISPATCHER.slot)["beat_ms"])
                return len(beats) > 8

            with running.calm():
                await wait_until_async(has_tried_often, "the dispatcher tries again and again")
            filler.unlink()
            await running.acknowledged(200)
            assert pid_of(broker, "dispatcher") == dispatcher
            promises = await running.stop()
            await wait_until_async(
                lambda: segment.log_state()["dispatched"] == segment.log_state()["published"],
                "queues and index have caught up")
            return promises

    # an index file of 1000 entries is full soon: new ones are needed while there is no space
    with mounted(tmp_path / "store", f"size={DISK}") as disk, mqcore_up(
            tmp_path, {"store.index_entry_count": 1000, "store.index_slot_count": 100}) as broker:
        promises = asyncio.run(behind_and_full())
        stored = len(audit(broker.broker_addr, promises))
        files = [path.name for path in (disk / "index").iterdir()]
        assert len(files) <= stored // 999 + 1, files


@pytest.mark.slow
def test_a_store_that_cannot_be_written_is_named_and_nothing_is_started(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=1m") as disk:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        code, said = refused(tmp_path / "out", ["up", *set_all({
            **own_settings(tmp_path), "store.path": disk / "store"})])
    assert code == 1
    assert said.startswith(f"mqcore: the store {disk / 'store'} cannot be opened: ")
    assert "Read-only file system" in said
    assert "\n" not in said
