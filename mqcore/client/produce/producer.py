"""The asyncio producer (client.md 2; RocketMQ 4.9.8: DefaultMQProducerImpl)."""
from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Unpack, overload

from mqcore.client.config import ClientConfig
from mqcore.client.core.compression import Compressor
from mqcore.client.core.options import check_group, check_topic, positive_seconds, whole
from mqcore.client.core.retry import Tries
from mqcore.client.errors import (
    ClosedError,
    ConfigError,
    MessageTooLarge,
    QueueFull,
    RequestTimeout,
    RocketMQError,
)
from mqcore.client.hooks import TRACE_GROUP_PREFIX, Hooks
from mqcore.client.message import Message, MessageQueue, RecallResult, SendResult
from mqcore.client.native.sends import KeySource, batch_item_size, first_unlike
from mqcore.client.produce.linger import Linger
from mqcore.client.produce.many import ManySend, Shard, batch_sending, one_batch
from mqcore.client.produce.producer_config import ProducerOptions, producer_configs
from mqcore.client.produce.recall import recall
from mqcore.client.produce.replies import Replies
from mqcore.client.produce.sender import Sender
from mqcore.client.produce.sending import Sending
from mqcore.client.produce.serialization import (
    NO_BODY,
    MessageFields,
    Selector,
    SendFields,
    SendOptions,
    message_of,
)
from mqcore.client.produce.trace import TRACE_MESSAGE_SIZE_MAX, TraceDispatcher
from mqcore.client.received import ReceivedMessage
from mqcore.client.roles.instance import ClientInstance
from mqcore.client.roles.role import Role
from mqcore.wire.codes import SEND_FORBIDDEN, RequestCode, ResponseCode
from mqcore.wire.command import next_opaque
from mqcore.wire.numbers import I32_MAX, I32_MIN
from mqcore.wire.properties import INSTANCE_ID, MESSAGE_TYPE, REPLY, TRANSACTION_PREPARED
from mqcore.wire.records import TRANSACTION_PREPARED as SYS_FLAG_PREPARED

_DEFAULT_GROUP = "DEFAULT_PRODUCER"
_CHECKED_TOPICS_MAX = 10_000

OnDone = Callable[[asyncio.Future[SendResult]], object]

log: Final = logging.getLogger("mqcore.client")

