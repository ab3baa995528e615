"""Whose log it is: a slave writes nothing of a log that is not the continuation of its own."""
from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from mqcore.replication import epochs
from mqcore.replication.epochs import History
from mqcore.replication.greet import ANNOUNCE
from mqcore.replication.greeting import (
    HEAD,
    BehindError,
    Greeting,
    OtherLogError,
    PartedError,
    check_log,
    check_names,
    decode,
    words,
)
from mqcore.replication.role import Role
from mqcore.replication.slave import SlaveNote
from mqcore.shm.retention import LogWords
from mqcore.store.crc32 import crc32c
from tests.replication.ends import HEAD as FRAME
from tests.replication.ends import (
    SEGMENT_SIZE,
    MasterEnd,
    Peer,
    SlaveEnd,
    segments,
    wait_for_end,
)
from tests.replication.test_slave import accepted, asked, reported
from tests.support.waiting import wait_until

FIRST = epochs.first("a/h:1", 0, 1)
WORDS = words("a", "c", SEGMENT_SIZE, FIRST)


def greeted(end: int, history: History, *, checked: tuple[int, int] = (0, 0), crc: int = 0,
            ) -> Greeting:
    return Greeting(end, *checked, crc, "a", "c", SEGMENT_SIZE, history)


def test_words_come_back() -> None:
    found = decode(HEAD.pack(100, 40, 60, 7) + WORDS)
    assert found == Greeting(100, 40, 60, 7, "a", "c", SEGMENT_SIZE, FIRST, tells=True)
    said = words("a", "c", SEGMENT_SIZE, FIRST, Role.SLAVE)
    assert decode(HEAD.pack(0, 0, 0, 0) + said).role == "slave"
    nonsense = said.replace(b'"slave"', b'"king"')
    assert decode(HEAD.pack(0, 0, 0, 0) + nonsense).role == ""
    earlier = WORDS.replace(b'"tells": true, ', b"")         # of a version that does not
    assert not decode(HEAD.pack(100, 40, 60, 7) + earlier).tells


@pytest.mark.parametrize(("body", "says"), [
    (b"", "0 bytes"), (HEAD.pack(5, 0, 6, 0) + WORDS, "the positions 5, 0, 6"),
    (HEAD.pack(5, 4, 3, 0) + WORDS, "the positions 5, 4, 3"),
    (HEAD.pack(1 << 40, 0, 1 << 30, 0) + WORDS, "the positions"),
    (HEAD.pack(0, 0, 0, 0) + b"{", "cannot be read"),
    (HEAD.pack(0, 0, 0, 0) + epochs.encode(FIRST), "without the name of its"),
    (HEAD.pack(0, 0, 0, 0) + WORDS.replace(str(SEGMENT_SIZE).encode(), b"null"),
     "without segmentBytes"),
    (HEAD.pack(0, 0, 0, 0) + json.dumps({**json.loads(WORDS), "broker": "x" * 256}).encode(),
     "without the name of its"),
])
def test_a_greeting_that_cannot_be_is_refused(body: bytes, says: str) -> None:
    with pytest.raises(OtherLogError, match=says):
        decode(body)


def test_another_brokers_log_is_refused_by_its_name() -> None:
    with pytest.raises(OtherLogError, match="broker a of cluster c: expected b of c"):
        check_names(greeted(0, FIRST), "b", "c", SEGMENT_SIZE)
    with pytest.raises(OtherLogError, match="segment_size_bytes is 8192, here it is 4096"):
        check_names(greeted(0, FIRST), "a", "c", 4096)


def test_a_log_that_is_the_beginning_of_the_masters_goes_on() -> None:
    theirs = greeted(900, FIRST.begun(500, "a/h:2", 2), checked=(490, 500), crc=crc32c(b"x"))
    for mine in (FIRST, None):
        check_log(theirs, mine, 500, lambda start, end: crc32c(b"x"))
    check_log(greeted(900, FIRST), None, 0, lambda start, end: 1)


