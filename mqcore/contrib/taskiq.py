"""
A broker for Taskiq: tasks are messages of one topic, workers the members of one group.

A task is acked when Taskiq says so (`ack_type`); one of a worker that died before comes again. The
label `delay` (seconds) has a task wait at the broker; it runs up to a second late, and never early.
What cannot be read goes to the dead letters; a worker does not end for it.
"""
from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator
from typing import Any, Final

from taskiq import AckableMessage, AsyncBroker, BrokerMessage

from mqcore.client import AsyncConsumer, AsyncProducer, ConfigError, Delivery, RocketMQError

DUE: Final = "taskiq_due"               # a property: epoch ms before which a task must not run
# Seconds of the broker's delay levels 1 to 18, as they are when nobody changes them.
DELAYS_S: Final = (
    1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
DELAY_S_MAX: Final = 1e9

log: Final = logging.getLogger("mqcore.contrib.taskiq")


class RocketMQBroker(AsyncBroker):
    """
    `broker = RocketMQBroker("127.0.0.1:9876")`; then `taskiq worker module:broker`.

    Results are for a result backend (`with_result_backend`).
    """

    def __init__(
        self, namesrv: str | list[str] | None = None, *, topic: str = "taskiq",
        group: str = "taskiq", visibility_timeout: float = 3600.0, **options: Any,
    ) -> None:
        """
        namesrv             `host:port;host:port`, a list, or a `rocketmq://` URL
        topic               of the tasks
        group               of the workers; brokers of one topic with other groups get all tasks too
        visibility_timeout  seconds that a task may be unacked, then it comes again
        options             of every role of the client (ClientConfig): tls, credentials ...
        Raises ConfigError, naming the option.
        """
        super().__init__()
        self._topic = topic
        self._options = {"namesrv": namesrv, **options}
        self._group = group
        self._visibility_timeout = visibility_timeout
        self._producer = AsyncProducer(group, **self._options)
        self._consumer: AsyncConsumer | None = None

    async def startup(self) -> None:
        """Connect; raises RocketMQError."""
        await super().startup()
        if not self._producer.is_running:
            self._producer = AsyncProducer(self._group, **self._options)
            await self._producer.start()

    async def shutdown(self) -> None:
        """Leave the group; tasks that are not acked come again."""
        await super().shutdown()
        if self._consumer is not None:
            await self._consumer.close()
            self._consumer = None
        await self._producer.close()

    async def kick(self, message: BrokerMessage) -> None:
        """Send a task; raises RocketMQError, ConfigError for a label `delay` that is no number."""
        delay = message.labels.get("delay")
        try:
            seconds = 0.0 if delay is None else float(delay)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"label delay {delay!r}: expected seconds") from error
        if not seconds < DELAY_S_MAX:
            raise ConfigError(f"label delay {delay!r}: expected seconds below {DELAY_S_MAX:g}")
        await self._send(message.message, [message.task_id], time.time() + seconds)

    async def _send(self, body: bytes, keys: list[str], due: float) -> None:
        """Send a task for the longest delay that is not too long for it, or the shortest there is
        (`due`: epoch seconds)."""
        left = due - time.time()
        level = max(int(left > 0), sum(delay <= left for delay in DELAYS_S))
        properties = {DUE: str(round(due * 1000))} if level else {}
        await self._producer.send(self._topic, body, keys=keys, delay_level=level,
                                  properties=properties)

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """The tasks of this worker."""
        self._consumer = AsyncConsumer(
            self._group, self._topic, ack="manual", start="earliest",
            handler_timeout=self._visibility_timeout, **self._options)
        await self._consumer.start()
        async for message in self._consumer:
            try:
                body, due = message.body, int(message.properties.get(DUE, "0")) / 1000
            except (ValueError, OverflowError) as error:
                log.warning("%s is no task, and goes to the dead letters: %s", message, error)
                await message.reject()
                continue
            if due <= time.time():
                yield AckableMessage(data=body, ack=_ack_of(message))
            else:
                await self._delay_again(message, body, due)

    async def _delay_again(self, message: Delivery, body: bytes, due: float) -> None:
        """A task that is not due yet: another delay, by a copy."""
        try:
            await self._send(body, message.keys, due)
        except ConfigError as error:            # it will never be sent
            log.warning("%s cannot be delayed, and goes to the dead letters: %s", message, error)
            await message.reject()
        except RocketMQError as error:
            log.warning("%s is not delayed yet: %s", message, error)
            await message.retry()
        else:
            message.ack()


def _ack_of(message: Delivery) -> Any:
    def ack() -> None:
        message.ack()

    return ack
