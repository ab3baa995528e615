"""What slaves hear from a master: HM1 to HM8 and HM12 of mqcore/replication/master.pxd."""
from __future__ import annotations

import contextlib
import errno
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mqcore.replication.greet import ANNOUNCE
from mqcore.replication.master import MasterNote
from mqcore.shm.figure_slots import FigureSlots
from mqcore.shm.replica_gate import ReplicaPen
from mqcore.shm.retention import LogWords
from tests.replication.ends import SEGMENT_SIZE, MasterEnd, Peer, segments
from tests.support.cold_files import make_cold
from tests.support.waiting import wait_until

Make = Callable[..., MasterEnd]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[MasterEnd] = []

    def one(**changes: Any) -> MasterEnd:
        made.append(MasterEnd(tmp_path / f"master-{len(made)}", **changes))
        return made[-1]

    yield one
    for each in made:
        each.close()


def log_bytes(master: MasterEnd, start: int) -> bytes:
    """From `start` to the end, from the files."""
    found = segments(master.run, master.end)
    first = int(min(found))
    return b"".join(found.values())[start - first:master.end - first]


def said(master: MasterEnd) -> list[int]:
    return [kind for kind, _, _ in master.loop.notes()[0]]


# -- what is sent ----------------------------------------------------------------------------------


def test_a_stock_slave_with_an_empty_log_gets_the_last_segment(make: Make) -> None:
    master = make()
    master.send(200)
    start = master.end - master.end % SEGMENT_SIZE
    assert start > 0
    with master.turning():
        peer = Peer.of(master.address)
        peer.report(0)
        assert peer.bytes_up_to(master.end) == (start, log_bytes(master, start))
        peer.close()


def test_one_of_ours_with_an_empty_log_gets_all_of_it(make: Make) -> None:
    master = make()
    master.send(200)
    with master.turning():
        peer = Peer.of(master.address)
        peer.report(ANNOUNCE, 0)
        assert peer.bytes_up_to(master.end) == (0, log_bytes(master, 0))
        peer.close()


def test_a_slave_goes_on_from_where_it_is_and_hears_what_comes(make: Make) -> None:
    master = make()
    master.send(30)
    asked = master.end
    with master.turning():
        peer = Peer.of(master.address)
        peer.report(asked)
        for _ in range(5):
            master.send(7)
            position, data = peer.bytes_up_to(master.end)
            assert (position, data) == (asked, log_bytes(master, asked))
            asked = master.end
            peer.report(asked)
        peer.close()


def test_frames_lie_in_one_segment_and_are_as_long_as_they_may_be(make: Make) -> None:
    master = make(batch_bytes=4096)
    master.send(200)
    with master.turning():
        for ours, most in ((False, 4096), (True, SEGMENT_SIZE)):
            peer = Peer.of(master.address)
            peer.report(*[ANNOUNCE] * ours, 64)
            at, sizes = 64, []
            while at < master.end:
                position, data = peer.frame()
                assert position == at
                assert position // SEGMENT_SIZE == (position + len(data) - 1) // SEGMENT_SIZE
                sizes.append(len(data))
                at += len(data)
            assert max(sizes) == most
            peer.close()


def test_reports_may_come_in_any_pieces(make: Make) -> None:
    master = make()
    master.send(3)
    with master.turning():
        peer = Peer.of(master.address)
        for byte in b"\xff" * 8 + bytes(8):
            peer.link.send(bytes([byte]))
        assert peer.bytes_up_to(master.end)[0] == 0
        peer.close()


def test_a_silent_log_sends_heartbeats(make: Make) -> None:
    master = make(heartbeat_ms=20)
    master.send(3)
    with master.turning():
        peer = Peer.of(master.address)
        peer.report(master.end)
        assert [peer.frame() for _ in range(3)] == [(master.end, b"")] * 3
        peer.close()


def test_only_what_is_published_is_sent(make: Make) -> None:
    """HM1: what a writer has in its file and has not shown may be taken back."""
    master = make(heartbeat_ms=20)
    master.send(3)
    end = master.end
    master.run.segment.publish_for_test(end - 50)
    with master.turning():
        peer = Peer.of(master.address)
        peer.report(ANNOUNCE, 0)
        assert peer.bytes_up_to(end - 50) == (0, log_bytes(master, 0)[:end - 50])
        assert peer.frame() == (end - 50, b"")
        peer.close()


