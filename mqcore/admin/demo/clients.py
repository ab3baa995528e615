"""
What the demo's producer and consumer processes run: `python -m mqcore.admin.demo.clients ROLE ...`.

Each writes one JSON line for everything it saw, with a single write, before it continues: a process
that is killed has told all that it did. Times are wall clock, in seconds.
"""
from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import click

from mqcore.admin.demo.orders import OrderEvent, order_events
from mqcore.client import (
    AsyncProducer,
    AsyncPushConsumer,
    ConsumeContext,
    Message,
    ReceivedMessage,
    RocketMQError,
)
from mqcore.client.core.options import split_address
from mqcore.client.errors import ConnectError, broker_error
from mqcore.client.network.connection import Connection
from mqcore.wire.codes import LanguageCode, RequestCode, ResponseCode
from mqcore.wire.command import Codec, Ext
from mqcore.wire.command import request as make_request
from mqcore.wire.ids import UniqueKeys
from mqcore.wire.properties import KEYS, TAGS, UNIQ_KEY, WAIT, encode_properties
from mqcore.wire.topics import decode_route

IN_FLIGHT = 8                 # sends that one producer has on the way
GIVE_UP_S = 120.0             # for one event, all its tries together
AGAIN_S = 0.02                # pause before a send is repeated
LOOK_S = 0.02                 # how often a consumer looks at which queues it has
SEND_TIMEOUT_S = 3.0
RESUME = signal.SIGUSR1


class Diary:
    """Appends lines to a file, each with one write."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, **line: Any) -> None:
        os.write(self._fd, json.dumps({**line, "at": time.time()}).encode() + b"\n")


Send = Callable[[OrderEvent], Awaitable[tuple[int, int]]]


async def send_all(events: list[OrderEvent], rate: float, send: Send, diary: Diary,
                   hold_at: int | None = None) -> None:
    """
    Send events at `rate` a second, at most IN_FLIGHT at a time; what fails is sent again. hold_at:
    those from this one on are sent when a signal (RESUME) has come.

    Raises TimeoutError when an event is not acknowledged within GIVE_UP_S.
    """
    told = asyncio.Event()
    if hold_at is not None:
        asyncio.get_running_loop().add_signal_handler(RESUME, told.set)
    places = asyncio.Semaphore(IN_FLIGHT)
    began = time.monotonic()

    async def one(event: OrderEvent) -> None:
        try:
            async with asyncio.timeout(GIVE_UP_S):
                await until_acknowledged(event, send, diary)
        finally:
            places.release()

    async with asyncio.TaskGroup() as group:
        for number, event in enumerate(events):
            if number == hold_at and not told.is_set():
                await told.wait()
                began = time.monotonic() - number / rate
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            await places.acquire()
            group.create_task(one(event))


async def until_acknowledged(event: OrderEvent, send: Send, diary: Diary) -> None:
    while True:
        try:
            queue_id, offset = await send(event)
        except RocketMQError as error:
            diary.write(failed=event.id, why=str(error))
            await asyncio.sleep(AGAIN_S)
            continue
        diary.write(acked=event.id, queue=queue_id, offset=offset)
        return


async def produce(namesrv: str, topic: str, events: list[OrderEvent], rate: float,
                  diary: Diary, hold_at: int | None) -> None:
    """With the library's own producer: JSON headers."""
    messages: dict[str, Message] = {}             # a repeated send keeps its message id

    async with AsyncProducer("demo_shop_a", namesrv=namesrv, retry_count=0) as producer:
        async def send(event: OrderEvent) -> tuple[int, int]:
            message = messages.setdefault(
                event.id, Message(topic, event.body, tags=event.event, keys=event.id))
            result = await producer.send(message)
            return result.queue.queue_id, result.queue_offset

        await send_all(events, rate, send, diary, hold_at)


