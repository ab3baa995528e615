"""What becomes of a master's log at a slave: HS1 to HS6, HS10 of mqcore/replication/slave.pxd."""
from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.layout import PUT_NOT_AT_END, PUT_RAW_DAMAGED, PUT_SERVICE_NOT_AVAILABLE
from mqcore.participants import HA_SLAVE
from mqcore.replication.greet import ANNOUNCE
from mqcore.replication.log_bytes import OVERLAP_BYTES, last_bytes
from mqcore.replication.slave import SlaveNote
from mqcore.shm.leadership import LeadershipPen
from mqcore.shm.retention import LogWords
from mqcore.shm.text_board import MasterSign
from mqcore.store.log.folders import LogFolders
from mqcore.workers.replication import ha_slave
from tests.replication.ends import (
    HEAD,
    REPORT,
    SEGMENT_SIZE,
    MasterEnd,
    Peer,
    SlaveEnd,
    segments,
    turning,
    wait_for_end,
)
from tests.support.waiting import wait_until

LARGE_SEGMENT = 1 << 20


@pytest.fixture
def master(tmp_path: Path) -> Iterator[MasterEnd]:
    made = MasterEnd(tmp_path / "master")
    yield made
    made.close()


@pytest.fixture
def by_hand() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def accepted(listener: socket.socket, slave: SlaveEnd) -> Peer:
    """A link of the slave to a master that the test is."""
    slave.link(listener.getsockname())
    slave.run.segment.ring_bell(HA_SLAVE.slot)
    link, _ = listener.accept()
    return Peer(link)


def asked(peer: Peer) -> tuple[int, ...]:
    """What a slave says first."""
    return REPORT.unpack(peer.exactly(8)) + REPORT.unpack(peer.exactly(8))


def reported(peer: Peer, position: int) -> None:
    """Waits until the slave has said it."""
    while REPORT.unpack(peer.exactly(8)) != (position,):
        pass


def log_of(master: MasterEnd) -> bytes:
    return b"".join(segments(master.run, master.end).values())[:master.end]


def queues_are_alike(slave: SlaveEnd, master: MasterEnd) -> None:
    master.run.dispatch_all(master.end)
    slave.run.dispatch_all(slave.end)
    assert slave.run.queue_ranges() == master.run.queue_ranges()
    for (topic, queue_id), (least, most) in slave.run.queue_ranges().items():
        assert slave.run.entries(topic, queue_id, least, most) == master.run.entries(
            topic, queue_id, least, most)


# -- between ours ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_a_slave_has_the_same_files_and_queues(
    tmp_path: Path, master: MasterEnd, mode: str,
) -> None:
    master.send(200)
    slave = SlaveEnd(tmp_path / "slave", mode=mode)
    with master.turning(), slave.turning():
        slave.link(master.address)
        slave.run.segment.ring_bell(HA_SLAVE.slot)
        wait_for_end(slave, master.end)
        master.send(50, 300)
        wait_for_end(slave, master.end)
        wait_until(lambda: master.loop.slaves()[0][3] == master.end, "the report")
    assert segments(slave.run, slave.end) == segments(master.run, master.end)
    queues_are_alike(slave, master)


