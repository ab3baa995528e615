"""
A set of brokers of one name as processes, and what an operator does with it.

All is done in threads, as clients and links go on meanwhile. Who leads is what the operator says.
"""
from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from posix_ipc import ExistentialError

from mqcore.layout import WORKER_RUNNING
from mqcore.shm.segment import Segment
from tests.replication.pairs import NAME
from tests.replication.stores import hold_alike
from tests.support.mqcore_process import MqcoreProcess, mqcore_namesrv, mqcore_up, start
from tests.support.waiting import wait_until
from tests.workers.processes import by_role, slot_of, title
from tests.workers.test_end import segment_of

COMMAND_S = 60.0
REJOINS_MAX = 5
CUT = (os.strerror(errno.ECONNREFUSED), "has closed the connection", "has not said whose log")
SETTINGS: dict[str, object] = {
    "broker.name": NAME,
    "store.segment_size_bytes": 4 << 20,
    "store.message_size_max_bytes": 65_536,
    "replication.role": "sync-master",
    "replication.listen": True,
    "replication.read_replicated_only": True,
    "replication.slave_timeout_ms": 400,
    "replication.heartbeat_interval_ms": 200,
    "replication.housekeeping_interval_ms": 1000,
    "replication.metadata_interval_ms": 1000,
}


def ha_port(address: str) -> str:
    """Where a broker lets slaves in."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + 1}"


@dataclass
class Broker:
    """One of the set, as long as its store is there."""

    name: str
    folder: Path
    settings: dict[str, object]
    namesrv: str
    program: Sequence[str] = ()
    running: MqcoreProcess | None = None
    _life: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _segment: Segment | None = None
    _slots: dict[str, int] = field(default_factory=dict)

    @property
    def process(self) -> MqcoreProcess:
        assert self.running is not None, f"{self.name} does not run"
        return self.running

    @property
    def segment(self) -> Segment:
        assert self._segment is not None, f"{self.name} does not run"
        return self._segment

    @property
    def present(self) -> Segment | None:
        """The same, None while it does not run; for who looks while others stop it."""
        return self._segment

    @property
    def roles(self) -> list[str]:
        """Of all its processes but the supervisor."""
        return sorted(self._slots)

    @property
    def address(self) -> str:
        """The same in each of its lives."""
        return f"{self.settings['broker.listen_host']}:{self.settings['broker.listen_port']}"

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def start(self, changes: Mapping[str, object] | None = None) -> None:
        """Begin, or begin again. Raises MqcoreError."""
        self.running = self._life.enter_context(mqcore_up(
            self.folder, {**self.settings, **(changes or {})}, namesrv_addr=self.namesrv,
            program=self.program))
        wait_until(self._is_found, f"the processes of {self.name}")

    def _is_found(self) -> bool:
        """False: a process has just gone, or this is between two runs."""
        try:
            segment = segment_of(self.process)
            self._slots = {role: slot_of(segment, pid)
                           for role, pid in by_role(self.process).items() if role != "supervisor"}
        except (ValueError, LookupError, OSError, ExistentialError):
            return False
        self._segment = segment
        return True

    def looks_again(self) -> bool:
        """Its present run's segment and processes; whether all of these work."""
        return self._is_found() and all(self.works(role) for role in self.roles)

    def stop(self) -> None:
        """In order; it may have been killed before."""
        self._life.close()
        self.running = self._segment = None

    def kill(self) -> None:
        """All processes at once."""
        self.process.kill()
        self.stop()

    def kill_supervisor(self) -> None:
        """It alone; the others end by themselves."""
        family, shared = self.process.family(), self.process.shared_memory()
        self.process.process.kill()
        self.process.process.wait(COMMAND_S)
        wait_until(lambda: not any(title(pid) for pid in family), "all others have ended")
        for path in shared:
            Path(path).unlink(missing_ok=True)
        self.stop()

    def pid_of(self, role: str) -> int:
        return int(self.segment.slot(self._slots[role])["pid"])

    def signal(self, role: str, number: signal.Signals) -> bool:
        """False: the process has just gone."""
        try:
            os.kill(self.pid_of(role), number)
        except ProcessLookupError:
            return False
        return True

    def incarnation(self, role: str) -> int:
        return int(self.segment.slot(self._slots[role])["incarnation"])

    def works(self, role: str, after: int = 0) -> bool:
        """Whether a process that came after that incarnation works."""
        slot = self.segment.slot(self._slots[role])
        return slot["incarnation"] > after and slot["state"] == WORKER_RUNNING

    def log_end(self) -> int:
        return int(self.segment.log_state()["published"])

    def is_dispatched(self) -> bool:
        state = self.segment.log_state()
        return state["dispatched"] == state["published"]


