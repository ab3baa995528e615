"""Raw bytes of another log become the same log here: A7 and A8 of mqcore/store/log/raw.pxd."""
from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mqcore.layout import (
    BLANK_SIZE_MIN,
    LEADERSHIP_FOLLOWS,
    LEADERSHIP_LEADS,
    PUT_NOT_AT_END,
    PUT_OK,
    PUT_RAW_DAMAGED,
    PUT_SERVICE_NOT_AVAILABLE,
)
from mqcore.shm.leadership import LeadershipPen
from mqcore.shm.tables import QueueTable
from mqcore.store.log.append_loop import AppendLoop
from mqcore.store.probes import append_probe
from mqcore.store.probes.append_probe import AppendProbe
from tests.store.golden import manifest, unpack
from tests.store.harness import Run, log_records
from tests.support.waiting import wait_until

TURN_MS = 1000
SMALL_SEGMENT = 8192
LARGE_SEGMENT = 1 << 18
HALF, COMMIT, ROLLBACK = 4, 8, 12
QUEUE_OFFSET = 20                        # of a record, store.md 2
MODES = ("async", "sync", "transient-pool")
Piece = tuple[int, bytes]                    # log position, bytes


def pieces(folder: Path, segment_size: int, end: int, count: int = 50) -> Iterator[Piece]:
    """The log below `end` as somebody sends it who follows it: whole records, at most `count`."""
    position = start = min(int(path.name) for path in folder.iterdir())
    records = 0
    for record in log_records(folder, segment_size, end):
        blank = bool(record.get("blank"))
        position += BLANK_SIZE_MIN if blank else record["size"]
        records += 1
        if blank or records == count:
            yield start, raw_bytes(folder, segment_size, start, position)
            position += -position % segment_size if blank else 0
            start, records = position, 0
    if position > start:
        yield start, raw_bytes(folder, segment_size, start, position)


def raw_bytes(folder: Path, segment_size: int, start: int, end: int) -> bytes:
    base = start // segment_size * segment_size
    with open(folder / f"{base:020d}", "rb") as file:
        file.seek(start - base)
        return file.read(end - start)


def put(loop: AppendLoop, probe: AppendProbe, piece: Piece) -> int:
    """The status of one piece."""
    assert probe.send_raw(piece[1], piece[0], opaque=7)
    loop.run(TURN_MS)
    ((opaque, status, _, position, _),) = probe.take()
    assert opaque == 7
    if status == PUT_OK:
        assert position == piece[0]
    return int(status)


def end_of(run: Run) -> int:
    return int(run.segment.log_state()["published"])


def finish(run: Run, loop: AppendLoop) -> None:
    loop.finish()
    loop.stop_service()
    for service in loop.services():
        loop.run_service(service)


def segments(run: Run, *, checksums: bool = False) -> dict[str, bytes]:
    """The files that hold something; others are made ahead."""
    folder = run.root / "checksums" if checksums else run.log_folder
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    return {name: data.rstrip(b"\0") if checksums else data
            for name, data in found.items() if data.strip(b"\0")}


@pytest.fixture
def source(tmp_path: Path) -> Run:
    """A log of ours over several segments: batches, half messages, one that was rolled back."""
    run = Run(tmp_path / "source", segment_size=SMALL_SEGMENT)
    loop, probe = run.writer("async", 0), run.probe()
    for number in range(120):
        bodies = [bytes([number]) * (10 + number)] * (1 + number % 3)
        flag = {7: HALF, 8: COMMIT, 9: ROLLBACK}.get(number % 40, 0)
        assert probe.send("topic", number % 4, bodies if flag == 0 else bodies[:1], opaque=number,
                          sys_flag=flag, properties=b"KEYS\x01k%d\x02" % number)
    loop.run(TURN_MS)
    assert {result[1] for result in probe.take()} == {PUT_OK}
    finish(run, loop)
    return run


@pytest.fixture
def target(tmp_path: Path) -> Run:
    return Run(tmp_path / "target", segment_size=SMALL_SEGMENT)


def of(source: Run, count: int = 50) -> list[Piece]:
    return list(pieces(source.log_folder, source.segment_size, end_of(source), count))


