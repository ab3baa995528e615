"""AssignedQueue queues over random histories: P1, P2, and the order that orderly listeners see."""
from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcore.client.core.process_queue import OrderlyQueue, ProcessQueue
from tests.support.dice import dice

HISTORIES, STEPS_MAX = 1_000, 50


@dataclass(frozen=True)
class Stored:
    queue_offset: int
    body_size: int = 10


def stored(*offsets: int) -> list[Stored]:
    return [Stored(offset) for offset in offsets]


def test_the_commit_offset_waits_for_the_oldest_message():
    queue = ProcessQueue[Stored](1001)
    batch = queue.put(stored(*range(1001, 1011)), 1011)

    queue.done(batch[1:])
    assert (queue.commit_offset, queue.message_count, queue.byte_count) == (1001, 1, 10)
    queue.done(batch[:1])
    assert (queue.commit_offset, queue.message_count, queue.byte_count) == (1011, 0, 0)


def test_offsets_without_a_wanted_message_are_committed():
    queue = ProcessQueue[Stored](5)
    queue.put([], 42)

    assert queue.commit_offset == 42


def test_an_older_answer_takes_no_queue_back():
    queue = ProcessQueue[Stored](5)
    queue.put([], 42)
    queue.put([], 40)

    assert (queue.next_offset, queue.commit_offset) == (42, 42)


def test_what_is_put_again_is_not_taken_again():
    queue = ProcessQueue[Stored](0)
    queue.done(queue.put(stored(0, 1, 2), 3))

    assert queue.put(stored(1, 2, 3), 4) == stored(3)
    assert (queue.commit_offset, queue.span) == (3, 0)


class Concurrent:
    """Against sets of offsets."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.queue = ProcessQueue[Stored](100)
        self.unfinished: set[int] = set()
        self.next = 100
        self.steps = (self.pull, self.finish)

    def pull(self) -> None:
        offsets = []
        at = self.next
        for _ in range(self.dice.randint(0, 8)):
            gap = self.dice.randint(0, 5)
            offsets.append(at + gap)
            at += gap + 1
        self.next = at + self.dice.randint(0, 5)
        assert self.queue.put(stored(*offsets), self.next) == stored(*offsets)
        self.unfinished |= set(offsets)

    def finish(self) -> None:
        """Each of them twice; none, any or all of what is left."""
        left = sorted(self.unfinished)
        some = self.dice.sample(left, self.dice.randint(0, len(left)))
        self.queue.done(stored(*some, *some))
        self.unfinished -= set(some)

    def the_model_agrees(self) -> None:
        queue, left = self.queue, sorted(self.unfinished)
        assert queue.commit_offset == (left[0] if left else self.next)
        assert (queue.message_count, queue.byte_count) == (len(left), 10 * len(left))
        assert queue.span == (left[-1] - left[0] if left else 0)
        assert queue.oldest(3) == stored(*left[:3])
        assert queue.next_offset == self.next


class Orderly:
    """Against a list that is consumed from its front."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.queue = OrderlyQueue[Stored](0)
        self.waiting: list[int] = []
        self.taken: list[int] = []
        self.next = 0
        self.steps = (self.pull, self.take, self.commit, self.rollback, self.last_ones_again)

    def pull(self) -> None:
        offsets = list(range(self.next, self.next + self.dice.randint(0, 6)))
        self.next += len(offsets)
        self.queue.put(stored(*offsets), self.next)
        self.waiting += offsets

    def take(self) -> None:
        count = self.dice.randint(1, 4)
        assert self.queue.take(count) == stored(*self.waiting[:count])
        self.taken += self.waiting[:count]
        del self.waiting[:count]

    def commit(self) -> None:
        self.queue.commit()
        self.taken.clear()

    def rollback(self) -> None:
        self.queue.rollback()
        self.waiting, self.taken = self.taken + self.waiting, []

    def last_ones_again(self) -> None:
        first = len(self.taken) - self.dice.randint(0, len(self.taken))
        again = self.taken[first:]
        self.queue.make_again(stored(*again))
        del self.taken[first:]
        self.waiting = again + self.waiting

    def the_model_agrees(self) -> None:
        left = self.taken + self.waiting
        assert self.queue.commit_offset == (left[0] if left else self.next)
        assert self.queue.message_count == len(left)
        assert self.queue.consuming == stored(*self.taken)
        assert self.queue.has_waiting == bool(self.waiting)


@pytest.mark.parametrize("kind", [Concurrent, Orderly])
def test_a_queue_agrees_with_its_model_over_any_history(
        kind: type[Concurrent] | type[Orderly]) -> None:
    thrown = dice()
    for _ in range(HISTORIES):
        model = kind(thrown)
        history = []
        for _ in range(thrown.randint(1, STEPS_MAX)):
            step = thrown.choice(model.steps)
            history.append(step.__name__)
            step()
            try:
                model.the_model_agrees()
            except AssertionError as error:
                error.add_note(f"after {history}")
                raise


@given(st.lists(st.integers(0, 39), unique=True))
def test_the_commit_offset_is_the_smallest_unfinished_one(finished):
    queue = ProcessQueue[Stored](0)
    messages = queue.put(stored(*range(40)), 40)
    for offset in finished:
        queue.done([messages[offset]])

    assert queue.commit_offset == min(set(range(40)) - set(finished), default=40)
