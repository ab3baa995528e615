"""HM15, HM7: the cluster's account at the port of slaves, and the links that make room there."""
from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from mqcore.replication import rejoin
from mqcore.replication.greet import ANNOUNCE
from mqcore.replication.greeting import OtherLogError
from mqcore.replication.key import cluster_key, key_words, network_rows
from mqcore.replication.link_end import MasterNote
from mqcore.replication.slave import SlaveNote
from mqcore.shm.leadership import LeadershipPen
from tests.replication.ends import HEAD, LONG_MS, Make, MasterEnd, Peer, SlaveEnd
from tests.support.waiting import wait_until

KEY, OTHER = cluster_key("secret-1"), cluster_key("secret-2")
WORDS = b'{"broker": "a"}'
MEMBER = 1


def words(key: bytes, nonce: bytes, member: int = MEMBER) -> tuple[int, ...]:
    return struct.unpack(">3q", key_words(key, nonce, member))


def guarded(make: Make, *open_to: str, key: bytes = KEY, **changes: object) -> MasterEnd:
    master = make(open_to=network_rows(open_to), greeting=WORDS, **changes)
    if key:
        master.loop.take_key(key)
    master.send(3)
    return master


def kinds(master: MasterEnd) -> list[int]:
    return [kind for kind, *_ in master.loop.notes()[0]]


def asked(master: MasterEnd, member: int = MEMBER) -> tuple[Peer, bytes]:
    """A link that has said where its log ends, and the nonce that it is to sign."""
    peer = Peer.of(master.address)
    peer.report(ANNOUNCE - member, 0)
    position, nonce = peer.frame()
    assert (position, len(nonce)) == (-3, 16)
    return peer, nonce


@pytest.mark.parametrize("said", [
    (0,),                                                       # a stock slave
    (ANNOUNCE - 1, *words(KEY, bytes(16)), 0),                  # before it was asked
    (*words(KEY, bytes(16)), 0)])
def test_who_is_no_slave_of_ours_is_told_nothing(make: Make, said: tuple[int, ...]) -> None:
    master = guarded(make)
    with master.turning():
        peer = Peer.of(master.address)
        peer.report(*said)
        assert peer.is_closed()
        wait_until(lambda: kinds(master) in ([MasterNote.NOTE_STRANGER],
                                             [MasterNote.NOTE_NONSENSE]), "a note")
        assert master.loop.slaves() == []


@pytest.mark.parametrize("answer", [
    lambda nonce: words(OTHER, nonce),
    lambda nonce: words(KEY, nonce)[:2],
    lambda nonce: (*words(KEY, nonce)[:2], words(OTHER, nonce)[2]),
    lambda nonce: (*words(OTHER, nonce), *words(KEY, nonce)),   # no second try on a link
    lambda nonce: words(KEY, nonce, MEMBER + 1),                # those of another slave
    lambda nonce: words(KEY, bytes(16)),
], ids=["another key", "two words", "one wrong word", "twice", "another member", "no nonce"])
def test_who_does_not_show_the_account_is_told_only_what_to_sign(
        make: Make, answer: Callable[[bytes], tuple[int, ...]]) -> None:
    master = guarded(make)
    with master.turning():
        peer, nonce = asked(master)
        peer.report(*answer(nonce), 0)
        assert peer.link.recv(100) == b""
        wait_until(lambda: kinds(master) in ([MasterNote.NOTE_STRANGER],
                                             [MasterNote.NOTE_NONSENSE]), "a note")
        assert master.loop.slaves() == []


def test_who_shows_it_is_greeted_and_followed(make: Make) -> None:
    master = guarded(make)
    with master.turning():
        peer, nonce = asked(master)
        peer.report(0)                          # a heartbeat that was on its way
        peer.report(*words(KEY, nonce), 0)
        position, greeting = peer.frame()
        assert (position, greeting[28:]) == (ANNOUNCE, WORDS)
        peer.report(0)
        assert peer.frame()[0] == 0
        peer.close()


def test_what_another_link_has_shown_lets_no_one_in(make: Make) -> None:
    """A reader of the network, or a master that was asked, has the words of another link."""
    master = guarded(make)
    with master.turning():
        slave, nonce = asked(master)
        shown = words(KEY, nonce)
        slave.report(*shown, 0)
        assert slave.frame()[0] == ANNOUNCE
        nonces = {nonce}
        for _ in range(20):
            replayed, other = asked(master)
            nonces.add(other)
            replayed.report(*shown, 0)
            assert replayed.link.recv(100) == b""
        assert len(nonces) == 21
        slave.close()


def test_another_key_counts_from_the_next_link_on(make: Make) -> None:
    master = guarded(make, key=b"")
    with master.turning():
        for key, other in ((KEY, OTHER), (OTHER, KEY)):
            master.loop.take_key(key)
            refused, nonce = asked(master)
            refused.report(*words(other, nonce), 0)
            assert refused.is_closed()
            peer, nonce = asked(master)
            peer.report(*words(key, nonce), 0)
            assert peer.frame()[0] == ANNOUNCE
            peer.close()


def test_a_master_without_an_account_lets_no_zeros_in(make: Make) -> None:
    master = guarded(make, key=b"")
    with master.turning():
        for said in ((ANNOUNCE - 1, *([-(1 << 63)] * 3), 0), (ANNOUNCE - 1, 0)):
            peer = Peer.of(master.address)
            peer.report(*said)
            assert peer.is_closed()


