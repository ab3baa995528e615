"""What a driver asks a cluster: topics, their queues, where these begin and end."""
from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from mqcore.client.config import ClientConfig
from mqcore.client.consume.pulling import commit_offset, committed_offset
from mqcore.client.core.cursor import NO_STOP
from mqcore.client.errors import RocketMQError, broker_error
from mqcore.client.message import MessageQueue
from mqcore.client.native.columns import scan
from mqcore.client.network.pool import client_request
from mqcore.client.read.read_offsets import max_offset, min_offset, offset_at_time
from mqcore.client.roles.blocking import BlockingRole
from mqcore.client.roles.instance import ClientInstance
from mqcore.client.roles.role import Role
from mqcore.spark.options import Options, client_config
from mqcore.spark.topics.idle import Idle
from mqcore.wire import fastjson
from mqcore.wire.codes import (
    HALF_TOPIC,
    MASTER_ID,
    OP_TOPIC,
    PULL_FLAG_SUBSCRIPTION,
    RequestCode,
    ResponseCode,
)
from mqcore.wire.command import Ext
from mqcore.wire.tags import EXPRESSION_TAG, SUBSCRIBE_ALL

READ_GROUP = "TOOLS_CONSUMER"       # every broker has it, also where groups are not made on demand
ROUTE_S = 1.0                       # routes are believed for so long
NEVER_S = 1e8                       # it asks when it is asked
NO_OFFSET = -1                      # was committed
SAMPLE_COUNT = 32                   # messages that sizes are told by
AT_ONCE = 64                        # questions on their way


Offsets = dict[MessageQueue, int]


