"""
What must be true of a history, whatever has failed meanwhile.

    C1  An attempt that was answered 0 is in every final reading (with a slave in sync for each
        answer, no failover may lose it).
    C2  What is read was sent, byte for byte, and not refused (14).
    C3  An attempt stands once in a final reading. A message stands there twice only where the
        answers of the earlier attempts left it open, or there was none.
    C4  Within a queue, attempts of one connection stand in the order of sending; and what was sent
        after another attempt was answered stands behind it.
    C5  An offset means one message for ever: in the final readings, for the answer 0 that named
        it, and for all who ever read it if they were shown only what slaves have (`lasting`). What
        an answer calls its place is where it stands.
    C6  What a consumer was shown stays (`lasting`).
    C7  A final reading has all offsets of a queue from 0 on.

    python -m tests.replication.faults.checker FILE
"""
from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.replication.faults.history import OK, REFUSED, Delivery, History, Send

SHOWN_MAX = 10                        # faults of a kind in a summary


@dataclass(frozen=True)
class Fault:
    """One thing that is not as it must be; kind: the rule's word."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def check(history: History) -> list[Fault]:
    """All faults of a history; empty: it is good."""
    attempts = {send.name: send for send in history.sends}
    faults = list(_phantoms(history, attempts))
    faults += _reused(history)
    for broker, found in history.final.items():
        faults += _lost(broker, found, history.sends)
        faults += _doubled(broker, found, attempts)
        faults += _holes(broker, found)
        for queue in _by_queue(found).values():
            faults += _disordered(broker, queue, attempts)
        if history.lasting:
            faults += _taken_back(broker, found, history.deliveries)
    return faults


def summary(faults: list[Fault]) -> str:
    """A line for each kind, and the first faults of it."""
    lines = []
    for kind, count in Counter(fault.kind for fault in faults).items():
        lines.append(f"{kind}: {count}")
        lines += [f"  {one.text}" for one in faults if one.kind == kind][:SHOWN_MAX]
    return "\n".join(lines)


def _readings(history: History) -> Iterator[Delivery]:
    yield from history.deliveries
    yield from _kept(history)


def _kept(history: History) -> Iterator[Delivery]:
    for found in history.final.values():
        yield from found


def _by_queue(found: Iterable[Delivery]) -> dict[int, list[Delivery]]:
    """In order of their offsets."""
    queues: dict[int, list[Delivery]] = defaultdict(list)
    for one in sorted(found, key=lambda one: one.offset):
        queues[one.queue].append(one)
    return queues


def _lost(broker: str, found: list[Delivery], sends: list[Send]) -> Iterator[Fault]:
    """C1"""
    there = {one.name for one in found}
    for send in sends:
        if send.code == OK and send.name not in there:
            yield Fault("lost", f"{send} is not at {broker}")


def _phantoms(history: History, attempts: dict[str, Send]) -> Iterator[Fault]:
    """C2"""
    for one in {(one.name, one.queue): one for one in _readings(history)}.values():
        send = attempts.get(one.name)
        if send is None:
            yield Fault("phantom", f"{one} was never sent")
        elif send.queue != one.queue:
            yield Fault("phantom", f"{one} was sent to another queue: {send}")
        elif send.code == REFUSED:
            yield Fault("phantom", f"{one} was refused: {send}")


def _doubled(broker: str, found: list[Delivery], attempts: dict[str, Send]) -> Iterator[Fault]:
    """C3"""
    for name, count in Counter(one.name for one in found).items():
        if count > 1:
            yield Fault("doubled", f"{attempts.get(name, name)} stands {count} times at {broker}")
    stored: dict[int, list[Send]] = defaultdict(list)
    for name in {one.name for one in found} & attempts.keys():
        stored[attempts[name].key].append(attempts[name])
    for sends in stored.values():
        sends.sort(key=lambda send: send.attempt)
        for send in sends[:-1]:
            if send.code == OK:
                yield Fault("doubled", f"{send} was acknowledged, and {sends[-1]} is at {broker}")


def _disordered(broker: str, queue: list[Delivery], attempts: dict[str, Send]) -> Iterator[Fault]:
    """C4; queue: in order of offsets."""
    last_of_link: dict[int, Send] = {}
    latest: Send | None = None
    for one in queue:
        send = attempts.get(one.name)
        if send is None:
            continue
        before = last_of_link.get(send.link)
        if before is not None and before.sent > send.sent:
            yield Fault("order", f"{before} stands before {send} at {broker}")
        last_of_link[send.link] = send
        if latest is not None and send.answered is not None and send.answered < latest.sent:
            yield Fault("order", f"{latest} stands before {send} at {broker}")
        if latest is None or send.sent > latest.sent:
            latest = send


def _reused(history: History) -> Iterator[Fault]:
    """C5"""
    names: dict[tuple[int, int], str] = {}
    places = {send.name: send for send in history.sends if send.offset is not None}
    for send in history.sends:
        if send.code == OK and send.offset is not None:
            before = names.setdefault((send.queue, send.offset), send.name)
            if before != send.name:
                yield Fault("reused", f"{before} and {send} were acknowledged at one offset")
    for one in _readings(history) if history.lasting else _kept(history):
        before = names.setdefault((one.queue, one.offset), one.name)
        if before != one.name:
            yield Fault("reused", f"{one} stands where {before} stood")
        said = places.get(one.name)
        if said is not None and said.offset != one.offset:
            yield Fault("reused", f"{one} stands elsewhere than its answer said: {said}")


def _taken_back(broker: str, found: list[Delivery],
                deliveries: list[Delivery]) -> Iterator[Fault]:
    """C6"""
    there = {(one.queue, one.offset) for one in found}
    for one in deliveries:
        if (one.queue, one.offset) not in there:
            yield Fault("taken back", f"{one} was read, and is not at {broker} in the end")


def _holes(broker: str, found: list[Delivery]) -> Iterator[Fault]:
    """C7"""
    for queue, inside in _by_queue(found).items():
        offsets = {one.offset for one in inside}
        missing = sorted(set(range(max(offsets) + 1)) - offsets)
        if missing:
            yield Fault("hole", f"queue {queue} at {broker} lacks offsets {missing[:SHOWN_MAX]}")


def main() -> int:
    faults = check(History.read(Path(sys.argv[1])))
    print(summary(faults) or "good")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
