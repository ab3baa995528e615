"""What an application's listener gets, may say, and how it is called (client.md 4.11)."""
from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from mqcore.client.message import MessageQueue, ReceivedMessage
from mqcore.wire.properties import RETRY_TOPIC

log = logging.getLogger("mqcore.client")


class ConsumeStatus(Enum):
    SUCCESS = "success"
    RECONSUME_LATER = "later"


@dataclass(slots=True)
class ConsumeContext:
    """For a retry a listener may set `delay_level`: 0 = the broker decides, -1 = dead letter."""

    queue: MessageQueue
    delay_level: int = 0


Outcome = ConsumeStatus | None
Listener = Callable[[list[ReceivedMessage], ConsumeContext], Outcome | Awaitable[Outcome]]


def restore_topic(message: ReceivedMessage, retry_topic: str) -> None:
    """Give a message that came by the group's retry topic its original topic back."""
    if message.topic == retry_topic:
        message.topic = message.properties.get(RETRY_TOPIC) or message.topic


async def call_listener(
    listener: Listener, messages: list[ReceivedMessage], context: ConsumeContext, *,
    in_thread: bool,
) -> bool:
    """Whether the messages are consumed; an exception means "later" and is logged."""
    try:
        if in_thread:
            outcome: Any = await asyncio.to_thread(listener, messages, context)
        else:
            outcome = listener(messages, context)
        if inspect.isawaitable(outcome):
            outcome = await outcome
    except Exception:       # the application's code: whatever it raises means "later"
        log.exception("a listener failed")
        return False
    return outcome in (None, ConsumeStatus.SUCCESS)
