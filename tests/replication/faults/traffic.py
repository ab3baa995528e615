"""
Clients of a set of brokers that write down what they send, what they are told and what they read.

    async with traffic(history, lambda: address_of_who_leads, lambda: of_one_who_follows) as load:
        await load.acknowledged(100)

A sender has many attempts in flight on one connection, for all queues, and makes a new connection
when that one ends or falls silent: what was in flight has no answer then. Some messages whose
answer leaves it open whether they are kept are sent again. One reader pulls from who leads, another
one from who follows: what either was shown is to last.
"""
from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import struct
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from mqcore.wire import command as wire
from mqcore.wire.codes import RequestCode, ResponseCode
from mqcore.wire.records import decode_records
from tests.replication.faults.history import OK, REFUSED, Delivery, History, Send, body_of, name_in
from tests.replication.faults.tasks import until_one_ends
from tests.wire_live.peer import Peer, pull_fields, send_fields

TOPIC = "BenchmarkTest"               # every broker has it
QUEUES = 4
IN_FLIGHT_MAX = 48
BURST = 2                             # attempts that are sent together: faults meet few as well
PAUSE_S = 0.02                        # between two bursts of a sender
AGAIN = 0.3                           # of messages whose answer leaves it open
SILENCE_S = 3.0                       # then the connection is given up
LEADER_AWAY_S = 0.02
READ_PAUSE_S = 0.1
READ_SILENCE_S = 2.0
WAIT_S = 60.0
LENGTH = struct.Struct(">i")
LEADER, FOLLOWER = "leader", "follower"      # whom a reader reads from
TOPIC_FIELDS = [send_fields(TOPIC, queue_id=queue) for queue in range(QUEUES)]

Leader = Callable[[], str]


@dataclass
class Reading:
    """Whom a reader asks, and how far it is."""

    whom: Leader
    place: str
    offsets: list[int]


