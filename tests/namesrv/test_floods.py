"""
Who stays connected to a name server is served before peers that flood it, whatever they have sent.

By the order of answers: what they ask is there first, all of it. How long it takes at how many a
second, `python -m perf.handshakes --server namesrv` says; tests/attacks/test_name_server_floods.py
goes on for as long as asked.
"""
from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Generator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mqcore.client.core.signature import sign
from mqcore.namesrv.server import Connection, NameServer
from mqcore.turns import SLICE_S, Job, Shares
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import Command, encode, request
from tests.namesrv.harness import (
    DEADLINE_S,
    Clock,
    Peer,
    name_server,
    registration,
    settings_in,
)
from tests.namesrv.test_access import ADMIN, USER, asking, came_from
from tests.support.waiting import wait_until_async
from tests.tls.floods import LIES, TRUSTED, said_at_first

PEERS = 40


@dataclass
class Order:
    """Whose requests were answered, one after the other, and what they were."""

    who: list[str] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    server: NameServer | None = None

    def connections(self) -> int:
        return len(self.server.connections) if self.server else 0


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> Order:
    made = Order()
    own = NameServer.answer

    def answer(self: NameServer, asked: Command, one: Connection,
               ) -> Generator[None, None, Command]:
        made.server = self
        answered = yield from own(self, asked, one)
        made.who.append(one.remote)
        made.codes.append(asked.code)
        return answered

    monkeypatch.setattr(NameServer, "answer", answer)
    return made


@contextlib.asynccontextmanager
async def flooding(kind: str, port: int, order: Order) -> AsyncIterator[None]:
    """Peers that are connected and have sent all they have, before the server has read it."""
    said, source = said_at_first(kind), TRUSTED if kind == "large" else "127.0.0.1"
    there = order.connections()
    with contextlib.ExitStack() as ends:
        peers = [ends.enter_context(socket.create_connection(
            ("127.0.0.1", port), DEADLINE_S, (source, 0))) for _ in range(PEERS)]
        for one in peers:
            one.sendall(said[:1])
        await wait_until_async(lambda: order.connections() == there + PEERS, "they are connected")
        for one in peers:
            one.sendall(said[1:])
        yield


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[Peer]:
    """One whose requests were answered before."""
    peer = await came_from("127.0.0.1", port)
    try:
        assert (await peer.ask(signed(registration(["known"])))).code == 0
        yield peer
    finally:
        await peer.close()


def signed(command: Command) -> Command:
    sign(command, ADMIN)
    return command


@pytest.mark.parametrize(("kind", "requests"), [("large", 1), ("badly signed", LIES)])
def test_who_stays_connected_is_served_before_most_of_a_flood(
    tmp_path: Path, order: Order, kind: str, requests: int,
) -> None:
    async def scenario() -> list[tuple[int, Command]]:
        async with asking(tmp_path) as port, connected(port) as broker, \
                connected(port) as client, flooding(kind, port, order):
            del order.who[:]
            found = []
            asked = ((broker, signed(registration(["known"], counter=2))),
                     (client, request(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "known"})))
            for peer, command in asked:
                peer.writer.write(encode(command))
            for peer, _ in asked:
                name = "{}:{}".format(*peer.writer.get_extra_info("sockname"))
                answer = await peer.receive()
                found.append((order.who.index(name), answer))
            return found

    for before, answer in asyncio.run(scenario()):
        assert answer.code == 0, answer.remark
        assert before < requests * PEERS / 4, f"{before} of {requests * PEERS} were served before"