class AsyncCatalog(Role):
    """Topics, queues and offsets; names are those of the application."""

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(
            ClientInstance(replace(config, route_interval=NEVER_S, heartbeat_interval=NEVER_S),
                           heartbeat=lambda: {"consumerDataSet": [], "producerDataSet": []},
                           masters_only=False), "Spark's catalog")
        self._queues: dict[str, tuple[float, list[MessageQueue] | None]] = {}
        self._written: dict[str, float] = {}            # topics, and when they were asked for

    async def _start(self) -> None:
        """Nothing is asked before somebody asks."""

    async def _stop(self, timeout: float) -> None:
        """Nothing is under way."""

    async def topics(self) -> list[str]:
        """All topics that name servers know and the application can name."""
        answer = await self._instance.name_servers.invoke(
            client_request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
        if answer.code != ResponseCode.SUCCESS:
            raise broker_error(answer.code, answer.remark, "name server")
        names = fastjson.loads(answer.body).get("topicList", [])
        return sorted(self._instance.unwrap(name) for name in names
                      if self._instance.wrap(self._instance.unwrap(name)) == name)

    async def queues(self, topic: str) -> list[MessageQueue] | None:
        """The queues to read of a topic; None: there is no such topic (any more). That of op
        records is where half messages are: no name server knows it."""
        now = time.monotonic()
        known = self._queues.get(topic)
        if known is None or now - known[0] > ROUTE_S:
            found = await self._instance.routes.readable(
                self._instance.wrap(HALF_TOPIC if topic == OP_TOPIC else topic),
                timeout=self._instance.config.call_timeout)
            if found is not None:
                found = [MessageQueue(topic, one.broker_name, one.queue_id) for one in found]
            known = self._queues[topic] = now, found
        return known[1]

    def address(self, broker_name: str) -> str:
        """Where to read from: the master, else a slave. Raises NoRouteError."""
        return self._instance.routes.reader(broker_name, MASTER_ID)

    def master(self, broker_name: str) -> str:
        """Where to write to. Raises NoRouteError."""
        return self._instance.routes.master(broker_name)

    async def queues_to_write(self, topic: str) -> list[MessageQueue]:
        """The queues to send to, of a topic as brokers know it; one that is not there yet has
        those that brokers will make. Raises NoRouteError."""
        now = time.monotonic()
        if now - self._written.get(topic, -ROUTE_S) >= ROUTE_S:
            await self._instance.routes.refresh(topic, timeout=self._instance.config.call_timeout)
            self._written[topic] = now
        return await self._instance.routes.queues_to_publish(
            topic, timeout=self._instance.config.call_timeout)

    async def brokers(self, topic: str) -> list[str]:
        """
        The names of all brokers that may have messages of a topic as brokers know it: those that
        only let read, too. Raises NoRouteError.
        """
        writable = await self.queues_to_write(topic)
        readable = await self._instance.routes.readable(
            topic, timeout=self._instance.config.call_timeout)
        return sorted({queue.broker_name for queue in (*writable, *(readable or ()))})

    def wrap(self, name: str) -> str:
        """A topic or group as brokers know it."""
        return self._instance.wrap(name)

    async def begins(self, queues: Iterable[MessageQueue]) -> Offsets:
        """The smallest offset of each queue that can be read."""
        return await self._each(queues, partial(min_offset, self._instance))

    async def ends(self, queues: Iterable[MessageQueue]) -> Offsets:
        """The offset that the next message of each queue gets."""
        return await self._each(queues, partial(max_offset, self._instance))

    async def known_ends(
        self, queues: Iterable[MessageQueue]
    ) -> tuple[Offsets, dict[str, RocketMQError]]:
        """The same of the queues that can be asked; and the brokers of the others, and why not."""
        wanted = list(queues)
        found = await self._outcomes(wanted, partial(max_offset, self._instance))
        ends: Offsets = {}
        away: dict[str, RocketMQError] = {}
        for queue, outcome in zip(wanted, found, strict=True):
            if isinstance(outcome, RocketMQError):
                away[queue.broker_name] = outcome
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                ends[queue] = outcome
        return ends, away

    async def at_times(self, times_ms: Mapping[MessageQueue, int]) -> Offsets:
        """The first offset of each queue that was stored at its time or later; else its end."""
        return {queue: await offset_at_time(
            self._instance, READ_GROUP, self._wrapped(queue), at_ms)
            for queue, at_ms in times_ms.items()}

    async def committed(self, group: str, queues: Iterable[MessageQueue]) -> Offsets:
        """What a group committed; queues without are not in it."""
        name = self._instance.wrap(group)

        async def ask(queue: MessageQueue) -> int:
            offset = await committed_offset(self._instance, name, queue)
            return NO_OFFSET if offset is None else offset

        found = await self._each(queues, ask)
        return {queue: offset for queue, offset in found.items() if offset != NO_OFFSET}

    async def sizes(self, offsets: Mapping[MessageQueue, int]) -> Offsets:
        """The mean bytes of the messages at an offset of each queue; 1 where none is."""
        async def one(queue: MessageQueue) -> int:
            ext: Ext = {
                "consumerGroup": READ_GROUP, "topic": queue.topic, "queueId": str(queue.queue_id),
                "queueOffset": str(wrapped[queue]), "maxMsgNums": str(SAMPLE_COUNT),
                "sysFlag": str(PULL_FLAG_SUBSCRIPTION), "commitOffset": "0",
                "suspendTimeoutMillis": "0", "subscription": SUBSCRIBE_ALL, "subVersion": "0",
                "expressionType": EXPRESSION_TAG, "bname": queue.broker_name,
            }
            answer = await self._instance.pool.invoke(
                self.address(queue.broker_name), client_request(RequestCode.PULL_MESSAGE, ext))
            if answer.code != ResponseCode.SUCCESS:
                return 1
            _, count, _, _, _ = scan(answer.body, wrapped[queue], NO_STOP, False, None)
            return max(1, len(answer.body) // max(1, count))

        wrapped = {self._wrapped(queue): offset for queue, offset in offsets.items()}
        return await self._each(offsets, one)

    async def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit offsets for a group, and wait until brokers have them."""
        name = self._instance.wrap(group)

        async def one(queue: MessageQueue, offset: int) -> None:
            await self.queues(queue.topic)
            await commit_offset(self._instance, name, self._wrapped(queue), offset, wait=True)

        await asyncio.gather(*(one(queue, offset) for queue, offset in offsets.items()))

    def _wrapped(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(self._instance.wrap(queue.topic), queue.broker_name, queue.queue_id)

    async def _each(
        self, queues: Iterable[MessageQueue], ask: Callable[[MessageQueue], Awaitable[int]]
    ) -> Offsets:
        wanted = list(queues)
        found = await self._outcomes(wanted, ask)
        for one in found:
            if isinstance(one, BaseException):
                raise one
        return {queue: one for queue, one in zip(wanted, found, strict=True)
                if not isinstance(one, BaseException)}

    async def _outcomes(
        self, queues: list[MessageQueue], ask: Callable[[MessageQueue], Awaitable[int]]
    ) -> list[int | BaseException]:
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(queue: MessageQueue) -> int:
            async with gate:
                return await ask(self._wrapped(queue))

        return await asyncio.gather(*map(one, queues), return_exceptions=True)


class Catalog(BlockingRole[AsyncCatalog]):
    """AsyncCatalog for code that blocks. All raise RocketMQError."""

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(AsyncCatalog(config))

    def topics(self) -> list[str]:
        return self._call(self._role.topics)

    def queues(self, topic: str) -> list[MessageQueue] | None:
        return self._call(self._role.queues, topic)

    def begins(self, queues: Iterable[MessageQueue]) -> Offsets:
        return self._call(self._role.begins, queues)

    def ends(self, queues: Iterable[MessageQueue]) -> Offsets:
        return self._call(self._role.ends, queues)

    def known_ends(self, queues: Iterable[MessageQueue]
                   ) -> tuple[Offsets, dict[str, RocketMQError]]:
        return self._call(self._role.known_ends, queues)

    def at_times(self, times_ms: Mapping[MessageQueue, int]) -> Offsets:
        return self._call(self._role.at_times, times_ms)

    def committed(self, group: str, queues: Iterable[MessageQueue]) -> Offsets:
        return self._call(self._role.committed, group, queues)

    def sizes(self, offsets: Mapping[MessageQueue, int]) -> Offsets:
        return self._call(self._role.sizes, offsets)

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        self._call(self._role.commit, group, offsets)

    def master(self, broker_name: str) -> str:
        return self._role.master(broker_name)

    def queues_to_write(self, topic: str) -> list[MessageQueue]:
        return self._call(self._role.queues_to_write, topic)

    def brokers(self, topic: str) -> list[str]:
        return self._call(self._role.brokers, topic)

    def address(self, broker_name: str) -> str:
        return self._role.address(broker_name)

    def wrap(self, name: str) -> str:
        return self._role.wrap(name)


def _close(catalog: Catalog) -> None:
    with contextlib.suppress(RocketMQError, TimeoutError):
        catalog.close(1.0)


_kept: Idle[Catalog] = Idle(_close)


@contextlib.contextmanager
def catalog_of(options: Options) -> Iterator[Catalog]:
    """A catalog of the cluster that options name; kept open for the next who asks."""
    config = client_config(options)
    catalog = _kept.take(config)
    if catalog is None:
        catalog = Catalog(config)
        catalog.start()
    try:
        yield catalog
    finally:
        _kept.give(config, catalog)
