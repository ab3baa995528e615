"""What slaves hear from a master: HM1 to HM8 of mqcore/replication/master.pxd."""
from __future__ import annotations

import socket
import time

import pytest

from mqcore.replication.greet import ANNOUNCE
from mqcore.replication.link_end import MasterNote
from mqcore.shm.figure_slots import FigureSlots
from mqcore.shm.replica_gate import ReplicaPen
from mqcore.shm.retention import LogWords
from tests.replication.ends import SEGMENT_SIZE, Make, MasterEnd, Peer, log_bytes, said
from tests.support.cold_files import make_cold
from tests.support.waiting import wait_until

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


def test_two_slaves_of_one_id_are_known_from_one_that_came_again(make: Make) -> None:
    """Of the one that came again the old link says nothing more."""
    master = make()
    master.send(20)
    with master.turning():
        links = [Peer.of(master.address) for _ in range(4)]
        for link, number in zip(links, (7, 7, 8, 8), strict=True):
            link.report(ANNOUNCE - number, 80)
        wait_until(lambda: len(master.loop.slaves()) == 4, "all links")
        _silent, *living = links

        def twins() -> list[tuple[int, str, str]]:
            for link in living:
                link.report(80)
            found: list[tuple[int, str, str]] = master.loop.twins()
            return found

        wait_until(twins, "two slaves of one id")
        own = {"{}:{}".format(*link.link.getsockname()) for link in links[2:]}
        assert [(number, {one, other}) for number, one, other in twins()] == [(8, own)]
        for link in links:
            link.close()


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


def test_links_of_one_address_take_no_place_of_another(make: Make) -> None:              # HM7
    master = make()
    with master.turning():
        other = Peer(socket.create_connection(master.address, source_address=("127.0.0.2", 0)))
        many = [Peer.of(master.address) for _ in range(40)]
        assert many[0].is_closed()
        other.report(0)
        assert other.frame()[0] == 0
        for peer in (other, *many):
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
