"""Work of failover: questions to etcd, and the words that follow from the answers."""
from __future__ import annotations

import logging
import ssl
import time
from pathlib import Path

from mqcore.broker.settings.model import FailoverSettings, Settings
from mqcore.failover.election import Ask, Election, Grant, Look, Transact, Words
from mqcore.failover.etcd import Etcd, EtcdError, EtcdRefusedError, Refusal
from mqcore.failover.here import Here, Me, Report, Rules
from mqcore.failover.keys import ADDRESS_BYTES_MAX, OTHERS_MAX, KeysError, Names, view_of
from mqcore.failover.storing import Storing
from mqcore.layout import LEADERSHIP_FOLLOWS, LEADERSHIP_LEADS, REFUSAL_FLUSH_FAILED
from mqcore.participants import FAILOVER, processes
from mqcore.replication import epochs
from mqcore.replication.epochs import EpochsError
from mqcore.replication.identity import identity, renew
from mqcore.shm.leadership import LeadershipPen
from mqcore.shm.members import member_number
from mqcore.shm.replica_gate import ReplicaPen
from mqcore.shm.run_clock import RunClock
from mqcore.shm.segment import Segment
from mqcore.store import files
from mqcore.store.log.retention import HOUR_MS, missed_from
from mqcore.wire.records import RecordError
from mqcore.workers.process.stopping import OvertakenError

REST_S = 0.02                     # between two looks at what is due
AFTER_LOSS_S = 0.05
LEAVE_QUESTIONS = 3
AFTER_REFUSAL_S = 1.0             # when no member lets this broker in; etcd works for each password
SAY_AGAIN_S = 60.0                # that etcd does not answer
AGES_LOOK_MS = 10_000             # at the files of the log
EXPECTED: dict[Refusal, str] = {
    "certificate": "expected its authority in failover.etcd_ca_file, and its host in it",
    "own certificate": "expected a certificate that etcd trusts in failover.etcd_cert_file; with "
                       "users of etcd one without a common name",
    "password": "expected the password of failover.etcd_user in failover.etcd_password_file",
    "user": "expected failover.etcd_user and failover.etcd_password_file",
    "right": "expected failover.etcd_user, and a role of it that may read and write these keys"}

log = logging.getLogger("mqcore.failover")


class EtcdFileError(ValueError):
    """What the settings say for etcd cannot be used; the text says what, and why."""


def rules(settings: Settings) -> Rules:
    return Rules(1000 * settings.failover.lease_seconds, settings.failover.in_sync_timeout_ms,
                 settings.replication.min_in_sync)


def client(settings: FailoverSettings) -> Etcd:
    """Of etcd, as the settings say; nothing is asked yet. Raises EtcdFileError."""
    context = account = None
    key = "etcd_ca_file"
    try:
        if any(address.startswith("https:") for address in settings.etcd):
            context = ssl.create_default_context(cafile=settings.etcd_ca_file or None)
            key = "etcd_cert_file"
            if settings.etcd_cert_file:
                context.load_cert_chain(settings.etcd_cert_file, settings.etcd_key_file, "")
        key = "etcd_password_file"
        if settings.etcd_user:
            path = Path(settings.etcd_password_file)
            with files.named(path):              # it may be a pipe
                lines = path.read_bytes().decode().splitlines()
            account = settings.etcd_user, lines[0] if lines else ""
    except (OSError, ValueError) as error:
        raise EtcdFileError(f"failover.{key} = \"{getattr(settings, key)}\" cannot be used: "
                            f"{error}") from None
    return Etcd(settings.etcd, settings.request_timeout_ms / 1000, context, account)


def check_addresses(settings: Settings) -> None:
    """Raises EtcdFileError when others cannot be told where this broker is."""
    for address in (settings.advertised_addr, settings.ha_addr):
        if len(address.encode()) > ADDRESS_BYTES_MAX:
            raise EtcdFileError(f"the address {address:.40}... has {len(address.encode())} bytes: "
                                f"expected at most {ADDRESS_BYTES_MAX} with failover.enable")


