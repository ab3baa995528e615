"""The asyncio push consumer, clustering model (client.md 4; RocketMQ 4.9.8: DefaultMQPushConsumer).

Each queue that the group's shares give to this member has one pull task; messages go to the
listener in tasks bounded by a semaphore; a queue's offset follows its oldest unfinished message.
"""
from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from enum import Enum
from typing import Any

from mqcore.client import pull as pulling
from mqcore.client.config import client_config
from mqcore.client.core.allocate import allocate_averagely
from mqcore.client.core.options import check_group
from mqcore.client.core.process_queue import ProcessQueue
from mqcore.client.errors import (
    BrokerError,
    ClientError,
    ConnectError,
    RocketMQError,
)
from mqcore.client.instance import ClientInstance
from mqcore.client.listener import ConsumeContext, Listener, call_listener, restore_topic
from mqcore.client.message import MessageQueue, PullStatus, ReceivedMessage
from mqcore.client.pool import client_request
from mqcore.client.role import Role
from mqcore.wire import fastjson
from mqcore.wire.codes import RETRY_PREFIX, RequestCode, ResponseCode
from mqcore.wire.command import Command, response
from mqcore.wire.fastjson import ObjectKey
from mqcore.wire.properties import ORIGIN_MESSAGE_ID
from mqcore.wire.tags import SUBSCRIBE_ALL, Subscription, parse_subscription
from mqcore.wire.topics import BodyError

REBALANCE_INTERVAL_S = 20.0
UNKNOWN_ROUTE_S = 2.0               # while a subscribed topic has no route yet
PERSIST_INTERVAL_S = 5.0
RETRY_PULL_S = 1.0
FLOW_CONTROL_S = 0.02
RESUBMIT_S = 5.0
FULL_S = 0.05
SEND_BACK_TIMEOUT_S = 5.0
CACHED_COUNT_MAX = 1_000            # unfinished messages of one queue
CACHED_BYTES_MAX = 100 * 1024 * 1024
SPAN_MAX = 2_000                    # oldest to newest unfinished offset of one queue
RECONSUME_TIMES_MAX = 16
FORGOTTEN_CODES = frozenset({
    ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
})

log = logging.getLogger("mqcore.client")


class ConsumeFrom(Enum):
    """Where a group without a committed offset starts; `%RETRY%` topics always start at 0."""

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"


