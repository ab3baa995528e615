"""Peers whose records hold a byte each: their cost is counted, and others are not kept waiting."""
from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable, Iterator

import pytest

from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import Command, encode, request
from tests.attacks.medians import honest_beside
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.tls.certificates import careless
from tests.tls.pieces import Pieces
from tests.wire_live.peer import Peer, send_fields, topic_fields
from tests.workers.processes import pid_of

PEERS, FRAME_BYTES = 12, 2_500            # 57 kB of records each: what a socket takes unread
TOPIC = "crumbs"
SETTINGS = {"tls.test_mode": True, "processes.serving_count": 1}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    with mqcore_up(tmp_path_factory.mktemp("crumbs"), SETTINGS) as running:
        with Peer(running.broker_addr) as peer:
            assert peer.ask(Code.UPDATE_AND_CREATE_TOPIC, topic_fields(TOPIC, 1)).code == 0
        yield running


def sending(size: int) -> Command:
    return request(Code.SEND_MESSAGE_V2, dict(send_fields(TOPIC)), b"x" * size)


def asking(size: int) -> Command:
    return request(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC}, b"x" * size)


def crumbs(peer: Pieces, command: Command) -> bytes:
    """A request, in a record for each of its bytes."""
    frame = encode(command)
    return b"".join(peer.record(frame[at:at + 1]) for at in range(len(frame)))


@pytest.mark.parametrize(("process", "made"), [("pull-serving-0", sending), ("namesrv", asking)])
def test_who_sends_a_byte_in_a_record_waits_behind_those_who_send_frames(
    process: str, made: Callable[[int], Command], broker: MqcoreProcess,
) -> None:
    address = broker.namesrv_addr if process == "namesrv" else broker.broker_addr
    with contextlib.ExitStack() as ends:
        honest = ends.enter_context(Peer(address))
        first = made(1)
        honest.send(encode(first))
        honest.answer_to(first.opaque)
        peers = [Pieces(address, careless()) for _ in range(PEERS)]
        for peer in peers:
            ends.callback(peer.socket.close)
            peer.shake(data=encode(made(1)))
            assert peer.read()                          # behind what else the server says
        sent = [crumbs(peer, made(FRAME_BYTES)) for peer in peers]
        pid = pid_of(broker, process)
        os.kill(pid, signal.SIGSTOP)
        try:
            for peer, records in zip(peers, sent, strict=True):
                peer.socket.sendall(records)
            asked = made(1)
            honest.send(encode(asked))
        finally:
            os.kill(pid, signal.SIGCONT)
        honest.answer_to(asked.opaque)
        answered, _, _ = select.select([peer.socket for peer in peers], [], [], 0)
        assert len(answered) <= PEERS // 2
        assert all(peer.read() for peer in peers)      # every request is taken in its turn


def test_a_client_is_served_beside_them(broker: MqcoreProcess) -> None:
    with contextlib.ExitStack() as ends:
        peers = [Pieces(broker.broker_addr, careless()) for _ in range(PEERS)]
        for peer in peers:
            ends.callback(peer.socket.close)
            peer.shake(data=encode(sending(1)))
            assert peer.read()
        sent = [crumbs(peer, sending(FRAME_BYTES)) for peer in peers]
        with honest_beside(broker.broker_addr):
            for peer, records in zip(peers, sent, strict=True):
                peer.socket.sendall(records)
            assert all(peer.read() for peer in peers)
