"""A member's report on itself: code 307's document (client.md 4.14, remoting.md 5.4)."""
from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mqcore.client.core.consume_stats import TopicCounts
from mqcore.client.core.process_queue import OrderlyQueue, ProcessQueue
from mqcore.client.message import MessageQueue
from mqcore.wire import fastjson
from mqcore.wire.fastjson import ObjectKey
from mqcore.wire.tags import Subscription

STACKS_LENGTH_MAX = 1_000_000
AWAITS_MAX = 50


def queue_key(queue: MessageQueue) -> ObjectKey:
    """A queue in the place of a JSON key."""
    return ObjectKey.of(brokerName=queue.broker_name, queueId=queue.queue_id, topic=queue.topic)


@dataclass(slots=True, frozen=True)
class QueueTimes:
    """Of one queue; epoch ms, 0 = never."""

    locked: bool
    last_lock_ms: int
    last_pull_ms: int
    last_consume_ms: int


def queue_info(queue: ProcessQueue[Any], times: QueueTimes, *, dropped: bool) -> dict[str, Any]:
    """ProcessQueueInfo: cached messages wait, `transaction` ones an orderly listener has taken."""
    taken = queue.consuming if isinstance(queue, OrderlyQueue) else []
    return {
        "commitOffset": queue.commit_offset,
        "cachedMsgMinOffset": queue.first_offset, "cachedMsgMaxOffset": queue.last_offset,
        "cachedMsgCount": queue.message_count,
        "cachedMsgSizeInMiB": queue.byte_count // (1024 * 1024),
        "transactionMsgMinOffset": taken[0].queue_offset if taken else 0,
        "transactionMsgMaxOffset": taken[-1].queue_offset if taken else 0,
        "transactionMsgCount": len(taken),
        "locked": times.locked, "tryUnlockTimes": 0, "lastLockTimestamp": times.last_lock_ms,
        "droped": dropped, "lastPullTimestamp": times.last_pull_ms,
        "lastConsumeTimestamp": times.last_consume_ms,
    }


def document(
    *, properties: Mapping[str, str], subscriptions: Iterable[Subscription],
    queues: Mapping[MessageQueue, dict[str, Any]], stats: Mapping[str, TopicCounts], now: float,
    stacks: str | None,
) -> bytes:
    """The body of the answer to 307."""
    found: dict[str, Any] = {
        "properties": dict(properties),
        "subscriptionSet": [one.as_json() for one in subscriptions],
        "mqTable": {queue_key(queue): info for queue, info in queues.items()},
        "statusTable": {topic: one.as_json(now) for topic, one in stats.items()},
    }
    if stacks is not None:
        found["jstack"] = stacks
    return fastjson.dumps(found)


def stacks(tasks: Iterable[asyncio.Task[Any]]) -> str:
    """The stacks of all threads, and of the given tasks, as Java's jstack shows them."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        parts.append(f"thread {names.get(ident, ident)}\n" + "".join(traceback.format_stack(frame)))
    for task in tasks:
        parts.append(f"task {task.get_name()}\n" + "".join(_awaits(task.get_coro())))
    return "\n".join(parts)[:STACKS_LENGTH_MAX]


def _awaits(coroutine: Any) -> Iterable[str]:
    """The frames that a coroutine waits in, from the outermost one on."""
    for _ in range(AWAITS_MAX):
        frame = getattr(coroutine, "cr_frame", None)
        if frame is None:
            return
        yield from traceback.format_stack(frame, limit=1)
        coroutine = coroutine.cr_await
