"""
What a broker is in a run: a master that continues, one that begins an epoch, or a slave.

Its settings say so at first; later the store does, which knows who led and who followed
(epochs.py), and what an operator told it. No store that followed leads by accident: its master may
have more.
"""
from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace as changed

from msgspec.structs import replace

from mqcore.broker.settings.model import Settings
from mqcore.broker.settings.validation import replication_trouble
from mqcore.replication import epochs
from mqcore.replication.epochs import Epoch, History, Standing, State
from mqcore.replication.peers import PeerState
from mqcore.replication.role import Role
from mqcore.store import restored


class StandingError(RuntimeError):
    """A broker cannot be what it is to be; the text says why, and what to do."""


def with_told(settings: Settings, standing: Standing | None) -> Settings:
    """
    The settings of a run, as an operator has told the broker to be. A slave has no transient pool,
    as with a stock broker's settings. Raises StandingError when it cannot be what it was told.
    """
    if standing is None or standing.told is None:
        return settings
    role = standing.told.role
    replication = replace(settings.replication, role=role,
                          listen=settings.replication.listen or role is not Role.SLAVE)
    store = settings.store
    if role is Role.SLAVE and store.flush == "transient-pool":
        store = replace(store, flush="async")
    told = replace(settings, replication=replication, store=store,
                   broker=replace(settings.broker, id=standing.told.broker_id))
    trouble = replication_trouble(told)
    if trouble is not None:
        raise StandingError(f"this broker was told to be {_article(role)}: {trouble[0]}: expected "
                            f"{trouble[1]}")
    return told


def _article(role: Role) -> str:
    return f"{'an' if role is Role.ASYNC_MASTER else 'a'} {role}"


def member_name(settings: Settings) -> str:
    """Who begins an epoch: broker name, a slash, the address that tells it from others."""
    name = f"{settings.broker.name}/{settings.advertised_addr}".encode()
    return name[:epochs.NAME_LENGTH_MAX].decode(errors="ignore")


def following(settings: Settings) -> Settings:
    """Of a broker whose set elects who leads: how each of its runs begins."""
    return replace(settings, follows=True) if settings.failover.enable else settings


def elected(settings: Settings, standing: Standing | None, epoch: int, log_first: int,
            log_end: int, now_ms: int) -> Standing:
    """
    What the store has to say before the first message of the epoch that this broker was elected
    for. log_first, log_end: where the log begins and ends, bytes. Raises EpochsError when the
    log has had that epoch.
    """
    name = member_name(settings)
    if standing is None:
        return Standing(epochs.first(name, log_first, now_ms, epoch), State.LEADS)
    return Standing(standing.history.begun(log_end, name, now_ms, epoch), State.LEADS)


def check(settings: Settings, standing: Standing | None) -> None:
    """Before a start. Raises StandingError."""
    if standing is None or settings.is_slave or standing.state is not State.FOLLOWS:
        return
    raise StandingError(
        f"the store {settings.store.path} followed a master, which may have more than it: "
        "mqcore replication promote makes a master of it; or start it as a slave "
        '(replication.role = "slave")')


def check_newest(settings: Settings, standing: Standing | None,
                 others: Mapping[str, History]) -> None:
    """
    others: the epochs of each other broker of this name, by address. Raises StandingError when one
    of them has an epoch that this one has not, and is no older, and this one is to lead.
    """
    if settings.is_slave or standing is None or standing.state is State.PROMOTED:
        return
    for address, history in others.items():
        apart = epochs.parted(standing.history, history)
        if apart is not None and apart[1] >= apart[0]:
            raise StandingError(_overtaken(address, history, standing))


def _overtaken(address: str, history: History, standing: Standing) -> str:
    return (f"the broker at {address} has epoch {history.last.number} of {history.last.master}, "
            f"this one ends with epoch {standing.history.last.number}: it is no master any more. "
            "mqcore replication rejoin makes a slave of it")


def check_still_newest(settings: Settings, standing: Standing | None,
                       others: Mapping[str, PeerState]) -> str:
    """
    The same while it leads; others: what each other broker of this name says, by address. Raises
    StandingError when one has taken over, so that of two masters one stays. Returns what an
    operator has to hear of one that leads beside it, where neither has; empty: there is none.
    """
    if settings.is_slave or standing is None or standing.state is not State.LEADS:
        return ""
    trouble = ""
    for address, other in others.items():
        if other.history is None:
            continue
        apart = epochs.parted(standing.history, other.history)
        if apart is not None and apart[1] > apart[0] and apart[1].takeovers:
            raise StandingError(_overtaken(address, other.history, standing))
        is_older = apart is not None and apart[0] > apart[1] and apart[0].takeovers
        if other.role != Role.SLAVE and not is_older:
            last = other.history.last
            trouble = (f"the broker at {address} leads, too, in epoch {last.number} of "
                       f"{last.master}, and none of the two has taken over from the other: stop "
                       "one of them, and mqcore replication rejoin makes a slave of it")
    return trouble


