"""A record that is dispatched twice has one entry, and is indexed once."""
from __future__ import annotations

import errno
from pathlib import Path

import pytest

from mqcore.store.probes import append_probe
from tests.store.harness import Run

TURN_MS = 20_000


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(tmp_path / "store")
    loop, probe = run.writer("async", 0), run.probe()
    for number in range(5):
        assert probe.send("topic", 0, [b"%d" % number], opaque=number,
                          properties=b"KEYS\x01key-%d" % number)
    loop.run(TURN_MS)
    return run


def test_a_write_of_entries_that_fails_moves_nothing_and_is_done_again(run: Run) -> None:  # D1, D2
    dispatcher = run.dispatcher()
    append_probe.watch(run.segment)
    try:
        append_probe.fail("write", errno.ENOSPC)
        assert dispatcher.run(TURN_MS) != 0
    finally:
        append_probe.unwatch()
    assert run.queue_ranges() == {}
    assert run.segment.log_state()["dispatched"] == 0

    assert dispatcher.run(TURN_MS) == 0
    assert run.queue_ranges() == {("topic", 0): (0, 5)}
    records = list(run.records(run.segment.log_state()["published"]))
    assert [position for position, _, _ in run.entries("topic", 0, 0, 5)] == [
        record["physicalOffset"] for record in records]
    dispatcher.close()


def test_no_key_is_indexed_twice(run: Run) -> None:                                      # I2
    """The newest record may have been indexed in part, those before it have been."""
    end = run.segment.log_state()["published"]
    run.dispatch_all(end)
    (index,) = run.index_folder.iterdir()
    before = index.read_bytes()
    assert int.from_bytes(before[36:40], "big") == 1 + 5          # the next entry

    run.segment.set_dispatched(0, 0)
    run.dispatch_all(end)
    assert index.read_bytes() == before


def test_the_disk_has_room_for_an_index_entry_before_it_is_written(tmp_path: Path) -> None:    # I1
    """It is written into mapped memory, where a full disk would be a signal."""
    run = Run(tmp_path / "store", index_slots=500, index_entries=200_000)
    loop, probe = run.writer("async", 0), run.probe()
    for number in range(16):
        keys = b" ".join(b"%x" % key for key in range(number << 12, (number << 12) + 3500))
        assert probe.send("topic", 0, [b"body"], opaque=0, properties=b"KEYS\x01" + keys)
        loop.run(TURN_MS)
    run.dispatch_all(run.segment.log_state()["published"])
    (index,) = run.index_folder.iterdir()
    entries = int.from_bytes(index.read_bytes()[36:40], "big")
    assert 1 << 20 < entries * 20 < 2 << 20
    assert index.stat().st_blocks * 512 >= 2 << 20
