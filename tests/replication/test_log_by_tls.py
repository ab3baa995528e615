"""HW1 to HW3, HM15, HS13: the port of slaves by TLS."""
from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from mqcore.net.transport.tls import TlsMode
from mqcore.net.transport.tls_context import TlsClientContext, TlsContext, trouble
from mqcore.replication import rejoin
from mqcore.replication.greet import ANNOUNCE
from mqcore.replication.greeting import OtherLogError
from mqcore.replication.key import cluster_key, key_words, network_rows
from mqcore.replication.link_end import MasterNote
from mqcore.replication.slave import SlaveNote
from tests.replication.ends import Make, MasterEnd, Peer, SlaveEnd, log_bytes, wait_for_end
from tests.replication.pairs import NAME, slave_up
from tests.support.mqcore_process import mqcore_up
from tests.support.waiting import wait_until
from tests.tls.certificates import Authority, careless
from tests.tls.conftest import authority
from tests.wire_live.peer import send_fields
from tests.wire_live.state import State
from tests.workers.processes import kill

__all__ = ["authority"]
LONG_MS = 60_000
Pair = tuple[Path, Path]


@pytest.fixture(scope="session")
def ours(authority: Authority) -> Pair:
    return authority.sign("of-the-set")


@pytest.fixture(scope="session")
def expired(authority: Authority) -> Pair:
    return authority.sign_expired("of-yesterday")


@pytest.fixture(scope="session")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, Pair]:
    other = Authority(tmp_path_factory.mktemp("other"), "another-authority")
    return other, other.sign("stranger")


Secured = Callable[..., MasterEnd]


@pytest.fixture
def secured(make: Make, authority: Authority, ours: Pair) -> Secured:
    """A master with a certificate; asks: for one of slaves."""
    def one(mode: TlsMode = TlsMode.TLS_PERMISSIVE, *, asks: bool = False,
            shake_ms_max: int = LONG_MS, **changes: object) -> MasterEnd:
        master = make(**changes)
        master.loop.secure(mode, context(authority, ours, asks=asks), asks, shake_ms_max)
        master.send(3)
        return master

    return one


def context(authority: Authority, certificate: Pair, *, asks: bool = False,
            any_time: bool = False) -> TlsContext:
    return TlsContext(certificate=str(certificate[0]), key=str(certificate[1]),
                      trust=str(authority.certificate), clients="require" if asks else "none",
                      any_time=any_time)


def client(authority: Authority, certificate: Pair | None = None) -> TlsClientContext:
    shown = {} if certificate is None else {"certificate": str(certificate[0]),
                                            "key": str(certificate[1])}
    return TlsClientContext(trust=str(authority.certificate), **shown)


def by_tls(master: MasterEnd, shows: ssl.SSLContext, host: str = "127.0.0.1") -> Peer:
    link = socket.create_connection(master.address, source_address=(host, 0), timeout=20)
    return Peer(shows.wrap_socket(link, server_hostname="127.0.0.1"))


def notes(master: MasterEnd) -> list[tuple[int, int]]:
    return [(kind, value) for kind, _, value in master.loop.notes()[0]]


def wait_for_note(master: MasterEnd, kind: int) -> int:
    found: list[tuple[int, int]] = []

    def came() -> bool:
        found.extend(notes(master))
        return kind in dict(found)

    wait_until(came, f"note {kind}")
    return dict(found)[kind]


# -- both ends -------------------------------------------------------------------------------------


@pytest.mark.parametrize("asks", [False, True])
def test_a_slave_follows_by_tls(secured: Secured, authority: Authority, ours: Pair,
                                tmp_path: Path, asks: bool) -> None:
    master = secured(TlsMode.TLS_ENFORCING, asks=asks, segment_size=1 << 16)
    master.send(200, 900)                                # of several segments
    slave = SlaveEnd(tmp_path / "slave", segment_size=1 << 16)
    with master.turning(), slave.turning():
        slave.link(master.address, tls=client(authority, ours if asks else None))
        wait_for_end(slave, master.end)
        for size in (10, 5000, 20):                      # in small frames, and in longer ones
            master.send(3, size)
            wait_for_end(slave, master.end)
        sent = log_bytes(master, 0)
        assert b"".join(path.read_bytes() for path in sorted(slave.run.log_folder.iterdir()))[
            :len(sent)] == sent
        assert (SlaveNote.NOTE_LINKED, 0) in slave.loop.notes()


