"""The buffers of all connections together have a sum (mqcore/net/transport/memory.pxd)."""
from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator

import pytest

from mqcore.wire.command import Codec, encode, request
from tests.attacks.honest import Honest
from tests.attacks.medians import assert_hardly_slower
from tests.hostile.crowd import crowd, push
from tests.hostile.watch import Watch
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, pull_fields
from tests.wire_live.state import State

BUDGET_KIB = 64 << 10
OTHERS_KIB = 24 << 10                  # of a process, beside the buffers
DEAF = 300
UNFINISHED = 60
PIECE = 1 << 20
FRAME_LENGTH = 16 << 20
SLOW = 3_000
SENDS = 150


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    settings: dict[str, object] = {
        "processes.serving_count": 1,
        "processes.connection_memory_bytes": BUDGET_KIB << 10}
    with mqcore_up(tmp_path_factory.mktemp("budget"), settings) as running:
        with State(running.broker_addr) as peer:
            peer.topic("Deaf", 1)
            for _ in range(40):
                peer.message("Deaf", body=b"y" * 8_000)
        yield running


def is_open(one: Peer) -> bool:
    one.socket.setblocking(False)
    try:
        while one.socket.recv(1 << 20):
            continue
    except BlockingIOError:
        return True
    except ConnectionError:
        return False
    return False


def assert_within_budget(watch: Watch) -> None:
    growth = watch.growth_kib()
    assert max(growth.values()) <= BUDGET_KIB + OTHERS_KIB, growth


@pytest.mark.slow
def test_connections_that_do_not_read_take_the_budget_at_most(
    target: MqcoreProcess, watch: Watch, honest: Honest
) -> None:
    calm = honest.measure()
    pulls = encode(request(11, pull_fields("Deaf"), codec=Codec.ROCKETMQ)) * 200
    with contextlib.ExitStack() as opened, honest.span() as attacked:
        for number in range(DEAF):
            deaf = opened.enter_context(Peer(target.broker_addr, receive_buffer_bytes=4_096))
            push(deaf.socket, pulls, patience_s=0.005)
            if number % 20 == 19:
                assert_within_budget(watch)
        honest.until(lambda: len(attacked.sends_ms) >= SENDS, f"{SENDS} sends")
        assert_within_budget(watch)
    assert_hardly_slower(attacked, calm)
    wait_until(lambda: max(watch.growth_kib().values()) <= OTHERS_KIB, "their memory given back")


@pytest.mark.slow
@pytest.mark.parametrize("server", ["broker", "name server"])
def test_unfinished_frames_take_the_budget(
    target: MqcoreProcess, watch: Watch, honest: Honest, server: str
) -> None:
    calm = honest.measure()
    address = target.broker_addr if server == "broker" else target.namesrv_addr
    start = struct.pack(">II", FRAME_LENGTH - 4, 100)
    with contextlib.ExitStack() as opened, honest.span() as attacked:
        sent = 0
        for number in range(UNFINISHED):
            one = opened.enter_context(Peer(address))
            with contextlib.suppress(ConnectionError):
                one.socket.sendall(start)
                for _ in range(8):
                    one.socket.sendall(bytes(PIECE))
                    sent += PIECE
            if number % 10 == 9:
                assert_within_budget(watch)
        assert sent > 2 * BUDGET_KIB << 10
        honest.until(lambda: len(attacked.sends_ms) >= SENDS, f"{SENDS} sends")
        with Peer(target.namesrv_addr) as names:
            assert names.ask(105, {"topic": "TBW102"}).code == 0
        assert_within_budget(watch)
        wait_until(lambda: any("connection_memory_bytes" in line for line in watch.new_lines()),
                   "a log line")
    assert_hardly_slower(attacked, calm)
    wait_until(lambda: max(watch.growth_kib().values()) <= OTHERS_KIB, "their memory given back")


def test_a_large_frame_of_somebody_honest_arrives_while_the_budget_is_spent(
    target: MqcoreProcess, watch: Watch
) -> None:
    start = struct.pack(">II", FRAME_LENGTH - 4, 100)
    with contextlib.ExitStack() as opened:
        for _ in range(12):
            one = opened.enter_context(Peer(target.broker_addr))
            with contextlib.suppress(ConnectionError):
                one.socket.sendall(start + bytes(8 * PIECE))
        with State(target.broker_addr) as sender:
            sender.topic("LargeSends", 1)
            for number in range(10):
                sender.message("LargeSends", body=bytes([number]) * (4 << 20))


@pytest.mark.slow
def test_frames_that_come_by_the_byte_cost_little(
    target: MqcoreProcess, watch: Watch, honest: Honest
) -> None:
    calm = honest.measure()
    with crowd(target.broker_addr, SLOW) as sockets, honest.span() as attacked:
        for data in (struct.pack(">I", FRAME_LENGTH - 4), b"\0\0\1\0", *[b"{"] * 4):
            for one in sockets:
                one.sendall(data)
        honest.until(lambda: len(attacked.sends_ms) >= SENDS, f"{SENDS} sends")
        growth = watch.growth_kib()
        assert max(growth.values()) <= SLOW * 10, growth
    assert_hardly_slower(attacked, calm)
