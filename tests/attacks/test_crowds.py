"""
A crowd of connections that are new costs those that stay little: N19, N20.

Processes are stopped while the crowd asks, so that all of it is there at once, and first.
"""
from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pytest

from mqcore.bench.control import Target
from mqcore.bench.load import ProduceOptions, Span, produce
from mqcore.wire.codes import RequestCode
from mqcore.wire.command import encode, request
from tests.attacks.honest import Honest
from tests.attacks.medians import hardly_slower
from tests.attacks.test_looks_of_those_who_left import descriptors, worked_ns
from tests.hostile.watch import Watch
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, send_fields, topic_fields
from tests.workers.processes import by_role, pid_of

CROWD = 600
BEFORE_MAX = CROWD // 10
SENDS = 3_000
ROUNDS = 5
TOPIC = "crowded"
HEARTBEAT = msgspec.json.encode(
    {"clientID": "one@of-those-who-stay", "producerDataSet": [{"groupName": "stays"}],
     "consumerDataSet": []})


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    settings = {"processes.serving_count": 1, "limits.address_connection_count": 10_000}
    with mqcore_up(tmp_path_factory.mktemp("crowded"), settings) as running:
        with Peer(running.broker_addr) as peer:
            answer = peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(TOPIC, 1))
            assert answer.code == 0, answer.remark
        yield running


@contextmanager
def crowd(target: MqcoreProcess) -> Iterator[list[Peer]]:
    """Connections that were accepted and have said nothing."""
    before = descriptors(target)
    with ExitStack() as stack:
        peers = [stack.enter_context(Peer(target.broker_addr)) for _ in range(CROWD)]
        wait_until(lambda: descriptors(target) >= before + CROWD, "the crowd is accepted")
        yield peers
    wait_until(lambda: descriptors(target) <= before, "the crowd is gone")


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        status = Path(f"/proc/{pid}/status")
        wait_until(lambda: "\nState:\tT" in status.read_text(), "the process stands still")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def one_who_stays(target: MqcoreProcess) -> Iterator[Peer]:
    """A connection that has asked before."""
    with Peer(target.broker_addr) as peer:
        assert peer.ask(RequestCode.HEART_BEAT, {}, HEARTBEAT).code == 0
        assert peer.ask(RequestCode.HEART_BEAT, {}, HEARTBEAT).code == 0
        yield peer


def test_who_stays_is_served_before_a_crowd_of_new_ones_that_came_first(             # N20
    target: MqcoreProcess
) -> None:
    serving = next(pid for role, pid in by_role(target).items() if "serving" in role)
    send = encode(request(RequestCode.SEND_MESSAGE_V2, send_fields(TOPIC)))
    with one_who_stays(target) as stays, crowd(target) as new_ones:
        sent = stays.ask(RequestCode.SEND_MESSAGE_V2, send_fields(TOPIC))
        begin = int((sent.ext or {})["queueOffset"] or -1) + 1
        with stopped(serving):
            for peer in new_ones:
                peer.send(send)
            own = request(RequestCode.SEND_MESSAGE_V2, send_fields(TOPIC))
            stays.send(encode(own))
        answer = stays.answer_to(own.opaque, 60.0)
        assert answer.code == 0, answer.remark
        for peer in new_ones:
            peer.receive_frame(60.0)
    before = int((answer.ext or {})["queueOffset"] or -1) - begin
    assert 0 <= before < BEFORE_MAX, f"{before} of {CROWD} new ones were served before"


def test_a_heartbeat_does_not_wait_until_a_crowds_requests_were_read(                # N19
    target: MqcoreProcess
) -> None:
    """The processor time of the coordinator until it has answered it, and that for all."""
    coordinator = pid_of(target, "coordinator")
    look = encode(request(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"}))
    with one_who_stays(target) as stays, crowd(target) as new_ones:
        before = worked_ns(coordinator)
        with stopped(coordinator):
            for peer in new_ones:
                peer.send(look)
            beat = request(RequestCode.HEART_BEAT)
            beat.body = HEARTBEAT
            stays.send(encode(beat))
            with Peer(target.broker_addr) as last:       # served here, after all of them
                assert last.ask(RequestCode.SEND_MESSAGE_V2, send_fields(TOPIC)).code == 0
        assert stays.answer_to(beat.opaque, 60.0).code == 0
        until_beat = worked_ns(coordinator) - before
        for peer in new_ones:
            peer.receive_frame(60.0)
        until_all = worked_ns(coordinator) - before
    print(f"{until_beat / 1e6:.1f} of {until_all / 1e6:.1f} ms")
    assert until_beat < until_all / 3, f"{until_beat / 1e6:.1f} of {until_all / 1e6:.1f} ms"


def test_who_stays_is_served_while_a_crowd_comes_and_goes(
    target: MqcoreProcess, honest: Honest, watch: Watch
) -> None:
    send = encode(request(RequestCode.SEND_MESSAGE_V2, send_fields(TOPIC)))
    with hardly_slower(honest), crowd(target) as new_ones:
        for peer in new_ones:
            peer.send(send)
        for peer in new_ones:
            peer.receive_frame(60.0)


def test_the_first_sends_of_a_connection_take_no_longer_than_later_ones(
    target: MqcoreProcess
) -> None:
    """In one round of a few: others may have the machine for a moment. One after the other."""
    best = min(_first_to_later(target) for _ in range(ROUNDS))
    assert best <= 2.0, f"p99 of the first sends is {best:.1f} times that of later ones"


def _first_to_later(target: MqcoreProcess) -> float:
    """p99 of the first SENDS of a connection, divided by the p99 of later ones."""
    p99s = []
    for warmup in (0, SENDS):
        report = produce(Target(target.broker_addr, TOPIC, 1), ProduceOptions(
            span=Span(count=SENDS, warmup=warmup), connections=1, depth=1))
        assert report.errors == report.lost == 0, report.first_error
        p99s.append(report.latency_us["p99_us"])
    return p99s[0] / p99s[1]