def test_a_reader_of_the_network_sees_no_message(secured: Secured, authority: Authority,
                                                 tmp_path: Path) -> None:
    """A relay between the two looks at all bytes."""
    master, slave = secured(), SlaveEnd(tmp_path / "slave")
    master.send(5, 3000)
    seen = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as relay, master.turning(), slave.turning():
        slave.link(relay.getsockname(), tls=client(authority))
        near, far = relay.accept()[0], socket.create_connection(master.address)
        for end in (near, far):
            end.setblocking(False)

        def hand_on() -> bool:
            for one, other in ((near, far), (far, near)):
                try:
                    part = one.recv(65536)
                except BlockingIOError:
                    continue
                seen.extend(part)
                other.setblocking(True)
                other.sendall(part)
                other.setblocking(False)
            return slave.end == master.end

        wait_until(hand_on, "the log")
        near.close()
        far.close()
    assert len(seen) > 5 * 3000
    assert b"00003" not in seen
    assert bytes(100) not in seen


def test_a_slow_reader_gets_each_byte(secured: Secured) -> None:
    """HW2: the socket takes parts of records."""
    master = secured(segment_size=1 << 22)
    master.send(400, 3000)
    with master.turning():
        link = socket.socket()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        link.connect(master.address)
        peer = Peer(careless().wrap_socket(link))
        peer.report(ANNOUNCE, 0)
        whole = log_bytes(master, 0)
        start, found = peer.bytes_up_to(len(whole))
        assert (start, found == whole) == (0, True)
        peer.report(len(whole))
        peer.close()


# -- the way in ------------------------------------------------------------------------------------


def test_both_ways_are_open_where_tls_is_not_required(secured: Secured) -> None:
    """A stock slave, which knows no TLS, and one that does."""
    master = secured()
    with master.turning():
        stock, other = Peer.of(master.address), by_tls(master, careless())
        for peer in (stock, other):
            peer.report(0)
            assert peer.frame()[0] == 0
        wait_until(lambda: len(master.loop.slaves()) == 2, "two slaves")
        stock.close()
        other.close()


@pytest.mark.parametrize("first", [b"\0", b"\xff" * 16, b"GET / HTTP/1.1\r\n\r\n"])
def test_who_speaks_without_is_closed_where_it_is(secured: Secured, first: bytes) -> None:
    master = secured(TlsMode.TLS_ENFORCING, asks=True)
    with master.turning():
        peer = Peer.of(master.address)
        peer.link.sendall(first)
        assert peer.is_closed()
        wait_for_note(master, MasterNote.NOTE_IN_THE_CLEAR)
        assert master.loop.slaves() == []


@pytest.mark.parametrize(("mode", "has_certificate"), [
    (TlsMode.TLS_DISABLED, True), (TlsMode.TLS_PERMISSIVE, False)])
def test_tls_that_is_not_served_is_said(make: Make, authority: Authority, ours: Pair,
                                        tmp_path: Path, mode: TlsMode,
                                        has_certificate: bool) -> None:
    master, slave = make(), SlaveEnd(tmp_path / "slave")
    master.loop.secure(mode, context(authority, ours) if has_certificate else None, False, LONG_MS)
    with master.turning(), slave.turning():
        slave.link(master.address, tls=client(authority))
        wait_for_note(master, MasterNote.NOTE_NO_TLS)
        wait_until(lambda: SlaveNote.NOTE_LINK_TLS_FAILED in dict(slave.loop.notes()), "a note")


@pytest.mark.parametrize(("shown", "why"), [
    ("nothing", "peer did not return a certificate"),
    ("of another authority", "certificate verify failed: "),
    ("expired", "certificate verify failed: certificate has expired")])
def test_a_slave_has_to_show_a_certificate_of_the_authority(
        secured: Secured, authority: Authority, expired: Pair, strangers: tuple[Authority, Pair],
        tmp_path: Path, shown: str, why: str) -> None:
    master, slave = secured(TlsMode.TLS_ENFORCING, asks=True), SlaveEnd(tmp_path / "slave")
    certificate = {"nothing": None, "of another authority": strangers[1], "expired": expired}[shown]
    with master.turning(), slave.turning():
        slave.link(master.address, tls=client(authority, certificate))
        assert trouble(wait_for_note(master, MasterNote.NOTE_TLS_FAILED)).startswith(why)
        wait_until(lambda: not slave.loop.linked, "the link's end")
        assert (slave.end, master.loop.slaves()) == (0, [])