class BinaryProducer:
    """A client made of the wire codec alone: one connection, ROCKETMQ (binary) headers."""

    def __init__(self, namesrv: str, topic: str) -> None:
        self._namesrv = namesrv
        self._topic = topic
        self._keys = UniqueKeys()
        self._unique: dict[str, str] = {}
        self._broker = ""
        self._connection: Connection | None = None
        self._queue_count = 0
        self._turn = 0

    async def start(self) -> None:
        """Ask the name server where the topic is. Raises RocketMQError."""
        host, port = split_address(self._namesrv)
        connection = await Connection.open(host, port)
        try:
            answer = await connection.invoke(make_request(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": self._topic},
                codec=Codec.ROCKETMQ))
        finally:
            await connection.close()
        if answer.code != ResponseCode.SUCCESS:
            raise broker_error(answer.code, answer.remark, self._namesrv)
        route = decode_route(answer.body)
        self._broker = route.brokers[0].addresses[0]
        self._queue_count = route.queues[0].write_queue_count

    async def send(self, event: OrderEvent) -> tuple[int, int]:
        """SEND_MESSAGE_V2 to the next queue. Raises RocketMQError."""
        now_ms = time.time_ns() // 1_000_000
        unique = self._unique.setdefault(event.id, self._keys.next(now_ms))
        self._turn += 1
        ext: Ext = {
            "a": "demo_shop_b", "b": self._topic, "c": "TBW102", "d": "4",
            "e": str(self._turn % self._queue_count), "f": "0", "g": str(now_ms), "h": "0",
            "i": encode_properties({UNIQ_KEY: unique, WAIT: "true", TAGS: event.event,
                                    KEYS: event.id}),
            "j": "0", "k": "false", "m": "false",
        }
        command = make_request(RequestCode.SEND_MESSAGE_V2, ext, event.body, codec=Codec.ROCKETMQ)
        command.language = LanguageCode.PYTHON
        answer = await (await self._open()).invoke(command, timeout=SEND_TIMEOUT_S)
        if answer.code != ResponseCode.SUCCESS or answer.ext is None:
            raise broker_error(answer.code, answer.remark, self._broker)
        return int(answer.ext["queueId"] or ""), int(answer.ext["queueOffset"] or "")

    async def _open(self) -> Connection:
        if self._connection is None:
            host, port = split_address(self._broker)
            self._connection = await Connection.open(host, port)
        elif not self._connection.is_open:
            self._connection = None
            raise ConnectError(f"{self._broker} closed the connection")
        return self._connection

    async def stop(self) -> None:
        if self._connection is not None:
            await self._connection.close()


async def produce_binary(namesrv: str, topic: str, events: list[OrderEvent], rate: float,
                         diary: Diary, hold_at: int | None) -> None:
    """With nothing of the library but its frames."""
    producer = BinaryProducer(namesrv, topic)
    await producer.start()
    try:
        await send_all(events, rate, producer.send, diary, hold_at)
    finally:
        await producer.stop()


async def consume(namesrv: str, topic: str, group: str, diary: Diary) -> None:
    """One member of the group, until SIGTERM: says what it got and which queues it has."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)

    async def listen(messages: list[ReceivedMessage], _context: ConsumeContext) -> None:
        for message in messages:
            diary.write(got=message.keys[0], queue=message.queue.queue_id,
                        offset=message.queue_offset)

    consumer = AsyncPushConsumer(group, topic, listen, namesrv=namesrv, start="earliest")
    queues: list[int] | None = None
    async with consumer:
        while not stopping.is_set():
            now = [queue.queue_id for queue in consumer.assignment if queue.topic == topic]
            if now != queues:
                queues = now
                diary.write(queues=queues)
            try:
                async with asyncio.timeout(LOOK_S):
                    await stopping.wait()
            except TimeoutError:
                continue


@click.group()
def main() -> None:
    """The demo's producers and consumers."""


def _producer(name: str, run: Callable[..., Awaitable[None]]) -> None:
    @main.command(name)
    @click.option("--namesrv", required=True)
    @click.option("--topic", required=True)
    @click.option("--source", required=True)
    @click.option("--count", required=True, type=click.IntRange(1))
    @click.option("--rate", required=True, type=click.FloatRange(1))
    @click.option("--hold-at", type=click.IntRange(0))
    @click.option("--out", required=True, type=click.Path(path_type=Path))
    def command(namesrv: str, topic: str, source: str, count: int, rate: float,
                hold_at: int | None, out: Path) -> None:
        async def go() -> None:
            await run(namesrv, topic, order_events(source, count), rate, Diary(out), hold_at)

        asyncio.run(go())


_producer("produce", produce)
_producer("produce-binary", produce_binary)


@main.command("consume")
@click.option("--namesrv", required=True)
@click.option("--topic", required=True)
@click.option("--group", required=True)
@click.option("--out", required=True, type=click.Path(path_type=Path))
def consume_command(namesrv: str, topic: str, group: str, out: Path) -> None:
    asyncio.run(consume(namesrv, topic, group, Diary(out)))


if __name__ == "__main__":
    main()
