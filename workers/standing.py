"""
What this broker is in a run (mqcore/broker/standing.py): asked of its store and of others of its
name before a start, and written down before the first message.
"""
from __future__ import annotations

import asyncio
import logging
import time

from mqcore.broker.settings.changed import ChangedSettings
from mqcore.broker.settings.model import Settings
from mqcore.broker.standing import (
    check,
    check_alone,
    check_copy,
    check_newest,
    following,
    of_run,
    with_told,
)
from mqcore.replication import epochs
from mqcore.replication.epochs import EpochsError, State
from mqcore.replication.identity import identity
from mqcore.replication.peers import AnsweredError, PeerState, states
from mqcore.replication.role import Role
from mqcore.shm.replica_gate import ReplicaPen
from mqcore.shm.segment import Segment
from mqcore.store import restored
from mqcore.tls.contexts import client_context
from mqcore.tls.settings import TlsSettings
from mqcore.workers.accounts import own_account
from mqcore.workers.failover import check_addresses, client

log = logging.getLogger("mqcore.supervisor")


def prepared(settings: Settings, changes: ChangedSettings,
             tls: TlsSettings | None = None) -> Settings:
    """
    The settings of this run, as the store says what the broker is; those that requests change, too.
    tls: with whose files others are asked, None: with those of the settings.
    Raises StandingError when it cannot be that, or another one has overtaken it; EpochsError,
    OSError, TlsFileError, AccountFileError, IdentityError, EtcdFileError.
    """
    found = epochs.read(settings.store_root)
    if settings.failover.enable:             # etcd says what it is to be, and no store
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
    is_restored = restored.is_marked(settings.store_root)
    if (found is not None or is_restored) and not settings.is_slave and (
            settings.broker.namesrv_addrs):
        others = asyncio.run(_others(settings, tls or settings.tls))
        last = {address: state.history.last for address, state in others.items()
                if isinstance(state, PeerState) and state.history is not None}
        check_newest(settings, found, last)
        check_copy(settings, found, {
            address: last[address] for address, state in others.items()
            if isinstance(state, PeerState) and address in last and state.role != Role.SLAVE})
        if is_restored and (found is None or found.state is not State.PROMOTED):
            check_alone(settings, others)
    return settings


async def _others(
    settings: Settings, tls: TlsSettings,
) -> dict[str, PeerState | AnsweredError]:
    """
    The other brokers of this name that name servers know and that answer, by address; who says that
    it has another name by now has only an address that one of them had.
    """
    found = await states(settings.broker.namesrv_addrs, settings.broker.name,
                         own_account(settings.acl), client_context(tls))
    return {address: state for address, state in found.items()
            if address != settings.advertised_addr and (isinstance(state, AnsweredError) or (
                isinstance(state, PeerState) and (state.broker, state.cluster) == (
                    settings.broker.name, settings.broker.cluster)))}


def taken(settings: Settings, segment: Segment) -> bool:
    """
    Who leads has its epoch before the first message of the run, and consumers see what it begins
    with. False: it could not be written, which is logged.
    """
    root, log_state = settings.store_root, segment.log_state()
    try:
        with epochs.held(root):
            before = epochs.read(root)
            standing = of_run(settings, before, log_state["first"], log_state["published"],
                              time.time_ns() // 1_000_000)
            if standing is not None and standing != before:
                epochs.write(root, standing)
            if before is not None or not settings.is_slave:
                restored.forget(root)
    except (EpochsError, OSError) as error:
        log.error("%s", error)
        return False
    if standing is not None:
        ReplicaPen(segment).keep(standing.history.last.start)
    if before is not None and standing is not None and before.history != standing.history:
        log.warning("epoch %d begins at log position %d: this broker is the master now",
                    standing.history.last.number, standing.history.last.start)
    return True