def test_a_slave_that_does_not_read_stops_nobody(make: Make) -> None:
    """HM7: the log is longer than what the two sockets between may hold."""
    master = make(segment_size=1 << 22)
    master.send(1300, 16_000)
    with master.turning():
        deaf, peer = Peer.of(master.address), Peer.of(master.address)
        deaf.report(ANNOUNCE, 0)
        wait_until(lambda: len(master.loop.slaves()) == 1, "the first")
        peer.report(ANNOUNCE, 0)
        start, data = peer.bytes_up_to(master.end)
        assert (start, len(data)) == (0, master.end)
        start, data = deaf.bytes_up_to(master.end)
        assert start + len(data) == master.end
        deaf.close()
        peer.close()


def test_little_goes_out_at_once_while_another_slave_is_far_behind(make: Make) -> None:
    """A pause for more to come would be one of who catches up, too."""
    master = make(segment_size=1 << 22)
    master.send(1300, 16_000)
    with master.turning():
        far = Peer.of(master.address)
        far.report(ANNOUNCE, 0)                  # it does not read: the rest waits here
        wait_until(lambda: len(master.loop.slaves()) == 1, "the first")
        near, end = Peer.of(master.address), master.end
        near.report(end)
        wait_until(lambda: len(master.loop.slaves()) == 2, "the other one")
        master.send(20)
        near.bytes_up_to(master.end)
        assert master.loop.gathered == 0
        far.close()
        wait_until(lambda: len(master.loop.slaves()) == 1, "the end of the first")
        master.send(1)
        near.bytes_up_to(master.end)
        wait_until(lambda: master.loop.gathered > 0, "a pause")
        near.close()


def test_a_segment_that_is_deleted_is_sent_to_its_end_and_no_further(make: Make) -> None:
    """HM5"""
    master = make()
    master.send(10)
    with master.turning():
        peer = Peer.of(master.address)
        peer.report(ANNOUNCE, 0)
        peer.bytes_up_to(master.end)
    master.send(200)
    first = master.end - master.end % SEGMENT_SIZE
    master.run.segment.set_dispatched(master.end, 0)
    LogWords(master.run.segment).raise_first(first)
    for path in master.run.log_folder.iterdir():
        if int(path.name) < first:
            path.unlink()
    with master.turning():
        assert peer.bytes_up_to(SEGMENT_SIZE)[1]
        assert peer.is_closed()
        late = Peer.of(master.address)
        late.report(SEGMENT_SIZE)
        assert late.is_closed()
    assert said(master) == [MasterNote.NOTE_SLAVE, MasterNote.NOTE_DELETED,
                            MasterNote.NOTE_BEFORE]


def test_what_lies_on_the_disk_alone_is_read_by_a_thread(make: Make) -> None:
    """HM6: a slave far behind costs the one that is near nothing."""
    master = make(segment_size=1 << 22)
    master.send(2100, 16_000)
    end = master.end
    make_cold(master.run.root)
    with master.turning():
        near, far = Peer.of(master.address), Peer.of(master.address)
        near.report(end)
        far.report(ANNOUNCE, 0)
        start, data = far.bytes_up_to(end)
        assert (start, data) == (0, log_bytes(master, 0))
        assert master.loop.checks > 0
        wait_until(lambda: gate(master) == (True, end), "the report of the near one")
        near.close()
        far.close()


# -- what is not as it was written (HM12) ----------------------------------------------------------


def old_log(make: Make, count: int = 200) -> tuple[MasterEnd, list[int]]:
    """A master whose log was there before its run; where each record begins, blank ones too."""
    master = make()
    master.send(count)
    master.run.segment.set_begun(master.end)
    found = master.run.records(master.end)
    return master, [int(record["physicalOffset"]) for record in found if not record.get("blank")]


def flip(master: MasterEnd, position: int) -> None:
    size = master.segment_size
    path = master.run.log_folder / f"{position // size * size:020d}"
    with path.open("r+b") as file:
        file.seek(position % size)
        byte = file.read(1)[0]
        file.seek(position % size)
        file.write(bytes([byte ^ 4]))


def what_comes(master: MasterEnd, *reports: int) -> bytes:
    """All that a slave is sent until its link ends, which it does."""
    peer = Peer.of(master.address)
    peer.report(*reports)
    found = b""
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            found += peer.frame()[1]
    peer.close()
    return found


