"""What an application may hang into the way of its messages (client.md 2.9)."""
from __future__ import annotations

import logging
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from mqcore.client.errors import ConfigError, RocketMQError
from mqcore.client.message import Message, MessageQueue, SendResult
from mqcore.client.sending import Sending
from mqcore.wire.properties import DELAY, TRANSACTION_PREPARED

_NAMES = ("before_send", "after_send", "check_forbidden", "end_transaction", "before_consume",
          "after_consume", "filter_messages")

log: Final = logging.getLogger("mqcore.client")


class MessageType(IntEnum):
    """What kind of message a hook sees; the numbers are Java's."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3


@dataclass(slots=True)
class SendContext:
    """One try of a send, as hooks see it; `result` or `error` is set after it.

    props   the hooks' own, kept from before_send to after_send
    """

    producer_group: str
    message: Message
    queue: MessageQueue
    broker: str
    message_type: MessageType
    namespace: str
    result: SendResult | None = None
    error: RocketMQError | None = None
    began: float = 0.0
    props: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class EndTransactionContext:
    """A decision about a transaction, before it is sent; `state` is COMMIT, ROLLBACK or UNKNOWN."""

    producer_group: str
    message: Message
    broker: str
    message_id: str
    transaction_id: str
    state: str
    from_check: bool


def message_type(message: Message) -> MessageType:
    """What hooks and traces call a message."""
    if DELAY in message.properties or "__STARTDELIVERTIME" in message.properties:
        return MessageType.DELAY
    if message.properties.get(TRANSACTION_PREPARED) == "true":
        return MessageType.TRANSACTION_HALF
    return MessageType.NORMAL


class Hooks:
    """The hooks of one role, called in the order in which they were added.

    What a hook raises is logged and goes no further, but for `check_forbidden`: that ends the try.
    """

    def __init__(self, group: str, namespace: str) -> None:
        self._group = group
        self._namespace = namespace
        self.all: list[object] = []
        self._contexts: dict[int, SendContext] = {}

    def add(self, hook: object) -> None:
        """Add an object that has some of the methods; raises ConfigError for one that has none."""
        if not any(callable(getattr(hook, name, None)) for name in _NAMES):
            raise ConfigError(f"hook {hook!r}: expected one of the methods {', '.join(_NAMES)}")
        self.all.append(hook)

    def before_send(self, sending: Sending) -> None:
        """A try goes out; raises what a `check_forbidden` raised, as a ClientError."""
        queue = sending.sent_to
        assert queue is not None
        context = SendContext(
            self._group, sending.message,
            MessageQueue(sending.message.topic, queue.broker_name, queue.queue_id),
            sending.broker, message_type(sending.message), self._namespace, began=sending.began)
        for hook in self.all:
            check = getattr(hook, "check_forbidden", None)
            if check is not None:
                self._check(check, context)
        self._contexts[id(sending)] = context
        self.call("before_send", context)

    @staticmethod
    def _check(check: Any, context: SendContext) -> None:
        try:
            check(context)
        except RocketMQError:
            raise
        except Exception as error:      # the application's code: whatever it raises forbids
            raise ConfigError(f"a hook forbids the message: {error!r}",
                              topic=context.message.topic) from error

    def after_send(
        self, sending: Sending, result: SendResult | None, error: RocketMQError | None
    ) -> None:
        """A try has ended; nothing happens for one that never began."""
        context = self._contexts.pop(id(sending), None)
        if context is not None:
            context.result, context.error = result, error
            self.call("after_send", context)

    def call(self, name: str, context: object) -> None:
        """Call one method of all hooks that have it."""
        for hook in self.all:
            method = getattr(hook, name, None)
            if method is None:
                continue
            try:
                method(context)
            except Exception:           # a hook must not harm what it looks at
                log.exception("the hook %s of %r failed", name, hook)