@pytest.mark.parametrize(("whose", "why"), [
    ("another authority", "certificate verify failed: "),
    ("expired", "certificate verify failed: certificate has expired"),
    ("another host", "certificate verify failed: hostname mismatch"),
    ("another address", "certificate verify failed: IP address mismatch")])
def test_a_slave_sends_nothing_to_another_master(
        secured: Secured, authority: Authority, expired: Pair, strangers: tuple[Authority, Pair],
        tmp_path: Path, whose: str, why: str) -> None:
    master, slave = secured(), SlaveEnd(tmp_path / "slave")
    host = {"another host": "elsewhere.example", "another address": "127.0.0.9"}.get(
        whose, "127.0.0.1")
    if whose == "expired":
        master.loop.secure(TlsMode.TLS_PERMISSIVE, context(authority, expired, any_time=True),
                           False, LONG_MS)
    trusts = strangers[0] if whose == "another authority" else authority
    with master.turning(), slave.turning():
        slave.link(master.address, tls=client(trusts), host=host)
        found: dict[int, int] = {}
        wait_until(lambda: found.update(slave.loop.notes()) or found, "a note")
        assert trouble(found[SlaveNote.NOTE_LINK_TLS_FAILED]).startswith(why)
        assert (slave.end, master.loop.slaves()) == (0, [])


@pytest.mark.parametrize("does", [True, False])
def test_a_certificate_does_for_the_account_where_it_does(
        secured: Secured, authority: Authority, ours: Pair, does: bool) -> None:
    """HM15: with accounts for clients a client's certificate opens no log."""
    key = cluster_key("secret-1")
    master = secured(asks=True, open_to=network_rows(()), certificate_does=does, greeting=b"{}")
    master.loop.take_key(key)
    with master.turning():
        peer = by_tls(master, authority.client(ours))
        peer.report(ANNOUNCE - 1, 0)
        kind, nonce = peer.frame()
        assert kind == (ANNOUNCE if does else -3)
        if not does:
            peer.link.sendall(key_words(key, nonce, 1))
            peer.report(0)
            assert peer.frame()[0] == ANNOUNCE
        peer.close()
        plain = Peer.of(master.address)                  # in the clear the account does
        plain.report(ANNOUNCE - 1, 0)
        assert plain.frame()[0] == -3
        plain.close()


def test_new_links_get_the_new_certificate(secured: Secured, authority: Authority, ours: Pair,
                                           ) -> None:
    master, second = secured(), authority.sign("of-tomorrow")
    with master.turning():
        before = by_tls(master, authority.client())
        before.report(0)
        master.loop.secure(TlsMode.TLS_PERMISSIVE, context(authority, second), False, LONG_MS)
        after = by_tls(master, authority.client())
        for peer, name in ((before, "of-the-set"), (after, "of-tomorrow")):
            assert isinstance(peer.link, ssl.SSLSocket)
            assert ((("commonName", name),),) == (peer.link.getpeercert() or {})["subject"]
        assert before.frame()[0] == 0                    # the old link stays
        before.close()
        after.close()


def test_rejoin_asks_by_tls(secured: Secured, authority: Authority, ours: Pair) -> None:
    master = secured(TlsMode.TLS_ENFORCING, asks=True, greeting=b"{}")
    with master.turning():
        with pytest.raises(OtherLogError, match="cannot be read"):     # it has no epochs
            rejoin.greeted(rejoin.MasterPort(master.address, tls=authority.client(ours)), 0)
        with pytest.raises(ConnectionError, match=r"TLS with the master .* failed"):
            rejoin.greeted(rejoin.MasterPort(master.address, tls=authority.client()), 0)


# -- handshakes that do not end --------------------------------------------------------------------


def hello() -> bytes:
    """The first flight of a client."""
    out = ssl.MemoryBIO()
    end = careless().wrap_bio(ssl.MemoryBIO(), out)
    with pytest.raises(ssl.SSLWantReadError):
        end.do_handshake()
    return out.read()


