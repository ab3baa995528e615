"""What a start does with its queues: a few one after the other, many in threads."""
from __future__ import annotations

import threading

import pytest

from mqcore.store.recovery.queues import side_by_side

FEW, MANY = 8, 20


@pytest.mark.parametrize("count", [0, 1, FEW, FEW + 1, MANY])
def test_each_part_is_done_once_and_few_make_no_thread(count: int) -> None:
    done: list[tuple[int, bool]] = []
    side_by_side(lambda number: done.append(
        (number, threading.current_thread() is threading.main_thread())),
        [(number,) for number in range(count)])
    assert sorted(done) == [(number, count <= FEW) for number in range(count)]


@pytest.mark.parametrize("count", [FEW, MANY])
def test_what_one_part_raises_is_raised(count: int) -> None:
    def fail_at_three(number: int) -> None:
        if number == 3:
            raise OSError("the third")

    with pytest.raises(OSError, match="the third"):
        side_by_side(fail_at_three, [(number,) for number in range(count)])