def check_end(settings: Settings, standing: Standing | None, log_end: int,
              others: Mapping[str, PeerState]) -> None:
    """
    Before the first message of a run; log_end: where the log ends, bytes; others: what each other
    broker of this name says, by address. Raises StandingError when one has more of the epoch that
    this one is to go on with: a loss of power took the end of the log, or its disk is an old copy.
    """
    if settings.is_slave or standing is None or standing.state is not State.LEADS:
        return
    for address, other in others.items():
        if other.history is not None and other.history.last == standing.history.last and (
                other.end > log_end):
            raise StandingError(
                f"the broker at {address} has epoch {standing.history.last.number} up to log "
                f"position {other.end}, this one up to {log_end}: the last {other.end - log_end} "
                "bytes are lost here. mqcore replication promote there makes a master of it, and "
                f"rejoin of {settings.store.path} a slave of this one; to lead without them: "
                "demote this one, then promote --force")


def check_copy(settings: Settings, standing: Standing | None, leaders: dict[str, Epoch]) -> None:
    """
    leaders: the last epoch of each other broker of this name that leads, by address. Raises
    StandingError when one of them goes on with the very epoch that this store ends with: the store
    is a copy of its, a snapshot of the disk perhaps, and may lack what came since.
    """
    if settings.is_slave or standing is None or standing.state is not State.LEADS:
        return
    for address, epoch in leaders.items():
        if epoch == standing.history.last:
            raise StandingError(
                f"the broker at {address} leads in epoch {epoch.number}, which is this one's, too: "
                "one of the two stores is a copy. mqcore replication rejoin makes a slave of it")


def check_alone(settings: Settings, living: Collection[str]) -> None:
    """
    Before a run on a store that a restore made (mqcore/store/restored.py); living: addresses of
    other brokers of its name that answer. Raises StandingError when there are any: they may have
    what came after the backup.
    """
    if settings.is_slave or not living:
        return
    raise StandingError(
        f"the store {settings.store.path} was made by mqcore store restore, and a broker of its "
        f"name answers at {', '.join(sorted(living))}, which may have more: stop it, or "
        'start this one as a slave (replication.role = "slave"); without the file '
        f"{settings.store_root / restored.NAME} this one leads whatever others have")


def of_run(settings: Settings, standing: Standing | None, log_first: int, log_end: int,
           now_ms: int, *, lost_power: bool = False) -> Standing | None:
    """
    What the store has to say before a run's first message is stored; None: nothing. log_first,
    log_end: where the log begins and ends, bytes. A store that was told meanwhile to be something
    else keeps that word for the next run, which is due.

    lost_power: the machine went down in the run before. A slave may have what the log has lost: the
    epoch begins by which it is known where the two part; of a log that ends before its first epoch
    nothing is left, and another one begins. Raises EpochsError when who was promoted has such a
    log.
    """
    if settings.is_slave:
        if standing is None or standing.state is State.PROMOTED:
            return None                  # the master's table comes with its greeting
        return changed(standing, state=State.FOLLOWS)
    if standing is None:
        if not settings.replication.listen:
            return None
        return Standing(epochs.first(member_name(settings), log_first, now_ms), State.LEADS)
    if standing.state is not State.PROMOTED and not (lost_power and standing.state is State.LEADS):
        return standing
    if standing.state is State.LEADS and not standing.history.kept(log_end):
        return changed(standing, history=epochs.first(
            member_name(settings), log_first, now_ms, standing.history.last.number + 1))
    history = standing.history.begun(log_end, _beginner(settings, standing, log_end), now_ms)
    return changed(standing, history=history, state=State.LEADS)


def _beginner(settings: Settings, standing: Standing, log_end: int) -> str:
    """
    As whom a run begins its epoch. Whether somebody took over is known by the name alone: behind
    its own epoch a master keeps the one it has, whatever its address is by now; who was promoted
    has another one than the epoch before, which may be its own.
    """
    history, name = standing.history, member_name(settings)
    if standing.state is State.LEADS:
        return history.last.master
    if not any(one.master == name for one in history.kept(log_end)[-1:]):
        return name
    mark = f"#{history.last.number + 1}"
    return name.encode()[:epochs.NAME_LENGTH_MAX - len(mark)].decode(errors="ignore") + mark
