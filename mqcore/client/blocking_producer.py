"""The producer for code that blocks."""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import TypeVar, Unpack, overload

from mqcore.client.blocking import BlockingRole, LoopThread
from mqcore.client.config import ClientConfig
from mqcore.client.errors import ClientError
from mqcore.client.future import SendFuture
from mqcore.client.many import Shard
from mqcore.client.message import Message, MessageQueue, SendResult
from mqcore.client.producer import AsyncProducer, shard_of
from mqcore.client.producer_config import ProducerOptions
from mqcore.client.received import ReceivedMessage
from mqcore.client.sending import Sending
from mqcore.client.serialization import (
    NO_BODY,
    MessageFields,
    Selector,
    SendFields,
    SendOptions,
    message_of,
)

A = TypeVar("A", bound=AsyncProducer)
OnDone = Callable[[Future[SendResult]], object]


class BlockingProducer(BlockingRole[A]):
    """What Producer and TransactionProducer have in common."""

    def __init__(self, role: A) -> None:
        super().__init__(role)
        self._inbox: deque[Sending] = deque()       # on the way to the loop's thread
        self._is_awake = False                      # the loop was told to look

    @property
    def group(self) -> str:
        """The producer group, without the namespace."""
        return self._role.group

    def add_hook(self, hook: object) -> None:
        """Have an object called on the way of each message, as AsyncProducer.add_hook; it is
        called in the client's thread."""
        self._role.add_hook(hook)

    def message(self, topic: str, body: object, **fields: Unpack[MessageFields]) -> Message:
        """A message with a serialized body, as AsyncProducer.message."""
        return self._role.message(topic, body, **fields)

    @overload
    def send(self, message: Message, **how: Unpack[SendOptions]) -> SendResult: ...
    @overload
    def send(self, topic: str, body: object, /, **how: Unpack[SendFields]) -> SendResult: ...

    def send(
        self, message: Message | str, body: object = NO_BODY, *, timeout: float | None = None,
        queue: MessageQueue | None = None, shard: object = None, selector: Selector | None = None,
        arg: object = None, **fields: Unpack[MessageFields],
    ) -> SendResult:
        """Send one message and wait until it is stored, as AsyncProducer.send."""
        loop = LoopThread.shared()
        if loop.is_here:
            raise ClientError("send would wait for itself in a callback of the client: use"
                              " send_soon")
        message = message_of(self._role._config.serializer, message, body, fields)
        return loop.wait(self._soon(message, None, timeout, queue, shard, selector, arg))

    @overload
    def send_soon(
        self, message: Message, *, on_done: OnDone | None = None, **how: Unpack[SendOptions],
    ) -> SendFuture: ...
    @overload
    def send_soon(
        self, topic: str, body: object, /, *, on_done: OnDone | None = None,
        **how: Unpack[SendFields],
    ) -> SendFuture: ...

    def send_soon(
        self, message: Message | str, body: object = NO_BODY, *, on_done: OnDone | None = None,
        timeout: float | None = None, queue: MessageQueue | None = None, shard: object = None,
        selector: Selector | None = None, arg: object = None, **fields: Unpack[MessageFields],
    ) -> SendFuture:
        """Send one message; the future that is returned gets its result.

        on_done   called with the future in the client's thread: it must not block
        Waits while max_in_flight messages are on their way, up to `timeout`; QueueFull then. The
        other parameters and errors are those of AsyncProducer.send.
        """
        message = message_of(self._role._config.serializer, message, body, fields)
        return self._soon(message, on_done, timeout, queue, shard, selector, arg)

    def _soon(
        self, message: Message, on_done: OnDone | None, timeout: float | None,
        queue: MessageQueue | None, shard: object, selector: Selector | None, arg: object,
    ) -> SendFuture:
        role = self._role
        role._life.check()
        sending = role.prepare(message, timeout=timeout, queue=queue,
                               shard=shard_of(message, shard, selector, arg))
        room = role._sender.room
        if not room.try_take(sending.size) and (
                LoopThread.shared().is_here
                or not room.take(sending.size, role._timeout(timeout))):
            raise role._refused(sending)
        future = SendFuture()
        if on_done is not None:
            future.add_done_callback(on_done)
        sending.outcome = future
        self._inbox.append(sending)
        if not self._is_awake:
            self._is_awake = True
            LoopThread.shared().post(self._take_inbox)
        return future

    def send_many(
        self, messages: Iterable[Message], *, timeout: float | None = None,
        queue: MessageQueue | None = None, shard: Shard | None = None, in_order: bool = False,
    ) -> list[SendResult]:
        """Send any number of messages in batches, as AsyncProducer.send_many."""
        return self._call(self._role.send_many, list(messages), timeout=timeout, queue=queue,
                          shard=shard, in_order=in_order)

    def send_batch(
        self, messages: Sequence[Message], *, timeout: float | None = None,
        queue: MessageQueue | None = None,
    ) -> SendResult:
        """Send messages of one topic in one request, as AsyncProducer.send_batch."""
        return self._call(self._role.send_batch, messages, timeout=timeout, queue=queue)

    @overload
    def send_oneway(self, message: Message, **how: Unpack[SendOptions]) -> None: ...
    @overload
    def send_oneway(self, topic: str, body: object, /, **how: Unpack[SendFields]) -> None: ...

    def send_oneway(
        self, message: Message | str, body: object = NO_BODY, *, timeout: float | None = None,
        queue: MessageQueue | None = None, shard: object = None, selector: Selector | None = None,
        arg: object = None, **fields: Unpack[MessageFields],
    ) -> None:
        """Send without an answer, as AsyncProducer.send_oneway."""
        message = message_of(self._role._config.serializer, message, body, fields)
        self._call(self._role.send_oneway, message, timeout=timeout, queue=queue, shard=shard,
                   selector=selector, arg=arg)

    @overload
    def request(self, message: Message, **how: Unpack[SendOptions]) -> ReceivedMessage: ...
    @overload
    def request(
        self, topic: str, body: object, /, **how: Unpack[SendFields]) -> ReceivedMessage: ...

    def request(
        self, message: Message | str, body: object = NO_BODY, *, timeout: float | None = None,
        queue: MessageQueue | None = None, shard: object = None, selector: Selector | None = None,
        arg: object = None, **fields: Unpack[MessageFields],
    ) -> ReceivedMessage:
        """Send a message and wait for the reply of a consumer, as AsyncProducer.request."""
        message = message_of(self._role._config.serializer, message, body, fields)
        return self._call(self._role.request, message, timeout=timeout, queue=queue, shard=shard,
                          selector=selector, arg=arg)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything that was sent has its outcome, as AsyncProducer.flush.

        Raises RequestTimeout after `timeout` seconds.
        """
        self._call(self._role.flush, timeout)

    def _take_inbox(self) -> None:
        self._is_awake = False          # who appends from here on tells the loop again
        inbox, submit = self._inbox, self._role.submit
        while inbox:
            submit(inbox.popleft())
        self._role._instance.pool.flush()


class Producer(BlockingProducer[AsyncProducer]):
    """AsyncProducer for code that blocks: the same options and methods, from any thread."""

    def __init__(
        self, group: str, *, config: ClientConfig | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """Like AsyncProducer."""
        super().__init__(AsyncProducer(group, config=config, **options))
