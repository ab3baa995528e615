"""Who is served next when several want more than there is time for (mqcore/turns.py)."""
from __future__ import annotations

from collections.abc import Callable

import pytest

from mqcore.turns import EXPRESS_STRETCH_S, KNOWN_MAX, SLICE_S, Job, Turns, finished

STEP_S = 0.001
HOG, OTHER, HONEST = 1, 2, 3


class World:
    """A clock that only work moves, and a list of what was done."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.done: list[tuple[int, float]] = []          # who, when
        self.turns = Turns(lambda: self.now_s)

    def short(self, who: int, took_s: float = STEP_S) -> Callable[[], None]:
        def begin() -> None:
            self.now_s += took_s
            self.done.append((who, self.now_s))
        return begin

    def long(self, who: int, steps: int) -> Callable[[], Job]:
        def job() -> Job:
            for _ in range(steps):
                self.now_s += STEP_S
                yield
            self.done.append((who, self.now_s))
        return job

    def run(self) -> None:
        while self.turns.waits():
            self.turns.step()

    def order(self) -> list[int]:
        return [who for who, _ in self.done]


@pytest.fixture
def world() -> World:
    return World()


def test_the_requests_of_one_are_done_in_their_order(world: World) -> None:
    for number in range(5):
        world.turns.add(HOG, world.short(number))
    world.run()
    assert world.order() == [0, 1, 2, 3, 4]


def test_a_short_request_waits_for_one_slice_of_a_long_one(world: World) -> None:
    for _ in range(100):
        world.turns.add(HOG, world.long(HOG, 1_000))
    world.turns.step()
    world.turns.add(HONEST, world.short(HONEST))
    begun_s = world.now_s
    world.turns.step()
    assert world.done == [(HONEST, begun_s + STEP_S)]
    assert begun_s <= SLICE_S + STEP_S


def test_those_who_ask_without_end_get_the_same_time(world: World) -> None:
    for _ in range(50):
        world.turns.add(HOG, world.long(HOG, 100))
        world.turns.add(OTHER, world.short(OTHER))
    for _ in range(200):
        world.turns.step()
    assert world.order().count(OTHER) == 50


def test_who_was_away_for_long_has_saved_nothing_up(world: World) -> None:
    world.turns.add(HOG, world.long(HOG, 1_000))
    world.run()
    for _ in range(20):
        world.turns.add(HONEST, world.long(HONEST, 10))
        world.turns.add(HOG, world.long(HOG, 10))
    for _ in range(40):
        world.turns.step()
    counts = world.order()
    assert abs(counts.count(HONEST) - (counts.count(HOG) - 1)) <= 2


def test_a_small_request_of_somebody_new_passes_large_ones_of_others_who_are_new(
    world: World,
) -> None:
    for who in range(100, 150):
        world.turns.add(who, world.short(who, 0.02), size=370_000)
    world.turns.add(HONEST, world.short(HONEST), size=500)
    world.turns.step()
    assert world.order() == [HONEST]


def test_express_work_goes_first_and_leaves_the_rest_a_share(world: World) -> None:
    for _ in range(1_000):
        world.turns.add(HOG, world.short(HOG), express=True)
    world.turns.add(OTHER, world.long(OTHER, 30))
    world.run()
    at_s = dict(world.done)[OTHER]
    assert world.order()[0] == HOG
    assert at_s <= 30 * STEP_S * (1 + (EXPRESS_STRETCH_S + STEP_S) / SLICE_S)


def test_what_a_request_adds_for_itself_comes_after_it_once(world: World) -> None:
    def begin() -> None:
        world.turns.add(HOG, world.short(HOG))
        world.turns.add(HOG, world.short(HOG))

    world.turns.add(HOG, begin)
    world.run()
    assert world.order() == [HOG, HOG]


def test_an_error_ends_its_job_alone(world: World) -> None:
    def failing() -> Job:
        yield
        raise ValueError("of this job")

    world.turns.add(HOG, failing)
    world.turns.add(HOG, world.short(HOG))
    with pytest.raises(ValueError, match="of this job"):
        world.run()
    world.run()
    assert world.order() == [HOG]


def test_the_longest_step_is_known(world: World) -> None:
    world.turns.add(HOG, world.short(HOG, 0.25))
    world.turns.add(OTHER, world.short(OTHER))
    world.run()
    assert world.turns.longest_s == pytest.approx(0.25)


def test_who_does_not_come_back_is_forgotten(world: World) -> None:
    world.turns.add(-HOG, world.long(HOG, 10 * KNOWN_MAX))
    for who in range(3 * KNOWN_MAX):
        world.turns.add(who, world.short(who))
        world.turns.step()
    assert len(world.turns._ordinary.who) <= 2 * KNOWN_MAX + 2
    world.run()
    assert not world.turns._ordinary.who


def test_a_job_can_be_done_in_one_go() -> None:
    def job() -> Job:
        yield
        yield
        return 7

    assert finished(job()) == 7
