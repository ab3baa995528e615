"""What a serving process has of a coordinator that died, and what it tells the next one."""
from __future__ import annotations

from pathlib import Path

import pytest

from mqcore.shm.coordinator_rings import Forwarded
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import Command, decode, encode, request
from tests.net.serving import Serving
from tests.wire_live.peer import Peer

RING_BYTES = 1 << 20
WHOLE_BYTES = 384 << 10             # larger frames go in parts
EACH_BYTES = 64 << 10               # of what is kept, beside the sum for more


def beat(serving: Serving, peer: Peer, body: bytes) -> None:
    serving.send(peer, encode(request(Code.HEART_BEAT, {}, body)))


def leave(serving: Serving, peer: Peer, group: str) -> None:
    serving.send(peer, encode(request(
        Code.UNREGISTER_CLIENT, {"clientID": "c", "consumerGroup": group})))


def said(frame: bytes, body: bytes) -> tuple[int, bytes, str | None]:
    """Code, body and group of a frame as the coordinator gets it."""
    command = decode(frame)
    return command.code, body or command.body, (command.ext or {}).get("consumerGroup")


def repeated(serving: Serving, count: int) -> list[tuple[int, bytes, str | None]]:
    """What the next coordinator hears, which is marked as said before."""
    serving.another_coordinator()
    items = serving.forwarded(count)
    assert all(item.repeated and item.urgent for item in items)
    return [said(item.frame, item.body) for item in items]


# -- N23 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [100, 300_000, 2 * RING_BYTES])
def test_no_answer_is_made_of_parts_of_two_coordinators(tmp_path: Path, size: int) -> None:
    serving = Serving(tmp_path)
    with serving.connect() as peer:
        peer.send(encode(request(Code.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})))
        connection = serving.forwarded()[0].connection
        serving.rings.send(connection, encode(Command(0, body=b"a" * 3 * RING_BYTES)))
        serving.turn()                       # it has the parts that found room
        serving.another_coordinator()
        whole = encode(Command(Code.NOTIFY_CONSUMER_IDS_CHANGED, body=b"b" * size))
        serving.rings.send(connection, whole)
        answer = received(serving, peer)
        assert answer == whole, (len(answer), len(whole))


def test_the_rest_of_an_answer_without_its_beginning_is_dropped(tmp_path: Path) -> None:
    """A serving process begins anew in the middle, with a connection that has the old one's id."""
    serving = Serving(tmp_path)
    asked = encode(request(Code.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}))
    with serving.connect() as peer:
        peer.send(asked)
        connection = serving.forwarded()[0].connection
        serving.rings.send(connection, encode(Command(0, body=b"a" * 3 * RING_BYTES)))
        serving.turn()
        serving.begin_anew()
    with serving.connect() as peer:
        peer.send(asked)
        assert serving.forwarded()[0].connection == connection
        whole = encode(Command(Code.NOTIFY_CONSUMER_IDS_CHANGED, body=b"b" * 300_000))
        serving.rings.send(connection, whole)
        assert received(serving, peer) == whole


def received(serving: Serving, peer: Peer) -> bytes:
    """The next frame for a client; the loop and the rings are turned meanwhile."""
    for _ in range(500):
        serving.turn()
        serving.rings.push_waiting()
        try:
            return peer.receive_frame(0.01)
        except TimeoutError:
            continue
    raise AssertionError("no whole frame came")


# -- N22 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [100, EACH_BYTES + 1, WHOLE_BYTES + 1, 3 * RING_BYTES])
def test_the_last_heartbeat_of_a_client_is_repeated_whatever_its_size(
    tmp_path: Path, size: int
) -> None:
    serving = Serving(tmp_path)
    with serving.connect() as peer, serving.connect() as other:
        beat(serving, peer, b"older")
        beat(serving, peer, b"y" * size)
        serving.forwarded(2)
        beat(serving, other, b"other")
        serving.forwarded(1)
        assert repeated(serving, 2) == [(34, b"y" * size, None), (34, b"other", None)]
        assert repeated(serving, 2) == [(34, b"y" * size, None), (34, b"other", None)]


