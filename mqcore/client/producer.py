"""The asyncio producer (client.md 2; RocketMQ 4.9.8: DefaultMQProducerImpl)."""
from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Sequence
from typing import Any

from mqcore.client.blocking import BlockingRole
from mqcore.client.config import client_config
from mqcore.client.core.options import TOPIC_LENGTH_MAX, check_group
from mqcore.client.errors import (
    BrokerError,
    ClientError,
    QueueFull,
    RemotingError,
    RocketMQError,
    broker_error,
)
from mqcore.client.instance import ClientInstance
from mqcore.client.message import Message, MessageQueue, SendResult, SendStatus
from mqcore.client.pool import client_request
from mqcore.client.role import Role
from mqcore.wire.codes import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    TEMPLATE_TOPIC,
    RequestCode,
    ResponseCode,
)
from mqcore.wire.command import Command, Ext
from mqcore.wire.ids import UniqueKeys
from mqcore.wire.numbers import whole_number
from mqcore.wire.properties import DELAY, TRANSACTION_PREPARED, UNIQ_KEY, WAIT, encode_properties
from mqcore.wire.records import (
    TRANSACTION_PREPARED as SYS_FLAG_PREPARED,
)
from mqcore.wire.records import BatchItem, compress, encode_batch

SEND_TIMEOUT_S = 3.0
RETRY_COUNT = 2
COMPRESS_OVER_BYTES = 4_096
MESSAGE_SIZE_MAX = 4 * 1024 * 1024
TEMPLATE_QUEUE_COUNT = "4"
RETRY_CODES = frozenset({
    ResponseCode.SYSTEM_ERROR, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.NO_PERMISSION,
    ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_BUYER_ID, ResponseCode.NOT_IN_CURRENT_UNIT,
})
_NOT_SENDABLE = frozenset({
    "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT",
})
_STATUS = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}
_unique_keys: UniqueKeys | None = None


