"""Held queues over random histories: P1, P2, and the order that orderly listeners see."""
from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mqcore.client.core.process_queue import OrderlyQueue, ProcessQueue


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


def test_what_is_put_again_is_not_taken_again():
    queue = ProcessQueue[Stored](0)
    queue.done(queue.put(stored(0, 1, 2), 3))

    assert queue.put(stored(1, 2, 3), 4) == stored(3)
    assert (queue.commit_offset, queue.span) == (3, 0)


class Concurrent(RuleBasedStateMachine):
    """Against sets of offsets."""

    def __init__(self):
        super().__init__()
        self.queue = ProcessQueue[Stored](100)
        self.unfinished: set[int] = set()
        self.next = 100

    @rule(gaps=st.lists(st.integers(0, 5), max_size=8), behind=st.integers(0, 5))
    def pull(self, gaps, behind):
        offsets = []
        at = self.next
        for gap in gaps:
            offsets.append(at + gap)
            at += gap + 1
        self.next = at + behind
        assert self.queue.put(stored(*offsets), self.next) == stored(*offsets)
        self.unfinished |= set(offsets)

    @rule(data=st.data())
    def finish(self, data):
        some = data.draw(st.sets(st.sampled_from(sorted(self.unfinished)))
                         if self.unfinished else st.just(set()))
        self.queue.done(stored(*some, *some))
        self.unfinished -= some

    @invariant()
    def the_model_agrees(self):
        queue, left = self.queue, sorted(self.unfinished)
        assert queue.commit_offset == (left[0] if left else self.next)
        assert (queue.message_count, queue.byte_count) == (len(left), 10 * len(left))
        assert queue.span == (left[-1] - left[0] if left else 0)
        assert queue.oldest(3) == stored(*left[:3])
        assert queue.next_offset == self.next


class Orderly(RuleBasedStateMachine):
    """Against a list that is consumed from its front."""

    def __init__(self):
        super().__init__()
        self.queue = OrderlyQueue[Stored](0)
        self.waiting: list[int] = []
        self.taken: list[int] = []
        self.next = 0

    @rule(count=st.integers(0, 6))
    def pull(self, count):
        offsets = list(range(self.next, self.next + count))
        self.next += count
        self.queue.put(stored(*offsets), self.next)
        self.waiting += offsets

    @rule(count=st.integers(1, 4))
    def take(self, count):
        assert self.queue.take(count) == stored(*self.waiting[:count])
        self.taken += self.waiting[:count]
        del self.waiting[:count]

    @rule()
    def commit(self):
        self.queue.commit()
        self.taken.clear()

    @rule()
    def rollback(self):
        self.queue.rollback()
        self.waiting, self.taken = self.taken + self.waiting, []

    @rule(data=st.data())
    def last_ones_again(self, data):
        count = data.draw(st.integers(0, len(self.taken)))
        again = self.taken[len(self.taken) - count:]
        self.queue.make_again(stored(*again))
        del self.taken[len(self.taken) - count:]
        self.waiting = again + self.waiting

    @invariant()
    def the_model_agrees(self):
        left = self.taken + self.waiting
        assert self.queue.commit_offset == (left[0] if left else self.next)
        assert self.queue.message_count == len(left)
        assert self.queue.taken == stored(*self.taken)
        assert self.queue.has_waiting == bool(self.waiting)


TestConcurrent = Concurrent.TestCase
TestOrderly = Orderly.TestCase


@given(st.lists(st.integers(0, 39), unique=True))
def test_the_commit_offset_is_the_smallest_unfinished_one(finished):
    queue = ProcessQueue[Stored](0)
    messages = queue.put(stored(*range(40)), 40)
    for offset in finished:
        queue.done([messages[offset]])

    assert queue.commit_offset == min(set(range(40)) - set(finished), default=40)
