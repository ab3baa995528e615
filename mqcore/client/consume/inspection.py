"""Requests of brokers to a member: 40, 220, 221, 307, 309 (client.md 1.10, 4.14, 4.15)."""
from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from mqcore.client.consume.listener import ConsumeStatus, ListenerCall
from mqcore.client.consume.member import GroupMember
from mqcore.client.consume.options import GroupSettings, PushSettings
from mqcore.client.consume.pulling import restore_topic
from mqcore.client.consume.threads import ListenerThreads
from mqcore.client.core.running_info import QueueTimes, document, queue_info, queue_key, stacks
from mqcore.client.errors import RocketMQError
from mqcore.client.message import MessageQueue
from mqcore.client.received import ReceivedMessage
from mqcore.client.roles.instance import ClientInstance
from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode, ResponseCode
from mqcore.wire.command import Command, response
from mqcore.wire.records import RecordError

CLIENT_VERSION = "V4_9_8"       # the one that our requests name
RESET_COUNT_MAX = 100_000

log: Final = logging.getLogger("mqcore.client")


class Inspection:
    """Answers requests of brokers about one member."""

    def __init__(
        self, instance: ClientInstance, member: GroupMember, settings: GroupSettings,
        call: ListenerCall | None = None,
    ) -> None:
        """`call` is the listener for code 309; None: there is none, and 309 is refused."""
        self._instance = instance
        self._member = member
        self._settings = settings
        self._call = call
        self._threads = ListenerThreads(1)
        instance.on(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._members_changed)
        instance.on(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self._reset)
        instance.on(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self._status)
        instance.on(RequestCode.GET_CONSUMER_RUNNING_INFO, self._running_info)
        if call is not None:
            instance.on(RequestCode.CONSUME_MESSAGE_DIRECTLY, self._consume_directly)

    def close(self) -> None:
        self._threads.close()

    async def _members_changed(self, command: Command) -> Command:
        self._member.wake()
        return response(command, ResponseCode.SUCCESS)

    # -- 220, 221 ---------------------------------------------------------------------------------

    async def _reset(self, command: Command) -> Command:
        ext = command.ext or {}
        if ext.get("group") != self._member.rules.group:
            return _unknown(command, ext.get("group"))
        try:
            offsets = _offsets(command.body)
        except ValueError as error:
            log.warning("a reset of offsets cannot be read: %s", error)
            return response(command, ResponseCode.SYSTEM_ERROR, str(error))
        log.info("offsets of %s are reset: %s", self._member.rules.group, offsets)
        self._instance.spawn(self._restart(offsets))
        return response(command, ResponseCode.SUCCESS)

    async def _restart(self, offsets: Mapping[MessageQueue, int]) -> None:
        try:
            await self._member.restart_at(offsets)
        except RocketMQError as error:
            log.warning("offsets of %s could not be reset: %s", self._member.rules.group, error)

    async def _status(self, command: Command) -> Command:
        """221: how far this member is in the queues of a topic."""
        topic = (command.ext or {}).get("topic")
        table = {queue_key(queue): held.messages.commit_offset
                 for queue, held in self._member.held.items() if queue.topic == topic}
        body = fastjson.dumps({"consumerTable": {}, "messageQueueTable": table})
        return response(command, ResponseCode.SUCCESS, body=body)

    # -- 307 --------------------------------------------------------------------------------------

    async def _running_info(self, command: Command) -> Command:
        ext = command.ext or {}
        if ext.get("consumerGroup") != self._member.rules.group:
            return _unknown(command, ext.get("consumerGroup"))
        wanted = ext.get("jstackEnable") == "true"
        return response(command, ResponseCode.SUCCESS, body=self.running_info(stacks_too=wanted))

    def running_info(self, *, stacks_too: bool = False) -> bytes:
        """The document of code 307, with the stacks of threads and tasks if wanted."""
        member = self._member
        now = time.monotonic()
        offset_ms = time.time() - now       # of the monotonic clock

        def epoch_ms(at: float) -> int:
            return round((at + offset_ms) * 1000) if at else 0

        queues = {}
        for queue, held in member.held.items():
            times = QueueTimes(
                member.rules.locks and member.is_locked(held), epoch_ms(held.last_lock),
                epoch_ms(held.last_pull), round(held.last_consume * 1000))
            queues[queue] = queue_info(held.messages, times, dropped=held.dropped)
        return document(
            properties=self._properties(), subscriptions=member.subscriptions.values(),
            queues=queues, stats=member.stats, now=now,
            stacks=stacks(asyncio.all_tasks()) if stacks_too else None)

    def _properties(self) -> dict[str, str]:
        """The options by Java's names (client.md 9.2)."""
        member, settings = self._member, self._settings
        rules, limits = member.rules, member.limits
        push = settings if isinstance(settings, PushSettings) else PushSettings()
        mib = 1024 * 1024

        def topic_limit(value: int | None, unit: int) -> str:
            return "-1" if value is None else str(value // unit)

        return {
            "PROP_NAMESERVER_ADDR": "".join(
                f"{address};" for address in self._instance.name_servers.addresses),
            "PROP_CONSUME_TYPE": rules.consume_type, "PROP_CLIENT_VERSION": CLIENT_VERSION,
            "PROP_CONSUMER_START_TIMESTAMP": str(member.started_ms),
            "PROP_CONSUMEORDERLY": _text(rules.orderly),
            "PROP_THREADPOOL_CORE_SIZE": str(push.concurrency),
            "consumerGroup": rules.group,
            "messageModel": "BROADCASTING" if rules.broadcast else "CLUSTERING",
            "consumeFromWhere": rules.consume_from.value,
            "consumeTimestamp": time.strftime("%Y%m%d%H%M%S",
                                              time.localtime(rules.start_ms / 1000)),
            "allocateMessageQueueStrategy": getattr(
                rules.allocate, "__name__", type(rules.allocate).__name__),
            "consumeThreadMin": str(push.concurrency), "consumeThreadMax": str(push.concurrency),
            "consumeConcurrentlyMaxSpan": str(limits.span_max),
            "pullThresholdForQueue": str(limits.count_max),
            "pullThresholdSizeForQueue": str(limits.bytes_max // mib),
            "pullThresholdForTopic": topic_limit(limits.topic_count_max, 1),
            "pullThresholdSizeForTopic": topic_limit(limits.topic_bytes_max, mib),
            "pullInterval": str(round(rules.pull_interval * 1000)),
            "pullBatchSize": str(rules.pull_batch),
            "consumeMessageBatchMaxSize": str(push.batch),
            "postSubscriptionWhenPull": _text(rules.send_subscription),
            "unitMode": _text(self._instance.config.unit_mode),
            "maxReconsumeTimes": str(settings.max_retries),
            "suspendCurrentQueueTimeMillis": str(round(push.suspend * 1000)),
            "consumeTimeout": str(round(settings.handler_timeout / 60)),
        }

    # -- 309 --------------------------------------------------------------------------------------

    async def _consume_directly(self, command: Command) -> Command:
        """Call the listener with one message; offsets do not move."""
        ext = command.ext or {}
        call = self._call
        if ext.get("consumerGroup") != self._member.rules.group or call is None:
            return _unknown(command, ext.get("consumerGroup"))
        try:
            message = _message(command, self._instance.unwrap)
        except (RecordError, ValueError) as error:
            return response(command, ResponseCode.SYSTEM_ERROR, str(error))
        began = time.monotonic()
        if call.is_async:
            outcome = await call.call([message], message.queue)
        else:
            outcome = await self._threads.run(lambda: call.call_here([message], message.queue))
        orderly = self._member.rules.orderly
        result, remark = "CR_SUCCESS", None
        if outcome.error is not None:
            result, remark = "CR_THROW_EXCEPTION", repr(outcome.error)
        elif outcome.status is ConsumeStatus.COMMIT:
            result = "CR_COMMIT"
        elif outcome.status is ConsumeStatus.ROLLBACK:
            result = "CR_ROLLBACK"
        elif not outcome.is_success:
            result = "CR_LATER"
        return response(command, ResponseCode.SUCCESS, body=fastjson.dumps({
            "order": orderly, "autoCommit": outcome.auto_commit, "consumeResult": result,
            "remark": remark, "spentTimeMills": round((time.monotonic() - began) * 1000),
        }))


def _message(command: Command, unwrap: Callable[[str], str]) -> ReceivedMessage:
    """The record in the body of 309, from the queue that it is stored in."""
    broker_name = (command.ext or {}).get("brokerName") or ""
    found = ReceivedMessage.from_bytes(bytes(command.body), MessageQueue("", broker_name, 0))
    found.queue = MessageQueue(unwrap(found.topic), broker_name, found.stored_queue_id)
    found.topic = unwrap(restore_topic(found))
    return found


def _offsets(body: bytes) -> dict[MessageQueue, int]:
    """The table of 220 in both of its forms; raises ValueError."""
    document = fastjson.loads(body, count_max=RESET_COUNT_MAX * 8)
    table = document.get("offsetTable") if isinstance(document, dict) else None
    rows: list[tuple[Mapping[str, object], object]] = []
    if isinstance(table, list):
        rows = [(one, one.get("offset")) for one in table if isinstance(one, dict)]
    elif isinstance(table, dict):
        rows = [(key.as_dict(), offset) for key, offset in table.items()
                if isinstance(key, fastjson.ObjectKey)]
    found = {}
    for fields, offset in rows:
        match fields:
            case {"topic": str(topic), "brokerName": str(broker), "queueId": int(queue_id)} if (
                    isinstance(offset, int)):
                found[MessageQueue(topic, broker, queue_id)] = offset
            case _:
                raise ValueError(f"offset table: {fields}: expected a queue and an offset")
    if not found:
        raise ValueError("offset table: expected at least one queue")
    return found


def _text(value: bool) -> str:
    return "true" if value else "false"


def _unknown(command: Command, group: str | None) -> Command:
    return response(command, ResponseCode.SYSTEM_ERROR,
                    f"The Consumer Group <{group}> not exist in this consumer")
