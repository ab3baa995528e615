"""
Load that remembers what it was promised, and the audit of what the broker kept of it.

Every message is sent once and never again, whatever the answer: so a message that was acknowledged
has to be in its queue exactly once, at the offset that the answer named, and one with an unknown
outcome at most once.
"""
from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import socket
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field

from mqcore.bench.control import find_target
from mqcore.wire import command as wire
from mqcore.wire.codes import RequestCode
from mqcore.wire.records import Record, decode_records

TOPIC = "promises"
QUEUES = 4
PRODUCERS = 4
DEPTH = 8                       # requests in flight of each producer
CALM_PAUSE_S = 0.005            # behind each answer, while the test waits for something else
PULL_COUNT = 32
WORD = struct.Struct(">i")
IO_TIMEOUT_S = 60.0
WAIT_S = 60.0

Name = tuple[int, int]          # producer, number


def body_of(seed: int, name: Name) -> bytes:
    """The one body that message `name` of a run may have: 8 to about 700 bytes."""
    head = f"{name[0]} {name[1]} ".encode()
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    return head + (digest * 22)[:digest[0] * 3 - digest[1] % 60 if digest[0] > 30 else 1]


def name_of(body: bytes) -> Name:
    producer, number, _ = body.split(b" ", 2)
    return int(producer), int(number)


@dataclass
class Promises:
    """What was sent, and what the broker said to it."""

    seed: int
    sent: Counter[int] = field(default_factory=Counter)         # by producer
    acknowledged: dict[Name, tuple[int, int]] = field(default_factory=dict)  # queue id, offset
    positions: dict[Name, int] = field(default_factory=dict)    # in the commit log, of those
    refused: Counter[int] = field(default_factory=Counter)      # by response code
    remarks: dict[int, str] = field(default_factory=dict)       # the last one of each code
    lost_connections: int = 0