def test_handshakes_that_do_not_end_keep_no_member_out(
        secured: Secured, authority: Authority, ours: Pair, tmp_path: Path) -> None:
    """HM7: of 40 addresses each has some, with nothing, a part and all of a first flight."""
    master = secured(TlsMode.TLS_ENFORCING, asks=True)
    first, there, late = hello(), SlaveEnd(tmp_path / "there"), SlaveEnd(tmp_path / "late")
    with master.turning(), there.turning(), late.turning():
        there.link(master.address, tls=client(authority, ours))
        wait_for_end(there, master.end)
        half = []
        for number in range(80):
            half.append(socket.create_connection(
                master.address, source_address=(f"127.0.0.{2 + number % 40}", 0)))
            half[-1].sendall(first[:(0, 1, 100, len(first))[number % 4]])
        late.link(master.address, tls=client(authority, ours))
        wait_for_end(late, master.end)
        master.send(2)
        for slave in (there, late):
            wait_for_end(slave, master.end)
        assert len(master.loop.slaves()) == 2
        for one in half:
            one.close()


def test_a_handshake_has_an_end(secured: Secured) -> None:
    master = secured(shake_ms_max=50)
    with master.turning():
        peer = Peer.of(master.address)
        peer.link.sendall(hello()[:50])
        assert peer.is_closed()
        assert wait_for_note(master, MasterNote.NOTE_TLS_SLOW) > 50


def test_who_is_killed_in_its_handshake_leaves_nothing(secured: Secured, authority: Authority,
                                                       ) -> None:
    """At each of its bytes; descriptors and the thread's pipes."""
    master, first = secured(), hello()

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    with master.turning():
        by_tls(master, authority.client()).close()       # what is opened once is
        wait_until(lambda: master.loop.slaves() == [], "no slave")
        before = descriptors()
        for size in range(0, len(first) + 1, 9):
            with socket.create_connection(master.address) as peer:
                peer.sendall(first[:size])
        wait_until(lambda: descriptors() == before, "all descriptors are closed")
        peer = by_tls(master, authority.client())
        peer.report(0)
        assert peer.frame()[0] == 0
        peer.close()


@pytest.mark.parametrize("nonsense", [b"\x16" * 300, b"\x16\x03\x01\x00\x05hello" * 100])
def test_nonsense_that_begins_as_a_handshake_ends_with_a_note(secured: Secured,
                                                              nonsense: bytes) -> None:
    master = secured()
    with master.turning():
        peer = Peer.of(master.address)
        peer.link.sendall(nonsense)
        assert peer.is_closed()
        wait_for_note(master, MasterNote.NOTE_TLS_FAILED)


# -- as processes ----------------------------------------------------------------------------------


def test_a_pair_replicates_by_tls_and_goes_on_with_new_files(
        tmp_path: Path, authority: Authority, strangers: tuple[Authority, Pair]) -> None:
    """A sync master acknowledges what its slave has; both ends are killed, files are replaced."""
    mine, theirs = authority.sign("master"), authority.sign("slave")
    follows: dict[str, object] = {
        "tls.client_enable": True, "tls.client_trust": authority.certificate,
        "tls.client_certificate": theirs[0], "tls.client_key": theirs[1],
        "replication.master_tls": True}
    leads: dict[str, object] = {
        "broker.name": NAME, "replication.role": "sync-master", "replication.listen": True,
        "replication.tls_mode": "enforcing", "tls.certificate": mine[0], "tls.key": mine[1],
        "tls.trust": authority.certificate, "tls.poll_ms": 100, "tls.mode": "enforcing"}
    with (mqcore_up(tmp_path / "master", leads) as master,
          slave_up(tmp_path / "slave", master.namesrv_addr, follows) as slave,
          State(master.broker_addr, tls=authority.client()) as peer):
        peer.topic("Followed", 1)

        def is_acknowledged() -> bool:
            return peer.ask(310, send_fields("Followed"), b"body").code == 0

        wait_until(is_acknowledged, "an answer of 0")
        for broker, role in ((master, "ha-master"), (slave, "ha-slave")):
            kill(broker, role)
            wait_until(is_acknowledged, f"an answer of 0 behind the {role}'s death")
        with slave_up(tmp_path / "plain", master.namesrv_addr, {
                **follows, "broker.id": 2, "replication.master_tls": False}):
            wait_until(lambda: "speaks without TLS" in master.tail(), "a refusal")
        for file, other in zip(mine, strangers[1], strict=True):
            file.write_bytes(other.read_bytes())
        wait_until(lambda: "new links of slaves get what the files say now" in master.tail(),
                   "the new files")
        assert is_acknowledged()                         # the link stays
        kill(slave, "ha-slave")
        wait_until(lambda: "TLS: certificate verify failed" in slave.tail(), "a refusal")
