"""
Follows a topic: what is stored in it, as it comes, without a group.

Once a second the ends of its queues are asked for, and what is new is pulled, within bounds of
messages, bytes and requests. Where more came, the newest are shown and the others are counted. So a
reader costs a broker and this process the same whatever a topic gets.
"""
from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Final

from mqcore.admin.shell.grep import Grep, grepping
from mqcore.client import MessageQueue, ReceivedMessage, RocketMQError
from mqcore.client.admin import Unreachable
from mqcore.page.masking import PageAdmin
from mqcore.wire.tags import EXPRESSION_SQL92, EXPRESSION_TAG, Subscription, parse_subscription

ROUND_S: Final = 1.0
SHOWN_MAX: Final = 50                   # messages of one round
LOOKED_MAX: Final = 500                 # that are searched for a key or a text in one round
PULLS_MAX: Final = 64                   # of one round, one after the other
PULLED_MAX: Final = 32
BYTES_MAX: Final = 4 << 20              # of bodies in one round, and the pull that passes it
LIFE_S: Final = 900.0
READERS_MAX: Final = 16                 # of one process


class TooManyReadersError(Exception):
    """There are READERS_MAX readers."""


@dataclass(frozen=True)
class Wanted:
    """
    The filter of a reader.

    tags, sql   filters of brokers; at most one
    key, grep   what is looked for here, in messages as their reader may see them
    """

    topic: str
    tags: str = ""
    sql: str = ""
    key: str = ""
    grep: str = ""

    def subscription(self) -> Subscription:
        """For brokers. Raises ValueError."""
        kind = EXPRESSION_SQL92 if self.sql else EXPRESSION_TAG
        return parse_subscription(self.topic, self.sql or self.tags or "*",
                                  time.time_ns() // 1_000_000, kind)


@dataclass(frozen=True)
class Round:
    """
    The messages of one second.

    messages   the newest last
    left_out   how many of the topic were stored and not looked at, or not shown
    missing    brokers that did not answer
    """

    messages: Sequence[ReceivedMessage] = ()
    left_out: int = 0
    missing: Sequence[Unreachable] = ()


@dataclass
class Readers:
    """The readers of this process."""

    count: int = 0

    async def follow(
        self, admin: PageAdmin, wanted: Wanted, clock: Callable[[], float] = time.monotonic,
    ) -> AsyncGenerator[Round]:
        """A round each second, for LIFE_S. Raises TooManyReadersError, and what admin raises."""
        if self.count >= READERS_MAX:
            raise TooManyReadersError
        self.count += 1
        try:
            await admin.check_search(wanted.topic, wanted.tags, wanted.sql, wanted.key)
            async with grepping(wanted.grep or None) as search:
                reader = _Reader(admin, wanted, wanted.subscription(), search)
                end = clock() + LIFE_S
                while (began := clock()) < end:
                    yield await reader.round()
                    await asyncio.sleep(max(0.0, ROUND_S - (clock() - began)))
        finally:
            self.count -= 1


@dataclass
class _Reader:
    admin: PageAdmin
    wanted: Wanted
    subscription: Subscription
    search: Grep
    positions: dict[MessageQueue, int] | None = None
    _rounds: int = 0                    # another queue is first in each

    async def round(self) -> Round:
        """The new messages of all queues."""
        stats = await self.admin.topic_stats(self.wanted.topic)
        if self.positions is None:
            self.positions = {one.queue: one.max_offset for one in stats.queues}
            return Round(missing=stats.unreachable)
        brokers = {queue.broker_name for queue in self.positions}
        fresh = []
        for one in stats.queues:
            # of a broker that did not answer at first only what comes from now on is new
            new = one.min_offset if one.queue.broker_name in brokers else one.max_offset
            at = self.positions.get(one.queue, new)
            if at > one.max_offset:                 # another life of the queue
                at = one.min_offset
            at = max(at, one.min_offset)
            self.positions[one.queue] = one.max_offset
            if at < one.max_offset:
                fresh.append((one.queue, at, one.max_offset))
        missing = {one.address: one for one in stats.unreachable}
        found, left_out = await self._pulled(fresh, missing) if fresh else ([], 0)
        shown = await self._matching(found)
        return Round(shown[-SHOWN_MAX:], left_out + max(0, len(shown) - SHOWN_MAX),
                     list(missing.values()))

    async def _pulled(
        self, fresh: list[tuple[MessageQueue, int, int]], missing: dict[str, Unreachable],
    ) -> tuple[list[ReceivedMessage], int]:
        """
        The newest messages of some ranges, by store time; and how many were not looked at.

        missing   gets the brokers that do not answer
        """
        targets = {one.name: one for one in await self.admin.readers(self.wanted.topic)}
        looked_max = LOOKED_MAX if self.wanted.key or self.wanted.grep else SHOWN_MAX
        total = sum(end - at for _, at, end in fresh)
        share = max(1, looked_max // len(fresh)) if total > looked_max else total
        first = self._rounds % len(fresh)
        self._rounds += 1
        found: list[ReceivedMessage] = []
        pulls = size = left_out = 0
        for queue, at, end in fresh[first:] + fresh[:first]:
            offset = max(at, end - share)
            left_out += offset - at
            target = targets.get(queue.broker_name)
            while target is not None and target.address not in missing and offset < end and (
                    pulls < PULLS_MAX and size < BYTES_MAX and len(found) < looked_max):
                pulls += 1
                try:
                    messages, following = await self.admin.pulled(
                        target, queue, offset, self.subscription, min(PULLED_MAX, end - offset))
                except RocketMQError as error:
                    missing[target.address] = Unreachable(target.name, target.address, error)
                    break
                found += [one for one in messages if one.queue_offset < end]
                size += sum(one.body_size for one in messages)
                if following <= offset:
                    break
                offset = following
            left_out += max(0, end - offset)
        found.sort(key=lambda one: (one.store_timestamp_ms, one.queue, one.queue_offset))
        return found, left_out

    async def _matching(self, found: list[ReceivedMessage]) -> list[ReceivedMessage]:
        seen = await self.admin.shown(found)
        if self.wanted.key:
            seen = tuple(one for one in seen if self.wanted.key in one.keys)
        if not self.wanted.grep:
            return list(seen)
        return list(compress(seen, await self.search.found([one.body for one in seen])))