@pytest.mark.parametrize("size", [100, 3 * RING_BYTES])
def test_who_left_a_group_since_leaves_it_again(tmp_path: Path, size: int) -> None:
    serving = Serving(tmp_path)
    with serving.connect() as peer:
        leave(serving, peer, "before")
        beat(serving, peer, b"y" * size)
        leave(serving, peer, "A")
        leave(serving, peer, "B")
        serving.forwarded(4)
        assert repeated(serving, 3) == [(34, b"y" * size, None), (35, b"", "A"), (35, b"", "B")]
        beat(serving, peer, b"newer")
        serving.forwarded()
        assert repeated(serving, 1) == [(34, b"newer", None)]


def test_of_whom_the_newest_state_does_not_fit_nothing_older_is_repeated(tmp_path: Path) -> None:
    serving = Serving(tmp_path, connection_memory_bytes=16 << 20)
    with serving.connect() as large, serving.connect() as many, serving.connect() as other:
        beat(serving, large, b"older")
        beat(serving, large, b"y" * (3 << 20))        # a quarter is for such, half of it for one
        beat(serving, many, b"of many groups")
        for number in range(200):
            leave(serving, many, f"group-{number}")
        beat(serving, other, b"other")
        serving.forwarded(204)
        assert repeated(serving, 1) == [(34, b"other", None)]
        beat(serving, large, b"smaller")
        beat(serving, many, b"of few groups")
        serving.forwarded(2)
        assert sorted(repeated(serving, 3)) == [
            (34, b"of few groups", None), (34, b"other", None), (34, b"smaller", None)]


def test_what_a_client_says_while_its_last_heartbeat_is_repeated_comes_behind_it(
    tmp_path: Path
) -> None:
    serving = Serving(tmp_path)
    body = b"y" * (3 * RING_BYTES)           # more than there is room for at a time
    with serving.connect() as peer:
        beat(serving, peer, body)
        serving.forwarded()
        serving.another_coordinator()
        serving.turn()
        beat(serving, peer, b"newer")
        for _ in range(20):
            serving.turn()
        items = serving.forwarded(2)
        assert [(item.repeated, said(item.frame, item.body)[1]) for item in items] == [
            (True, body), (False, b"newer")]


def test_a_frame_in_parts_that_is_broken_off_ends_with_its_connection(tmp_path: Path) -> None:
    serving = Serving(tmp_path)
    body = b"y" * (3 * RING_BYTES)
    with serving.connect() as peer, serving.connect() as other:
        beat(serving, peer, body)
        serving.forwarded()
        beat(serving, other, b"other" + body)
        serving.forwarded()
        serving.another_coordinator()
        serving.turn()                       # the first parts are in the ring
        peer.close()
        for _ in range(20):
            serving.turn()
        (item,) = serving.forwarded()
        assert said(item.frame, item.body)[1] == b"other" + body



def test_a_heartbeat_that_comes_while_older_goodbyes_wait_for_room_is_repeated_whole(
    tmp_path: Path,
) -> None:
    serving = Serving(tmp_path)
    newer = b"y" * 700
    with serving.connect() as peer, serving.connect() as one, serving.connect() as other:
        beat(serving, peer, b"")
        leave(serving, peer, "G" * 15_000)
        serving.forwarded(2)
        # room is left for heartbeats, and not for the goodbye
        for number, size in enumerate(15 * [64 << 10] + 6 * [8 << 10]):
            serving.send((one, other)[number % 2], encode(request(
                Code.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}, b"x" * size)))
        serving.another_coordinator()
        beat(serving, peer, newer)
        serving.turn()
        heard = [item for item in serving.rings.receive(100) if isinstance(item, Forwarded)]
        assert [(item.repeated, said(item.frame, item.body)) for item in heard[-3:]] == [
            (True, (34, b"", None)), (False, (34, newer, None)), (True, (34, newer, None))]
