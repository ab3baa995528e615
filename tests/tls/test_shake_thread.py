"""Handshakes in the hands of a thread of their own: what ends meanwhile, and whose turn it is."""
from __future__ import annotations

import os
import random
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from mqcore.wire.codes import RequestCode
from tests.support.dice import times
from tests.support.idle import LAST_NICE
from tests.support.mqcore_process import MQCORE, MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.tls.certificates import careless
from tests.tls.floods import client_hello, flood
from tests.tls.pieces import Pieces
from tests.wire_live.peer import Peer
from tests.workers.processes import by_role, kill, pid_of

ENDS = times(3_000)
OPEN_AT_ONCE = 60                    # more than handshakes that may be under way
RESET = struct.pack("ii", 1, 0)
SERVING = "pull-serving-0"
NICER = 10


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    with mqcore_up(tmp_path_factory.mktemp("broker"), {
        "tls.test_mode": True, "tls.handshake_count_max": 40, "processes.serving_count": 1,
    }) as running:
        yield running


def ask(broker: MqcoreProcess) -> int:
    with Peer(broker.broker_addr, tls=careless()) as peer:
        return peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}).code


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def test_one_handshake_more_than_may_be_under_way_ends_the_oldest(                  # TL7
    broker: MqcoreProcess,
) -> None:
    host, _, port = broker.broker_addr.rpartition(":")
    held = [socket.create_connection((host, int(port)), 10) for _ in range(OPEN_AT_ONCE)]
    for one in held:
        one.sendall(client_hello()[:100])
    watch = select.poll()
    for one in held:
        watch.register(one, select.POLLRDHUP | select.POLLIN)
    wait_until(lambda: len(watch.poll(0)) >= 20, "the end of the first twenty")
    assert len(watch.poll(0)) == 20
    for one in held:
        one.close()


def test_connections_that_end_in_the_middle_of_a_step_leave_nothing_behind(
    broker: MqcoreProcess,
) -> None:
    """By a reset, in order, or because they were too many: thousands, at any moment of a step."""
    pid, dice, hello = pid_of(broker, SERVING), random.Random(20_261_123), client_hello()
    assert ask(broker) in (0, 3, 17)
    before = descriptors(pid)
    host, _, port = broker.broker_addr.rpartition(":")
    held: list[socket.socket] = []
    for number in range(ENDS):
        one = socket.create_connection((host, int(port)), 10)
        one.sendall(hello[:dice.choice((len(hello), len(hello), 100))])
        held.append(one)
        if number % 500 == 0:
            assert ask(broker) in (0, 3, 17)
        if len(held) > dice.randrange(OPEN_AT_ONCE):
            ending = held.pop(dice.randrange(len(held)))
            if dice.random() < 0.5:
                ending.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            ending.close()
    for one in held:
        one.close()
    wait_until(lambda: descriptors(pid) <= before, "their sockets are closed")
    assert ask(broker) in (0, 3, 17)
    assert pid_of(broker, SERVING) == pid


@pytest.mark.parametrize("server", ["broker", "name server"])
def test_who_has_many_handshakes_under_way_ends_his_own_for_more(
    broker: MqcoreProcess, server: str,
) -> None:
    """A client whose hello comes slowly comes in, whatever begins from another address."""
    address = broker.broker_addr if server == "broker" else broker.namesrv_addr
    slow = Pieces(address, careless(), source="127.0.0.3")
    hello = slow.hello()
    slow.socket.sendall(hello[:50])
    host, _, port = address.rpartition(":")
    others = []
    for _ in range(200):
        one = socket.create_connection((host, int(port)), 10)
        one.sendall(hello[:50])
        others.append(one)
    with suppress(ConnectionResetError):                 # if its bytes were not read before
        assert others[0].recv(1) == b""                  # the oldest of them
    slow.socket.sendall(hello[50:])
    slow.shake()
    for one in others:
        one.close()
    slow.socket.close()


@pytest.mark.parametrize("own", [0, 5])
def test_the_thread_stands_back_behind_the_loop(tmp_path: Path, own: int) -> None:
    """Also of a broker that stands back itself."""
    own = min(os.getpriority(os.PRIO_PROCESS, 0) + own, LAST_NICE)
    with mqcore_up(tmp_path, {"tls.test_mode": True, "processes.serving_count": 1},
                   program=["nice", "-n", str(own - os.getpriority(os.PRIO_PROCESS, 0)), *MQCORE]
                   ) as running:
        pid = pid_of(running, SERVING)
        wanted = {(own, os.SCHED_OTHER), (min(own + NICER, LAST_NICE), os.SCHED_BATCH)}
        wait_until(lambda: wanted == {
            (os.getpriority(os.PRIO_PROCESS, int(task.name)), os.sched_getscheduler(int(task.name)))
            for task in Path(f"/proc/{pid}/task").iterdir()}, "each has its priority")


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_process_ends_while_handshakes_are_under_way(tmp_path: Path, end: str) -> None:
    with mqcore_up(tmp_path, {"tls.test_mode": True, "processes.serving_count": 1}) as running:
        with flood("hello", running.broker_addr, rate=2_000) as counts:
            wait_until(lambda: counts.answered > 50, "hellos are answered")
            if end == "stop":
                running.stop()
            else:
                killed = kill(running, SERVING)
                wait_until(lambda: by_role(running).get(SERVING, killed) != killed, "another one")
        if end == "kill":
            assert ask(running) in (0, 3, 17)
