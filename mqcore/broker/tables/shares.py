"""
Room that peers share: nobody who invents names may take all of it.

Whatever a peer adds to a table is counted for its address. An address gets at most half of the room
that it found, so that the next one finds as much. What is in the table already is never taken away.
"""
from __future__ import annotations

SOURCE_COUNT_MAX = 65_536
OTHERS = "others"                  # all addresses beyond that many
PULLS = "pulls"                    # commits inside pulls reach the rules without an address


def address_of(remote: str) -> str:
    """The address in "address:port", as requests have it."""
    return remote.rpartition(":")[0]


def is_half(taken: int, cost: int, free: int) -> bool:
    """Whether it has at most half of what it found, with `cost` more of what is free."""
    return 2 * (taken + cost) <= free + taken


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
        return is_half(taken, cost, free)

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
    Bytes or places of a table that is filled by connections and given back: each gets at most half
    of what it finds. What is in the table already is never taken away.
    """

    def __init__(self, size: int) -> None:
        self.left = size
        self._taken: dict[int, int] = {}

    def may_take(self, connection: int, cost: int) -> bool:
        """Whether a connection may have `cost` bytes more; less always."""
        taken = self._taken.get(connection, 0)
        return cost <= 0 or is_half(taken, cost, self.left)

    def take(self, connection: int, cost: int) -> None:
        """It has them; a negative cost is given back."""
        taken = self._taken.get(connection, 0) + cost
        self.left -= cost
        if taken:
            self._taken[connection] = taken
        else:
            self._taken.pop(connection, None)