# -- what is taken ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_the_log_of_a_stock_broker_becomes_the_same_log_with_the_same_queues(
    tmp_path: Path, mode: str,
) -> None:
    stock = Run(unpack("basic", tmp_path))
    end = stock.recover(clean=True).end
    assert end == manifest("basic")["afterRecovery"]["maxPhyOffset"]
    run = Run(tmp_path / "copy")
    loop, probe = run.writer(mode, 0), run.probe()
    for piece in pieces(stock.log_folder, stock.segment_size, end):
        assert put(loop, probe, piece) == PUT_OK
    finish(run, loop)

    assert end_of(run) == run.segment.log_state()["flushed"] == end
    assert segments(run) == segments(stock)
    run.dispatch_all(end)
    assert run.queue_ranges() == stock.queue_ranges()
    for (topic, queue_id), (least, most) in run.queue_ranges().items():
        assert run.entries(topic, queue_id, least, most) == stock.entries(
            topic, queue_id, least, most)


@pytest.mark.parametrize("count", [1, 7, 1000])
@pytest.mark.parametrize("mode", MODES)
def test_a_log_of_ours_is_copied_with_its_checksums(
    source: Run, target: Run, mode: str, count: int,
) -> None:
    loop, probe = target.writer(mode, 0), target.probe()
    for piece in of(source, count):
        assert put(loop, probe, piece) == PUT_OK
    finish(target, loop)

    assert len(segments(source)) > 3
    assert segments(target) == segments(source)
    assert segments(target, checksums=True) == segments(source, checksums=True)


def test_many_pieces_wait_together_and_are_one_write(source: Run, target: Run) -> None:
    loop, probe = target.writer("async", 0), target.probe()
    sent = of(source, 3)
    for number, (position, data) in enumerate(sent):
        assert probe.send_raw(data, position, opaque=number)
    loop.run(TURN_MS)

    assert [(result[0], result[1], result[3]) for result in probe.take()] == [
        (number, PUT_OK, position) for number, (position, _) in enumerate(sent)]
    assert segments(target) == segments(source)


def test_the_next_message_of_each_queue_goes_on_behind_the_copy(source: Run, target: Run) -> None:
    loop, probe = target.writer("async", 0), target.probe()
    for piece in of(source):
        assert put(loop, probe, piece) == PUT_OK
    target.dispatch_all(end_of(source))
    for queue_id in range(4):
        assert probe.send("topic", queue_id, [b"own"], opaque=queue_id)
    loop.run(TURN_MS)

    assert [(status, offset) for _, status, offset, _, _ in probe.take()] == [
        (PUT_OK, target.queue_ranges()["topic", queue_id][1]) for queue_id in range(4)]


def test_a_writer_that_begins_anew_goes_on_with_the_copy(source: Run, target: Run) -> None:
    sent = of(source, 5)
    loop, probe = target.writer("async", 0), target.probe()
    for piece in sent[:10]:
        assert put(loop, probe, piece) == PUT_OK
    position = target.recover_tail().end
    assert position == sent[10][0]
    loop = target.writer("async", position)
    for piece in sent[10:]:
        assert put(loop, probe, piece) == PUT_OK

    assert segments(target) == segments(source)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_store_times_that_are_shown_are_those_of_the_copied_records(
    source: Run, target: Run, mode: str,
) -> None:
    """F3: our clock is later, and the log has no record of now."""
    loop, probe = target.writer(mode, 0, flush_interval_ms=1, flush_least_bytes=0), target.probe()
    for piece in of(source):
        assert put(loop, probe, piece) == PUT_OK
    if mode == "async":
        flush = threading.Thread(target=loop.run_service)
        flush.start()
        wait_until(lambda: target.segment.log_state()["flushed"] == end_of(source), "a flush")
        loop.stop_service()
        flush.join()

    last = [record for record in source.records(end_of(source)) if not record.get("blank")][-1]
    assert target.segment.log_state()["flushed_store_time_ms"] == last["storeTimestamp"]


def test_a_copy_may_begin_at_a_later_segment(source: Run, target: Run) -> None:
    """Where the first segments are gone already."""
    loop, probe = target.writer("async", SMALL_SEGMENT), target.probe()
    target.segment.set_dispatched(SMALL_SEGMENT, 0)
    sent = [piece for piece in of(source) if piece[0] >= SMALL_SEGMENT]
    for piece in sent:
        assert put(loop, probe, piece) == PUT_OK
    target.dispatch_all(end_of(source))

    copied = segments(target)
    assert len(copied) == len(segments(source)) - 1
    assert copied.items() < segments(source).items()


