"""
Power cuts: every write, sync and truncate of a run is recorded; crash images of its moments are
built and recovered. What was acknowledged in sync mode is there, whatever the disk did with the
rest.

The images of one recording have each kind of event on each kind of file as the last one, with each
way in which writes survive; the other moments are the dice's. MQCORE_TEST_IMAGES sets how many
images of each recording, MQCORE_TEST_SEED the dice.
"""
from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.store.log.append_loop import sync_bytes_max
from mqcore.store.probes import io_recorder
from tests.store.harness import Run, log_records, read_entries
from tests.store.power import Disk, Event, everything, moments
from tests.support.dice import seed_of_run
from tests.support.memory_folder import memory_folder

IMAGES = int(os.environ.get("MQCORE_TEST_IMAGES", "150"))
RECORDINGS = 4                      # in sync mode
SEED = seed_of_run()
SEGMENT, FILE_ENTRIES = 16384, 40
ROUNDS = 40                         # fewer than 16 segments, which may wait for a flush
TURN_MS = 1000
DISPATCHED_OF = 5                   # one image in so many is dispatched and read as consumers do


@pytest.fixture
def memory() -> Iterator[Path]:
    with memory_folder("power") as folder:
        yield folder


def properties_of(body: bytes) -> bytes:
    """Some are as a sector that never reached the disk; all can be told from each other."""
    return b"of\x01" + body[:8].hex().encode() + b"\x02" + (
        b"zeros\x01" + bytes(700) if len(body) % 3 == 0 else bytes(len(body) % 5))


def record_run(root: Path, mode: str, dice: random.Random,
               ) -> tuple[list[Event], list[tuple[int, list[tuple[int, bytes]]]]]:
    """
    A run that stores and dispatches; returns its events, and for each round the number of events
    before which nothing of it was acknowledged, with the (position, body) that it acknowledged.
    """
    run = Run(root, segment_size=SEGMENT, file_entries=FILE_ENTRIES)
    io_recorder.start()
    rounds = []
    try:
        loop, probe = run.writer(mode, 0), run.probe()
        dispatcher = run.dispatcher(index_enabled=False)
        for number in range(ROUNDS):
            sent = {}
            for opaque in range(dice.randrange(1, 12)):
                body = dice.randbytes(dice.randrange(1, 700))
                sent[opaque] = body
                assert probe.send("topic", dice.randrange(3), [body], opaque=opaque,
                                  properties=properties_of(body))
            loop.run(TURN_MS)
            acknowledged = [(position, sent[opaque])
                            for opaque, status, _, position, _ in probe.take() if status == 0]
            assert len(acknowledged) == len(sent)
            rounds.append((io_recorder.count(), acknowledged))
            assert dispatcher.run(TURN_MS) == 0
            if number % 20 == 19:
                dispatcher.sync()
        dispatcher.close()
    finally:
        events = io_recorder.stop()
    return events, rounds


def check_image(
    image: Path, acknowledged: dict[int, bytes], *, dispatch: bool, synced: bool,
) -> None:
    """Recover an image; what was acknowledged is there, byte for byte."""
    run = Run(image, segment_size=SEGMENT, file_entries=FILE_ENTRIES)
    found = run.recover(clean=False, unsynced_bytes_max=sync_bytes_max(16384) if synced else -1)
    stored = {}
    for record in log_records(run.log_folder, SEGMENT, found.end):
        if not record.get("blank"):
            stored[record["physicalOffset"]] = record["body"]
            assert record["properties"] == properties_of(record["body"])
            assert record["topic"] == "topic"
    missing = {position for position, body in acknowledged.items()
               if stored.get(position) != body}
    assert not missing, f"acknowledged and lost: {sorted(missing)[:5]} of {len(acknowledged)}"
    if dispatch:
        check_queues(run, found.end)


def check_queues(run: Run, end: int) -> None:
    """Each queue has one entry for each of its records, in order, and none besides."""
    run.segment.publish_for_test(end)
    run.dispatch_all(end, index_enabled=False)
    wanted: dict[int, list[list[int]]] = {}
    for record in run.records(end):
        if not record.get("blank"):
            wanted.setdefault(record["queueId"], []).append(
                [record["physicalOffset"], record["size"], 0])
            assert record["queueOffset"] == len(wanted[record["queueId"]]) - 1
    assert run.queue_ranges() == {("topic", q): (0, len(e)) for q, e in wanted.items()}
    for queue, entries in wanted.items():
        assert read_entries(run.queue_folder / "topic" / str(queue), 0, len(entries),
                            FILE_ENTRIES) == entries


def images_of(events: list[Event], rounds: list[tuple[int, list[tuple[int, bytes]]]], memory: Path,
              root: Path, dice: random.Random, *, promised: bool,
              synced: bool | None = None) -> None:
    """
    Build and check IMAGES images. promised: what the rounds acknowledged has to be there; synced:
    whether recovery is told that all was synced, else as promised. Where all was, every other disk
    forgets the names that it was not told to keep.
    """
    synced = promised if synced is None else synced
    disk, done = Disk(), 0
    target = memory / "image"
    for made, (number, survive) in enumerate(moments(events, root, dice, IMAGES), 1):
        for event in events[done:number + 1]:
            disk.apply(event)
        done = number + 1
        acknowledged = {position: body for boundary, taken in rounds if boundary <= done
                        for position, body in taken} if promised else {}
        shutil.rmtree(target, ignore_errors=True)
        (target / "commitlog").mkdir(parents=True)
        disk.image(root, target, survive, forget_names=synced and made % 2 == 0)
        check_image(target, acknowledged, dispatch=made % DISPATCHED_OF == 0,
                    synced=synced)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_sync_mode_loses_nothing_acknowledged_in_a_power_cut(memory: Path) -> None:
    print(f"seed {SEED}, {RECORDINGS} times {IMAGES} images")
    dice = random.Random(SEED)
    for part in range(RECORDINGS):
        root = memory / f"run-{part}"
        events, rounds = record_run(root, "sync", dice)
        images_of(events, rounds, memory, root, dice, promised=True)
        shutil.rmtree(root)


def test_no_acknowledged_message_is_in_a_segment_whose_name_the_disk_may_forget(
    memory: Path,
) -> None:
    """At the end of every round, on a disk that forgets each name of which it was not told."""
    root = memory / "run"
    events, rounds = record_run(root, "sync", random.Random(SEED))
    disk, done = Disk(), 0
    acknowledged: dict[int, bytes] = {}
    for number, (boundary, taken) in enumerate(rounds):
        for event in events[done:boundary]:
            disk.apply(event)
        done = boundary
        acknowledged |= dict(taken)
        if number % 5 == 4:
            target = memory / f"image-{number}"
            (target / "commitlog").mkdir(parents=True)
            disk.image(root, target, everything, forget_names=True)
            check_image(target, acknowledged, dispatch=False, synced=True)
            shutil.rmtree(target)
    assert len(list((root / "commitlog").iterdir())) > 4


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_async_mode_comes_back_to_a_whole_log_after_a_power_cut(memory: Path) -> None:
    """Unflushed records may be lost; the start is never refused, and what is served is whole."""
    print(f"seed {SEED}, {IMAGES} images")
    dice = random.Random(SEED)
    root = memory / "run"
    events, rounds = record_run(root, "async", dice)
    images_of(events, rounds, memory, root, dice, promised=False)
