"""HM9, HS8: who is waited for in an elected set, and who says that he is one of it."""
from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.layout import LEADERSHIP_MEMBERS_MAX
from mqcore.replication.greet import ANNOUNCE
from mqcore.shm.leadership import LeadershipPen
from mqcore.shm.replica_gate import ReplicaPen
from tests.replication.ends import REPORT, MasterEnd, Peer, SlaveEnd
from tests.support.waiting import wait_until


class Elected:
    """One that leads, and peers that are members."""

    def __init__(self, master: MasterEnd) -> None:
        self.master = master
        self.words = LeadershipPen(master.run.segment)
        self.gate = ReplicaPen(master.run.segment)

    def member(self, number: int, position: int) -> Peer:
        peer = Peer.of(self.master.address)
        peer.report(ANNOUNCE - number, position)
        return peer

    def wait_for(self, *members: int) -> None:
        self.words.wait_for(list(members))
        self.master.run.segment.ring_bell(self.master.slot)
        wait_until(lambda: self.words.applied, "ha-master goes by it")

    def until(self, replicated: int, present: bool = True) -> None:
        wait_until(lambda: (self.gate.replicated, self.gate.present) == (replicated, present),
                   f"replicated {replicated}, present {present}")


@pytest.fixture
def elected(tmp_path: Path) -> Iterator[Elected]:
    master = MasterEnd(tmp_path, gated=False, elected=True)
    master.send(4)
    with master.turning():
        yield Elected(master)
    master.close()


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_all_that_are_waited_for_count_and_the_last_of_them_decides(
    elected: Elected, order: tuple[int, int],
) -> None:
    end = elected.master.end
    first, second = elected.member(1, end), elected.member(2, end // 2)
    elected.wait_for(*order)
    elected.until(end // 2)
    third = elected.member(3, end)               # nobody waits for it
    second.bytes_up_to(end)
    second.report(end)
    elected.until(end)
    for peer in (first, second, third):
        peer.close()


def test_without_one_of_them_nobody_is_there(elected: Elected) -> None:
    end = elected.master.end
    first = elected.member(1, end)
    elected.wait_for(1, 2)
    wait_until(lambda: 1 in elected.words.reports, "the first has reported")
    assert not elected.gate.present
    second = elected.member(2, end)
    elected.until(end)
    second.close()
    elected.until(end, present=False)
    assert elected.words.reports[2][::2] == (end, 0)
    first.close()


def test_with_nobody_to_wait_for_there_is_nobody(elected: Elected) -> None:
    peer = elected.member(1, elected.master.end)
    wait_until(lambda: 1 in elected.words.reports, "it has reported")
    elected.wait_for()
    assert (elected.gate.replicated, elected.gate.present) == (0, False)
    elected.wait_for(1)
    elected.until(elected.master.end)
    elected.wait_for()
    elected.until(elected.master.end, present=False)
    peer.close()


def test_a_slave_without_an_id_is_no_member(elected: Elected) -> None:
    peer = Peer.of(elected.master.address)
    peer.report(ANNOUNCE, elected.master.end)
    elected.wait_for(1)
    wait_until(lambda: elected.master.loop.slaves(), "it is a slave")
    assert (elected.words.reports, elected.gate.present) == ({}, False)
    peer.close()


def test_the_later_link_of_a_member_counts(elected: Elected) -> None:
    end = elected.master.end
    first = elected.member(1, end)
    elected.wait_for(1)
    elected.until(end)
    again = elected.member(1, 0)
    assert first.is_closed()
    wait_until(lambda: elected.words.reports[1][0] == 0, "the later one is believed")
    assert elected.gate.replicated == end        # what was acknowledged stays so
    again.close()


def test_where_nobody_is_elected_no_link_ends_for_its_id(tmp_path: Path) -> None:
    master = MasterEnd(tmp_path, heartbeat_ms=20)
    master.send(4)
    with master.turning():
        peers = [Peer.of(master.address) for _ in range(2)]
        for peer in peers:
            peer.report(ANNOUNCE - 1, master.end)
            wait_until(lambda: ReplicaPen(master.run.segment).present, "a slave is there")
        for peer in peers:
            assert peer.frame() == (master.end, b"")
            peer.close()
    master.close()


@pytest.mark.parametrize(("member", "word"), [(0, ANNOUNCE), (7, ANNOUNCE - 7)])
def test_a_slave_says_its_id_with_its_first_word(tmp_path: Path, member: int, word: int) -> None:
    slave = SlaveEnd(tmp_path, member=member)
    with socket.create_server(("127.0.0.1", 0)) as listener, slave.turning():
        slave.link(listener.getsockname())
        slave.run.segment.ring_bell(slave.slot)
        peer = Peer(listener.accept()[0])
        assert [REPORT.unpack(peer.exactly(REPORT.size))[0] for _ in range(2)] == [word, 0]
        peer.close()


def test_members_that_are_gone_keep_no_place_from_those_that_come(elected: Elected) -> None:
    end = elected.master.end
    for number in range(1, 2 * LEADERSHIP_MEMBERS_MAX + 2):
        peer = elected.member(number, end)
        wait_until(lambda number=number: elected.words.reports.get(number, (0, 0, 0))[2] > 0,
                   "it is heard")
        peer.close()
        wait_until(lambda number=number: elected.words.reports[number][2] == 0, "it is gone")
