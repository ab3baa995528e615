"""
A store that led, and was overtaken, becomes one that can follow: what it has beyond its new
master's log is kept in a side file, counted, and cut.

Where the two logs part is found by their epochs (epochs.py), and believed only when the bytes
below it are the same on both sides. It can be done again after each interruption: what is cut is on
the disk elsewhere before.
"""
from __future__ import annotations

import json
import os
import socket
import ssl
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from mqcore.replication import epochs, greeting
from mqcore.replication.epochs import History, Standing, State, common_end, demoted
from mqcore.replication.greet import (
    ANNOUNCE,
    CHALLENGE,
    GREETING_FIXED_SIZE,
    GREETING_WORDS_MAX,
    NONCE_SIZE,
)
from mqcore.replication.greeting import Greeting, OtherLogError
from mqcore.replication.key import key_words
from mqcore.replication.log_bytes import log_crc
from mqcore.replication.role import OWN_OFFSETS_FILE
from mqcore.replication.side_files import ROOM_LEFT_BYTES, room_for, side_file, word_of
from mqcore.store import checkpoint, cutting, files, last_run
from mqcore.store.checkpoint import Checkpoint
from mqcore.store.log.folders import LOG, LogFolders
from mqcore.store.ownership import StoreLock
from mqcore.store.record import ParseResult
from mqcore.store.recovery.queue_ends import NAME as QUEUE_ENDS
from mqcore.store.verify.files import usual
from mqcore.store.verify.report import DAMAGE
from mqcore.store.verify.scan import LogScan
from mqcore.store.verify.store import verify
from mqcore.wire.records import decode_record

GREETING_S = 10.0                # for all of it: a start waits for that
FRAME: Final = struct.Struct(">qi")
POSITION: Final = struct.Struct(">q")
LOG_PIECE_BYTES: Final = 1 << 20

# Before a cut: the log, the length of its segments, where it ends, where it is cut; bytes.
BeforeCut = Callable[[LogFolders, int, int, int], None]
CheckMaster = Callable[[History, Greeting, bool], None]   # of the store; of the master; is_cut


def _nothing(*_: object) -> None:
    """Before the cut of a store without tables; of a master that may be anybody."""


class RejoinError(RuntimeError):
    """The store cannot follow that master; nothing was changed. The text says why."""


@dataclass(frozen=True)
class MasterPort:
    """
    The broker that is asked at its HA port (host, port), and how.

    key   of the cluster's account (key.py)
    tls   what the link is made with; None: in the clear
    """

    address: tuple[str, int]
    key: bytes = b""
    tls: ssl.SSLContext | None = None


@dataclass(frozen=True)
class Overtaken:
    """
    What a store had beyond its new master.

    position, end   of the log that was cut, bytes
    messages        how many they are; topics: by topic
    side_file       that keeps the records, None: there was nothing to cut
    master          whose log it follows now: the last epoch
    """

    position: int
    end: int
    messages: int
    master: str
    topics: dict[str, int] = field(default_factory=dict)
    side_file: Path | None = None


def rejoin(store: Path, address: tuple[str, int], broker_id: int | None,
           log: LogFolders | None = None, before_cut: BeforeCut = _nothing, *,
           force: bool = False, key: bytes = b"", tls: ssl.SSLContext | None = None,
           dry: bool = False) -> Overtaken:
    """
    Make the store at rest one that follows the master whose HA port is at `address` (host, port),
    as slave `broker_id`, None: as demoted() has it; log: where the commit log lies, None: in
    STORE/commitlog; before_cut: what is to be done with the store's tables, once more after an
    interruption; force: also where that master was overtaken by this store; key: of the cluster's
    account, where the master asks for it (key.py); tls: what the link is made with, None: in the
    clear; dry: change nothing, and tell what would be cut. Raises RejoinError, StoreInUseError (a
    broker runs on it), OtherLogError, EpochsError, OSError.
    """
    lock = StoreLock(store, log, changes=not dry)
    try:
        return _verified(store, log, MasterPort(address, key, tls), broker_id, before_cut, force,
                         dry)
    finally:
        lock.release()


