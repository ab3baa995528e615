"""The loop whose frames Python answers, by hand (mqcore/net/framed/loop.pxd)."""
from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from mqcore.net.framed.loop import FramedLoop
from mqcore.net.remoting.frames import FrameCloseReason
from tests.support.waiting import wait_until

FRAME_MAX = 1 << 20
OUTPUT_MAX = 1 << 16
MANY = 50


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


class Server:
    """frames: what came, in its order; begun, ended: connections."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.loop = FramedLoop(
            [self.listener], connection_max=64, memory_bytes=64 << 20, frame_bytes_max=FRAME_MAX,
            output_bytes_max=OUTPUT_MAX, idle_ms=600_000)
        self.frames: list[tuple[int, bytes]] = []
        self.begun: list[int] = []
        self.ended: list[int] = []

    def connect(self) -> socket.socket:
        return socket.create_connection(self.listener.getsockname(), 30)

    def turn(self) -> None:
        for number, what in self.loop.turn(False):
            if isinstance(what, bytes):
                self.frames.append((number, what))
            else:
                (self.ended if what is None else self.begun).append(number)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        def looked() -> bool:
            self.turn()
            return condition()

        wait_until(looked, what)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.loop.end()


def test_python_has_one_frame_of_a_connection_at_a_time(server: Server) -> None:      # FL1
    with server.connect() as peer, server.connect() as other:
        peer.sendall(b"".join(framed(b"%d" % number) for number in range(MANY)))
        server.until(lambda: len(server.frames) == 1, "the first one")
        other.sendall(framed(b"other"))
        server.until(lambda: len(server.frames) == 2, "that of another one")
        (first, said), (second, _) = server.frames
        assert said == b"0"
        got = [server.loop.done(first) for _ in range(MANY)]
        assert got == [*(b"%d" % number for number in range(1, MANY)), None]
        assert server.loop.done(second) is None
        assert server.loop.memory_used < OUTPUT_MAX


def test_a_frame_counts_until_it_is_done_though_its_peer_has_gone(server: Server) -> None:    # FL2
    with server.connect() as peer:
        peer.sendall(framed(bytes(FRAME_MAX)))
        server.until(lambda: len(server.frames) == 1, "the first one")
        number = server.frames[0][0]
        assert server.loop.memory_used >= FRAME_MAX
    server.until(lambda: server.loop.is_gone(number), "its end is heard")
    assert server.loop.memory_used >= FRAME_MAX
    assert server.loop.done(number) is None
    server.until(lambda: bool(server.ended), "it is closed")
    assert server.loop.memory_used == 0


def test_what_came_before_the_end_comes_and_then_the_end(server: Server) -> None:
    with server.connect() as peer:
        peer.sendall(b"".join(framed(b"%d" % number) for number in range(MANY)))
        server.until(lambda: len(server.frames) == 1, "the first one")
    number = server.begun[0]
    got = [server.frames.pop()[1]]
    while not server.ended:
        following = server.loop.done(number)
        server.turn()
        got += [following] if following is not None else [one for _, one in server.frames]
        server.frames.clear()
    assert got == [b"%d" % each for each in range(MANY)]
    assert server.loop.is_gone(number)
    assert server.loop.memory_used == 0


def test_who_does_not_read_his_answers_asks_nothing_more(server: Server) -> None:
    with server.connect() as peer:
        peer.sendall(b"".join(framed(b"%d" % number) for number in range(MANY)))
        server.until(lambda: len(server.frames) == 1, "the first one")
        number, frame = server.frames.pop()
        answered = 0
        following: bytes | None = frame
        while following is not None:
            server.loop.answer(number, bytes(FRAME_MAX))
            answered += 1
            server.turn()
            following = server.loop.done(number)
        assert answered < MANY
        left = answered * FRAME_MAX
        while left:
            left -= len(peer.recv(min(left, FRAME_MAX)))
            server.turn()
        server.until(lambda: len(server.frames) == 1, "its next one")
        assert server.frames[0][1] == b"%d" % answered


@pytest.mark.parametrize("length", [FRAME_MAX + 1, -1])
def test_a_frame_that_is_too_long_ends_its_connection(server: Server, length: int) -> None:
    with server.connect() as peer:
        peer.sendall(length.to_bytes(4, "big", signed=True))
        server.until(lambda: bool(server.ended), "it is closed")
        events, lost = server.loop.events()
        assert ([(reason, detail) for _, reason, detail in events], lost) == (
            [(FrameCloseReason.CLOSE_FRAME_LENGTH, length)], 0)
