"""What others have, said to slaves of ours that ask: HM10, HS9 of mqcore/replication, G9, G10."""
from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.participants import HA_MASTER
from mqcore.replication import epochs
from mqcore.replication.greet import ANNOUNCE, TELL
from mqcore.replication.greeting import decode, words
from mqcore.replication.link_end import MasterNote
from mqcore.replication.slave import SlaveNote
from mqcore.shm.figure_slots import FigureSlots
from mqcore.shm.replica_gate import ReplicaPen
from mqcore.wire.codes import RequestCode
from tests.interop.ask import stored_count
from tests.replication.ends import (
    HEAD,
    REPORT,
    SEGMENT_SIZE,
    MasterEnd,
    Peer,
    SlaveEnd,
    segments,
    wait_for_end,
)
from tests.replication.pairs import NAME, slave_up
from tests.support.mqcore_process import MqcoreProcess, mqcore_namesrv, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer as Client
from tests.wire_live.peer import send_fields
from tests.workers.test_end import segment_of

WORDS = words("a", "c", SEGMENT_SIZE, epochs.first("a/h:1", 0, 1))
FEW = 5


@pytest.fixture
def master(tmp_path: Path) -> Iterator[MasterEnd]:
    made = MasterEnd(tmp_path / "master", greeting=WORDS)
    made.send(FEW)
    yield made
    made.close()


def greeted(master: MasterEnd) -> Peer:
    """A slave of ours with an empty log, that has heard whose log it is."""
    peer = Peer.of(master.address)
    peer.report(ANNOUNCE, 0)
    assert decode(peer.frame()[1]).tells
    return peer


