"""The data version of the topic and group tables (broker.md 1.5; RocketMQ 4.9.8: DataVersion)."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True, frozen=True)
class DataVersion:
    """Two are equal when both numbers are; slaves and name servers compare nothing else."""

    timestamp_ms: int
    counter: int = 0

    def next(self, now_ms: int) -> DataVersion:
        return DataVersion(now_ms, self.counter + 1)

    def as_json(self) -> dict[str, int]:
        return {"counter": self.counter, "timestamp": self.timestamp_ms}

    @classmethod
    def from_json(cls, value: Any, default: DataVersion) -> DataVersion:
        """Read one; what is missing or no number keeps the default's value."""
        if not isinstance(value, dict):
            return default
        counter, timestamp = value.get("counter"), value.get("timestamp")
        return cls(
            timestamp if isinstance(timestamp, int) else default.timestamp_ms,
            counter if isinstance(counter, int) else default.counter,
        )