def test_a_slave_that_was_away_goes_on(tmp_path: Path, master: MasterEnd) -> None:
    master.send(60)
    slave = SlaveEnd(tmp_path / "slave")
    for _ in range(4):
        with master.turning(), slave.turning():
            slave.link(master.address)
            slave.run.segment.ring_bell(HA_SLAVE.slot)
            wait_for_end(slave, master.end)
            slave.loop.unlink()
        master.send(40)
    with master.turning(), slave.turning():
        slave.link(master.address)
        slave.run.segment.ring_bell(HA_SLAVE.slot)
        wait_for_end(slave, master.end)
    assert segments(slave.run, slave.end) == segments(master.run, master.end)


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_an_empty_log_begins_where_the_master_does(
    tmp_path: Path, master: MasterEnd, mode: str,
) -> None:
    """A9 of raw.pxd: queues begin at other offsets than 0, and a restart finds all of it."""
    master.send(200)
    first = 2 * SEGMENT_SIZE
    master.run.dispatch_all(master.end)
    master.run.segment.set_dispatched(master.end, 0)
    LogWords(master.run.segment).raise_first(first)
    for path in list(master.run.log_folder.iterdir()):
        if int(path.name) < first:
            path.unlink()
    slave = SlaveEnd(tmp_path / "slave", mode=mode)
    with master.turning(), slave.turning():
        slave.link(master.address)
        slave.run.segment.ring_bell(HA_SLAVE.slot)
        wait_for_end(slave, master.end)
        slave.loop.unlink()
    assert slave.run.segment.log_state()["first"] == first
    assert segments(slave.run, slave.end) == segments(master.run, master.end)
    slave.run.dispatch_all(slave.end)
    ranges = slave.run.queue_ranges()
    whole = master.run.queue_ranges()
    assert {name: most for name, (_, most) in ranges.items()} == {
        name: most for name, (_, most) in whole.items()}
    assert min(least for least, _ in ranges.values()) > 0
    for (topic, queue_id), (least, most) in ranges.items():
        assert slave.run.entries(topic, queue_id, least, most) == master.run.entries(
            topic, queue_id, least, most)
    slave.writer.finish()

    again = SlaveEnd(tmp_path / "slave", mode=mode)
    assert again.end == slave.end
    assert again.run.segment.log_state()["first"] == first
    master.send(30)
    with master.turning(), again.turning():
        again.link(master.address)
        again.run.segment.ring_bell(HA_SLAVE.slot)
        wait_for_end(again, master.end)
    assert segments(again.run, again.end) == segments(master.run, master.end)


