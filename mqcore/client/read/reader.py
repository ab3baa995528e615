"""Reading topics without a group: from where one likes, all queues, nothing committed.

Each pull brings its own subscription (remoting.md 4.2.1, sysFlag bit 2), so brokers ask for no
heartbeat, and keep nothing.
"""
from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeAlias, Unpack, overload

from mqcore.client.config import ClientConfig, ClientOptions, client_config
from mqcore.client.core.cursor import NO_STOP, Cursor
from mqcore.client.core.options import check_group, check_topic, positive_seconds, whole
from mqcore.client.errors import ConfigError, NoRouteError
from mqcore.client.message import MessageQueue
from mqcore.client.native.columns import TooMuch
from mqcore.client.read.batches import RawBatch, arrow_batch, arrow_schema
from mqcore.client.read.read_engine import ReadEngine
from mqcore.client.read.read_filter import read_filter
from mqcore.client.read.read_offsets import max_offset, min_offset, offset_at_time
from mqcore.client.received import ReceivedMessage
from mqcore.client.roles.blocking import BlockingRole
from mqcore.client.roles.instance import ClientInstance
from mqcore.client.roles.role import Role
from mqcore.wire.tags import SUBSCRIBE_ALL

GROUP = "TOOLS_CONSUMER"            # every broker has it, also where groups are not made on demand
BUFFER_BYTES = 64 << 20
PULL_COUNT = 1_024                  # brokers may give fewer: their transferred counts and bytes
TIMEOUT_S = 30.0
ROUTE_WAIT_S = 2.0
ROUTE_LOOK_S = 0.05
LINGER_S = 0.2
ARROW_ROWS = 65_536
ARROW_BYTES = 32 << 20
ARROW_BYTES_MIN = 1 << 20           # of a batch whose bodies inflate much
BATCHES_MAX = 1_024
MOMENT_S = 0.005                    # a hand-over to another thread costs as much as many batches

Offsets: TypeAlias = Mapping[MessageQueue, int]
Position: TypeAlias = Literal["earliest", "latest", "end"] | datetime | Offsets
_WORDS = ("earliest", "latest", "end")


