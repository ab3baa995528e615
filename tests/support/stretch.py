"""How much longer work takes than on a quiet machine: limits of time are stretched by it."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from mqcore.thread_times import threads_ns


@dataclass(frozen=True)
class Stretch:
    """
    Threads of some processes, from now on: ran, and waited for a processor.

    Who was not let run counts, who slept does not: what a broker makes others wait for is no part
    of it.
    """

    pids: tuple[int, ...]
    before: dict[tuple[int, str], tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, pids: Iterable[int], *, since_start: bool = False) -> Stretch:
        """since_start: with all that they have done already."""
        made = cls(tuple(pids))
        return made if since_start else cls(made.pids, made._times())

    def value(self) -> float:
        """Time that they were on the way, for each unit of time that they ran; 1: nobody waited."""
        ran = waited = 0
        for thread, (ran_ns, waited_ns) in self._times().items():
            ran_before, waited_before = self.before.get(thread, (0, 0))
            ran += ran_ns - ran_before
            waited += waited_ns - waited_before
        return 1.0 + waited / ran if ran else 1.0

    def _times(self) -> dict[tuple[int, str], tuple[int, int]]:
        return {(pid, thread): times for pid in self.pids
                for thread, times in threads_ns(pid).items()}
