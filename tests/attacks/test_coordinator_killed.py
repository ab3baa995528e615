"""Whatever a coordinator had in its hands when it was killed is answered."""
from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import Command, encode
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.wire_live.peer import Peer, topic_fields
from tests.wire_live.test_as_stock import heartbeat
from tests.workers.processes import pid_of

TOPIC, QUEUES = "of-many-queues", 4_000
PEERS, REQUESTS = 4, 24          # a tenth of a second each
ANSWERED_S = 30.0                # an orphan's two seconds, and what a busy machine needs
REMARK = "[COORDINATOR_RESTARTED]whether the request was done is not known"


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    with mqcore_up(tmp_path_factory.mktemp("killed"), {"processes.serving_count": 1}) as running:
        with Peer(running.broker_addr) as peer:
            answer = peer.ask(Code.UPDATE_AND_CREATE_TOPIC, topic_fields(TOPIC, QUEUES))
            assert answer.code == 0, answer.remark
        yield running


def frame(code: int, opaque: int, body: bytes = b"") -> bytes:
    ext: dict[str, str | None] = {"topic": TOPIC, "group": "G", "queueId": "0"}
    return encode(Command(code, opaque=opaque, ext=ext, body=body))


def test_requests_that_it_had_are_answered_once(broker: MqcoreProcess) -> None:
    pid = pid_of(broker, "coordinator")
    slow = b"".join(frame(Code.QUERY_CONSUME_TIME_SPAN, number) for number in range(REQUESTS))
    with ExitStack() as stack:
        peers = [stack.enter_context(Peer(broker.broker_addr)) for _ in range(PEERS)]
        for peer in peers:
            peer.send(slow)
        answers = [[peers[0].receive(ANSWERED_S)], *([] for _ in peers[1:])]
        os.kill(pid, signal.SIGKILL)           # it has them all, and has answered hardly one
        for peer, got in zip(peers, answers, strict=True):
            got += [peer.receive(ANSWERED_S) for _ in range(len(got), REQUESTS)]
            assert sorted(answer.opaque for answer in got) == list(range(REQUESTS))
        remarks = [answer.remark for got in answers for answer in got if answer.code != 0]
        assert set(remarks) == {REMARK}
        assert len(remarks) > REQUESTS
        for peer in peers:                     # none of them came twice, and all go on
            peer.send(frame(Code.GET_MAX_OFFSET, REQUESTS))
            answer = peer.receive(ANSWERED_S)
            assert (answer.opaque, answer.code) == (REQUESTS, 0)


def test_a_frame_that_was_half_on_its_way_goes_to_the_next_one(broker: MqcoreProcess) -> None:
    pid = pid_of(broker, "coordinator")
    body = heartbeat("Wide", 20_000)
    assert len(body) > 2 << 20                 # more than the ring holds
    os.kill(pid, signal.SIGSTOP)
    with Peer(broker.broker_addr) as peer:
        peer.send(frame(Code.HEART_BEAT, 1, body))
        os.kill(pid, signal.SIGKILL)
        answer = peer.answer_to(1, ANSWERED_S)
        assert (answer.code, answer.remark) == (0, None)
