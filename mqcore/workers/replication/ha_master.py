"""Work of ha-master: its listening sockets, its native loop, and what slaves are told."""
from __future__ import annotations

import logging
import time
from functools import partial
from typing import TypedDict

from mqcore.broker.settings.model import ReplicationSettings, Settings
from mqcore.client.core.signature import Credentials
from mqcore.net.secured import MODES, followed_context
from mqcore.net.transport import tls_context
from mqcore.net.transport.tls_context import TlsContext
from mqcore.participants import HA_MASTER
from mqcore.replication import epochs
from mqcore.replication.behind import Behind, Courtesy, Pace
from mqcore.replication.epochs import EpochsError
from mqcore.replication.greeting import mark, words
from mqcore.replication.key import cluster_key, network_rows
from mqcore.replication.link_end import MasterNote
from mqcore.replication.master_loop import MasterLoop
from mqcore.replication.role import Role
from mqcore.shm.figure_slots import FigureSlots
from mqcore.shm.replica_gate import ReplicaPen
from mqcore.shm.segment import Segment
from mqcore.stamps import Stamp, stamp
from mqcore.thread_times import processor_ns
from mqcore.tls.renewed import Renewed
from mqcore.tls.settings import SERVER_FILES, TlsSettings
from mqcore.wire.printable import printable
from mqcore.workers.process.accounts import Signing

BEHIND_MS = 1_000                # a slave that is as late as that is spoken of, ...
SAY_INTERVAL_S = 60.0            # ... as often as that
CATCH_UP_BYTES = 16 << 20        # who is further behind catches up, ...
COURTESY_MS = 100                # ... which is looked at as often as that
END_MS = 1_000                   # for slaves to get the last of the log, before the process ends
REFUSED: dict[int, str] = {
    MasterNote.NOTE_LEFT: "slave {peer} has left",
    MasterNote.NOTE_NONSENSE: "{peer} is no slave: it reports {value}; its connection is closed",
    MasterNote.NOTE_BEYOND:
        "slave {peer} reports log position {value}, which it cannot have from here: it has "
        "followed another log, or this one was cut; its connection is closed",
    MasterNote.NOTE_BEFORE:
        "slave {peer} asks for the log from position {value} on, which is deleted here: it needs "
        "an empty store; its connection is closed",
    MasterNote.NOTE_DELETED:
        "slave {peer} was too slow: log position {value} is deleted; its connection is closed",
    MasterNote.NOTE_SILENT:
        "{peer} has reported nothing for {value} ms; its connection is closed: expected its "
        "replication.heartbeat_interval_ms to be less than replication.housekeeping_interval_ms "
        "here",
    MasterNote.NOTE_NO_PLACE:
        "{peer} finds no place among the slaves: expected at most 32, and 16 of one address; its "
        "connection is closed",
    MasterNote.NOTE_STRANGER:
        "{peer} has not shown the account of this broker (acl.client_access_key), and its address "
        "is not in replication.unsigned_addresses: its connection is closed",
    MasterNote.NOTE_NO_TLS:
        "{peer} begins TLS, which is not served at the port of slaves: expected tls.certificate, "
        'and replication.tls_mode other than "disabled"; its connection is closed',
    MasterNote.NOTE_IN_THE_CLEAR:
        "{peer} speaks without TLS, and replication.tls_mode is \"enforcing\": expected "
        "replication.master_tls = true there; its connection is closed",
    MasterNote.NOTE_TLS_SLOW:
        "the TLS handshake of {peer} has taken {value} ms (tls.handshake_ms_max); its connection "
        "is closed",
    MasterNote.NOTE_UNREADABLE:
        "the log cannot be read for slave {peer} (error {value}); its connection is closed"}
DAMAGED = ("the log is damaged at position %d: slave %s gets nothing from there on; mqcore store "
           "verify %s says what is wrong, mqcore store repair mends it while the broker is stopped")

