"""
Messages that wait a moment for others of their topic, to leave in one batch (ecosystem D.5).

L1  What goes to a certain queue leaves in the order of the calls: a queue has one open batch, and
    that leaves before whatever does not fit into it.
"""
from __future__ import annotations

import asyncio
from collections.abc import Sequence

from mqcore.client.core.selection import queue_by_shard
from mqcore.client.errors import RocketMQError
from mqcore.client.message import Message, MessageQueue, SendResult
from mqcore.client.native.messages import results_of
from mqcore.client.native.sends import batch_body
from mqcore.client.produce.many import batch_sending, fits_into_batch
from mqcore.client.produce.producer_config import ProducerConfig
from mqcore.client.produce.sender import Sender
from mqcore.client.produce.sending import Sending

_Key = tuple[str, bool, MessageQueue | None, float]      # topic, wait_store, queue, time limit


class _Parts:
    """Gives the outcome of a batch to each of its messages."""

    def __init__(self, parts: Sequence[Sending]) -> None:
        self._parts = parts

    def set_result(self, result: SendResult, /) -> None:
        each = results_of(SendResult, result, [part.key for part in self._parts])
        for part, own in zip(self._parts, each, strict=True):
            part.finish(own, None)

    def set_exception(self, error: BaseException, /) -> None:
        assert isinstance(error, RocketMQError)
        for part in self._parts:
            part.finish(None, error)


class Linger:
    """Open batches by topic, queue if the queue is not free, and time: all of a batch end together.
    """

    def __init__(self, sender: Sender, config: ProducerConfig) -> None:
        self._sender = sender
        self._config = config
        self._open: dict[_Key, list[Sending]] = {}
        self._sizes: dict[_Key, int] = {}
        self._timers: dict[_Key, asyncio.TimerHandle] = {}
        self._of_queue: dict[MessageQueue, _Key] = {}       # L1

    def submit(self, sending: Sending) -> None:
        """Take a message into the batch of its kind, or send it at once if none takes it."""
        message = sending.message
        has_queue = self._has_queue(sending)
        if sending.sys_flag or not fits_into_batch(message) or not has_queue:
            if sending.is_alone:
                self.make_way(sending.topic, sending.queue)
            self._sender.submit(sending)
            return
        queue = sending.queue
        key = (sending.topic, message.wait_store, queue, sending.tries.limit)
        if self._sizes.get(key, 0) + sending.size > self._config.batch_bytes:
            self._leave(key)
        if queue is not None and self._of_queue.setdefault(queue, key) != key:
            self._leave(self._of_queue[queue])
            self._of_queue[queue] = key
        parts = self._open.setdefault(key, [])
        parts.append(sending)
        self._sizes[key] = self._sizes.get(key, 0) + sending.size
        if len(parts) >= self._config.batch_count:
            self._leave(key)
        elif len(parts) == 1:
            self._timers[key] = asyncio.get_running_loop().call_later(
                self._config.linger, self._leave, key)

    def make_way(self, topic: str, queue: MessageQueue | None) -> None:
        """Send the open batch of a queue, or those of all queues of a topic, before something that
        is about to go there; L1."""
        if queue is not None:
            keys = [self._of_queue[queue]] if queue in self._of_queue else []
        else:
            keys = [key for key in self._of_queue.values() if key[0] == topic]
        for key in keys:
            self._leave(key)

    def flush(self) -> None:
        """Send all open batches now."""
        for key in list(self._open):
            self._leave(key)

    def _has_queue(self, sending: Sending) -> bool:
        """Whether it is known which batch it belongs to: a shard's queue needs the route."""
        if sending.shard is None or sending.queue is not None:
            return True
        queues = self._sender.instance.routes.known_queues(sending.topic)
        if not queues or callable(sending.shard) or self._sender.holds(sending.topic):
            return False
        try:
            sending.queue = queue_by_shard(queues, sending.shard)
        except RocketMQError:
            return False            # the sender finds the same, and tells
        return True

    def _leave(self, key: _Key) -> None:
        parts = self._open.pop(key, [])
        self._sizes.pop(key, None)
        queue = key[2]
        if queue is not None and self._of_queue.get(queue) == key:
            del self._of_queue[queue]
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if len(parts) == 1:
            self._sender.submit(parts[0])
        elif parts:
            self._sender.submit(self._batch(parts))

    def _batch(self, parts: list[Sending]) -> Sending:
        messages: list[Message] = [part.message for part in parts]
        body, _ = batch_body(messages, 0, len(messages), 1 << 40)
        first = parts[0]
        sending = batch_sending(
            messages, [part.key for part in parts], first.topic, body, first.tries)
        sending.size = sum(part.size for part in parts)     # what was taken of the room
        sending.queue, sending.shard = first.queue, first.shard
        sending.is_alone = first.is_alone
        sending.outcome = _Parts(parts)
        return sending
