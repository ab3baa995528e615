"""An application's listener: its arguments, results and calls (client.md 4.11, 4.13)."""
from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from mqcore.client.core.guard import raised
from mqcore.client.core.redelivery import DEAD_LETTER
from mqcore.client.errors import ConfigError
from mqcore.client.message import MessageQueue
from mqcore.client.received import ReceivedMessage


class ConsumeStatus(Enum):
    """The results of a listener; None means SUCCESS."""

    SUCCESS = "success"
    RECONSUME_LATER = "later"           # of orderly listeners the same as SUSPEND
    SUSPEND = "suspend"                 # the queue waits, then the same messages come again
    COMMIT = "commit"                   # orderly, without auto_commit: all so far is done
    ROLLBACK = "rollback"               # ... or comes again


class Retry(Exception):
    """Raised by a listener: deliver the message again later.

    delay_level   0 = the broker decides (longer each time), 1 to 18 = this level of its delays
    """

    def __init__(self, delay_level: int = 0) -> None:
        super().__init__(f"again, at delay level {delay_level}")
        if not 0 <= delay_level <= 18:
            raise ConfigError(f"delay_level {delay_level!r}: expected 0 to 18")
        self.delay_level = delay_level


class Reject(Exception):
    """Raised by a listener: no more tries, to the dead letters of the group at once."""


@dataclass(slots=True)
class ConsumeContext:
    """
    The second argument of a listener that takes two.

    delay_level   of what comes again: 0 the broker decides, -1 dead letters, else the level
    ack_count     how many of the messages are done when the call succeeds; None = all
    auto_commit   orderly: False = SUCCESS commits nothing, COMMIT does
    suspend       orderly: seconds that the queue waits after a refusal; None = the consumer's
    """

    queue: MessageQueue
    delay_level: int = 0
    ack_count: int | None = None
    auto_commit: bool = True
    suspend: float | None = None


Answer = ConsumeStatus | None
OneListener = Callable[[ReceivedMessage], Any]
ManyListener = Callable[[list[ReceivedMessage], ConsumeContext], Answer | Awaitable[Answer]]
Listener = OneListener | ManyListener


@dataclass(slots=True, frozen=True)
class Outcome:
    """How a call ended."""

    status: ConsumeStatus = ConsumeStatus.SUCCESS
    accepted: int | None = None         # the first ones that are done; None = all
    delay_level: int = 0
    auto_commit: bool = True
    suspend: float | None = None
    error: BaseException | None = None

    @property
    def is_success(self) -> bool:
        return self.status in (ConsumeStatus.SUCCESS, ConsumeStatus.COMMIT)


ALL_DONE = Outcome()


class ListenerCall:
    """A listener, whatever its form, as one call with an outcome; its errors are outcomes too."""

    def __init__(self, listener: Listener, *, batch: int, in_thread: bool) -> None:
        """Raises ConfigError for what is no listener, or would block the loop."""
        if not callable(listener):
            raise ConfigError(f"listener {listener!r}: expected a function")
        self._listener: Callable[..., Any] = listener
        self.name: str = getattr(listener, "__qualname__", None) or repr(listener)
        self._takes_many = _parameter_count(listener) == 2
        self.is_async: bool = is_async(listener)
        if batch > 1 and not self._takes_many:
            raise ConfigError(
                f"batch {batch}: expected 1 for listener {self.name}, which takes one message; for"
                " more it has to take (messages, context)")
        if in_thread and self.is_async:
            raise ConfigError(
                f"run_in_thread: listener {self.name} is a coroutine function: it runs in the loop")
        if not in_thread and not self.is_async:
            raise ConfigError(
                f"listener {self.name}: expected `async def`; a function that blocks needs"
                " run_in_thread=True")

    async def call(self, messages: list[ReceivedMessage], queue: MessageQueue) -> Outcome:
        """Call a coroutine function."""
        context = None
        try:
            if not self._takes_many:
                answer = await self._listener(messages[0])
                return ALL_DONE if answer is None else _outcome(answer, None)
            context = ConsumeContext(queue)
            return _outcome(await self._listener(messages, context), context)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return self._failure(error, messages, context)       # of something that it awaited
        except GeneratorExit:
            raise                       # the loop itself has gone
        except BaseException as error:  # the application's code: whatever it raises means "later"
            return self._failure(error, messages, context)

    def call_here(self, messages: list[ReceivedMessage], queue: MessageQueue) -> Outcome:
        """Call a plain function, in the caller's thread."""
        context = None
        try:
            if not self._takes_many:
                answer = self._listener(messages[0])
                return ALL_DONE if answer is None else _outcome(answer, None)
            context = ConsumeContext(queue)
            return _outcome(self._listener(messages, context), context)
        except BaseException as error:
            return self._failure(error, messages, context)

    def _failure(self, error: BaseException, messages: list[ReceivedMessage],
                 context: ConsumeContext | None) -> Outcome:
        told = context if context is not None and not _mistake(context) else ConsumeContext(
            messages[0].queue)
        level = told.delay_level
        if isinstance(error, Retry):
            level = error.delay_level
        elif isinstance(error, Reject):
            level = DEAD_LETTER
        else:
            more = f" and {len(messages) - 1} more" if len(messages) > 1 else ""
            raised(error, "listener %s failed for %s%s", self.name, messages[0], more)
        return Outcome(ConsumeStatus.RECONSUME_LATER, 0, level, told.auto_commit, told.suspend,
                       error)


def _outcome(answer: object, context: ConsumeContext | None) -> Outcome:
    status = answer if isinstance(answer, ConsumeStatus) else ConsumeStatus.SUCCESS
    if context is None:
        return Outcome(status)
    mistake = _mistake(context)
    if mistake:
        raise ConfigError(mistake)
    return Outcome(status, context.ack_count, context.delay_level, context.auto_commit,
                   context.suspend)


def _mistake(context: ConsumeContext) -> str:
    """The mistake in a context that the listener filled in; "" = none."""
    count, level, suspend = context.ack_count, context.delay_level, context.suspend
    if count is not None and (type(count) is not int or count < 0):
        return f"ack_count {count!r}: expected how many messages are done, or None"
    if type(level) is not int or not DEAD_LETTER <= level <= 18:
        return f"delay_level {level!r}: expected {DEAD_LETTER} to 18"
    if suspend is not None and (type(suspend) not in (int, float) or not suspend >= 0):
        return f"suspend {suspend!r}: expected seconds, or None"
    return ""


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it makes a coroutine."""
    while hasattr(function, "func"):            # functools.partial
        function = function.func
    method = getattr(type(function), "__call__", None)      # noqa: B004, of an object
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(method)


def _parameter_count(listener: Callable[..., Any]) -> int:
    """1 or 2: how many arguments it needs; raises ConfigError for others."""
    try:
        signature = inspect.signature(listener)
    except (TypeError, ValueError):
        return 1                                # a builtin, such as a list's append
    for count in (1, 2):
        try:
            signature.bind(*range(count))
        except TypeError:
            continue
        return count
    raise ConfigError(
        f"listener{signature}: expected parameters (message) or (messages, context)")
