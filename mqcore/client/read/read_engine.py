"""
Pulls the queues of a reader: all at a time, each asked again before what it brought is decoded.

A queue is not asked for more while its waiting messages fill its share of the buffer; a broker that
fails is asked again until nothing came of a queue for `timeout` seconds.
"""
from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from functools import partial

from mqcore.client.core.cursor import ANSWERS, Cursor
from mqcore.client.errors import REFUSED_FOR_NOW, BrokerError, RocketMQError, broker_error
from mqcore.client.network.pool import client_request
from mqcore.client.read.pull_link import FLAG_REPLAYS, PullAnswer, PullFrame, PullLink
from mqcore.client.roles.instance import ClientInstance
from mqcore.wire.codes import PULL_FLAG_SUBSCRIPTION, PULL_FLAG_SUSPEND, RequestCode
from mqcore.wire.command import Command, Ext
from mqcore.wire.tags import Subscription

SUSPEND_S = 15.0                    # how long a broker may hold a pull at the end of a queue
ANSWER_S = 15.0                     # over that
RETRY_S = 0.1                       # first pause after a failure; doubled up to the last one
RETRY_MAX_S = 2.0
STUCK_S = 0.02                      # pause after an answer without progress and without reason
EXPIRE_S = 1.0



class ReadEngine:
    """Pulled messages lie in the cursors; `fresh` names those that got something, in that order."""

    def __init__(
        self, instance: ClientInstance, cursors: Sequence[Cursor], subscription: Subscription, *,
        group: str, pull_count: int, buffer_bytes: int, timeout: float,
    ) -> None:
        self.cursors: list[Cursor] = list(cursors)
        self.fresh: deque[Cursor] = deque()
        self.error: RocketMQError | None = None
        self._instance = instance
        self._subscription = subscription
        self._group = group
        self._pull_count = pull_count
        self._share_bytes = buffer_bytes // max(len(self.cursors), 1)
        self._timeout = timeout
        self._news = asyncio.Event()
        self._links: dict[str, PullLink] = {}
        self._opening: set[str] = set()
        self._last: dict[Cursor, tuple[int, PullLink]] = {}     # by which broker id, and link
        self._requests: dict[tuple[Cursor, bool], PullFrame] = {}
        self._loop = asyncio.get_running_loop()
        self._closed = False

    def start(self) -> None:
        """Ask for the first messages of every queue."""
        self._instance.spawn(self._expire())
        for cursor in self.cursors:
            self.ask(cursor)

    def close(self) -> None:
        """End; nothing more comes."""
        self._closed = True
        for link in self._links.values():
            link.close()
        self._news.set()

    @property
    def is_done(self) -> bool:
        """Whether every queue was handed out up to its stop."""
        return all(cursor.is_done for cursor in self.cursors)

    @property
    def is_idle(self) -> bool:
        """Whether nothing more is expected soon."""
        return all(cursor.is_idle or cursor.is_pulled for cursor in self.cursors)

    async def news(self) -> None:
        """Wait until something came, or failed, since the last call."""
        await self._news.wait()
        self._news.clear()

    def check(self) -> None:
        """Raises what went wrong."""
        if self.error is not None:
            raise self.error

    def seek(self, cursor: Cursor, offset: int) -> None:
        """Continue at another offset; an error is forgotten, all that it stopped continue."""
        cursor.seek(offset)
        self.error = None
        for each in self.cursors:
            self.ask(each)

    # -- inside -----------------------------------------------------------------------------------

    def ask(self, cursor: Cursor) -> None:
        """Pull, unless that is under way, not needed, or too much waits."""
        if (cursor.pulling or cursor.ask >= cursor.stop or self._closed
                or cursor.ready_bytes > self._share_bytes or self.error is not None):
            return
        cursor.pulling = True
        broker_id, link = self._last.get(cursor, (-1, None))
        if link is not None and link.is_open and broker_id == cursor.broker_id:
            self._pull(cursor, link)
            return
        try:
            address = self._instance.routes.reader(cursor.queue.broker_name, cursor.broker_id)
        except RocketMQError as error:
            self._loop.call_soon(self._failed, cursor, cursor.generation, error)
            return
        link = self._links.get(address)
        if link is None or not link.is_open:
            cursor.pulling = False
            if address not in self._opening:
                self._opening.add(address)
                self._instance.spawn(self._open(address))
            return
        self._last[cursor] = cursor.broker_id, link
        self._pull(cursor, link)

    def _pull(self, cursor: Cursor, link: PullLink) -> None:
        hold = cursor.is_idle
        request = self._requests.get((cursor, hold))
        if request is None:
            request = self._requests[cursor, hold] = PullFrame(
                partial(self._request, cursor, hold), self._prepare,
                signed=self._instance.config.account is not None)
        link.pull(request, cursor.ask, min(ANSWER_S, self._timeout) + (SUSPEND_S if hold else 0.0),
                  partial(self._answered, cursor, cursor.generation, link.address),
                  partial(self._failed, cursor, cursor.generation))

    def _prepare(self, command: Command) -> None:
        if self._instance.pool.prepare is not None:
            self._instance.pool.prepare(command)

    def _request(self, cursor: Cursor, hold: bool, offset: str) -> Command:
        ext: Ext = {
            "consumerGroup": self._group, "topic": cursor.topic,
            "queueId": str(cursor.queue.queue_id), "queueOffset": offset,
            "maxMsgNums": str(self._pull_count),
            "sysFlag": str(PULL_FLAG_SUBSCRIPTION | (PULL_FLAG_SUSPEND if hold else FLAG_REPLAYS)),
            "commitOffset": "0", "suspendTimeoutMillis": str(round(SUSPEND_S * 1000)),
            "subscription": self._subscription.expression, "subVersion": "0",
            "expressionType": self._subscription.expression_type,
            "bname": cursor.queue.broker_name,
        }
        return client_request(RequestCode.PULL_MESSAGE, ext)

    async def _open(self, address: str) -> None:
        """Connect, then ask for what waited for it."""
        error: RocketMQError | None = None
        try:
            self._links[address] = await self._instance.pool.own_connection(
                address, partial(PullLink, address))
        except RocketMQError as failure:
            error = failure
        finally:
            self._opening.discard(address)
        if self._closed and error is None:
            self._links[address].close()
        for cursor in self.cursors:
            if error is None:
                self.ask(cursor)
            elif not cursor.pulling and not cursor.is_pulled and self._address(cursor) == address:
                cursor.pulling = True
                self._failed(cursor, cursor.generation, error)

    def _address(self, cursor: Cursor) -> str | None:
        try:
            return self._instance.routes.reader(cursor.queue.broker_name, cursor.broker_id)
        except RocketMQError:
            return None

    def _answered(
        self, cursor: Cursor, generation: int, address: str, answer: PullAnswer
    ) -> None:
        if generation != cursor.generation:
            return                              # asked before a seek
        if answer.code not in ANSWERS:
            self._failed(cursor, generation, broker_error(
                answer.code, answer.remark, address, topic=cursor.queue.topic))
            return
        cursor.pulling = False
        cursor.broker_id = answer.broker_id
        was_idle = cursor.is_idle
        try:
            batch = cursor.accept(answer.code, answer.next_offset, answer.min_offset,
                                  answer.max_offset, answer.body)
        except RocketMQError as error:
            self._fail(error)
            return
        if cursor.stuck and not cursor.is_idle:
            self._loop.call_later(STUCK_S, self._ask_later, cursor, generation)
        else:
            self.ask(cursor)
        if batch is not None:
            self.fresh.append(cursor)
        if batch is not None or cursor.is_pulled or cursor.is_idle != was_idle:
            self._news.set()

    def _failed(self, cursor: Cursor, generation: int, error: RocketMQError) -> None:
        """Ask again later, or give up: nothing came for too long, or asking again is no use."""
        if generation != cursor.generation or self._closed:
            return
        now = time.monotonic()
        if cursor.failing_since is None:
            cursor.failing_since = now
        failing_s = now - cursor.failing_since
        if not _may_pass(error) or failing_s >= self._timeout:
            cursor.pulling = False
            self._fail(error)
            return
        self._loop.call_later(min(max(failing_s, RETRY_S), RETRY_MAX_S),
                              self._ask_later, cursor, generation)
        self._instance.spawn(self._find_again(cursor.topic))

    def _ask_later(self, cursor: Cursor, generation: int) -> None:
        if generation == cursor.generation:
            cursor.pulling = False
            self.ask(cursor)

    async def _find_again(self, topic: str) -> None:
        """The broker may have moved; without an answer the old route stays."""
        try:
            await self._instance.routes.refresh(topic)
        except RocketMQError:
            return

    def _fail(self, error: RocketMQError) -> None:
        if self.error is None:
            self.error = error
        self._news.set()

    async def _expire(self) -> None:
        """Until the instance stops, which is the end of the connections, too."""
        try:
            while not self._closed:
                await asyncio.sleep(EXPIRE_S)
                now = time.monotonic()
                for link in list(self._links.values()):
                    link.expire(now)
        finally:
            self.close()


def _may_pass(error: RocketMQError) -> bool:
    """Whether the same pull may succeed later: what a broker says of itself counts (code 1 is most
    often its word on the pull)."""
    if isinstance(error, BrokerError):
        return error.code in REFUSED_FOR_NOW
    return error.retryable
