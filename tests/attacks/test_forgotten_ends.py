"""The end of a consumer or of a serving process is heard, however busy the coordinator is."""
from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import encode, request
from tests.attacks.honest import Honest
from tests.attacks.medians import honest_beside
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer
from tests.wire_live.state import State
from tests.workers.processes import by_role, pid_of

RING_BYTES = 1 << 20
FRAME_BYTES = 300_000
FILLERS = 2 * RING_BYTES // FRAME_BYTES
SERVING = "pull-serving-0"


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    folder = tmp_path_factory.mktemp("ends")
    with mqcore_up(folder, {"processes.serving_count": 1}) as running:
        yield running


@contextmanager
def full_ring(broker: MqcoreProcess) -> Iterator[None]:
    """The coordinator does nothing, and the way to it is full of others' frames."""
    pid = pid_of(broker, "coordinator")
    frame = encode(request(Code.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}, b"x" * FRAME_BYTES))
    os.kill(pid, signal.SIGSTOP)
    try:
        with ExitStack() as stack:
            for _ in range(FILLERS):
                peer = stack.enter_context(Peer(broker.broker_addr))
                peer.send(frame)
            yield
    finally:
        os.kill(pid, signal.SIGCONT)


def members(address: str, group: str) -> list[str]:
    with Peer(address) as peer:
        answer = peer.ask(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    return fastjson.loads(answer.body)["consumerIdList"] if answer.code == 0 else []


def test_the_queues_of_a_consumer_that_went_are_free_when_the_ring_drains(
    broker: MqcoreProcess,
) -> None:
    with State(broker.broker_addr) as stays, State(broker.broker_addr) as goes:
        stays.topic("T", 4)
        stays.consumer("G", "T", client_id="stays")
        goes.consumer("G", "T", client_id="goes")
        assert members(broker.broker_addr, "G") == ["goes", "stays"]
        with honest_beside(broker.broker_addr), full_ring(broker):
            goes.close()

        wait_until(lambda: members(broker.broker_addr, "G") == ["stays"], "the end of its member")


def test_the_consumers_of_a_serving_process_that_died_are_gone_when_it_is_back(
    broker: MqcoreProcess,
) -> None:
    with State(broker.broker_addr) as goes:
        goes.topic("T", 4)
        goes.consumer("G", "T", client_id="goes")
        assert members(broker.broker_addr, "G") == ["goes"]
        with Honest(broker.broker_addr, reconnects=True) as honest:
            with full_ring(broker):
                pid = pid_of(broker, SERVING)
                os.kill(pid, signal.SIGKILL)
                wait_until(lambda: by_role(broker).get(SERVING) not in (None, pid),
                           "another process")
            honest.measure(20)               # it goes on by the next one
            honest.caught_up()
        honest.check()

    wait_until(lambda: members(broker.broker_addr, "G") == [], "the end of all its members")
