"""The checksums beside the commit log keep the rules CS1 to CS5 of store/log/checksums.pxd."""
from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from mqcore.store.crc32 import crc32c
from mqcore.store.log import owner
from mqcore.store.probes import io_recorder
from mqcore.store.recovery.errors import DamagedStoreError
from tests.store.golden import unpack
from tests.store.harness import Run, log_records

SEGMENT = 16384
TURN_MS = 1000
ENTRY = struct.Struct(">II")
MODES = ["async", "sync", "transient-pool"]


def checksums(run: Run, base: int = 0) -> list[tuple[int, int]]:
    """(end in the segment, CRC) of each entry; zeros follow."""
    raw = (run.root / "checksums" / f"{base:020d}").read_bytes()
    entries = [ENTRY.unpack_from(raw, at) for at in range(0, len(raw) - 7, ENTRY.size)]
    used = [entry for entry in entries if entry[0]]
    assert entries[len(used):] == [(0, 0)] * (len(entries) - len(used))
    return used


def expected(run: Run, base: int, end: int) -> list[tuple[int, int]]:
    data = (run.log_folder / f"{base:020d}").read_bytes()
    found = []
    for record in log_records(run.log_folder, SEGMENT, end):
        start = record["physicalOffset"] - base
        if 0 <= start < SEGMENT:
            length, stop = record["size"], start + record["size"]
            if record.get("blank"):
                length, stop = 8, SEGMENT
            found.append((stop, crc32c(data[start:start + length])))
    return found


def fill(run: Run, mode: str, end: int = 0, *, count: int = 40) -> int:
    """A whole life of a writer that stores `count` messages; the log's end."""
    loop, probe = run.writer(mode, end), run.probe()
    for number in range(count):
        assert probe.send("topic", number % 3, [bytes([number]) * (number * 17 % 900)],
                          opaque=number, properties=b"n\x01" + str(number).encode() + b"\x02")
        loop.run(TURN_MS)
    loop.finish()
    loop.stop_service()
    for name in loop.services():
        if name != "watch":
            loop.run_service(name)
    assert {result[1] for result in probe.take()} == {0}
    return int(run.segment.log_state()["published"])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def runs(root: Path) -> Run:
    return Run(root, segment_size=SEGMENT)


@pytest.mark.parametrize("mode", MODES)
def test_every_record_and_blank_has_an_entry_of_all_its_bytes(root: Path, mode: str) -> None:  # CS1
    run = runs(root)
    end = fill(run, mode)
    assert end > SEGMENT
    for base in range(0, end, SEGMENT):
        assert checksums(run, base) == expected(run, base, end)


@pytest.mark.parametrize("mode", MODES)
def test_an_entry_is_written_before_its_record_and_flushed_before_it(                    # CS2, CS3
    root: Path, mode: str
) -> None:
    io_recorder.start()
    try:
        fill(runs(root), mode)
    finally:
        events = io_recorder.stop()
    described, flushed = {0: 0}, dict[str, int]()
    for kind, path, at, data in events:
        base = int(Path(path).name) if Path(path).name.isdigit() else -1
        if "checksums" in path and kind == "write":
            assert isinstance(data, bytes)
            described[base] = max((described.get(base, 0), *(
                entry[0] for entry in ENTRY.iter_unpack(data))))
        elif "checksums" in path and kind in ("push", "sync"):
            flushed[Path(path).name] = described.get(base, 0)
        elif base >= 0 and kind == "write":
            assert isinstance(data, bytes)
            written = len(data.rstrip(b"\0"))
            assert written == 0 or at + written <= described[base]
        elif base >= 0 and kind == "sync":
            assert flushed[Path(path).name] == described[base]


def test_sync_mode_needs_no_second_sync_for_a_message(root: Path) -> None:                     # CS4
    run = runs(root)
    loop, probe = run.writer("sync", 0), run.probe()
    io_recorder.start()
    try:
        for number in range(10):
            assert probe.send("topic", 0, [b"x"], opaque=number)
            loop.run(TURN_MS)
        events = io_recorder.stop()
    finally:
        loop.stop_service()
    kinds = [("checksums" in path, kind) for kind, path, _, _ in events[-20:]]
    assert kinds[-8:] == [(True, "write"), (False, "write"), (True, "push"), (False, "sync")] * 2


def tear_properties(run: Run, end: int) -> int:
    """Zeros in the last record's properties, as if a sector of it never got to the disk."""
    last = [record for record in log_records(run.log_folder, SEGMENT, end)
            if not record.get("blank")][-1]
    base = last["physicalOffset"] // SEGMENT * SEGMENT
    with (run.log_folder / f"{base:020d}").open("r+b") as file:
        file.seek(last["physicalOffset"] - base + last["size"] - 3)
        file.write(bytes(3))
    return int(last["physicalOffset"])