class Load:
    """`PRODUCERS` connections with `DEPTH` sends in flight each; they connect again themselves."""

    def __init__(self, address: str, seed: int, *, topic: str = TOPIC, producers: int = PRODUCERS,
                 first: int = 0) -> None:
        host, _, port = address.rpartition(":")
        self._host, self._port, self._topic = host, int(port), topic
        self.promises = Promises(seed)
        self._progress = asyncio.Event()
        self._pause_s = 0.0
        self._tasks = [asyncio.create_task(self._produce(first + n)) for n in range(producers)]

    async def stop(self) -> Promises:
        """End all producers; what is in flight has an unknown outcome."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        return self.promises

    @contextlib.contextmanager
    def calm(self) -> Iterator[None]:
        """Some hundred messages a second for the length of the block, not all that are possible."""
        self._pause_s = CALM_PAUSE_S
        try:
            yield
        finally:
            self._pause_s = 0.0

    async def until(self, condition: Callable[[Promises], bool], what: str) -> None:
        """Wait until the promises meet `condition`; AssertionError after WAIT_S."""
        try:
            async with asyncio.timeout(WAIT_S):
                while not condition(self.promises):
                    self._alive()
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            raise AssertionError(
                f"not within {WAIT_S} s: {what}; {len(self.promises.acknowledged)} acknowledged, "
                f"refused {dict(self.promises.refused)}, remarks {self.promises.remarks}") from None

    async def acknowledged(self, more: int) -> None:
        """Wait for `more` acknowledgements."""
        goal = len(self.promises.acknowledged) + more
        await self.until(lambda promises: len(promises.acknowledged) >= goal,
                         f"{more} more acknowledgements")

    def _alive(self) -> None:
        for task in self._tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                raise AssertionError("a producer failed") from task.exception()

    async def _produce(self, producer: int) -> None:
        numbers = itertools.count()
        while True:
            try:
                reader, writer = await asyncio.open_connection(self._host, self._port)
            except OSError:                      # nobody listens while the broker is down
                await asyncio.sleep(0.01)
                continue
            try:
                await self._on_connection(producer, numbers, reader, writer)
            except (OSError, asyncio.IncompleteReadError):
                self.promises.lost_connections += 1
            finally:
                writer.close()

    async def _on_connection(
        self, producer: int, numbers: itertools.count[int], reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        flying: dict[int, Name] = {}
        while True:
            while len(flying) < DEPTH:
                name = (producer, next(numbers))
                request = send_request(self._topic, name, self.promises.seed)
                flying[request.opaque] = name
                writer.write(wire.encode(request))
                self.promises.sent[producer] += 1
            async with asyncio.timeout(IO_TIMEOUT_S):
                length = WORD.unpack(await reader.readexactly(4))[0]
                answer = wire.decode(await reader.readexactly(length))
            answered = flying.pop(answer.opaque, None)
            if answered is not None:             # else: answered before, by a writer that died
                self._note(answered, answer)
            if self._pause_s:
                await asyncio.sleep(self._pause_s)

    def _note(self, name: Name, answer: wire.Command) -> None:
        if answer.code == 0:
            ext = answer.ext or {}
            self.promises.acknowledged[name] = (int(ext["queueId"] or -1),
                                                int(ext["queueOffset"] or -1))
            self.promises.positions[name] = int((ext["msgId"] or "")[-16:], 16)
        else:
            self.promises.refused[answer.code] += 1
            self.promises.remarks[answer.code] = answer.remark or ""
        self._progress.set()


@contextlib.asynccontextmanager
async def load(address: str, seed: int, *, topic: str = TOPIC, producers: int = PRODUCERS,
               first: int = 0, make_topic: bool = True) -> AsyncIterator[Load]:
    """Load on `address` for the length of the block; first: number of the first producer."""
    if make_topic:
        await asyncio.to_thread(find_target, topic, broker=address, namesrv=None, queues=QUEUES,
                                create=True)
    running = Load(address, seed, topic=topic, producers=producers, first=first)
    try:
        yield running
    finally:
        await running.stop()


def send_request(topic: str, name: Name, seed: int) -> wire.Command:
    """SEND_MESSAGE_V2 of message `name` to the queue that its number gives."""
    return wire.request(RequestCode.SEND_MESSAGE_V2, {
        "a": "load", "b": topic, "c": "TBW102", "d": "4", "e": str(name[1] % QUEUES), "f": "0",
        "g": "1700000000000", "h": "0", "i": f"KEYS\x01{name[0]}-{name[1]}", "j": "0", "k": "false",
        "m": "false",
    }, body_of(seed, name))


# -- what is there --------------------------------------------------------------------------------


class Asker:
    """One blocking connection that asks one thing at a time."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), IO_TIMEOUT_S)
        self._stream = self._socket.makefile("rb")

    def __enter__(self) -> Asker:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self._socket.close()

    def ask(self, request: wire.Command) -> wire.Command:
        """The answer to `request`; EOFError when the connection ends first."""
        self._socket.sendall(wire.encode(request))
        head = self._stream.read(4)
        if len(head) < 4:
            raise EOFError("the connection has ended")
        return wire.decode(self._stream.read(WORD.unpack(head)[0]))

    def pull(self, topic: str, queue_id: int, offset: int) -> wire.Command:
        """What lies in a queue from `offset` on, without waiting for more."""
        return self.ask(wire.request(RequestCode.PULL_MESSAGE, {
            "consumerGroup": "auditor", "topic": topic, "queueId": str(queue_id),
            "queueOffset": str(offset), "maxMsgNums": str(PULL_COUNT), "sysFlag": "4",
            "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*",
            "subVersion": "0", "expressionType": "TAG",
        }))

    def records(self, answer: wire.Command) -> list[Record]:
        """The records of a pull's answer."""
        return decode_records(answer.body)

    def queue(self, topic: str, queue_id: int, least: int = 0) -> list[Record]:
        """The whole queue, once it has `least` messages: dispatch may lag a little behind."""
        found: list[Record] = []
        deadline = time.monotonic() + IO_TIMEOUT_S
        while True:
            answer = self.pull(topic, queue_id, len(found))
            if answer.code == 0:
                found += self.records(answer)
                continue
            assert answer.code == 19, (answer.code, answer.remark)           # nothing new
            if len(found) >= least or time.monotonic() > deadline:
                return found


def audit(address: str, promises: Promises, *, topic: str = TOPIC,
          others: dict[Name, tuple[int, int]] | None = None) -> set[Name]:
    """
    AssertionError unless the topic holds what was promised: every acknowledged message once, where
    its answer said; bodies as sent; offsets without gap; each producer's order kept.

    Returns the names of all messages that are there.
    """
    seen: dict[Name, tuple[int, int]] = {}
    promised = {**promises.acknowledged, **(others or {})}
    ends = [max((offset + 1 for queue, offset in promised.values() if queue == queue_id), default=0)
            for queue_id in range(QUEUES)]
    with Asker(address) as asker:
        for queue_id in range(QUEUES):
            newest: dict[int, int] = {}
            for offset, record in enumerate(asker.queue(topic, queue_id, ends[queue_id])):
                where = (queue_id, offset)
                name = name_of(record.body)
                assert record.queue_offset == offset, f"offset {record.queue_offset} at {where}"
                assert record.body == body_of(promises.seed, name), f"body of {name} at {where}"
                assert name not in seen, f"{name} at {where} and at {seen[name]}"
                assert newest.get(name[0], -1) < name[1], f"{name} behind {newest[name[0]]}"
                newest[name[0]] = name[1]
                seen[name] = where
    wrong = {name: (where, seen.get(name)) for name, where in promised.items()
             if seen.get(name) != where}
    assert not wrong, f"{len(wrong)} acknowledged, not where promised: {list(wrong.items())[:5]}"
    return set(seen)
