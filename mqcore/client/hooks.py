"""Hooks of an application in the way of its messages (client.md 2.9)."""
from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any
from weakref import WeakSet

from mqcore.client.core.guard import raised
from mqcore.client.errors import ConfigError, RocketMQError
from mqcore.client.message import Message, MessageQueue, SendResult
from mqcore.client.produce.sending import Sending
from mqcore.wire.properties import DELAY, TRANSACTION_PREPARED

_NAMES = ("begin_send", "end_send", "before_send", "after_send", "check_forbidden",
          "end_transaction", "before_consume", "consuming", "after_consume", "filter_messages")
TRACE_GROUP_PREFIX = "_INNER_TRACE_PRODUCER"


class MessageType(IntEnum):
    """The kind of a message, for hooks; the numbers are Java's."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3


@dataclass(slots=True)
class SendCallContext:
    """A call that sends, over all its tries; `error` is set at its end if it failed.

    messages   one, or those of a batch or of `send_many`
    props      the hooks' own, kept from begin_send to end_send
    result     of one message or batch; None after `send_many` and one-way sends
    """

    producer_group: str
    messages: Sequence[Message]
    namespace: str
    result: SendResult | None = None
    error: RocketMQError | None = None
    props: dict[str, Any] = field(default_factory=dict)


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
    """The kind of a message, for hooks and traces."""
    if DELAY in message.properties or "__STARTDELIVERTIME" in message.properties:
        return MessageType.DELAY
    if message.properties.get(TRANSACTION_PREPARED) == "true":
        return MessageType.TRANSACTION_HALF
    return MessageType.NORMAL


class SendCall:
    """One call that sends, as hooks see it; ended once."""

    __slots__ = ("_context", "_hooks")

    def __init__(self, hooks: Hooks, context: SendCallContext) -> None:
        self._hooks = hooks
        self._context = context

    def end(self, result: SendResult | None, error: RocketMQError | None) -> None:
        """The outcome is known."""
        self._context.result, self._context.error = result, error
        self._hooks.call("end_send", self._context)


class Hooks:
    """The hooks of one role, called in the order in which they were added, those of all roles
    first.

    An exception of a hook is only logged, except for `check_forbidden`: that ends the try.
    """

    def __init__(self, group: str, namespace: str) -> None:
        self._group = group
        self._namespace = namespace
        self._own: list[object] = []
        self._contexts: dict[int, SendContext] = {}
        self._is_traced = not group.startswith(TRACE_GROUP_PREFIX)
        self.all: list[object] = []             # replaced, not changed
        with _changing:
            self.gather()
            _made.add(self)

    def gather(self) -> None:
        """Look at the hooks of all roles again; the sender of trace messages has none."""
        self.all = [*(_everywhere if self._is_traced else ()), *self._own]

    def add(self, hook: object) -> None:
        """Add an object that has some of the methods; raises ConfigError for one that has none."""
        _check_hook(hook)
        self._own.append(hook)
        self.gather()

    def begin_send(self, messages: Sequence[Message]) -> SendCall | None:
        """A call begins, in the caller's thread and context; properties may still be set."""
        if not self.all or not messages:
            return None
        context = SendCallContext(self._group, messages, self._namespace)
        self.call("begin_send", context)
        return SendCall(self, context)

    @contextlib.contextmanager
    def sending(self, messages: Sequence[Message]) -> Iterator[None]:
        """A call that sends them all, with its end."""
        call = self.begin_send(messages)
        try:
            yield
        except BaseException as error:
            if call is not None:
                call.end(None, error if isinstance(error, RocketMQError) else None)
            raise
        if call is not None:
            call.end(None, None)

    @contextlib.contextmanager
    def consuming(self, context: object) -> Iterator[None]:
        """Around the application's work on messages: the hooks' own contexts are entered."""
        with contextlib.ExitStack() as stack:
            for hook in self.all:
                method = getattr(hook, "consuming", None)
                if method is None:
                    continue
                try:
                    stack.enter_context(method(context))
                except BaseException as error:
                    raised(error, "the hook consuming of %r failed", hook)
            yield

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
        except BaseException as error:  # the application's code: whatever it raises forbids
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
            except BaseException as error:
                raised(error, "the hook %s of %r failed", name, hook)


# -- hooks of every role of the process ------------------------------------------------------------

_everywhere: list[object] = []
_made: WeakSet[Hooks] = WeakSet()
_changing = threading.Lock()


def _check_hook(hook: object) -> None:
    if not any(callable(getattr(hook, name, None)) for name in _NAMES):
        raise ConfigError(f"hook {hook!r}: expected one of the methods {', '.join(_NAMES)}")


def add_hook(hook: object) -> None:
    """Have a hook, any object, called by every producer and consumer of this process, whenever
    made.

    hook   has some of the methods that the roles' `add_hook` take
    Raises ConfigError when it has no such method.
    """
    _check_hook(hook)
    _change(lambda: _everywhere.append(hook))


def remove_hook(hook: object) -> None:
    """Take a `hook` of all roles away; raises ConfigError for one that is not there."""
    if hook not in _everywhere:
        raise ConfigError(f"hook {hook!r}: expected one that was added")
    _change(lambda: _everywhere.remove(hook))


def _change(change: Callable[[], None]) -> None:
    with _changing:
        change()
        for hooks in _made:
            hooks.gather()
