"""What was acknowledged against what was consumed: the demo's claims as arithmetic on lists."""
from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

Place = tuple[int, int]             # queue id, queue offset


@dataclass(frozen=True, slots=True)
class Entry:
    """One acknowledgement, or one delivery: which event, and where it is stored."""

    id: str
    place: Place


@dataclass(frozen=True, slots=True)
class Balance:
    """
    missing      acknowledged events that no consumer got
    misplaced    acknowledged events that were not delivered from the place that was acknowledged
    unknown      delivered events that nobody sent
    redelivered  deliveries of a place beyond its first: what a killed consumer had not committed
    stored_twice further places of one event: a send that was repeated because its answer was lost
    """

    acknowledged: int
    delivered: int
    missing: tuple[str, ...]
    misplaced: tuple[str, ...]
    unknown: tuple[str, ...]
    redelivered: int
    stored_twice: int

    @property
    def holds(self) -> bool:
        """Whether nothing acknowledged was lost and nothing came that nobody sent."""
        return self.acknowledged > 0 and not (self.missing or self.misplaced or self.unknown)


def balance(
    sent: Iterable[str], acknowledged: Iterable[Entry], delivered: Iterable[Entry],
) -> Balance:
    """Compare; `sent` are the ids of all events that a producer began to send."""
    acks, deliveries = list(acknowledged), list(delivered)
    places: dict[str, set[Place]] = defaultdict(set)
    for entry in deliveries:
        places[entry.id].add(entry.place)
    acked = {entry.id for entry in acks}
    times = Counter(deliveries)
    return Balance(
        acknowledged=len(acked),
        delivered=len(deliveries),
        missing=tuple(sorted(acked - places.keys())),
        misplaced=tuple(sorted(
            entry.id for entry in acks if entry.id in places and entry.place not in places[entry.id]
        )),
        unknown=tuple(sorted(places.keys() - set(sent))),
        redelivered=sum(count - 1 for count in times.values()),
        stored_twice=sum(len(of_event) - 1 for of_event in places.values()),
    )
