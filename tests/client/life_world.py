"""
A cluster in one process for the lives of a consumer group: the product's client against the
product's broker (its tables of topics, members and offsets), without sockets, in a time of its own.

Doubles stand for the way of frames, the records of queues, and pulls that only read.
"""
from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from mqcore.broker.request import Request
from mqcore.client.errors import ConnectError
from mqcore.client.roles.instance import ClientInstance
from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.codes import ResponseCode
from mqcore.wire.command import Command, response
from mqcore.wire.records import Record, encode_record
from tests.broker.fakes import NOW_MS, Bench, FakeConnections, FakeStore, make_bench, settings_in

NAME_SERVER = "127.0.0.1:9876"
TOPIC = "T"
GROUP = "G"
SAVE_S = 5.0


class LifeLoop(asyncio.SelectorEventLoop):
    """Its time goes to the next timer when nothing is left to do, and does not go by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000.0

    def time(self) -> float:
        return self.now

    def run_in_executor(self, executor: Any, function: Callable[..., Any], *args: Any) -> Any:
        """At once: a thread would be overtaken by the time."""
        done: Future[Any] = Future()
        try:
            done.set_result(function(*args))
        except BaseException as error:
            done.set_exception(error)
        return asyncio.wrap_future(done, loop=self)

    def _run_once(self) -> None:
        while self._scheduled and self._scheduled[0]._cancelled:
            handle = heapq.heappop(self._scheduled)
            handle._scheduled = False
            self._timer_cancelled_count -= 1
        if not self._ready and self._scheduled:
            self.now = max(self.now, self._scheduled[0]._when)
        super()._run_once()


class Store(FakeStore):
    """Knows for each message whether it is among the newest, which are in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.old: set[int] = set()              # positions

    def entry(self, topic: str, queue_id: int, offset: int) -> Any:
        found = super().entry(topic, queue_id, offset)
        return found and found._replace(position=queue_id * 1_000_000 + offset)

    def in_memory(self, position: int) -> bool:
        return position not in self.old

    def grow_old(self) -> None:
        """All that is there now is in memory no longer."""
        self.old |= {queue_id * 1_000_000 + offset
                     for (_, queue_id), (low, high) in self.queues.items()
                     for offset in range(low, high)}


class Lines(FakeConnections):
    """Carries a broker's requests to its clients."""

    def __init__(self, broker: LifeBroker) -> None:
        super().__init__()
        self.broker = broker

    def send(self, connection: int, frame: bytes) -> None:
        super().send(connection, frame)
        _, command = self.sent.pop()
        client = self.broker.clients.get(connection)
        if client is not None:
            client.hears(command, self.broker.address)


