"""
A link that fails when told: between a slave and the address of its master.

    async with relay(lambda: address_of_the_masters_ha_port) as link:
        slave's replication.master_address = link.address
        if await link.cut(dice): ...

Each kind of trouble returns whether it met anything: a link that was up, bytes that had to wait.
Only such trouble counts as a fault.
"""
from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from tests.replication.faults.tasks import until_one_ends

PIECE_BYTES = 1 << 16
LINGER_NONE = struct.pack("ii", 1, 0)          # close with a reset
CONNECT_S = 2.0
CUT_WAIT_S = 0.05                              # for the byte at which a link is to be cut
USED_WAIT_S = 0.5                              # for the log to come over a link
GREETING_BYTES = 400                           # about: what comes before the log
OLD_REPORTS_WAIT_S = 0.4                       # for the link that takes the cut one's place


@dataclass
class Way:
    """One direction of all links of a relay, and what becomes of bytes there."""

    open: asyncio.Event = field(default_factory=asyncio.Event)
    delay_s: float = 0.0
    rate: float = 0.0                          # bytes a second, 0: as they come
    pieces: int = 0                            # bytes of a piece, 0: as they come
    waited: int = 0                            # pieces that were late, for any of these reasons

    def __post_init__(self) -> None:
        self.open.set()

    async def delayed(self, size: int) -> None:
        if not self.open.is_set():
            self.waited += 1
            await self.open.wait()
        late_s = self.delay_s + (size / self.rate if self.rate else 0)
        if late_s:
            self.waited += 1
            await asyncio.sleep(late_s)


class Link:
    """One connection of a slave, and the one to its master that belongs to it."""

    def __init__(self, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self.near, self.far = near, far
        self.left = [-1, -1]                   # bytes until it is cut, up and down; -1: it is not
        self.passed = [0, 0]
        self.reset = False
        self.reports = asyncio.Event()         # cleared: they are held up, of this link alone
        self.reports.set()
        self.late_reports = 0
        self.left_behind = False               # the slave's end has gone, the master's stays
        self.ended = asyncio.Event()

    def end(self) -> None:
        for writer in (self.near, self.far):
            close(writer, reset=self.reset)
        self.ended.set()


def close(writer: asyncio.StreamWriter, *, reset: bool) -> None:
    """At once; what it has not sent yet is dropped."""
    if reset and not writer.is_closing():
        with contextlib.suppress(OSError):
            writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NONE)
    writer.transport.abort()


