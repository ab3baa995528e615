"""Reads many messages some at a time, so that a search holds only what it finds."""
from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeVar

from mqcore.admin.shell.exits import Failure
from mqcore.client import ReceivedMessage
from mqcore.client.admin import Found
from mqcore.client.admin.messages import READ_COUNT_MAX

T = TypeVar("T")
Begin = str | datetime | None


async def pages(
    read: Callable[[Begin, int], Awaitable[Found[T]]], message_of: Callable[[T], ReceivedMessage],
    begin: Begin, count: int, what: str,
) -> AsyncGenerator[Found[T], None]:
    """
    All that `read` finds from a time on, `count` of each queue at a time, the oldest first.

    read   gets the time to begin at, and a count
    what   names the messages in an error: "messages of topic orders"
    """
    seen: frozenset[str] = frozenset()
    while True:
        found = await read(begin, count)
        fresh = tuple(one for one in found if message_of(one).offset_message_id not in seen)
        yield Found(fresh, found.unreachable, found.more)
        if not found.more:
            return
        if fresh:
            begin = datetime.fromtimestamp(message_of(found[-1]).store_timestamp_ms / 1000, UTC)
            seen = frozenset(message_of(one).offset_message_id for one in found)
        elif count < READ_COUNT_MAX:
            count = READ_COUNT_MAX
        else:
            raise Failure(f"more than {count:,} {what} in one millisecond")
