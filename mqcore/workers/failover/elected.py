"""
What the supervisor does when its broker is elected: it follows, and then it leads, in place.

A run begins as one that follows. To lead in an epoch:

1. ha-slave ends. What it had from its master and the writer has not taken is nobody's; what the
   writer has taken is in the log, and what others are known to have of it in its queues.
2. The epoch is in STORE/epochs, on the disk, from the end of the log on.
3. The word `role` says so: the writer takes messages, serving processes let them through.
4. The coordinator registers as id 0; scheduler, transaction-check and ha-master begin.

From leading there is one way: the word `role` says that it follows, waiting requests are answered,
and new ones are refused for LAST_ANSWERS_S; then the run ends, and the next one follows.

Whoever dies meanwhile is started again as before and finds in `role` what it is to be. A
supervisor that dies takes all with it: the next run follows, and an epoch without a byte hurts
nobody (epochs.py).
"""
from __future__ import annotations

import logging
import os
import signal
import time
from dataclasses import dataclass
from functools import partial

from mqcore.broker.settings.model import Settings
from mqcore.broker.standing import elected
from mqcore.layout import LEADERSHIP_FOLLOWS, LEADERSHIP_LEADS, WORKER_RUNNING
from mqcore.participants import DISPATCHER, HA_SLAVE, WRITER
from mqcore.replication import epochs
from mqcore.replication.epochs import EpochsError
from mqcore.shm.leadership import LeadershipPen
from mqcore.shm.replica_gate import ReplicaPen
from mqcore.shm.segment import Segment
from mqcore.store import restored

RETRY_S = 1.0                     # after a table of epochs that could not be written
LOOK_MS = 2                       # while others bring the log to its end
LAST_ANSWERS_S = 1.0              # of a run that leads no more: its clients hear so, and ask others
SLAVE_END_S = 0.3                 # for ha-slave, before it is killed: all that it holds is its link
REJOIN_RETRY_S = 30.0             # after a log that could not be cut

log = logging.getLogger("mqcore.supervisor")


@dataclass
class Rejoining:
    """
    What the next run of a broker begins with: its log has what the one who leads has not.

    address   of who leads, for the log: host:port; "": there is nothing to be done
    epoch     that it leads in, as was elected
    end       of the log here, bytes
    not_before  a run asks for it again from then on; time.monotonic
    """

    address: str = ""
    epoch: int = 0
    end: int = 0
    not_before: float = 0.0

    def ask(self, segment: Segment) -> None:
        """The run is to end for it: who leads is noted, as the election has it now."""
        leader = LeadershipPen(segment).leader()
        self.address, self.epoch = (leader[3], leader[4]) if leader is not None else ("", 0)

    def begin(self, settings: Settings) -> None:
        """Before a run, on the store that is its own and at rest. What failed is logged."""
        address, self.address = self.address, ""
        if not address:
            return
        # -- brokers that are not elected do without its code
        from mqcore.backup.errors import BackupError
        from mqcore.backup.tables import settle_again
        from mqcore.replication.greeting import OtherLogError
        from mqcore.replication.key import cluster_key
        from mqcore.replication.rejoin import RejoinError, rejoin_at
        from mqcore.tls.contexts import client_context
        from mqcore.workers.process.accounts import Signing
        from mqcore.workers.replication.ha_slave import address_of

        self.not_before = time.monotonic() + REJOIN_RETRY_S
        account = Signing(settings.acl, ("", None)).current()
        try:
            found = rejoin_at(settings.store_root, settings.log_folders, address_of(address),
                              self.end, self.epoch, partial(settle_again, settings.store_root),
                              b"" if account is None else cluster_key(account.secret_key),
                              client_context(settings.tls) if settings.replication.master_tls
                              else None)
        except (RejoinError, OtherLogError, EpochsError, BackupError, OSError,
                ValueError) as error:
            log.error("the log here has what that of who leads has not, and stays unchanged: %s",
                      error)
            return
        self.not_before = 0.0
        if found.side_file is None:
            return
        log.warning("%d messages, log positions %d to %d, are not in the log of %s: they are kept "
                    "in %s, and cut (%s)", found.messages, found.position, found.end, found.master,
                    found.side_file, ", ".join(
                        f"{topic}: {count}" for topic, count in sorted(found.topics.items())))


