"""Which process is woken by what: none without work; one that rests as soon as a process waits."""
from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mqcore.bench.control import find_target
from mqcore.bench.load import ProduceOptions, Span, produce
from mqcore.participants import DISPATCHER
from mqcore.wire.command import Codec, encode, request
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, pull_fields
from tests.wire_live.state import State
from tests.wire_live.test_wake import HOLD_MS, SUSPENDS, hold
from tests.workers.processes import pid_of
from tests.workers.test_end import segment_of

SENDS = 4_000
BEATS_A_SECOND = 2                 # that it lives, and a turn of Python's between


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    with mqcore_up(tmp_path_factory.mktemp("wakes"), {"replication.listen": True}) as running:
        yield running


def switches(pid: int) -> int:
    """How often the threads of a process have gone to sleep by themselves."""
    return sum(int(line.split()[1]) for task in Path(f"/proc/{pid}/task").iterdir()
               for line in (task / "status").read_text().splitlines()
               if line.startswith("voluntary_ctxt_switches:"))


def test_sends_wake_no_ha_master_without_slaves_and_the_dispatcher_once_a_millisecond(
    broker: MqcoreProcess
) -> None:
    target = find_target("Wakes", broker=broker.broker_addr, namesrv=None, queues=4, create=True)
    one = ProduceOptions(span=Span(count=SENDS), connections=1, depth=1)
    produce(target, one)
    pids = [pid_of(broker, role) for role in ("ha-master", "dispatcher")]
    before, began = [switches(pid) for pid in pids], time.monotonic()
    assert produce(target, one).errors == 0
    seconds = time.monotonic() - began
    master, dispatcher = (switches(pid) - was for pid, was in zip(pids, before, strict=True))
    print(f"{SENDS} sends in {seconds:.2f} s: ha-master {master}, dispatcher {dispatcher}")

    assert master <= BEATS_A_SECOND * seconds + 10
    # a rest for each millisecond, or one and a sleep for each message on a machine that is so slow
    assert dispatcher <= 2_000 * seconds + 50


@contextmanager
def still(broker: MqcoreProcess) -> Iterator[None]:
    """The dispatcher does nothing for a while."""
    pid = pid_of(broker, "dispatcher")
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def known_queue(broker: MqcoreProcess, topic: str) -> Iterator[State]:
    """Two queues of a message each; and nothing is left to be dispatched."""
    segment = segment_of(broker)
    with State(broker.broker_addr) as state:
        state.topic(topic, 2)
        for queue in range(2):
            state.message(topic, queue)
            wait_until(lambda at=queue: state.queue_end(topic, at) == 1, "a message in the queue")
        wait_until(lambda: not segment.hurried(DISPATCHER.slot), "a dispatcher without a hurry")
        yield state


def test_a_message_for_a_queue_whose_pull_is_held_hurries_the_dispatcher_and_others_do_not(
    broker: MqcoreProcess
) -> None:
    segment = segment_of(broker)
    with known_queue(broker, "Hurried") as state, Peer(broker.broker_addr) as consumer:
        opaque = hold(consumer, "Hurried", 1, Codec.JSON)
        with still(broker):
            for _ in range(20):
                state.message("Hurried", 1)
            assert not segment.hurried(DISPATCHER.slot)
            state.message("Hurried", 0)
            assert segment.hurried(DISPATCHER.slot)
        assert consumer.answer_to(opaque).code == 0


def test_the_first_message_of_a_queue_hurries_the_dispatcher(broker: MqcoreProcess) -> None:
    segment = segment_of(broker)
    with known_queue(broker, "Known") as state:
        state.topic("Born", 1)
        with still(broker):
            state.message("Known")
            assert not segment.hurried(DISPATCHER.slot)
            state.message("Born")
            assert segment.hurried(DISPATCHER.slot)


@pytest.mark.parametrize("sys_flag", [SUSPENDS, 4])
def test_a_pull_that_finds_nothing_hurries_a_dispatcher_that_has_something(
    broker: MqcoreProcess, sys_flag: int
) -> None:
    """Whether it waits or asks again: what is published by now is there soon."""
    segment, topic = segment_of(broker), f"Asked{sys_flag}"
    with known_queue(broker, topic) as state, Peer(broker.broker_addr) as consumer:
        with still(broker):
            state.message(topic)
            assert not segment.hurried(DISPATCHER.slot)
            pull = request(11, pull_fields(topic, sys_flag=sys_flag, suspend_ms=HOLD_MS, offset=1))
            consumer.send(encode(pull))
            wait_until(lambda: segment.hurried(DISPATCHER.slot), "a hurry")
        assert consumer.answer_to(pull.opaque).code in (0, 19)
