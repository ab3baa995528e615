"""How the coordinator has queues removed (mqcore/workers/shared_queues.py)."""
from __future__ import annotations

import pytest

from mqcore.shm.retention import QueueLives
from mqcore.shm.segment import Segment
from mqcore.workers.shared_queues import REMOVED_AT_ONCE, SharedQueues
from tests.store.harness import new_segment

QUEUES = 3 * REMOVED_AT_ONCE
NAMES = [(f"T{number // 100}", number % 100) for number in range(QUEUES)]


@pytest.fixture
def segment() -> Segment:
    made = new_segment(queues=QUEUES)
    lives = QueueLives(made)
    for topic, queue_id in NAMES:
        lives.set_restart(topic, queue_id, 0)
    return made


def asked(segment: Segment) -> set[str]:
    return {state.topic for state in QueueLives(segment).asked()}


def test_many_queues_are_looked_for_in_turns_and_go_at_once(segment: Segment) -> None:
    now_ms, ends = [0], []
    queues = SharedQueues(segment, lambda: now_ms[0])
    job = queues.remove(NAMES, ends.append)
    for _ in range(QUEUES // REMOVED_AT_ONCE):
        next(job)
        assert not asked(segment)
    assert list(job) == []
    assert len(QueueLives(segment).asked()) == QUEUES
    queues.tick()
    assert ends == []
    now_ms[0] = 10_000
    queues.tick()
    assert ends == [False]


def test_queues_of_a_topic_that_is_made_meanwhile_stay(segment: Segment) -> None:
    made: set[str] = set()
    job = SharedQueues(segment, lambda: 0).remove(NAMES, lambda _: None, made.__contains__)
    next(job)
    first = asked(segment)
    assert len(first) == REMOVED_AT_ONCE // 100
    made.update(("T0", NAMES[-1][0]))
    assert len(list(job)) == QUEUES // REMOVED_AT_ONCE - 1
    assert asked(segment) == {topic for topic, _ in NAMES} - {NAMES[-1][0]}