def _verified(store: Path, log: LogFolders | None, master: MasterPort, broker_id: int | None,
              before_cut: BeforeCut, force: bool, dry: bool) -> Overtaken:
    if log is None and not (store / LOG).is_dir():
        raise RejoinError(f"{store}: there is no {LOG} in this store: --commit-log says where it "
                          "is")
    folders = replace(log, store=store) if log is not None else LogFolders((store / LOG,),
                                                                           store=store)
    standing = _standing(store)
    report = verify(store, locked=True, index=False, log_folders=log)
    damage = next((one for one in report.findings if one.severity == DAMAGE), None)
    if damage is not None:
        raise RejoinError(f"the store is damaged, mqcore store repair first: {damage.line()}")
    return _cut_to(store, folders, demoted(standing, broker_id), master, report.figures["end"],
                   _nothing if force else _check_newer, before_cut, dry=dry)


def rejoin_at(store: Path, log: LogFolders, address: tuple[str, int], end: int, epoch: int,
              before_cut: BeforeCut = _nothing, key: bytes = b"",
              tls: ssl.SSLContext | None = None) -> Overtaken:
    """
    The same for who holds the store's lock and knows that its log is whole up to `end`. Nothing is
    done unless who answers at `address` leads in `epoch`. Raises RejoinError, OtherLogError,
    EpochsError, OSError.
    """
    follower = replace(_standing(store), state=State.FOLLOWS)
    return _cut_to(store, log, follower, MasterPort(address, key, tls), end,
                   partial(_check_epoch, epoch), before_cut)


def _standing(store: Path) -> Standing:
    standing = epochs.read(store)
    if standing is None:
        raise RejoinError(f"{store} has no epochs: it was in no set of brokers of mqcore")
    return standing


def _cut_to(store: Path, log: LogFolders, follower: Standing, master: MasterPort, end: int,
            check: CheckMaster, before_cut: BeforeCut, *, dry: bool = False) -> Overtaken:
    """follower: what the store is then; check: of each greeting, and whether something is cut."""
    theirs = greeted(master, end)
    position = common_end(follower.history, end, theirs.history, theirs.end)
    is_cut = position is not None and position < end
    check(follower.history, theirs, is_cut)
    if position is None:
        raise RejoinError("the master's log began apart from this one: a slave of it needs an "
                          "empty store")
    _check_segments(log, theirs.segment_bytes)
    below = theirs
    if theirs.checked_to != position:
        below = greeted(master, position)
        check(follower.history, below, is_cut)
    _check_below(log, below, position)
    found = Overtaken(position, end, 0, theirs.history.last.master)
    if position < end:
        last_ms = _check_cut(log, theirs.segment_bytes, position)
        found = _counted(log, theirs.segment_bytes, found)
        _check_room(store, found)
    if dry:
        return found
    if position < end:
        found = _keep(store, log, theirs.segment_bytes, found)
        before_cut(log, theirs.segment_bytes, end, position)
    with epochs.held(store):             # first: a log that is cut in part leads no more
        epochs.write(store, follower)
    if position < end:
        _cut(store, log, theirs.segment_bytes, position, end, last_ms)
    return found


def _check_epoch(epoch: int, mine: History, theirs: Greeting, is_cut: bool) -> None:
    """epoch: that it leads in, 0: whichever it is."""
    if epoch and theirs.history.last.number != epoch:
        raise RejoinError(f"who answers leads in epoch {theirs.history.last.number}, and epoch "
                          f"{epoch} is the one that was elected: nothing is cut")
    _check_end(mine, theirs, is_cut)


def _check_newer(mine: History, greeting: Greeting, is_cut: bool) -> None:
    """
    Of two of which one took over from the other, the other one is cut; and nothing is cut by the
    log of a slave that only is behind.
    """
    _check_end(mine, greeting, is_cut)
    theirs = greeting.history
    apart = epochs.parted(mine, theirs)
    if is_cut and (apart is None or apart[0] > apart[1]):
        raise RejoinError(
            f"this store ends with epoch {mine.last.number} of {mine.last.master}, which took over "
            f"from the log of that broker, whose last is epoch {theirs.last.number} of "
            f"{theirs.last.master}: it is that one that was overtaken. Start a broker on this "
            "store, and rejoin the other one to it; to cut this one all the same: --force")


