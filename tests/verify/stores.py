"""Stores to verify: stock ones, unpacked once, and ours; and how to break a copy of one."""
from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from mqcore.bench.control import find_target
from mqcore.bench.load import ProduceOptions, Span, produce
from mqcore.layout import CQ_ENTRY_SIZE
from mqcore.store.log.folders import LogFolders
from mqcore.store.ownership import StoreInUseError, StoreLock
from mqcore.store.verify.report import NamedFinding
from mqcore.store.verify.store import verify
from tests.support.mqcore_process import MqcoreProcess

SEGMENT_BYTES = 90_112          # hardly more than settings allow for such messages
OWN_SETTINGS: dict[str, object] = {
    "store.segment_size_bytes": SEGMENT_BYTES,
    "store.message_size_max_bytes": 16_384,
    "store.queue_file_entry_count": 100,
    "store.index_slot_count": 233,          # no usual share of the entries: it has to be found
    "store.index_entry_count": 634,
}
TOPIC = "verified"
STOPPED_MESSAGES, KILLED_MESSAGES = 1_200, 700      # several segments, queue and index files each
KILL_TIMEOUT_S = 60
DISPATCH_TIMEOUT_S = 60


def load(broker: MqcoreProcess, count: int) -> None:
    """Send `count` messages with keys into four queues; returns when all are answered."""
    target = find_target(TOPIC, broker=broker.broker_addr, namesrv=None, queues=4)
    report = produce(target, ProduceOptions(
        span=Span(count=count), connections=2, depth=8, keys=True))
    assert (report.errors, report.lost) == (0, 0), report.first_error


def wait_for_dispatch(broker: MqcoreProcess, count: int) -> None:
    """Until `count` messages, with two keys each, are in queues and index."""
    deadline = time.monotonic() + DISPATCH_TIMEOUT_S
    while True:
        figures = verify(broker.store, force=True).figures
        if (figures["entries"], figures["keys_matched"]) == (count, 2 * count):
            return
        assert time.monotonic() < deadline, f"not dispatched: {figures}"


def kill(broker: MqcoreProcess) -> None:
    """End all its processes at once, and wait until the last has let go of the store."""
    broker.kill()
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while True:
        try:
            StoreLock(broker.store).release()
            return
        except StoreInUseError:
            assert time.monotonic() < deadline, "killed processes still hold the store"


@contextlib.contextmanager
def changed(path: Path, position: int, content: bytes) -> Iterator[None]:
    """The file with `content` at a byte position, and afterwards as it was."""
    before = path.read_bytes()
    assert position + len(content) <= len(before), f"{path} has {len(before)} bytes"
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)
    try:
        yield
    finally:
        path.write_bytes(before)


def flip(path: Path, position: int, bit: int = 0) -> contextlib.AbstractContextManager[None]:
    """The file with one bit flipped."""
    with path.open("rb") as file:
        file.seek(position)
        byte = file.read(1)[0]
    return changed(path, position, bytes([byte ^ (1 << bit)]))


def damages(root: Path) -> list[NamedFinding]:
    """The findings that make a store damaged."""
    return [finding for finding in verify(root).findings if finding.severity == "damage"]


def copy(root: Path, into: Path) -> Path:
    return shutil.copytree(root, into / "store")


def expired(root: Path, count: int) -> Path:
    """
    In a store at rest retention takes the first segment, and with it the `count` messages of queue
    0 of topic `idle`; returns that queue's folder.
    """
    log = LogFolders((root / "commitlog",), store=root)
    start, path = log.segments()[0]
    content = min((root / "consumequeue" / TOPIC / "0").iterdir()).read_bytes()
    folder = root / "consumequeue" / "idle" / "0"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}").write_bytes(
        content[:count * CQ_ENTRY_SIZE].ljust(len(content), b"\0"))
    path.unlink()
    log.remove_checksums(start)
    return folder
