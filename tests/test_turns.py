"""Who is served next when several want more than there is time for (mqcore/turns.py)."""
from __future__ import annotations

import heapq
from collections.abc import Callable

import pytest

from mqcore.turns import (
    CREDIT_S,
    EXPRESS_STRETCH_S,
    FIRST_BYTES,
    KNOWN_MAX,
    SLICE_S,
    Job,
    Memory,
    Turns,
    finished,
)

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


def test_a_newcomer_shares_the_time_with_those_who_were_there(world: World) -> None:
    """It does not get first what they have had before it came."""
    steps: list[int] = []

    def endless(who: int) -> Callable[[], Job]:
        def job() -> Job:
            while True:
                world.now_s += 0.001
                steps.append(who)
                yield
        return job

    for who in (HOG, OTHER):
        world.turns.add(who, endless(who))
    for _ in range(600):
        world.turns.step()
    world.turns.add(HONEST, endless(HONEST))
    steps.clear()
    for _ in range(90):
        world.turns.step()
    assert min(map(steps.count, (HOG, OTHER, HONEST))) > len(steps) / 3 - 12


def test_a_small_request_of_somebody_new_passes_large_ones_of_others_who_are_new(
    world: World,
) -> None:
    for who in range(100, 150):
        world.turns.add(who, world.short(who, 0.02), size=370_000)
    world.turns.add(HONEST, world.short(HONEST), size=500)
    world.turns.step()
    assert world.order() == [HONEST]


@pytest.mark.parametrize("ahead_s", [CREDIT_S, 0.0])
def test_who_is_put_ahead_passes_those_who_have_used_as_much(world: World, ahead_s: float) -> None:
    for who in range(100, 140):
        world.turns.add(who, world.short(who))
    world.turns.add(HONEST, world.short(HONEST), ahead_s=ahead_s)
    world.run()
    assert world.order().index(HONEST) == (0 if ahead_s else 40)


def test_who_is_put_ahead_passes_nobody_by_more_than_that(world: World) -> None:
    """However often it asks: what it has used counts."""
    for _ in range(100):
        world.turns.add(HOG, world.short(HOG), ahead_s=CREDIT_S)
    world.turns.add(OTHER, world.short(OTHER))
    world.run()
    assert CREDIT_S <= dict(world.done)[OTHER] <= CREDIT_S + 2 * STEP_S


def test_a_job_that_was_put_ahead_is_gone_on_with_as_any_other(world: World) -> None:
    world.turns.add(HOG, world.long(HOG, 1_000), ahead_s=CREDIT_S)
    world.turns.add(OTHER, world.short(OTHER))
    world.run()
    assert dict(world.done)[OTHER] <= SLICE_S + 2 * STEP_S


def test_express_work_goes_first_and_leaves_the_rest_a_share(world: World) -> None:
    for _ in range(1_000):
        world.turns.add(HOG, world.short(HOG), express=True)
    world.turns.add(OTHER, world.long(OTHER, 30))
    world.run()
    at_s = dict(world.done)[OTHER]
    assert world.order()[0] == HOG
    assert at_s <= 30 * STEP_S * (1 + (EXPRESS_STRETCH_S + STEP_S) / SLICE_S)


def test_the_share_of_the_rest_is_time_however_little_each_of_them_wants(world: World) -> None:
    short_s, many = SLICE_S / 100, 200
    for _ in range(1_000):
        world.turns.add(HOG, world.short(HOG), express=True)
    for who in range(100, 100 + many):
        world.turns.add(who, world.short(who, short_s))
    world.run()
    last_s = max(at_s for who, at_s in world.done if who != HOG)
    assert last_s <= (1 + many * short_s / SLICE_S) * (EXPRESS_STRETCH_S + STEP_S + SLICE_S)
    beside = [who for who, at_s in world.done if who == HOG and at_s < last_s]
    assert len(beside) >= 2 * EXPRESS_STRETCH_S / STEP_S          # which does not wait for longer


def test_where_express_work_is_anybodys_the_rest_gets_as_much(world: World) -> None:
    world.turns = Turns(lambda: world.now_s, express_stretch_s=SLICE_S)
    for who in range(100, 140):
        for _ in range(30):
            world.turns.add(who, world.short(who), express=True)
    world.turns.add(OTHER, world.long(OTHER, 30))
    world.run()
    assert dict(world.done)[OTHER] <= 30 * STEP_S * (1 + (SLICE_S + STEP_S) / SLICE_S)


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


# -- memory ----------------------------------------------------------------------------------------

MIB = 1 << 20
BYTES_MAX = 64 * MIB
STEPS = 30                               # of a job that takes 30 MiB


class Full(World):
    """The same with a sum for memory; jobs hold what they made until they end."""

    def __init__(self) -> None:
        super().__init__()
        self.used = self.beside = self.most = 0
        self.turns = Turns(lambda: self.now_s, memory=Memory(
            BYTES_MAX, lambda: self.used, lambda: self.beside))

    def large(self, who: int, steps: int = STEPS, step_bytes: int = MIB) -> Callable[[], Job]:
        def job() -> Job:
            for _ in range(steps):
                self.now_s += STEP_S
                self.used += step_bytes
                self.most = max(self.most, self.used)
                yield
            self.used -= steps * step_bytes
            self.done.append((who, self.now_s))
        return job


@pytest.fixture
def full() -> Full:
    return Full()


def test_jobs_of_many_hold_no_more_together_than_the_sum_and_one_of_them(full: Full) -> None:
    for who in range(100, 120):
        full.turns.add(who, full.large(who))
    full.run()
    assert sorted(full.order()) == list(range(100, 120))
    assert full.used == 0
    assert full.most <= BYTES_MAX + STEPS * MIB