class LifeBroker:
    """One broker: it can end, orderly or killed, and come back with what it had saved."""

    def __init__(self, world: World, name: str, address: str) -> None:
        self.world = world
        self.name = name
        self.address = address
        self.store = Store()
        self.is_up = True
        self.clients: dict[int, Wire] = {}
        self.grown = asyncio.Event()
        self.ended = asyncio.Event()            # set when it ends: calls under way fail
        self.bench = self._made()

    def _made(self) -> Bench:
        bench = make_bench(settings_in(
            self.world.folder / self.name, f"broker.name={self.name}",
            f"broker.listen_port={self.address.rpartition(':')[2]}"))
        ports = bench.broker.core.ports
        bench.store = ports.store = self.store
        bench.connections = ports.connections = Lines(self)
        return bench

    def ask(self, command: Command, connection: int) -> Command:
        outcome = self.bench.broker.handle(Request(
            connection, f"10.0.0.{connection & 0xFF}:4000", command,
            NOW_MS + round(self.world.loop.now * 1000)))
        body = outcome.body or b"".join(outcome.parts)
        return response(command, outcome.code, outcome.remark, outcome.ext, body)

    def set_queues(self, count: int) -> None:
        self.bench.broker.handle(Request(0, "10.0.0.0:1", Command(
            Code.UPDATE_AND_CREATE_TOPIC, opaque=1, ext={
                "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": str(count),
                "writeQueueNums": str(count), "perm": "6", "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0", "order": "false"}), NOW_MS))
        self.bench.registrar.finish()
        assert self.bench.broker.core.topics.get(TOPIC).read_queue_count == count

    def save(self) -> None:
        """The coordinator does this every five seconds."""
        offsets = self.bench.broker.core.offsets
        if self.is_up and offsets.dirty:
            offsets.persist()

    def append(self, queue_id: int) -> int:
        """Store a message; its offset."""
        low, high = self.store.queues.get((TOPIC, queue_id), (0, 0))
        self.store.queues[TOPIC, queue_id] = (low, high + 1)
        self.grown.set()
        self.grown = asyncio.Event()
        return high

    def end(self, *, killed: bool) -> None:
        if not killed:
            self.bench.broker.close()
        self.is_up = False
        self.ended.set()
        self.clients.clear()

    def begin(self) -> None:
        self.bench = self._made()
        self.ended = asyncio.Event()
        self.is_up = True

    def forget(self) -> None:
        """Its coordinator is killed and begins anew: connections, and pulls under way, stay."""
        self.bench = self._made()

    async def pull(self, command: Command) -> Command:
        ext = command.ext or {}
        flags, queue_id = int(ext["sysFlag"]), int(ext["queueId"])
        key, offset = (ext["topic"], queue_id), int(ext["queueOffset"])
        if flags & 1:
            self.bench.broker.commit_offset(
                ext["consumerGroup"], ext["topic"], queue_id, int(ext["commitOffset"]))
        low, high = self.store.queues.get(key, (0, 0))
        if offset == high and flags & 2:
            deadline = self.world.loop.now + int(ext["suspendTimeoutMillis"]) / 1000
            while offset == high and self.world.loop.now < deadline:
                try:
                    async with asyncio.timeout_at(deadline):
                        await self.grown.wait()
                except TimeoutError:
                    break
                low, high = self.store.queues.get(key, (0, 0))
        end = min(high, offset + int(ext["maxMsgNums"]))
        code, records = ResponseCode.SUCCESS, b""
        if not low <= offset <= high:
            code, end = ResponseCode.PULL_OFFSET_MOVED, low if offset < low else high
        elif end == offset:
            code = ResponseCode.PULL_NOT_FOUND
        else:
            records = b"".join(self.record(key[0], queue_id, at) for at in range(offset, end))
        return response(command, code, "", {
            "nextBeginOffset": str(end), "minOffset": str(low), "maxOffset": str(high),
            "suggestWhichBrokerId": "0"}, records)

    def record(self, topic: str, queue_id: int, offset: int) -> bytes:
        return encode_record(Record(
            topic=topic, queue_id=queue_id, queue_offset=offset, physical_offset=offset, flag=0,
            sys_flag=0, body_crc=0, born_timestamp_ms=1, born_host=("127.0.0.1", 1),
            store_timestamp_ms=1, store_host=("127.0.0.1", 1), reconsume_times=0,
            prepared_transaction_offset=0, body=b"x", properties={}, size=0))


