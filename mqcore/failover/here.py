"""An election's view of its broker: the member, its settings, the state of its log."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mqcore.failover.keys import Kept


@dataclass(frozen=True)
class Me:
    """This broker, as a member of its set."""

    member: int
    address: str
    ha: str
    store: str


@dataclass(frozen=True)
class Rules:
    """The settings; ms of the lease and of the patience with a member of the set."""

    lease_ms: int
    in_sync_timeout_ms: int
    min_in_sync: int


@dataclass(frozen=True)
class Report:
    """
    The progress of a member, as ha-master knows it: every byte below `acked`; at `even_ms` it had
    all there was (steady clock); connected: there is a link.
    """

    acked: int
    even_ms: int
    connected: bool


@dataclass(frozen=True)
class Here:
    """
    The state of this broker at one moment.

    now_ns      CLOCK_BOOTTIME, which runs while the host sleeps
    now_ms      the steady clock
    leads       the epoch that this run leads in, or has led in; 0: it has only followed
    epoch, end  the last epoch and the end of its log
    starts      (number, start) of the log's epochs
    first       where its log begins
    missed_from  at the leader: before this position each member may delete the log for its age
    replicated  below it all has been acknowledged that ever was
    kept        below it the log is on the disk here, and known to be in all of the set
    begun       where its log ended when it began to lead
    reports     by number of the member with its store (shm/members.py)
    applied     whether ha-master went by the members of the last `words` before all that
    unable      why its log takes no messages, "": it does (storing.py); damaged: a sync has failed,
                and what is on the disk is not known
    """

    now_ns: int
    now_ms: int
    leads: int = 0
    epoch: int = 0
    end: int = 0
    replicated: int = 0
    begun: int = 0
    reports: Mapping[int, Report] = field(default_factory=dict)
    applied: bool = False
    unable: str = ""
    damaged: bool = False
    kept: int = 0
    first: int = 0
    missed_from: int = 0
    starts: tuple[tuple[int, int], ...] = ()

    def epoch_below(self, position: int) -> int:
        """The epoch of the log's last byte below a position; 0: not known."""
        return max((number for number, start in self.starts if start < position), default=0)

    def kept_by(self, store: str) -> Kept:
        """The key `kept/ID` of this member (leadership FO13)."""
        return Kept(store, self.kept, self.epoch_below(self.kept))

    def lacks(self, kept: Kept) -> bool:
        """Whether the log lacks bytes that its store told etcd of (leadership FO13)."""
        return kept.position > self.end or 0 < self.epoch_below(kept.position) < kept.epoch
