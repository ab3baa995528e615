"""A name server on a free port of the loopback, and a plain socket to talk to it."""
from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from mqcore.namesrv.server import open_sockets, serve
from mqcore.namesrv.settings import NamesrvSettings
from mqcore.wire.codes import RequestCode
from mqcore.wire.command import Command, decode, encode, request
from mqcore.wire.topics import DataVersion, TopicConfig, TopicTable, encode_registration

DEADLINE_S = 60.0


class Clock:
    """The time that the server under test is told; tests move it by hand."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.ms


def settings_in(folder: Path, **changes: object) -> NamesrvSettings:
    return NamesrvSettings(**{
        "listen_host": "127.0.0.1", "listen_port": 0, "scan_interval_ms": 20,
        "kv_config_path": str(folder / "kvConfig.json"),
        "runtime_config_path": str(folder / "runtime.json"), **changes,
    })


@contextlib.asynccontextmanager
async def name_server(settings: NamesrvSettings, clock: Callable[[], int]) -> AsyncIterator[int]:
    """Runs a server; yields its port."""
    sockets = open_sockets(settings)
    port = sockets[0].getsockname()[1]
    ready, stopping = asyncio.Event(), asyncio.Event()
    serving = asyncio.create_task(
        serve(settings, sockets, on_ready=ready.set, stopping=stopping, now_ms=clock)
    )
    await asyncio.wait_for(ready.wait(), DEADLINE_S)
    try:
        yield port
    finally:
        stopping.set()
        await asyncio.wait_for(serving, DEADLINE_S)


@dataclass
class Peer:
    """A connection that sends and receives whole frames."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def connect(cls, port: int) -> Peer:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def receive(self) -> Command:
        async with asyncio.timeout(DEADLINE_S):
            length = int.from_bytes(await self.reader.readexactly(4), "big")
            return decode(await self.reader.readexactly(length))

    async def ask(self, command: Command) -> Command:
        self.writer.write(encode(command))
        return await self.receive()

    async def is_closed(self) -> bool:
        """Whether the server ends this connection, within the deadline."""
        with contextlib.suppress(ConnectionError):
            return await asyncio.wait_for(self.reader.read(1), DEADLINE_S) == b""
        return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


def registration(
    topics: list[str], *, name: str = "broker-a", address: str = "10.0.0.1:10911",
    broker_id: int = 0, counter: int = 1, cluster: str = "C", compressed: bool = False,
) -> Command:
    """A REGISTER_BROKER request of a broker with these topics."""
    table = TopicTable(DataVersion(counter, 5), {t: TopicConfig(t, 4, 4) for t in topics})
    ext = {
        "brokerName": name, "brokerAddr": address, "clusterName": cluster,
        "brokerId": str(broker_id), "haServerAddr": address + "2",
        "compressed": str(compressed).lower(),
    }
    return request(
        RequestCode.REGISTER_BROKER, ext, encode_registration(table, compressed=compressed)
    )
