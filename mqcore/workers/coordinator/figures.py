"""Counts of the processes, as GET_BROKER_RUNTIME_INFO and `mqcore status` show them."""
from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mqcore.broker.requests.check_sender import figures
from mqcore.http.standing import standing
from mqcore.participants import HA_MASTER, HA_SLAVE, WRITER
from mqcore.replication.side_files import overtaken_messages
from mqcore.shm.check_ring import transaction_figures
from mqcore.shm.delays import delay_offsets, timer_cleared, timer_figures
from mqcore.shm.elected import election, role_of
from mqcore.shm.figure_slots import FigureSlots
from mqcore.shm.latencies import Histogram, Latencies
from mqcore.shm.segment import Segment
from mqcore.wire.codes import TRANSACTION_KEYS
from mqcore.workers.coordinator.latency_figures import LatencyFigures
from mqcore.workers.coordinator.shared_pulls import SharedPulls
from mqcore.workers.process.layout import StoreFiles

WINDOWS_S = (10, 60, 600)
SAMPLE_INTERVAL_S = 5
NO_POOL_BUFFERS = str((1 << 31) - 1)     # as stock says it of a broker without a transient pool
# Figures of replication, by their names in GET_BROKER_RUNTIME_INFO (28).
MASTER_KEYS = {"replicationSlaves": "slaves", "replicationLagBytes": "slave_lag_bytes",
               "replicationLagMillis": "slave_lag_ms", "replicationSentBytes": "sent_log_bytes",
               "replicationLagMessages": "slave_lag_messages", "replicationEpoch": "epoch",
               "replicationSentBytesPerSecond": "sent_log_rate"}
SLAVE_KEYS = {"replicationMasterLink": "master_link", "replicationReceivedBytes": "followed_bytes",
              "replicationTablesAgeMillis": "tables_age_ms",
              "replicationReceivedBytesPerSecond": "followed_rate",
              "replicationFollowedEpoch": "followed_epoch"}
