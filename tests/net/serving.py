"""One serving process's loop and the coordinator's ends of its rings, turned by hand here."""
from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

from mqcore.layout import WORKER_RUNNING
from mqcore.net.probes.binary_front import BinaryFront
from mqcore.participants import COORDINATOR, SERVING
from mqcore.shm.coordinator_rings import CoordinatorRings, Forwarded
from mqcore.shm.figure_slots import FigureSlots
from tests.store.harness import Run
from tests.wire_live.peer import Peer

TURNS_MAX = 2_000
ITEMS = 256


class Serving:
    """
    `rings` are the coordinator's. folder: of a store that is made.

    connection_memory_bytes: for all connections. front: where it has the binary front, too. queues:
    places in their table; file_entries: of a file of one.
    """

    def __init__(self, folder: Path, *, connection_memory_bytes: int = 1 << 28,
                 front: socket.socket | None = None, queues: int = 64,
                 file_entries: int = 100, held_max: int = 8) -> None:
        self._store = Run(folder, queues=queues, file_entries=file_entries)
        self._store.recover(clean=True)
        self._segment = self._store.segment
        self._segment.begin_incarnation(SERVING.slot)
        self._segment.begin_incarnation(COORDINATOR.slot)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self._loop = BinaryFront(
            self._segment, 0, [(self._listener, False)], os.fsencode(self._store.log_folder),
            os.fsencode(self._store.queue_folder), store_address=("127.0.0.1", 10911), cluster="C",
            file_entries=self._store.file_entries, connection_max=64, held_max=held_max,
            body_bytes_max=4 << 20, seed=1, connection_memory_bytes=connection_memory_bytes,
            region="R", trace_on=True, idle_ms_max=600_000, memory_bytes=1 << 30,
            memory_count_max=32, memory_bytes_max=1 << 18, disk_count_max=32,
            disk_bytes_max=1 << 18, replay_count_max=32, replay_bytes_max=1 << 18,
            long_polling=True, short_polling_ms=1000)
        if front is not None:
            self._loop.listen(front)
        self.rings = CoordinatorRings(self._segment)
        self._figures = FigureSlots(self._segment)

    @property
    def store(self) -> Run:
        """For a writer and a dispatcher beside it."""
        return self._store

    def connect(self) -> Peer:
        host, port = self._listener.getsockname()
        return Peer(f"{host}:{port}")

    def turn(self) -> None:
        self._loop.run(1)

    def one_turn(self) -> None:
        """One turn of the loop at most: none in the millisecond of the last one."""
        self._loop.run(0)

    def figure(self, name: str) -> int:
        return self._figures.total(name)

    def sleeps(self, slot: int) -> None:
        """A process of the broker has nothing to do."""
        self._segment.arm(slot)

    def works(self, slot: int) -> None:
        self._segment.disarm(slot)

    def send(self, peer: Peer, data: bytes) -> None:
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
                    self.rings.taken(item.connection, item.shares, item.size)
            self.rings.say_taken()
            if len(found) >= count:
                return found
        raise AssertionError(f"{len(found)} of {count} frames came")

    def another_coordinator(self) -> None:
        """The coordinator dies, with what it has not put into its rings; another one begins."""
        self._segment.begin_incarnation(COORDINATOR.slot)
        self._segment.set_state(COORDINATOR.slot, WORKER_RUNNING)
        self.rings = CoordinatorRings(self._segment)
