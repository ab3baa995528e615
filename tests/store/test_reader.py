"""The store reader walks a queue as a pull does."""
from __future__ import annotations

import os
from pathlib import Path

from mqcore.shm.retention import LogWords
from mqcore.store.reader import StoreReader
from mqcore.wire.records import Record, body_crc, encode_record
from tests.store.harness import Run

TURN_MS = 1000


def reader_of(run: Run) -> StoreReader:
    return StoreReader(run.segment, os.fsencode(run.log_folder), os.fsencode(run.queue_folder),
                       file_entries=run.file_entries, memory_bytes=1 << 20)


def test_a_walk_counts_the_records_of_a_queue_and_their_bytes(tmp_path: Path) -> None:
    run = Run(tmp_path / "store", file_entries=40)
    loop, probe = run.writer("async", 0), run.probe()
    for number in range(150):
        assert probe.send("topic", number % 3, [b"x" * number], opaque=number)
    loop.run(TURN_MS)
    run.dispatch_all(run.segment.log_state()["published"])
    reader = reader_of(run)
    sizes = [entry[1] for entry in run.entries("topic", 1, 0, 50)]

    assert reader.walk("topic", 1, 0, 1000) == (50, sum(sizes))
    assert reader.walk("topic", 1, 38, 5) == (5, sum(sizes[38:43]))      # over a file's end
    assert reader.walk("topic", 1, 50, 10) == (0, 0)
    assert reader.walk("topic", 7, 0, 10) == (0, 0)


def test_a_named_record_is_found_as_soon_as_its_entry_is_written(tmp_path: Path) -> None:    # O8
    """Its neighbours' entries were read, and remembered, before it was there."""
    run = Run(tmp_path / "store", file_entries=40)
    loop, probe = run.writer("async", 0), run.probe()
    reader = reader_of(run)
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


def test_below_the_log_s_first_position_nothing_is_read(tmp_path: Path) -> None:             # L1
    """Its segment is mapped, and its file still there."""
    run = Run(tmp_path / "store", segment_size=8192)
    loop, probe = run.writer("async", 0), run.probe()
    for number in range(30):
        assert probe.send("topic", 0, [b"x" * 900], opaque=number)
    loop.run(TURN_MS)
    run.dispatch_all(run.segment.log_state()["published"])
    reader = reader_of(run)
    assert reader.record(0) is not None
    LogWords(run.segment).raise_first(8192)
    assert reader.record(0) is None
    assert reader.record(8192) is not None


def test_an_address_is_good_until_the_next_request_however_many_segments_that_takes(       # L2
    tmp_path: Path,
) -> None:
    """The way to a record leads over 1,024 segments; the 1,025th has the place of the first."""
    one, run = Run(tmp_path / "one", segment_size=4096), Run(tmp_path / "store", segment_size=4096)
    loop, probe = one.writer("async", 0), one.probe()
    for number in range(2):
        assert probe.send("topic", 0, [b"x" * 2800], opaque=number)
    loop.run(TURN_MS)
    segment = bytearray((one.log_folder / f"{0:020d}").read_bytes())
    for number in range(1025):
        segment[20:28] = number.to_bytes(8, "big")                  # its queue offset
        segment[28:36] = (number * 4096).to_bytes(8, "big")         # its position
        (run.log_folder / f"{number * 4096:020d}").write_bytes(segment)
    last = 1024 * 4096
    end = run.recover(clean=False, alone=False).end
    assert end == last + 4096
    run.writer("async", end)
    whole = reader_of(run).record(last)
    assert whole is not None
    assert reader_of(run).named_record(last) in (None, whole)


def test_a_forged_record_in_a_body_is_no_record_before_its_queue_is_asked(                  # O7
    tmp_path: Path,
) -> None:
    """It lies in a body, and says where it lies; nothing is dispatched yet."""
    run = Run(tmp_path / "store")
    loop, probe = run.writer("async", 0), run.probe()
    assert probe.send("topic", 0, [b"honest"], opaque=0)
    loop.run(TURN_MS)
    outer = int(run.segment.log_state()["published"])
    inner = outer + 88                                  # behind the fixed fields and the length
    forged = encode_record(Record(
        topic="topic", queue_id=0, queue_offset=1, physical_offset=inner, flag=0, sys_flag=0,
        body_crc=body_crc(b"forged"), born_timestamp_ms=1, born_host=("127.0.0.1", 1),
        store_timestamp_ms=1, store_host=("127.0.0.1", 1), reconsume_times=0,
        prepared_transaction_offset=0, body=b"forged", properties={}, size=0))
    assert probe.send("topic", 0, [forged], opaque=1)
    loop.run(TURN_MS)
    reader = reader_of(run)
    assert reader.record(inner) == forged               # by the look that trusts its caller
    assert reader.named_record(outer) == reader.record(outer) is not None
    assert reader.named_record(inner) is None
