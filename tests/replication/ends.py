"""Both ends of a followed log in one process: each a store with its services, turned by threads."""
from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mqcore.layout import PUT_OK
from mqcore.net.transport.tls_context import TlsClientContext
from mqcore.participants import HA_MASTER, HA_SLAVE, WRITER
from mqcore.replication.master_loop import MasterLoop
from mqcore.replication.slave_loop import SlaveLoop
from mqcore.shm.segment import Segment
from mqcore.store.log.append_loop import AppendLoop
from tests.store.harness import Run, new_segment
from tests.support.waiting import wait_until

SEGMENT_SIZE = 8192
LONG_MS = 60_000
TURN_MS = 5
HEAD = struct.Struct(">qi")
REPORT = struct.Struct(">q")


@contextlib.contextmanager
def turning(segment: Segment, slot: int, run: Callable[[int], None]) -> Iterator[None]:
    """A native loop in a thread of its own, as its process turns it."""
    segment.begin_incarnation(slot)

    def turns() -> None:
        while not segment.stop_requested(slot):
            run(TURN_MS)

    thread = threading.Thread(target=turns)
    thread.start()
    try:
        yield
    finally:
        segment.request_stop(slot)
        thread.join()


class BetweenTurns:
    """
    A native loop that one thread turns: what others ask of it is done between two turns, as its
    process does it. (A link that begins while the thread ends the one before is lost.)
    """

    def __init__(self, loop: MasterLoop | SlaveLoop) -> None:
        self._loop = loop
        self._wanted = threading.Lock()          # who asks goes before the next turn
        self._turn = threading.Lock()

    def run(self, slice_ms: int, **how: bool) -> None:
        with self._wanted:
            pass
        with self._turn:
            self._loop.run(slice_ms, **how)

    def __getattr__(self, name: str) -> Any:
        """A figure of the loop, or what calls it."""
        with self._wanted, self._turn:
            found = getattr(self._loop, name)

        def call(*arguments: Any, **named: Any) -> Any:
            with self._wanted, self._turn:
                return found(*arguments, **named)

        return call if callable(found) else found


class MasterEnd:
    """A master: its log, and who sends it."""

    def __init__(self, root: Path, *, mode: str = "async", segment_size: int = SEGMENT_SIZE,
                 gated: bool = False, **changes: Any) -> None:
        self.segment_size = segment_size
        self.run = Run(root, segment_size=segment_size)
        self.writer: AppendLoop = self.run.writer(mode, 0, wait_replicated=gated)
        self.probe = self.run.probe()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.loop: Any = BetweenTurns(MasterLoop(
            self.run.segment, os.fsencode(self.run.log_folder), [self.listener.fileno()],
            gated=gated, **changes))
        self.sent = 0

    @property
    def slot(self) -> int:
        return int(HA_MASTER.slot)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.listener.getsockname()
        return host, port

    @property
    def end(self) -> int:
        return int(self.run.segment.log_state()["published"])

    def turning(self) -> contextlib.AbstractContextManager[None]:
        return turning(self.run.segment, HA_MASTER.slot, self.loop.run)

    def send(self, count: int, size: int = 100) -> None:
        for _ in range(count):
            assert self.probe.send("topic", self.sent % 3, [b"%05d" % self.sent + bytes(size)],
                                   opaque=self.sent)
            self.sent += 1
            self.writer.run(1000)
        assert {status for _, status, *_ in self.probe.take()} <= {PUT_OK}
        self.run.segment.ring_bell(HA_MASTER.slot)

    def close(self) -> None:
        self.listener.close()


class SlaveEnd:
    """A slave: who follows, and its log."""

    def __init__(self, root: Path, *, mode: str = "async", segment_size: int = SEGMENT_SIZE,
                 **changes: Any) -> None:
        self.run = Run(root, segment_size=segment_size)
        self.run.segment = new_segment(segment_size=segment_size, slave=True)
        found = self.run.recover(clean=True)
        self.writer: AppendLoop = self.run.writer(mode, found.end, follows_only=True)
        self.writer.publish_start(found.end)
        self.loop: Any = BetweenTurns(SlaveLoop(self.run.segment, **changes))

    @property
    def slot(self) -> int:
        return int(HA_SLAVE.slot)

    @property
    def end(self) -> int:
        return int(self.run.segment.log_state()["published"])

    def link(self, address: tuple[str, int], end: int = 0, below: bytes | None = None,
             tls: TlsClientContext | None = None, host: str = "127.0.0.1") -> None:
        link = socket.create_connection(address)
        link.setblocking(False)
        self.loop.link(link.detach(), end, below, tls, host.encode())

    @contextlib.contextmanager
    def turning(self) -> Iterator[None]:
        with (turning(self.run.segment, WRITER.slot, self.writer.run),
              turning(self.run.segment, HA_SLAVE.slot, self.loop.run)):
            yield


def segments(run: Run, end: int) -> dict[str, bytes]:
    """The log up to `end`; what lies behind it in its segment counts, too."""
    return {path.name: path.read_bytes() for path in sorted(run.log_folder.iterdir())
            if int(path.name) < end}


def wait_for_end(slave: SlaveEnd, end: int) -> None:
    wait_until(lambda: slave.end == end, f"the slave's log up to {end}")


class Peer:
    """The other end of a link, by hand."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.link.settimeout(20)

    @classmethod
    def of(cls, address: tuple[str, int]) -> Peer:
        return cls(socket.create_connection(address))

    def report(self, *positions: int) -> None:
        self.link.sendall(b"".join(map(REPORT.pack, positions)))

    def frame(self) -> tuple[int, bytes]:
        position, size = HEAD.unpack(self.exactly(HEAD.size))
        return position, self.exactly(size)

    def exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = self.link.recv(size - len(found))
            if not part:
                raise EOFError(f"{len(found)} of {size} bytes")
            found += part
        return found

    def bytes_up_to(self, end: int) -> tuple[int, bytes]:
        """The log as frames bring it: where it begins, and all up to `end`."""
        start, found = self.frame()
        while start + len(found) < end:
            position, more = self.frame()
            assert position == start + len(found)
            found += more
        return start, found

    def send(self, position: int, data: bytes) -> None:
        self.link.sendall(HEAD.pack(position, len(data)) + data)

    def is_closed(self) -> bool:
        """Waits for the end of the link."""
        with contextlib.suppress(ConnectionError):
            while self.link.recv(65536):
                pass
        return True

    def close(self) -> None:
        self.link.close()


Make = Callable[..., MasterEnd]            # of the fixture `make`


def log_bytes(master: MasterEnd, start: int) -> bytes:
    """From `start` to the end, from the files."""
    found = segments(master.run, master.end)
    first = int(min(found))
    return b"".join(found.values())[start - first:master.end - first]


def said(master: MasterEnd) -> list[int]:
    return [kind for kind, _, _ in master.loop.notes()[0]]