@pytest.mark.parametrize("number", [0, 1, 50, 150, -1])
def test_a_damaged_record_is_sent_to_nobody_and_all_before_it_is(make: Make, number: int) -> None:
    master, records = old_log(make)
    whole, begin = log_bytes(master, 0), records[number]
    last = master.end if number == -1 else records[number + 1]
    flip(master, last - 1)                       # of its properties: its body's CRC is right
    with master.turning():
        assert what_comes(master, ANNOUNCE, 0) == whole[:begin]
        assert what_comes(master, ANNOUNCE, begin) == b""
        wait_until(lambda: FigureSlots(master.run.segment).total("refused_slaves") == 2,
                   "both links are counted")
        flip(master, last - 1)
        peer = Peer.of(master.address)
        peer.report(ANNOUNCE, begin)
        assert peer.bytes_up_to(master.end) == (begin, whole[begin:])
        peer.close()
    notes = [note for note in master.loop.notes()[0] if note[0] != MasterNote.NOTE_LEFT]
    assert [(kind, value) for kind, _, value in notes] == [
        (MasterNote.NOTE_SLAVE, 0), (MasterNote.NOTE_DAMAGED, begin),
        (MasterNote.NOTE_SLAVE, begin), (MasterNote.NOTE_DAMAGED, begin),
        (MasterNote.NOTE_SLAVE, begin)]


def test_records_that_are_longer_than_what_is_read_at_once_are_judged_too(make: Make) -> None:
    """CK4"""
    master = make(segment_size=1 << 22)
    master.send(3, 300_000)
    master.send(3, 100)
    master.send(3, 300_000)
    master.run.segment.set_begun(master.end)
    whole = log_bytes(master, 0)
    size = int.from_bytes(whole[:4], "big")
    with master.turning():
        peer = Peer.of(master.address)
        peer.report(ANNOUNCE, 0)
        assert peer.bytes_up_to(master.end) == (0, whole)
        peer.close()
        for damaged, begin in ((size - 1, 0), (len(whole) - 1, len(whole) - size)):
            flip(master, damaged)
            assert what_comes(master, ANNOUNCE, 0) == whole[:begin]
            flip(master, damaged)


def test_a_damaged_blank_record_is_known_too(make: Make) -> None:
    master, records = old_log(make)
    blank = max(position for position in records if position < SEGMENT_SIZE)
    blank += int.from_bytes(log_bytes(master, 0)[blank:blank + 4], "big")
    flip(master, blank + 3)
    with master.turning():
        assert what_comes(master, ANNOUNCE, 0) == log_bytes(master, 0)[:blank]
    assert said(master) == [MasterNote.NOTE_SLAVE, MasterNote.NOTE_DAMAGED]


@pytest.mark.parametrize("checksums", [True, False])
def test_a_slave_may_go_on_in_the_middle_of_a_record(make: Make, checksums: bool) -> None:
    """CK3 of checked.pxd: one of a stock broker does, in a blank record too."""
    master, records = old_log(make)
    if not checksums:
        for path in (master.run.root / "checksums").iterdir():
            path.unlink()
    whole = log_bytes(master, 0)
    with master.turning():
        for asked in (records[60] + 40, SEGMENT_SIZE - 1, records[-1] + 1):
            peer = Peer.of(master.address)
            peer.report(asked)
            assert peer.bytes_up_to(master.end) == (asked, whole[asked:])
            peer.close()
        flip(master, records[60] + 90)           # of its body
        assert what_comes(master, records[60] + 40) == b""
        assert what_comes(master, records[59] + 40) == whole[records[59] + 40:records[60]]
        flip(master, records[60] + 90)
        flip(master, records[60] + 2)            # of its size: nothing leads on from there
        assert what_comes(master, records[60] + 40) == b""


def test_without_checksums_what_lies_before_a_record_is_not_asked(make: Make) -> None:
    """CK3: a bad head there is nothing that a slave lacks."""
    master, records = old_log(make)
    for path in (master.run.root / "checksums").iterdir():
        path.unlink()
    begin = next(place for place in records if place > SEGMENT_SIZE + 2000)
    whole = log_bytes(master, 0)
    flip(master, SEGMENT_SIZE + 2)               # of the first one's size
    with master.turning():
        peer = Peer.of(master.address)
        peer.report(ANNOUNCE, begin)
        assert peer.bytes_up_to(master.end) == (begin, whole[begin:])
        peer.close()
        assert what_comes(master, ANNOUNCE, 0) == whole[:SEGMENT_SIZE]


def test_a_segment_that_is_shorter_than_the_log_is_no_signal(make: Make) -> None:
    """CK4"""
    master, _ = old_log(make)
    with master.turning():
        peer = Peer.of(master.address)
        peer.report(ANNOUNCE, 0)
        peer.bytes_up_to(master.end)
        with (master.run.log_folder / f"{SEGMENT_SIZE:020d}").open("r+b") as file:
            file.truncate(100)
        assert what_comes(master, ANNOUNCE, 0) == log_bytes(master, 0)[:SEGMENT_SIZE]
        peer.close()
    assert (MasterNote.NOTE_UNREADABLE, errno.EIO) in [
        (kind, value) for kind, _, value in master.loop.notes()[0]]


