"""How the members of a group share the queues of a topic (client.md 4.5).

Every member computes the same shares from the same sorted lists, so nobody has to agree on them.
"""
from __future__ import annotations

from collections.abc import Sequence

from mqcore.client.message import MessageQueue


def allocate_averagely(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Java's default: consecutive shares that differ by at most one queue.

    `client_id` gets nothing when it is not in `client_ids` (its heartbeat has not arrived yet).
    """
    members = sorted(client_ids)
    if client_id not in members:
        return []
    ordered = sorted(queues)
    share, rest = divmod(len(ordered), len(members))
    index = members.index(client_id)
    start = index * share + min(index, rest)
    return ordered[start:start + share + (1 if index < rest else 0)]
