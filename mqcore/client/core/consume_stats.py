"""Counts of what a member pulled and consumed, by topic: the statusTable of code 307 (client.md
4.14)."""
from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

SAMPLE_S = 10.0
SAMPLE_COUNT = 7                # a window of a minute
HOUR_SAMPLE_S = 600.0
HOUR_SAMPLE_COUNT = 7


@dataclass(slots=True)
class Counts:
    """Sums since the start."""

    ok: int = 0
    failed: int = 0
    calls: int = 0
    call_s: float = 0.0
    pulls: int = 0
    pull_s: float = 0.0
    pulled: int = 0

    def copy(self) -> Counts:
        return Counts(self.ok, self.failed, self.calls, self.call_s, self.pulls, self.pull_s,
                      self.pulled)


@dataclass(slots=True)
class TopicCounts:
    """One topic's counts, and their samples."""

    now: Counts = field(default_factory=Counts)
    _minute: deque[tuple[float, Counts]] = field(
        default_factory=lambda: deque(maxlen=SAMPLE_COUNT))
    _hour: deque[tuple[float, Counts]] = field(
        default_factory=lambda: deque(maxlen=HOUR_SAMPLE_COUNT))

    def sample(self, at: float) -> None:
        """Keep the sums of this moment, if the last ones are old enough."""
        for samples, interval in ((self._minute, SAMPLE_S), (self._hour, HOUR_SAMPLE_S)):
            if not samples or at - samples[-1][0] >= interval:
                samples.append((at, self.now.copy()))

    def as_json(self, at: float) -> dict[str, float | int]:
        """ConsumeStatus of remoting.md 5.4; times in ms."""
        began, then = self._minute[0] if self._minute else (at, Counts())
        _, hour = self._hour[0] if self._hour else (at, Counts())
        now, seconds = self.now, max(at - began, 0.001)
        calls, call_s = now.calls - then.calls, now.call_s - then.call_s
        if not calls:
            calls, call_s = now.calls - hour.calls, now.call_s - hour.call_s
        pulls = now.pulls - then.pulls
        return {
            "consumeFailedMsgs": now.failed - hour.failed,
            "consumeFailedTPS": (now.failed - then.failed) / seconds,
            "consumeOKTPS": (now.ok - then.ok) / seconds,
            "consumeRT": call_s * 1000 / calls if calls else 0.0,
            "pullRT": (now.pull_s - then.pull_s) * 1000 / pulls if pulls else 0.0,
            "pullTPS": (now.pulled - then.pulled) / seconds,
        }