class Wire:
    """Stands for a client's ConnectionPool."""

    def __init__(self, world: World, on_request: Any) -> None:
        self.world = world
        self.on_request = on_request
        self.numbers: dict[str, int] = {}       # broker address -> connection
        self.tasks: set[asyncio.Task[Any]] = set()
        self.is_cut = False

    def hears(self, command: Command, address: str) -> None:
        task = self.world.loop.create_task(self.on_request(command, address))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _broker(self, address: str) -> tuple[LifeBroker, int]:
        broker = self.world.brokers[address]
        if self.is_cut or not broker.is_up:
            raise ConnectError(f"no broker at {address}", broker=address)
        number = self.numbers.get(address)
        if number is None or broker.clients.get(number) is not self:
            number = self.numbers[address] = self.world.next_number()
            broker.clients[number] = self
        return broker, number

    async def invoke(self, address: str, command: Command, *, timeout: float = 3.0,
                     close_on_timeout: bool = True) -> Command:
        if address == NAME_SERVER:
            return self.world.route(command)
        broker, number = self._broker(address)
        refused = self.world.refused.get(command.code)
        if refused:
            return response(command, refused, "not now", {})
        if command.code != Code.PULL_MESSAGE:
            return broker.ask(command, number)
        ended = broker.ended
        pull = asyncio.ensure_future(broker.pull(command))
        end = asyncio.ensure_future(ended.wait())
        try:
            await asyncio.wait((pull, end), return_when=asyncio.FIRST_COMPLETED)
            if ended.is_set():
                raise ConnectError(f"{address} has closed the connection", broker=address)
            return pull.result()
        finally:
            pull.cancel()
            end.cancel()

    async def send_oneway(self, address: str, command: Command, *, timeout: float = 3.0) -> None:
        broker, number = self._broker(address)
        broker.ask(command, number)

    def is_open(self, address: str) -> bool:
        return address in self.numbers and self.world.brokers[address].is_up

    def cut(self) -> None:
        """The client's process is gone: brokers see its connections end."""
        self.is_cut = True
        for address, number in self.numbers.items():
            broker = self.world.brokers[address]
            if broker.is_up and broker.clients.pop(number, None) is self:
                broker.bench.broker.connection_closed(number)

    async def close(self) -> None:
        self.cut()


class World:
    """Two brokers and their name server."""

    def __init__(self, loop: LifeLoop, folder: Path, queue_count: int) -> None:
        self.loop = loop
        self.folder = folder
        self.brokers: dict[str, LifeBroker] = {}
        self.refused: dict[int, int] = {}       # request code -> what is answered instead
        self._numbers = 0
        for name, port in (("broker-a", 10_911), ("broker-b", 10_921)):
            address = f"127.0.0.1:{port}"
            self.brokers[address] = LifeBroker(self, name, address)
        self.set_queues(queue_count)

    def refuse(self, code: Code, answer: ResponseCode) -> None:
        """Answer requests of a kind so from now on; SUCCESS: as the broker says."""
        self.refused[code] = answer

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def set_queues(self, count: int) -> None:
        """Make the topic, or give it another number of queues, on both brokers."""
        self.queue_count = count
        for broker in self.brokers.values():
            broker.set_queues(count)

    def route(self, command: Command) -> Command:
        """GET_ROUTEINFO_BY_TOPIC: the brokers that are up and have the topic."""
        topic = (command.ext or {})["topic"]
        queues, brokers = [], []
        for address, broker in self.brokers.items():
            config = broker.bench.broker.core.topics.get(topic) if broker.is_up else None
            if config is None:
                continue
            queues.append({"brokerName": broker.name, "readQueueNums": config.read_queue_count,
                           "writeQueueNums": config.write_queue_count, "perm": config.perm,
                           "topicSysFlag": 0})
            brokers.append({"cluster": "C", "brokerName": broker.name,
                            "brokerAddrs": {"0": address}})
        if not queues:
            return response(command, ResponseCode.TOPIC_NOT_EXIST, "no such topic")
        return response(command, 0, body=fastjson.dumps(
            {"queueDatas": queues, "brokerDatas": brokers, "filterServerTable": {}}))

    async def save_often(self) -> None:
        while True:
            await asyncio.sleep(SAVE_S)
            for broker in self.brokers.values():
                broker.save()


def crash(instance: ClientInstance) -> None:
    """End a client as SIGKILL does: nothing is written any more."""
    instance.running = False
    instance.pool.cut()                         # type: ignore[attr-defined]
    for task in list(instance._tasks):
        task.cancel()
