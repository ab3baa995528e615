"""The store reader walks a queue as a pull does."""
from __future__ import annotations

import os
from pathlib import Path

from mqcore.store.reader import StoreReader
from tests.store.harness import Run

TURN_MS = 1000


def test_a_walk_counts_the_records_of_a_queue_and_their_bytes(tmp_path: Path) -> None:
    run = Run(tmp_path / "store", file_entries=40)
    loop, probe = run.writer("async", 0), run.probe()
    for number in range(150):
        assert probe.send("topic", number % 3, [b"x" * number], opaque=number)
    loop.run(TURN_MS)
    run.dispatch_all(run.segment.log_state()["published"])
    reader = StoreReader(run.segment, os.fsencode(run.log_folder), os.fsencode(run.queue_folder),
                         file_entries=run.file_entries, memory_bytes=1 << 20)
    sizes = [entry[1] for entry in run.entries("topic", 1, 0, 50)]

    assert reader.walk("topic", 1, 0, 1000) == (50, sum(sizes))
    assert reader.walk("topic", 1, 38, 5) == (5, sum(sizes[38:43]))      # over a file's end
    assert reader.walk("topic", 1, 50, 10) == (0, 0)
    assert reader.walk("topic", 7, 0, 10) == (0, 0)


def test_a_named_record_is_found_as_soon_as_its_entry_is_written(tmp_path: Path) -> None:    # O8
    """Its neighbours' entries were read, and remembered, before it was there."""
    run = Run(tmp_path / "store", file_entries=40)
    loop, probe = run.writer("async", 0), run.probe()
    reader = StoreReader(run.segment, os.fsencode(run.log_folder), os.fsencode(run.queue_folder),
                         file_entries=run.file_entries, memory_bytes=1 << 20)
    dispatcher = run.dispatcher()
    positions: list[int] = []
    for number in range(100):
        positions.append(int(run.segment.log_state()["published"]))
        assert probe.send("topic", number % 2, [b"x" * number], opaque=number)
        loop.run(TURN_MS)
        assert dispatcher.run(TURN_MS) == 0
        for position in (positions[-1], positions[0], positions[number // 2]):
            record = reader.named_record(position)
            assert record is not None
            assert record == reader.record(position)
        assert reader.named_record(positions[-1] + 1) is None
    dispatcher.close()