def test_a_log_that_has_more_than_the_master_has_parted_from_it() -> None:
    theirs = greeted(900, FIRST.begun(500, "a/h:2", 2), checked=(590, 600))
    with pytest.raises(PartedError, match="100 bytes of the log here, from position 500 on") as at:
        check_log(theirs, FIRST, 600, lambda start, end: 0)
    assert at.value.position == 500


def test_a_slave_that_is_behind_has_not_parted() -> None:
    """The middle of a chain gets the rest: nothing is to be cut here."""
    middle = Greeting(500, 490, 500, 7, "a", "c", SEGMENT_SIZE, FIRST, role="slave")
    with pytest.raises(BehindError, match="its log ends at position 500, before the end here, 600"):
        check_log(middle, FIRST, 600, lambda start, end: 7)
    for parted in (replace(middle, role="sync-master"),
                   replace(middle, history=FIRST.begun(450, "a/h:2", 2))):
        with pytest.raises(PartedError):
            check_log(parted, FIRST, 600, lambda start, end: 7)


@pytest.mark.parametrize(("mine", "crc", "says"), [
    (epochs.first("a/h:1", 0, 1), 7, "began apart"), (FIRST, 8, "another one than the master's"),
    (None, 8, "another one than the master's")])
def test_another_log_is_refused(mine: History | None, crc: int, says: str) -> None:
    theirs = greeted(900, FIRST, checked=(490, 500), crc=7)
    with pytest.raises(OtherLogError, match=says):
        check_log(theirs, mine, 500, lambda start, end: crc)


def test_a_slave_that_was_away_for_too_long_is_told_so(tmp_path: Path) -> None:
    """The log behind its end is deleted at the master, which only closed the link."""
    master = MasterEnd(tmp_path, greeting=WORDS)
    master.send(200)
    master.run.segment.set_dispatched(master.end, 0)
    LogWords(master.run.segment).raise_first(SEGMENT_SIZE)
    with master.turning():
        for has, told in ((100, SEGMENT_SIZE), (0, 0), (SEGMENT_SIZE, SEGMENT_SIZE)):
            peer = Peer.of(master.address)
            peer.report(ANNOUNCE, has)
            theirs = decode(peer.frame()[1])
            assert (theirs.checked_from, theirs.checked_to, theirs.crc32c) == (told, told, 0)
            if has == 100:
                with pytest.raises(OtherLogError, match="begins at position 8192"):
                    check_log(theirs, FIRST, has, lambda *_: 0)
            else:
                check_log(theirs, FIRST, has, lambda *_: 0)
            peer.close()
    master.close()


@pytest.mark.parametrize("has", [0, 1, 2000, SEGMENT_SIZE - 40, SEGMENT_SIZE, SEGMENT_SIZE + 200])
def test_a_master_shows_the_bytes_below_a_slaves_end(tmp_path: Path, has: int) -> None:
    master = MasterEnd(tmp_path, greeting=WORDS)
    master.send(80)
    log = b"".join(segments(master.run, master.end).values())
    with master.turning():
        peer = Peer.of(master.address)
        peer.report(ANNOUNCE, has)
        position, body = peer.frame()
        found = decode(body)
        assert (position, found.end, found.history) == (ANNOUNCE, master.end, FIRST)
        assert found.checked_to == has
        assert crc32c(log[found.checked_from:has]) == found.crc32c
        assert found.checked_from == has or found.checked_from // SEGMENT_SIZE == (
            has - 1) // SEGMENT_SIZE
        assert found.checked_from < has or has == 0
        peer.report(has)                                   # it is believed
        start, data = peer.bytes_up_to(master.end)
        assert (start, data) == (has, log[has:master.end])
        peer.close()
    master.close()


def test_a_slave_with_more_than_its_master_hears_where_that_one_ends(tmp_path: Path) -> None:
    master = MasterEnd(tmp_path, greeting=WORDS)
    master.send(3)
    with master.turning():
        peer = Peer.of(master.address)
        peer.report(ANNOUNCE, master.end + 500)
        found = decode(peer.frame()[1])
        assert (found.end, found.checked_to) == (master.end, master.end)
        peer.report(master.end + 500)
        assert peer.is_closed()
    master.close()


