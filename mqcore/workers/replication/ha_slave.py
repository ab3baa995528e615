"""Work of ha-slave: the choice of a master, its native loop, a log that differs."""
from __future__ import annotations

import errno
import logging
import os
import socket
import time
from functools import partial

from mqcore.broker.settings.model import Settings
from mqcore.layout import PutStatus
from mqcore.net.secured import native_client_context
from mqcore.net.transport import tls_context
from mqcore.net.transport.tls_context import TlsClientContext
from mqcore.participants import HA_SLAVE
from mqcore.replication import epochs, greeting
from mqcore.replication.behind import Pace
from mqcore.replication.epochs import EpochsError, Standing, State
from mqcore.replication.greeting import Greeting, OtherLogError, PartedError
from mqcore.replication.identity import identity
from mqcore.replication.key import cluster_key
from mqcore.replication.log_bytes import last_bytes, log_crc
from mqcore.replication.side_files import room_for
from mqcore.replication.slave import POSITION_BITS, SlaveNote
from mqcore.replication.slave_loop import SlaveLoop
from mqcore.shm.figure_slots import FigureSlots
from mqcore.shm.leadership import LeadershipPen
from mqcore.shm.members import member_number
from mqcore.shm.replica_gate import ReplicaPen
from mqcore.shm.segment import Segment
from mqcore.shm.text_board import MasterSign
from mqcore.store import restored
from mqcore.tls.renewed import Renewed
from mqcore.tls.settings import CLIENT_FILES, TlsSettings
from mqcore.wire.printable import printable
from mqcore.workers.process.accounts import Signing
from mqcore.workers.process.stopping import OvertakenError

RETRY_S = (0.1, 0.5, 1.0, 2.0, 5.0)          # between links that brought nothing
LEAST_TURN_MS = 10                           # while results of an earlier link are waited for
AT_ONCE = (PutStatus.PUT_NOT_AT_END, PutStatus.PUT_WRITER_RESTARTED)      # a process began anew
ENDED: dict[int, str] = {
    SlaveNote.NOTE_ENDED: "it was closed",
    SlaveNote.NOTE_OTHER_PLACE:
        "the master goes on at log position {value}, which is not where the log ends here: the two "
        "logs differ, or the slave's store has to be empty",
    SlaveNote.NOTE_BAD_FRAME: "a frame says that it has {value} bytes: this is no master",
    SlaveNote.NOTE_BAD_RECORD:
        "there is no record at log position {value}: expected the master's "
        "store.segment_size_bytes to be the same as here",
    SlaveNote.NOTE_TOO_LARGE:
        "a record of {value} bytes is too large: expected store.message_size_max_bytes to be as "
        "large as the master's",
    SlaveNote.NOTE_REFUSED: "the writer has refused bytes: {status}",
    SlaveNote.NOTE_MASTER_SILENT:
        "the master has said nothing for {value} ms: expected its "
        "replication.heartbeat_interval_ms to be less than replication.housekeeping_interval_ms "
        "here",
    SlaveNote.NOTE_NO_ACCOUNT:
        "the master asks for the account of its set: expected acl.client_access_key and "
        "acl.client_secret_key_file to be as there"}
NO_POSITION = ("a frame says that it begins at {value}, which is no log position: this is no "
               "master's HA port")
OTHER: dict[int, str] = {
    SlaveNote.NOTE_OTHER_LOG:
        "its log is another one than the log here, at position {value}: a slave of it needs an "
        "empty store",
    SlaveNote.NOTE_NOTHING_BELOW:
        "it sends nothing from log position {value} on, which is below the end here: its log is "
        "shorter, or that is deleted there, and a slave of it needs an empty store"}
CLOSED = ("it was closed in the handshake: expected the HA port of a master whose "
          'replication.tls_mode is not "disabled"')
DAMAGED = (", which are no records of this place, or none that their queues can have: expected the "
           "master's store.segment_size_bytes and store.queue_file_entry_count to be as here")

log = logging.getLogger("mqcore.ha-slave")


