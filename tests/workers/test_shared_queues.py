"""How the coordinator has queues removed (mqcore/workers/coordinator/shared_queues.py)."""
from __future__ import annotations

import pytest

from mqcore.broker.ports import AppendStatus
from mqcore.shm.retention import QueueLives
from mqcore.shm.segment import Segment
from mqcore.workers.coordinator.own_messages import OwnMessages
from mqcore.workers.coordinator.shared_queues import REMOVED_AT_ONCE, SharedQueues
from tests.store.harness import new_segment
from tests.workers.test_own_messages import FakeProducer

QUEUES = 3 * REMOVED_AT_ONCE
NAMES = [(f"T{number // 100}", number % 100) for number in range(QUEUES)]


@pytest.fixture
def segment() -> Segment:
    made = new_segment(queues=QUEUES)
    lives = QueueLives(made)
    for topic, queue_id in NAMES:
        lives.set_restart(topic, queue_id, 0)
    return made


def own(producer: FakeProducer | None = None) -> OwnMessages:
    return OwnMessages(producer or FakeProducer(), "C")


def asked(segment: Segment) -> set[str]:
    return {state.topic for state in QueueLives(segment).asked()}


def test_a_slave_asks_its_writer_in_turns(segment: Segment) -> None:
    now_ms, ends = [0], []
    queues = SharedQueues(segment, lambda: now_ms[0], own(), lambda: True)
    job = queues.remove(NAMES, ends.append)
    assert len(list(job)) == QUEUES // REMOVED_AT_ONCE
    assert len(QueueLives(segment).asked()) == QUEUES
    queues.tick()
    assert ends == []
    now_ms[0] = 10_000
    queues.tick()
    assert ends == ["not removed yet; the removal continues"]


def test_queues_of_a_topic_that_is_made_meanwhile_stay(segment: Segment) -> None:
    made: set[str] = set()
    job = SharedQueues(segment, lambda: 0, own(), lambda: True).remove(
        NAMES, lambda _: None, made.__contains__)
    next(job)
    first = asked(segment)
    assert len(first) == REMOVED_AT_ONCE // 100
    made.update(("T0", NAMES[-1][0]))
    assert len(list(job)) == QUEUES // REMOVED_AT_ONCE - 1
    assert asked(segment) == {topic for topic, _ in NAMES} - {NAMES[-1][0]}


def settle(producer: FakeProducer, status: AppendStatus) -> None:
    producer.results = [(rest["tag"], status, 0, 0) for *_, rest in producer.taken]


def test_a_master_appends_markers_that_name_all_of_them(segment: Segment) -> None:
    producer, ends = FakeProducer(1000, 4096), []
    messages = own(producer)
    queues = SharedQueues(segment, lambda: 0, messages, lambda: False)
    assert len(list(queues.remove(NAMES, ends.append))) == QUEUES // REMOVED_AT_ONCE
    assert not asked(segment)
    assert {(topic, queue_id) for topic, queue_id, *_ in producer.taken} == {
        ("rmq_sys_queue_lives", 0)}
    assert {(rest["prepared_position"], rest["waits"]) for *_, rest in producer.taken} == {
        (0x6C697665, True)}
    assert max(len(body) for _, _, body, *_ in producer.taken) <= 2048
    lines = b"".join(body for _, _, body, *_ in producer.taken).decode().splitlines()
    assert lines == [f"{topic}@{queue_id}" for topic, queue_id in NAMES]

    queues.tick()
    assert ends == []                                # the markers are on their way
    settle(producer, AppendStatus.PUT_OK)
    messages.push()
    queues.tick()
    assert ends == [""]


@pytest.mark.parametrize(("status", "said"), [
    (AppendStatus.SERVICE_NOT_AVAILABLE, "not known to be removed: SERVICE_NOT_AVAILABLE"),
    (AppendStatus.WRITER_RESTARTED, "not known to be removed: WRITER_RESTARTED"),
    (AppendStatus.FLUSH_SLAVE_TIMEOUT,
     "removed here, and a loss of this host may bring them back: FLUSH_SLAVE_TIMEOUT")])
def test_a_removal_that_others_do_not_have_says_so(
        segment: Segment, status: AppendStatus, said: str) -> None:
    producer, ends = FakeProducer(1000, 4096), []
    messages = own(producer)
    queues = SharedQueues(segment, lambda: 0, messages, lambda: False)
    list(queues.remove(NAMES[:3], ends.append))
    settle(producer, status)
    messages.push()
    queues.tick()
    assert ends == [said]
