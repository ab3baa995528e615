"""
What the brokers of one name keep in etcd, below /mqcore/{cluster}/{broker name}/, names
percent-encoded:

    master      who leads, with its lease: made only where there is none
    state       the epoch of the last election, and the members that have all that was acknowledged
    members/ID  a broker that takes part, with its own lease: how far its log goes
    kept/ID     without lease: up to where its disk has what the set has acknowledged
"""
from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

from mqcore.failover.etcd import Key
from mqcore.shm.members import MEMBER_ID_MAX

NUMBER_MAX = (1 << 53) - 1
TEXT_LENGTH_MAX = 300
ADDRESS_BYTES_MAX = 220           # two of them have room in Leadership.leader
OTHERS_MAX = 16                   # of a set (LEADERSHIP_MEMBERS_MAX)
MEMBER_ID = re.compile(r"[1-9][0-9]{0,9}")
Value = TypeVar("Value")


class KeysError(ValueError):
    """A key holds what no broker has written; the text says which, and what."""


@dataclass(frozen=True)
class Master:
    """Who leads; ha: its address for the log."""

    member: int
    address: str
    ha: str
    epoch: int


@dataclass(frozen=True)
class State:
    """
    The last election, and the set since: its ids, with the store that each one had when it came in.

    whole_from  the log position from where on its members have the log (leadership FO12); None: not
    known
    """

    epoch: int
    master: int
    stores: dict[int, str] = field(default_factory=dict)
    whole_from: int | None = None

    def gap(self, first: int) -> int:
        """How many bytes that the set keeps a log that begins at `first` lacks."""
        return 0 if self.whole_from is None else max(first - self.whole_from, 0)

    @property
    def in_sync(self) -> frozenset[int]:
        return frozenset(self.stores)


@dataclass(frozen=True)
class Member:
    """One that takes part: the last epoch, end and beginning of its log, and which store it has."""

    address: str
    ha: str
    epoch: int
    end: int
    store: str
    first: int = 0


@dataclass(frozen=True)
class Kept:
    """
    Up to where the log of a store was on its disk and known to be in all of the set. epoch: of the
    last byte below it, 0: an earlier version has not said it.
    """

    store: str
    position: int
    epoch: int = 0


@dataclass(frozen=True)
class At:
    """Where a value stands: the revision of its last change, and its lease."""

    revision: int
    lease: int


@dataclass(frozen=True)
class View:
    """
    All keys at one moment; None and revision 0: there is none. strange: why a member's key was
    passed over, "": none was.
    """

    master: Master | None = None
    master_at: At = At(0, 0)
    state: State | None = None
    state_at: At = At(0, 0)
    members: dict[int, Member] = field(default_factory=dict)
    leases: dict[int, int] = field(default_factory=dict)
    kept: dict[int, Kept] = field(default_factory=dict)
    strange: str = ""


@dataclass(frozen=True)
class Names:
    """The names of the keys of one set."""

    prefix: str

    @classmethod
    def of(cls, cluster: str, broker: str) -> Names:
        return cls(f"/mqcore/{quote(cluster, safe='')}/{quote(broker, safe='')}/")

    @property
    def master(self) -> str:
        return f"{self.prefix}master"

    @property
    def state(self) -> str:
        return f"{self.prefix}state"

    def member(self, member: int) -> str:
        return f"{self.prefix}members/{member}"

    def kept(self, member: int) -> str:
        return f"{self.prefix}kept/{member}"


def encode_master(master: Master) -> bytes:
    return json.dumps({"member": master.member, "address": master.address, "ha": master.ha,
                       "epoch": master.epoch}).encode()


def encode_state(state: State) -> bytes:
    return json.dumps({"epoch": state.epoch, "master": state.master,
                       "inSync": sorted(state.stores),
                       "stores": {str(one): state.stores[one] for one in sorted(state.stores)},
                       "wholeFrom": state.whole_from}).encode()


def encode_member(member: Member) -> bytes:
    return json.dumps({"address": member.address, "ha": member.ha, "epoch": member.epoch,
                       "end": member.end, "store": member.store, "first": member.first}).encode()