def test_who_is_new_is_served_while_a_quarter_of_the_memory_is_spent(full: Full) -> None:
    for who in range(100, 110):
        full.turns.add(who, full.large(who))
    while full.used < BYTES_MAX * 3 // 8:
        full.turns.step()
    assert not full.done
    full.turns.add(HONEST, full.short(HONEST))
    for _ in range(3):                       # two of the others are new as well
        full.turns.step()
    assert full.order() == [HONEST]


def test_who_is_new_and_takes_long_goes_on_behind_one_of_those_who_wait(full: Full) -> None:
    for who in range(100, 110):
        full.turns.add(who, full.large(who, 8 * STEPS, MIB // 8))
    while full.used < BYTES_MAX * 3 // 8:
        full.turns.step()
    full.turns.add(HONEST, full.large(HONEST, 8, MIB // 8))
    while HONEST not in full.order():
        full.turns.step()
    assert len(full.done) <= 3


def test_no_other_job_goes_on_when_all_of_the_memory_is_spent(full: Full) -> None:
    full.beside = BYTES_MAX
    for who in range(100, 104):
        full.turns.add(who, full.large(who))
    full.turns.step()
    full.turns.add(HONEST, full.large(HONEST, 3))
    full.turns.add(OTHER, full.short(OTHER))
    while len(full.done) < 2:
        full.turns.step()
    assert full.order()[0] == OTHER          # what is done at once holds nothing
    assert full.most == STEPS * MIB
    full.run()                               # one after the other, though it stays spent
    assert sorted(full.order()) == [OTHER, HONEST, *range(100, 104)]
    assert full.most == STEPS * MIB


def test_answers_that_wait_hold_up_jobs_and_not_all_of_them(full: Full) -> None:
    full.beside = 2 * BYTES_MAX
    full.turns.add(HOG, full.large(HOG))
    full.turns.add(OTHER, full.large(OTHER))
    full.run()
    assert full.most <= STEPS * MIB
    assert full.order() == [HOG, OTHER]


def test_express_work_never_waits_for_memory(full: Full) -> None:
    full.beside = 2 * BYTES_MAX
    full.turns.add(HOG, full.large(HOG))
    full.turns.step()
    full.turns.add(HONEST, full.large(HONEST, 5), express=True)
    for _ in range(3):
        full.turns.step()
    assert full.order() == [HONEST]


def test_a_job_that_fails_gives_back_what_it_held(full: Full) -> None:
    def failing() -> Job:
        yield from (full.large(HOG, 8)())
        yield
        raise ValueError("of this job")

    memory = full.turns._ordinary._memory
    assert memory is not None
    full.turns.add(HOG, failing)
    full.turns.step()
    assert memory.held > FIRST_BYTES
    with pytest.raises(ValueError, match="of this job"):
        full.run()
    assert memory.held == 0


def test_a_job_that_nobody_waits_for_does_not_wait_for_memory(full: Full) -> None:
    for who in range(100, 116):
        full.turns.add(who, full.large(who))
    while full.used < BYTES_MAX * 3 // 8:
        full.turns.step()
    full.beside = 2 * BYTES_MAX
    for who in range(105, 110):
        full.turns.let_end(who)
    full.turns.let_end(HONEST)
    while not set(full.order()) >= set(range(105, 110)):
        full.turns.step()
    assert len(full.done) <= 10              # and a few, one after the other, meanwhile
    full.run()
    assert not full.turns._ordinary._ending


def test_weighing_takes_little_of_the_time_however_long_it_takes_once(full: Full) -> None:
    weighed: list[float] = []

    def slow() -> int:
        full.now_s += 0.012
        weighed.append(full.now_s)
        return full.used

    full.turns = Turns(lambda: full.now_s, memory=Memory(BYTES_MAX, slow, lambda: 0))
    full.turns.add(HOG, full.large(HOG, 1_000, 1))
    full.turns.add(OTHER, full.large(OTHER, 1_000, 1))
    full.run()
    assert sorted(full.order()) == [HOG, OTHER]
    assert 4 <= len(weighed) <= 2 * (full.now_s / (20 * 0.012) + 1)
    assert full.now_s <= 2_000 * STEP_S * 1.2
    assert full.turns.longest_s >= 2 * 0.012             # it is charged to whom it is done for
    memory = full.turns._ordinary._memory
    assert memory is not None
    assert memory.held == 0


def test_what_grows_in_slices_that_are_not_weighed_counts_at_the_next_weighing(full: Full) -> None:
    def interrupted() -> int:
        full.now_s += 0.010                  # another process had the processor
        return full.used

    full.turns = Turns(lambda: full.now_s, memory=Memory(BYTES_MAX, interrupted, lambda: 0))
    for who in range(100, 120):
        full.turns.add(who, full.large(who, 4 * STEPS, MIB // 4))
    full.run()
    assert sorted(full.order()) == list(range(100, 120))
    assert full.most <= BYTES_MAX + 2 * STEPS * MIB
    memory = full.turns._ordinary._memory
    assert memory is not None
    assert (memory.held, memory.jobs) == (0, 0)


def test_who_waits_for_memory_is_not_looked_at_for_each_that_ends(
    full: Full, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed: list[object] = []
    push = heapq.heappush
    for who in range(100, 200):
        full.turns.add(who, full.large(who, 6, 1 << 10))
    for _ in range(100):
        full.turns.step()
    full.beside = 2 * BYTES_MAX
    monkeypatch.setattr("heapq.heappush", lambda heap, one: (pushed.append(one), push(heap, one)))
    for who in range(150, 200):
        full.turns.let_end(who)
        full.turns.step()
    full.run()
    assert sorted(full.order()) == list(range(100, 200))
    assert len(pushed) <= 600
