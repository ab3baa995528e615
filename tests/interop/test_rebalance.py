"""Members come and go under load, one dies with its locks: nothing is lost, order is kept."""
from __future__ import annotations

import time

import pytest

from tests.interop.ask import group_members
from tests.interop.conftest import Cluster
from tests.interop.members import Line, Members, Place, keys_of, places_of
from tests.interop.worlds import LOCK_EXPIRY_MS, Short, Starter
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)
QUEUES = 6
INTERVAL_MS = 3
PERSIST_MS = 5_000              # how often consumers tell their offsets
HAND_OVER_MS = 6_000            # what a member that joins or leaves may take: far below 20,000
CHANGE_S_MAX = 15
RECENT_MS = 300                 # a round of the flow takes some 30 ms
# Who is there at first, who joins, who leaves: names of clients.
CASTS = {"java": ("java", "java", "java"), "mixed": ("go", "java", "go")}


def _queues_of(lines: list[Line], since_ms: float) -> set[int]:
    return {line["queueId"] for line in lines if line["seenAt"] >= since_ms}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Crowd:
    """Members of one group in processes of several clients, and what they get."""

    def __init__(self, topic: str, group: str) -> None:
        self.topic = topic
        self.group = group
        self.homes: dict[str, Members] = {}
        self.present: list[str] = []
        self.changes: list[tuple[int, int]] = []        # from, to: ms

    def lines(self, member: str | None = None) -> list[Line]:
        """The deliveries to a member or to all, in the order of their times."""
        homes = set(self.homes.values()) if member is None else {self.homes[member]}
        found = [line for home in homes for line in home.deliveries(self.topic, member)]
        return sorted(found, key=lambda line: int(line["seenAt"]))

    def change(self, joining: dict[str, Members], leaving: str | None = None) -> None:
        """Let members join or one leave, and wait until all queues are shared evenly again."""
        begin = _now_ms()
        for name, home in joining.items():
            self.homes[name] = home
            home.push(name, self.topic, self.group)
        self.present += joining
        if leaving:
            self.homes[leaving].ask("stop", leaving)
            self.present.remove(leaving)
        self._await_shares(QUEUES // len(self.present))
        self.changes.append((begin, _now_ms()))

    def _await_shares(self, share: int) -> None:
        def even() -> bool:
            recent = _now_ms() - RECENT_MS
            shares = [_queues_of(self.lines(name), recent) for name in self.present]
            return (all(len(one) == share for one in shares)
                    and len(set().union(*shares)) == QUEUES)

        wait_until(even, f"{share} queues for each of {self.present}", CHANGE_S_MAX)

    def doubles(self) -> list[tuple[Line, Line]]:
        """The first delivery and each further one of messages that came more than once."""
        first: dict[Place, Line] = {}
        found = []
        for line in self.lines():
            earlier = first.setdefault((line["queueId"], line["offset"]), line)
            if earlier is not line:
                found.append((earlier, line))
        return found


@pytest.mark.parametrize("cast", CASTS)
def test_members_that_come_and_go_lose_nothing_and_double_only_what_changes_hands(
    cluster: Cluster, members_of: Starter, cast: str,
) -> None:
    java = members_of("java", cluster.namesrv_addr)
    topic = f"crowd-{cast}-{cluster.kind}"
    homes = [members_of(client, cluster.namesrv_addr) for client in CASTS[cast]]
    names = [f"{cast}-{number}" for number in range(len(homes))]
    crowd = Crowd(topic, f"{topic}-readers")
    java.create(topic, QUEUES)
    java.ask("flow", topic, topic=topic, queues=QUEUES, interval=INTERVAL_MS)
    crowd.change({names[0]: homes[0]})
    crowd.change(dict(zip(names[1:], homes[1:], strict=True)))
    crowd.change({}, leaving=names[0])
    acknowledged = java.ask("end-flow", topic)

    wait_until(lambda: set(acknowledged) <= set(keys_of(crowd.lines())), "all messages")
    took_ms = [after - before for before, after in crowd.changes]
    doubles = crowd.doubles()
    print(f"{cluster.kind} {cast}: {len(acknowledged)} messages, {len(doubles)} came twice, "
          f"changes took {took_ms} ms")
    assert max(took_ms) < HAND_OVER_MS
    for earlier, later in doubles:
        assert earlier["member"] != later["member"]
        assert any(
            begin - PERSIST_MS <= earlier["seenAt"] and begin <= later["seenAt"] <= end + RECENT_MS
            for begin, end in crowd.changes), (earlier, later)
    for name in crowd.present:
        crowd.homes[name].ask("stop", name)


# -- a death with locks ----------------------------------------------------------------------------

RENEWAL_MS = 1_000
LATE_MS_MAX = 4_000
JVM_OPTIONS = (
    f"-Drocketmq.client.rebalance.lockInterval={RENEWAL_MS}",
    f"-Drocketmq.client.rebalance.waitInterval={RENEWAL_MS}",
)


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["java", "go"])
def test_a_dead_members_queues_are_taken_over_in_order_when_its_locks_expire(
    short_cluster: Short, members_of: Starter, start_members: Starter, killed: str,
) -> None:
    java = members_of("java", short_cluster.namesrv_addr)
    topic = f"death-{killed}"
    group = f"{topic}-readers"
    java.create(topic, QUEUES)
    options = {"lockInterval": RENEWAL_MS, "orderly": True}
    first = start_members(killed, short_cluster.namesrv_addr, JVM_OPTIONS)
    second = start_members("java", short_cluster.namesrv_addr, JVM_OPTIONS)
    first.push("first", topic, group, **options)
    second.push("second", topic, group, **options)
    java.ask("flow", topic, topic=topic, queues=QUEUES, interval=10)

    def shared() -> bool:
        recent = _now_ms() - 500
        shares = [_queues_of(one.deliveries(topic), recent) for one in (first, second)]
        return [len(one) for one in shares] == [QUEUES // 2] * 2 and not shares[0] & shares[1]

    wait_until(shared, "each has half of the queues", CHANGE_S_MAX + LOCK_EXPIRY_MS / 1_000)
    first.kill()
    killed_at = _now_ms()
    wait_until(lambda: len(group_members(short_cluster.broker_addr, group)) == 1, "one member")
    told_after_ms = _now_ms() - killed_at
    taken = _queues_of(first.deliveries(topic), killed_at - 500)
    wait_until(lambda: taken <= _queues_of(second.deliveries(topic), killed_at), "a take-over")
    acknowledged = java.ask("end-flow", topic)
    wait_until(lambda: set(acknowledged) <= set(
        keys_of([*first.deliveries(topic), *second.deliveries(topic)])), "all messages")

    both = [first.deliveries(topic), second.deliveries(topic)]
    for queue in taken:
        before, after = ([offset for one, offset in places_of(lines) if one == queue]
                         for lines in both)
        handed = [line for line in both[1]
                  if line["queueId"] == queue and line["seenAt"] >= killed_at]
        waited_ms = handed[0]["seenAt"] - killed_at
        print(f"{short_cluster.kind} {killed} queue {queue}: taken over after {waited_ms} ms, "
              f"{before[-1] + 1 - handed[0]['offset']} again; told after {told_after_ms} ms")
        assert before == list(range(before[0], before[-1] + 1))
        again = [line["offset"] for line in handed]
        assert again == list(range(again[0], again[-1] + 1))
        assert again[0] <= before[-1] + 1
        assert len(after) >= len(again)
        assert waited_ms >= LOCK_EXPIRY_MS - 2 * RENEWAL_MS
        assert waited_ms <= LOCK_EXPIRY_MS + RENEWAL_MS + LATE_MS_MAX
    second.ask("stop", "second")
