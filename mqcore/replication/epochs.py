"""
Epochs: who wrote which part of a log, so that two stores know up to where they are one history.

An epoch is what one master wrote without another beginning. Who is promoted begins one, at the end
of its log; whoever follows it has the same table as far as its log goes. Two tables that share an
epoch share every byte of the log below the first place where they part, for positions are
given by one writer alone.

- The last epoch that both have ends, on each side, where the next one starts or the log ends; below
  the lesser of the two ends both logs are the same.
- A table is on the disk before its epoch's first byte is in the log.
- Epochs grow: a number is never used again in a log, a start never lies before the last. Two who
  were promoted behind the same epoch have the same number; master and time tell them apart.
- A master that comes back from a loss of power begins one behind its own: what its log has lost
  there a slave may have. So of two tables that have parted that one is newer in which others have
  begun to lead more often; where that is even, the one with the greater number. Who began is known
  by the name in the table (mqcore/broker/standing.py), which is no address that one has by now.

The table is STORE/epochs, JSON, which a stock broker passes over. Beside it stands what this broker
was in its last run, and what an operator has told it to be.
"""
from __future__ import annotations

import fcntl
import itertools
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from mqcore.replication.role import Role
from mqcore.store import files as disk

FILE_NAME = "epochs"
VERSION = 1
EPOCHS_MAX = 1024                # older ones become one
TABLE_BYTES_MAX = 1 << 20
NAME_LENGTH_MAX = 255
HISTORY_LENGTH = 32
NUMBER_MAX = (1 << 63) - 1
FIRST_SLAVE = 1                  # its id, where none is said
PEERS_EPOCH_MAX = 1 << 62        # of who tells us: there is always one behind it


class EpochsError(ValueError):
    """A table of epochs that cannot be used; the text says which field and what was expected."""


@dataclass(frozen=True)
class Epoch:
    """
    What one master wrote.

    number   of the epoch, from 1 on
    start    position of its first byte in the log, bytes
    master   who began it: broker name, a slash, its address; printable, at most
             NAME_LENGTH_MAX bytes
    begun_ms when, Unix time in milliseconds
    """

    number: int
    start: int
    master: str
    begun_ms: int


@dataclass(frozen=True)
class History:
    """
    The epochs of a log.

    log_id   32 hexadecimal digits, drawn when the first epoch began: of every copy of this log
    epochs   oldest first, at least one
    """

    log_id: str
    epochs: tuple[Epoch, ...]

    @property
    def last(self) -> Epoch:
        return self.epochs[-1]

    @property
    def taken_over(self) -> int:
        """
        Where who leads last took over, bytes: it began with all of its log. What it began behind
        its own epochs, after a loss of power, counts not.
        """
        own = itertools.takewhile(lambda one: one.master == self.last.master,
                                  reversed(self.epochs))
        return min(one.start for one in own)

    def begun(self, start: int, master: str, begun_ms: int, number: int = 0) -> History:
        """
        The same log after `master` began an epoch at `start`, the end of its log. Epochs of
        which it never had a byte are forgotten. number: of the epoch, 0: the next one. Raises
        EpochsError when that is none that comes behind the last.
        """
        if number and number <= self.last.number:
            raise EpochsError(f"epoch {number} does not come behind the last one of this log, "
                              f"{self.last.number}")
        epochs = self.kept(start)
        if not epochs:
            raise EpochsError(f"an epoch at {start}: the first one starts at "
                              f"{self.epochs[0].start}")
        epochs = (*epochs, Epoch(number or self.last.number + 1, start, master, begun_ms))
        # what is joined keeps the number of the newest: nobody parts there any more
        spare = len(epochs) - EPOCHS_MAX
        if spare > 0:
            epochs = (replace(epochs[spare], start=epochs[0].start), *epochs[spare + 1:])
        return History(self.log_id, epochs)

    def kept(self, log_end: int) -> tuple[Epoch, ...]:
        """Those that a log that ends there may have a byte of."""
        return tuple(one for one in self.epochs if one.start <= log_end)

    def ends(self, index: int, log_end: int) -> int:
        """
        Where the epoch at this index ends, in a log that ends at `log_end`; a table may know epochs
        that the log has nothing of yet.
        """
        if index + 1 == len(self.epochs):
            return log_end
        return min(self.epochs[index + 1].start, log_end)


