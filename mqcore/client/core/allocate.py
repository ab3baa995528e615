"""
How the members of a group share the queues of a topic (client.md 4.5).

Every member computes the same shares from the same sorted lists, so no agreement is needed.
A strategy is a callable (own id, queues, all ids) -> own queues; any callable of that form may be
given by an application. A member that is not listed gets nothing: its heartbeat has not arrived.
"""
from __future__ import annotations

import bisect
import hashlib
from collections.abc import Callable, Iterable, Sequence

from mqcore.client.message import MessageQueue

VIRTUAL_NODE_COUNT = 10

Allocate = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]


def _place(client_id: str, client_ids: Sequence[str]) -> tuple[int, int]:
    """The own index among the sorted ids and their count; an index of -1: not listed."""
    if not client_id or not client_ids:
        raise ValueError("shares of queues: expected a client id, and a list of all ids")
    members = sorted(client_ids)
    return members.index(client_id) if client_id in members else -1, len(members)


def _ordered(queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    if not queues:
        raise ValueError("shares of queues: expected at least one queue")
    return sorted(queues)


def allocate_averagely(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """AVG, Java's default: consecutive shares that differ by at most one queue.

    This and the others below raise ValueError without an id of one's own, members or queues.
    """
    index, count = _place(client_id, client_ids)
    ordered = _ordered(queues)
    if index < 0:
        return []
    share, rest = divmod(len(ordered), count)
    start = index * share + min(index, rest)
    return ordered[start:start + share + (1 if index < rest else 0)]


def allocate_by_circle(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """AVG_BY_CIRCLE: queues are dealt one by one, like cards."""
    index, count = _place(client_id, client_ids)
    ordered = _ordered(queues)
    return [] if index < 0 else ordered[index::count]


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


class ConsistentHash:
    """CONSISTENT_HASH: who joins or leaves moves few queues; shares differ in size."""

    def __init__(self, virtual_node_count: int = VIRTUAL_NODE_COUNT,
                 hash_function: Callable[[str], int] = _hash) -> None:
        """`virtual_node_count` points on the ring for each member; raises ValueError below 1."""
        if virtual_node_count < 1:
            raise ValueError(f"virtual_node_count = {virtual_node_count}: expected at least 1")
        self._node_count = virtual_node_count
        self._hash = hash_function

    def __call__(self, client_id: str, queues: Sequence[MessageQueue],
                 client_ids: Sequence[str]) -> list[MessageQueue]:
        index, _ = _place(client_id, client_ids)
        ordered = _ordered(queues)
        if index < 0:
            return []
        ring = {self._hash(f"{member}-{number}"): member
                for member in sorted(client_ids) for number in range(self._node_count)}
        points = sorted(ring)

        def owner(queue: MessageQueue) -> str:
            text = (f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
                    f"queueId={queue.queue_id}]")
            at = bisect.bisect_left(points, self._hash(text))
            return ring[points[at % len(points)]]

        return [queue for queue in ordered if owner(queue) == client_id]


class FixedQueues:
    """CONFIG: always these queues, whatever other members are there."""

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        self._queues = sorted(queues)

    def __call__(self, client_id: str, queues: Sequence[MessageQueue],
                 client_ids: Sequence[str]) -> list[MessageQueue]:
        return list(self._queues)


class MachineRoom:
    """MACHINE_ROOM: queues of brokers named `room@name` with a room of the given set."""

    def __init__(self, rooms: Iterable[str]) -> None:
        self._rooms = frozenset(rooms)

    def __call__(self, client_id: str, queues: Sequence[MessageQueue],
                 client_ids: Sequence[str]) -> list[MessageQueue]:
        index, count = _place(client_id, client_ids)
        ordered = _ordered(queues)
        if index < 0:
            return []
        near = [queue for queue in ordered if self._is_near(queue.broker_name)]
        share, rest = divmod(len(near), count)
        mine = near[share * index:share * (index + 1)]
        return [*mine, near[share * count + index]] if index < rest else mine

    def _is_near(self, broker_name: str) -> bool:
        parts = broker_name.split("@")
        return len(parts) == 2 and parts[0] in self._rooms


class MachineRoomNearby:
    """MACHINE_ROOM_NEARBY: members share the queues of their own room by another strategy; all
    members share those of rooms without any."""

    def __init__(self, strategy: Allocate, *, room_of_broker: Callable[[str], str | None],
                 room_of_client: Callable[[str], str | None]) -> None:
        """The two functions say where a broker (by name) and a client (by id) is; one that says
        nowhere is a ValueError when queues are shared."""
        self._strategy = strategy
        self._room_of_broker = room_of_broker
        self._room_of_client = room_of_client

    def __call__(self, client_id: str, queues: Sequence[MessageQueue],
                 client_ids: Sequence[str]) -> list[MessageQueue]:
        index, _ = _place(client_id, client_ids)
        ordered = _ordered(queues)
        if index < 0:
            return []
        queues_of: dict[str, list[MessageQueue]] = {}
        for queue in ordered:
            room = self._known(self._room_of_broker(queue.broker_name), queue.broker_name)
            queues_of.setdefault(room, []).append(queue)
        members_of: dict[str, list[str]] = {}
        for member in client_ids:
            room = self._known(self._room_of_client(member), member)
            members_of.setdefault(room, []).append(member)
        own_room = self._known(self._room_of_client(client_id), client_id)
        found = []
        if own_room in queues_of:
            found += self._strategy(client_id, queues_of[own_room], members_of[own_room])
        for room, without_members in queues_of.items():
            if room not in members_of:
                found += self._strategy(client_id, without_members, client_ids)
        return found

    @staticmethod
    def _known(room: str | None, of: str) -> str:
        if not room:
            raise ValueError(f"{of} is in no machine room")
        return room