def test_a_slave_writes_nothing_before_the_greeting_is_believed(tmp_path: Path) -> None:
    master = MasterEnd(tmp_path / "master", greeting=WORDS)
    master.send(40)
    slave = SlaveEnd(tmp_path / "slave")
    with master.turning(), slave.turning():
        slave.link(master.address)
        wait_until(lambda: (int(SlaveNote.NOTE_GREETED), len(slave.loop.greeting()))
                   in slave.loop.notes(), "a greeting")
        assert decode(slave.loop.greeting()).end == master.end
        assert slave.end == 0
        slave.loop.follow()
        slave.run.segment.ring_bell(slave.slot)
        wait_for_end(slave, master.end)
        assert segments(slave.run, slave.end) == segments(master.run, master.end)
    master.close()


def test_a_slave_reports_nothing_before_the_greeting_is_believed(tmp_path: Path) -> None:   # HS7
    slave = SlaveEnd(tmp_path / "slave", heartbeat_ms=1)
    with socket.create_server(("127.0.0.1", 0)) as listener, slave.turning():
        slave.link(listener.getsockname())
        peer = Peer(listener.accept()[0])
        peer.exactly(16)
        peer.send(ANNOUNCE, bytes(30))
        wait_until(lambda: slave.loop.greeting() == bytes(30), "a greeting")
        peer.link.settimeout(0.5)

        def is_silent() -> bool:
            try:
                peer.link.recv(65_536)
            except TimeoutError:
                return True
            return False

        wait_until(is_silent, "no report in half a second")
        peer.link.settimeout(20)
        slave.loop.follow()
        slave.run.segment.ring_bell(slave.slot)
        assert peer.exactly(8) == bytes(8)
        peer.close()


@pytest.mark.parametrize("sent", [
    FRAME.pack(-1, 0), FRAME.pack(-1, 27) + bytes(27), FRAME.pack(-1, 30) + bytes(30) + b"more"],
    ids=["nothing", "too little", "more"])
def test_a_master_that_sends_no_greeting_alone_is_left(tmp_path: Path, sent: bytes) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    slave = SlaveEnd(tmp_path / "slave")
    with slave.turning():
        slave.link(listener.getsockname())
        peer = Peer(listener.accept()[0])
        peer.link.sendall(sent)
        assert peer.is_closed()
        wait_until(lambda: not slave.loop.linked, "the link's end")
    assert SlaveNote.NOTE_BAD_FRAME in [kind for kind, _ in slave.loop.notes()]
    listener.close()


def test_a_link_is_greeted_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        slave = SlaveEnd(tmp_path / "slave")
        with slave.turning():
            slave.link(listener.getsockname())
            peer = Peer(listener.accept()[0])
            peer.send(-1, bytes(30))
            wait_until(lambda: slave.loop.greeting() == bytes(30), "a greeting")
            slave.loop.follow()
            peer.send(-1, bytes(30))
            assert peer.is_closed()
            wait_until(lambda: not slave.loop.linked, "the link's end")
    assert (SlaveNote.NOTE_OTHER_PLACE, -1) in slave.loop.notes()


def test_the_first_report_is_not_repeated_before_its_answer(tmp_path: Path) -> None:
    """HS14: a master that stands still for longer than a heartbeat would take it for more."""
    slave = SlaveEnd(tmp_path / "slave", heartbeat_ms=20)
    with socket.create_server(("127.0.0.1", 0)) as listener, slave.turning():
        peer = accepted(listener, slave)
        assert asked(peer) == (ANNOUNCE, 0)
        peer.link.settimeout(0.3)
        with pytest.raises(TimeoutError):
            peer.link.recv(1)
        peer.link.settimeout(20)
        peer.send(0, b"")                      # a stock master's heartbeat
        reported(peer, 0)
        reported(peer, 0)
        peer.close()
