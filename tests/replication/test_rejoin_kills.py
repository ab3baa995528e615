"""A store that was overtaken: rejoin, killed between any two of its writes."""
from __future__ import annotations

import contextlib
import itertools
import shutil
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest

from mqcore.layout import BLANK_SIZE_MIN, MAGIC_BLANK, PUT_OK
from mqcore.replication import epochs, greeting
from mqcore.replication.epochs import History, Standing, State
from mqcore.replication.greet import ANNOUNCE, GREETING_CHECKED_BYTES_MAX
from mqcore.replication.rejoin import RejoinError, rejoin
from mqcore.replication.side_files import FOLDER
from mqcore.store import files
from mqcore.store.crc32 import crc32c
from mqcore.store.verify.report import DAMAGE
from mqcore.store.verify.store import verify
from mqcore.wire.records import Record, encode_record
from tests.replication.ends import HEAD, SEGMENT_SIZE
from tests.store.harness import Run

HISTORY = epochs.first("a/old", 0, 1)


class KilledError(BaseException):
    """The process is gone in the middle of a call."""


@dataclass(frozen=True)
class Master:
    """Who leads now: it has `log`, as its epochs and its segments' size say."""

    log: bytes
    history: History

    def greets(self, position: int) -> bytes:
        to = min(position, len(self.log))
        start = max(to - GREETING_CHECKED_BYTES_MAX, (to - 1) // SEGMENT_SIZE * SEGMENT_SIZE, 0)
        return greeting.HEAD.pack(len(self.log), start, to, crc32c(self.log[start:to])) + (
            greeting.words("a", "c", SEGMENT_SIZE, self.history))

    @contextlib.contextmanager
    def serving(self) -> Iterator[tuple[str, int]]:
        """Its HA port, for who wants to be greeted."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=self._serve, args=(listener,))
            thread.start()
            try:
                yield listener.getsockname()
            finally:
                listener.shutdown(socket.SHUT_RDWR)
                thread.join()

    def _serve(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):               # until it is shut
            while True:
                link, _ = listener.accept()
                with link:
                    _, position = struct.unpack(">qq", link.recv(16, socket.MSG_WAITALL))
                    body = self.greets(position)
                    link.sendall(HEAD.pack(ANNOUNCE, len(body)) + body)


@dataclass(frozen=True)
class Overtaken:
    """A store at rest with a log up to `end`, of which its new master has `common`."""

    root: Path
    log: bytes
    common: int
    master: Master


def log_of(store: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((store / "commitlog").iterdir()))


def record(number: int, position: int) -> bytes:
    """Of queue `number` % 3, as a broker with this log would have it."""
    return encode_record(Record(
        topic="topic", queue_id=number % 3, flag=0, queue_offset=number // 3,
        physical_offset=position, sys_flag=0, born_timestamp_ms=1_700_000_000_000 + number,
        born_host=("127.0.0.1", 1), store_timestamp_ms=1_700_000_000_000 + number,
        store_host=("127.0.0.1", 2), reconsume_times=0, prepared_transaction_offset=0, body_crc=0,
        body=b"%05d" % number + bytes(100), properties={}, size=0))


def write_log(run: Run, count: int) -> list[int]:
    """Records in the queues of `record`, and where each ends."""
    writer, probe = run.writer("async", 0), run.probe()
    ends, position = [], 0
    for number in range(count):
        left = SEGMENT_SIZE - position % SEGMENT_SIZE
        if left < len(record(number, position)) + BLANK_SIZE_MIN:
            assert probe.send_raw(struct.pack(">ii", left, MAGIC_BLANK), position, opaque=number)
            position += left
        assert probe.send_raw(record(number, position), position, opaque=number)
        position += len(record(number, position))
        ends.append(position)
        writer.run(1000)
    assert {status for _, status, *_ in probe.take()} == {PUT_OK}
    writer.finish()
    run.dispatch_all(position)
    return ends


@pytest.fixture(scope="module")
def overtaken(tmp_path_factory: pytest.TempPathFactory) -> Overtaken:
    run = Run(tmp_path_factory.mktemp("overtaken") / "store", segment_size=SEGMENT_SIZE)
    ends = write_log(run, 100)
    common = ends[20]
    epochs.write(run.root, Standing(HISTORY, State.LEADS))
    log = log_of(run.root)[:ends[-1]]
    assert common < SEGMENT_SIZE < ends[-1] - SEGMENT_SIZE
    return Overtaken(run.root, log, common, Master(
        log[:common] + b"its own", HISTORY.begun(common, "a/new", 2)))


@pytest.fixture
def store(overtaken: Overtaken, tmp_path: Path) -> Path:
    return copied(overtaken, tmp_path / "store")


def copied(overtaken: Overtaken, target: Path) -> Path:
    shutil.copytree(overtaken.root, target)
    return target


def state_of(store: Path) -> State:
    standing = epochs.read(store)
    assert standing is not None
    return standing.state


def killed_at(number: int) -> contextlib.AbstractContextManager[None]:
    """Calls that change a disk, of which the one with this number is never made."""
    made = itertools.count(1)

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any, **more: Any) -> Any:
            if next(made) >= number:
                raise KilledError
            return call(*arguments, **more)
        return counting

    return files.replaced(**{one.name: counted(getattr(files.calls, one.name))
                             for one in fields(files.calls) if one.name != "close"})


def test_a_kill_between_two_writes_loses_nothing_and_it_can_be_done_again(
    overtaken: Overtaken, tmp_path: Path,
) -> None:
    """A log that is cut in part never leads, is whole, and what was cut is kept."""
    side = overtaken.log[overtaken.common:]
    with overtaken.master.serving() as address:
        for number in itertools.count(1):
            store = copied(overtaken, tmp_path / str(number))
            before = log_of(store)
            ended = True
            with killed_at(number):
                try:
                    rejoin(store, address, 1)
                except KilledError:
                    ended = False
            if log_of(store) != before:
                assert state_of(store) is State.FOLLOWS, number
                (kept, *_) = sorted((store / FOLDER).glob("*.log"), reverse=True)
                assert kept.read_bytes() == side, number
            again = rejoin(store, address, 1)
            assert again.position == overtaken.common, number
            assert log_of(store) == overtaken.log[:overtaken.common].ljust(SEGMENT_SIZE, b"\0")
            assert state_of(store) is State.FOLLOWS
            if ended:
                break
            shutil.rmtree(store)
    assert number > 20
    assert not [one for one in verify(store).findings if one.severity == DAMAGE]


def test_a_master_whose_log_ends_within_a_record_of_ours_has_nothing_cut(
    overtaken: Overtaken, store: Path,
) -> None:
    master = replace(overtaken.master, log=overtaken.log[:overtaken.common - 1], history=HISTORY)
    before = log_of(store)
    with master.serving() as address, pytest.raises(RejoinError, match="no record ends"):
        rejoin(store, address, 1, force=True)
    assert (log_of(store), state_of(store), (store / FOLDER).exists()) == (
        before, State.LEADS, False)
