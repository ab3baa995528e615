"""Connections that nobody knows yet do not take a name server's time from those that are made."""
from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mqcore.namesrv import accepting
from mqcore.namesrv.accepting import Accepting, Place
from mqcore.namesrv.shaking import BYTES_MAX, Shake
from mqcore.net.transport.tls_context import self_signed
from mqcore.tls.bounded import BoundedObject
from mqcore.tls.contexts import server_context
from mqcore.tls.settings import TlsServerSettings, expanded
from tests.support.waiting import wait_until_async
from tests.tls.certificates import careless
from tests.tls.floods import client_hello

MANY = 200
SHAKING = 50                      # as many as there may be
ROUNDS_MAX = 100_000
STEP_S = 0.0001                   # of the clock, at each look
AT_ONCE_MAX = 10


@pytest.fixture
def tls(tmp_path: Path) -> TlsServerSettings:
    file = tmp_path / "certificate.pem"
    file.write_bytes(self_signed("names"))
    return expanded(TlsServerSettings(certificate=str(file), handshake_count_max=SHAKING))


class Heard(asyncio.Protocol):
    """A connection that is made: it says again what it hears."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._place.leave()


class Server:
    """Its door alone. places: how many there are now, entered: ever."""

    def __init__(self, tls: TlsServerSettings, context: ssl.SSLContext | None) -> None:
        self.entered = self.places = 0
        self.door = Accepting(tls, idle_ms=60_000, enter=self._enter, make=Heard,
                              room=lambda *_: True)
        self.door.use(context)
        listener = socket.create_server(("127.0.0.1", 0), backlog=MANY)
        self.address = listener.getsockname()
        self.door.listen([listener])

    def _enter(self, host: str) -> Place:
        self.entered += 1
        self.places += 1
        return Place(host, self._leave)

    def _leave(self) -> None:
        self.places -= 1


@contextlib.contextmanager
def peers(address: tuple[str, int], count: int, say: bytes) -> Iterator[list[socket.socket]]:
    made = []
    try:
        for _ in range(count):
            one = socket.create_connection(address, 10)
            one.sendall(say)
            made.append(one)
        yield made
    finally:
        for one in made:
            one.close()


async def rounds_until(condition: Any) -> list[int]:
    """`condition()` of each round of the loop, until it is 0."""
    found = []
    for _ in range(ROUNDS_MAX):
        found.append(condition())
        if not found[-1]:
            return found
        await asyncio.sleep(0)
    raise AssertionError(f"not within {ROUNDS_MAX} rounds: {found[-1]}")


def moving_clock() -> Callable[[], float]:
    """One that moves with each look at it: what is slow is cut short."""
    looks = itertools.count(1)
    return lambda: STEP_S * next(looks)


def test_a_round_of_the_loop_takes_few_newcomers_however_many_there_are(
    tls: TlsServerSettings, monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> list[int]:
        server = Server(tls, None)
        with peers(server.address, MANY, b"\0"):
            monkeypatch.setattr(accepting.time, "perf_counter", moving_clock())
            left = await rounds_until(lambda: MANY - server.entered)
            monkeypatch.undo()
            await server.door.close()
        return left

    left = asyncio.run(scenario())
    assert max(before - after for before, after in itertools.pairwise(left)) < AT_ONCE_MAX


@pytest.mark.parametrize("end", ["silent", "slow"])
def test_a_round_of_the_loop_ends_few_whose_time_is_over_however_many_there_are(
    tls: TlsServerSettings, monkeypatch: pytest.MonkeyPatch, end: str,
) -> None:
    """Who has said nothing for too long, and whose handshake takes too long."""
    hour_s, say = 3_600.0, b"" if end == "silent" else client_hello()[:100]

    async def scenario() -> list[int]:
        server = Server(tls, server_context(tls))
        loop = asyncio.get_running_loop()
        with peers(server.address, SHAKING, say):
            await wait_until_async(
                lambda: len(server.door._shaking if say else server.door._silent) == SHAKING,
                "they are let in")
            monkeypatch.setattr(accepting.time, "perf_counter", moving_clock())
            now = loop.time()
            monkeypatch.setattr(loop, "time", lambda: now + hour_s)
            if end == "silent":
                server.door.look()
            left = await rounds_until(lambda: server.places)
            monkeypatch.undo()
            await server.door.close()
        return left

    left = asyncio.run(scenario())
    assert max(before - after for before, after in itertools.pairwise([SHAKING, *left])) \
        < AT_ONCE_MAX


def test_steps_of_handshakes_are_taken_by_a_thread(
    tls: TlsServerSettings, monkeypatch: pytest.MonkeyPatch,
) -> None:
    who = set()
    own = BoundedObject.do_handshake

    def seen(self: BoundedObject) -> None:
        if self.server_side:
            who.add(threading.current_thread().name)
        own(self)

    monkeypatch.setattr(BoundedObject, "do_handshake", seen)

    async def scenario() -> None:
        server = Server(tls, server_context(tls))
        reader, writer = await asyncio.open_connection(
            *server.address, ssl=careless(), server_hostname="names")
        writer.write(b"\1" * 100_000)
        assert await asyncio.wait_for(reader.readexactly(100_000), 30) == b"\1" * 100_000
        writer.close()
        await asyncio.wait_for(writer.wait_closed(), 30)
        await rounds_until(lambda: server.places)
        assert (server.door.handshakes, server.door.failures) == (1, 0)
        await server.door.close()

    asyncio.run(scenario())
    assert who == {"handshakes"}


@pytest.mark.parametrize("end", ["they go", "they are too many", "the name server stops"])
def test_whoever_ends_in_a_handshake_gives_his_place_back(
    tls: TlsServerSettings, end: str,
) -> None:
    """In its line, with the thread, or between two steps."""
    hello = client_hello()

    async def scenario() -> None:
        server = Server(tls, server_context(tls))
        with peers(server.address, MANY, hello) as those:
            if end == "they go":
                for one in those:
                    one.close()
            elif end == "they are too many":
                await rounds_until(lambda: server.entered - MANY
                                   or server.places - tls.handshake_count_max)
            else:
                await rounds_until(lambda: server.entered < MANY // 2)
        if end != "the name server stops":
            await rounds_until(lambda: server.entered - MANY or server.places)
            assert server.door.failures == MANY
        await server.door.close()
        assert server.places == 0

    asyncio.run(scenario())


def test_a_peer_cannot_say_more_in_its_handshake_than_a_handshake_has(
    tls: TlsServerSettings,
) -> None:
    context = server_context(tls)
    assert context is not None
    shake = Shake(context)
    shake.take(bytes(BYTES_MAX))
    with pytest.raises(ConnectionError, match=str(BYTES_MAX)):
        shake.take(b"\0")


def test_memory_of_a_crowds_handshakes_is_given_back_when_they_have_ended(
    tls: TlsServerSettings, monkeypatch: pytest.MonkeyPatch,
) -> None:
    given_back: list[int] = []
    monkeypatch.setattr(accepting, "malloc_trim", given_back.append)
    monkeypatch.setattr(accepting, "FREED_SHAKES", 5)

    async def scenario() -> list[int]:
        server = Server(tls, server_context(tls))
        found = []
        for count in (4, 1, 4):                        # five since the last time are worth it
            entered = server.entered + count
            with peers(server.address, count, client_hello()[:100]):
                await wait_until_async(
                    lambda entered=entered: server.entered == entered, "they enter")
            await wait_until_async(lambda: not server.places, "they have gone")
            server.door.look()
            found.append(len(given_back))
        await server.door.close()
        return found

    assert asyncio.run(scenario()) == [0, 1, 1]
