"""
What this broker is in a run (mqcore/broker/standing.py): asked of its store and of others of its
name before a start, and written down before the first message.
"""
from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Mapping

from mqcore.broker.settings.changed import ChangedSettings
from mqcore.broker.settings.model import Settings
from mqcore.broker.standing import (
    StandingError,
    check,
    check_alone,
    check_copy,
    check_end,
    check_newest,
    check_still_newest,
    following,
    of_run,
    with_told,
)
from mqcore.client.core.signature import Credentials
from mqcore.layout import LEADERSHIP_FOLLOWS
from mqcore.replication import epochs
from mqcore.replication.epochs import History, Standing, State
from mqcore.replication.identity import identity
from mqcore.replication.peers import AnsweredError, PeerState, UnprovenError, states
from mqcore.replication.proof import drawn, is_proven
from mqcore.replication.role import Role
from mqcore.shm.leadership import LeadershipPen
from mqcore.shm.replica_gate import ReplicaPen
from mqcore.shm.segment import Segment
from mqcore.store import restored
from mqcore.store.last_run import LastRun
from mqcore.tls.contexts import client_context
from mqcore.tls.settings import TlsSettings
from mqcore.workers.process.accounts import Signing

LOOK_TIMEOUT_S = 5.0              # of a registration's interval of 10 s or more
UNTIL_STARTED = "until it is started anew it takes no messages, and does not register"

log = logging.getLogger("mqcore.supervisor")


def prepared(settings: Settings, changes: ChangedSettings) -> Settings:
    """
    The settings of this run, as the store says what the broker is; those that requests change, too.
    Raises StandingError when it cannot be that; EpochsError, OSError, IdentityError, EtcdFileError.
    """
    found = epochs.read(settings.store_root)
    if settings.failover.enable:             # etcd says what it is to be, and no store
        from mqcore.workers.failover.failover import check_addresses, client

        identity(settings.store_root)
        client(settings.failover)
        check_addresses(settings)
        return changes.turn(following)
    told = with_told(settings, found)
    if told is not settings:
        if told.replication.role is not settings.replication.role:
            log.warning("mqcore replication has made this broker %s with id %d; its settings say "
                        "%s", told.replication.role, told.broker.id, settings.replication.role)
        changes.turn(lambda one: with_told(one, found))
    settings = told
    check(settings, found)
    return settings


def _account(settings: Settings) -> Credentials | None:
    """As whom a start asks; a key that cannot be read is logged, and others asked without."""
    return Signing(settings.acl, ("", None)).current()


def _say_alone(why: str) -> None:
    log.warning("no name server says who else has this broker's name: %s", why)


async def _others(
    settings: Settings, account: Credentials | None, tls: ssl.SSLContext | None,
    unanswered: Callable[[str], None] | None = None, prove: LogProof | None = None,
) -> dict[str, PeerState | AnsweredError]:
    """
    The other brokers of this name that name servers know and that answer, by address; who says that
    it has another name by now has only an address that one of them had. unanswered: hears why, when
    no name server answers; prove: what they have to show, to be believed.
    """
    found = await states(settings.broker.namesrv_addrs, settings.broker.name, account, tls,
                         settings.advertised_addr, unanswered, prove)
    return {address: state for address, state in found.items()
            if address != settings.advertised_addr and (isinstance(state, AnsweredError) or (
                isinstance(state, PeerState) and (state.broker, state.cluster) == (
                    settings.broker.name, settings.broker.cluster)))}


def _ours(others: Mapping[str, PeerState | AnsweredError]) -> dict[str, PeerState]:
    """The brokers of mqcore that are believed."""
    return {address: state for address, state in others.items() if isinstance(state, PeerState)}


def _unproven(others: Mapping[str, PeerState | AnsweredError]) -> str:
    return "; ".join(str(one) for one in others.values() if isinstance(one, UnprovenError))


def _say_unproven(others: Mapping[str, PeerState | AnsweredError]) -> None:
    if trouble := _unproven(others):
        log.error("%s", trouble)


class LogProof:
    """
    The proof that another broker has the log of this one, before its word ends or keeps back a
    master: an account or an epoch number is no proof, since every peer can read the epochs.

    end: of the log here, bytes; None: not known, it is not opened yet.
    """

    def __init__(self, settings: Settings, history: History, end: int | None = None) -> None:
        self._settings = settings
        self._history = history
        self._end = end
        segments = settings.log_folders.segments()
        self._first = segments[0][0] if segments else 0

    @classmethod
    def of(cls, settings: Settings, standing: Standing | None, end: int | None = None,
           ) -> LogProof | None:
        """None: this broker has no epochs yet, and no word of others ends it."""
        return None if standing is None else cls(settings, standing.history, end)

    def positions(self, state: PeerState) -> list[int] | None:
        """As drawn() has them; None: a slave that has nothing beyond this broker."""
        assert state.history is not None
        is_new = epochs.parted(self._history, state.history) is not None
        is_same = state.history.last == self._history.last
        has_more = self._end is not None and state.end > self._end
        if not is_new and not (is_same and (has_more or state.role != Role.SLAVE)):
            return None
        end = state.end if self._end is None else min(self._end, state.end)
        return drawn(self._history, state.history, max(self._first, state.first), end)

    def holds(self, positions: list[int], proofs: dict[str, str], nonce: str, address: str,
              ) -> bool:
        settings = self._settings
        try:
            return is_proven(positions, proofs, settings.log_folders,
                             settings.store.segment_size_bytes, self._first, nonce, address)
        except OSError as error:             # its log would end behind the one here
            log.warning("what %s has shown of its log is compared with nothing: %s", address, error)
            return False