class AsyncPushConsumer(Role):
    """One member of a consumer group; use it as `async with AsyncPushConsumer(...)`."""

    def __init__(
        self, group: str, listener: Listener, *, namesrv: str | Sequence[str] | None = None,
        consume_from: ConsumeFrom = ConsumeFrom.LAST_OFFSET, max_concurrency: int = 20,
        consume_batch_size: int = 1, pull_batch_size: int = 32, run_in_thread: bool = False,
        max_reconsume_times: int = RECONSUME_TIMES_MAX, instance_name: str | None = None,
    ) -> None:
        """
        listener           called with 1 to `consume_batch_size` messages and a context; a plain
                           function or a coroutine function. RECONSUME_LATER or an exception sends
                           the messages back; None is success
        max_concurrency    listener calls at a time
        run_in_thread      for listeners that block: call them in a thread, so that heartbeats go on
        Raises ValueError for a bad group, address or number.
        """
        self._group = check_group(group)
        self._listener = listener
        self._consume_from = consume_from
        self._consume_batch_size = _positive(consume_batch_size, "consume_batch_size")
        self._pull_batch_size = _positive(pull_batch_size, "pull_batch_size")
        self._slots = asyncio.Semaphore(_positive(max_concurrency, "max_concurrency"))
        self._run_in_thread = run_in_thread
        self._max_reconsume_times = max_reconsume_times
        self._retry_topic = RETRY_PREFIX + group
        self._subscriptions: dict[str, Subscription] = {}
        self._held: dict[MessageQueue, ProcessQueue] = {}
        self._pulls: dict[MessageQueue, asyncio.Task[None]] = {}
        self._working: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        config = client_config({"namesrv": namesrv, "instance_name": instance_name})
        super().__init__(
            ClientInstance(config, heartbeat=self._heartbeat, masters_only=False),
            f"consumer of group {group}")
        self._instance.on(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._on_members_changed)
        self._instance.on(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self._on_status_asked)

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this member holds now."""
        return sorted(self._held)

    def subscribe(self, topic: str, expression: str = SUBSCRIBE_ALL) -> None:
        """Ask for messages of a topic with these tags (`TagA || TagB`); also while it runs.

        Raises ValueError for a bad expression.
        """
        self._subscriptions[topic] = parse_subscription(topic, expression, _now_ms())
        self._wake.set()

    # -- start and stop ---------------------------------------------------------------------------

    async def _start(self) -> None:
        """Join the group and begin to consume. Raises ClientError without subscription; what
        brokers cannot answer yet is tried again by the timers."""
        if not self._subscriptions:
            raise ClientError("subscribe to a topic before the start")
        self._subscriptions[self._retry_topic] = parse_subscription(
            self._retry_topic, SUBSCRIBE_ALL, _now_ms()
        )
        await self._rebalance()
        self._instance.spawn(self._rebalance_loop())
        self._instance.spawn(self._persist_loop())

    async def _stop(self, timeout: float) -> None:
        """Stop pulling, wait for running listeners, commit, leave the group."""
        for task in self._pulls.values():
            task.cancel()
        await asyncio.gather(*self._pulls.values(), return_exceptions=True)
        if self._working:
            await asyncio.wait(self._working, timeout=timeout / 2)
        for task in self._working:
            task.cancel()
        await self._persist()
        await self._instance.unregister(consumer=self._group)

    def _heartbeat(self) -> dict[str, Any]:
        return {"producerDataSet": [], "consumerDataSet": [{
            "consumeFromWhere": self._consume_from.value, "consumeType": "CONSUME_PASSIVELY",
            "groupName": self._group, "messageModel": "CLUSTERING", "unitMode": False,
            "subscriptionDataSet": [one.as_json() for one in self._subscriptions.values()],
        }]}

    async def _on_members_changed(self, command: Command) -> Command:
        self._wake.set()
        return response(command, ResponseCode.SUCCESS)

    async def _on_status_asked(self, command: Command) -> Command:
        """221: how far this member is in the queues of a topic."""
        topic = (command.ext or {}).get("topic")
        table = {
            ObjectKey.of(brokerName=q.broker_name, queueId=q.queue_id, topic=q.topic):
                held.commit_offset
            for q, held in self._held.items() if q.topic == topic
        }
        body = fastjson.dumps({"consumerTable": {}, "messageQueueTable": table})
        return response(command, ResponseCode.SUCCESS, body=body)

    # -- which queues -----------------------------------------------------------------------------

    async def _rebalance_loop(self) -> None:
        while True:
            read = self._instance.routes.queues_to_read
            all_known = all(read(topic) for topic in self._subscriptions)
            try:
                async with asyncio.timeout(REBALANCE_INTERVAL_S if all_known else UNKNOWN_ROUTE_S):
                    await self._wake.wait()
            except TimeoutError:
                log.debug("rebalancing group %s by the timer", self._group)
            self._wake.clear()
            await self._rebalance()

    async def _rebalance(self) -> None:
        """Take and give up queues so that the shares of all members fit together."""
        for topic in list(self._subscriptions):
            if not self._instance.routes.queues_to_read(topic):
                await self._learn_route(topic)
        await self._instance.send_heartbeats()
        for topic in list(self._subscriptions):
            try:
                share = await self._share(topic)
            except RocketMQError as error:
                log.warning("the share of %s in %s is unknown: %s", self._group, topic, error)
                continue
            if share is not None:
                await self._hold(topic, share)

    async def _learn_route(self, topic: str) -> None:
        try:
            await self._instance.routes.refresh(topic)
        except (RocketMQError, BodyError) as error:
            log.warning("no route of %s: %s", topic, error)

    async def _share(self, topic: str) -> list[MessageQueue] | None:
        """This member's queues of a topic; None while queues or members are unknown."""
        routes = self._instance.routes
        queues = routes.queues_to_read(topic)
        if not queues:
            return None
        address = routes.some_broker(topic)
        answer = await self._instance.call(address, client_request(
            RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": self._group}
        ))
        members = _member_ids(answer, address)
        return allocate_averagely(self.client_id, queues, members) if members else None

    async def _hold(self, topic: str, share: list[MessageQueue]) -> None:
        for queue in [q for q in self._held if q.topic == topic and q not in share]:
            await self._give_up(queue)
        for queue in share:
            if queue in self._held:
                continue
            try:
                start = await self._start_offset(queue)
            except RocketMQError as error:
                log.warning("%s waits for its offset: %s", queue, error)
                continue
            held = self._held[queue] = ProcessQueue(start)
            self._pulls[queue] = self._instance.spawn(self._pull_loop(queue, held))

    async def _give_up(self, queue: MessageQueue) -> None:
        """The queue goes to another member: commit what is done; the rest is theirs."""
        held = self._held.pop(queue)
        held.dropped = True
        task = self._pulls.pop(queue, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()
        if held.has_progress:
            await self._commit(queue, held.commit_offset)

    async def _start_offset(self, queue: MessageQueue) -> int:
        committed = await pulling.committed_offset(self._instance, self._group, queue)
        if committed is not None:
            return committed
        if queue.topic == self._retry_topic or self._consume_from is ConsumeFrom.FIRST_OFFSET:
            return 0
        return await pulling.max_offset(self._instance, queue)

    # -- pulling ----------------------------------------------------------------------------------

    async def _pull_loop(self, queue: MessageQueue, held: ProcessQueue) -> None:
        broker_id = 0
        while not held.dropped:
            if (held.message_count > CACHED_COUNT_MAX or held.byte_count > CACHED_BYTES_MAX
                    or held.span > SPAN_MAX):
                await asyncio.sleep(FULL_S)
                continue
            try:
                result = await pulling.pull(
                    self._instance, self._group, queue, self._subscriptions[queue.topic],
                    held.next_offset, count_max=self._pull_batch_size, broker_id=broker_id,
                    commit_offset=held.commit_offset if held.has_progress else None,
                )
            except RocketMQError as error:
                await self._after_failed_pull(queue, error)
                continue
            broker_id = result.suggested_broker_id
            if result.status is PullStatus.OFFSET_ILLEGAL:
                log.warning("%s: offset %d moved to %d", queue, held.next_offset,
                            result.next_begin_offset)
                await self._restart_at(queue, held, result.next_begin_offset)
                return
            held.put(result.messages, result.next_begin_offset)
            self._dispatch(queue, held, result.messages)

    async def _after_failed_pull(self, queue: MessageQueue, error: RocketMQError) -> None:
        code = error.response_code if isinstance(error, BrokerError) else None
        if code == ResponseCode.FLOW_CONTROL:
            await asyncio.sleep(FLOW_CONTROL_S)
            return
        log.warning("pulling from %s failed: %s", queue, error)
        await asyncio.sleep(RETRY_PULL_S)
        if code in FORGOTTEN_CODES or isinstance(error, ConnectError):
            # A broker forgets a member whose connection ends, and does not wait for the timer.
            await self._instance.send_heartbeats()

    async def _restart_at(self, queue: MessageQueue, held: ProcessQueue, offset: int) -> None:
        """The broker corrected the offset: go on there (it may lie below what was committed)."""
        held.dropped = True
        self._held.pop(queue, None)
        self._pulls.pop(queue, None)
        await self._commit(queue, offset)
        self._wake.set()

    # -- consuming --------------------------------------------------------------------------------

    def _dispatch(
        self, queue: MessageQueue, held: ProcessQueue, messages: list[ReceivedMessage]
    ) -> None:
        for start in range(0, len(messages), self._consume_batch_size):
            chunk = messages[start:start + self._consume_batch_size]
            task = self._instance.spawn(self._consume(queue, held, chunk))
            self._working.add(task)
            task.add_done_callback(self._working.discard)

    async def _consume(
        self, queue: MessageQueue, held: ProcessQueue, messages: list[ReceivedMessage]
    ) -> None:
        """Call the listener until the messages are consumed or sent back."""
        for message in messages:
            restore_topic(message, self._retry_topic)
        remaining = messages
        while remaining and not held.dropped:
            context = ConsumeContext(queue)
            async with self._slots:
                if held.dropped:
                    return
                consumed = await call_listener(
                    self._listener, remaining, context, in_thread=self._run_in_thread
                )
            if held.dropped:
                return          # the new owner gets these messages again
            failed = [] if consumed else await self._send_back(queue, remaining, context)
            held.done(message for message in remaining if message not in failed)
            remaining = failed
            if remaining:
                await asyncio.sleep(RESUBMIT_S)

    async def _send_back(
        self, queue: MessageQueue, messages: list[ReceivedMessage], context: ConsumeContext
    ) -> list[ReceivedMessage]:
        """Ask the broker to deliver messages again later; returns those that it did not take."""
        failed = []
        for message in messages:
            ext = {
                "offset": str(message.commit_log_offset), "group": self._group,
                "delayLevel": str(context.delay_level), "originTopic": message.topic,
                "originMsgId": message.properties.get(ORIGIN_MESSAGE_ID) or message.message_id,
                "unitMode": "false", "maxReconsumeTimes": str(self._max_reconsume_times),
                "bname": queue.broker_name,
            }
            try:
                await self._instance.call(
                    self._instance.routes.master(queue.broker_name),
                    client_request(RequestCode.CONSUMER_SEND_MSG_BACK, dict(ext)),
                    timeout=SEND_BACK_TIMEOUT_S,
                )
            except RocketMQError as error:
                log.warning("sending %s back failed: %s", message.message_id, error)
                message.reconsume_times += 1
                failed.append(message)
        return failed

    # -- offsets ----------------------------------------------------------------------------------

    async def _persist_loop(self) -> None:
        while True:
            await asyncio.sleep(PERSIST_INTERVAL_S)
            await self._persist()

    async def _persist(self) -> None:
        for queue, held in list(self._held.items()):
            if held.has_progress:
                await self._commit(queue, held.commit_offset)

    async def _commit(self, queue: MessageQueue, offset: int) -> None:
        try:
            await pulling.commit_offset(self._instance, self._group, queue, offset)
        except RocketMQError as error:
            log.warning("committing %s failed: %s", queue, error)


def _positive(value: int, name: str) -> int:
    if value < 1:
        raise ValueError(f"{name} = {value}: expected at least 1")
    return value


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _member_ids(answer: Command, address: str) -> list[str]:
    """The client ids in the answer to 38; raises ClientError when it cannot be read."""
    try:
        members = fastjson.loads(answer.body)["consumerIdList"] if answer.body else []
    except (ValueError, KeyError, TypeError) as error:
        raise ClientError(f"{address} answered no list of consumers") from error
    if not isinstance(members, list):
        raise ClientError(f"{address} answered no list of consumers")
    return [str(member) for member in members]