@pytest.mark.parametrize("mode", MODES)
def test_a_tear_that_only_properties_show_is_cut(root: Path, mode: str) -> None:               # CS3
    run = runs(root)
    end = fill(run, mode)
    torn = tear_properties(run, end)
    again = runs(root)
    found = again.recover(clean=False)
    assert (found.end, found.torn) == (
        torn, "a record with other bytes than its checksum was made of")
    assert checksums(again, torn // SEGMENT * SEGMENT) == expected(
        again, torn // SEGMENT * SEGMENT, torn)


def test_a_record_without_its_entry_was_promised_to_nobody(root: Path) -> None:                # CS2
    run = runs(root)
    end = fill(run, "async")
    base = (end - 1) // SEGMENT * SEGMENT
    entries = checksums(run, base)
    with (root / "checksums" / f"{base:020d}").open("r+b") as file:
        file.seek(ENTRY.size * (len(entries) - 1))
        file.write(bytes(ENTRY.size))
    found = runs(root).recover(clean=False)
    assert (found.end, found.torn) == (base + entries[-2][0], "a record without its checksum")


@pytest.mark.parametrize("harm", ["emptied", "zeroed", "swapped"])
def test_in_the_boot_that_wrote_them_lost_entries_are_damage(root: Path, harm: str) -> None:   # CS2
    run = runs(root)
    fill(run, "async")
    first, second = sorted((root / "checksums").iterdir())[:2]
    if harm == "emptied":
        first.write_bytes(b"")
    elif harm == "zeroed":
        first.write_bytes(bytes(first.stat().st_size))
    else:
        kept = first.read_bytes()
        first.write_bytes(second.read_bytes())
        second.write_bytes(kept)
    before = {path.name: path.read_bytes() for path in run.log_folder.iterdir()}
    with pytest.raises(DamagedStoreError, match="and whole records as they were written"):
        runs(root).recover(clean=False, same_boot=True)
    assert {path.name: path.read_bytes() for path in run.log_folder.iterdir()} == before


@pytest.mark.parametrize("mode", MODES)
def test_in_the_boot_that_wrote_it_the_last_record_may_be_torn(root: Path, mode: str) -> None:
    run = runs(root)
    torn = tear_properties(run, fill(run, mode))
    found = runs(root).recover(clean=False, same_boot=True)
    assert (found.end, found.torn) == (
        torn, "a record with other bytes than its checksum was made of")


def test_any_flipped_bit_below_what_was_flushed_is_damage(root: Path) -> None:
    run = runs(root)
    end = fill(run, "async")
    flushed = run.segment.log_state()["flushed"]
    assert flushed == end
    record = next(iter(log_records(run.log_folder, SEGMENT, end)))
    path = run.log_folder / f"{0:020d}"
    data = bytearray(path.read_bytes())
    for at in range(record["size"]):
        data[at] ^= 1 << at % 8
        path.write_bytes(data)
        with pytest.raises(DamagedStoreError):
            runs(root).recover(clean=True)
        data[at] ^= 1 << at % 8


def lost(root: Path) -> None:
    shutil.rmtree(root / "checksums")


def emptied(root: Path) -> None:
    for path in (root / "checksums").iterdir():
        path.write_bytes(b"")


@pytest.mark.parametrize("what", [lost, emptied])
def test_where_another_broker_may_have_written_nothing_is_cut_for_want_of_entries(      # CS5
    root: Path, what: Callable[[Path], None]
) -> None:
    run = runs(root)
    end = fill(run, "async")
    what(root)
    again = runs(root)
    assert again.recover(clean=False, alone=False).end == end
    base = end // SEGMENT * SEGMENT
    assert checksums(again, base) == [(end - base, 0)]                # known: nothing is known
    later = fill(again, "async", end, count=1)
    assert checksums(again, base) == [(end - base, 0), *expected(again, base, later)[-1:]]


def test_entries_of_a_tail_that_another_broker_wrote_again_go(root: Path, tmp_path: Path, # CS5
                                                              ) -> None:
    """Two logs of the same sizes: behind our third record stand those of the other one."""
    run = runs(root)
    end = fill(run, "async", count=6)
    other = runs(tmp_path / "other")
    assert fill(other, "async", count=6) == end
    name = f"{0:020d}"
    ours, theirs = ((one.log_folder / name).read_bytes() for one in (run, other))
    entries = checksums(run)
    third = entries[2][0]
    assert ours[third:end] != theirs[third:end]             # they were stored later
    (run.log_folder / name).write_bytes(ours[:third] + theirs[third:])
    again = runs(root)
    found = again.recover(clean=False, alone=False)
    assert (found.end, found.foreign_checksums) == (end, [])
    assert checksums(again) == [*entries[:3], (end, 0)]


def test_damage_among_our_records_stays_damage_when_another_broker_ran(root: Path) -> None:    # CS5
    run = runs(root)
    fill(run, "async")
    path = run.log_folder / f"{0:020d}"
    first = next(iter(log_records(run.log_folder, SEGMENT, SEGMENT)))
    data = bytearray(path.read_bytes())
    data[first["size"] - 2] ^= 1                                  # in its properties
    path.write_bytes(data)
    with pytest.raises(DamagedStoreError, match="checksum"):
        runs(root).recover(clean=True, alone=False)


def test_a_stock_store_gets_entries_for_what_we_write(tmp_path: Path) -> None:
    root = unpack("basic", tmp_path)
    run = Run(root, segment_size=65536)
    found = run.recover(clean=True, alone=False)
    loop, probe = run.writer("async", found.end), run.probe()
    assert probe.send("topic", 0, [b"ours"], opaque=1)
    loop.run(TURN_MS)
    base = found.end // 65536 * 65536
    entries = checksums(run, base)
    assert entries[0] == (found.end - base, 0)
    assert len(entries) == 2
    assert entries[1][1]


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "lock"


def test_a_start_of_another_broker_takes_our_mark_away(lock: Path) -> None:
    assert not owner.alone(lock)
    owner.mark_alone(lock)
    assert owner.alone(lock)
    with lock.open("r+b") as file:                    # a start of ours that finds the mark
        owner.mark_opened(file.fileno())
    assert owner.alone(lock)
    with lock.open("r+b") as file:                    # as stock does it, and older ones of ours
        file.write(b"lock")
    assert not owner.alone(lock)


def test_files_of_segments_that_are_gone_go_too(root: Path) -> None:
    run = runs(root)
    end = fill(run, "async")
    (run.log_folder / f"{0:020d}").unlink()
    assert runs(root).recover(clean=False).end == end
    assert not (root / "checksums" / f"{0:020d}").exists()
    assert (root / "checksums" / f"{SEGMENT:020d}").exists()
