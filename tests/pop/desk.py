"""Receives from a state of POP, with a clock that the test sets."""
from __future__ import annotations

from mqcore.store.probes.pop_probe import PopProbe

Key = tuple[bytes, bytes, int]                     # group, topic, queue id
Clock = tuple[int, int]                            # steady and wall, in ms
Claim = tuple[int, int, int, int, bool]            # offset, pop time, invisible, attempts, exceeded

KEY: Key = (b"group", b"topic", 0)
OTHER: Key = (b"group", b"topic", 1)
START: Clock = (10_000, 1_700_000_000_000)
OK, STALE, EXPIRED, UNKNOWN, BLOCKED, ILLEGAL = range(6)
NOTHING, FULL = -1, -2


def later(ms: int, at: Clock = START) -> Clock:
    return at[0] + ms, at[1] + ms


def receive(pop: PopProbe, at: Clock = START, count: int = 32, key: Key = KEY, end: int = 1000,
            **batch: object) -> list[Claim]:
    """The deliveries of one receive from a queue with `end` messages."""
    pop.batch(at, **batch)                                       # type: ignore[arg-type]
    got: list[Claim] = []
    if pop.enter(key) != OK:
        return got
    while len(got) < count and (offset := pop.peek(key, end)) >= 0:
        claim = pop.take(key, offset)
        assert claim is not None
        got.append(claim)
    return got


def offsets(claims: list[Claim]) -> list[int]:
    return [claim[0] for claim in claims]