def _ask_others(settings: Settings, standing: Standing | None, log_end: int,
                tls: TlsSettings | None) -> None:
    """
    Before the first message of a run; log_end: where the log ends, bytes. Raises StandingError when
    another broker of the name keeps a master from leading.
    """
    is_restored = restored.is_marked(settings.store_root)
    state = None if standing is None else standing.state
    if settings.is_slave or not settings.broker.namesrv_addrs or not (
            state is State.LEADS or (is_restored and state is None)):
        return
    others = asyncio.run(_others(
        settings, _account(settings), client_context(tls or settings.tls), _say_alone,
        LogProof.of(settings, standing, log_end)))
    _say_unproven(others)
    ours = _ours(others)
    histories = {address: other.history for address, other in ours.items()
                 if other.history is not None}
    check_newest(settings, standing, histories)
    check_copy(settings, standing, {address: history.last for address, history in histories.items()
                                    if ours[address].role != Role.SLAVE})
    check_end(settings, standing, log_end, ours)
    if is_restored:
        check_alone(settings, others)


def _write(settings: Settings, standing: Standing) -> None:
    """Raises OSError, except where a master's greeting, or an election, writes it again."""
    try:
        epochs.write(settings.store_root, standing)
    except OSError as error:
        if not settings.failover.enable:
            raise
        log.warning("%s: this broker follows all the same", error)


def begin_run(settings: Settings, segment: Segment, last: LastRun,
          tls: TlsSettings | None = None) -> bool:
    """
    Who leads has its epoch before the first message of the run, and consumers see what it begins
    with. A master that must not lead, by the word of others of its name, takes no messages in this
    run, and its store says what it said before: the next start asks again.

    last: how the run before ended; tls: with whose files others are asked, None: with those of the
    settings. False: what is to be written could not be, which is logged.
    """
    root, log_state = settings.store_root, segment.log_state()
    try:
        before = standing = epochs.read(root)
        try:
            _ask_others(settings, before, log_state["published"], tls)
        except StandingError as error:
            log.error("%s; %s", error, UNTIL_STARTED)
            LeadershipPen(segment).request(LEADERSHIP_FOLLOWS, 0)
        else:
            with epochs.held(root):
                before = epochs.read(root)
                standing = of_run(settings, before, log_state["first"], log_state["published"],
                                  time.time_ns() // 1_000_000,
                                  lost_power=not (last.clean or last.same_boot))
                if standing is not None and standing != before:
                    _write(settings, standing)
                if before is not None or not settings.is_slave:
                    restored.forget(root)
    except (ValueError, OSError) as error:
        log.error("%s", error)
        return False
    # then who is elected says it (leadership FO10)
    if standing is None or settings.failover.enable:
        return True
    begun = before is not None and before.history != standing.history
    led_before = before is not None and before.state is State.LEADS
    ReplicaPen(segment).show_below(standing.history.last.start if begun and not led_before
                             else standing.history.taken_over)
    if begun:
        log.warning("epoch %d begins at log position %d: %s", standing.history.last.number,
                    standing.history.last.start,
                    "the machine went down in the run before, and a slave may have what the log "
                    "has lost" if led_before else "this broker is the master now")
    return True


class Watch:
    """
    Whether a master that runs is still the newest of its name: it may have started when no other
    was there. If it is not, it takes no messages from then on, and does not register; it stays up
    for consumers, and for the operator. A start asks, too.
    """

    def __init__(self, context: Callable[[], ssl.SSLContext | None],
                 account: Callable[[], Credentials | None],
                 on_overtaken: Callable[[], None]) -> None:
        """
        context, account: with which others are asked, those in force; on_overtaken: called when
        another broker has proven that it took over.
        """
        self._context = context
        self._account = account
        self._on_overtaken = on_overtaken
        self._said = ""

    async def look(self, settings: Settings) -> bool:
        """
        Before a registration: name servers have one address for id 0, that of who registered last.
        False: it is not to be this one's. Takes LOOK_TIMEOUT_S at most.
        """
        if settings.is_slave or settings.failover.enable or not settings.replication.listen:
            return True
        try:
            standing = epochs.read(settings.store_root)
            others = await asyncio.wait_for(
                _others(settings, self._account(), self._context(),
                        prove=LogProof.of(settings, standing)), LOOK_TIMEOUT_S)
            trouble = (check_still_newest(settings, standing, _ours(others))
                       or _unproven(others))
        except StandingError as error:
            log.error("%s; %s", error, UNTIL_STARTED)
            self._on_overtaken()
            return False
        except TimeoutError:
            return True                      # who does not answer is asked again
        except (ValueError, OSError) as error:
            trouble = f"whether another broker has taken over is not known: {error}"
        if trouble and trouble != self._said:
            log.error("%s", trouble)
        self._said = trouble
        return True
