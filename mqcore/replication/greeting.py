"""
What a master of ours says to a slave of ours before it sends the log (ha.md 2): whose log it is,
and what its last bytes below the slave's end are, so that the slave can tell whether it is its own.

    0    8 bytes  where the master's log ends
    8    8 bytes  from here ...
    16   8 bytes  ... up to here: the slave's end, or the master's when that is less; where the
                  master's log begins, twice, when that is more
    24   4 bytes  CRC-32C of those bytes of the master's log
    28            JSON: broker, cluster, role, segmentBytes, the epochs (epochs.py), and tells:
                  true when the master says what others have to a slave that asks

A slave continues where the two histories are one up to its end; else nothing is written.
"""
from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mqcore.replication import epochs
from mqcore.replication.epochs import NAME_LENGTH_MAX, EpochsError, History, common_end
from mqcore.replication.greet import GREETING_CHECKED_BYTES_MAX
from mqcore.replication.role import Role
from mqcore.wire.printable import printable

HEAD = struct.Struct(">qqqI")


class OtherLogError(ValueError):
    """A master's log is not the one here; the text says in one line why, and what to do."""


class BehindError(OtherLogError):
    """The log here is the longer one, and the other broker is a slave, which may get the rest."""


class PartedError(OtherLogError):
    """The two logs were one up to `position`: what lies behind it here is not the master's."""

    def __init__(self, position: int, end: int) -> None:
        super().__init__(
            f"{end - position} bytes of the log here, from position {position} on, are not in the "
            "master's: stop this broker and run mqcore replication rejoin")
        self.position, self.end = position, end


@dataclass(frozen=True)
class Greeting:
    """A master's words; positions in bytes. role: its own; "": an earlier version."""

    end: int
    checked_from: int
    checked_to: int
    crc32c: int
    broker: str
    cluster: str
    segment_bytes: int
    history: History
    tells: bool = False
    role: str = ""


def words(broker: str, cluster: str, segment_bytes: int, history: History, role: str = "",
          ) -> bytes:
    """The part that stays the same until the epochs or the role change."""
    return json.dumps({"broker": broker, "cluster": cluster, "role": role,
                       "segmentBytes": segment_bytes, "tells": True,
                       **epochs.as_json(history)}, ensure_ascii=False).encode()


def mark(said: bytes) -> int:
    """A number of 63 bits, never 0, by which two processes compare `words`; of no words, too."""
    return int.from_bytes(hashlib.blake2b(said, digest_size=8).digest()) >> 1 | 1


def decode(body: bytes) -> Greeting:
    """Raises OtherLogError, whatever it is."""
    if len(body) < HEAD.size:
        raise OtherLogError(f"a greeting of {len(body)} bytes: expected {HEAD.size} at least")
    end, checked_from, checked_to, crc = HEAD.unpack_from(body)
    if not (0 <= checked_from <= checked_to <= end
            and checked_to - checked_from <= GREETING_CHECKED_BYTES_MAX):
        raise OtherLogError(f"a greeting with the positions {end}, {checked_from}, {checked_to}")
    text = body[HEAD.size:]
    try:
        history = epochs.decode(text)
    except EpochsError as error:
        raise OtherLogError(f"a greeting that cannot be read: {error}") from None
    value = json.loads(text)
    names = _name(value, "broker"), _name(value, "cluster")
    segment_bytes = value.get("segmentBytes")
    if not isinstance(segment_bytes, int) or isinstance(segment_bytes, bool):
        raise OtherLogError("a greeting without segmentBytes")
    role = value.get("role", "")
    return Greeting(end, checked_from, checked_to, crc, *names, segment_bytes, history,
                    value.get("tells") is True, role if role in tuple(Role) else "")


def _name(value: dict[str, Any], member: str) -> str:
    name = value.get(member)
    if not isinstance(name, str) or not 0 < len(name) <= NAME_LENGTH_MAX:
        raise OtherLogError(f"a greeting without the name of its {member}")
    return name


def check_names(theirs: Greeting, broker: str, cluster: str, segment_bytes: int) -> None:
    """Raises OtherLogError when it greets as another broker, or in files of another size."""
    if (theirs.broker, theirs.cluster) != (broker, cluster):
        raise OtherLogError(
            f"the master is broker {printable(theirs.broker)} of cluster "
            f"{printable(theirs.cluster)}: expected {broker} of {cluster}")
    if theirs.segment_bytes != segment_bytes:
        raise OtherLogError(
            f"the master's store.segment_size_bytes is {theirs.segment_bytes}, here it is "
            f"{segment_bytes}: expected the same")


def check_log(theirs: Greeting, mine: History | None, my_end: int,
              crc32c_of: Callable[[int, int], int]) -> None:
    """
    Whether the log here, which ends at `my_end`, is the beginning of the master's.

    mine       its epochs; None: it has none (it followed a stock master, or is empty)
    crc32c_of  of the bytes here between two positions; raises OSError

    Raises BehindError, PartedError, OtherLogError.
    """
    if my_end == 0:
        return
    common: int | None = min(my_end, theirs.end)
    if mine is not None:
        common = common_end(mine, my_end, theirs.history, theirs.end)
    if common is None:
        raise OtherLogError("the master's log began apart from the one here: a slave of it needs "
                            "an empty store")
    if common < my_end:
        if theirs.role == Role.SLAVE and common == theirs.end:
            raise BehindError(
                f"it is a slave, and its log ends at position {theirs.end}, before the end here, "
                f"{my_end}: it is followed when it has as much")
        raise PartedError(common, my_end)
    if theirs.checked_to > my_end:
        raise OtherLogError(f"the master's log begins at position {theirs.checked_to}, the one "
                            f"here ends at {my_end}: a slave of it needs an empty store")
    if theirs.checked_to != my_end:
        raise OtherLogError(f"the greeting is about log position {theirs.checked_to}: expected "
                            f"{my_end}")
    if crc32c_of(theirs.checked_from, theirs.checked_to) != theirs.crc32c:
        raise OtherLogError(
            f"the log here is another one than the master's below position {my_end}: a slave of it "
            "needs an empty store")
