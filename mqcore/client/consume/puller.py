"""The pulls of held queues: one at a time for each, as long as there is room (client.md 4.8)."""
from __future__ import annotations

import asyncio
import logging
import time
from typing import Final, Protocol

from mqcore.client.consume import pulling
from mqcore.client.consume.assigned import AssignedQueue
from mqcore.client.consume.rules import Rules
from mqcore.client.core import flow
from mqcore.client.core.rebalance import Limits
from mqcore.client.errors import BrokerError, ConnectError, RocketMQError
from mqcore.client.message import MessageQueue, PullStatus
from mqcore.client.received import ReceivedMessage
from mqcore.client.roles.instance import ClientInstance
from mqcore.wire.codes import MASTER_ID
from mqcore.wire.tags import SUBSCRIBE_ALL, Subscription, parse_subscription

PULL_MARGIN_S = 15.0            # of an answer, behind the time that the broker may hold the pull

log: Final = logging.getLogger("mqcore.client")


class Sink(Protocol):
    """A role's side: it works on messages."""

    def arrived(self, held: AssignedQueue, messages: list[ReceivedMessage]) -> None:
        """New messages of a held queue."""

    def is_busy(self, held: AssignedQueue) -> bool:
        """Whether the application works on its messages right now."""


class Host(Protocol):
    """The member's side: pulls ask it about its queues."""

    subscriptions: dict[str, Subscription]
    filters: dict[str, Subscription]
    limits: Limits
    going: asyncio.Event
    has_room: asyncio.Event

    def is_locked(self, held: AssignedQueue) -> bool: ...

    async def move(self, queue: MessageQueue, offset: int) -> None: ...


class Puller:
    """Pulls the queues of one member."""

    def __init__(self, instance: ClientInstance, rules: Rules, host: Host, sink: Sink) -> None:
        self._instance = instance
        self._rules = rules
        self._host = host
        self._sink = sink

    async def loop(self, held: AssignedQueue) -> None:
        """Pull one queue until it is dropped."""
        broker_id, failures = MASTER_ID, 0
        host, orderly = self._host, self._rules.orderly
        while not held.dropped:
            if flow.full(held.messages, host.limits, orderly=orderly) is not None:
                held.last_pull = time.monotonic()
                await held.room(flow.FULL_LOOK_S)
                continue
            if not (host.going.is_set() and host.has_room.is_set() and held.going.is_set()):
                for event in (host.going, host.has_room, held.going):
                    await event.wait()
                held.last_pull = time.monotonic()
                continue
            if not host.is_locked(held):
                await asyncio.sleep(flow.FAILED_S)
                continue
            topic = held.queue.topic
            subscription = host.subscriptions.get(topic) or host.filters.get(
                topic) or parse_subscription(topic, SUBSCRIBE_ALL)
            try:
                result = await self._pull(held, subscription, broker_id)
            except RocketMQError as error:
                broker_id, failures = MASTER_ID, failures + 1
                await self._after_failure(held, error, failures)
                continue
            except Exception:           # an unforeseen answer must not stop it
                log.exception("what %s answered cannot be read: it is asked again", held.queue)
                await asyncio.sleep(flow.FAILED_S)
                continue
            broker_id, failures = result.suggested_broker_id, 0
            if held.dropped:
                return
            if flow.step(result.status) is flow.NextStep.RESTART:
                log.warning("%s: offset %d moved to %d", held.queue, held.messages.next_offset,
                            result.next_begin_offset)
                self._instance.spawn(host.move(held.queue, result.next_begin_offset))
                return
            self._took(held, result)
            if self._rules.pull_interval and result.status is PullStatus.FOUND:
                await asyncio.sleep(self._rules.pull_interval)

    async def _pull(
        self, held: AssignedQueue, subscription: Subscription, broker_id: int
    ) -> pulling.PullResult[ReceivedMessage]:
        rules = self._rules
        commit = None
        if not rules.broadcast and not rules.manual_commit:
            commit = held.commit_offset
        began = held.last_pull = time.monotonic()
        result = await pulling.pull(self._instance, pulling.PullRequest(
            rules.group, held.queue, subscription, held.messages.next_offset, rules.pull_batch,
            rules.suspend, commit, rules.send_subscription, broker_id,
            rules.suspend + PULL_MARGIN_S, rules.pull_flags), rules.kind, held.shown)
        if commit is not None and broker_id == MASTER_ID and not held.dropped:
            held.committed = commit
        counts = held.counts
        counts.pulls += 1
        counts.pull_s += time.monotonic() - began
        return result

    def _took(self, held: AssignedQueue, result: pulling.PullResult[ReceivedMessage]) -> None:
        if held.queue.topic == self._rules.retry_topic:
            for message in result.messages:
                message.topic = self._instance.unwrap(pulling.restore_topic(message))
        fresh = held.messages.put(result.messages, result.next_begin_offset)
        held.counts.pulled += len(fresh)
        if fresh:
            self._sink.arrived(held, fresh)

    async def _after_failure(
        self, held: AssignedQueue, error: RocketMQError, failures: int
    ) -> None:
        """`failures` one after the other, this one included."""
        code = error.response_code if isinstance(error, BrokerError) else None
        self._instance.doubt_routes(error)
        if code is None:
            held.committed = None       # a broker that ended may have lost what it had not saved
        pause = flow.pause(code)
        if code in flow.FORGOTTEN_CODES and failures == 1:
            log.debug("pulling from %s failed, and is tried behind a heartbeat: %s", held.queue,
                      error)
        elif pause == flow.FAILED_S:
            self._instance.warn(error, "pulling from %s failed: %s", held.queue, error)
        await asyncio.sleep(pause)
        if code in flow.FORGOTTEN_CODES or isinstance(error, ConnectError):
            # A broker forgets a member whose connection ends, and does not wait for the timer.
            await self._instance.send_heartbeats()