def test_what_is_of_the_moment_waits_for_no_check(make: Make) -> None:
    master = make()
    master.send(200)
    with master.turning():
        peer = Peer.of(master.address)
        peer.report(ANNOUNCE, 0)
        peer.bytes_up_to(master.end)
        peer.close()
    assert master.loop.checks == 0


def test_damage_far_behind_the_end_is_found_in_this_run_too(make: Make) -> None:
    master = make(segment_size=1 << 22)
    master.send(2100, 16_000)
    path = master.run.log_folder / f"{1 << 22:020d}"
    whole = path.read_bytes()
    begin = int.from_bytes(whole[:4], "big")
    size = int.from_bytes(whole[begin:begin + 4], "big")
    path.write_bytes(whole[:begin + size - 1] + bytes([whole[begin + size - 1] ^ 1])
                     + whole[begin + size:])
    with master.turning():
        found = what_comes(master, ANNOUNCE, 0)
    assert len(found) == (1 << 22) + begin
    assert said(master) == [MasterNote.NOTE_SLAVE, MasterNote.NOTE_DAMAGED]


# -- what is believed ------------------------------------------------------------------------------


def gate(master: MasterEnd) -> tuple[bool, int]:
    pen = ReplicaPen(master.run.segment)
    return pen.present, pen.replicated


def test_the_fastest_slave_moves_the_mark_which_never_goes_back(make: Make) -> None:
    """HM3"""
    master = make()
    master.send(20)
    end = master.end
    with master.turning():
        slow, fast = Peer.of(master.address), Peer.of(master.address)
        slow.report(100)
        wait_until(lambda: gate(master) == (True, 100), "the first report")
        fast.report(end)
        wait_until(lambda: gate(master) == (True, end), "the faster one's")
        fast.close()
        wait_until(lambda: len(master.loop.slaves()) == 1, "its end")
        assert gate(master) == (True, end)
        slow.close()
        wait_until(lambda: gate(master) == (False, end), "nobody is there")


def test_more_slaves_than_one_may_be_asked_for(make: Make) -> None:
    master = make(min_in_sync=2)
    master.send(20)
    end = master.end
    with master.turning():
        one, two, three = (Peer.of(master.address) for _ in range(3))
        one.report(ANNOUNCE - 1, end)
        wait_until(lambda: len(master.loop.slaves()) == 1, "a slave")
        assert gate(master) == (False, 0)
        two.report(ANNOUNCE - 2, 50)
        wait_until(lambda: gate(master) == (True, 50), "two of them")
        three.report(80)                         # a stock one, which says nothing of itself
        wait_until(lambda: gate(master) == (True, 80), "the second best")
        one.close()
        wait_until(lambda: len(master.loop.slaves()) == 2, "its end")
        assert gate(master) == (True, 80)
        three.close()
        wait_until(lambda: gate(master) == (False, 80), "too few")
        two.close()


@pytest.mark.parametrize("first_word", [(), (ANNOUNCE,), (ANNOUNCE - 7,)])
def test_two_links_of_one_slave_count_once(make: Make, first_word: tuple[int, ...]) -> None:
    """HM3: an id is one slave; without one a host is."""
    master = make(min_in_sync=2)
    master.send(20)
    end = master.end
    with master.turning():
        old, again, other = (Peer.of(master.address) for _ in range(3))
        old.report(*first_word, 80)
        again.report(*first_word, end)
        wait_until(lambda: len(master.loop.slaves()) == 2, "both links")
        assert gate(master) == (False, 0)
        wait_until(lambda: FigureSlots(master.run.segment).total("slaves") == 1, "one slave")
        other.report(ANNOUNCE - 2, 50)
        wait_until(lambda: gate(master) == (True, 50), "two slaves")
        other.bytes_up_to(end)
        other.report(end)
        wait_until(lambda: gate(master) == (True, end), "both have all")
        old.close()
        wait_until(lambda: len(master.loop.slaves()) == 2, "the old link's end")
        assert gate(master) == (True, end)
        again.close()
        wait_until(lambda: gate(master) == (False, end), "one is left")
        other.close()


