"""One serving process's loop and the coordinator's ends of its rings, turned by hand here."""
from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from mqcore.layout import WORKER_RUNNING
from mqcore.net.probes.binary_front import BinaryFront
from mqcore.net.transport.tls_context import TlsContext
from mqcore.participants import COORDINATOR, SERVING
from mqcore.shm.coordinator_rings import CoordinatorRings, Forwarded
from mqcore.shm.figure_slots import FigureSlots
from mqcore.shm.tables import TableWriter
from tests.store.harness import TURN_MS_MAX, Run
from tests.tls.pieces import Pieces
from tests.wire_live.peer import Peer

TURNS_MAX = 2_000
ITEMS = 256


def filled(folder: Path, bodies: Iterable[bytes]) -> int:
    """A store of an earlier run, with these messages in queue 0 of topic T; where its log ends."""
    run = Run(folder)
    writer, probe = run.writer("async", 0), run.probe()
    for number, body in enumerate(bodies):
        assert probe.send("T", 0, [body], opaque=number)
        writer.run(TURN_MS_MAX)
        probe.take()
    writer.finish()
    end = int(run.segment.log_state()["published"])
    run.dispatch_all(end)
    return end


class Serving:
    """
    `rings` are the coordinator's. folder: of a store that is made.

    front: where it has the binary front, too. queues: places in their table; file_entries: of a
    file of one. settings: of the loop, others than `_begun` has.
    """

    def __init__(self, folder: Path, *, front: socket.socket | None = None, queues: int = 64,
                 file_entries: int = 100, **settings: int) -> None:
        self._store = Run(folder, queues=queues, file_entries=file_entries)
        self._store.recover(clean=True)
        self._segment = self._store.segment
        self._segment.begin_incarnation(SERVING.slot)
        self._segment.begin_incarnation(COORDINATOR.slot)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self._loop = self._begun(**settings)
        if front is not None:
            self._loop.listen(front)
        self.rings = CoordinatorRings(self._segment)
        self._figures = FigureSlots(self._segment)

    def _begun(self, **settings: int) -> BinaryFront:
        values = {"held_max": 8, "memory_bytes_max": 1 << 18, "replay_count_max": 32,
                  "replay_bytes_max": 1 << 18, "connection_memory_bytes": 1 << 28} | settings
        return BinaryFront(
            self._segment, 0, [(self._listener, False)], os.fsencode(self._store.log_folder),
            os.fsencode(self._store.queue_folder), store_address=("127.0.0.1", 10911), cluster="C",
            file_entries=self._store.file_entries, connection_max=64, body_bytes_max=4 << 20,
            seed=1, region="R", trace_on=True, idle_ms_max=600_000, memory_bytes=1 << 30,
            memory_count_max=32, disk_count_max=32, disk_bytes_max=1 << 18, long_polling=True,
            short_polling_ms=1000, **values)

    @property
    def store(self) -> Run:
        """For a writer and a dispatcher beside it."""
        return self._store

    def open_topic(self, end: int = 0) -> None:
        """Topic T with one queue, and group G; the log is there up to `end`."""
        tables = TableWriter(self._segment)
        tables.publish_topic("T", read_queues=1, write_queues=1, perm=6)
        tables.publish_group("G")
        self._store.writer("async", end).finish()

    @property
    def address(self) -> str:
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def connect(self, **options: Any) -> Peer:
        return Peer(self.address, **options)

    def turn(self) -> None:
        self._loop.run(1)

    def one_turn(self) -> None:
        """One turn of the loop, in the next millisecond."""
        before = self._loop.turns
        while self._loop.turns == before:
            self._loop.run(0)

    def secure(self, context: TlsContext, mode: int) -> None:
        self._loop.secure(mode, context, 60_000, 100)

    def read_ahead(self, path: Path) -> None:
        """By its thread, which a named pipe stops until it is opened for writing."""
        self._loop.read_ahead(bytes(path))

    @property
    def memory_bytes(self) -> int:
        """That connections have taken."""
        return self._loop.memory_bytes

    def figure(self, name: str) -> int:
        return self._figures.total(name)

    def sleeps(self, slot: int) -> None:
        """A process of the broker has nothing to do."""
        self._segment.arm(slot)

    def works(self, slot: int) -> None:
        self._segment.disarm(slot)

    def send(self, peer: Peer | Pieces, data: bytes) -> None:
        """Bytes of a client; the loop takes what does not fit into the socket."""
        left = memoryview(data)
        peer.socket.settimeout(0)
        while left:
            with suppress(BlockingIOError):
                left = left[peer.socket.send(left):]
            self.turn()

    def forwarded(self, count: int = 1) -> list[Forwarded]:
        """The next frames that the coordinator gets; it has done them at once."""
        found: list[Forwarded] = []
        for _ in range(TURNS_MAX):
            self.turn()
            for item in self.rings.receive(ITEMS):
                if isinstance(item, Forwarded):
                    found.append(item)
                    self.rings.count_done(item.connection, item.shares, item.size)
            self.rings.say_done()
            if len(found) >= count:
                return found
        raise AssertionError(f"{len(found)} of {count} frames came")

    def begin_anew(self) -> None:
        """Another loop, which gives its connections the ids of the first one's."""
        self._loop = self._begun()

    def another_coordinator(self) -> None:
        """The coordinator dies, with what it has not put into its rings; another one begins."""
        self._segment.begin_incarnation(COORDINATOR.slot)
        self._segment.set_state(COORDINATOR.slot, WORKER_RUNNING)
        self.rings = CoordinatorRings(self._segment)