class Elections:
    """
    The change of one run, between the words of the election and the supervisor's children.

    settings: of the run, which follows.
    """

    def __init__(self, settings: Settings, segment: Segment) -> None:
        self._settings = settings
        self._segment = segment
        self._pen = LeadershipPen(segment)
        self._pen.become(LEADERSHIP_FOLLOWS, 0)
        self._called_at = 0.0
        self._retry_at = 0.0
        self._lost_at = 0.0

    @property
    def called(self) -> int:
        """The epoch that this broker is to lead in and does not; 0: none."""
        (state, epoch), (role, _) = self._pen.requested, self._pen.role
        return epoch if state == LEADERSHIP_LEADS != role and not self.is_ending else 0

    def lose(self) -> bool:
        """Whether it has just lost the election in which it leads: it takes no messages then."""
        role = self._pen.role
        if role[0] != LEADERSHIP_LEADS or role == self._pen.requested:
            return False
        self._lost_at = time.monotonic()
        self._pen.become(LEADERSHIP_FOLLOWS, role[1])
        return True

    @property
    def is_ending(self) -> bool:
        """Whether the run has led, and leads no more."""
        return self._lost_at > 0

    @property
    def is_over(self) -> bool:
        """Whether the run is to end for that."""
        return self.is_ending and time.monotonic() - self._lost_at >= LAST_ANSWERS_S

    def end_slave(self, pid: int) -> bool:
        """Whether ha-slave, if there is one, has ended; called until it has. pid: 0: none."""
        now = time.monotonic()
        if not self._called_at:
            self._called_at = now
            if pid:
                self._segment.request_stop(HA_SLAVE.slot)
        elif pid and now - self._called_at > SLAVE_END_S:
            os.kill(pid, signal.SIGKILL)
        return not pid

    def call_off(self) -> bool:
        """Whether a change was under way; it is not any more."""
        was, self._called_at = self._called_at > 0, 0.0
        return was

    def lead(self, epoch: int) -> bool:
        """Lead, if the log is at its end here; False: to be called again soon. No ha-slave runs."""
        if time.monotonic() < self._retry_at or not self._is_even():
            return False
        state = self._segment.log_state()
        root = self._settings.store_root
        try:
            restored.forget(root)            # first: this can be done again, an epoch cannot
            with epochs.held(root):
                epochs.write(root, elected(
                    self._settings, epochs.read(root), epoch, state["first"], state["published"],
                    time.time_ns() // 1_000_000))
        except (EpochsError, OSError) as error:
            log.error("elected for epoch %d, and cannot lead: %s", epoch, error)
            self._retry_at = time.monotonic() + RETRY_S
            return False
        self._pen.begin(state["published"] if self._settings.shows_replicated_only else 0)
        self._pen.become(LEADERSHIP_LEADS, epoch)
        log.warning("epoch %d begins at log position %d: this broker is the master now, %.0f ms "
                    "after its election", epoch, state["published"],
                    1000 * (time.monotonic() - self._called_at))
        self._called_at = 0.0
        return True

    def _is_even(self) -> bool:
        """
        Whether the log has all that it will have of its master, and its queues have what may be
        seen of it: who asks for more waits, until it may (leadership FO10).
        """
        if any(self._segment.state(row.slot) != WORKER_RUNNING for row in (WRITER, DISPATCHER)):
            return False
        if not self._segment.appends_taken(HA_SLAVE.producer):
            return False
        state = self._segment.log_state()
        end = state["published"]
        if self._settings.shows_replicated_only:
            end = ReplicaPen(self._segment).shown_end(end)
        return state["dispatched"] >= end