@pytest.mark.parametrize(("reports", "why"), [
    ((1 << 40,), MasterNote.NOTE_BEYOND), ((-(1 << 62) - 1,), MasterNote.NOTE_NONSENSE),
    ((ANNOUNCE - 1, ANNOUNCE - 1), MasterNote.NOTE_NONSENSE),
    ((ANNOUNCE, ANNOUNCE), MasterNote.NOTE_NONSENSE), ((100, ANNOUNCE), MasterNote.NOTE_NONSENSE),
    ((100, 1 << 40), MasterNote.NOTE_BEYOND),
    ((int.from_bytes(b"GET / HT", "big"),), MasterNote.NOTE_BEYOND)])
def test_a_report_that_cannot_be_closes_its_link_and_moves_nothing(
    make: Make, reports: tuple[int, ...], why: int,
) -> None:
    """HM2"""
    master = make()
    master.send(20)
    with master.turning():
        peer = Peer.of(master.address)
        for report in reports:
            peer.report(report)
        assert peer.is_closed()
        wait_until(lambda: not gate(master)[0], "nobody is there")
    assert gate(master)[1] <= 100
    assert said(master)[-1] == why
    assert FigureSlots(master.run.segment).total("refused_slaves") == 1


def test_what_was_not_sent_yet_cannot_be_reported(make: Make) -> None:
    """HM2: the log is long enough, but this link has had little of it."""
    master = make(segment_size=1 << 22)
    master.send(1300, 16_000)
    with master.turning():
        peer = Peer.of(master.address)
        peer.report(ANNOUNCE, 0)
        wait_until(lambda: master.loop.slaves(), "it is sent something")
        peer.report(master.end)
        assert peer.is_closed()
    assert said(master) == [MasterNote.NOTE_SLAVE, MasterNote.NOTE_BEYOND]
    assert gate(master) == (False, 0)


def test_a_slave_that_says_nothing_is_gone(make: Make) -> None:
    master = make(housekeeping_ms=50)
    master.send(3)
    with master.turning():
        mute, peer = Peer.of(master.address), Peer.of(master.address)
        peer.report(0)
        assert mute.is_closed()
        assert peer.is_closed()
    assert sorted(said(master)) == [MasterNote.NOTE_SLAVE, MasterNote.NOTE_SILENT,
                                    MasterNote.NOTE_SILENT]


def test_who_reports_nothing_makes_room_for_others(make: Make) -> None:
    """HM7: places, and those of one address."""
    master = make()
    master.send(3)
    with master.turning():
        slaves = [Peer.of(master.address) for _ in range(16)]
        for slave in slaves:
            slave.report(0)
        wait_until(lambda: len(master.loop.slaves()) == 16, "all of one address")
        assert Peer.of(master.address).is_closed()
        others = [Peer(socket.create_connection(master.address, source_address=("127.0.0.2", 0)))
                  for _ in range(16)]
        one_more = Peer(socket.create_connection(master.address,
                                                 source_address=("127.0.0.3", 0)))
        one_more.report(0)
        wait_until(lambda: len(master.loop.slaves()) == 17, "a place")
        assert others[0].is_closed()
        for peer in (*slaves, *others, one_more):
            peer.close()


def test_who_floods_an_address_keeps_no_slave_of_it_out(make: Make) -> None:
    """HM7: the dead and the silent ones go, the oldest first."""
    master = make()
    master.send(3)
    with master.turning():
        silent = [Peer.of(master.address) for _ in range(16)]
        began = time.monotonic()
        for _ in range(400):
            Peer.of(master.address).close()
        slave = Peer.of(master.address)
        slave.report(0)
        assert slave.frame()[0] == 0
        assert time.monotonic() - began < 5               # 50 a second were taken once
        assert silent[0].is_closed()
        for peer in (*silent, slave):
            peer.close()


def test_figures_say_how_far_the_last_slave_is_behind(make: Make) -> None:
    master = make()
    master.send(20)
    figures = FigureSlots(master.run.segment)
    with master.turning():
        peer = Peer.of(master.address)
        peer.report(100)
        peer.bytes_up_to(master.end)
        wait_until(lambda: figures.total("sent_log_bytes") == master.end - 100, "the bytes")
        assert (figures.total("slaves"), figures.total("slave_lag_bytes")) == (
            1, master.end - 100)
        wait_until(lambda: master.run.segment.ring_bell(master.slot) or figures.total(
            "slave_lag_ms") > 0, "the time")
        peer.report(master.end)
        wait_until(lambda: figures.total("slave_lag_bytes") == 0, "all of it")
        assert figures.total("slave_lag_ms") == 0
        peer.close()
