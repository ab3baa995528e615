"""
Shares of a name server's tables for the broker names that are here longest.

A stranger may register anything where no account is asked for. It must not take the room that a
broker needs which was here before: for one more topic, or for all of its topics after a restart. So
each of the oldest names has a share of every table beyond what it holds. A name that left keeps its
age for KEPT_MS, and the places of its topics, which any name may bring back. Only shares of older
names are kept from a name: the oldest has the whole table.
"""
from __future__ import annotations

from dataclasses import dataclass

SHARE_PART = 256                   # a share is this part of a table ...
ELDERS_MAX = 32                    # ... of so many names
KEPT_MS = 3_600_000


@dataclass(slots=True)
class _Elder:
    """routes: topics that it had, until they are back; left_ms: None: it is here."""

    routes: int = 0
    left_ms: int | None = None


class Elders:
    """By age, the oldest first. now_ms: of the last look, by which the time of an end is known."""

    def __init__(self) -> None:
        self._elders: dict[str, _Elder] = {}
        self._topics: dict[str, str] = {}          # kept places: topic -> the name that left
        self._now_ms = 0

    @property
    def kept(self) -> int:
        """Places of topics."""
        return len(self._topics)

    def came(self, name: str) -> None:
        """The name registers."""
        elder = self._elders.get(name)
        if elder is not None:
            elder.left_ms = None
        elif len(self._elders) < ELDERS_MAX:
            self._elders[name] = _Elder()

    def has(self, topic: str) -> bool:
        """Whether a place is kept for it."""
        return topic in self._topics

    def is_back(self, topic: str) -> None:
        """The topic is in the tables again."""
        self._topics.pop(topic, None)

    def is_whole(self, name: str) -> list[str]:
        """The name has all its topics again; returns those that are kept no longer."""
        elder = self._elders.get(name)
        if elder is None or elder.routes == 0:
            return []
        elder.routes = 0
        return self._release(name)

    def left(self, name: str, routes: int) -> None:
        """The name ended, with so many topics."""
        elder = self._elders.get(name)
        if elder is not None:
            elder.left_ms = self._now_ms
            elder.routes = max(elder.routes, routes)

    def reserve(self, name: str, topic: str) -> bool:
        """Whether a place stays for a topic that ended with a name."""
        if name in self._elders:
            self._topics[topic] = name
        return name in self._elders

    def look(self, now_ms: int) -> list[str]:
        """Forget names that are away for too long; returns topics that are kept no longer."""
        self._now_ms = now_ms
        released: list[str] = []
        for name, elder in list(self._elders.items()):
            if elder.left_ms is not None and not 0 <= now_ms - elder.left_ms <= KEPT_MS:
                del self._elders[name]
                released += self._release(name)
        return released

    def _release(self, name: str) -> list[str]:
        released = [topic for topic, of_name in self._topics.items() if of_name == name]
        for topic in released:
            del self._topics[topic]
        return released

    def room(self, name: str, places: int, *, routes: bool = False) -> int:
        """How many places of a table may be taken when `name` takes one; routes: of that table."""
        left, share = places, places // SHARE_PART
        for one, elder in self._elders.items():
            if one == name:
                break
            left -= share + (elder.routes if routes else 0)
        return left
