"""
A chain of brokers of one name in which some are stock 4.9.7: whole brokers die with -9, one after
the other, and each begins again where it was. Nobody is promoted: stock knows no epochs.
"""
from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mqcore.wire import fastjson
from tests.replication.faults.brokers import SETTINGS, ha_port
from tests.replication.pairs import NAME
from tests.replication.stores import hold_alike
from tests.support.mqcore_process import MqcoreProcess, mqcore_namesrv, mqcore_up
from tests.support.stock import StockProcess, free_broker_port, start_broker
from tests.support.waiting import wait_until
from tests.wire_live.peer import Closed, Peer

STOCK, OURS = "stock", "ours"
SILENCE_MS = 5_000                    # then an end gives a link up; stock may say nothing for 1 s
OURS_BESIDE: dict[str, object] = {
    "replication.read_replicated_only": False,                # stock shows all that it has
    "replication.heartbeat_interval_ms": SILENCE_MS // 10,
    "replication.housekeeping_interval_ms": SILENCE_MS,
}
STOCK_SETTINGS: dict[str, object] = {
    "brokerName": NAME,
    "mappedFileSizeCommitLog": SETTINGS["store.segment_size_bytes"],
    "maxMessageSize": SETTINGS["store.message_size_max_bytes"],
    "slaveTimeout": SETTINGS["replication.slave_timeout_ms"],
    "haSendHeartbeatInterval": SILENCE_MS // 10,
    "haHousekeepingInterval": SILENCE_MS,
    "sendMessageThreadPoolNums": 1,                           # else a connection has no order
}


class Running(Protocol):
    """A broker's process or processes."""

    def kill(self) -> None: ...

    def tail(self) -> str: ...


@dataclass
class Place:
    """One of the chain: a broker at one address, with one store, whatever becomes of it."""

    name: str
    kind: str
    folder: Path
    namesrv: str
    number: int                           # its broker.id
    before: str                           # whose log it follows; "": it leads
    port: int = field(default_factory=free_broker_port)
    running: Running | None = None
    _life: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def start(self) -> None:
        """Begin, or begin again. Raises MqcoreError, StockError."""
        self.running = self._stock() if self.kind == STOCK else self._ours()

    def _ours(self) -> MqcoreProcess:
        role = {"replication.role": "slave", "replication.master_address": self.before} if (
            self.before) else {}
        return self._life.enter_context(mqcore_up(self.folder, {
            **SETTINGS, **OURS_BESIDE, **role, "broker.id": self.number,
            "broker.listen_port": self.port}, namesrv_addr=self.namesrv))

    def _stock(self) -> StockProcess:
        role = {"brokerRole": "SLAVE", "haMasterAddress": self.before} if self.before else {
            "brokerRole": "SYNC_MASTER"}
        broker = start_broker(self.folder, self.namesrv, {
            **STOCK_SETTINGS, **role, "brokerId": self.number}, self.port)
        self._life.callback(broker.stop)
        return broker

    def kill(self) -> None:
        """All of it at once, with -9."""
        assert self.running is not None, f"{self.name} does not run"
        self.running.kill()
        self.stop()

    def stop(self) -> None:
        """In order; it may have been killed before."""
        self._life.close()
        self.running = None

    def ends(self) -> tuple[int, int]:
        """Of its log: the end, and what has no queue entries yet, in bytes; (-1, 0): away."""
        try:
            with Peer(self.address) as peer:
                answer = peer.ask(28)
        except (Closed, OSError):
            return -1, 0
        if answer.code != 0:              # of a stock broker that has just begun
            print(f"{self.name}: {answer.remark}")
            return -1, 0
        said = fastjson.loads(answer.body)["table"]
        return int(said["commitLogMaxOffset"]), int(said["dispatchBehindBytes"])


class Chain:
    """Brokers of one name, each behind the one before it; the first one leads."""

    def __init__(self, folder: Path, names: str, kinds: Sequence[str]) -> None:
        self.all: list[Place] = []
        for number, kind in enumerate(kinds):
            before = ha_port(self.all[-1].address) if self.all else ""
            name = f"{number}-{kind}"
            self.all.append(Place(name, kind, folder / name, names, number, before))

    def leads(self) -> str:
        return self.all[0].address

    def follows(self) -> str:
        return self.all[-1].address

    async def settled(self) -> None:
        """Until all have the same log, and its queues; nobody may send meanwhile."""
        def is_even() -> bool:
            found = {one.ends() for one in self.all}
            return len(found) == 1 and min(found) > (0, 0) and max(found)[1] == 0

        try:
            await asyncio.to_thread(wait_until, is_even, "the same log everywhere")
        except AssertionError as error:
            raise AssertionError("\n".join([str(error), *(
                f"{one.name}: {one.ends()}\n{one.running.tail()[-1500:]}"
                for one in self.all if one.running is not None)])) from None

    async def stopped_alike(self) -> None:
        """All end; AssertionError unless their stores have one log, and no finding."""
        for place in self.all:
            await asyncio.to_thread(place.stop)
        await asyncio.to_thread(hold_alike, {one.name: one.store for one in self.all})


@contextlib.asynccontextmanager
async def chain(folder: Path, kinds: Sequence[str]) -> AsyncIterator[Chain]:
    """All of them run, from the first on, beside a name server."""
    with contextlib.ExitStack() as life:
        names = await asyncio.to_thread(life.enter_context, mqcore_namesrv(folder / "names"))
        made = Chain(folder, names.namesrv_addr, kinds)
        for place in made.all:
            life.callback(place.stop)
            await asyncio.to_thread(place.start)
        yield made