def _next_unique_key(now_ms: int) -> str:
    global _unique_keys
    if _unique_keys is None:
        _unique_keys = UniqueKeys()
    return _unique_keys.next(now_ms)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class AsyncProducer(Role):
    """Sends messages of one producer group; use it with `async with`."""

    def __init__(
        self, group: str, *, namesrv: str | Sequence[str] | None = None,
        send_timeout: float = SEND_TIMEOUT_S, retry_count: int = RETRY_COUNT,
        compress_over_bytes: int = COMPRESS_OVER_BYTES,
        message_size_max_bytes: int = MESSAGE_SIZE_MAX, instance_name: str | None = None,
    ) -> None:
        """
        namesrv            `host:port;host:port` or a list; None = the environment's NAMESRV_ADDR
        send_timeout    the budget of one send, all tries together
        retry_count        tries after the first one that failed
        Raises ValueError for a bad group or address.
        """
        self._group = check_group(group)
        self._send_timeout = send_timeout
        self._retry_count = retry_count
        self._compress_over_bytes = compress_over_bytes
        self._message_size_max_bytes = message_size_max_bytes
        self._counters: dict[str, itertools.count[int]] = {}
        config = client_config({"namesrv": namesrv, "instance_name": instance_name})
        super().__init__(
            ClientInstance(config, heartbeat=self._heartbeat, masters_only=True),
            f"producer {group}")

    def _heartbeat(self) -> dict[str, Any]:
        return {"consumerDataSet": [], "producerDataSet": [{"groupName": self._group}]}

    async def _start(self) -> None:
        """Connections are made when first needed."""

    async def _stop(self, timeout: float) -> None:
        """Unregister from all brokers."""
        await self._instance.unregister(producer=self._group)

    # -- sending ----------------------------------------------------------------------------------

    async def send(
        self, message: Message, *, timeout: float | None = None, queue: MessageQueue | None = None,
    ) -> SendResult:
        """Send one message and wait until it is stored; a given `queue` is tried once.

        Raises ClientError (local checks, no route, all tries failed), BrokerError,
        RemotingError.
        """
        self._life.check()
        self._check(message)
        self._give_key(message)
        return await self._send(message.topic, [message], None, timeout, queue)

    async def send_batch(
        self, messages: Sequence[Message], *, timeout: float | None = None,
        queue: MessageQueue | None = None,
    ) -> SendResult:
        """Send messages of one topic in one request: all are stored, or none is.

        Raises ClientError when they do not fit together, else like `send`.
        """
        self._life.check()
        body = self._batch_body(messages)
        return await self._send(messages[0].topic, messages, body, timeout, queue)

    async def send_oneway(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """Send without an answer: nobody says whether it was stored. Raises before the write."""
        self._life.check()
        self._check(message)
        self._give_key(message)
        chosen = queue or await self._choose(message.topic, None, self._send_timeout)
        address = self._instance.routes.master(chosen.broker_name)
        command = self._request([message], None, chosen)
        await self._instance.pool.send_oneway(
            address, command, timeout=self._send_timeout
        )

    async def _send(
        self, topic: str, messages: Sequence[Message], batch: bytes | None,
        timeout: float | None, queue: MessageQueue | None,
    ) -> SendResult:
        """Try until it is stored, the tries are used up or the time is over (client.md 2.7)."""
        if queue is not None and queue.topic != topic:
            raise ClientError(f"queue of topic {queue.topic} for a message of {topic}")
        budget = self._send_timeout if timeout is None else timeout
        deadline = asyncio.get_running_loop().time() + budget
        last_broker: str | None = None
        failure: RocketMQError | None = None
        for _ in range(1 if queue is not None else 1 + self._retry_count):
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                break
            chosen = queue or await self._choose(topic, last_broker, left)
            last_broker = chosen.broker_name
            left = deadline - asyncio.get_running_loop().time()
            try:
                return await self._attempt(messages, batch, chosen, max(left, 0.001))
            except BrokerError as error:
                if error.response_code not in RETRY_CODES:
                    raise
                failure = error
            except (RemotingError, ClientError) as error:
                failure = error
        if failure is None:
            raise QueueFull(f"no time was left to send within {budget} s")
        if queue is not None:
            raise failure
        code = getattr(failure, "response_code", -1)
        raise ClientError(f"sending to {topic} failed: {failure}", code) from failure

    async def _attempt(
        self, messages: Sequence[Message], batch: bytes | None, queue: MessageQueue,
        timeout: float,
    ) -> SendResult:
        routes = self._instance.routes
        address = routes.master(queue.broker_name)
        answer = await self._instance.pool.invoke(
            address, self._request(messages, batch, queue), timeout=timeout
        )
        status = _STATUS.get(ResponseCode(answer.code)) if answer.code in _STATUS else None
        if status is None:
            raise broker_error(answer.code, answer.remark, address, topic=queue.topic)
        if routes.is_guess(queue.topic):
            await self._learn_new_topic(queue.topic)
        return _result(status, messages, queue, answer, address)

    async def _learn_new_topic(self, topic: str) -> None:
        """The broker has just made the topic: ask for its own route, now or at the next send."""
        try:
            await self._instance.routes.refresh(topic, timeout=self._send_timeout)
        except RemotingError:
            return      # the message is stored; the guess still leads to a broker that has it

    async def _choose(self, topic: str, last_broker: str | None, timeout: float) -> MessageQueue:
        """The next queue in turn; after a failure one of another broker if there is one."""
        queues = await self._instance.routes.queues_to_publish(topic, timeout=timeout)
        if topic not in self._counters:
            self._counters[topic] = itertools.count(random.randrange(1 << 30))
        for _ in queues:
            queue = queues[next(self._counters[topic]) % len(queues)]
            if queue.broker_name != last_broker:
                return queue
        return queues[next(self._counters[topic]) % len(queues)]

    # -- what goes over the wire ------------------------------------------------------------------

    def _check(self, message: Message) -> None:
        """The local checks of client.md 2.2; raises ClientError."""
        topic, illegal = message.topic, int(ResponseCode.MESSAGE_ILLEGAL)
        if not topic or len(topic) > TOPIC_LENGTH_MAX or not all(
            c.isascii() and (c.isalnum() or c in "%|-_") for c in topic
        ):
            raise ClientError(
                f"topic {topic[:140]!r}: expected 1 to 127 of a-z A-Z 0-9 % | - _", illegal
            )
        if topic in _NOT_SENDABLE:
            raise ClientError(f"topic {topic} is the broker's own", illegal)
        if not message.body or len(message.body) > self._message_size_max_bytes:
            raise ClientError(
                f"body of {len(message.body)} bytes: expected 1 to {self._message_size_max_bytes}",
                illegal,
            )

    @staticmethod
    def _give_key(message: Message) -> None:
        if message.unique_key is None:      # a message that is sent again keeps its key
            message.properties[UNIQ_KEY] = _next_unique_key(_now_ms())

    def _batch_body(self, messages: Sequence[Message]) -> bytes:
        """The encoded batch; raises ClientError when its messages do not fit together."""
        if not messages:
            raise ClientError("batch: expected at least one message")
        first = messages[0]
        for message in messages:
            self._check(message)
            if (message.topic, message.wait_store) != (first.topic, first.wait_store):
                raise ClientError("batch: expected one topic and one wait_store")
            if DELAY in message.properties or message.topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                raise ClientError("batch: expected no delay and no retry topic")
            self._give_key(message)
        body = encode_batch(BatchItem(m.body, m.properties, m.flag) for m in messages)
        if len(body) > self._message_size_max_bytes:
            raise ClientError(
                f"batch of {len(body)} bytes: expected at most {self._message_size_max_bytes}",
                int(ResponseCode.MESSAGE_ILLEGAL),
            )
        return body

    def _request(
        self, messages: Sequence[Message], batch: bytes | None, queue: MessageQueue,
    ) -> Command:
        """SEND_MESSAGE_V2 (310) or SEND_BATCH_MESSAGE (320) (remoting.md 4.1)."""
        message = messages[0]
        sys_flag = 0
        if batch is not None:
            body, properties = batch, {WAIT: message.properties.get(WAIT)}
        else:
            body, properties = message.body, dict(message.properties)
            if len(body) >= self._compress_over_bytes:
                body, sys_flag = compress(body)
            if message.properties.get(TRANSACTION_PREPARED) == "true":
                sys_flag |= SYS_FLAG_PREPARED
        ext: Ext = {
            "a": self._group, "b": message.topic, "c": TEMPLATE_TOPIC, "d": TEMPLATE_QUEUE_COUNT,
            "e": str(queue.queue_id), "f": str(sys_flag), "g": str(_now_ms()),
            "h": str(message.flag), "i": encode_properties(properties), "j": "0", "k": "false",
            "m": "false" if batch is None else "true", "n": queue.broker_name,
        }
        code = RequestCode.SEND_MESSAGE_V2 if batch is None else RequestCode.SEND_BATCH_MESSAGE
        return client_request(code, ext, body)


class Producer(BlockingRole[AsyncProducer]):
    """AsyncProducer for code that blocks: the same options and methods, from any thread."""

    def __init__(
        self, group: str, *, namesrv: str | Sequence[str] | None = None,
        send_timeout: float = SEND_TIMEOUT_S, retry_count: int = RETRY_COUNT,
        compress_over_bytes: int = COMPRESS_OVER_BYTES,
        message_size_max_bytes: int = MESSAGE_SIZE_MAX, instance_name: str | None = None,
    ) -> None:
        """Like AsyncProducer."""
        super().__init__(AsyncProducer(
            group, namesrv=namesrv, send_timeout=send_timeout, retry_count=retry_count,
            compress_over_bytes=compress_over_bytes,
            message_size_max_bytes=message_size_max_bytes, instance_name=instance_name,
        ))

    def send(
        self, message: Message, *, timeout: float | None = None, queue: MessageQueue | None = None,
    ) -> SendResult:
        """Send one message and wait until it is stored, as AsyncProducer.send."""
        return self._call(self._role.send, message, timeout=timeout, queue=queue)

    def send_batch(
        self, messages: Sequence[Message], *, timeout: float | None = None,
        queue: MessageQueue | None = None,
    ) -> SendResult:
        """Send messages of one topic in one request, as AsyncProducer.send_batch."""
        return self._call(self._role.send_batch, messages, timeout=timeout, queue=queue)

    def send_oneway(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """Send without an answer, as AsyncProducer.send_oneway."""
        self._call(self._role.send_oneway, message, queue=queue)


def _result(
    status: SendStatus, messages: Sequence[Message], queue: MessageQueue, answer: Command,
    address: str,
) -> SendResult:
    ext = answer.ext or {}
    queue_id, queue_offset = (whole_number(ext.get(name) or "")
                              for name in ("queueId", "queueOffset"))
    if queue_id is None or queue_offset is None:
        raise ClientError(f"{address} stored the message without saying where",
                          broker=address, topic=queue.topic, stored=True)
    return SendResult(
        status=status, message_id=",".join(m.unique_key or "" for m in messages),
        offset_message_id=ext.get("msgId") or "",
        queue=MessageQueue(queue.topic, queue.broker_name, queue_id), queue_offset=queue_offset,
        region_id=ext.get("MSG_REGION") or "DefaultRegion",
    )