class AsyncReader(Role):
    """
    Reads every queue of some topics; use it with `async with`, then iterate over it (messages in
    the order of their store times) or over `batches()` (as they come).

    It commits nothing and belongs to no group: any number of readers read the same. Every offset
    of the range is handed out once, but for those that the filter leaves out; when one is not there
    any more, the iteration raises ReadGap, which names it. Queues that a topic gets later are not
    read.
    """

    def __init__(
        self, topics: str | Sequence[str], *, start: Position = "earliest",
        stop: Position | None = None, filter: str = SUBSCRIBE_ALL, sql: str | None = None,
        group: str = GROUP, pull_count: int = PULL_COUNT, buffer_bytes: int = BUFFER_BYTES,
        timeout: float = TIMEOUT_S, config: ClientConfig | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """
        start         the first messages to read: "earliest", "latest" (only what comes from now
                      on), a time (stored then or later; without a zone: local time), or offsets,
                      which name the queues to read, too
        stop          where the iteration ends: "latest" or "end" (what is there at the start), a
                      time (stored before it), offsets (below them, for each queue that is read);
                      None = never: it waits for new messages
        filter        tags: `a || b`; `*` = all
        sql           an SQL92 expression over properties, instead of `filter`
        group         what brokers count the pulls for, and check permissions of; it needs no
                      members and gets no offsets
        pull_count    messages that one pull asks for, 1 to 65535; brokers give fewer
        buffer_bytes  of messages that are pulled and not yet handed out, all queues together; each
                      queue may go over its share by one pull
        timeout       seconds in which a broker must answer, before the iteration raises its error
        config, options  see ClientConfig
        Raises ConfigError.
        """
        names = [topics] if isinstance(topics, str) else list(topics)
        if not names:
            raise ConfigError("topics: expected at least one")
        self._topics = list(dict.fromkeys(check_topic(name, "topics") for name in names))
        self._start_at = _checked(start, "start")
        self._stop_at = None if stop is None else _checked(stop, "stop")
        self._group = check_group(group)
        self._pull_count = whole(pull_count, "pull_count", 1, 65_535)
        self._buffer_bytes = whole(buffer_bytes, "buffer_bytes", 1, 1 << 40)
        self._timeout = positive_seconds(timeout, "timeout")
        self._subscription = read_filter(filter, sql)
        own = ("start", "stop", "filter", "sql", "group", "pull_count", "buffer_bytes", "timeout")
        super().__init__(
            ClientInstance(client_config(options, config, own), heartbeat=_no_groups,
                           masters_only=False),
            f"reader of {', '.join(self._topics)}")
        if self._group != GROUP:                        # that one is in no namespace
            self._group = self._instance.wrap(self._group)
        self._engine: ReadEngine | None = None
        self._cursors: dict[MessageQueue, Cursor] = {}
        self._heap: list[tuple[int, int]] = []          # (store time, index) of queues' next ones
        self._empty: set[int] = set()                   # indexes of queues with none at hand
        self._merging = False                           # messages are decoded that wait

    # -- life -------------------------------------------------------------------------------------

    async def _start(self) -> None:
        """Find the queues and where to begin and end; begin to pull."""
        queues = [queue for topic in self._topics for queue in await self._queues(topic)]
        queues = _chosen(queues, self._start_at)
        begins = await self._resolve(queues, self._start_at, "start")
        stops = await self._resolve(queues, self._stop_at, "stop")
        tags = [tag.encode() for tag in self._subscription.tags] or None
        everything = self._subscription.expression == SUBSCRIBE_ALL
        for queue in queues:
            self._cursors[queue] = Cursor(
                queue, self._instance.wrap(queue.topic), begins[queue], stops[queue],
                whole=everything, tags=tags)
        self._engine = ReadEngine(
            self._instance, list(self._cursors.values()), self._subscription,
            group=self._group, pull_count=self._pull_count,
            buffer_bytes=self._buffer_bytes, timeout=self._timeout)
        self._forget_merged()
        self._engine.start()

    async def _stop(self, timeout: float) -> None:
        """No call is under way that is waited for."""
        if self._engine is not None:
            self._engine.close()

    async def _queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic; name servers know it a moment after its first message."""
        name = self._instance.wrap(topic)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ROUTE_WAIT_S
        while True:
            await self._instance.routes.refresh(name)
            found = self._instance.routes.queues_to_read(name)
            if found:
                break
            if loop.time() > deadline:
                raise NoRouteError(f"no route to read topic {topic}", topic=topic)
            await asyncio.sleep(ROUTE_LOOK_S)
        return [MessageQueue(topic, queue.broker_name, queue.queue_id) for queue in found]

    async def _resolve(
        self, queues: Sequence[MessageQueue], position: Position | None, parameter: str
    ) -> dict[MessageQueue, int]:
        if position is None:
            return dict.fromkeys(queues, NO_STOP)
        if isinstance(position, Mapping):
            lacking = [queue for queue in queues if queue not in position]
            if lacking:
                raise ConfigError(f"{parameter}: expected an offset for {lacking[0]}, too")
            return {queue: position[queue] for queue in queues}
        return dict(zip(queues, await asyncio.gather(
            *(self._offset(queue, position) for queue in queues)), strict=True))

    async def _offset(
        self, queue: MessageQueue, position: Literal["earliest", "latest", "end"] | datetime,
    ) -> int:
        queue = MessageQueue(self._instance.wrap(queue.topic), queue.broker_name, queue.queue_id)
        if isinstance(position, datetime):
            return await offset_at_time(self._instance, self._group, queue,
                                        round(position.timestamp() * 1000))
        if position == "earliest":
            return await min_offset(self._instance, queue)
        return await max_offset(self._instance, queue)

    def _running(self) -> ReadEngine:
        self._life.check()
        assert self._engine is not None
        return self._engine

    # -- where it is ------------------------------------------------------------------------------

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are read; none before the start."""
        return list(self._cursors)

    def positions(self) -> dict[MessageQueue, int]:
        """The offset of each queue from which on nothing was handed out yet.

        As `start` of another reader, it continues there. Raises ClosedError before the start.
        """
        self._life.check()
        return {queue: cursor.position for queue, cursor in self._cursors.items()}

    def seek(self, offsets: Offsets) -> None:
        """Continue at these offsets, in the queues named; also after an error, to go past it.

        Raises ConfigError for a queue that is not read or an offset below 0.
        """
        engine = self._running()
        _checked(offsets, "offsets")
        for queue in offsets:
            if queue not in self._cursors:
                raise ConfigError(f"offsets: {queue} is none of the queues that are read")
        for queue, offset in offsets.items():
            engine.seek(self._cursors[queue], offset)
        self._forget_merged()

    def _forget_merged(self) -> None:
        """Each queue's next message is looked for anew."""
        self._heap.clear()
        for index, cursor in enumerate(self._cursors.values()):
            if cursor.decoded:
                heapq.heappush(self._heap, (cursor.decoded[0].store_timestamp_ms, index))
        held = {index for _, index in self._heap}
        self._empty = set(range(len(self._cursors))) - held

    # -- messages ---------------------------------------------------------------------------------

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """The messages by store time; equal times in the order of the queues.

        Messages stored before the read are in order over all queues. At the live end a message of a
        broker whose clock is behind may come after later ones. Raises ReadGap, BrokerError,
        RemotingError; `seek` then continues.
        """
        while True:
            message = await self._next()
            if message is None:
                return
            yield message

    async def read(
        self, count_max: int = 500, *, timeout: float | None = None
    ) -> list[ReceivedMessage]:
        """At least one message and at most `count_max`, by store time; none at the stop.

        timeout   seconds to wait for the first one; then none, too. Raises as iterating does.
        """
        whole(count_max, "count_max", 1, 1 << 31)
        try:
            async with asyncio.timeout(timeout):
                first = await self._next()
        except TimeoutError:
            return []
        if first is None:
            return []
        found = [first]
        while len(found) < count_max and (message := self._merged()) is not None:
            found.append(message)
        return found

    async def _next(self) -> ReceivedMessage | None:
        """The next message; None at the stop."""
        while True:
            engine = self._running()
            message = self._merged()
            if message is not None:
                return message
            engine.check()
            if engine.is_done:
                return None
            await engine.news()

    def _merged(self) -> ReceivedMessage | None:
        """The next message by store time; None while a queue may still have an earlier one."""
        engine = self._running()
        engine.fresh.clear()
        for index in list(self._empty):
            cursor = engine.cursors[index]
            if self._fill(cursor):
                heapq.heappush(self._heap, (cursor.decoded[0].store_timestamp_ms, index))
                self._empty.discard(index)
            elif not (cursor.is_pulled or cursor.is_idle):
                return None
        if not self._heap:
            return None
        index = self._heap[0][1]
        cursor = engine.cursors[index]
        message = cursor.decoded.popleft()
        if self._fill(cursor):
            heapq.heapreplace(self._heap, (cursor.decoded[0].store_timestamp_ms, index))
        else:
            heapq.heappop(self._heap)
            self._empty.add(index)
        return message

    def _fill(self, cursor: Cursor) -> bool:
        """Have a decoded message of a queue at hand, if one was pulled."""
        if not cursor.decoded and cursor.ready:
            self._merging = True
            cursor.decoded.extend(cursor.ready[0].messages())
            cursor.take()
            self._running().ask(cursor)
        return bool(cursor.decoded)

    # -- batches ----------------------------------------------------------------------------------

    @overload
    def batches(self, *, arrow: Literal[False] = False) -> AsyncIterator[RawBatch]: ...

    @overload
    def batches(
        self, *, arrow: Literal[True], rows: int = ARROW_ROWS, linger: float = LINGER_S,
    ) -> AsyncIterator[Any]: ...

    def batches(
        self, *, arrow: bool = False, rows: int = ARROW_ROWS, linger: float = LINGER_S,
    ) -> AsyncIterator[Any]:
        """Messages many at a time, as they come: in order in each queue, not over all queues.

        arrow    pyarrow.RecordBatch with the columns of `arrow_schema`, bodies decompressed;
                 else RawBatch: the records of one pull, of one queue, as stored
        rows     of an Arrow batch, about: it has whole pulls, and about 32 MiB at most
        linger   seconds after which an Arrow batch is handed out before it is full
        Raises as iterating does, ClientError without pyarrow.
        """
        if not arrow:
            return self._raw()
        return self._arrow(arrow_schema(), whole(rows, "rows", 1, 1 << 24),
                           positive_seconds(linger, "linger"))

    async def _raw(self) -> AsyncIterator[RawBatch]:
        while True:
            engine = self._running()
            self._undecode()
            while (batch := self._taken(engine)) is not None:
                yield batch
                if self._merging:               # messages were read meanwhile
                    self._undecode()
            engine.check()
            if engine.is_done:
                return
            await engine.news()

    async def raw_batches(self) -> list[RawBatch]:
        """Batches that wait, at least one, and those of a moment more; none at the stop.

        Raises as iterating does.
        """
        while True:
            engine = self._running()
            self._undecode()
            if any(cursor.ready for cursor in engine.cursors):
                if not engine.is_idle:
                    await asyncio.sleep(MOMENT_S)
                return [batch for _ in range(BATCHES_MAX)
                        if (batch := self._taken(engine)) is not None]
            engine.check()
            if engine.is_done:
                return []
            await engine.news()

    def _taken(self, engine: ReadEngine) -> RawBatch | None:
        """The oldest batch that waits."""
        while engine.fresh:
            cursor = engine.fresh.popleft()
            if cursor.ready:
                batch = cursor.take()
                engine.ask(cursor)
                return batch
        for cursor in engine.cursors:           # after a seek, or messages read one by one
            if cursor.ready:
                engine.fresh.extend([cursor] * len(cursor.ready))
        return self._taken(engine) if engine.fresh else None

    def _undecode(self) -> None:
        """Pull again what was decoded for merging and not handed out."""
        if not self._merging:
            return
        self._merging = False
        for queue, cursor in self._cursors.items():
            if cursor.decoded:
                self.seek({queue: cursor.position})

    async def _arrow(self, schema: Any, rows: int, linger: float) -> AsyncIterator[Any]:
        loop = asyncio.get_running_loop()
        size_max = ARROW_BYTES
        while True:
            before = self.positions()
            made = None
            try:
                batches = await self._gathered(rows, linger, size_max)
                if not batches:
                    return
                while made is None:
                    try:
                        made = await loop.run_in_executor(None, arrow_batch, batches, schema)
                    except TooMuch:             # they inflate: the others are pulled again
                        batches, others = _halves(batches)
                        self._restore({**self.positions(), **_begins(others)})
                        size_max = max(size_max // 2, ARROW_BYTES_MIN)
            except BaseException:               # cancelled, or a body that cannot be decompressed
                if self.is_running:
                    self._restore(before)
                raise
            yield made

    def _restore(self, positions: Offsets) -> None:
        """Go back to positions from which on nothing was handed out; an error stays."""
        engine = self._running()
        error = engine.error
        for queue, offset in positions.items():
            cursor = self._cursors[queue]
            if cursor.position != offset:
                engine.seek(cursor, offset)
        self._forget_merged()
        engine.error = error

    async def _gathered(self, rows: int, linger: float, size_max: int) -> list[RawBatch]:
        """Raw batches of about `rows` messages or `size_max` bytes; fewer when no more come in
        time."""
        found: list[RawBatch] = []
        count = size = 0
        deadline: float | None = None
        loop = asyncio.get_running_loop()
        while count < rows and size < size_max:
            engine = self._running()
            self._undecode()
            batch = self._taken(engine)
            if batch is not None:
                found.append(batch)
                count += batch.count
                size += len(batch.records)
                continue
            if not found:
                engine.check()
            if engine.is_done or (found and engine.error is not None):
                break
            if found and deadline is None:
                deadline = loop.time() + linger
            try:
                async with asyncio.timeout_at(deadline):
                    await engine.news()
            except TimeoutError:
                break
        return found


def _halves(batches: list[RawBatch]) -> tuple[list[RawBatch], list[RawBatch]]:
    middle = len(batches) // 2
    if middle:
        return batches[:middle], batches[middle:]
    first, second = batches[0].halves()
    return [first], [second]


def _begins(batches: list[RawBatch]) -> Offsets:
    """Where they begin in their queues."""
    found: dict[MessageQueue, int] = {}
    for batch in batches:
        found.setdefault(batch.queue, batch.begin)
    return found


class Reader(BlockingRole[AsyncReader]):
    """AsyncReader for code that blocks: the same options and methods; iterate over it in one thread
    at a time."""

    def __init__(
        self, topics: str | Sequence[str], *, start: Position = "earliest",
        stop: Position | None = None, filter: str = SUBSCRIBE_ALL, sql: str | None = None,
        group: str = GROUP, pull_count: int = PULL_COUNT, buffer_bytes: int = BUFFER_BYTES,
        timeout: float = TIMEOUT_S, config: ClientConfig | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """Like AsyncReader."""
        super().__init__(AsyncReader(
            topics, start=start, stop=stop, filter=filter, sql=sql, group=group,
            pull_count=pull_count, buffer_bytes=buffer_bytes, timeout=timeout, config=config,
            **options))
        self._fetched: deque[ReceivedMessage] = deque()
        self._raw: deque[RawBatch] = deque()

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are read; none before the start."""
        return self._role.queues

    def positions(self) -> dict[MessageQueue, int]:
        """As AsyncReader.positions."""
        async def ask() -> dict[MessageQueue, int]:
            return self._role.positions()

        found = self._call(ask)
        for batch in self._raw:
            found[batch.queue] = min(found[batch.queue], batch.begin)
        for message in self._fetched:
            found[message.queue] = min(found[message.queue], message.queue_offset)
        return found

    def seek(self, offsets: Offsets) -> None:
        """As AsyncReader.seek."""
        async def do() -> None:
            self._role.seek(offsets)

        self._call(do)
        self._fetched = deque(one for one in self._fetched if one.queue not in offsets)
        self._raw = deque(one for one in self._raw if one.queue not in offsets)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """The messages by store time, as AsyncReader gives them."""
        while self._fetched or self._fetch():
            yield self._fetched.popleft()

    def _fetch(self) -> bool:
        self._fetched.extend(self._call(self._role.read))
        return bool(self._fetched)

    def read(
        self, count_max: int = 500, *, timeout: float | None = None
    ) -> list[ReceivedMessage]:
        """As AsyncReader.read."""
        if self._fetched:
            count = min(count_max, len(self._fetched))
            return [self._fetched.popleft() for _ in range(count)]
        return self._call(self._role.read, count_max, timeout=timeout)

    @overload
    def batches(self, *, arrow: Literal[False] = False) -> Iterator[RawBatch]: ...

    @overload
    def batches(
        self, *, arrow: Literal[True], rows: int = ARROW_ROWS, linger: float = LINGER_S,
    ) -> Iterator[Any]: ...

    def batches(
        self, *, arrow: bool = False, rows: int = ARROW_ROWS, linger: float = LINGER_S,
    ) -> Iterator[Any]:
        """As AsyncReader.batches."""
        self._give_back()
        if not arrow:
            return self._raw_batches()
        return self._one_by_one(self._role.batches(arrow=True, rows=rows, linger=linger))

    def _give_back(self) -> None:
        """Messages fetched for other calls and not handed out are read again."""
        if self._fetched or self._raw:
            self.seek(self.positions())

    def _raw_batches(self) -> Iterator[RawBatch]:
        """A call into the loop's thread brings all that wait."""
        while True:
            while self._raw:
                yield self._raw.popleft()
            self._raw.extend(self._call(self._role.raw_batches))
            if not self._raw:
                return

    def _one_by_one(self, batches: AsyncIterator[Any]) -> Iterator[Any]:
        async def following() -> Any:
            return await anext(batches, None)

        while (batch := self._call(following)) is not None:
            yield batch


def _no_groups() -> dict[str, Any]:
    """A reader is in no group."""
    return {"consumerDataSet": [], "producerDataSet": []}


def _checked(position: Position, parameter: str) -> Position:
    """The position itself; raises ConfigError for what is none."""
    if isinstance(position, Mapping):
        for queue, offset in position.items():
            if not isinstance(queue, MessageQueue) or not isinstance(offset, int) or offset < 0:
                raise ConfigError(f"{parameter}: {queue!r}: {offset!r}: expected a MessageQueue and"
                                  f" an offset of at least 0")
        if not position:
            raise ConfigError(f"{parameter}: expected at least one queue")
    elif not isinstance(position, datetime) and position not in _WORDS:
        raise ConfigError(f"{parameter} {position!r}: expected one of {', '.join(_WORDS)}, a"
                          " datetime, or offsets by MessageQueue")
    return position


def _chosen(queues: list[MessageQueue], start: Position) -> list[MessageQueue]:
    """Offsets name the queues to read; raises ConfigError for one that is not there."""
    if not isinstance(start, Mapping):
        return queues
    known = set(queues)
    for queue in start:
        if queue not in known:
            raise ConfigError(f"start: {queue} is no queue of {', '.join(_topics_of(queues))}")
    return [queue for queue in queues if queue in start]


def _topics_of(queues: Sequence[MessageQueue]) -> list[str]:
    return sorted({queue.topic for queue in queues})
