"""How members share queues (client.md 4.5): Java's shares, and every queue has one owner."""
from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcore.client.core.allocate import (
    Allocate,
    ConsistentHash,
    FixedQueues,
    MachineRoom,
    MachineRoomNearby,
    allocate_averagely,
    allocate_by_circle,
)
from mqcore.client.message import MessageQueue

QUEUES = [MessageQueue("TopicTest", "broker-a", number) for number in range(60)]
THREE = ["10.0.0.1@1", "10.0.0.2@2", "10.0.0.3@3"]


def shares(strategy: Allocate, queue_count: int, members: list[str]) -> list[list[int]]:
    return [[queue.queue_id for queue in strategy(member, QUEUES[:queue_count], members)]
            for member in members]


@pytest.mark.parametrize(("strategy", "queue_count", "member_count", "expected"), [
    (allocate_averagely, 8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
    (allocate_averagely, 4, 6, [[0], [1], [2], [3], [], []]),
    (allocate_averagely, 10, 4, [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]),
    (allocate_by_circle, 8, 3, [[0, 3, 6], [1, 4, 7], [2, 5]]),
    (ConsistentHash(), 8, 3, [[1, 2, 4, 5, 7], [], [0, 3, 6]]),
])
def test_shares_are_those_of_the_java_client(
    strategy: Allocate, queue_count: int, member_count: int, expected: list[list[int]],
) -> None:
    members = THREE if member_count == 3 else [f"10.0.0.{n}@1" for n in range(member_count)]

    assert shares(strategy, queue_count, members) == expected


def nearby(strategy: Allocate) -> Allocate:
    return MachineRoomNearby(strategy, room_of_broker=lambda name: name[-1],
                             room_of_client=lambda client: client[-1])


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=40), st.integers(1, 12),
       st.randoms(use_true_random=False),
       st.sampled_from([allocate_averagely, allocate_by_circle, ConsistentHash(),
                        nearby(allocate_averagely), nearby(ConsistentHash(3))]))
def test_every_queue_has_exactly_one_owner(rooms, member_count, shuffler, strategy):
    queues = [MessageQueue("T", f"broker-{room}", number) for number, room in enumerate(rooms)]
    members = [f"{n}@{'abd'[n % 3]}" for n in range(member_count)]
    owned = []
    for member in members:
        shuffler.shuffle(queues)
        shuffler.shuffle(members)
        owned.append(strategy(member, list(queues), list(members)))
    everybody = [strategy(member, queues, members) for member in members]

    assert sorted(chain.from_iterable(everybody)) == sorted(queues)
    if strategy is allocate_averagely:
        assert max(map(len, everybody)) - min(map(len, everybody)) <= 1


def test_members_of_a_room_share_its_queues_and_all_share_an_empty_room():
    queues = [MessageQueue("T", f"broker-{room}", n) for room in "ab" for n in range(2)]
    members = ["1@a", "2@a"]

    assert nearby(allocate_averagely)("1@a", queues, members) == [
        MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-b", 0)]
    with pytest.raises(ValueError, match="in no machine room"):
        MachineRoomNearby(allocate_averagely, room_of_broker=lambda _: None,
                          room_of_client=lambda _: "a")("1@a", queues, members)


def test_a_machine_room_is_the_part_of_the_brokers_name_before_the_sign():
    queues = [MessageQueue("T", broker, n) for broker in ("hz@a", "sh@b", "hz", "hz@a@b")
              for n in range(5)]
    strategy = MachineRoom({"hz"})

    assert [q.queue_id for q in strategy("1", queues, ["1", "2"])] == [0, 1, 4]
    assert [q.queue_id for q in strategy("2", queues, ["1", "2"])] == [2, 3]


def test_fixed_queues_do_not_depend_on_members():
    assert FixedQueues(QUEUES[3:1:-1])("me", [], []) == QUEUES[2:4]


@pytest.mark.parametrize("strategy", [
    allocate_averagely, allocate_by_circle, ConsistentHash(), MachineRoom({"x"}),
    nearby(allocate_averagely),
])
def test_a_member_that_is_not_listed_gets_nothing_and_empty_lists_are_errors(strategy):
    assert strategy("me", QUEUES, ["other"]) == []
    for arguments in (("", QUEUES, ["a"]), ("me", QUEUES, []), ("me", [], ["me"])):
        with pytest.raises(ValueError, match="shares of queues"):
            strategy(*arguments)
