"""What the processes count, as GET_BROKER_RUNTIME_INFO and `mqcore status` show it."""
from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mqcore.broker.requests.transaction_checks import RUNTIME_KEYS, figures
from mqcore.shm.check_ring import transaction_figures
from mqcore.shm.delays import delay_offsets
from mqcore.shm.segment import Segment
from mqcore.workers.layout import SLOT_SERVING, SLOT_WRITER, StoreFiles
from mqcore.workers.shared_pulls import SharedPulls

WINDOWS_S = (10, 60, 600)
SAMPLE_INTERVAL_S = 10
FIGURE_APPENDS = 0                       # places in a slot's figures (mqcore/layout.pxd)
FIGURE_PULLS = 2
FIGURE_PULLED_MESSAGES = 3
FIGURE_POOL_BYTES = 5
FIGURE_REFUSED = 9
NO_POOL_BUFFERS = str((1 << 31) - 1)     # as stock says it of a broker without a transient pool
SAMPLES_MAX = WINDOWS_S[-1] // SAMPLE_INTERVAL_S + 1


@dataclass(frozen=True)
class Totals:
    """Since the start of the processes that count; at: seconds on a steady clock."""

    at: float
    appended: int
    appended_bytes: int
    pulled: int
    pulls: int
    found: int                           # pulls that brought messages
    refused: int                         # sends that could not be stored

    @property
    def missed(self) -> int:
        return max(self.pulls - self.found, 0)


class StoreFigures:
    """The rules' Figures, from the counters in shared memory."""

    def __init__(
        self, segment: Segment, files: StoreFiles, *, pooled: bool = False,
        found: Callable[[], int] | None = None,
    ) -> None:
        """found: how many pulls have brought messages; None: as the serving processes count."""
        self._pooled = pooled
        self._segment = segment
        self._found = found or SharedPulls(segment).found
        self._files = files
        self._counted: dict[int, tuple[int, int]] = {}    # slot -> last count, lost counts
        self._samples: deque[Totals] = deque([self._totals()], maxlen=SAMPLES_MAX)

    def _totals(self) -> Totals:
        writer = self._segment.slot(SLOT_WRITER)["figures"]
        serving = [self._segment.slot(SLOT_SERVING + i)["figures"]
                   for i in range(self._segment.serving_count)]
        return Totals(time.monotonic(), writer[0], writer[1], sum(f[3] for f in serving),
                      sum(f[FIGURE_PULLS] for f in serving), self._found(),
                      sum(f[FIGURE_REFUSED] for f in serving))

    def sample(self) -> None:
        """Take a sample if one is due; to be called now and then."""
        if time.monotonic() - self._samples[-1].at >= SAMPLE_INTERVAL_S:
            self._samples.append(self._totals())

    def _rates(self, field: str) -> str:
        """Three rates a second, over 10, 60 and 600 s, joined by blanks (remoting.md 5.5)."""
        now = self._totals()
        rates = []
        for window in WINDOWS_S:
            since = next((s for s in self._samples if now.at - s.at <= window), self._samples[-1])
            seconds = max(now.at - since.at, 0.001)
            rates.append(f"{(getattr(now, field) - getattr(since, field)) / seconds:.2f}")
        return " ".join(rates)

    def totals(self) -> tuple[int, int]:
        """Messages stored and handed out; a process that starts again begins at 0 and is added."""
        handed_out = sum(self._total(SLOT_SERVING + i, FIGURE_PULLED_MESSAGES)
                         for i in range(self._segment.serving_count))
        return self._total(SLOT_WRITER, FIGURE_APPENDS), handed_out

    def _total(self, slot: int, figure: int) -> int:
        count = self._segment.slot(slot)["figures"][figure]
        last, lost = self._counted.get(slot, (0, 0))
        if count < last:
            lost += last
        self._counted[slot] = count, lost
        return lost + count

    def delay_offsets(self) -> Mapping[int, int] | None:
        return delay_offsets(self._segment)

    def runtime(self) -> Mapping[str, str]:
        """Keys as stock names them; of transactions keys of our own."""
        self.sample()
        totals = self._totals()
        state = self._segment.log_state()
        average = totals.appended_bytes / totals.appended if totals.appended else 0.0
        return {
            "putTps": self._rates("appended"),
            "getTransferedTps": self._rates("pulled"),
            "getTransferredTps": self._rates("pulled"),        # the same, as 5.x spells it
            "getTotalTps": self._rates("pulls"),
            "getFoundTps": self._rates("found"),
            "getMissTps": self._rates("missed"),
            "putMessageFailedTimes": str(totals.refused),
            "putMessageTimesTotal": str(max(totals.appended, 1)),
            "putMessageSizeTotal": str(totals.appended_bytes),
            "putMessageAverageSize": str(average),
            "dispatchBehindBytes": str(state["published"] - state["dispatched"]),
            "remainHowManyDataToFlush": size_text(state["published"] - state["flushed"]),
            "remainTransientStoreBufferNumbs": NO_POOL_BUFFERS,
            **self._pool(),
            **self._transactions(),
        }

    def _transactions(self) -> dict[str, str]:
        """RUNTIME_KEYS; none before the transaction check's first word."""
        found = figures(transaction_figures(self._segment), time.time_ns() // 1_000_000)
        return {RUNTIME_KEYS[name]: str(value) for name, value in found.items()}

    def _pool(self) -> dict[str, str]:
        """What the transient pool holds that no file has; only with that flush mode."""
        if not self._pooled:
            return {}
        waiting = self._segment.slot(SLOT_WRITER)["figures"][FIGURE_POOL_BYTES]
        return {"remainHowManyDataToCommit": size_text(waiting),
                "remainTransientStoreBufferNumbs": "1"}            # one circle, never given away


def size_text(size: int) -> str:
    """Bytes for people: `512 B`, `1.6 KiB`, ..."""
    if size < 1024:
        return f"{max(size, 0)} B"
    units = ("KiB", "MiB", "GiB")
    power = min((size.bit_length() - 1) // 10, len(units))
    return f"{size / 1024 ** power:.1f} {units[power - 1]}"