# -- frames by hand --------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 7, 100, 4000, 1 << 20])
def test_bytes_may_come_in_any_frames_and_pieces(
    tmp_path: Path, master: MasterEnd, by_hand: socket.socket, cut: int,
) -> None:
    """HS3: records cut in the middle; what is not whole is not in the log."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    dice = random.Random(seed)
    master.send(200 if cut > 1 else 20)
    data, end = log_of(master), master.end
    slave = SlaveEnd(tmp_path / "slave")
    with slave.turning():
        peer = accepted(by_hand, slave)
        assert asked(peer) == (ANNOUNCE, 0)
        at = 0
        while at < end:
            size = dice.randint(0, cut)
            part = data[at:min(at + size, end)]
            peer.send(at, part)
            at += len(part)
        reported(peer, end)
        peer.close()
    assert slave.end == end
    assert segments(slave.run, slave.end) == segments(master.run, master.end)


@pytest.mark.parametrize("cut", [0, 1000, 300_000, 1 << 30])
def test_records_may_be_larger_than_what_is_read_at_once(
    tmp_path: Path, by_hand: socket.socket, cut: int,
) -> None:
    """HS4: small ones before and behind, segments that end anywhere; 0: frames of a real master."""
    master = MasterEnd(tmp_path / "master", segment_size=LARGE_SEGMENT)
    for size in (100, 300_000, 700, 262_000, 262_144, 400_000, 40_000, 100):
        master.send(3, size)
    assert master.end > 3 * LARGE_SEGMENT
    slave = SlaveEnd(tmp_path / "slave", segment_size=LARGE_SEGMENT)
    with slave.turning(), contextlib.ExitStack() as stack:
        if cut == 0:
            stack.enter_context(master.turning())
            slave.link(master.address)
            slave.run.segment.ring_bell(HA_SLAVE.slot)
        else:
            peer = accepted(by_hand, slave)
            assert asked(peer) == (ANNOUNCE, 0)
            data = log_of(master)
            for at in range(0, len(data), cut):
                peer.send(at, data[at:at + cut])
            reported(peer, master.end)
        wait_for_end(slave, master.end)
    assert segments(slave.run, slave.end) == segments(master.run, master.end)
    queues_are_alike(slave, master)
    master.close()


def test_a_link_that_is_cut_in_a_record_costs_nothing(
    tmp_path: Path, master: MasterEnd, by_hand: socket.socket,
) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    dice = random.Random(seed)
    master.send(200)
    data, end = log_of(master), master.end
    slave = SlaveEnd(tmp_path / "slave")
    with slave.turning():
        while slave.end < end:
            wait_until(lambda: not slave.loop.linked and slave.loop.ready, "the results")
            peer = accepted(by_hand, slave)
            _, start = asked(peer)
            assert start == slave.end
            size = min(dice.randint(1, 9000), end - start)
            whole = peer.link
            whole.sendall(b"" if dice.random() < 0.2 else
                          (start.to_bytes(8, "big") + (end - start).to_bytes(4, "big")
                           + data[start:start + size]))
            peer.close()
            wait_until(lambda: not slave.loop.linked, "the end of the link")
    assert segments(slave.run, slave.end) == segments(master.run, master.end)


@pytest.mark.parametrize(("position", "data", "why"), [
    (ANNOUNCE, b"", SlaveNote.NOTE_BAD_FRAME), (ANNOUNCE, bytes(27), SlaveNote.NOTE_BAD_FRAME),
    (5, b"", SlaveNote.NOTE_OTHER_PLACE), (-SEGMENT_SIZE, b"", SlaveNote.NOTE_OTHER_PLACE),
    ((1 << 63) - SEGMENT_SIZE, b"", SlaveNote.NOTE_OTHER_PLACE),
    (0, bytes(100), SlaveNote.NOTE_BAD_RECORD), (0, b"\x7f" * 100, SlaveNote.NOTE_BAD_RECORD),
    (SEGMENT_SIZE, b"\x00\x00\x01\x00\xda\xa3\x20\xa7" + bytes(248), SlaveNote.NOTE_REFUSED)])
def test_what_is_no_log_ends_the_link_and_changes_nothing(
    tmp_path: Path, by_hand: socket.socket, position: int, data: bytes, why: int,
) -> None:
    """HS2, HS5"""
    slave = SlaveEnd(tmp_path / "slave")
    with slave.turning():
        peer = accepted(by_hand, slave)
        assert asked(peer) == (ANNOUNCE, 0)
        peer.send(position, data)
        assert peer.is_closed()
    notes = slave.loop.notes()
    assert [kind for kind, _ in notes] == [SlaveNote.NOTE_LINKED, why]
    if why == SlaveNote.NOTE_REFUSED:
        assert notes[1][1] == PUT_RAW_DAMAGED
    assert slave.end == 0
    assert segments(slave.run, 1 << 40) == {}


def test_a_stream_with_wrong_bytes_leaves_a_log_of_whole_records(
    tmp_path: Path, master: MasterEnd, by_hand: socket.socket,
) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    dice = random.Random(seed)
    master.send(100)
    data, end = log_of(master), master.end
    slave = SlaveEnd(tmp_path / "slave")
    with slave.turning():
        for _ in range(40):
            wait_until(lambda: not slave.loop.linked and slave.loop.ready, "the results")
            peer = accepted(by_hand, slave)
            _, start = asked(peer)
            size = min(dice.randint(0, 2000), end - start)
            stream = bytearray(HEAD.pack(start, size) + data[start:start + size])
            for _ in range(dice.randint(0, 3)):
                stream[dice.randrange(len(stream))] = dice.randrange(256)
            with contextlib.suppress(ConnectionError):
                peer.link.sendall(stream)
            peer.close()
            wait_until(lambda: not slave.loop.linked, "the end of the link")
    found = list(slave.run.records(slave.end))
    assert sum(1 for record in found if not record.get("blank")) > 0


def test_a_frame_that_does_not_follow_the_one_before_ends_the_link(
    tmp_path: Path, master: MasterEnd, by_hand: socket.socket,
) -> None:
    """HS2: heartbeats too."""
    master.send(3)
    data, end = log_of(master), master.end
    slave = SlaveEnd(tmp_path / "slave")
    with slave.turning():
        for gap in (end - 10, end + 10):
            peer = accepted(by_hand, slave)
            assert asked(peer)[0] == ANNOUNCE
            if slave.end == 0:
                peer.send(0, data)
                reported(peer, end)
            peer.send(gap, b"")
            assert peer.is_closed()
            wait_until(lambda: not slave.loop.linked, "the end of the link")
    assert [value for kind, value in slave.loop.notes()
            if kind == SlaveNote.NOTE_OTHER_PLACE] == [end - 10, end + 10]
    assert slave.end == end


def test_reports_say_what_is_published_and_come_again(
    tmp_path: Path, master: MasterEnd, by_hand: socket.socket,
) -> None:
    """HS1"""
    master.send(3)
    data, end = log_of(master), master.end
    slave = SlaveEnd(tmp_path / "slave", heartbeat_ms=20)
    with slave.turning():
        peer = accepted(by_hand, slave)
        assert asked(peer) == (ANNOUNCE, 0)
        peer.send(0, data[:-1])
        whole = {0, *(one["physicalOffset"] for one in master.run.records(end))}
        for _ in range(3):
            (position,) = REPORT.unpack(peer.exactly(8))
            assert position in whole
        peer.send(end - 1, data[-1:])
        reported(peer, end)
        reported(peer, end)
        peer.close()


def test_a_blank_is_acknowledged_only_as_far_as_it_came(
    tmp_path: Path, master: MasterEnd, by_hand: socket.socket,
) -> None:
    """A stock master closes a link whose report is beyond its own end."""
    master.send(40, 400)
    data = log_of(master)
    slave = SlaveEnd(tmp_path / "slave", heartbeat_ms=20)
    with slave.turning():
        peer = accepted(by_hand, slave)
        assert asked(peer) == (ANNOUNCE, 0)
        at = data.rindex(b"\xcb\xd4\x31\x94", 0, SEGMENT_SIZE) + 4      # behind the blank's head
        peer.send(0, data[:at])
        reported(peer, at)
        assert slave.end == SEGMENT_SIZE
        assert REPORT.unpack(peer.exactly(8)) == (at,)
        peer.send(at, data[at:SEGMENT_SIZE])
        reported(peer, SEGMENT_SIZE)
        peer.close()


# -- a master that does not say whose log it has (HS10) --------------------------------------------


@pytest.fixture
def follower(tmp_path: Path, master: MasterEnd) -> SlaveEnd:
    """One whose log is the beginning of the master's, of three segments and some."""
    master.send(200)
    slave = SlaveEnd(tmp_path / "slave")
    with master.turning(), slave.turning():
        slave.link(master.address)
        slave.run.segment.ring_bell(HA_SLAVE.slot)
        wait_for_end(slave, master.end)
        slave.loop.unlink()
    assert slave.end > 2 * SEGMENT_SIZE
    return slave


