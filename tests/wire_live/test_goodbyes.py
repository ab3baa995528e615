"""
What a client sent before it went counts, however it went and however busy the coordinator is.

Clients commit their offsets one-way on their way out, and close at once.
"""
from __future__ import annotations

import fcntl
import os
import signal
import socket
import struct
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import encode, request
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, pull_fields, send_fields
from tests.wire_live.state import State
from tests.workers.processes import by_role, pid_of

COMMITS = 500                        # more than wait for the coordinator at a time (N5)
OFFSET = 7
RESET = struct.pack("ii", 1, 0)      # SO_LINGER: close sends a reset at once


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    with mqcore_up(tmp_path_factory.mktemp("goodbyes")) as running:
        yield running


@contextmanager
def held_up(broker: MqcoreProcess) -> Iterator[None]:
    """The coordinator does nothing inside of the block."""
    pid = pid_of(broker, "coordinator")
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def sockets(broker: MqcoreProcess) -> int:
    """Of the serving processes."""
    pids = [pid for role, pid in by_role(broker).items() if role.startswith("pull-serving")]
    assert pids
    return sum(os.readlink(link).startswith("socket:")
               for pid in pids for link in Path(f"/proc/{pid}/fd").iterdir())


def leave_by_reset(leaving: Peer) -> None:
    """A reset throws away what the sender's queue still holds: first all is to be acknowledged."""
    def unsent() -> int:
        held = fcntl.ioctl(leaving.socket.fileno(), termios.TIOCOUTQ, bytes(4))
        return int.from_bytes(held, sys.byteorder)

    wait_until(lambda: unsent() == 0, "what was sent is with the broker")
    leaving.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


def commits(group: str) -> bytes:
    return b"".join(encode(request(Code.UPDATE_CONSUMER_OFFSET, {
        "consumerGroup": group, "topic": "T", "queueId": str(queue), "commitOffset": str(OFFSET),
    }, oneway=True)) for queue in range(COMMITS))


@pytest.mark.parametrize("how", ["in order", "by a reset", "while an answer is on its way"])
def test_offsets_that_a_client_committed_before_it_went_are_kept(
    broker: MqcoreProcess, how: str,
) -> None:
    group = f"gone {how}"
    with State(broker.broker_addr) as looker:
        looker.topic("Woken", 1)
        end = looker.queue_end("Woken", 0)
        with Peer(broker.broker_addr) as leaving, held_up(broker):
            if how == "while an answer is on its way":
                leaving.send(encode(request(Code.PULL_MESSAGE, pull_fields(
                    "Woken", offset=end, sys_flag=6, suspend_ms=15_000))))
            leaving.send(commits(group))
            if how == "by a reset":
                leave_by_reset(leaving)
            leaving.close()
            looker.message("Woken")                # answers a pull that nobody reads any more
            looker.message("Woken")

        wait_until(lambda: looker.committed(group, "T", COMMITS - 1) == OFFSET, "the last commit")
        assert {looker.committed(group, "T", queue) for queue in range(COMMITS)} == {OFFSET}


@pytest.mark.parametrize("how", ["in order", "by a reset"])
def test_one_way_sends_that_make_a_topic_are_stored_though_the_client_went_at_once(
    broker: MqcoreProcess, how: str,
) -> None:
    """They wait for the coordinator, and the last of them for its topic's file, too."""
    topics = [f"made-{how.replace(' ', '-')}-{number}" for number in range(20)]
    with State(broker.broker_addr) as looker:
        looker.queue_end("T", 0)
        before = sockets(broker)
        with Peer(broker.broker_addr) as leaving, held_up(broker):
            leaving.send(b"".join(encode(request(
                Code.SEND_MESSAGE_V2, send_fields(topic), body=b"last words", oneway=True))
                for topic in topics))
            if how == "by a reset":
                leave_by_reset(leaving)
            leaving.close()
        wait_until(lambda: all(looker.queue_end(topic, 0) == 1 for topic in topics),
                   "what was sent to new topics")
        wait_until(lambda: sockets(broker) == before, "the end of the connection")