ELECTION_KEYS = {"failoverEpoch": "epoch", "failoverLeader": "leader", "failoverInSync": "in_sync",
                 "failoverLeaseMillis": "lease_left_ms",
                 "failoverEtcdSilentMillis": "etcd_silent_ms"}
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
        found: Callable[[], int] | None = None, times: Callable[[str], Histogram] | None = None,
    ) -> None:
        """
        found: how many pulls have brought messages; None: as the serving processes count; times:
        the histogram of a name; None: those in shared memory.
        """
        self._pooled = pooled
        self._segment = segment
        self._found = found or SharedPulls(segment).found
        self._files = files
        self._slots = FigureSlots(segment)
        self._latencies = LatencyFigures(time.monotonic(), times or Latencies(segment).total)
        self._counted: dict[tuple[str, int], tuple[int, int]] = {}    # last count, lost counts
        self._samples: deque[Totals] = deque([self._totals()], maxlen=SAMPLES_MAX)
        self._slots.put("overtaken_messages", overtaken_messages(files.root))

    def _totals(self) -> Totals:
        total = self._total
        return Totals(time.monotonic(), total("appends"), total("appended_bytes"),
                      total("pulled_messages"), total("pulls"), self._found(), total("refused"))

    def sample(self) -> None:
        """Take a sample if one is due; to be called about once a second."""
        now = time.monotonic()
        if now - self._samples[-1].at >= SAMPLE_INTERVAL_S:
            self._samples.append(self._totals())
        self._latencies.sample(now)

    def _rates(self, field: str) -> str:
        """
        Three rates a second, over 10, 60 and 600 s, joined by blanks (remoting.md 5.5). Each begins
        at a sample of at least that age, or at the oldest one: a rate since a moment ago says 0.00
        between two messages.
        """
        now = self._totals()
        rates = []
        for window in WINDOWS_S:
            since = next((sample for sample in reversed(self._samples)
                          if now.at - sample.at >= window), self._samples[0])
            seconds = max(now.at - since.at, 0.001)
            grown = max(getattr(now, field) - getattr(since, field), 0)
            rates.append(f"{grown / seconds:.2f}")
        return " ".join(rates)

    def totals(self) -> tuple[int, int]:
        """Messages stored and handed out; a process that starts again begins at 0 and is added."""
        return self._total("appends"), self._total("pulled_messages")

    def _total(self, name: str) -> int:
        return sum(self._counted_on(name, index, count)
                   for index, count in enumerate(self._slots.each(name)))

    def _counted_on(self, name: str, index: int, count: int) -> int:
        last, lost = self._counted.get((name, index), (0, 0))
        if count < last:
            lost += last
        self._counted[name, index] = count, lost
        return lost + count

    def standing(self) -> Mapping[str, Any]:
        """For GET_STANDING."""
        return standing(self._segment, Latencies(self._segment))

    def delay_offsets(self) -> Mapping[int, int] | None:
        return delay_offsets(self._segment)

    def timed(self, now_ms: int) -> Mapping[str, Any]:
        return timer_figures(self._segment, now_ms)

    def timer_cleared(self) -> tuple[int, int]:
        cleared = timer_cleared(self._segment)                 # before the log's end is read
        return cleared, self._segment.log_state()["published"]

    def rates(self) -> Mapping[str, str]:
        """The keys that tell how much a second, over three windows each."""
        transferred = self._rates("pulled")
        return {
            "putTps": self._rates("appended"),
            "getTransferedTps": transferred,
            "getTransferredTps": transferred,        # the same, as 5.x spells it
            "getTotalTps": self._rates("pulls"),
            "getFoundTps": self._rates("found"),
            "getMissTps": self._rates("missed"),
        }

    def runtime(self) -> Mapping[str, str]:
        """Keys as stock names them; of transactions keys of our own."""
        self.sample()
        totals = self._totals()
        state = self._segment.log_state()
        average = totals.appended_bytes / totals.appended if totals.appended else 0.0
        return {
            **self.rates(),
            **self._latencies.keys(),
            "pageCacheLockTimeMills": str(self._segment.busy_ms(
                WRITER.slot, time.time_ns() // 1_000_000)),
            "putMessageFailedTimes": str(totals.refused),
            "putMessageTimesTotal": str(max(totals.appended, 1)),
            "putMessageSizeTotal": str(totals.appended_bytes),
            "putMessageAverageSize": str(average),
            "dispatchBehindBytes": str(state["published"] - state["dispatched"]),
            "remainHowManyDataToFlush": size_text(state["published"] - state["flushed"]),
            "remainTransientStoreBufferNumbs": NO_POOL_BUFFERS,
            **self._pool(),
            **self._transactions(),
            **self._replication(),
            **self._standing(),
            **self._election(),
        }

    def _replication(self) -> dict[str, str]:
        """
        Keys of our own; none for a broker that has no other of its name. The middle of a chain has
        those of either end.
        """
        ends = ((HA_MASTER, MASTER_KEYS), (HA_SLAVE, SLAVE_KEYS))
        return {key: str(self._slots.total(name)) for end, names in ends
                if self._segment.slot(end.slot)["incarnation"] for key, name in names.items()}

    def _standing(self) -> dict[str, str]:
        """Likewise, of either end."""
        role = role_of(self._segment)
        return {"replicationRole": role, "replicationOvertakenMessages": str(
            self._slots.total("overtaken_messages"))} if role else {}

    def _election(self) -> dict[str, str]:
        """Likewise; none without elections."""
        found = election(self._segment)
        return {key: str(found[name]) for key, name in ELECTION_KEYS.items() if found}

    def _transactions(self) -> dict[str, str]:
        """TRANSACTION_KEYS; none before the transaction check's first word."""
        found = figures(transaction_figures(self._segment), time.time_ns() // 1_000_000)
        return {TRANSACTION_KEYS[name]: str(value) for name, value in found.items()}

    def _pool(self) -> dict[str, str]:
        """Bytes that only the transient pool has; only with that flush mode."""
        if not self._pooled:
            return {}
        waiting = self._slots.total("pool_bytes")
        return {"remainHowManyDataToCommit": size_text(waiting),
                "remainTransientStoreBufferNumbs": "1"}            # one circle, never given away


def size_text(size: int) -> str:
    """Bytes for people: `512 B`, `1.6 KiB`, ..."""
    if size < 1024:
        return f"{max(size, 0)} B"
    units = ("KiB", "MiB", "GiB")
    power = min((size.bit_length() - 1) // 10, len(units))
    return f"{size / 1024 ** power:.1f} {units[power - 1]}"