def _check_end(mine: History, greeting: Greeting, is_cut: bool) -> None:
    """A broker that has nothing behind the end here is no measure of what is cut."""
    theirs = greeting.history
    if is_cut and (theirs.last == mine.last or greeting.end < theirs.last.start):
        raise RejoinError(
            f"the log of that broker ends at position {greeting.end}, before the end here, and has "
            f"nothing of an epoch behind {mine.last.number} of {mine.last.master}: it is a slave "
            "that is behind, or lost its end. Name the master, which mqcore replication status "
            "shows; to cut this store all the same: --force")


def greeted(master: MasterPort, position: int) -> Greeting:
    """
    The answer of the master at an HA port to a slave whose log ends at `position`. Raises
    OtherLogError, OSError.
    """
    until = time.monotonic() + GREETING_S
    place = f"{master.address[0]}:{master.address[1]}"
    with _connected(master, place) as link:
        link.sendall(POSITION.pack(ANNOUNCE) + POSITION.pack(position))
        kind, size = FRAME.unpack(_exactly(link, FRAME.size, until, place))
        if (kind, size) == (CHALLENGE, NONCE_SIZE):
            if not master.key:
                raise OtherLogError(f"{place} asks for the account of its set: expected its secret "
                                    "key (--secret-key-file, acl.client_secret_key_file)")
            nonce = _exactly(link, size, until, place)
            link.sendall(key_words(master.key, nonce, 0) + POSITION.pack(position))
            kind, size = FRAME.unpack(_exactly(link, FRAME.size, until, place))
        if kind != ANNOUNCE or not 0 <= size <= GREETING_FIXED_SIZE + GREETING_WORDS_MAX:
            raise OtherLogError(f"{place} is no master of mqcore")
        return greeting.decode(_exactly(link, size, until, place))


def _connected(master: MasterPort, place: str) -> socket.socket:
    """Raises OSError, which says where to."""
    try:
        link = socket.create_connection(master.address, timeout=GREETING_S)
    except OSError as error:
        raise type(error)(f"the master at {place} cannot be reached: "
                          f"{error.strerror or error}") from error
    if master.tls is None:
        return link
    try:
        return master.tls.wrap_socket(link, server_hostname=master.address[0])
    except OSError as error:
        link.close()
        raise ConnectionError(f"TLS with the master at {place} failed: {error}") from error


def _exactly(link: socket.socket, size: int, until: float, place: str) -> bytes:
    """until: time.monotonic; place: host:port of the other end."""
    found = bytearray()
    while len(found) < size:
        left_s = until - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(f"the master at {place} has not said whose log it has in time")
        link.settimeout(left_s)
        try:
            part = link.recv(min(size - len(found), LOG_PIECE_BYTES))
        except ConnectionResetError:             # with bytes of ours that it has not read
            part = b""
        except ssl.SSLError as error:
            raise ConnectionError(f"TLS with the master at {place} failed: {error}") from error
        if not part:
            raise ConnectionResetError(
                f"{place} has closed the connection before it said whose log it has: expected the "
                "HA port of a master of mqcore, its broker.listen_port + 1 or replication.port, "
                "and its account where it asks for one")
        found += part
    return bytes(found)


def _check_segments(log: LogFolders, segment_bytes: int) -> None:
    """By its word the log here is read and cut: it has to be what the files are."""
    here = usual(path.stat().st_size for _, path in log.segments())
    if here not in (0, segment_bytes):
        raise RejoinError(f"the master's store.segment_size_bytes is {segment_bytes}, here it is "
                          f"{here}: expected the same")


def _check_below(log: LogFolders, theirs: Greeting, position: int) -> None:
    if theirs.checked_to != position or (position and theirs.checked_from == position):
        raise RejoinError(f"the master shows no bytes below log position {position}: nothing is "
                          "known of them")
    if log_crc(
            log, theirs.checked_from, position, theirs.segment_bytes) != theirs.crc32c:
        raise RejoinError(f"the bytes below log position {position} are others than the master's, "
                          "though the epochs are the same: a slave of it needs an empty store")