def test_an_empty_log_begins_where_its_first_bytes_lie(source: Run, target: Run) -> None:    # A9
    """At the start of a segment, and nowhere else; from then on there is nothing before them."""
    loop, probe = target.writer("async", 0), target.probe()
    position, data = next(piece for piece in of(source) if piece[0] >= 8192)
    first = int.from_bytes(data[:4], "big")          # behind the first record
    assert put(loop, probe, (position + first, data[first:])) == PUT_NOT_AT_END
    assert put(loop, probe, (position, data)) == PUT_OK
    assert target.segment.log_state()["first"] == position == 8192


# -- what is not -----------------------------------------------------------------------------------


def flipped(at: int) -> Callable[[Piece], Piece]:
    return lambda piece: (piece[0], piece[1][:at] + bytes([piece[1][at] ^ 1]) + piece[1][at + 1:])


def moved(by: int) -> Callable[[Piece], Piece]:
    return lambda piece: (piece[0] + by, piece[1])


def with_offset(offset: int) -> Callable[[Piece], Piece]:
    """Of its first record's queue."""
    return lambda piece: (
        piece[0], piece[1][:QUEUE_OFFSET] + offset.to_bytes(8, "big", signed=True)
        + piece[1][QUEUE_OFFSET + 8:])


DAMAGES = {
    "cut": lambda piece: (piece[0], piece[1][:-1]),
    "cut in a head": lambda piece: (piece[0], piece[1] + piece[1][:6]),
    "a size": flipped(3),
    "a magic": flipped(5),
    "a CRC": flipped(9),
    "a position": flipped(35),
    "a body": flipped(90),
    "an offset before the first one": with_offset(-1),
    "an offset that no queue gets to": with_offset((1 << 63) - 1),
    "nothing": lambda piece: (piece[0], b""),
    "twice": lambda piece: (piece[0], 2 * piece[1]),
    "a blank that ends no segment": lambda piece: (
        piece[0], piece[1] + b"\0\0\0\x20\xcb\xd4\x31\x94"),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
def test_damaged_bytes_are_refused_and_change_nothing(
    source: Run, target: Run, damage: Callable[[Piece], Piece], mode: str,
) -> None:
    loop, probe = target.writer(mode, 0), target.probe()
    first, second, *_ = of(source, 3)
    assert put(loop, probe, first) == PUT_OK
    queues = QueueTable(target.segment).all()
    assert put(loop, probe, damage(second)) == PUT_RAW_DAMAGED

    assert QueueTable(target.segment).all() == queues
    assert put(loop, probe, second) == PUT_OK
    finish(target, loop)
    assert end_of(target) == second[0] + len(second[1])


def test_offsets_are_looked_at_one_behind_the_other(tmp_path: Path) -> None:
    """More records of a queue at once than a file of it has entries, from any first offset on."""
    source = Run(tmp_path / "source", file_entries=10)
    loop, probe = source.writer("async", 0), source.probe()
    for number in range(40):
        assert probe.send("topic", 0, [b"body"], opaque=number)
    loop.run(TURN_MS)
    finish(source, loop)
    size = end_of(source) // 40
    ((_, whole),) = of(source)

    def moved_by(first: int, later: int) -> bytes:
        records = bytearray(whole)
        for number in range(40):
            at = number * size + QUEUE_OFFSET
            records[at:at + 8] = (number + (first if number < 20 else later)).to_bytes(8, "big")
        return bytes(records)

    for name, data, status in (("as it is", whole, PUT_OK), ("a gap", moved_by(70, 80), PUT_OK),
                               ("too large a gap", moved_by(70, 81), PUT_RAW_DAMAGED),
                               ("a late beginning", moved_by(1 << 40, 1 << 40), PUT_OK)):
        run = Run(tmp_path / name, file_entries=10)
        loop, probe = run.writer("async", 0), run.probe()
        assert put(loop, probe, (0, data)) == status, name
        run.dispatch_all(end_of(run))


@pytest.mark.parametrize("by", [-1, 1, SMALL_SEGMENT])
def test_bytes_of_another_place_are_refused(source: Run, target: Run, by: int) -> None:
    loop, probe = target.writer("async", 0), target.probe()
    first, second, *_ = of(source, 3)
    assert put(loop, probe, first) == PUT_OK

    assert put(loop, probe, moved(by)(second)) == PUT_NOT_AT_END
    assert put(loop, probe, first) == PUT_NOT_AT_END
    assert put(loop, probe, second) == PUT_OK


def test_a_segment_ends_where_it_ended_there(source: Run, target: Run) -> None:
    """The blank has to follow the last record, be the last bytes, and have the size of the rest."""
    loop, probe = target.writer("async", 0), target.probe()
    sent = of(source, 1)
    at = next(number for number, (_, data) in enumerate(sent) if len(data) == BLANK_SIZE_MIN)
    for piece in sent[:at]:
        assert put(loop, probe, piece) == PUT_OK
    position, blank = sent[at]
    following = sent[at + 1]

    assert put(loop, probe, (position, blank[:3] + bytes([blank[3] ^ 1]) + blank[4:])) == (
        PUT_RAW_DAMAGED)
    assert put(loop, probe, (position, blank + following[1])) == PUT_RAW_DAMAGED
    assert put(loop, probe, (position, following[1])) == PUT_RAW_DAMAGED
    assert put(loop, probe, following) == PUT_NOT_AT_END
    assert put(loop, probe, (position, blank)) == PUT_OK
    assert put(loop, probe, following) == PUT_OK


def test_a_write_that_fails_gives_the_offsets_back_and_the_piece_may_come_again(
    source: Run, target: Run,
) -> None:
    loop, probe = target.writer("async", 0), target.probe()
    first, second, third, *_ = of(source, 3)
    append_probe.watch(target.segment)
    try:
        assert put(loop, probe, first) == PUT_OK
        append_probe.fail("write", errno.EIO, times=3)
        assert put(loop, probe, second) == PUT_SERVICE_NOT_AVAILABLE
        wait_until(lambda: put(loop, probe, second) == PUT_OK, "a disk that is looked at again")
    finally:
        append_probe.unwatch()

    assert put(loop, probe, third) == PUT_OK
    end = end_of(target)
    data = (target.log_folder / f"{0:020d}").read_bytes()[:end]
    assert data == (source.log_folder / f"{0:020d}").read_bytes()[:end]
    target.dispatch_all(end)
    assert sum(most for _, most in target.queue_ranges().values()) == sum(
        record["sysFlag"] & 12 in (0, COMMIT) for record in target.records(end))


@pytest.fixture
def large(tmp_path: Path) -> Run:
    """A log of records of many sizes, in segments that hold many."""
    run = Run(tmp_path / "large", segment_size=LARGE_SEGMENT)
    loop, probe = run.writer("async", 0), run.probe()
    for number in range(400):
        assert probe.send("topic", number % 40, [bytes([number & 255]) * (37 * number % 3000)],
                          opaque=number)
        loop.run(TURN_MS)
    assert {result[1] for result in probe.take()} == {PUT_OK}
    finish(run, loop)
    return run


def uneven(run: Run) -> list[Piece]:
    """Long pieces, which are written as they came, and short ones between them."""
    joined: list[Piece] = []
    wanted = itertools.cycle([100_000, 1, 1, 5000, 70_000, 60_000, 1])
    most = next(wanted)
    for start, data in of(run, 1):
        if (joined and joined[-1][0] + len(joined[-1][1]) == start and start % LARGE_SEGMENT
                and len(joined[-1][1]) < most):
            joined[-1] = joined[-1][0], joined[-1][1] + data
        else:
            joined.append((start, data))
            most = next(wanted)
    return joined


@pytest.mark.parametrize("mode", MODES)
def test_long_pieces_and_short_ones_in_one_turn_make_the_same_log(
    large: Run, tmp_path: Path, mode: str,
) -> None:
    target = Run(tmp_path / "target", segment_size=LARGE_SEGMENT)
    loop, probe = target.writer(mode, 0), target.probe()
    found = uneven(large)
    assert {len(data) >= 32 << 10 for _, data in found} == {True, False}
    for start, data in found:
        assert probe.send_raw(data, start, opaque=1)
    loop.run(TURN_MS)
    assert [(result[1], result[3]) for result in probe.take()] == [
        (PUT_OK, start) for start, _ in found]
    finish(target, loop)

    assert segments(target) == segments(large)
    assert segments(target, checksums=True) == segments(large, checksums=True)
    target.dispatch_all(end_of(target))
    large.dispatch_all(end_of(large))
    assert target.queue_ranges() == large.queue_ranges()


@pytest.mark.parametrize("after", range(3))
def test_of_long_pieces_in_one_turn_those_that_are_in_the_file_are_said_to_be_there(
    large: Run, tmp_path: Path, after: int,
) -> None:
    """A4: the first that is not gives its offsets back, and may come again with those behind it."""
    target = Run(tmp_path / "target", segment_size=LARGE_SEGMENT)
    loop, probe = target.writer("async", 0), target.probe()
    found = list(pieces(large.log_folder, LARGE_SEGMENT, end_of(large), 45))[:3]
    assert all(len(data) >= 32 << 10 for _, data in found)
    append_probe.watch(target.segment)
    try:
        append_probe.fail("write", errno.EIO, after=after, times=3)
        for start, data in found:
            assert probe.send_raw(data, start, opaque=7)
        loop.run(TURN_MS)
        stored = [result[1] for result in probe.take()].count(PUT_OK)
        assert stored == after
        assert end_of(target) == found[stored][0]
        for piece in found[stored:]:
            wait_until(lambda piece=piece: put(loop, probe, piece) == PUT_OK, "the disk")
    finally:
        append_probe.unwatch()
    end = end_of(target)
    assert end == found[-1][0] + len(found[-1][1])
    assert (target.log_folder / f"{0:020d}").read_bytes()[:end] == (
        large.log_folder / f"{0:020d}").read_bytes()[:end]
    target.dispatch_all(end)
    assert sum(most for _, most in target.queue_ranges().values()) == sum(
        not record.get("blank") for record in target.records(end))


def test_a_record_that_no_queue_can_have_is_stored_without_one(tmp_path: Path) -> None:
    """As recovery does it (names.pxd, O3): the log is the same, nobody sees it."""
    run = Run(tmp_path / "odd")
    record = odd_record(tmp_path)
    loop, probe = run.writer("async", 0), run.probe()

    assert put(loop, probe, (0, record)) == PUT_OK
    assert end_of(run) == len(record)
    assert QueueTable(run.segment).all() == []


def odd_record(folder: Path) -> bytes:
    """A record whose topic is two dots."""
    run = Run(folder / "made")
    loop, probe = run.writer("async", 0), run.probe()
    assert probe.send("ab", 0, [b"body"], opaque=1)
    loop.run(TURN_MS)
    found: list[dict[str, Any]] = list(run.records(end_of(run)))
    data = raw_bytes(run.log_folder, run.segment_size, 0, found[0]["size"])
    assert data.count(b"\x02ab") == 1
    return data.replace(b"\x02ab", b"\x02..")


def test_the_copy_survives_a_start_after_a_crash(source: Run, target: Run) -> None:
    loop, probe = target.writer("async", 0), target.probe()
    sent = of(source)
    for piece in sent:
        assert put(loop, probe, piece) == PUT_OK
    again = Run(target.root, segment_size=SMALL_SEGMENT)

    assert again.recover(clean=False).end == end_of(source)
    assert os.listdir(target.root / "checksums")


def test_who_is_elected_says_whose_records_are_taken(source: Run, target: Run) -> None:
    """A10, A11: record by record, whatever role the run began with."""
    pen = LeadershipPen(target.segment)
    loop, probe = target.writer("async", 0, follows_only=True), target.probe()
    first, second, *_ = of(source, 5)

    def own() -> int:
        assert probe.send("topic", 0, [b"own"], opaque=1)
        loop.run(TURN_MS)
        ((_, status, _, _, _),) = probe.take()
        return int(status)

    pen.become(LEADERSHIP_FOLLOWS, 0)
    assert (own(), put(loop, probe, first)) == (PUT_SERVICE_NOT_AVAILABLE, PUT_OK)
    pen.become(LEADERSHIP_LEADS, 2)
    assert (put(loop, probe, second), own()) == (PUT_SERVICE_NOT_AVAILABLE, PUT_OK)
    assert target.segment.appends_taken(0)
    assert probe.send("topic", 0, [b"waits"], opaque=1)
    assert not target.segment.appends_taken(0)