def first(master: str, start: int, begun_ms: int, number: int = 1) -> History:
    """Of a log that had no table before; number: of its epoch."""
    return History(secrets.token_hex(HISTORY_LENGTH // 2),
                   (Epoch(number, start, master, begun_ms),))


def common_end(mine: History, my_end: int, theirs: History, their_end: int) -> int | None:
    """
    Up to where two logs are the same, bytes; None: they are two histories.

    my_end, their_end: where the logs end.
    """
    if mine.log_id != theirs.log_id:
        return None
    places = {one: place for place, one in enumerate(theirs.epochs)}
    for place in reversed(range(len(mine.epochs))):
        other = places.get(mine.epochs[place])
        if other is not None:
            return min(mine.ends(place, my_end), theirs.ends(other, their_end))
    return None


@dataclass(frozen=True, order=True)
class Branch:
    """
    What a table has behind the last epoch that another one has, too; the greater is the newer.

    takeovers   how often somebody else began to lead
    number      of its last epoch
    """

    takeovers: int
    number: int


def parted(mine: History, theirs: History) -> tuple[Branch, Branch] | None:
    """Both sides behind their last common epoch; None: all of theirs is mine."""
    if theirs.last in mine.epochs:
        return None
    places = {one: place for place, one in enumerate(theirs.epochs)}
    for place in reversed(range(len(mine.epochs))):
        other = places.get(mine.epochs[place])
        if other is not None:
            return _branch(mine, place), _branch(theirs, other)
    return Branch(0, mine.last.number), Branch(0, theirs.last.number)


def _branch(history: History, common: int) -> Branch:
    pairs = itertools.pairwise(history.epochs[common:])
    return Branch(sum(before.master != after.master for before, after in pairs),
                  history.last.number)


class State(StrEnum):
    """What a broker was in its last run, or is to be in its next."""

    LEADS = "leads"
    FOLLOWS = "follows"
    PROMOTED = "promoted"        # it followed, and is to lead: its next run begins an epoch


@dataclass(frozen=True)
class Told:
    """What an operator made of this broker, whatever its settings say: a role and a broker id."""

    role: Role
    broker_id: int


@dataclass(frozen=True)
class Standing:
    """The file: the epochs of the log, what the broker was, and what it was told; None: nothing."""

    history: History
    state: State
    told: Told | None = None


class RoleError(RuntimeError):
    """A broker is already what it is told to be."""


def promoted(standing: Standing, *, synchronous: bool) -> Standing:
    """The same store, told to lead. Raises RoleError when it does."""
    if standing.state is State.LEADS:
        raise RoleError("it is a master already")
    return replace(standing, state=State.PROMOTED, told=Told(
        Role.SYNC_MASTER if synchronous else Role.ASYNC_MASTER, 0))


def demoted(standing: Standing, broker_id: int | None) -> Standing:
    """
    The same store, told to follow with this id; None: a slave keeps the one that it has, who leads
    gets the first.
    """
    if broker_id is None and standing.state is State.FOLLOWS:
        return standing
    return replace(standing, state=State.FOLLOWS, told=Told(
        Role.SLAVE, FIRST_SLAVE if broker_id is None else broker_id))


def read(store: Path) -> Standing | None:
    """The table of a store; None: it has none. Raises EpochsError, OSError."""
    path = store / FILE_NAME
    try:
        with path.open("rb") as file:
            text = file.read(TABLE_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    try:
        value = _object(text)
        return Standing(_history(value), _state(value), _told(value))
    except EpochsError as error:
        raise EpochsError(f"{path}: {error}") from None


def write(store: Path, standing: Standing) -> None:
    """Put the table into a store, whole or not at all. Raises OSError."""
    value: dict[str, Any] = {**as_json(standing.history), "state": standing.state.value}
    if standing.told is not None:
        value["told"] = {"role": standing.told.role.value, "brokerId": standing.told.broker_id}
    disk.write_atomically(store / FILE_NAME, _text(value, indent=1))


@contextmanager
def held(store: Path) -> Iterator[None]:
    """
    One who reads and then writes the table at a time: a process of the broker, or a command. The
    folder of the store itself is locked by who runs on it (mqcore/store/ownership.py).
    """
    disk.make_folders(store / "config")
    folder = os.open(store / "config", os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def as_json(history: History) -> dict[str, Any]:
    """As it stands in the file and in what brokers tell each other."""
    return {
        "version": VERSION, "logId": history.log_id,
        "epochs": [{"number": one.number, "start": one.start, "master": one.master,
                    "begunMs": one.begun_ms} for one in history.epochs]}


def encode(history: History) -> bytes:
    return _text(as_json(history))


def _text(value: dict[str, Any], indent: int | None = None) -> bytes:
    """Names as they are: with escapes a table that was read could be too long to be read."""
    return json.dumps(value, indent=indent, ensure_ascii=False).encode()


def decode(text: bytes) -> History:
    """A table that anybody may have written; other members are passed over. Raises EpochsError."""
    history = _history(_object(text))
    if history.last.number > PEERS_EPOCH_MAX:
        raise EpochsError(f"epoch {history.last.number}: expected at most {PEERS_EPOCH_MAX}")
    return history


def _object(text: bytes) -> dict[str, Any]:
    if len(text) > TABLE_BYTES_MAX:
        raise EpochsError(f"more than {TABLE_BYTES_MAX} bytes of epochs")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise EpochsError(f"epochs: expected JSON, {error}") from None
    if not isinstance(value, dict):
        raise EpochsError("epochs: expected an object")
    return value


def _state(value: dict[str, Any]) -> State:
    state = value.get("state")
    if not isinstance(state, str) or state not in tuple(State):
        raise EpochsError(f"state {state!r:.40}: expected one of {', '.join(State)}")
    return State(state)


def _told(value: dict[str, Any]) -> Told | None:
    told = value.get("told")
    if told is None:
        return None
    role, broker_id = (told.get("role"), told.get("brokerId")) if isinstance(told, dict) else (
        None, None)
    if role not in tuple(Role) or (
            not isinstance(broker_id, int) or not 0 <= broker_id <= NUMBER_MAX):
        raise EpochsError(f"told {told!r:.80}: expected a role and a brokerId")
    return Told(Role(role), broker_id)


def _history(value: dict[str, Any]) -> History:
    if value.get("version") != VERSION:
        raise EpochsError(f"version {value.get('version')!r:.40}: expected {VERSION}")
    log_id = value.get("logId")
    if not isinstance(log_id, str) or not _is_log_id(log_id):
        raise EpochsError(f"logId {log_id!r:.80}: expected {HISTORY_LENGTH} hexadecimal digits")
    rows = value.get("epochs")
    if not isinstance(rows, list) or not 1 <= len(rows) <= EPOCHS_MAX:
        raise EpochsError(f"epochs: expected a list of 1 to {EPOCHS_MAX}")
    epochs = tuple(_epoch(row, place) for place, row in enumerate(rows))
    for before, after in itertools.pairwise(epochs):
        if after.number <= before.number or after.start < before.start:
            raise EpochsError(f"epoch {after.number} at {after.start} comes behind epoch "
                              f"{before.number} at {before.start}: expected both to grow")
    return History(log_id, epochs)


def _is_log_id(text: str) -> bool:
    return len(text) == HISTORY_LENGTH and all(one in "0123456789abcdef" for one in text)


def _epoch(row: object, place: int) -> Epoch:
    if not isinstance(row, dict):
        raise EpochsError(f"epochs[{place}]: expected an object")
    master = row.get("master")
    if not isinstance(master, str) or not master.isprintable() or not (
            0 < len(master.encode()) <= NAME_LENGTH_MAX):
        raise EpochsError(f"epochs[{place}].master: expected 1 to {NAME_LENGTH_MAX} bytes of "
                          "printable text")
    return Epoch(_whole(row, "number", place, 1), _whole(row, "start", place, 0), master,
                 _whole(row, "begunMs", place, 0))


def _whole(row: dict[str, object], name: str, place: int, least: int) -> int:
    value = row.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= NUMBER_MAX:
        raise EpochsError(f"epochs[{place}].{name} {value!r:.40}: expected a whole number from "
                          f"{least} on")
    return value
