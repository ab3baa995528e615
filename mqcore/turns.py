"""
Who is served next: one loop's time, shared between those who ask.

Whoever asks (a connection) has its own queue, and its requests are begun in their order. Among
those who wait the one goes first who has used the least time. Who comes new begins CREDIT_S before
what each of the others has had on average: nobody saves time up, and a short request of somebody
who asks little waits for one step of another, not for all that others have heaped up. Who stays may
be put before those who come new, of whom there may be any number (`ahead_s`). There are two
lanes: what others' lives depend on (heartbeats, leaving, locks) goes before the rest, which gets at
least a slice in EXPRESS_STRETCH_S of that, or in what is given.

A request that takes long is a *job*, a generator: it yields where it may be interrupted, every
millisecond or so, and is gone on with when its turn comes again. Its last value is its result.
Times in seconds, of whatever clock is given.

What jobs hold between their slices has a sum (`Memory`). When a quarter of it is spent, those that
have had a slice wait, but for one, which ends and gives its part back before another one goes on:
in turn the one who has used the least time and the one who holds least. When all of it is spent new
jobs have no first slice either. What is done at once, and express work, never waits for memory.
"""
from __future__ import annotations

import heapq
import itertools
import math
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
FIRST_BYTES = 1 << 18            # as which the first part of a job's first slice counts ...
UNWEIGHED_S = SLICE_S / 4        # ... which is not weighed: most jobs are no longer
WEIGHED_EACH = 20                # of the time passes, that weighing takes once, until the next one
FREE, SCARCE, SPENT = range(3)   # memory ...
SCARCE_PART = 0.25               # ... from this part of the sum on
EASED_PART = 7 / 8               # a state ends below this part of where it begins

Result = TypeVar("Result")
Job = Generator[None, None, Any]
Begin = Callable[[], Job | None]     # does a request, or returns what it left to do in slices


@dataclass(slots=True)
class Memory:
    """
    What jobs may hold together, bytes.

    in_use: what this process has allocated now; beside: of that, what counts and is no job's.
    """

    bytes_max: int
    in_use: Callable[[], int]
    beside: Callable[[], int]
    held: int = 0                    # by jobs of both lanes, between their slices
    jobs: int = 0                    # between their slices
    state: int = FREE
    next_s: float = -math.inf        # when it may be weighed again
    used: int = 0                    # when it was weighed last
    idle: int = 0                    # the same when no job was begun, without what is `beside`

    def weigh(self, clock: Callable[[], float]) -> int:
        """What is in use, which may take long: the C library walks what is free."""
        began_s = clock()
        self.used = self.in_use()
        ended_s = clock()
        self.next_s = ended_s + WEIGHED_EACH * (ended_s - began_s)
        return self.used

    def weigh_again(self, clock: Callable[[], float]) -> int | None:
        """Before a slice. None: not yet, for the time that it took."""
        if clock() < self.next_s:
            return None
        used = self.weigh(clock)
        if self.jobs == 0:
            self.idle = used - self.beside()
        return used

    def look(self) -> int:
        """FREE, SCARCE or SPENT."""
        taken = self.held + self.beside()
        if self.jobs:
            taken = max(taken, self.used - self.idle)
        for state, part in ((SPENT, 1.0), (SCARCE, SCARCE_PART)):
            if taken >= self.bytes_max * part * (EASED_PART if self.state >= state else 1.0):
                self.state = state
                return state
        self.state = FREE
        return FREE


@dataclass(slots=True)
class _Waiting:
    """One who waits: the job that is begun, what comes after it, the time used."""

    todo: deque[tuple[Begin, float]] = field(default_factory=deque)
    job: Job | None = None
    used_s: float = 0.0
    served: bool = False             # at this moment: what it adds itself comes after it
    held: int = 0                    # bytes, by its job