class Sender:
    """One who sends for as long as its task runs."""

    def __init__(self, traffic: Traffic, leader: Leader) -> None:
        self._traffic = traffic
        self._leader = leader
        self._again: deque[Send] = deque()
        self._flying: dict[int, Send] = {}
        self._room = asyncio.Event()

    async def run(self) -> None:
        while True:
            try:
                host, _, port = self._leader().rpartition(":")
                async with asyncio.timeout(SILENCE_S):
                    reader, writer = await asyncio.open_connection(host, int(port))
            except (OSError, TimeoutError):
                await asyncio.sleep(LEADER_AWAY_S)
                continue
            link = next(self._traffic.links)
            try:
                await self._send_and_hear(reader, writer, link)
            except (OSError, asyncio.IncompleteReadError, TimeoutError):
                self._traffic.links_lost += 1
            finally:
                writer.transport.abort()
                for send in self._flying.values():
                    self._unsure(send)
                self._flying.clear()

    async def _send_and_hear(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: int
    ) -> None:
        """Until either fails."""
        for one in await until_one_ends(self._hear(reader), self._send(writer, link)):
            if not one.cancelled():
                one.result()

    async def _send(self, writer: asyncio.StreamWriter, link: int) -> None:
        """Until the connection ends, or leads to who does not lead any more."""
        address = self._leader()
        while self._leader() == address:
            while len(self._flying) > IN_FLIGHT_MAX - BURST:
                self._room.clear()
                async with asyncio.timeout(SILENCE_S):
                    await self._room.wait()
            for _ in range(BURST):
                writer.write(wire.encode(self._next(link)))
            await writer.drain()
            await asyncio.sleep(PAUSE_S)
        raise ConnectionError("another one leads")

    def _next(self, link: int) -> wire.Command:
        if self._again:
            before = self._again.popleft()
            send = Send(before.key, before.attempt + 1, before.queue, link, time.monotonic())
        else:
            key = next(self._traffic.keys)
            send = Send(key, 1, key % QUEUES, link, time.monotonic())
        self._traffic.history.sends.append(send)
        command = wire.request(RequestCode.SEND_MESSAGE_V2, TOPIC_FIELDS[send.queue],
                               body_of(self._traffic.history.seed, send.name))
        self._flying[command.opaque] = send
        return command

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        while True:
            async with asyncio.timeout(SILENCE_S):
                (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
                answer = wire.decode(await reader.readexactly(length))
            send = self._flying.pop(answer.opaque, None)
            self._room.set()
            if send is None:                  # answered before, by a writer that died
                continue
            send.answered, send.code = time.monotonic(), answer.code
            offset = (answer.ext or {}).get("queueOffset")
            if offset is not None:
                send.offset = int(offset)
            self._traffic.answers[answer.code] += 1
            if answer.code != OK:
                self._traffic.remarks[answer.code] = answer.remark or ""
                self._unsure(send)

    def _unsure(self, send: Send) -> None:
        if send.code != REFUSED and self._traffic.dice.random() < AGAIN:
            self._again.append(send)


class Traffic:
    """All clients of a run."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.dice = random.Random(f"{history.seed} clients")
        self.keys, self.links = itertools.count(), itertools.count()
        self.answers: Counter[int] = Counter()
        self.remarks: dict[int, str] = {}
        self.links_lost = 0
        self.read: Counter[str] = Counter()           # messages, of LEADER and FOLLOWER
        self.moved: list[str] = []                    # readers, by an answer of 21
        self._offsets = [0] * QUEUES
        self._tasks: list[asyncio.Task[None]] = []

    def send_to(self, leader: Leader) -> asyncio.Task[None]:
        """One more sender."""
        self._tasks.append(asyncio.create_task(Sender(self, leader).run()))
        return self._tasks[-1]

    def read_from(self, broker: Leader, place: str = LEADER) -> asyncio.Task[None]:
        """
        One more reader (see Reading), from where the others are; at a follower from the beginning.
        """
        offsets = list(self._offsets) if place == LEADER else [0] * QUEUES
        self._tasks.append(asyncio.create_task(
            self._read(Reading(broker, place, offsets))))
        return self._tasks[-1]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def look(self) -> None:
        """Raises what has ended a client."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    async def acknowledged(self, more: int, timeout_s: float = WAIT_S) -> None:
        """Wait for so many more answers 0; AssertionError after `timeout_s`."""
        goal, deadline = self.answers[OK] + more, time.monotonic() + timeout_s
        while self.answers[OK] < goal:
            self.look()
            assert time.monotonic() < deadline, (
                f"not within {timeout_s} s: {more} acknowledged; answers {dict(self.answers)}, "
                f"remarks {self.remarks}")
            await asyncio.sleep(0.003)

    async def _read(self, reading: Reading) -> None:
        while True:
            broker = reading.whom()
            try:
                async with asyncio.timeout(SILENCE_S):
                    host, _, port = broker.rpartition(":")
                    reader, writer = await asyncio.open_connection(host, int(port))
            except (OSError, TimeoutError):
                await asyncio.sleep(LEADER_AWAY_S)
                continue
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
                while reading.whom() == broker:
                    for queue in range(QUEUES):
                        async with asyncio.timeout(READ_SILENCE_S):
                            await self._pull(reader, writer, broker, queue, reading)
                    await asyncio.sleep(READ_PAUSE_S)
            writer.transport.abort()

    async def _pull(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, broker: str,
                    queue: int, reading: Reading) -> None:
        """All that there is in a queue."""
        code, offsets = OK, reading.offsets
        while code == OK:
            writer.write(wire.encode(wire.request(RequestCode.PULL_MESSAGE, pull_fields(
                TOPIC, queue_id=queue, offset=offsets[queue]))))
            (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
            answer = wire.decode(await reader.readexactly(length))
            code = answer.code
            if code == ResponseCode.PULL_OFFSET_MOVED:
                self.moved.append(f"{broker}: queue {queue} from {offsets[queue]}: {answer.remark}")
            if code == OK:
                found = deliveries(self.history.seed, answer.body, broker)
                self.history.deliveries += found
                offsets[queue] = found[-1].offset + 1
                self.read[reading.place] += len(found)
                if reading.place == LEADER:
                    self._offsets[queue] = max(self._offsets[queue], offsets[queue])


def deliveries(seed: int, body: bytes, broker: str) -> list[Delivery]:
    """What the body of a pull's answer brings."""
    return [Delivery(one.queue_id, one.queue_offset, name_in(seed, one.body), broker)
            for one in decode_records(body)]


@contextlib.asynccontextmanager
async def traffic(history: History, leader: Leader, follower: Leader,
                  senders: int = 2) -> AsyncIterator[Traffic]:
    """Senders and a reader at either place for the length of the block."""
    running = Traffic(history)
    for _ in range(senders):
        running.send_to(leader)
    running.read_from(leader)
    running.read_from(follower, place=FOLLOWER)
    try:
        yield running
    finally:
        await running.stop()


def read_all(seed: int, address: str) -> list[Delivery]:
    """All queues of a broker, as far as it shows them."""
    found: list[Delivery] = []
    with Peer(address) as peer:
        for queue in range(QUEUES):
            offset = 0
            while True:
                answer = peer.ask(RequestCode.PULL_MESSAGE, pull_fields(
                    TOPIC, queue_id=queue, offset=offset))
                if answer.code != OK:
                    break
                found += deliveries(seed, answer.body, address)
                offset = found[-1].offset + 1
    return found
