"""
The sends of one task: several on their way, each answered before the task ends.

What is sent has a number; chunk n + k is not sent before chunk n is stored, with k requests in
flight. So after a crash, when chunk n is not there, nothing from n + k on is.
"""
from __future__ import annotations

import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from mqcore.client.config import ClientConfig
from mqcore.client.core.retry import RETRY_CODES
from mqcore.client.errors import (
    REFUSED_FOR_NOW,
    ConnectError,
    RemotingError,
    RocketMQError,
    broker_error,
)
from mqcore.client.message import MessageQueue
from mqcore.client.native.sends import SendFrames
from mqcore.client.network.pool import client_request
from mqcore.client.network.route import TEMPLATE_QUEUE_COUNT
from mqcore.client.produce.send_header import send_fields
from mqcore.spark.errors import SparkSourceError
from mqcore.spark.topics.catalog import Catalog
from mqcore.spark.topics.link import Answer, Link, call, keep_link, open_link, prepare
from mqcore.wire.codes import (
    SCHEDULE_TOPIC,
    TEMPLATE_TOPIC,
    TIMER_TOPIC,
    UNIQUE_KEY_QUERY,
    LanguageCode,
    RequestCode,
    ResponseCode,
)
from mqcore.wire.command import Ext, encode
from mqcore.wire.properties import (
    DELAY,
    REAL_TOPIC,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
    encode_properties,
)
from mqcore.wire.records import Record, decode_records

STORED = frozenset({
    ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
})
WAITING = {DELAY: SCHEDULE_TOPIC, TIMER_DELIVER_MS: TIMER_TOPIC}     # where such messages wait
PAUSE_S = 0.1
PAUSE_MAX_S = 2.0
QUERY_COUNT = 32
_I32_MAX = (1 << 31) - 1
_I64_MAX = (1 << 63) - 1

log = logging.getLogger("mqcore.spark")


@dataclass(slots=True, eq=False)
class Chunk:
    """
    One request.

    topic       as brokers know it
    body        of a batch, or of the one message whose `properties` are given
    first, last the ids of its first and its last message
    queue       where it has to go; None: to any queue
    born_ms     of all of them; None: now
    reconsumed  how often they were tried
    sys_flag    how the one message is compressed
    """

    number: int
    topic: str
    body: bytes
    count: int
    first: str
    last: str
    queue: MessageQueue | None = None
    properties: dict[str, str] | None = None
    flag: int = 0
    born_ms: int | None = None
    reconsumed: int = 0
    sys_flag: int = 0
    tries: int = 0
    is_stored: bool = False
    link: Link | None = None
    sent_to: MessageQueue | None = field(default=None)


