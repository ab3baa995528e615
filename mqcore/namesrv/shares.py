"""
Whose turn it is: each network has an equal part of the time, and in it each of its connections.

However many connections a peer opens, and whatever he asks over them, who comes from elsewhere
waits for one slice of his. What a network has had is remembered as long as a connection of it is
there.
"""
from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass

from mqcore.turns import CREDIT_S, SLICE_S, Job, Turns


@dataclass(slots=True)
class _Network:
    number: int                          # by which its turns are counted
    express: Turns                       # of its connections
    ordinary: Turns
    connections: int = 0

    def waits(self) -> bool:
        return self.express.waits() or self.ordinary.waits()


class Shares:
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
        """One more connection of it."""
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
        """One slice for whoever is next; only when somebody waits."""
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