class _Lane:
    """Those who wait, least time used first. waits_for_memory: whether they ever do."""

    def __init__(self, memory: Memory | None, *, waits_for_memory: bool) -> None:
        self.who: dict[int, _Waiting] = {}
        self._order: list[tuple[float, int, int]] = []
        self._numbers = itertools.count()
        self._forget_at = KNOWN_MAX
        self._average_s = 0.0        # time that each of those who wait has had
        self._memory = memory
        self._waits_for_memory = waits_for_memory
        self._begun: set[int] = set()          # whose job is between two slices
        self._favoured: int | None = None      # of them: who goes on while memory is short
        self._by_size = False
        self._ending: set[int] = set()         # of them: whom nobody waits for any more
        self._aside: dict[int, tuple[float, int, int]] = {}    # of the order: who waits for memory

    def __len__(self) -> int:
        return len(self._order) + len(self._aside)

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

    def _next(self) -> tuple[int, bool]:
        """The first of those who wait, and need not wait for memory; whether its job goes on."""
        memory = self._memory
        if memory is None or not self._waits_for_memory:
            return heapq.heappop(self._order)[2], True
        state = memory.look()
        if self._favoured not in self._begun:
            self._favoured = self._favourite() if state != FREE and self._begun else None
            if self._favoured is not None:
                self._take_back(self._favoured)
        if state == FREE:
            for aside in list(self._aside):
                self._take_back(aside)
        while True:
            one = heapq.heappop(self._order)
            who = one[2]
            if who not in self._begun:
                return who, state != SPENT or not self._begun
            if state == FREE or who == self._favoured or who in self._ending:
                return who, True
            self._aside[who] = one

    def _take_back(self, who: int) -> None:
        one = self._aside.pop(who, None)
        if one is not None:
            heapq.heappush(self._order, one)

    def let_end(self, who: int) -> None:
        """Nobody waits for what its job makes: it does not wait for memory, and can end."""
        if who in self._begun:
            self._ending.add(who)
            self._take_back(who)

    def _favourite(self) -> int:
        """Who of those whose job is begun goes on, by time used and by what it holds in turn."""
        self._by_size = not self._by_size
        if self._by_size:
            return min(self._begun, key=lambda who: self.who[who].held)
        return min(self._begun, key=lambda who: self.who[who].used_s)

    def _weigh(self, who: int, waiting: _Waiting, memory: Memory, before: int | None,
               clock: Callable[[], float]) -> None:
        """What its job holds after a slice; before: what was in use, None: it was not weighed."""
        held = 0
        if waiting.job is not None:
            held = waiting.held if who in self._begun else FIRST_BYTES
            if before is not None:
                held = max(held + memory.weigh(clock) - before, 0)
        memory.held += held - waiting.held
        waiting.held = held
        memory.jobs -= who in self._begun
        if waiting.job is not None:
            self._begun.add(who)
            memory.jobs += 1
        else:
            self._begun.discard(who)
            self._ending.discard(who)

    def step(self, clock: Callable[[], float]) -> float:
        """Serve the first of those who wait for one slice; returns the time it took."""
        who, may_continue = self._next()
        waiting = self.who[who]
        memory = self._memory
        began_s = clock()
        continued_s = began_s
        before = None
        if memory is not None and waiting.job is not None:
            before = memory.weigh_again(clock)
            continued_s = clock()
        weighed = waiting.job is not None
        waiting.served = True
        try:
            if waiting.job is None:
                waiting.job = waiting.todo.popleft()[0]()
            while may_continue and waiting.job is not None and (
                    spent_s := clock() - continued_s) < SLICE_S:
                if not weighed and memory is not None and spent_s >= UNWEIGHED_S:
                    before = memory.weigh_again(clock)
                    weighed = True
                try:
                    next(waiting.job)
                except StopIteration:
                    waiting.job = None
        except BaseException:
            waiting.job = None
            raise
        finally:
            waiting.served = False
            if memory is not None and (waiting.job is not None or who in self._begun
                                       or before is not None):
                self._weigh(who, waiting, memory, before, clock)
            took_s = clock() - began_s
            waiting.used_s += took_s
            self._average_s += took_s / (len(self) + 1)
            if waiting.job is not None or waiting.todo:
                self._enqueue(who, waiting)
            self._forget_idle()
        return took_s

    def _forget_idle(self) -> None:
        """Who does not wait and has no more behind it than one who comes new is as such a one."""
        if not len(self):
            self.who.clear()
            self._average_s = 0.0
        elif len(self.who) > self._forget_at:
            new_s = self._average_s - CREDIT_S
            self.who = {who: one for who, one in self.who.items()
                        if one.todo or one.job is not None or one.used_s > new_s}
            self._forget_at = max(KNOWN_MAX, 2 * len(self.who))