class FaultyRelay:
    """Way 0 (up) has the slave's reports, way 1 (down) the master's log."""

    def __init__(self, target: Callable[[], str]) -> None:
        self._target = target
        self.ways = (Way(), Way())
        self.links: list[Link] = []
        self.refusing = False
        self.isolated = False                  # nobody reaches anybody, until it is said
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        assert self._server is not None
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, near))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        if self.refusing or self.isolated:
            close(near, reset=True)
            return
        host, _, port = self._target().rpartition(":")
        try:
            async with asyncio.timeout(CONNECT_S):
                far_reader, far = await asyncio.open_connection(host, int(port))
        except (OSError, TimeoutError):
            close(near, reset=True)
            return
        link = Link(near, far)
        self.links.append(link)
        try:
            await until_one_ends(self._pump(link, 0, reader, far),
                                 self._pump(link, 1, far_reader, near))
        finally:
            self.links.remove(link)
            link.end()

    async def _pump(self, link: Link, way: int, reader: asyncio.StreamReader,
                    writer: asyncio.StreamWriter) -> None:
        """Until an end of the link ends, or it is cut."""
        state = self.ways[way]
        with contextlib.suppress(OSError):
            while data := await reader.read(state.pieces or PIECE_BYTES):
                await state.delayed(len(data))
                if way == 0 and not link.reports.is_set():
                    link.late_reports += 1
                    await link.reports.wait()
                if way == 1 and link.left_behind:
                    continue
                if 0 <= link.left[way] <= len(data):
                    data = data[:link.left[way]]
                    link.left[way] = 0
                elif link.left[way] > 0:
                    link.left[way] -= len(data)
                writer.write(data)
                await writer.drain()
                link.passed[way] += len(data)
                if link.left[way] == 0:
                    return

    async def is_used(self) -> None:
        """Waits until the log comes over it; not for long."""
        deadline = asyncio.get_running_loop().time() + USED_WAIT_S
        while not any(link.passed[1] > GREETING_BYTES for link in self.links) and (
                asyncio.get_running_loop().time() < deadline):
            await asyncio.sleep(0.003)

    def part(self) -> None:
        """The links end, and there are none before `isolated` is false again."""
        self.isolated = True
        for link in list(self.links):
            link.end()

    # -- trouble -----------------------------------------------------------------------------------

    async def cut(self, dice: random.Random) -> bool:
        """The links end after some bytes more, or soon; with a reset or without."""
        links, way, after = list(self.links), dice.randrange(2), dice.choice((0, 7, 40, 900, 5000))
        for link in links:
            link.reset = dice.random() < 0.5
            link.left[way] = dice.randrange(after + 1)
        for link in links:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CUT_WAIT_S):
                    await link.ended.wait()
            link.end()
        return bool(links)

    async def refuse(self, dice: random.Random) -> bool:
        """The links end, and there are none for a while."""
        self.refusing = True
        met = await self.cut(dice)
        await asyncio.sleep(dice.uniform(0.02, 0.2))
        self.refusing = False
        return met

    async def stall(self, dice: random.Random, least_s: float = 0.01,
                    most_s: float = 0.06) -> bool:
        """Nothing goes one way, or both; as if packets were lost, the links stay."""
        ways = dice.choice(((0,), (1,), (0, 1)))
        return await self._while(ways, dice.uniform(least_s, most_s), lambda way: way.open.clear())

    async def delay(self, dice: random.Random) -> bool:
        """What goes one way is late."""
        late_s = dice.uniform(0.002, 0.03)

        def slow(way: Way) -> None:
            way.delay_s = late_s

        return await self._while((dice.randrange(2),), dice.uniform(0.02, 0.05), slow)

    async def throttle(self, dice: random.Random) -> bool:
        """The log comes slowly."""
        rate = dice.uniform(5e4, 5e5)

        def slow(way: Way) -> None:
            way.rate = rate

        return await self._while((1,), dice.uniform(0.02, 0.05), slow)

    async def crumble(self, dice: random.Random) -> bool:
        """Bytes come a few at a time, each time a little late."""
        size, way = dice.randrange(1, 40), dice.randrange(2)

        def break_up(one: Way) -> None:
            one.pieces, one.delay_s = size, 1e-4

        return await self._while((way,), dice.uniform(0.02, 0.06), break_up)

    async def _while(self, ways: tuple[int, ...], seconds: float,
                     trouble: Callable[[Way], None]) -> bool:
        before = [self.ways[way].waited for way in ways]
        for way in ways:
            trouble(self.ways[way])
        await asyncio.sleep(seconds)
        met = any(self.ways[way].waited > known for way, known in zip(ways, before, strict=True))
        for way in ways:
            one = self.ways[way]
            one.delay_s, one.rate, one.pieces = 0.0, 0.0, 0
            one.open.set()
        return met and bool(self.links)

    async def overtake(self, dice: random.Random) -> bool:
        """
        Reports are held up; the slave's end is cut, the slave comes again, and only then does the
        master hear the reports of the link before.
        """
        old = list(self.links)
        for link in old:
            link.reports.clear()
        await asyncio.sleep(dice.uniform(0.01, 0.05))
        held = [link for link in old if link.late_reports and not link.ended.is_set()]
        for link in held:
            link.left_behind = True
            close(link.near, reset=dice.random() < 0.5)
        deadline = asyncio.get_running_loop().time() + OLD_REPORTS_WAIT_S
        come = False
        while held and not come and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.003)
            come = any(link.passed[0] for link in self.links if link not in old)
        met = come and any(not link.ended.is_set() for link in held)
        for link in old:
            link.reports.set()
        return met


@contextlib.asynccontextmanager
async def relay(target: Callable[[], str]) -> AsyncIterator[FaultyRelay]:
    """One that stands for the length of the block; target: asked for each new link."""
    made = FaultyRelay(target)
    await made.open()
    try:
        yield made
    finally:
        await made.close()
