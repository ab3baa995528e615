"""One connection that asks without end delays the others by little (serving/forward.pxd, N5)."""
from __future__ import annotations

import socket

from mqcore.wire.codes import RequestCode
from mqcore.wire.command import encode, request
from tests.support.mqcore_process import MqcoreProcess
from tests.wire_live.peer import LENGTH_SIZE, Peer

FLOOD = 8_000                   # twice as many as the ring to the coordinator has room for
ANSWERED_MEANWHILE_MAX = 1_500


def questions(count: int) -> bytes:
    """Requests that serving processes do not answer by themselves."""
    return b"".join(
        encode(request(RequestCode.GET_MAX_OFFSET, {"topic": "TBW102", "queueId": "0"}))
        for _ in range(count))


def answers_here(peer: Peer) -> int:
    """How many answers have come, without waiting for more."""
    peer.socket.setblocking(False)
    data = b""
    try:
        while True:
            data += peer.socket.recv(1 << 20)
    except BlockingIOError:
        count = at = 0
        while at + LENGTH_SIZE <= len(data):
            at += LENGTH_SIZE + int.from_bytes(data[at:at + LENGTH_SIZE], "big")
            count += at <= len(data)
        return count


def test_a_question_is_answered_long_before_a_flood_that_came_first(live: MqcoreProcess) -> None:
    flood = questions(FLOOD)
    with Peer(live.broker_addr) as flooder, Peer(live.broker_addr) as other:
        flooder.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        flooder.send(flood)
        assert other.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}).code == 0
        meanwhile = answers_here(flooder)

    assert meanwhile < ANSWERED_MEANWHILE_MAX


def test_every_request_of_a_flood_is_answered_in_the_end(live: MqcoreProcess) -> None:
    with Peer(live.broker_addr) as flooder:
        flooder.send(questions(FLOOD))
        for _ in range(FLOOD):
            assert flooder.receive().code == 0