def test_the_lane_of_brokers_opens_to_who_has_proved_to_be_an_administrator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where accounts are asked for; every client can send a request code."""
    lanes: dict[int, list[bool]] = {}
    own = NameServer.add

    def add(self: NameServer, network: str, connection: int, job: Job, *, express: bool,
            stays: bool) -> None:
        lanes.setdefault(connection, []).append(express)
        own(self, network, connection, job, express=express, stays=stays)

    monkeypatch.setattr(NameServer, "add", add)

    async def lanes_of(asked: list[Command]) -> tuple[list[int], list[bool]]:
        """The answers' codes, and the lanes that the connection's work was in."""
        peer = await Peer.connect(port)
        codes = [(await peer.ask(one)).code for one in asked]
        found = list(lanes[max(lanes)])
        await peer.close()
        return codes, found

    async def scenario() -> list[tuple[list[int], list[bool]]]:
        nonlocal port
        reader = registration(["t"])
        sign(reader, USER)
        async with asking(tmp_path) as port:
            found = [await lanes_of([registration(["t"])] * 3), await lanes_of([reader] * 3),
                     await lanes_of([signed(registration(["t"], counter=count))
                                     for count in range(1, 4)]),
                     await lanes_of([signed(registration(["t"])), registration(["t"]),
                                     registration(["t"])])]
        async with name_server(settings_in(tmp_path), Clock()) as port:
            return [*found, await lanes_of([registration(["t"])] * 2)]

    port = 0
    stranger, user, broker, turned, free = asyncio.run(scenario())
    assert stranger == ([1, 1, 1], [False] * 3)
    assert user == ([1, 1, 1], [False] * 3)
    assert broker[0] == [0, 0, 0]
    assert broker[1][0] is False
    assert broker[1][-1] is True
    assert turned[0] == [0, 1, 1]
    assert turned[1][-1] is False, "it has lost what it had proved"
    assert free[0] == [0, 0]
    assert free[1][-1] is True


def lookups(count: int) -> bytes:
    """That many requests, each with a long answer, and then a registration."""
    asked = encode(request(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}))
    return count * asked + encode(signed(registration(["late"], name="late",
                                                      address="10.0.0.9:1")))


@contextlib.asynccontextmanager
async def with_long_answers(tmp_path: Path, order: Order) -> AsyncIterator[int]:
    async with asking(tmp_path) as port, connected(port) as broker:
        topics = [f"T-{number}" for number in range(5_000)]
        assert (await broker.ask(signed(registration(topics, counter=2)))).code == 0
        del order.codes[:]
        yield port


def test_what_only_looks_up_is_not_done_for_who_is_gone(tmp_path: Path, order: Order) -> None:
    """All is there before the server reads any of it, the end as well; the rest counts."""
    many = 300

    async def scenario() -> int:
        async with with_long_answers(tmp_path, order) as port:
            with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as peer:
                peer.sendall(lookups(many))
            await wait_until_async(lambda: Code.REGISTER_BROKER in order.codes, "the last one")
            return len(order.codes)

    assert asyncio.run(scenario()) < many / 10


def test_what_came_before_the_end_is_done_whenever_that_is_heard(
    tmp_path: Path, order: Order,
) -> None:
    """Between two of many short requests, whose answers are not written yet."""
    asked = encode(request(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "known"}))
    last = encode(signed(registration(["late"], name="late", address="10.0.0.9:1")))

    async def scenario() -> None:
        async with asking(tmp_path) as port, connected(port):
            del order.codes[:]
            with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as peer:
                peer.sendall(400 * asked + last)
            await wait_until_async(lambda: Code.REGISTER_BROKER in order.codes, "the last one")

    asyncio.run(scenario())


def test_what_waits_for_a_reader_is_done_when_that_one_is_gone(
    tmp_path: Path, order: Order,
) -> None:
    many = 300

    def waits() -> bool:
        assert order.server is not None
        return order.server.frames.memory_used > 1 << 20

    async def scenario() -> int:
        async with with_long_answers(tmp_path, order) as port:
            with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as peer:
                peer.sendall(lookups(many))
                await wait_until_async(waits, "unread answers")
            await wait_until_async(lambda: Code.REGISTER_BROKER in order.codes, "the last one")
            return len(order.codes)

    assert asyncio.run(scenario()) < many / 2


def test_the_loop_looks_at_its_sockets_after_a_slice_of_work(
    tmp_path: Path, order: Order, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By what was done in a round before its last step, which ends it."""
    rounds: list[list[float]] = []
    own_work, own_step = NameServer._work, Shares.step

    def work(self: NameServer) -> None:
        rounds.append([])
        own_work(self)

    def step(self: Shares) -> None:
        began = time.perf_counter()
        own_step(self)
        rounds[-1].append(time.perf_counter() - began)

    monkeypatch.setattr(NameServer, "_work", work)
    monkeypatch.setattr(Shares, "step", step)

    async def scenario() -> None:
        async with asking(tmp_path) as port, connected(port), flooding("large", port, order):
            del order.who[:]
            await wait_until_async(lambda: order.who, "one of them is registered")

    asyncio.run(scenario())
    assert max(map(len, rounds)) > 0
    assert max(sum(steps[:-1]) for steps in rounds) < SLICE_S