def address_of(text: str) -> tuple[str, int]:
    """host:port, [v6]:port. Raises ValueError."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def begin_connect(address: str, attempt: int) -> int:
    """
    A descriptor of a socket whose connect has begun: of a name with several addresses each in its
    turn. Raises OSError and ValueError.
    """
    host, port = address_of(address)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, kind, protocol, _, peer = found[attempt % len(found)]
    link = socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, protocol)
    try:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        error = link.connect_ex(peer)
        if error not in (0, errno.EINPROGRESS):
            raise OSError(error, os.strerror(error))
        return link.detach()
    except OSError:
        link.close()
        raise


class HaSlave:
    name = "ha-slave"
    slot = HA_SLAVE.slot

    def __init__(self, settings: Settings, segment: Segment, rejoin_from: float,
                 kept_tls: TlsSettings | None = None) -> None:
        """rejoin_from, kept_tls: Inherited has them."""
        self._settings = settings
        self._segment = segment
        self._rejoin_from = rejoin_from
        self._kept_tls = kept_tls
        self._sign = MasterSign(segment)
        self._pen = LeadershipPen(segment) if settings.failover.enable else None
        self._epoch = 0                      # of who was elected
        self._sign_version = -1
        self._learnt = ""
        self._address = ""
        self._retries = 0
        self._retry_at = 0.0
        self._asked = -1                     # log position that the last link asked from
        self._said = ""                      # why there was no link, so that it is said once
        self._refused = ""                   # why the last master was not to be believed
        self._is_mute = False                # it did not greet: a stock one does not (slave HS10)

    def start(self) -> None:
        replication = self._settings.replication
        self._loop = SlaveLoop(
            self._segment, heartbeat_ms=replication.heartbeat_interval_ms,
            housekeeping_ms=replication.housekeeping_interval_ms,
            member=self._number())
        self._slots = FigureSlots(self._segment)
        self._pace = Pace(0, time.monotonic())
        self._signing = Signing(self._settings.acl, ("", None))
        self._context: TlsClientContext | None = None
        self._tls: Renewed[TlsSettings, TlsClientContext] | None = None
        if replication.master_tls:
            kept = self._kept_tls
            self._tls = Renewed(
                self._settings.tls, CLIENT_FILES, native_client_context, self._take_context,
                whose="new links to the master",
                kept=None if kept is None else partial(native_client_context, kept))

    def _take_context(self, context: TlsClientContext) -> None:
        self._context = context

    def _number(self) -> int:
        """Who it is: a member of an elected set by its store, too."""
        settings = self._settings
        return (member_number(settings.broker.id, identity(settings.store_root))
                if settings.failover.enable else settings.broker.id)

    def reconfigure(self, settings: Settings) -> None:
        self._settings = settings
        self._loop.configure(heartbeat_ms=settings.replication.heartbeat_interval_ms,
                             housekeeping_ms=settings.replication.housekeeping_interval_ms)

    def work(self, turn_ms: int) -> None:
        if self._tls is not None:
            self._tls.look(time.monotonic_ns() // 1_000_000)
        self._look_for_master()
        wait_ms = turn_ms
        if not self._loop.linked and self._address:
            wait_ms = int(1000 * (self._retry_at - time.monotonic()))
            if wait_ms <= 0 and self._loop.ready:
                self._connect()
                wait_ms = turn_ms
        self._loop.run(max(LEAST_TURN_MS, min(wait_ms, turn_ms)))
        self._say()
        self._slots.put("followed_rate", self._pace.a_second(
            self._slots.total("followed_bytes"), time.monotonic()))

    def stop(self) -> None:
        """What was handed to the writer it takes by itself, before it ends."""
        self._loop.unlink()

    def _look_for_master(self) -> None:
        if self._pen is not None:
            self._look_for_elected(self._pen)
        elif self._sign.version != self._sign_version:
            told = self._sign.address()
            if told is not None:
                self._sign_version, self._learnt = told
        address = self._settings.replication.master_address or self._learnt
        if address == self._address:
            return
        if self._address:
            log.info("the master is at %s now", printable(address) or "no known address")
            self._loop.unlink()
        self._address, self._retries, self._retry_at = address, 0, 0.0
        self._is_mute = False

    def _look_for_elected(self, pen: LeadershipPen) -> None:
        if pen.leader_version == self._sign_version:
            return
        leader = pen.leader()
        if leader is not None:
            self._sign_version, member, _, address, self._epoch, _ = leader
            self._learnt = address if member != self._settings.broker.id else ""

    def _connect(self) -> None:
        state = self._segment.log_state()
        end = state["published"]
        try:
            last = last_bytes(self._settings.log_folders, state["first"], end,
                              self._settings.store.segment_size_bytes)
            below = None if not last else last if self._is_mute else b""
            key = self._signing.current()
            self._loop.take_key(b"" if key is None else cluster_key(key.secret_key))
            self._loop.link(begin_connect(self._address, self._retries), end, below,
                            self._context, address_of(self._address)[0].encode("idna"))
        except (OSError, ValueError) as error:
            self._no_link(str(error))
            self._later()

    def _later(self) -> None:
        self._retry_at = time.monotonic() + RETRY_S[min(self._retries, len(RETRY_S) - 1)]
        self._retries += 1

    def _greeted(self) -> None:
        """A master of ours says whose log it has: if that is ours, too, it may send."""
        if self._is_mute:                    # no longer: it is asked as one of ours
            self._is_mute = False
            self._loop.unlink()
            self._later()
            return
        settings, root = self._settings, self._settings.store_root
        try:
            theirs = greeting.decode(self._loop.greeting())
            greeting.check_names(theirs, settings.broker.name, settings.broker.cluster,
                                 settings.store.segment_size_bytes)
            with epochs.held(root):
                mine = epochs.read(root)
                if mine is not None and mine.state is State.PROMOTED and self._pen is None:
                    raise OtherLogError("this broker was told to lead, which it does from its next "
                                        "start on")
                greeting.check_log(
                    theirs, None if mine is None else mine.history,
                    self._segment.log_state()["published"],
                    lambda start, end: log_crc(settings.log_folders, start, end,
                                               settings.store.segment_size_bytes))
                standing = Standing(theirs.history, State.FOLLOWS,
                                    None if mine is None else mine.told)
                if standing != mine:
                    epochs.write(root, standing)
                restored.forget(root)
            if not self._is_told(theirs):
                self._loop.unlink()
                self._later()
                return
        except (OtherLogError, EpochsError, OSError) as error:
            self._loop.unlink()
            reason = str(error)
            if isinstance(error, PartedError) and self._pen is not None:
                reason = self._why_not_cut(theirs, error)
            self._later()
            self._refuse(reason)
            return
        if self._refused:
            log.info("the master at %s is followed now", printable(self._address))
        self._refused = ""
        self._slots.put("followed_epoch", theirs.history.last.number)
        # who was elected may not show yet what its epoch began with, and says when it does
        # (leadership FO10)
        ReplicaPen(self._segment).show_below(theirs.history.taken_over if self._pen is None else 0)
        self._loop.follow(asks=theirs.tells and (
            settings.shows_replicated_only or settings.hands_log_on
            or self._pen is not None))                                   # leadership FO13

    def _refuse(self, reason: str) -> None:
        if reason != self._refused:
            log.error("the master at %s is not followed: %s", printable(self._address), reason)
        self._refused = reason

    def _is_told(self, theirs: Greeting) -> bool:
        """Whether who follows here hears of the same epochs: soon, when they are new."""
        settings = self._settings
        if not settings.hands_log_on:
            return True
        return ReplicaPen(self._segment).greeting == greeting.mark(greeting.words(
            settings.broker.name, settings.broker.cluster, settings.store.segment_size_bytes,
            theirs.history, settings.role))

    def _why_not_cut(self, theirs: Greeting, error: PartedError) -> str:
        """
        Why that which the log here has more than that of who was elected stays; its bytes were
        acknowledged to nobody. Raises OvertakenError when it can be cut, at rest.
        """
        size = error.end - error.position
        more = f"it has not {size} bytes of the log here, from position {error.position} on"
        if theirs.history.last.number != self._epoch:
            return (f"{more}; it leads in epoch {theirs.history.last.number}, and epoch "
                    f"{self._epoch} is the one that was elected: nothing is cut")
        if not room_for(self._settings.store_root, size):
            return f"{more}; the disk has no room for a side file of them: nothing is cut"
        if time.monotonic() < self._rejoin_from:
            return f"{more}; they could not be cut, which is tried again soon"
        raise OvertakenError

    def _no_link(self, reason: str) -> None:
        if reason != self._said:
            log.warning("the master at %s cannot be reached: %s; trying again",
                        printable(self._address), printable(reason))
            self._said = reason

    def _say(self) -> None:
        for kind, value in self._loop.notes():
            if kind == SlaveNote.NOTE_LINKED:
                if not self._refused:            # else it may be refused again
                    log.info("following the master at %s from log position %d on",
                             printable(self._address), value)
                self._asked, self._said = value, ""
                continue
            if kind == SlaveNote.NOTE_GREETED:
                self._greeted()
                continue
            if self._segment.log_state()["published"] > self._asked >= 0:
                self._retries = 0
                self._refused = "" if self._is_mute else self._refused
            if kind == SlaveNote.NOTE_NOT_GREETED:
                self._is_mute = True
            elif kind in OTHER:
                self._refuse(OTHER[kind].format(value=value))
            elif kind == SlaveNote.NOTE_NO_LINK:
                self._no_link(os.strerror(value))
            elif kind == SlaveNote.NOTE_LINK_TLS_FAILED:
                self._no_link(f"TLS: {tls_context.trouble(value) if value else CLOSED}")
            elif not self._segment.stop_requested(self.slot):
                status = PutStatus(value).name if kind == SlaveNote.NOTE_REFUSED else ""
                status += DAMAGED if status == "PUT_RAW_DAMAGED" else ""
                is_place = kind != SlaveNote.NOTE_OTHER_PLACE or not value >> POSITION_BITS
                log.warning("the link to the master at %s has ended: %s", printable(self._address),
                            (ENDED[kind] if is_place else NO_POSITION).format(
                                value=value, status=status))
            if kind == SlaveNote.NOTE_REFUSED and value in AT_ONCE:
                self._retries = 0
            self._later()
