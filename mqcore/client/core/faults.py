"""Brokers that were slow or failed are avoided for a while (client.md 2.5).

RocketMQ 4.9.8: MQFaultStrategy, LatencyFaultToleranceImpl.
"""
from __future__ import annotations

from dataclasses import dataclass

# seconds that an answer took at least, seconds that the broker is avoided for it
_STEPS = ((15.0, 600.0), (3.0, 180.0), (2.0, 120.0), (1.0, 60.0), (0.55, 30.0))
_FAILED_LATENCY_S = 30.0


def avoided_for(latency: float) -> float:
    """Seconds that a broker is avoided whose answer took `latency` seconds."""
    return next((avoided for least, avoided in _STEPS if latency >= least), 0.0)


@dataclass(slots=True)
class _Fault:
    latency: float
    available_at: float


class FaultTable:
    """The known latencies of brokers. Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._faults: dict[str, _Fault] = {}
        self._turn = 0

    def note(self, broker: str, latency: float, failed: bool, now: float) -> None:
        """A try ended after `latency` seconds; a failed one counts as 30 seconds."""
        avoided = avoided_for(_FAILED_LATENCY_S if failed else latency)
        self._faults[broker] = _Fault(latency, now + avoided)

    def is_available(self, broker: str, now: float) -> bool:
        """Whether nothing speaks against this broker."""
        fault = self._faults.get(broker)
        return fault is None or now >= fault.available_at

    def least_bad(self, now: float) -> str | None:
        """One of the better half of the known brokers, in turn; None when none is known."""
        ranked = sorted(self._faults, key=lambda name: (
            now < self._faults[name].available_at, self._faults[name].latency,
            self._faults[name].available_at))
        if not ranked:
            return None
        self._turn += 1
        return ranked[self._turn % max(1, len(ranked) // 2)]

    def forget(self, broker: str) -> None:
        """It is not among a topic's brokers any more."""
        self._faults.pop(broker, None)
