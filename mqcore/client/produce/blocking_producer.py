"""The producer for code that blocks."""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import TypeVar, Unpack, overload

from mqcore.client.config import ClientConfig
from mqcore.client.errors import ClientError
from mqcore.client.message import Message, MessageQueue, RecallResult, SendResult
from mqcore.client.produce.many import Shard
from mqcore.client.produce.producer import AsyncProducer, shard_of
from mqcore.client.produce.producer_config import ProducerOptions
from mqcore.client.produce.sending import Sending
from mqcore.client.produce.serialization import (
    NO_BODY,
    MessageFields,
    Selector,
    SendFields,
    SendOptions,
    message_of,
)
from mqcore.client.received import ReceivedMessage
from mqcore.client.roles.blocking import BlockingRole, LoopThread
from mqcore.client.roles.future import SendFuture, WaitedSend

A = TypeVar("A", bound=AsyncProducer)
OnDone = Callable[[Future[SendResult]], object]


class BlockingProducer(BlockingRole[A]):
    """What Producer and TransactionProducer have in common."""

    def __init__(self, role: A) -> None:
        super().__init__(role)
        role._sender.recaller = self.recall
        self._inbox: deque[Sending] = deque()       # on the way to the loop's thread
        self._is_awake = False                      # the loop was told to look
        self._is_taking = False                     # ... and is at it

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
        role = self._role
        role._life.check()
        message = message_of(role._config.serializer, message, body, fields)
        sending = role.prepare(message, timeout=timeout, queue=queue,
                               shard=shard_of(message, shard, selector, arg))
        outcome = sending.outcome = WaitedSend()
        try:
            self._take_room(sending, timeout)
            # -- what this thread sent before goes before
            here = not self._inbox and not self._is_taking and role.send_here(sending)
            if isinstance(here, SendResult):
                return here
            if not here:
                self._hand_over(sending)
            return loop.wait_for(outcome)
        except BaseException:
            self._leave(sending)
            raise

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
        role = self._role
        role._life.check()
        message = message_of(role._config.serializer, message, body, fields)
        sending = role.prepare(message, timeout=timeout, queue=queue,
                               shard=shard_of(message, shard, selector, arg))
        future = SendFuture()
        if on_done is not None:
            future.add_done_callback(on_done)
        sending.outcome = future
        self._submit(sending, timeout)
        return future

    def _submit(self, sending: Sending, timeout: float | None) -> None:
        """Wait for room, and let the loop send it; raises like `_take_room`."""
        try:
            self._take_room(sending, timeout)
            self._hand_over(sending)
        except BaseException:
            self._leave(sending)
            raise

    def _take_room(self, sending: Sending, timeout: float | None) -> None:
        """Wait for room; QueueFull when there is none in time, or at once in the loop's thread."""
        room = self._role._sender.room
        if not room.try_take(sending.size, 1, sending) and (
                LoopThread.shared().is_here
                or not room.take(sending.size, self._role._timeout(timeout), 1, sending)):
            raise self._role._refused(sending)

    def _hand_over(self, sending: Sending) -> None:
        """Let the loop send it."""
        self._inbox.append(sending)
        if not self._is_awake:
            self._is_awake = True
            try:
                LoopThread.shared().post(self._take_inbox)
            except BaseException:           # a signal's: the loop may not know yet
                LoopThread.shared().post(self._take_inbox)
                raise

    def _leave(self, sending: Sending) -> None:
        """A signal's exception ended the send in this thread, wherever it was: the loop sees to
        what is left undone."""
        if sending.has_room and not sending.is_ended:
            LoopThread.shared().post(self._left_here, sending)

    def _left_here(self, sending: Sending) -> None:
        self._take_inbox()
        self._role.left_here(sending)

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
        """Send without an answer, as AsyncProducer.send_oneway; waits for room as send_soon."""
        role = self._role
        role._life.check()
        message = message_of(role._config.serializer, message, body, fields)
        sending = role.prepare(message, timeout=timeout, queue=queue,
                               shard=shard_of(message, shard, selector, arg))
        if not role.knows_way(sending):
            self._call(role.go_oneway, sending, role._timeout(timeout))
            return
        sending.is_oneway = True
        self._submit(sending, timeout)

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

    def recall(self, sent: SendResult | str, *, timeout: float | None = None) -> RecallResult:
        """Take a message back whose time of delivery has not come, as AsyncProducer.recall."""
        return self._call(self._role.recall, sent, timeout=timeout)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything that was sent has its outcome, as AsyncProducer.flush.

        Raises RequestTimeout after `timeout` seconds.
        """
        self._call(self._role.flush, timeout)

    def _take_inbox(self) -> None:
        self._is_taking = True
        self._is_awake = False          # who appends from here on tells the loop again
        inbox, submit, pool = self._inbox, self._role.submit, self._role._instance.pool
        pool.cork()
        try:
            while inbox:
                submit(inbox.popleft())
        finally:
            pool.uncork()
            self._is_taking = False


class Producer(BlockingProducer[AsyncProducer]):
    """AsyncProducer for code that blocks: the same options and methods, from any thread."""

    def __init__(
        self, group: str, *, config: ClientConfig | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """Like AsyncProducer."""
        super().__init__(AsyncProducer(group, config=config, **options))
