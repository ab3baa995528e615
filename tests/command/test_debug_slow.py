"""`mqcore debug slow` says in which process the time of a slow request went."""
from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mqcore.shm.latencies import Latencies
from mqcore.shm.segment import Segment
from mqcore.shm.trace import TraceReader
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import encode, request
from mqcore.wire.properties import encode_properties
from tests.support.command import mqcore
from tests.support.mqcore_process import MQCORE, MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, pull_fields, send_fields
from tests.wire_live.state import State
from tests.workers.processes import pid_of

TOPIC = "Slow"
STOPPED_S = 0.3
TAGGED = encode_properties({"TAGS": "a"})


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    with mqcore_up(tmp_path_factory.mktemp("slow")) as running:
        yield running


@pytest.fixture
def peers(broker: MqcoreProcess) -> Iterator[tuple[State, Peer]]:
    with State(broker.broker_addr) as state, Peer(broker.broker_addr) as other:
        state.topic(TOPIC, 1)
        told(state)
        yield state, other


def is_traced(broker: MqcoreProcess) -> bool:
    try:
        TraceReader(Segment.attach(broker.segment_name()))
    except BlockingIOError:
        return True
    return False


@contextmanager
def tracing(broker: MqcoreProcess, *options: str) -> Iterator[subprocess.Popen[str]]:
    """The command as users start it, while it traces; its output is read at the end."""
    with subprocess.Popen(
            [*MQCORE, "debug", "slow", "--run", broker.segment_name().lstrip("/"), *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as command:
        try:
            wait_until(lambda: is_traced(broker) or command.poll() is not None, "a trace")
            yield command
        finally:
            command.kill()


@contextmanager
def stopped(broker: MqcoreProcess, role: str) -> Iterator[None]:
    pid = pid_of(broker, role)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
        began = time.monotonic()
        wait_until(lambda: time.monotonic() - began >= STOPPED_S, "the end of the stop")
    finally:
        os.kill(pid, signal.SIGCONT)


def document(command: subprocess.Popen[str]) -> dict[str, Any]:
    command.send_signal(signal.SIGINT)         # it has seen enough
    said, wrong = command.communicate(timeout=60)
    assert (command.returncode, wrong) == (130, "")
    found: dict[str, Any] = json.loads(said)
    return found


def told(state: State) -> None:
    """Each process has taken another turn, and so has told about the one before."""
    end = state.queue_end(TOPIC, 0)
    state.message(TOPIC)
    wait_until(lambda: state.queue_end(TOPIC, 0) > end, "another message")


def longest(found: dict[str, Any], kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The slowest request of a kind, and its longest step."""
    one = max((one for one in found["requests"] if one["kind"] == kind),
              key=lambda one: one["milliseconds"])
    assert sum(step["milliseconds"] for step in one["steps"]) == pytest.approx(one["milliseconds"])
    return one, max(one["steps"], key=lambda step: step["milliseconds"])


def send() -> bytes:
    return encode(request(Code.SEND_MESSAGE_V2, send_fields(TOPIC, properties=TAGGED), b"x"))


def test_a_send_waits_for_a_writer_that_does_not_run(
    broker: MqcoreProcess, peers: tuple[State, Peer]
) -> None:
    state, _ = peers
    end = state.queue_end(TOPIC, 0)
    with tracing(broker, "--over", "200ms", "--for", "60s", "--json") as command:
        with stopped(broker, "writer"):
            state.send(send())
        assert state.receive_frame()
        told(state)
        found = document(command)

    one, step = longest(found, "send")
    assert (one["queue"], one["offset"], found["lost"]) == (0, end, 0)
    assert (step["process"], step["step"]) == ("writer", "waited in the ring of appends")
    assert step["milliseconds"] >= 1000 * STOPPED_S * 0.9
    assert {step["step"] for step in one["steps"]} == {
        "read, encoded", "waited in the ring of appends", "got its place in the log", "written",
        "result waited in its ring", "answered", "sent"}
    assert set(one["around"]["processes"]) == {"writer", "pull-serving-0"}
    assert not is_traced(broker)


def test_a_held_pull_waits_for_a_dispatcher_that_does_not_run(
    broker: MqcoreProcess, peers: tuple[State, Peer]
) -> None:
    state, consumer = peers
    wait_until(lambda: state.queue_end(TOPIC, 0) > 0, "a queue")
    pull = request(Code.PULL_MESSAGE, pull_fields(
        TOPIC, queue_id=0, offset=state.queue_end(TOPIC, 0), sys_flag=6, suspend_ms=60_000))
    with tracing(broker, "--over", "200ms", "--for", "60s", "--json") as command:
        consumer.send(encode(pull))
        state.queue_end(TOPIC, 0)      # the pull was taken before it
        with stopped(broker, "dispatcher"):
            state.message(TOPIC)
        assert consumer.answer_to(pull.opaque).code == 0
        told(state)
        found = document(command)

    one, step = longest(found, "held")
    assert (one["topic"], one["queue"], one["messages"]) == (TOPIC, 0, 1)
    assert (step["process"], step["step"]) == ("dispatcher", "waited for the dispatcher")
    assert step["milliseconds"] >= 1000 * STOPPED_S * 0.8


@pytest.mark.parametrize(("code", "fields", "kind"), [
    (Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "none"}, "client_request"),
    (Code.CONSUMER_SEND_MSG_BACK, {"offset": "0", "group": "none", "delayLevel": "0",
                                  "originMsgId": "none"}, "message_request"),
    (Code.GET_BROKER_CONFIG, None, "admin_request"),
])
def test_requests_of_the_coordinator_are_timed_by_class(
    broker: MqcoreProcess, peers: tuple[State, Peer], code: Code,
    fields: dict[str, str | None] | None, kind: str,
) -> None:
    latencies = Latencies(Segment.attach(broker.segment_name()))
    names = ("client_request", "message_request", "admin_request")
    before = {name: latencies.total(name) for name in names}
    with stopped(broker, "coordinator"):
        peers[0].send(encode(request(code, fields)))
    assert peers[0].receive_frame()

    wait_until(lambda: latencies.total(kind).count > before[kind].count, "the end of the request")
    grown = {name: latencies.total(name).since(before[name]) for name in names}
    assert {name: one.count for name, one in grown.items()} == {
        name: int(name == kind) for name in names}
    assert grown[kind].sum_us >= 1e6 * STOPPED_S * 0.9


def test_what_is_fast_is_not_told_and_people_read_a_line(
    broker: MqcoreProcess, peers: tuple[State, Peer]
) -> None:
    with tracing(broker, "--over", "60s", "--for", "500ms") as command:
        peers[0].message(TOPIC)
        said, wrong = command.communicate(timeout=60)
    *times, last = said.splitlines()
    assert (command.returncode, last, wrong) == (0, "0 slow requests, 0 shown", "")
    of_send = [line for line in times if line.startswith("all in this time: send: 1 times, mean ")]
    assert len(of_send) == 1
    assert re.search(r", p50 \d+\.\d\d ms, p90 .* ms, p99 .* ms, p99.9 .* ms$", of_send[0])


def test_a_second_trace_is_refused_and_a_dead_ones_ends(broker: MqcoreProcess) -> None:
    name = broker.segment_name().lstrip("/")
    with tracing(broker, "--for", "60s") as command:
        done = mqcore("debug", "slow", "--run", name)
        assert (done.returncode, done.stderr) == (1, "Error: another trace of this broker runs\n")
        command.kill()
        command.wait()
        wait_until(lambda: not is_traced(broker), "the end of a trace that is not renewed")


@pytest.mark.parametrize("duration", ["5", "ms", "-1ms", "1h", "0us", "61m", "1e3s"])
def test_a_duration_that_is_none_is_named(duration: str) -> None:
    done = mqcore("debug", "slow", f"--over={duration}")
    assert done.returncode == 2
    assert f"'{duration}': expected a number and us, ms, s or m" in done.stderr


def test_a_run_that_is_not_there_is_refused(broker: MqcoreProcess, tmp_path: Path) -> None:
    done = mqcore("debug", "slow", "--run", "nothing")
    assert done.returncode == 1
    assert broker.segment_name().lstrip("/") in done.stderr