def test_who_asks_hears_what_others_have(master: MasterEnd) -> None:
    with master.turning():
        peer = greeted(master)
        peer.report(TELL, 0)
        assert len(peer.bytes_up_to(master.end)[1]) == master.end
        for position in (1, master.end - 1, master.end):
            peer.report(position)
            assert peer.frame() == (TELL, REPORT.pack(position))
        peer.report(master.end)                              # nothing new is nothing to say
        master.send(1)
        assert peer.frame()[0] == master.end - (master.end // (FEW + 1))
        peer.close()


def test_another_slave_hears_of_what_the_first_one_has(master: MasterEnd) -> None:
    """A word never lies in a frame, and comes to who has nothing to be sent."""
    with master.turning():
        first, second = greeted(master), greeted(master)
        for peer in (first, second):
            peer.report(TELL, 0)
            assert peer.bytes_up_to(master.end)[0] == 0
        first.report(master.end)
        for peer in (first, second):
            assert peer.frame() == (TELL, REPORT.pack(master.end))
            peer.close()


@pytest.mark.parametrize("ours", [False, True], ids=["stock", "ours"])
def test_who_does_not_ask_hears_the_log_alone(master: MasterEnd, ours: bool) -> None:
    with master.turning():
        asking = greeted(master)
        asking.report(TELL, 0)
        asking.bytes_up_to(master.end)
        peer = greeted(master) if ours else Peer.of(master.address)
        peer.report(0)
        assert peer.bytes_up_to(master.end)[0] == 0
        peer.report(master.end)
        assert asking.frame() == (TELL, REPORT.pack(master.end))
        end = master.end
        master.send(1)
        assert peer.frame()[0] == end
        peer.close()
        asking.close()


def test_a_slave_that_has_slaves_counts_no_reports(tmp_path: Path) -> None:                 # HM11
    """Its own master may take back a part of the log that its slaves have."""
    made = MasterEnd(tmp_path / "hands on", hands_on=True)
    made.send(FEW)
    figures, pen = FigureSlots(made.run.segment), ReplicaPen(made.run.segment)
    with made.turning():
        peer = Peer.of(made.address)
        peer.report(0)
        peer.bytes_up_to(made.end)
        wait_until(lambda: figures.total("slave_lag_bytes") == made.end, "a slave")
        peer.report(made.end)
        wait_until(lambda: figures.total("slave_lag_bytes") == 0, "its report")
        peer.close()
    made.close()
    assert (pen.replicated, pen.present) == (0, False)


@pytest.mark.parametrize("reports", [(ANNOUNCE, TELL, 0), (ANNOUNCE, 0, TELL, TELL, 0),
                                     (ANNOUNCE, 0, 0, TELL)])
def test_who_asks_at_another_time_is_no_slave(master: MasterEnd, reports: tuple[int, ...]) -> None:
    with master.turning():
        peer = Peer.of(master.address)
        peer.report(*reports)
        notes: list[int] = []

        def is_refused() -> bool:
            notes.extend(kind for kind, _, _ in master.loop.notes()[0])
            return MasterNote.NOTE_NONSENSE in notes

        wait_until(is_refused, "the link's end")
        peer.close()


def test_the_end_waits_until_all_was_said(master: MasterEnd) -> None:
    """Else followers would not show the last messages of a master that was stopped in order."""
    with master.turning():
        peer = greeted(master)
        peer.report(TELL, 0)
        peer.bytes_up_to(master.end)
    peer.report(master.end)
    master.run.segment.begin_incarnation(HA_MASTER.slot)
    master.loop.run(20_000, until_even=True)
    assert peer.frame() == (TELL, REPORT.pack(master.end))
    peer.close()


# -- at a slave ------------------------------------------------------------------------------------


@pytest.fixture
def slave(tmp_path: Path) -> SlaveEnd:
    return SlaveEnd(tmp_path / "slave")


def asked(slave: SlaveEnd, listener: socket.socket, asks: bool = True) -> Peer:
    """A master by hand, whose greeting the slave believes."""
    slave.link(listener.getsockname())
    slave.run.segment.ring_bell(slave.slot)
    peer = Peer(listener.accept()[0])
    assert peer.exactly(16) == REPORT.pack(ANNOUNCE) + REPORT.pack(slave.end)
    peer.send(ANNOUNCE, bytes(30))
    wait_until(lambda: slave.loop.greeting() == bytes(30), "a greeting")
    slave.loop.follow(asks=asks)
    slave.run.segment.ring_bell(slave.slot)
    if asks:
        assert peer.exactly(8) == REPORT.pack(TELL)
    assert peer.exactly(8) == REPORT.pack(slave.end)
    return peer


def test_a_log_that_comes_before_the_question_is_not_shown(                              # G10
    master: MasterEnd, slave: SlaveEnd,
) -> None:
    """A master that stood still takes a position said again for the answer to its greeting."""
    pen = ReplicaPen(slave.run.segment)
    with socket.create_server(("127.0.0.1", 0)) as listener, slave.turning():
        slave.link(listener.getsockname())
        slave.run.segment.ring_bell(slave.slot)
        peer = Peer(listener.accept()[0])
        peer.exactly(16)
        peer.send(ANNOUNCE, bytes(30))
        wait_until(lambda: slave.loop.greeting() == bytes(30), "a greeting")
        peer.send(0, b"".join(segments(master.run, master.end).values())[:master.end])
        slave.loop.follow(asks=True)
        slave.run.segment.ring_bell(slave.slot)
        wait_for_end(slave, master.end)
        assert peer.exactly(8) == REPORT.pack(TELL)
    assert (pen.told, pen.shown_end(slave.end)) == (0, 0)


def test_what_a_master_says_may_stand_between_any_frames_in_any_pieces(
    master: MasterEnd, slave: SlaveEnd,
) -> None:
    log = b"".join(segments(master.run, master.end).values())[:master.end]
    pen = ReplicaPen(slave.run.segment)
    stream = b""
    for at in range(0, master.end, 100):
        body = log[at:at + 100]
        stream += (HEAD.pack(TELL, 8) + REPORT.pack(at // 2)
                   + HEAD.pack(at, len(body)) + body)
    stream += HEAD.pack(TELL, 8) + REPORT.pack(3) + HEAD.pack(master.end, 0)   # never back
    for piece in (1, 7, len(stream)):
        with socket.create_server(("127.0.0.1", 0)) as listener, slave.turning():
            peer = asked(slave, listener)
            peer.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for at in range(0, len(stream), piece):
                peer.link.sendall(stream[at:at + piece])
            wait_for_end(slave, master.end)
            wait_until(lambda: pen.told == (master.end - 1) // 100 * 100 // 2, "what was said")
            slave.loop.unlink()
            slave.run.segment.ring_bell(slave.slot)
        assert segments(slave.run, slave.end) == segments(master.run, master.end)
        assert pen.shown_end(slave.end) == pen.told < slave.end
        stream = HEAD.pack(TELL, 8) + REPORT.pack(1)
        master.send(0)


@pytest.mark.parametrize(("frame", "note"), [
    (HEAD.pack(TELL, 7) + bytes(7), (SlaveNote.NOTE_BAD_FRAME, 7)),
    (HEAD.pack(TELL, 0), (SlaveNote.NOTE_BAD_FRAME, 0)),
    (HEAD.pack(TELL, 8) + REPORT.pack(-1), (SlaveNote.NOTE_OTHER_PLACE, -1)),
    (HEAD.pack(TELL, 8) + REPORT.pack(1 << 60), (SlaveNote.NOTE_OTHER_PLACE, 1 << 60))])
def test_what_no_master_says_ends_the_link(
    slave: SlaveEnd, frame: bytes, note: tuple[int, int],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, slave.turning():
        peer = asked(slave, listener)
        peer.link.sendall(frame)
        assert peer.is_closed()
        wait_until(lambda: not slave.loop.linked, "the link's end")
    assert note in slave.loop.notes()
    assert ReplicaPen(slave.run.segment).told == 0


def test_who_has_not_asked_is_told_nothing(slave: SlaveEnd) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, slave.turning():
        peer = asked(slave, listener, asks=False)
        peer.send(TELL, REPORT.pack(7))
        assert peer.is_closed()
        wait_until(lambda: not slave.loop.linked, "the link's end")
    assert (SlaveNote.NOTE_OTHER_PLACE, TELL) in slave.loop.notes()
    assert ReplicaPen(slave.run.segment).told == 0


def test_the_log_of_a_master_that_cannot_say_it_is_shown_as_it_comes(
    slave: SlaveEnd, tmp_path: Path,
) -> None:
    pen = ReplicaPen(slave.run.segment)
    assert pen.shown_end(100) == 0
    master = MasterEnd(tmp_path / "stock")
    master.send(FEW)
    with master.turning(), slave.turning():
        slave.link(master.address)
        slave.run.segment.ring_bell(slave.slot)
        wait_for_end(slave, master.end)
    assert pen.shown_end(slave.end) == slave.end
    pen.show_below(1)                                              # of one that can
    assert pen.shown_end(slave.end) == 1
    master.close()


def test_what_a_master_began_with_is_shown_and_nothing_goes_back(slave: SlaveEnd) -> None:
    pen = ReplicaPen(slave.run.segment)
    pen.show_below(50)
    assert (pen.shown_end(40), pen.shown_end(100)) == (40, 50)
    pen.show_below(30)
    assert pen.shown_end(100) == 50
    pen.move(70)                                             # who leads has counted it itself
    assert pen.shown_end(100) == 70


# -- brokers ---------------------------------------------------------------------------------------


def send_one(broker: MqcoreProcess) -> int:
    with Client(broker.broker_addr) as client:
        return client.ask(RequestCode.SEND_MESSAGE_V2, send_fields("TopicTest"), b"x").code


def seen(broker: MqcoreProcess) -> int:
    return stored_count(broker.broker_addr, "TopicTest", range(4))


@pytest.mark.slow
def test_a_follower_does_not_serve_what_its_master_could_not_replicate(tmp_path: Path) -> None:
    """Over a start of the follower, too; all of them serve it when the set is whole again."""
    only = {"replication.read_replicated_only": True}
    end = segment_end
    with mqcore_namesrv(tmp_path / "names") as names, contextlib.ExitStack() as stack:
        master = stack.enter_context(mqcore_up(tmp_path / "master", {
            "broker.name": NAME, "replication.listen": True, "replication.role": "sync-master",
            "replication.min_in_sync": 2, "replication.slave_timeout_ms": 200, **only,
        }, namesrv_addr=names.namesrv_addr))
        port = int(master.broker_addr.rpartition(":")[2]) + 1
        place = {"replication.master_address": f"127.0.0.1:{port}", **only}
        with slave_up(tmp_path / "first", names.namesrv_addr, place) as first:
            with slave_up(tmp_path / "second", names.namesrv_addr,
                          {**place, "broker.id": 2}) as second:
                codes = [send_one(master)]
                wait_until(lambda: codes[-1] == 0 or codes.append(send_one(master)), "both slaves")
                shown = len(codes)
                for broker in (master, first, second):
                    wait_until(lambda broker=broker: seen(broker) == shown, "what all have")
            assert send_one(master) != 0                     # stored, and one of two has it
            wait_until(lambda: end(first) == end(master), "the log at the follower")
            assert {seen(master), seen(first)} == {shown}
            # and so after a start anew
        with slave_up(tmp_path / "first", names.namesrv_addr, place) as first:
            wait_until(lambda: end(first) == end(master), "the log at the follower")
            assert {seen(master), seen(first)} == {shown}
            with slave_up(tmp_path / "second", names.namesrv_addr, {**place, "broker.id": 2}):
                for broker in (master, first):
                    wait_until(lambda broker=broker: seen(broker) == shown + 1, "all of it")


def segment_end(broker: MqcoreProcess) -> int:
    return int(segment_of(broker).log_state()["published"])
