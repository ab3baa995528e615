"""
Who is served next: one loop's time, shared between those who ask.

Whoever asks (a connection) has its own queue, and its requests are begun in their order. Among
those who wait the one goes first who has used the least time. Who comes new begins CREDIT_S before
what each of the others has had on average: nobody saves time up, and a short request of somebody
who asks little waits for one step of another, not for all that others have heaped up. There are two
lanes: what others' lives depend on (heartbeats, leaving, locks) goes before the rest, which gets at
least a slice in EXPRESS_STRETCH_S of that.

A request that takes long is a *job*, a generator: it yields where it may be interrupted, every
millisecond or so, and is gone on with when its turn comes again. Its last value is its result.
Times in seconds, of whatever clock is given.
"""
from __future__ import annotations

import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, TypeVar

SLICE_S = 0.003                  # of a job, at a time
EXPRESS_STRETCH_S = 0.015        # of express work, while other work waits for a slice
CREDIT_S = 2 * SLICE_S           # nobody who waits lags farther behind the average than this
COST_PER_BYTE_S = 60e-9          # what a request is thought to take before it is begun
KNOWN_MAX = 10_000               # who is remembered without waiting, before the rest is looked at

Result = TypeVar("Result")
Job = Generator[None, None, Any]
Begin = Callable[[], Job | None]     # does a request, or returns what it left to do in slices


@dataclass(slots=True)
class _Waiting:
    """One who waits: the job that is begun, what comes after it, the time used."""

    todo: deque[tuple[Begin, float]] = field(default_factory=deque)
    job: Job | None = None
    used_s: float = 0.0
    served: bool = False             # at this moment: what it adds itself comes after it


class _Lane:
    """Those who wait, least time used first."""

    def __init__(self) -> None:
        self.who: dict[int, _Waiting] = {}
        self._order: list[tuple[float, int, int]] = []
        self._numbers = itertools.count()
        self._forget_at = KNOWN_MAX
        self._average_s = 0.0        # time that each of those who wait has had

    def __len__(self) -> int:
        return len(self._order)

    def has(self, who: int) -> bool:
        waiting = self.who.get(who)
        return waiting is not None and (
            bool(waiting.todo) or waiting.job is not None or waiting.served)

    def add(self, who: int, begin: Begin, cost_s: float) -> None:
        waiting = self.who.get(who)
        if waiting is None:
            waiting = self.who[who] = _Waiting()
        idle = not waiting.todo and waiting.job is None and not waiting.served
        waiting.todo.append((begin, cost_s))
        if idle:
            waiting.used_s = max(waiting.used_s, self._average_s - CREDIT_S)
            self._enqueue(who, waiting)

    def _enqueue(self, who: int, waiting: _Waiting) -> None:
        cost_s = waiting.todo[0][1] if waiting.job is None else 0.0
        heapq.heappush(self._order, (waiting.used_s + cost_s, next(self._numbers), who))

    def step(self, clock: Callable[[], float]) -> float:
        """Serve the first of those who wait for one slice; returns the time it took."""
        _, _, who = heapq.heappop(self._order)
        waiting = self.who[who]
        began_s = clock()
        waiting.served = True
        try:
            if waiting.job is None:
                waiting.job = waiting.todo.popleft()[0]()
            while waiting.job is not None and clock() - began_s < SLICE_S:
                try:
                    next(waiting.job)
                except StopIteration:
                    waiting.job = None
        except BaseException:
            waiting.job = None
            raise
        finally:
            took_s = clock() - began_s
            waiting.used_s += took_s
            self._average_s += took_s / (len(self._order) + 1)
            waiting.served = False
            if waiting.job is not None or waiting.todo:
                self._enqueue(who, waiting)
            self._forget_idle()
        return took_s

    def _forget_idle(self) -> None:
        """Who does not wait and has no more behind it than one who comes new is as such a one."""
        if not self._order:
            self.who.clear()
            self._average_s = 0.0
        elif len(self.who) > self._forget_at:
            new_s = self._average_s - CREDIT_S
            self.who = {who: one for who, one in self.who.items()
                        if one.todo or one.job is not None or one.used_s > new_s}
            self._forget_at = max(KNOWN_MAX, 2 * len(self.who))


class Turns:
    """The two lanes. Whoever adds work calls `step` until there is none (`waits`)."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._express, self._ordinary = _Lane(), _Lane()
        self._stretch_s = 0.0        # of express work since other work had a slice
        self.longest_s = 0.0         # of a step, since the start

    def add(self, who: int, begin: Begin, *, express: bool = False, size: int = 0) -> None:
        """`begin` is called once, when its turn comes. size: bytes of the request."""
        lane = self._express if express else self._ordinary
        lane.add(who, begin, size * COST_PER_BYTE_S)

    def waits(self) -> bool:
        return bool(len(self._express) or len(self._ordinary))

    def waits_for(self, who: int) -> bool:
        """Whether something of `who` waits, or is begun."""
        return self._express.has(who) or self._ordinary.has(who)

    def step(self) -> None:
        """One slice for whoever is next; only when somebody waits."""
        express = len(self._express) > 0 and not (
            len(self._ordinary) and self._stretch_s >= EXPRESS_STRETCH_S)
        took_s = (self._express if express else self._ordinary).step(self._clock)
        self._stretch_s = self._stretch_s + took_s if express else 0.0
        self.longest_s = max(self.longest_s, took_s)


def finished(job: Generator[None, None, Result]) -> Result:
    """The result of a job that is done in one go."""
    while True:
        try:
            next(job)
        except StopIteration as end:
            result: Result = end.value
            return result