def _check_cut(log: LogFolders, segment_bytes: int, position: int) -> int:
    """Whether a record ends there; its store time, ms, 0: there is none."""
    last = None
    for start, _ in log.segments():
        if not start < position <= start + segment_bytes:
            continue
        scan = LogScan(log.text(), [(start, segment_bytes)], start=start, stop=position)
        while scan.position < position and (record := scan.next()) is not None:
            last = record
        is_blank = scan.result == ParseResult.PARSE_BLANK and position == start + segment_bytes
        if scan.position != position and not is_blank:
            raise RejoinError(f"no record ends at log position {position}, up to which the master "
                              "says that the logs are the same: nothing is cut")
    return decode_record(last).store_timestamp_ms if last is not None else 0


def _counted(log: LogFolders, segment_bytes: int, found: Overtaken) -> Overtaken:
    """With the messages that are to be cut."""
    segments = [(start, segment_bytes) for start, _ in log.segments()]
    scan = LogScan(log.text(), segments, start=found.position, stop=found.end)
    topics: Counter[str] = Counter()
    while (raw := scan.next()) is not None:
        topics[decode_record(raw).topic] += 1
    return replace(found, messages=topics.total(), topics=dict(topics))


def _check_room(store: Path, found: Overtaken) -> None:
    size = found.end - found.position
    if not room_for(store, size):
        folder = side_file(store, found.position, found.end).parent
        raise RejoinError(f"the disk has no room for a side file of {size} bytes in {folder}, and "
                          f"{ROOM_LEFT_BYTES} beside it: nothing is cut")


def _keep(store: Path, log: LogFolders, segment_bytes: int, found: Overtaken) -> Overtaken:
    """The records that are to be cut, byte for byte, and a word about them."""
    path = side_file(store, found.position, found.end)
    files.make_folders(path.parent)
    try:
        _copy(path, _pieces(log, segment_bytes, found.position, found.end))
    except OSError:
        path.unlink(missing_ok=True)         # a part of it would only take the room
        raise
    files.write_atomically(word_of(path), json.dumps({
        "position": found.position, "end": found.end, "messages": found.messages,
        "topics": found.topics, "master": found.master}, indent=1).encode())
    return replace(found, side_file=path)


def _copy(path: Path, pieces: Iterable[bytes]) -> None:
    with files.opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
        at = 0
        for piece in pieces:
            files.write_all(fd, piece, at)
            at += len(piece)
        files.calls.sync(fd)


def _pieces(log: LogFolders, segment_bytes: int, start: int, end: int) -> Iterable[bytes]:
    for first, path in log.segments():
        at, stop = max(start, first), min(end, first + segment_bytes)
        if at >= stop:
            continue
        with path.open("rb") as file, files.named(path):
            file.seek(at - first)
            while at < stop:
                piece = file.read(min(LOG_PIECE_BYTES, stop - at))
                if not piece:
                    raise OSError(0, "the segment is shorter than the log", os.fspath(path))
                at += len(piece)
                yield piece


def _cut(store: Path, log: LogFolders, segment_bytes: int, position: int, end: int,
         last_ms: int) -> None:
    """
    A store that was closed in order is so again, one whose last record is of `last_ms`, and its
    next start reads no log. Else, and after a death on the way, and where lives of queues end in
    what is cut, that start looks at everything.
    """
    abort = store / "abort"
    in_order = last_run.read(abort).clean
    files.write_atomically(abort, b"")
    for name in (QUEUE_ENDS, OWN_OFFSETS_FILE, f"{OWN_OFFSETS_FILE}.bak"):
        path = store / "config" / name           # they speak of what is cut, too
        if path.exists():
            files.unlink(path)
    checkpoint.write(store / "checkpoint", Checkpoint())
    if cutting.ends_lives(store, log, segment_bytes, position, end):
        cutting.begin_anew(store)
        in_order = False
    cutting.cut_queues(store, position)
    cutting.cut_index(store, position)
    cutting.cut_log(log, segment_bytes, position)
    if in_order:
        checkpoint.write(store / "checkpoint", Checkpoint(log_time_ms=last_ms))
        files.unlink(abort)