@pytest.mark.parametrize(("network", "is_in"), [
    ("127.0.0.2", True), ("127.0.0.0/30", True), ("127.0.0.3", False), ("127.0.0.4/30", False),
    ("0.0.0.0/0", True), ("::/0", True), ("::1", False)])
def test_an_address_may_be_let_in_without(make: Make, network: str, is_in: bool) -> None:
    master = guarded(make, network)
    with master.turning():
        peer = Peer(socket.create_connection(master.address, source_address=("127.0.0.2", 0)))
        peer.report(0)
        if is_in:
            assert peer.frame()[0] == 0
        else:
            assert peer.is_closed()
        peer.close()


def test_our_slave_shows_its_account_to_masters_that_ask_and_to_others(
        make: Make, tmp_path: Path) -> None:
    open_one = make(greeting=WORDS)
    open_one.send(3)
    for number, master in enumerate((guarded(make), open_one)):
        slave = SlaveEnd(tmp_path / f"slave-{number}", member=1)
        slave.loop.take_key(KEY)
        with master.turning(), slave.turning():
            slave.link(master.address)
            slave.run.segment.ring_bell(slave.slot)
            wait_until(lambda loop=slave.loop: loop.greeting() != b"", "a greeting")
            slave.loop.follow()
            slave.run.segment.ring_bell(slave.slot)
            wait_until(lambda here=slave, there=master: here.end == there.end, "the log")


def test_our_slave_without_an_account_says_what_it_lacks(make: Make, tmp_path: Path) -> None:
    master = guarded(make)
    slave = SlaveEnd(tmp_path / "slave", member=1)
    with master.turning(), slave.turning():
        slave.link(master.address)
        slave.run.segment.ring_bell(slave.slot)
        wait_until(lambda: (SlaveNote.NOTE_NO_ACCOUNT, 0) in slave.loop.notes(), "a note")


@pytest.mark.parametrize("frames", [
    (HEAD.pack(-3, 16) + bytes(16)) * 2, HEAD.pack(-3, 17) + bytes(17),
    HEAD.pack(-3, 0)], ids=["twice", "long", "empty"])
def test_a_master_that_asks_in_another_way_is_left(tmp_path: Path, frames: bytes) -> None:
    slave = SlaveEnd(tmp_path / "slave", member=1)
    slave.loop.take_key(KEY)
    with socket.create_server(("127.0.0.1", 0)) as listener, slave.turning():
        slave.link(listener.getsockname())
        peer = Peer(listener.accept()[0])
        assert peer.exactly(16) == struct.pack(">2q", ANNOUNCE - 1, 0)
        with contextlib.suppress(ConnectionError):          # it may be left before the last byte
            for byte in frames:
                peer.link.sendall(bytes([byte]))
        assert peer.is_closed()
        wait_until(lambda: not slave.loop.linked, "the link's end")


def test_rejoin_shows_it_too(make: Make) -> None:
    master = guarded(make)
    with master.turning():
        with pytest.raises(OtherLogError, match="asks for the account of its set"):
            rejoin.greeted(rejoin.MasterPort(master.address), 0)
        with pytest.raises(ConnectionResetError, match="its account where it asks for one"):
            rejoin.greeted(rejoin.MasterPort(master.address, OTHER), 0)
        with pytest.raises(OtherLogError, match="cannot be read"):     # WORDS have no epochs
            rejoin.greeted(rejoin.MasterPort(master.address, KEY), 0)


# -- places ----------------------------------------------------------------------------------------


def from_host(master: MasterEnd, host: str, *said: int) -> Peer:
    peer = Peer(socket.create_connection(master.address, source_address=(host, 0)))
    peer.report(*said)
    return peer


def test_strangers_of_two_addresses_keep_no_slave_out(make: Make) -> None:
    master = make()
    master.send(3)
    with master.turning():
        strangers = [from_host(master, host, 0) for host in ("127.0.0.2", "127.0.0.3")
                     for _ in range(16)]
        wait_until(lambda: len(master.loop.slaves()) == 32, "all places are taken")
        slaves = [from_host(master, "127.0.0.4", ANNOUNCE - 1, 0) for _ in range(2)]
        for slave in slaves:
            assert slave.frame()[0] == 0
        more = [from_host(master, "127.0.0.2", 0) for _ in range(3)]
        assert all(peer.is_closed() for peer in more)         # their address has its share
        master.send(1)
        for slave in slaves:
            assert slave.frame()[1]
        for peer in (*strangers, *slaves):
            peer.close()


def test_invented_members_keep_none_out_that_etcd_names(make: Make) -> None:
    master = make(elected=True, housekeeping_ms=LONG_MS)
    master.send(3)
    pen = LeadershipPen(master.run.segment)
    with master.turning():
        pen.wait_for([], [77, 78])
        master.run.segment.ring_bell(master.slot)
        wait_until(lambda: pen.applied, "ha-master goes by it")
        first = from_host(master, "127.0.1.1", ANNOUNCE - 77, 0)
        assert first.frame()[0] == 0
        strangers = [from_host(master, f"127.0.0.{2 + number % 40}", ANNOUNCE - 1000 - number, 0)
                     for number in range(60)]
        wait_until(lambda: len(master.loop.slaves()) == 32, "all places are taken")
        second = from_host(master, "127.0.1.2", ANNOUNCE - 78, master.end)
        wait_until(lambda: {77, 78} <= set(pen.reports), "both are heard")
        assert pen.reports[78][0] == master.end
        assert all(pen.reports[one][2] > 0 for one in (77, 78))
        for peer in (first, second, *strangers):
            peer.close()