keys: Final = KeySource()
_tracer_numbers = itertools.count()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class AsyncProducer(Role):
    """Sends messages of one producer group; use it with `async with`."""

    def __init__(
        self, group: str, *, config: ClientConfig | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """
        group     what the producers of one application are called
        config    options that several roles have in common
        options   ProducerConfig and ClientConfig tell them
        Raises ConfigError, naming the option or parameter.
        """
        if check_group(group) == _DEFAULT_GROUP:
            raise ConfigError(f"group {group}: expected a name of the application's own")
        client, self._config = producer_configs(options, config, ("config",))
        super().__init__(
            ClientInstance(client, heartbeat=self._heartbeat, masters_only=True),
            f"producer {group}")
        self._group = self._instance.wrap(group)
        self._instance.routes.set_template(
            self._config.template_topic, self._config.template_queue_count)
        self._hooks = Hooks(group, client.namespace)
        self._compressor = Compressor(self._config.compression, self._config.compression_level)
        self._sender = Sender(self._instance, self._config, self._group, self._hooks)
        self._sender.recaller = self.recall
        self._linger = Linger(self._sender, self._config) if self._config.linger else None
        self._topics: dict[str, str] = {}       # checked ones, and what brokers call them
        self._replies = Replies()
        self._asked_topics: set[str] = set()    # whose brokers know this client for replies
        self._instance.on(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._replies.on_reply)
        self._tracer = self._make_tracer(group, client) if self._config.trace else None

    def _make_tracer(
        self, group: str, client: ClientConfig
    ) -> tuple[TraceDispatcher, AsyncProducer]:
        """The sender of trace messages, with a producer of its own."""
        number = next(_tracer_numbers)
        producer = AsyncProducer(
            f"{TRACE_GROUP_PREFIX}-{group}-PRODUCE-{number}", config=client,
            send_timeout=5.0, message_size_max_bytes=TRACE_MESSAGE_SIZE_MAX)
        dispatcher = TraceDispatcher(producer, self._config.trace_topic)
        self._hooks.add(dispatcher)
        return dispatcher, producer

    @property
    def group(self) -> str:
        """The producer group, without the namespace."""
        return self._instance.unwrap(self._group)

    def add_hook(self, hook: object) -> None:
        """Have an object called on the way of each message.

        hook   has some of `begin_send`, `end_send` around each call, with a SendCallContext (the
               first one in the caller's thread; properties that it sets are sent), and around each
               try (client.md 2.9) `before_send`, `after_send`, `check_forbidden`, with a
               SendContext; `end_transaction`
        Raises ConfigError when it has none.
        """
        self._hooks.add(hook)

    def _heartbeat(self) -> dict[str, Any]:
        return {"consumerDataSet": [], "producerDataSet": [{"groupName": self._group}]}

    async def _start(self) -> None:
        self._sender.start()
        if self._tracer is not None:
            await self._tracer[1].start()
        for topic in self._config.topics:
            await self._instance.routes.queues_to_publish(
                self._instance.wrap(topic), timeout=self._config.send_timeout)
        if self._config.topics:
            await self._instance.send_heartbeats()

    async def _stop(self, timeout: float) -> None:
        """Wait for what is on its way, and unregister from all brokers."""
        try:
            await self.flush(timeout * 0.6)
        except RequestTimeout:
            self._sender.close()
            raise
        if self._tracer is not None:
            self._tracer[0].flush()
            await self._tracer[1].close(timeout * 0.3)
        await self._instance.unregister(producer=self._group)
        self._sender.close()

    # -- sending ----------------------------------------------------------------------------------

    def message(self, topic: str, body: object, **fields: Unpack[MessageFields]) -> Message:
        """A message to give to `send_many`, transactions and others.

        topic    where it goes
        body     bytes and str unchanged, others as the option `serializer` says
        fields   of a message, as `send` has them
        Raises ConfigError, naming what is wrong.
        """
        return message_of(self._config.serializer, topic, body, fields)

    @overload
    async def send(self, message: Message, **how: Unpack[SendOptions]) -> SendResult: ...
    @overload
    async def send(
        self, topic: str, body: object, /, **how: Unpack[SendFields]) -> SendResult: ...

    async def send(
        self, message: Message | str, body: object = NO_BODY, *, timeout: float | None = None,
        queue: MessageQueue | None = None, shard: object = None, selector: Selector | None = None,
        arg: object = None, **fields: Unpack[MessageFields],
    ) -> SendResult:
        """Send one message and wait until it is stored (client.md 2.7).

        message    a Message; or a topic: `body` and fields follow then
        body       bytes and str unchanged, others as the option `serializer` says
        fields     of a message: key, keys, tags, properties, delay_level, delay, deliver_at, flag,
                   wait_store
        timeout    seconds for all tries together; None: the option send_timeout
        queue      the queue to send to, tried once
        shard      a str or int: messages of equal shards go to one queue, tried once, in order;
                   the same one that Java's SelectMessageQueueByHash chooses
        selector   chooses the queue: called with the queues, the message and `arg`
        Raises ConfigError for what cannot be sent, NoRouteError, QueueFull when there is no room,
        BrokerError, RequestTimeout and ConnectError; `.stored` says what is known of the message.
        """
        self._life.check()
        message = message_of(self._config.serializer, message, body, fields)
        sending = self.prepare(message, timeout=timeout, queue=queue,
                               shard=shard_of(message, shard, selector, arg))
        if not self._sender.room.try_take(sending.size):
            left = sending.tries.deadline - asyncio.get_running_loop().time()
            try:
                has_room = await self._sender.wait_for_room(sending.size, left)
            except asyncio.CancelledError:
                sending.finish(None, None)
                raise
            if not has_room:
                raise self._refused(sending)
        future: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        sending.outcome = future
        self.submit(sending)
        return await future

    @overload
    def send_soon(
        self, message: Message, *, on_done: OnDone | None = None, **how: Unpack[SendOptions],
    ) -> asyncio.Future[SendResult]: ...
    @overload
    def send_soon(
        self, topic: str, body: object, /, *, on_done: OnDone | None = None,
        **how: Unpack[SendFields],
    ) -> asyncio.Future[SendResult]: ...

    def send_soon(
        self, message: Message | str, body: object = NO_BODY, *, on_done: OnDone | None = None,
        timeout: float | None = None, queue: MessageQueue | None = None, shard: object = None,
        selector: Selector | None = None, arg: object = None, **fields: Unpack[MessageFields],
    ) -> asyncio.Future[SendResult]:
        """Send one message; the future that is returned can be awaited for its result.

        on_done    called with the future when the outcome is known
        The other parameters and errors are those of `send`. Raises QueueFull at once when
        max_in_flight messages are on their way: await one message, or `flush`, first.
        """
        self._life.check()
        message = message_of(self._config.serializer, message, body, fields)
        sending = self.prepare(message, timeout=timeout, queue=queue,
                               shard=shard_of(message, shard, selector, arg))
        if not self._sender.room.try_take(sending.size):
            raise self._refused(sending)
        future: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        if on_done is not None:
            future.add_done_callback(on_done)
        sending.outcome = future
        self.submit(sending)
        return future

    async def send_many(
        self, messages: Iterable[Message], *, timeout: float | None = None,
        queue: MessageQueue | None = None, shard: Shard | None = None, in_order: bool = False,
    ) -> list[SendResult]:
        """Send any number of messages, grouped into batches by topic and queue (client.md 2.10).

        timeout   seconds for each batch; None: the option send_timeout
        shard     gives each message its shard, see `send`
        in_order  with queue or shard: when one is not stored, or may not be, those behind it in
                  its queue are not sent; their errors say so, with `.stored` False. It costs a
                  round trip for each batch of a queue. Messages of one queue need one wait_store
        Returns the result of each message, in their order; messages of one queue stay in order.
        Raises ConfigError before anything is sent, SendManyError when some are not stored.
        """
        self._life.check()
        many = ManySend(self._sender, self, self._config, self._timeout(timeout),
                        in_order=in_order)
        if shard is not None and queue is not None:
            raise ConfigError("queue and shard: expected only one")
        if in_order and shard is None and queue is None:
            raise ConfigError("in_order: expected with queue or shard")
        batch = list(messages)
        with self._hooks.sending(batch):
            if queue is not None or shard is not None:
                for topic in {message.topic for message in batch}:
                    self._make_way(self._instance.wrap(topic), self._wrapped(queue))
            return await many.run(batch, self._wrapped(queue), shard)

    async def send_batch(
        self, messages: Sequence[Message], *, timeout: float | None = None,
        queue: MessageQueue | None = None,
    ) -> SendResult:
        """Send messages of one topic in one request: all are stored, or none is.

        Raises ConfigError when they do not fit together, else like `send`.
        """
        self._life.check()
        batch = list(messages)
        own = self.check_all(batch)
        if batch and queue is not None and queue.topic != batch[0].topic:
            raise ConfigError(f"queue {queue}: expected one of topic {batch[0].topic}")
        with self._hooks.sending(batch):
            return await self._send_batch(batch, own, timeout, queue)

    async def _send_batch(
        self, batch: list[Message], own: list[str], timeout: float | None,
        queue: MessageQueue | None,
    ) -> SendResult:
        body = one_batch(batch, self._config.message_size_max_bytes)
        limit = self._timeout(timeout)
        tries = Tries(1 if queue is not None else 1 + self._config.retry_count,
                      asyncio.get_running_loop().time() + limit)
        sending = batch_sending(batch, own, self._topics[batch[0].topic], body, tries)
        sending.queue = self._wrapped(queue)
        if not await self._sender.wait_for_room(sending.size, limit, len(batch)):
            raise self._full()
        future: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        sending.outcome = future
        if sending.queue is not None:
            self._make_way(sending.topic, sending.queue)
        self._sender.submit(sending)
        return await future

    def _make_way(self, topic: str, queue: MessageQueue | None) -> None:
        """Messages that linger for the queue, None: for any queue of the topic, leave now."""
        if self._linger is not None:
            self._linger.make_way(topic, queue)

    @overload
    async def send_oneway(self, message: Message, **how: Unpack[SendOptions]) -> None: ...
    @overload
    async def send_oneway(
        self, topic: str, body: object, /, **how: Unpack[SendFields]) -> None: ...

    async def send_oneway(
        self, message: Message | str, body: object = NO_BODY, *, timeout: float | None = None,
        queue: MessageQueue | None = None, shard: object = None, selector: Selector | None = None,
        arg: object = None, **fields: Unpack[MessageFields],
    ) -> None:
        """Send without an answer: whether it was stored is not known. Raises before the write,
        like `send`."""
        self._life.check()
        message = message_of(self._config.serializer, message, body, fields)
        sending = self.prepare(message, timeout=timeout, queue=queue,
                               shard=shard_of(message, shard, selector, arg))
        await self.go_oneway(sending, self._timeout(timeout))

    async def go_oneway(self, sending: Sending, limit: float) -> None:
        """Of the client itself: send one-way as soon as there is a way, within `limit` seconds.

        Raises RocketMQError.
        """
        try:
            await self._write_oneway(sending, limit)
        except BaseException as error:
            sending.finish(None, error if isinstance(error, RocketMQError) else None)
            raise
        sending.finish(None, None)

    async def _write_oneway(self, sending: Sending, limit: float) -> None:
        if sending.is_alone:
            self._make_way(sending.topic, sending.queue)
        if self._sender.write_oneway(sending):
            return
        topic = sending.message.topic
        try:
            async with asyncio.timeout(limit):
                target, connection = await self._sender.way_of(sending)
                await connection.wait_until_writable(limit)
        except TimeoutError as error:
            raise RequestTimeout(f"no way to {topic} was found in {limit:g} s",
                                 topic=topic, stored=False) from error
        self._sender.write(sending, target, next_opaque(), connection.out, is_oneway=True)
        connection.plan_flush()

    @overload
    async def request(self, message: Message, **how: Unpack[SendOptions]) -> ReceivedMessage: ...
    @overload
    async def request(
        self, topic: str, body: object, /, **how: Unpack[SendFields]) -> ReceivedMessage: ...

    async def request(
        self, message: Message | str, body: object = NO_BODY, *, timeout: float | None = None,
        queue: MessageQueue | None = None, shard: object = None, selector: Selector | None = None,
        arg: object = None, **fields: Unpack[MessageFields],
    ) -> ReceivedMessage:
        """Send a message and wait for the reply of a consumer (client.md 2.12).

        timeout   seconds for the send and the reply; None: the option send_timeout
        Raises RequestTimeout with code 10006 when the message is stored and no reply comes, else
        like `send`.
        """
        self._life.check()
        message = message_of(self._config.serializer, message, body, fields)
        limit = self._timeout(timeout)
        deadline = asyncio.get_running_loop().time() + limit
        topic = self._check(message)
        try:
            async with asyncio.timeout_at(deadline):
                await self._be_known(topic, limit)
        except TimeoutError as error:
            raise RequestTimeout(f"no way for replies about {message.topic} in {limit:g} s",
                                 topic=message.topic, stored=False) from error
        asked, correlation = self._replies.ask(message, self.client_id, limit)
        try:
            left = max(0.001, deadline - asyncio.get_running_loop().time())
            await self.send(asked, timeout=left, queue=queue, shard=shard, selector=selector,
                            arg=arg)
            return await self._replies.wait(correlation, deadline)
        finally:
            self._replies.forget(correlation)

    async def recall(self, sent: SendResult | str, *, timeout: float | None = None) -> RecallResult:
        """Take a message back whose time of delivery has not come; says what became of that.

        sent      what its send gave, or the `recall_handle` of that
        timeout   seconds; None: the option send_timeout
        A message may be recalled again. Raises BrokerError with code 604 for what is too late for
        a stock broker, or another's handle, ConfigError without one, NoRouteError, RequestTimeout.
        """
        self._life.check()
        return await recall(self._instance, self._group, sent, self._timeout(timeout))

    async def _be_known(self, topic: str, timeout: float) -> None:
        """Brokers bring replies to clients whose heartbeat they had."""
        if topic in self._asked_topics:
            return
        await self._instance.routes.queues_to_publish(topic, timeout=timeout)
        await self._instance.send_heartbeats()
        if len(self._asked_topics) < _CHECKED_TOPICS_MAX:
            self._asked_topics.add(topic)

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until everything that was sent has its outcome; lingering batches leave at once.

        timeout   seconds; None: no limit beside that of each send
        Raises RequestTimeout when it is over; what is on its way continues.
        """
        if self._linger is not None:
            self._linger.flush()
        try:
            async with asyncio.timeout(timeout):
                await self._sender.wait_until_idle()
        except TimeoutError:
            raise RequestTimeout(
                f"{self._sender.room.count} messages are still on their way", stored=None
            ) from None

    # -- one message, checked and encoded ----------------------------------------------------------

    def prepare(
        self, message: Message, *, timeout: float | None = None,
        queue: MessageQueue | None = None, shard: object = None, hooked: bool = True,
    ) -> Sending:
        """Of the client itself: a message that passed the checks of client.md 2.2, for `submit`.

        hooked   hooks see it: it is no part of a call that they saw
        Any thread. Raises ConfigError, naming what is wrong.
        """
        topic = self._check(message)
        body, sys_flag = message.body, 0
        if queue is not None and (shard is not None or queue.topic != message.topic):
            raise ConfigError(f"queue {queue}: expected one of topic {message.topic}, and no shard")
        if queue is not None:
            whole(queue.queue_id, "queue_id", 0, I32_MAX)
        if message.flag:
            whole(message.flag, "flag", I32_MIN, I32_MAX)
        limit = self._timeout(timeout)
        call = self._hooks.begin_send((message,)) if hooked else None
        key = keys.give(message, _now_ms())
        if len(body) >= self._config.compress_over_bytes:
            body, sys_flag = self._compressor.compress(body)
        if message.property_text(TRANSACTION_PREPARED) == "true":
            sys_flag |= SYS_FLAG_PREPARED
        is_fixed = queue is not None or shard is not None
        sending = Sending(
            message, topic, key, body, sys_flag, batch_item_size(message),
            Tries(1 if is_fixed else 1 + self._config.retry_count,
                  time.monotonic() + limit, limit))
        sending.call = call
        if is_fixed:
            sending.queue = self._wrapped(queue)
            sending.shard = shard
            sending.is_alone = True
        if message.property_text(MESSAGE_TYPE) == REPLY:
            sending.topic = message.topic       # the cluster's, of no namespace
            sending.code = int(RequestCode.SEND_REPLY_MESSAGE_V2)
        return sending

    def submit(self, sending: Sending) -> None:
        """Of the client itself: send what was prepared, for which room was taken; in the loop's
        thread.
        """
        if self._sender.is_closed:
            self._sender.room.give(sending.size, 1, sending)
            sending.finish(None, ClosedError(f"{self._life.name} is closed"))
        elif sending.is_oneway:
            self._submit_oneway(sending)
        elif self._linger is not None:
            self._linger.submit(sending)
        else:
            self._sender.submit(sending)

    def _submit_oneway(self, sending: Sending) -> None:
        error: RocketMQError | None = None
        if sending.is_alone:
            self._make_way(sending.topic, sending.queue)
        try:
            if not self._sender.write_oneway(sending):
                self._instance.spawn(self._oneway_later(sending))
                return
        except Exception as failure:
            error = self._sender.local_error(failure, sending)
        self._gone(sending, error)

    async def _oneway_later(self, sending: Sending) -> None:
        """Its connection ended, or takes no bytes, since it was handed over."""
        error: RocketMQError | None = None
        try:
            await self._write_oneway(sending, self._config.send_timeout)
        except RocketMQError as failure:
            error = failure
        finally:
            self._gone(sending, error)

    def _gone(self, sending: Sending, error: RocketMQError | None) -> None:
        if error is not None:
            log.warning("a one-way send to %s failed: %s", sending.message.topic, error)
        self._sender.gone(sending, error)

    def send_here(self, sending: Sending) -> SendResult | bool:
        """Of the client itself: send it in the caller's thread; False: `submit` it; True: wait."""
        return self._linger is None and self._sender.send_here(sending)

    def left_here(self, sending: Sending) -> None:
        """Of the client itself: the thread that sent it was interrupted; in the loop's thread."""
        self._sender.left_here(sending)

    def knows_way(self, sending: Sending) -> bool:
        """Of the client itself: whether it can be sent without a question to anybody."""
        return self._sender.knows_way(sending)

    def check_all(self, messages: list[Message]) -> list[str]:
        """Of the client itself: the unique keys of messages that passed the checks; raises like
        `prepare`.
        """
        unlike = first_unlike(messages, self._config.message_size_max_bytes)
        if messages and (unlike < len(messages) or self._sender.namespace):
            for message in messages:
                self._check(message)
        elif messages:
            self._check(messages[0])
        return keys.give_all(messages, _now_ms())

    def _check(self, message: Message) -> str:
        """The brokers' name of the message's topic; raises ConfigError."""
        if not isinstance(message, Message):
            raise ConfigError(f"message: expected a Message, not {type(message).__name__}")
        topic = self._topics.get(message.topic)
        if topic is None:
            topic = self._check_topic(message.topic)
        body = message.body
        if not isinstance(body, bytes):
            raise ConfigError(f"body: expected bytes, not {type(body).__name__}")
        if not 0 < len(body) <= self._config.message_size_max_bytes:
            raise MessageTooLarge(f"body of {len(body)} bytes: expected 1 to"
                                  f" {self._config.message_size_max_bytes}", topic=message.topic)
        if self._sender.namespace:
            message.properties[INSTANCE_ID] = self._sender.namespace
        return topic

    def _check_topic(self, topic: str) -> str:
        if check_topic(topic) in SEND_FORBIDDEN:
            raise ConfigError(f"topic {topic}: expected one that is not the broker's own",
                              int(ResponseCode.MESSAGE_ILLEGAL))
        if len(self._topics) >= _CHECKED_TOPICS_MAX:
            self._topics.clear()
        wrapped = self._topics[topic] = check_topic(self._instance.wrap(topic))
        return wrapped

    def _timeout(self, timeout: float | None) -> float:
        return self._config.send_timeout if timeout is None else positive_seconds(
            timeout, "timeout")

    def _wrapped(self, queue: MessageQueue | None) -> MessageQueue | None:
        if queue is None or not self._sender.namespace:
            return queue
        return MessageQueue(self._instance.wrap(queue.topic), queue.broker_name, queue.queue_id)

    def _refused(self, sending: Sending) -> QueueFull:
        """The error for one that was prepared, and for which there is no room."""
        error = self._full()
        sending.finish(None, error)
        return error

    def _full(self) -> QueueFull:
        room = self._sender.room
        return QueueFull(f"{room.count} messages of {room.bytes} bytes are on their way: the limits"
                         " are max_in_flight and max_in_flight_bytes")


def assign_message_id(message: Message) -> str:
    """Give a message its id (UNIQ_KEY) now, for who keeps it before it is sent; the id.

    One that it has stays. Every send of a message with this id is the same message to consumers.
    """
    return keys.give(message, _now_ms())


def shard_of(
    message: Message, shard: object, selector: Selector | None, arg: object
) -> object:
    """The argument that chooses the queue; raises ConfigError when both are given."""
    if selector is None:
        return shard
    if shard is not None:
        raise ConfigError("shard and selector: expected only one")
    return lambda queues: selector(queues, message, arg)
