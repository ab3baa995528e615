"""Queues that the broker assigns: who gets which, and whether members pull or pop."""
from __future__ import annotations

import pytest

from mqcore.broker.requests.assignment import averagely, by_circle


@pytest.mark.parametrize(("members", "queues", "shares"), [
    (1, 3, [[0, 1, 2]]), (2, 3, [[0, 1], [2]]), (3, 8, [[0, 1, 2], [3, 4, 5], [6, 7]]),
    (3, 2, [[0], [1], []]), (2, 0, [[], []])])
def test_runs_of_queues(members: int, queues: int, shares: list[list[int]]) -> None:
    assert [averagely(position, members, queues) for position in range(members)] == shares


@pytest.mark.parametrize(("members", "queues", "shares"), [
    (1, 3, [[0, 1, 2]]), (2, 3, [[0, 2], [1]]), (3, 2, [[0], [1], []])])
def test_queues_in_turn(members: int, queues: int, shares: list[list[int]]) -> None:
    assert [by_circle(position, members, queues) for position in range(members)] == shares
