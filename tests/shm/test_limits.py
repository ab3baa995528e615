"""What addresses and accounts use is counted over all serving processes (mqcore/shm/limits.pxd)."""
from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from mqcore.layout import LIMIT_PLACES
from mqcore.shm.limits import LimitTable
from mqcore.shm.segment import Segment

NAME = "/mqcore-test-limits"
SECOND_US = 1_000_000
WAYS = 8


@pytest.fixture
def table() -> Iterator[LimitTable]:
    segment = Segment.create(
        NAME, run_id=1, serving_count=3, segment_size=65536, message_bytes_max=4096, topics=64,
        groups=64, subscriptions=64, queues=64, kind="memfd")
    yield LimitTable(segment)
    segment.unlink()


def neighbours(count: int) -> list[int]:
    """Keys that want the same places."""
    return [(number << 32 | 1) for number in range(1, count + 1)]


def test_connections_of_a_key_are_counted_over_all_processes(table: LimitTable) -> None:
    places = {table.enter(99, serving, 0) for serving in (0, 0, 1, 2)}
    other = table.enter(4711, 0, 0)

    place, = places
    assert (table.connections(place), table.connections(other)) == (4, 1)
    table.leave(place, 0)
    assert table.connections(place) == 3


def test_what_a_process_counted_ends_with_it(table: LimitTable) -> None:
    place = max(table.enter(99, serving, 0) for serving in (0, 0, 1))
    table.clear(0)

    assert table.connections(place) == 1


def test_who_finds_no_place_is_not_limited_and_free_places_are_given_again(
        table: LimitTable) -> None:
    keys = neighbours(WAYS + 1)
    places = [table.enter(key, 0, 0) for key in keys]
    assert sorted(places[:WAYS]) == list(range(WAYS))
    assert places[WAYS] == -1

    table.leave(places[3], 0)
    assert table.enter(keys[WAYS], 0, 0) == places[3]
    assert table.enter(keys[0], 1, 0) == places[0]


def test_a_place_is_not_given_away_before_its_debt_is_paid(table: LimitTable) -> None:
    keys = neighbours(WAYS + 1)
    places = [table.enter(key, 0, 0) for key in keys[:WAYS]]
    table.use_bytes(places[5], 0, 3_000, 1_000)
    table.leave(places[5], 0)

    assert table.enter(keys[WAYS], 0, 2 * SECOND_US) == -1
    assert table.enter(keys[5], 0, 2 * SECOND_US) == places[5]
    table.leave(places[5], 0)
    assert table.enter(keys[WAYS], 0, 4 * SECOND_US) == places[5]


def test_a_rate_holds_in_the_long_run_and_a_second_of_it_may_come_at_once(
        table: LimitTable) -> None:
    place = table.enter(7, 0, 0)
    taken = 0
    for now_us in range(0, 20 * SECOND_US, 10_000):
        while table.passes(place, now_us):
            table.use_bytes(place, now_us, 300, 10_000)
            taken += 300
    assert 20 * 10_000 <= taken <= 22 * 10_000

    assert not table.use_bytes(place, 100 * SECOND_US, 10_000 + 300, 10_000)
    assert table.passes(place, 101 * SECOND_US)


def test_random_histories_count_as_a_plain_table_would(table: LimitTable) -> None:
    chance = random.Random(5)
    open_now: list[tuple[int, int, int]] = []
    counted: Counter[int] = Counter()
    for _ in range(20_000):
        if open_now and chance.random() < 0.5:
            key, place, serving = open_now.pop(chance.randrange(len(open_now)))
            table.leave(place, serving)
            counted[key] -= 1
        else:
            key, serving = chance.randrange(1, 40) * 0x9E3779B97F4A7C15 % 2**64, chance.randrange(3)
            place = table.enter(key, serving, 0)
            assert 0 <= place < LIMIT_PLACES
            open_now.append((key, place, serving))
            counted[key] += 1
            assert table.connections(place) == counted[key]
    assert sum(now for now, _ in table.places().values()) == len(open_now)