def below(slave: SlaveEnd) -> bytes:
    return last_bytes(LogFolders((slave.run.log_folder,)), 0, slave.end, SEGMENT_SIZE)


def ended(slave: SlaveEnd, why: int) -> int:
    """The value of that note."""
    found: list[tuple[int, int]] = []

    def is_there() -> bool:
        found.extend(slave.loop.notes())
        return why in dict(found)

    wait_until(is_there, "the end of the link")
    return dict(found)[why]


def proving(listener: socket.socket, slave: SlaveEnd, data: bytes) -> Peer:
    address = listener.getsockname()
    slave.link(address, slave.end, data)
    slave.run.segment.ring_bell(HA_SLAVE.slot)
    return Peer(listener.accept()[0])


def test_who_does_not_greet_is_asked_for_bytes_that_are_here(
    follower: SlaveEnd, by_hand: socket.socket,
) -> None:
    end = follower.end
    with follower.turning():
        peer = proving(by_hand, follower, b"")
        assert asked(peer) == (ANNOUNCE, end)
        peer.send(end, b"")
        assert peer.is_closed()
        assert ended(follower, SlaveNote.NOTE_NOT_GREETED) == end
        peer = proving(by_hand, follower, below(follower))
        assert asked(peer) == (ANNOUNCE, end - len(below(follower)))
        assert end - len(below(follower)) == end // SEGMENT_SIZE * SEGMENT_SIZE
        peer.close()


