"""No frame is urgent only because its sender flags it so (N24)."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from mqcore.shm.coordinator_rings import Forwarded
from mqcore.wire.codes import FLAG_ONEWAY, FLAG_RESPONSE
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import Command, decode, encode, request
from tests.net.serving import Serving
from tests.wire_live.peer import Peer

PARTS = 500 << 10                   # bytes: travels in parts
NEXT = encode(request(Code.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}))


def answer(opaque: int, body: bytes = b"") -> bytes:
    return encode(Command(0, opaque=opaque, flag=FLAG_RESPONSE, body=body))


def opaques(items: list[Forwarded]) -> list[int]:
    return [decode(item.frame).opaque for item in items if decode(item.frame).is_response]


def begun(serving: Serving, peer: Peer) -> int:
    """The number of a connection."""
    serving.send(peer, NEXT)
    return serving.forwarded()[0].connection


def asks(serving: Serving, connection: int, opaque: int, flag: int = 0) -> None:
    serving.rings.send(connection, encode(Command(
        Code.GET_CONSUMER_RUNNING_INFO, opaque=opaque, flag=flag, ext={"clientId": "c"})))
    serving.turn()


@pytest.mark.parametrize("size", [0, 1000, 300_000, PARTS])
def test_an_answer_that_nobody_asked_for_does_not_reach_the_coordinator(
    tmp_path: Path, size: int,
) -> None:
    serving = Serving(tmp_path)
    with serving.connect() as peer:
        for number in range(3):
            serving.send(peer, answer(number, b"x" * size))
        serving.send(peer, NEXT)
        (item,) = serving.forwarded()
        assert decode(item.frame).code == Code.GET_MAX_OFFSET
        assert not item.urgent


@pytest.mark.parametrize("size", [0, PARTS])
def test_a_question_has_one_answer_which_is_urgent(tmp_path: Path, size: int) -> None:
    serving = Serving(tmp_path)
    with serving.connect() as peer, serving.connect() as other:
        connection = begun(serving, peer)
        for opaque in (5, 6):
            asks(serving, connection, opaque)
        asks(serving, connection, 7, FLAG_ONEWAY)
        serving.send(other, answer(5) + NEXT)
        serving.send(peer, b"".join(answer(opaque, b"x" * size) for opaque in (6, 5, 5, 7)) + NEXT)
        items = serving.forwarded(4)
        assert opaques(items) == [6, 5]
        assert [item.urgent for item in items if decode(item.frame).is_response] == [True, True]


def test_the_next_coordinator_has_asked_nothing(tmp_path: Path) -> None:
    serving = Serving(tmp_path)
    with serving.connect() as peer:
        asks(serving, begun(serving, peer), 5)
        serving.another_coordinator()
        serving.turn()
        serving.send(peer, answer(5) + NEXT)
        (item,) = serving.forwarded()
        assert decode(item.frame).code == Code.GET_MAX_OFFSET


def test_a_header_that_only_the_coordinator_reads_is_not_urgent_and_not_kept(
    tmp_path: Path,
) -> None:
    """Its first code says heartbeat, and its last one something else; or it says answer."""
    serving = Serving(tmp_path)
    with serving.connect() as peer:
        for header in ('{"code":34,"more":{},"code":28,"flag":0,"opaque":1}',
                       '{"flag":1,"code":34,"more":[],"opaque":1}'):
            raw = header.encode()
            serving.send(peer, (len(raw) + 4).to_bytes(4, "big") + len(raw).to_bytes(4, "big")
                         + raw)
        items = serving.forwarded(2)
        assert json.loads(items[0].frame[4:])["code"] == Code.GET_BROKER_RUNTIME_INFO
        assert [item.urgent for item in items] == [False, False]
        serving.another_coordinator()
        serving.send(peer, NEXT)
        assert [item.repeated for item in serving.forwarded()] == [False]
