"""
Room that peers share. A peer that invents names cannot take all the room (half HR1).

Rows that a peer adds to a table count for its address. Rows in a table are never taken away.
"""
from __future__ import annotations

from mqcore.turns import within_half

SOURCE_COUNT_MAX = 65_536
OTHERS = "others"                  # all addresses beyond that many
PULLS = "pulls"                    # commits inside pulls reach the rules without an address


def address_of(remote: str) -> str:
    """The address in "address:port", as requests have it."""
    return remote.rpartition(":")[0]


class Shares:
    """How much of a table's room each address has taken since the start."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def may_take(self, source: str, cost: int, free: int) -> bool:
        """Whether `source` may take `cost` of the `free` room; "": the broker itself, or a file."""
        if cost > free:
            return False
        if not source:
            return True
        taken = self._taken.get(self._known(source), 0)
        return within_half(taken + cost, taken + free)

    def took(self, source: str, cost: int) -> None:
        """It has taken it."""
        if source:
            source = self._known(source)
            self._taken[source] = self._taken.get(source, 0) + cost

    def _known(self, source: str) -> str:
        if source in self._taken or len(self._taken) < SOURCE_COUNT_MAX:
            return source
        return OTHERS


class Room:
    """
    Bytes or places of a table that connections fill and give back; each has its half (half HR1).
    """

    def __init__(self, size: int) -> None:
        self.left = size
        self._taken: dict[int, int] = {}

    def may_take(self, connection: int, cost: int) -> bool:
        """Whether a connection may have `cost` bytes more; less always."""
        taken = self._taken.get(connection, 0)
        return cost <= 0 or within_half(taken + cost, taken + self.left)

    def take(self, connection: int, cost: int) -> None:
        """It has them; a negative cost is given back."""
        taken = self._taken.get(connection, 0) + cost
        self.left -= cost
        if taken:
            self._taken[connection] = taken
        else:
            self._taken.pop(connection, None)