class Turns:
    """
    The two lanes. Whoever adds work calls `step` until there is none (`waits`).

    memory: the sum for what jobs hold; None: there is none. express_stretch_s: see above.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter, *,
                 memory: Memory | None = None,
                 express_stretch_s: float = EXPRESS_STRETCH_S) -> None:
        self._clock = clock
        self._express_stretch_s = express_stretch_s
        self._express = _Lane(memory, waits_for_memory=False)
        self._ordinary = _Lane(memory, waits_for_memory=True)
        self._stretch_s = 0.0        # of express work since other work had a slice
        self._given_s = 0.0          # of that slice, to other work
        self.longest_s = 0.0         # of a step, since the start

    def add(self, who: int, begin: Begin, *, express: bool = False, size: int = 0,
            ahead_s: float = 0.0) -> None:
        """
        `begin` is called once, when its turn comes. size: bytes of the request; ahead_s: so much
        less than `who` has used is it begun by.
        """
        lane = self._express if express else self._ordinary
        lane.add(who, begin, size * COST_PER_BYTE_S - ahead_s)

    def waits(self) -> bool:
        return bool(len(self._express) or len(self._ordinary))

    def waits_for(self, who: int) -> bool:
        """Whether something of `who` waits, or is begun."""
        return self._express.has(who) or self._ordinary.has(who)

    def let_end(self, who: int) -> None:
        """Who asked is gone: a job that is begun for it gets its turn whatever memory there is."""
        self._ordinary.let_end(who)

    def step(self) -> None:
        """
        One slice for whoever is next; only when somebody waits. The slice that other work gets
        between express work may be that of many who want little.
        """
        express = len(self._express) > 0 and not (
            len(self._ordinary) and self._stretch_s >= self._express_stretch_s)
        took_s = (self._express if express else self._ordinary).step(self._clock)
        self.longest_s = max(self.longest_s, took_s)
        if express:
            self._stretch_s += took_s
            return
        self._given_s += took_s
        if (self._stretch_s < self._express_stretch_s or self._given_s >= SLICE_S
                or not len(self._ordinary)):
            self._stretch_s = self._given_s = 0.0


@dataclass(slots=True)
class _Network:
    number: int                          # by which its turns are counted
    express: Turns                       # of its connections
    ordinary: Turns
    connections: int = 0

    def waits(self) -> bool:
        return self.express.waits() or self.ordinary.waits()


class Shares:
    """
    Each network has an equal part of the time, and in it each of its connections: however many a
    peer opens, and whatever it asks over them, a peer from elsewhere waits for one slice.
    The usage of a network is remembered as long as it has a connection.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._turns = Turns(clock, express_stretch_s=SLICE_S)     # anybody may say what goes first
        self._networks: dict[str, _Network] = {}
        self._numbers = itertools.count()

    def count(self, network: str) -> int:
        """Its connections."""
        known = self._networks.get(network)
        return known.connections if known is not None else 0

    def enter(self, network: str) -> None:
        """Count one more connection."""
        self._known(network).connections += 1

    def leave(self, network: str) -> None:
        self._networks[network].connections -= 1
        self._forget_idle(network)

    def add(self, network: str, who: int, job: Job, *, express: bool, stays: bool) -> None:
        """
        Work of a connection, in one of the two lanes; who stays has its turns before those who
        connect, ask and go.
        """
        known = self._known(network)
        lane = known.express if express else known.ordinary
        idle = not lane.waits()
        lane.add(who, lambda: job, ahead_s=CREDIT_S if stays else 0.0)
        if idle:
            self._ask(network, known, express=express, stays=stays)

    def waits(self) -> bool:
        return self._turns.waits()

    def waits_for(self, network: str, who: int) -> bool:
        known = self._networks.get(network)
        return known is not None and (
            known.express.waits_for(who) or known.ordinary.waits_for(who))

    def step(self) -> None:
        """One slice for the next job, if there is one."""
        self._turns.step()

    def _ask(self, network: str, known: _Network, *, express: bool, stays: bool) -> None:
        """For one slice, of whichever of its connections is next by then."""
        lane = known.express if express else known.ordinary

        def serve() -> None:
            try:
                lane.step()
            finally:
                if lane.waits():
                    self._ask(network, known, express=express, stays=stays)
                else:
                    self._forget_idle(network)

        self._turns.add(known.number, serve, express=express, ahead_s=CREDIT_S if stays else 0.0)

    def _known(self, network: str) -> _Network:
        known = self._networks.get(network)
        if known is None:
            known = self._networks[network] = _Network(
                next(self._numbers), Turns(self._clock), Turns(self._clock))
        return known

    def _forget_idle(self, network: str) -> None:
        known = self._networks.get(network)
        if known is not None and not known.connections and not known.waits():
            del self._networks[network]


def within_half(own: int, room: int) -> bool:
    """
    Half of the room that the others leave (half HR1, mqcore/half.pxd).

    own: what a peer would have; room: the whole without what all others have
    """
    return 2 * own <= room


def finished(job: Generator[None, None, Result]) -> Result:
    """The result of a job that is done in one go."""
    while True:
        try:
            next(job)
        except StopIteration as end:
            result: Result = end.value
            return result