log = logging.getLogger("mqcore.ha-master")


class Limits(TypedDict):
    """Arguments of MasterLoop."""

    min_in_sync: int
    batch_bytes: int
    heartbeat_ms: int
    housekeeping_ms: int


def limits(settings: ReplicationSettings) -> Limits:
    """What can change while it runs."""
    return {"min_in_sync": settings.min_in_sync, "batch_bytes": settings.transfer_batch_bytes,
            "heartbeat_ms": settings.heartbeat_interval_ms,
            "housekeeping_ms": settings.housekeeping_interval_ms}


class HaMaster:
    name = "ha-master"
    slot = HA_MASTER.slot

    def __init__(self, settings: Settings, segment: Segment, listeners: list[int],
                 kept_tls: TlsSettings | None = None) -> None:
        """kept_tls: with copies of the TLS files in force, for a successor."""
        self._settings = settings
        self._segment = segment
        self._listeners = listeners
        self._kept_tls = kept_tls

    def start(self) -> None:
        unsigned = self._settings.replication.unsigned_addresses
        self._loop = MasterLoop(
            self._segment, self._settings.log_folders.text(), self._listeners,
            gated=self._settings.replication.role is Role.SYNC_MASTER,
            shows=self._settings.shows_replicated_only,
            elected=self._settings.failover.enable, hands_on=self._settings.is_slave,
            open_to=network_rows(unsigned) if self._settings.guards_log else None,
            certificate_does=not self._settings.acl.enable,
            **limits(self._settings.replication))
        self._greeted = b""
        self._damaged: set[int] = set()      # log positions: slaves come again and again
        self._twins: set[int] = set()        # ids that several slaves have
        self._slots = FigureSlots(self._segment)
        self._pace = Pace(0, time.monotonic())
        self._courtesy: Courtesy | None = None       # while somebody catches up
        self._behind = Behind(self._settings.log_folders,
                              self._settings.store.segment_size_bytes)
        self._said_at = -SAY_INTERVAL_S      # that somebody is behind; steady clock
        self._stamp: tuple[Stamp | None, Role] | None = None
        self._pen = ReplicaPen(self._segment)
        self._signing = Signing(self._settings.acl, ("", None))
        self._key: Credentials | None = None
        self._take_key()
        if self._settings.guards_log and self._key is None and not unsigned and (
                self._settings.acl.enable or not self._asks):
            log.warning("no slave is let in: expected the account that slaves have to show "
                        "(acl.client_access_key), or replication.unsigned_addresses")
        make, kept = partial(followed_context, asks=self._asks), self._kept_tls
        self._tls = Renewed(
            self._settings.tls, SERVER_FILES, make, self._secure, whose="new links of slaves",
            kept=None if kept is None else partial(make, kept, any_time=True))
        self._greet()

    @property
    def _asks(self) -> bool:
        return self._settings.asks_slaves_for_certificates

    def _secure(self, context: TlsContext | None) -> None:
        self._loop.secure(MODES[self._settings.replication.tls_mode], context,
                          asks_certificates=self._asks,
                          shake_ms_max=self._settings.tls.handshake_ms_max)

    def _take_key(self) -> None:
        """The cluster's account, as its file says now."""
        key = self._signing.current()
        if key != self._key:
            self._key = key
            self._loop.take_key(b"" if key is None else cluster_key(key.secret_key))

    def _greet(self) -> None:
        """
        Whose log it is, to all who come. A slave's table of epochs grows with its master's, before
        the first byte of an epoch: who follows here hears of it first, too (ha_slave.py waits).
        """
        found = stamp(self._settings.store_root / epochs.FILE_NAME), self._settings.role
        if self._stamp == found:
            return
        self._stamp = found
        greeting = self._greeting()
        if greeting != self._greeted:
            self._loop.greet(greeting)
            self._greeted = greeting
        self._pen.greets(mark(greeting))

    def _greeting(self) -> bytes:
        """Of a master the supervisor has seen to it that there are epochs; of stock none come."""
        standing = epochs.read(self._settings.store_root)
        if standing is None and self._settings.is_slave:
            return b""
        if standing is None:
            raise EpochsError(f"{self._settings.store_root / epochs.FILE_NAME} is gone")
        self._slots.put("epoch", standing.history.last.number)
        return words(self._settings.broker.name, self._settings.broker.cluster,
                     self._settings.store.segment_size_bytes, standing.history,
                     self._settings.role)

    def reconfigure(self, settings: Settings) -> None:
        self._settings = settings            # it may have been overtaken
        self._loop.configure(**limits(settings.replication))

    def work(self, turn_ms: int) -> None:
        if self._settings.is_slave:
            self._greet()
        if self._settings.guards_log:
            self._take_key()
        self._tls.look(time.monotonic_ns() // 1_000_000)
        self._loop.run(turn_ms if self._courtesy is None else COURTESY_MS)
        self._say()
        self._give_way()
        self._look(time.monotonic())

    def stop(self) -> None:
        """After the writer: there is no more to come."""
        self._loop.run(END_MS, until_even=True)
        self._say()

    def _give_way(self) -> None:
        """To those who send, while somebody catches up."""
        if self._slots.total("slave_lag_bytes") < CATCH_UP_BYTES:
            if self._courtesy is not None:
                self._loop.slow_down(0)
            self._courtesy = None
            return
        now = self._segment.log_state()["published"], time.monotonic(), processor_ns()
        if self._courtesy is None:
            self._courtesy = Courtesy(*now)
        else:
            self._loop.slow_down(self._courtesy.a_second(*now))

    def _say(self) -> None:
        notes, more = self._loop.notes()
        for kind, peer, value in notes:
            if kind == MasterNote.NOTE_SLAVE:
                log.info("slave %s follows from log position %d on", peer, value)
            elif kind == MasterNote.NOTE_LEFT:
                log.info("%s", REFUSED[kind].format(peer=peer, value=value))
            elif kind == MasterNote.NOTE_DAMAGED:
                self._say_damaged(peer, value)
            elif kind == MasterNote.NOTE_TLS_FAILED:
                log.warning("TLS with %s failed: %s; its connection is closed", peer,
                            tls_context.trouble(value))
            else:
                log.warning("%s", REFUSED[kind].format(peer=peer, value=value))
        if more:
            log.warning("%d more lines about slaves are left out", more)

    def _look(self, now_s: float) -> None:
        """How far slaves are behind: figures of Python's own, and now and then a line."""
        total = self._slots.total
        behind, end = total("slave_lag_bytes"), self._segment.log_state()["published"]
        messages = self._behind.messages(end - behind, end)
        rate = self._pace.a_second(total("sent_log_bytes"), now_s)
        self._slots.put("slave_lag_messages", messages)
        self._slots.put("sent_log_rate", rate)
        self._say_twins()
        late_ms = total("slave_lag_ms")
        if late_ms >= BEHIND_MS and now_s - self._said_at >= SAY_INTERVAL_S:
            self._said_at = now_s
            log.info("the last of %d slaves is %d bytes behind, %d messages, %d ms; %.1f MB/s go "
                     "to slaves", total("slaves"), behind, messages, late_ms, rate / 1e6)

    def _say_twins(self) -> None:
        """Each id once in the life of the process."""
        for number, one, other in self._loop.twins():
            if number not in self._twins:
                self._twins.add(number)
                log.warning("the slaves %s and %s have the same broker.id, %d, and count as one: "
                            "expected another one in each", one, other, number)

    def _say_damaged(self, peer: str, position: int) -> None:
        """Once in the life of the process."""
        if position not in self._damaged:
            self._damaged.add(position)
            log.error(DAMAGED, position, printable(peer),
                      printable(str(self._settings.store_root)))