class Outbox:
    """Sends chunks in their order."""

    def __init__(
        self, config: ClientConfig, catalog: Catalog, group: str, *, in_flight: int, retries: int,
        timeout: float, reads_back: bool, look: Callable[[Chunk], bool] | None = None,
    ) -> None:
        """
        group       the producer group, as brokers know it
        reads_back  look whether a chunk is stored before it is sent again
        look        says whether it is; None: the brokers' key index does
        """
        self._config = config
        self._catalog = catalog
        self._group = group
        self._in_flight = in_flight
        self._retries = retries
        self._timeout = timeout
        self._reads_back = reads_back
        self._look = look or self.stored
        self._links: dict[str, Link] = {}
        self._waiting: dict[Link, dict[int, Chunk]] = {}
        self._outstanding: deque[Chunk] = deque()
        self._busy: dict[MessageQueue, Chunk] = {}      # queues in which the order counts
        self._frames: dict[tuple[str, str], SendFrames] = {}
        self._prepare = prepare(config)
        self._turn = itertools.count(time.monotonic_ns() // 1000)
        self._queues: dict[str, list[MessageQueue]] = {}
        self.requests = 0

    def submit(self, chunk: Chunk) -> None:
        """Send it, as soon as there is room. Raises SparkSourceError, RocketMQError."""
        self._forget()
        while self._outstanding and self._outstanding[0].number <= chunk.number - self._in_flight:
            self._receive(self._outstanding[0])
        if chunk.queue is not None and chunk.queue in self._busy:
            ahead = self._busy[chunk.queue]
            while not ahead.is_stored:
                self._receive(ahead)
        self._outstanding.append(chunk)
        if chunk.queue is not None:
            self._busy[chunk.queue] = chunk
        self._transmit(chunk)

    def finish(self) -> None:
        """Wait until all is stored. Raises likewise."""
        self._forget()
        while self._outstanding:
            self._receive(self._outstanding[0])
        for link in self._links.values():
            keep_link(link, self._config)
        self._links.clear()

    def close(self) -> None:
        """Give up what is under way."""
        for link in self._links.values():
            link.close()
        self._links.clear()

    # -- sending ----------------------------------------------------------------------------------

    def _transmit(self, chunk: Chunk) -> None:
        queue = chunk.queue or self._next_queue(chunk.topic)
        chunk.tries += 1
        chunk.sent_to = queue
        link: Link | None = None
        try:
            link = self._link(self._catalog.master(queue.broker_name))
            opaque = link.next_opaque()
            chunk.link = link
            self._waiting.setdefault(link, {})[opaque] = chunk
            link.write(self._frame(chunk, queue, opaque), self._timeout)
            self.requests += 1
        except RocketMQError as error:
            if link is None:
                self._again(chunk, error)
            else:
                self._broke(link, error)

    def _next_queue(self, topic: str) -> MessageQueue:
        queues = self._queues.get(topic)
        if queues is None:
            queues = self._queues[topic] = self._catalog.queues_to_write(topic)
        return queues[next(self._turn) % len(queues)]

    def _link(self, address: str) -> Link:
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = open_link(address, self._config)
        return link

    def _frame(self, chunk: Chunk, queue: MessageQueue, opaque: int) -> bytearray:
        born_ms = time.time_ns() // 1_000_000 if chunk.born_ms is None else chunk.born_ms
        is_batch = chunk.properties is None
        code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
        properties = chunk.properties or {}
        if self._config.account is None and not self._config.stream and not chunk.reconsumed:
            key = chunk.topic, queue.broker_name
            frames = self._frames.get(key)
            if frames is None:
                frames = self._frames[key] = SendFrames(
                    self._group, chunk.topic, queue.broker_name, default_topic=TEMPLATE_TOPIC,
                    default_queue_count=TEMPLATE_QUEUE_COUNT,
                    language=LanguageCode(self._config.language).name)
            out = bytearray()
            frames.put(out, int(code), opaque, queue.queue_id, chunk.sys_flag, born_ms, chunk.flag,
                       properties, chunk.body, is_batch, False)
            return out
        ext = send_fields(self._group, chunk.topic, queue, encode_properties(properties),
                          born_ms=born_ms, flag=chunk.flag, sys_flag=chunk.sys_flag,
                          is_batch=is_batch,
                          reconsume_times=str(chunk.reconsumed),
                          reconsume_times_max=str(_I32_MAX) if chunk.reconsumed else None)
        command = client_request(code, ext, chunk.body)
        command.opaque = opaque
        self._prepare(command)
        return bytearray(encode(command))

    # -- answers ----------------------------------------------------------------------------------

    def _receive(self, chunk: Chunk) -> None:
        """Take an answer on the connection of a chunk that is not stored yet."""
        link = chunk.link
        if link is None:
            raise SparkSourceError("a chunk waits for no answer")       # cannot be
        try:
            answer = link.answer(self._timeout)
        except RemotingError as error:
            self._broke(link, error)
        else:
            answered = self._waiting[link].pop(answer.opaque, None)
            if answered is not None:
                self._settle(answered, answer)
        self._forget()

    def _forget(self) -> None:
        """What is stored, and has nothing before it that is not, is done."""
        while self._outstanding and self._outstanding[0].is_stored:
            done = self._outstanding.popleft()
            if done.queue is not None and self._busy.get(done.queue) is done:
                del self._busy[done.queue]

    def _settle(self, chunk: Chunk, answer: Answer) -> None:
        if answer.code in STORED:
            chunk.is_stored = True
            return
        error = broker_error(answer.code, answer.remark,
                             chunk.link.address if chunk.link else "", topic=chunk.topic)
        if answer.code not in RETRY_CODES and answer.code not in REFUSED_FOR_NOW:
            raise SparkSourceError(f"topic {chunk.topic} takes no message: {error}")
        self._again(chunk, error)

    def _broke(self, link: Link, error: RocketMQError) -> None:
        """A connection is of no use any more: what waited on it is sent again."""
        link.close()
        self._links.pop(link.address, None)
        for chunk in self._waiting.pop(link, {}).values():
            self._again(chunk, error)

    def _again(self, chunk: Chunk, error: RocketMQError) -> None:
        """Another try. Raises SparkSourceError when there were enough."""
        if chunk.tries > self._retries:
            raise SparkSourceError(
                f"sending to topic {chunk.topic}: {chunk.tries} tries failed: {error}") from None
        log.info("sending to topic %s again: %s", chunk.topic, error)
        time.sleep(min(PAUSE_S * 2 ** (chunk.tries - 1), PAUSE_MAX_S))
        self._queues.pop(chunk.topic, None)             # the routes may have changed
        if self._reads_back and self._look(chunk):
            chunk.is_stored = True
            return
        self._transmit(chunk)

    # -- reading back -----------------------------------------------------------------------------

    def stored(self, chunk: Chunk) -> bool:
        """
        Whether a chunk is stored, by the index of its topic's brokers.

        Raises SparkSourceError when it is stored in part, RocketMQError.
        """
        if chunk.properties is not None and not WAITING.keys().isdisjoint(chunk.properties):
            return self.waits(chunk) or self.has(chunk.topic, chunk.first)
        first = self.has(chunk.topic, chunk.first)
        last = first if chunk.count == 1 else self.has(chunk.topic, chunk.last)
        if first != last:
            raise SparkSourceError(
                f"topic {chunk.topic} has a part of a request, from id {chunk.first} to"
                f" {chunk.last}: was it written with other sizes of Arrow batches or requests?")
        return first

    def waits(self, chunk: Chunk) -> bool:
        """Whether a delayed message waits: it is under a topic of the brokers' own till then."""
        (where,) = (topic for name, topic in WAITING.items() if name in (chunk.properties or {}))
        return any(record.properties.get(REAL_TOPIC) == chunk.topic
                   for record in self._asked(chunk.topic, where, chunk.first))

    def has(self, topic: str, key: str) -> bool:
        """Whether a message with this id is stored. Raises RocketMQError."""
        return any(True for _ in self._asked(topic, topic, key))

    def _asked(self, topic: str, where: str, key: str) -> Iterator[Record]:
        """The messages with an id that the brokers of a topic have, by the index of another."""
        ext: Ext = {"topic": where, "key": key, "maxNum": str(QUERY_COUNT), "beginTimestamp": "0",
                    "endTimestamp": str(_I64_MAX), UNIQUE_KEY_QUERY: "true"}
        for broker in self._catalog.brokers(topic):
            address = self._catalog.address(broker)
            link = open_link(address, self._config)
            try:
                answer = call(link, client_request(RequestCode.QUERY_MESSAGE, dict(ext)),
                              self._config, self._timeout)
            except ConnectError:
                link.close()
                raise
            keep_link(link, self._config)
            if answer.code == ResponseCode.SUCCESS:
                yield from (record for record in decode_records(answer.body)
                            if record.properties.get(UNIQ_KEY) == key)
            elif answer.code != ResponseCode.QUERY_NOT_FOUND:
                raise broker_error(answer.code, answer.remark, address, topic=topic)