@pytest.mark.parametrize("cut", [1, 97, 1000, 1 << 20])
def test_the_same_bytes_are_passed_over_and_what_follows_is_taken(
    master: MasterEnd, follower: SlaveEnd, by_hand: socket.socket, cut: int,
) -> None:
    last, begin = below(follower), follower.end
    master.send(60)
    data = log_of(master)
    with follower.turning():
        peer = proving(by_hand, follower, last)
        asked(peer)
        at = begin - len(last)
        while at < master.end:
            part = data[at:min(at + cut, master.end)]
            peer.send(at, part)
            peer.send(at + len(part), b"")
            at += len(part)
        reported(peer, master.end)
        peer.close()
    assert segments(follower.run, follower.end) == segments(master.run, master.end)


@pytest.mark.parametrize("place", [0, 1, 500, -1])
def test_another_history_is_refused_and_nothing_is_written(
    master: MasterEnd, follower: SlaveEnd, by_hand: socket.socket, place: int,
) -> None:
    """Its records begin and end where ours do."""
    last, end = below(follower), follower.end
    before = segments(follower.run, end)
    other = bytearray(last)
    other[place] ^= 1
    master.send(3)
    with follower.turning():
        peer = proving(by_hand, follower, last)
        asked(peer)
        with contextlib.suppress(ConnectionError):
            peer.send(end - len(last), bytes(other) + log_of(master)[end:])
        assert peer.is_closed()
        why = ended(follower, SlaveNote.NOTE_OTHER_LOG)
    assert end - len(last) <= why <= end - len(last) + place % len(last)
    assert (follower.end, segments(follower.run, end)) == (end, before)


def test_a_master_that_has_none_of_these_bytes_is_refused(
    follower: SlaveEnd, by_hand: socket.socket,
) -> None:
    begin = follower.end - len(below(follower))
    with follower.turning():
        peer = proving(by_hand, follower, below(follower))
        asked(peer)
        peer.send(begin, b"")
        peer.send(begin, b"")
        assert peer.is_closed()
        assert ended(follower, SlaveNote.NOTE_NOTHING_BELOW) == begin


def test_a_master_that_stood_still_sends_a_heartbeat_first(
    master: MasterEnd, follower: SlaveEnd, by_hand: socket.socket,
) -> None:
    last, begin = below(follower), follower.end
    master.send(3)
    with follower.turning():
        peer = proving(by_hand, follower, last)
        asked(peer)
        peer.send(begin - len(last), b"")
        peer.send(begin - len(last), last + log_of(master)[begin:])
        reported(peer, master.end)
        peer.close()
    assert segments(follower.run, follower.end) == segments(master.run, master.end)