def encode_kept(kept: Kept) -> bytes:
    return json.dumps({"store": kept.store, "position": kept.position,
                       "epoch": kept.epoch}).encode()


def view_of(names: Names, keys: list[Key]) -> View:
    """
    What the keys of a set say. A member whose key nobody can read takes no part; of the others
    KeysError is raised.
    """
    master, master_at, state, state_at = None, At(0, 0), None, At(0, 0)
    members, leases, kept, strange = {}, {}, {}, ""
    for key in keys:
        at = At(key.revision, key.lease)
        if key.name == names.master:
            master, master_at = _decoded(key, _master), at
        elif key.name == names.state:
            state, state_at = _decoded(key, _state), at
        elif key.name.startswith(names.member(0)[:-1]):
            try:
                member = _id(key)
                members[member] = _decoded(key, _member)
                leases[member] = key.lease
            except KeysError as error:
                strange = strange or str(error)
        elif key.name.startswith(names.kept(0)[:-1]):
            try:
                kept[_id(key)] = _decoded(key, _kept)
            except KeysError as error:
                strange = strange or str(error)
    return View(master, master_at, state, state_at, members, leases, kept, strange)


def _id(key: Key) -> int:
    """The member that a key of `members` or `kept` is about. Raises KeysError."""
    text = key.name.rpartition("/")[2]
    if not MEMBER_ID.fullmatch(text) or int(text) > MEMBER_ID_MAX:
        raise KeysError(f"{key.name!r:.200}: expected a member's id")
    return int(text)


def _decoded(key: Key, made: Callable[[dict[str, Any]], Value]) -> Value:
    try:
        value = json.loads(key.value)
        if not isinstance(value, dict):
            raise KeysError("expected an object")
        return made(value)
    except (ValueError, RecursionError) as error:
        raise KeysError(f"{key.name}: {error}: {key.value[:80]!r}") from None


def _master(value: dict[str, Any]) -> Master:
    return Master(_whole(value, "member", 1, MEMBER_ID_MAX), _address(value, "address"),
                  _address(value, "ha"), _whole(value, "epoch", 1))


def _state(value: dict[str, Any]) -> State:
    stores, ids = value.get("stores"), value.get("inSync")
    if not isinstance(stores, dict) or not isinstance(ids, list):
        raise KeysError("expected inSync and stores")
    found = {_whole({"id": one}, "id", 1, MEMBER_ID_MAX): _said(stores, str(one)) for one in ids}
    if len(found) != len(stores) or not 0 < len(found) <= OTHERS_MAX + 1:
        raise KeysError(f"expected 1 to {OTHERS_MAX + 1} of inSync, with a store for each")
    return State(_whole(value, "epoch", 1), _whole(value, "master", 1, MEMBER_ID_MAX), found,
                 None if value.get("wholeFrom") is None else _whole(value, "wholeFrom", 0))


def _member(value: dict[str, Any]) -> Member:
    return Member(_address(value, "address"), _address(value, "ha"), _whole(value, "epoch", 0),
                  _whole(value, "end", 0), _said(value, "store"),
                  _whole(value, "first", 0) if "first" in value else 0)


def _kept(value: dict[str, Any]) -> Kept:
    return Kept(_said(value, "store"), _whole(value, "position", 0),
                _whole(value, "epoch", 0) if "epoch" in value else 0)


def _whole(value: dict[str, Any], name: str, least: int, most: int = NUMBER_MAX) -> int:
    found = value.get(name)
    if not isinstance(found, int) or isinstance(found, bool) or not least <= found <= most:
        raise KeysError(f"{name} {found!r:.40}: expected a whole number, {least} to {most}")
    return found


def _said(value: dict[str, Any], name: str) -> str:
    found = value.get(name)
    if not isinstance(found, str) or not 0 < len(found) <= TEXT_LENGTH_MAX or (
            not found.isprintable()):
        raise KeysError(f"{name} {found!r:.40}: expected 1 to {TEXT_LENGTH_MAX} characters")
    return found


def _address(value: dict[str, Any], name: str) -> str:
    found = _said(value, name)
    if len(found.encode()) > ADDRESS_BYTES_MAX:
        raise KeysError(f"{name}: expected at most {ADDRESS_BYTES_MAX} bytes")
    return found