class Failover:
    name = "failover"
    slot = FAILOVER.slot

    def __init__(self, settings: Settings, segment: Segment) -> None:
        self._settings = settings
        self._segment = segment
        self._pen = LeadershipPen(segment)
        self._gate = ReplicaPen(segment)
        self._words = Words()
        self._storing = Storing()
        self._clock = RunClock(segment)
        self._missed_from, self._ages_looked_ms = 0, -AGES_LOOK_MS
        self._producers = [row.producer + index
                           for row, index in processes(segment.serving_count) if row.results]
        self._named: list[int] = []                  # numbers of the others that have a key in etcd
        self._said_leader: tuple[object, ...] = ()
        self._troubles: dict[str, str] = {}          # by what it is about: what was said last
        self._silent_since = 0.0
        self._silent_said: dict[str, float] = {}       # why: when
        self._unanswered: set[type[Ask]] = set()       # what it has not answered since
        self._refusals = 0                             # one after the other

    def start(self) -> None:
        settings = self._settings
        self._names = Names.of(settings.broker.cluster, settings.broker.name)
        leads = self._pen.role[1] if self._pen.leads else 0
        state, claimed = self._pen.requested
        self._election = Election(
            self._names,
            Me(settings.broker.id, settings.advertised_addr, settings.ha_addr,
               identity(settings.store_root)),
            rules(settings), leads=leads, claimed=claimed if state == LEADERSHIP_LEADS else 0,
            deadline_ns=self._pen.deadline_ns if leads else 0,
            waited_for=self._pen.members, former=self._pen.former)
        self._etcd = client(settings.failover)
        self._epoch, self._epochs_stamp = 0, (0, 0)
        self._starts: tuple[tuple[int, int], ...] = ()       # (number, start) of all epochs
        if not leads:
            self._pen.hold_until(0)
            self._pen.request(LEADERSHIP_FOLLOWS, 0)

    def reconfigure(self, settings: Settings) -> None:
        self._settings = settings
        self._election.configure(rules(settings))

    def work(self, turn_ms: int) -> None:
        end = time.monotonic() + turn_ms / 1000
        while time.monotonic() < end and not self._segment.stop_requested(self.slot):
            asked = self._election.next(self._here())
            if self._election.set_back_from:
                self._begin_anew()
            if asked is None:
                time.sleep(REST_S)
            else:
                self._ask(asked)
            self._say()

    def _begin_anew(self) -> None:
        """leadership FO13: as a store that was in no set. Raises OvertakenError."""
        self._say()
        log.error("the log here ends at position %d, and this store had it up to %d: its disk was "
                  "set back, to a snapshot or by a loss. It takes part as a new one, which comes "
                  "into the set when it has the log again",
                  self._segment.log_state()["published"], self._election.set_back_from)
        renew(self._settings.store_root)
        raise OvertakenError

    def stop(self) -> None:
        """After the last acknowledgement: another one need not wait for the lease to run out."""
        self._pen.hold_until(0)
        for _ in range(LEAVE_QUESTIONS):         # without an answer: the lease runs out
            asked = self._election.leave()
            if asked is None or not self._ask(asked):
                break
        self._etcd.close()

    # -- etcd --------------------------------------------------------------------------------------

    def _ask(self, asked: Ask) -> bool:
        """Whether etcd has answered."""
        now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        election, etcd = self._election, self._etcd
        try:
            if isinstance(asked, Grant):
                election.granted(etcd.grant(self._settings.failover.lease_seconds), now_ns)
            elif isinstance(asked, Look):
                view = view_of(self._names, etcd.below(self._names.prefix))
                election.seen(view, now_ns)
                self._named = sorted(member_number(member, one.store)
                                     for member, one in view.members.items()
                                     if member != self._settings.broker.id)
                self._complain("key", view.strange and (
                    f"a key in etcd is passed over: {view.strange}"))
            else:
                self._transact(asked)
        except (EtcdError, KeysError) as error:
            election.lost(asked)
            self._unanswered.add(type(asked))
            self._silent(error)
            self._after_loss(error)
            return False
        self._pen.heard(time.clock_gettime_ns(time.CLOCK_BOOTTIME))
        self._refusals = 0
        self._unanswered.discard(type(asked))
        if self._unanswered:             # it tells keys, perhaps, and grants no lease
            return True
        if self._silent_said:
            log.warning("etcd answers again, after %.1f s", time.monotonic() - self._silent_since)
        self._silent_since = 0.0
        self._silent_said.clear()
        return True

    def _transact(self, asked: Transact) -> None:
        done = self._etcd.transact(asked.compared, asked.changes)
        self._election.transacted(asked, done)
        if done and asked.why:
            log.error("this broker gives up that it leads: %s", asked.why)
        elif done and asked.what != "renew":
            log.info("%s: done", asked.what)

    def _silent(self, error: Exception) -> None:
        self._silent_since = self._silent_since or time.monotonic()
        then = ("nothing is acknowledged when the lease has run out" if self._election.leads
                else "nobody is elected meanwhile")
        if isinstance(error, EtcdRefusedError):
            if self._is_new(error.what):
                log.error("etcd is not used: %s: %s; %s", error, EXPECTED[error.what], then)
        elif self._is_new(type(error).__name__):
            log.warning("%s: %s; %s", "what etcd holds cannot be used"
                        if isinstance(error, KeysError) else "etcd does not answer", error, then)

    def _is_new(self, reason: str) -> bool:
        """Whether it was not said a short while ago."""
        now = time.monotonic()
        if now - self._silent_said.get(reason, -SAY_AGAIN_S) < SAY_AGAIN_S:
            return False
        self._silent_said[reason] = now
        return True

    def _after_loss(self, error: Exception) -> None:
        """A pause. When all members have refused: with files as they are by then."""
        self._refusals = self._refusals + 1 if isinstance(error, EtcdRefusedError) else 0
        if self._refusals < len(self._settings.failover.etcd):
            time.sleep(AFTER_LOSS_S)
            return
        time.sleep(AFTER_REFUSAL_S)
        try:
            etcd = client(self._settings.failover)
        except EtcdFileError as failure:
            if self._is_new("file"):
                log.error("%s", failure)
            return
        self._etcd.close()
        self._etcd = etcd

    # -- this broker -------------------------------------------------------------------------------

    def _here(self) -> Here:
        role, applied = self._pen.role, self._pen.applied  # first, so that the rest is no older
        replicated, log_state = self._gate.replicated, self._segment.log_state()
        now_ms, end = time.monotonic_ns() // 1_000_000, log_state["published"]
        unable = self._storing.look(
            now_ms, log_state["refusal"], end,
            waits=replicated >= end and not all(map(self._segment.appends_taken, self._producers)),
            patience_ms=self._settings.failover.in_sync_timeout_ms,
            unreadable=bool(log_state["unreadable"]))
        return Here(
            time.clock_gettime_ns(time.CLOCK_BOOTTIME), now_ms,
            role[1], self._last_epoch(),
            end, replicated, self._pen.begun,
            {member: Report(acked, even_ms, heard_ms > 0)
             for member, (acked, even_ms, heard_ms) in self._pen.reports.items()},
            applied, unable, log_state["refusal"] == REFUSAL_FLUSH_FAILED,
            min(log_state["flushed"], max(replicated, self._gate.told)),
            log_state["first"], self._look_at_ages(now_ms) if role[1] else 0, self._starts)

    def _look_at_ages(self, now_ms: int) -> int:
        """Before which position the log may be deleted anywhere, for its age."""
        if now_ms - self._ages_looked_ms >= AGES_LOOK_MS:
            self._ages_looked_ms = now_ms
            settings = self._settings
            try:
                self._missed_from = missed_from(
                    settings.log_folders, settings.store.segment_size_bytes,
                    settings.store.reserved_hours * HOUR_MS, self._clock.passed_ms)
            except (OSError, RecordError) as error:
                self._complain("ages", f"how old the log is cannot be read: {error}")
            else:
                self._complain("ages", "")
        return self._missed_from

    def _last_epoch(self) -> int:
        """Of the table of epochs, which others write; one that cannot be read is as it was."""
        path = self._settings.store_root / epochs.FILE_NAME
        try:
            stat = path.stat()
            stamp = stat.st_mtime_ns, stat.st_ino
            if stamp != self._epochs_stamp:
                found = epochs.read(self._settings.store_root)
                known = () if found is None else found.history.epochs
                self._epoch = known[-1].number if known else 0
                self._starts = tuple((one.number, one.start) for one in known)
                self._epochs_stamp = stamp
        except FileNotFoundError:
            self._epoch, self._starts, self._epochs_stamp = 0, (), (0, 0)
        except (EpochsError, OSError) as error:
            self._complain("epochs", f"the epochs of the log cannot be read: {error}")
            return self._epoch
        self._complain("epochs", "")
        return self._epoch

    # -- what follows ------------------------------------------------------------------------------

    def _say(self) -> None:
        """The words of the election, in the order in which others may go by them."""
        words, before = self._election.words(), self._words
        if words is None:
            return
        self._complain("part", self._election.trouble)
        named = [one for one in self._named
                 if one not in words.waited_for][:OTHERS_MAX - len(words.waited_for)]
        if words.waited_for != tuple(self._pen.members) or named != self._pen.named:
            self._pen.wait_for(words.waited_for, named)
        if words.former != self._pen.former:
            self._pen.follow_up(words.former)
        if words.shown > self._gate.told:
            self._gate.show_below(words.shown)
        if words.deadline_ns != self._pen.deadline_ns:
            self._pen.hold_until(words.deadline_ns)
        leader = words.leader
        said = ((0, "", "") if leader is None else (leader.member, leader.address, leader.ha),
                max(words.epoch, words.leads), words.in_sync)
        if said != self._said_leader:
            self._said_leader = said
            self._pen.say_leader(*said[0], said[1], said[2])
        wanted = ((LEADERSHIP_LEADS, words.leads) if words.leads
                  else (LEADERSHIP_FOLLOWS, words.epoch))
        if wanted != self._pen.requested:
            self._pen.request(*wanted)
        self._words = words
        self._log(words, before)

    def _log(self, words: Words, before: Words) -> None:
        if words.leads != before.leads:
            if words.leads:
                log.warning("this broker is elected, for epoch %d", words.leads)
            else:
                log.warning("this broker leads no more: epoch %d is over", before.leads)
        if words.leader != before.leader and words.leader is not None and not words.leads:
            log.info("member %d at %s leads, in epoch %d", words.leader.member,
                     words.leader.address, words.leader.epoch)
        if words.in_sync != before.in_sync:
            log.warning("the set is %s", ", ".join(map(str, words.in_sync)) or "empty")

    def _complain(self, about: str, trouble: str) -> None:
        """Said once, and again when it was another one, or none, in between."""
        if trouble and trouble != self._troubles.get(about):
            log.error("%s", trouble)
        self._troubles[about] = trouble