def test_the_last_bytes_of_a_log_lie_in_one_segment(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    log, size = LogFolders((tmp_path / "commitlog",)), 4 * OVERLAP_BYTES
    data = random.Random(1).randbytes(2 * size)
    for base in (0, size):
        (tmp_path / "commitlog" / f"{base:020d}").write_bytes(data[base:base + size])
    for first, end, start in (
            (0, 0, 0), (0, 1, 1), (0, 5, 1), (0, size, size - OVERLAP_BYTES), (size, size, size),
            (0, size + 5, size), (size, size + 5, size), (0, 2 * size, 2 * size - OVERLAP_BYTES)):
        assert last_bytes(log, first, end, size) == data[start:end]


def test_a_silent_master_is_gone(tmp_path: Path, by_hand: socket.socket) -> None:
    slave = SlaveEnd(tmp_path / "slave", housekeeping_ms=50, heartbeat_ms=20)
    with slave.turning():
        peer = accepted(by_hand, slave)
        assert peer.is_closed()
    assert slave.loop.notes()[-1][0] == SlaveNote.NOTE_MASTER_SILENT


def test_while_the_writer_stands_the_socket_is_not_read(
    tmp_path: Path, by_hand: socket.socket,
) -> None:
    """HS4: one buffer and the ring are all that a slave holds of what it cannot store."""
    master = MasterEnd(tmp_path / "large", segment_size=1 << 22)
    master.send(1300, 16_000)
    data, end = log_of(master), master.end
    slave = SlaveEnd(tmp_path / "slave", segment_size=1 << 22)
    with turning(slave.run.segment, HA_SLAVE.slot, slave.loop.run):
        peer = accepted(by_hand, slave)
        assert asked(peer) == (ANNOUNCE, 0)
        peer.link.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            peer.send(0, data)
            raise AssertionError("all of it was read")
        peer.close()
    assert slave.end == 0
    with slave.turning():
        wait_until(lambda: not slave.loop.linked and slave.loop.ready, "the results")
        peer = accepted(by_hand, slave)
        _, start = asked(peer)
        assert start > 0
        peer.send(start, data[start:])
        reported(peer, end)
        peer.close()
    assert segments(slave.run, slave.end) == segments(master.run, master.end)
    master.close()


@pytest.mark.parametrize("address", ["127.0.0.1:9", "[::1]:9", "host.example:9"])
def test_addresses_of_a_name_are_tried_in_turn(
    monkeypatch: pytest.MonkeyPatch, by_hand: socket.socket, address: str,
) -> None:
    closed = socket.create_server(("127.0.0.1", 0))
    places = [closed.getsockname(), by_hand.getsockname()]
    closed.close()
    asked_for = []

    def found(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        asked_for.append((host, port))
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", place) for place in places]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    with contextlib.suppress(ConnectionRefusedError):
        os.close(ha_slave.begin_connect(address, 2))
    link = ha_slave.begin_connect(address, 3)
    by_hand.settimeout(20)
    by_hand.accept()[0].close()
    os.close(link)
    assert asked_for == [(address[:-2].strip("[]"), 9)] * 2


# -- the writer of a slave -------------------------------------------------------------------------


def test_a_log_that_follows_takes_nothing_else(tmp_path: Path) -> None:
    """A10 of raw.pxd"""
    slave = SlaveEnd(tmp_path / "slave")
    probe = slave.run.probe()
    assert probe.send("topic", 0, [b"x"], opaque=1)
    slave.writer.run(1000)
    assert [status for _, status, *_ in probe.take()] == [PUT_SERVICE_NOT_AVAILABLE]
    assert slave.end == 0


@pytest.mark.parametrize("position", [-SEGMENT_SIZE, 8, SEGMENT_SIZE + 8])
def test_an_empty_log_begins_at_the_start_of_a_segment(tmp_path: Path, position: int) -> None:
    """A9"""
    slave = SlaveEnd(tmp_path / "slave")
    probe = slave.run.probe()
    assert probe.send_raw(bytes(100), position, opaque=1)
    assert probe.send_raw(bytes(100), SEGMENT_SIZE, opaque=2)
    slave.writer.run(1000)
    assert [status for _, status, *_ in probe.take()] == [PUT_NOT_AT_END, PUT_RAW_DAMAGED]
    assert slave.run.segment.log_state()["first"] == 0


def test_a_slave_without_a_link_hears_at_once_where_the_master_is(tmp_path: Path) -> None:
    slave = SlaveEnd(tmp_path)
    segment = slave.run.segment
    slave.loop.run(0)
    for say in (lambda: LeadershipPen(segment).say_leader(1, "a:1", "a:2", 1, [1]),
                lambda: MasterSign(segment).show("a:2")):
        turn = threading.Thread(target=slave.loop.run, args=(600_000,), daemon=True)
        turn.start()
        say()
        turn.join(30)
        assert not turn.is_alive()
