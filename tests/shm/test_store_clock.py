"""The store clock: close to the wall clock, never back, and a ruler for what waits."""
from __future__ import annotations

import random

import pytest

from mqcore.shm.store_clock import ClockProbe, read_clocks

WALL, STEADY = 1_800_000_000_000, 5_000_000
HOUR = 3_600_000
SLOWED, DOUBTED = 8, 10_000


@pytest.fixture
def clock() -> ClockProbe:
    made = ClockProbe()
    made.begin(WALL, STEADY)
    return made


def test_without_steps_it_is_the_wall_clock(clock: ClockProbe) -> None:
    for ms in range(0, 100_000, 7):
        assert clock.turn(WALL + ms + ms % 3 - 1, STEADY + ms) == WALL + ms
    assert clock.knots == 1


def test_a_short_step_far_forward_leaves_no_trace(clock: ClockProbe) -> None:
    assert clock.turn(WALL + 1000 + HOUR, STEADY + 1000) == WALL + 1000
    assert clock.turn(WALL + 2000 + HOUR, STEADY + 2000) == WALL + 2000
    assert clock.turn(WALL + 3000, STEADY + 3000) == WALL + 3000
    assert clock.turn(WALL + 60_000, STEADY + 60_000) == WALL + 60_000


def test_a_step_forward_that_stays_is_followed_and_what_waits_keeps_its_distance(
    clock: ClockProbe,
) -> None:
    clock.turn(WALL + 1000 + HOUR, STEADY + 1000)
    after = 1000 + DOUBTED
    assert clock.turn(WALL + after + HOUR, STEADY + after) == WALL + after + HOUR
    assert clock.steady_of(WALL + 500) == STEADY + 500
    assert clock.steady_of(WALL + after + HOUR + 5) == STEADY + after + 5
    assert clock.wall_of(WALL + 500) == WALL + 500
    assert clock.wall_of(WALL + 1500) == WALL + 1500 + HOUR       # it was doubted then


def test_a_step_back_slows_it_until_the_wall_clock_has_caught_up(clock: ClockProbe) -> None:
    assert clock.turn(WALL + 1000 - 7000, STEADY + 1000) == WALL + 1000
    assert clock.turn(WALL + 5000 - 7000, STEADY + 5000) == WALL + 1000 + 4000 // SLOWED
    assert clock.turn(WALL + 9000 - 7000, STEADY + 9000) == WALL + 1000 + 8000 // SLOWED
    assert clock.turn(WALL + 9500 - 7000, STEADY + 9500) >= WALL + 2000
    for ms in range(9500, 20_000, 100):
        clock.turn(WALL + ms - 7000, STEADY + ms)
    assert clock.turn(WALL + 20_000 - 7000, STEADY + 20_000) == pytest.approx(WALL + 13_000, abs=3)
    assert clock.steady_of(WALL + 1000) == STEADY + 1000 + SLOWED - 1    # the latest


def test_a_log_that_is_younger_than_the_wall_clock_slows_it_from_the_start(
    clock: ClockProbe,
) -> None:
    clock.begin(WALL, STEADY, WALL + HOUR)
    assert clock.turn(WALL + 800, STEADY + 800) == WALL + HOUR + 100
    assert clock.steady_of(WALL + HOUR - 3000) == STEADY - 3000         # of the run before


@pytest.mark.parametrize("seed", range(20))
def test_it_never_goes_back_and_no_time_of_it_is_early(clock: ClockProbe, seed: int) -> None:
    rng = random.Random(seed)
    ahead = now = 0
    stamps: list[tuple[int, int]] = []
    for _ in range(3000):
        now += rng.choice((0, 1, 5, 200, 1000))
        if rng.random() < 0.01:
            ahead += rng.choice((-HOUR, HOUR, -2000, 2000, -5, 5))
        store = clock.turn(WALL + now + ahead, STEADY + now)
        if stamps:
            assert store >= stamps[-1][0]
        stamps.append((store, STEADY + now))
    for store, steady in stamps[-200:]:
        assert clock.steady_of(store) - steady >= 0
    assert clock.knots <= 64


def test_both_clocks_are_read_at_one_instant() -> None:
    apart = {wall - steady for wall, steady in (read_clocks() for _ in range(2000))}
    assert len(apart) <= 2
