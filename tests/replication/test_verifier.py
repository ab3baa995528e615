"""What is not of the moment is judged before slaves get it: HM12 of master.pxd, verifier.pxd."""
from __future__ import annotations

import contextlib
import errno

import pytest

from mqcore.replication.greet import ANNOUNCE
from mqcore.replication.link_end import MasterNote
from mqcore.shm.figure_slots import FigureSlots
from tests.replication.ends import (
    SEGMENT_SIZE,
    Make,
    MasterEnd,
    Peer,
    log_bytes,
    said,
    turning,
)
from tests.support.waiting import wait_until


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
    """CK3 of verifier.pxd: one of a stock broker does, in a blank record too."""
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


def test_bytes_behind_the_end_of_the_log_are_not_judged(make: Make) -> None:
    """CK1: the writer may be in the middle of a record there."""
    master, _ = old_log(make)
    end, whole = master.end, log_bytes(master, 0)
    path = master.run.log_folder / f"{end // SEGMENT_SIZE * SEGMENT_SIZE:020d}"
    with path.open("r+b") as file:
        file.seek(end % SEGMENT_SIZE)
        file.write(b"\xff" * 100)
    with master.turning():
        peer = Peer.of(master.address)
        peer.report(ANNOUNCE, 0)
        assert peer.bytes_up_to(end) == (0, whole)
        master.send(1)
        assert peer.bytes_up_to(master.end)[0] == end
        peer.close()
    assert MasterNote.NOTE_DAMAGED not in said(master)


def test_the_loop_is_rung_when_a_part_is_judged(make: Make) -> None:
    """CK5: it sleeps for as long as nothing comes."""
    master = make(heartbeat_ms=3_600_000, housekeeping_ms=3_600_000)
    master.send(200)
    master.run.segment.set_begun(master.end)
    with turning(master.run.segment, master.slot, lambda _: master.loop.run(600_000)):
        peer = Peer.of(master.address)
        peer.report(ANNOUNCE, 0)
        try:
            assert peer.bytes_up_to(master.end) == (0, log_bytes(master, 0))
        finally:
            master.run.segment.request_stop(master.slot)
            peer.close()


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


def test_a_record_that_ends_behind_its_file_is_no_signal(make: Make) -> None:
    """CK4: it is longer than what is read at once, so that the file is mapped."""
    master = make(segment_size=1 << 22)
    master.send(1, 300_000)
    master.run.segment.set_begun(master.end)
    with (master.run.log_folder / f"{0:020d}").open("r+b") as file:
        file.truncate(200_000)
    with master.turning():
        assert what_comes(master, ANNOUNCE, 0) == b""
    assert MasterNote.NOTE_UNREADABLE in said(master)


def test_a_slave_gets_the_very_bytes_that_were_judged(make: Make) -> None:
    """CK7: they change in the file between the look at them and the send."""
    master = make(segment_size=1 << 22)
    master.send(1300, 16_000)
    master.run.segment.set_begun(master.end)
    whole = log_bytes(master, 0)
    deaf = Peer.of(master.address)
    with master.turning():
        deaf.report(ANNOUNCE, 0)
        wait_until(StandsStill(master), "a full socket")
    sent = master.loop.slaves()[0][2]
    assert master.loop.kept
    flip(master, sent + 10)
    with master.turning():
        assert deaf.bytes_up_to(sent + 11)[1][:sent + 11] == whole[:sent + 11]
        deaf.close()


class StandsStill:
    """Whether a master whose slaves do not read has sent all that their sockets take."""

    LOOKS = 20

    def __init__(self, master: MasterEnd) -> None:
        self._master = master
        self._seen: list[object] = []

    def __call__(self) -> bool:
        slaves = self._master.loop.slaves()
        self._seen = [*self._seen, (slaves, self._master.loop.checks)][-self.LOOKS:]
        return (bool(slaves) and all(position for *_, position, _ in slaves)
                and self._seen == self._seen[:1] * self.LOOKS)


def test_all_get_all_where_there_is_no_memory_to_keep_it_for_each(make: Make) -> None:
    """CK7: who has none is sent the file; what was kept for one that has left is free again."""
    master = make(segment_size=1 << 22)
    master.send(1300, 16_000)
    master.run.segment.set_begun(master.end)
    whole = log_bytes(master, 0)
    with master.turning():
        peers = [Peer.of(master.address) for _ in range(7)]
        for peer in peers:
            peer.report(ANNOUNCE, 0)
        wait_until(StandsStill(master), "full sockets")
        assert len(master.loop.slaves()) == len(peers)
        assert 0 < master.loop.kept <= 4
        for peer in peers[1:]:
            assert peer.bytes_up_to(master.end) == (0, whole)
        for peer in peers:
            peer.close()
        wait_until(lambda: not master.loop.slaves(), "all have left")
        assert master.loop.kept == 0


def test_what_was_sent_is_kept_no_longer(make: Make) -> None:
    """CK7: of a part that ends with a small frame, too, behind which nothing long comes."""
    master, _ = old_log(make, 5)
    with master.turning():
        peers = [Peer.of(master.address) for _ in range(4)]
        for peer in peers:
            peer.report(ANNOUNCE, 0)
            assert peer.bytes_up_to(master.end) == (0, log_bytes(master, 0))
        wait_until(lambda: all(row[2] == master.end for row in master.loop.slaves()), "all is sent")
        assert master.loop.kept == 0
        for peer in peers:
            peer.close()


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