class Brokers:
    """A name server, and brokers of one name."""

    def __init__(self, folder: Path, names: MqcoreProcess) -> None:
        self.folder = folder
        self.names = names
        self.all: list[Broker] = []
        self.leader: Broker | None = None
        self._commands = 0

    def leads(self) -> str:
        """The address of who leads."""
        assert self.leader is not None
        return self.leader.address

    def follows(self) -> str:
        """The address of one who does not lead, if there is one."""
        others = [one for one in self.all if one is not self.leader]
        return others[-1].address if others else self.leads()

    def leads_ha(self) -> str:
        return ha_port(self.leads())

    @property
    def followers(self) -> list[Broker]:
        return [one for one in self.all if one is not self.leader and one.running is not None]

    async def add(self, name: str, changes: Mapping[str, object], *, program: Sequence[str] = (),
                  namesrv: str = "") -> Broker:
        """Start one more; the first one leads."""
        broker = Broker(name, self.folder / name, {**SETTINGS, **changes},
                        namesrv or self.names.namesrv_addr, program)
        await asyncio.to_thread(broker.start)
        host, _, port = broker.process.broker_addr.rpartition(":")
        broker.settings = {"broker.listen_host": host, **broker.settings,
                           "broker.listen_port": int(port)}
        self.all.append(broker)
        self.leader = self.leader or broker
        return broker

    def command(self, broker: Broker, *arguments: object) -> str:
        """`mqcore replication ...` on a broker's host: what it says. AssertionError unless 0."""
        self._commands += 1
        folder = self.folder / f"command-{self._commands}"
        folder.mkdir()
        done = start(["replication", *map(str, arguments)], folder, broker.program)
        code = done.process.wait(COMMAND_S)
        assert code == 0, f"{arguments}: {code}\n{done.tail()}"
        return done.tail()

    async def promote(self, broker: Broker) -> None:
        """It leads from now on, and clients go to it."""
        await asyncio.to_thread(self.command, broker, "promote", broker.store, "--sync",
                                "--yes")
        self.leader = broker
        await asyncio.to_thread(self._began_anew, broker)

    def _began_anew(self, broker: Broker) -> None:
        """A role is another run: other shared memory, other processes."""
        wait_until(lambda: "ha-master" in by_role(broker.process), "it begins as a master")
        wait_until(lambda: broker.looks_again(), "its processes work")

    async def rejoin(self, broker: Broker, number: int) -> None:
        """
        A former master, which is stopped, follows who leads; its settings say sync-master. Where
        links are cut it is said again.
        """
        for left in range(REJOINS_MAX - 1, -1, -1):
            try:
                await asyncio.to_thread(self.command, broker, "rejoin", broker.store, "--master",
                                        self.leads_ha(), "--broker-id", number, "--yes")
                break
            except AssertionError as error:
                if not left or not any(text in str(error) for text in CUT):
                    raise
        await asyncio.to_thread(broker.start)

    def kill(self) -> None:
        """All of them: the run has failed."""
        for broker in self.all:
            if broker.running is not None:
                broker.kill()

    async def stopped_alike(self) -> None:
        """All end; AssertionError unless their stores have one log, and no finding."""
        for broker in self.all:
            if broker.running is not None:
                await asyncio.to_thread(broker.stop)
        await asyncio.to_thread(hold_alike, {one.name: one.store for one in self.all})

    async def settled(self) -> None:
        """Until all have the same log, and its queues; nobody may send meanwhile."""
        await asyncio.to_thread(self._settle)

    def _settle(self) -> None:
        running = [one for one in self.all if one.running is not None]

        def is_even() -> bool:
            if not all(one.looks_again() for one in running):      # a log that is cut is a new run
                return False
            end = running[0].log_end()
            return all(one.is_dispatched() and one.log_end() == end for one in running)

        try:
            wait_until(is_even, "the same log everywhere")
        except AssertionError as error:
            raise AssertionError("\n".join([str(error), *(
                f"{one.name}: {one.segment.log_state()}\n{one.process.tail()[-1500:]}"
                for one in running)])) from None


@contextlib.asynccontextmanager
async def brokers(folder: Path, ip: str = "127.0.0.1",
                  program: Sequence[str] = ()) -> AsyncIterator[Brokers]:
    """An empty set beside a name server (mqcore_namesrv); stopped at the end of the block."""
    with contextlib.ExitStack() as life:
        names = await asyncio.to_thread(
            life.enter_context, mqcore_namesrv(folder / "names", ip=ip, program=program))
        made = Brokers(folder, names)
        try:
            yield made
        except BaseException:
            made.kill()
            raise
        for broker in made.all:
            if broker.running is not None:
                await asyncio.to_thread(broker.stop)
