"""Pulling messages and asking for offsets: what consumers are built on (client.md 4.7 to 4.9)."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from mqcore.client.errors import ClientError, broker_error
from mqcore.client.message import MessageQueue, PullStatus
from mqcore.client.native.records import cut
from mqcore.client.network.pool import client_request
from mqcore.client.received import ReceivedMessage
from mqcore.client.roles.instance import ClientInstance
from mqcore.wire.codes import (
    MASTER_ID,
    PULL_FLAG_COMMIT,
    PULL_FLAG_SUBSCRIPTION,
    PULL_FLAG_SUSPEND,
    RequestCode,
    ResponseCode,
)
from mqcore.wire.command import Command, Ext
from mqcore.wire.numbers import whole_number
from mqcore.wire.properties import RETRY_TOPIC
from mqcore.wire.records import RecordError
from mqcore.wire.tags import Subscription

SUSPEND_S = 15.0
PULL_TIMEOUT_S = 30.0
OFFSET_TIMEOUT_S = 5.0
SEARCH_TIMEOUT_S = 6.0

SYS_FLAG_LITE = 0x10
_STATUS = {
    int(ResponseCode.SUCCESS): PullStatus.FOUND,
    int(ResponseCode.PULL_NOT_FOUND): PullStatus.NO_NEW_MESSAGE,
    int(ResponseCode.PULL_RETRY_IMMEDIATELY): PullStatus.NO_MATCHED_MESSAGE,
    int(ResponseCode.PULL_OFFSET_MOVED): PullStatus.OFFSET_ILLEGAL,
}

M = TypeVar("M", bound=ReceivedMessage)


@dataclass(slots=True)
class PullResult(Generic[M]):
    """One answer to a pull; `messages` is already filtered by tag text."""

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int = 0
    messages: list[M] = field(default_factory=list)


@dataclass(slots=True, frozen=True)
class PullRequest:
    """
    queue              as brokers know it
    suspend            seconds that the broker may hold it when there is nothing new; 0 = not at all
    commit_offset      an offset to commit with it (masters only); None = none
    send_subscription  filter by `subscription` itself, not by what heartbeats registered
    timeout            seconds for the answer
    """

    group: str
    queue: MessageQueue
    subscription: Subscription
    offset: int
    count_max: int = 32
    suspend: float = SUSPEND_S
    commit_offset: int | None = None
    send_subscription: bool = False
    broker_id: int = MASTER_ID
    timeout: float = PULL_TIMEOUT_S
    more_flags: int = 0


async def pull(
    instance: ClientInstance, wanted: PullRequest, kind: type[M], shown: MessageQueue,
) -> PullResult[M]:
    """One pull; messages are made of `kind`, from the queue `shown`, as the application knows it.

    Messages whose tag only has an equal hash are left out. Raises RemotingError, BrokerError,
    ClientError for an answer that cannot be read, NoRouteError.
    """
    queue, subscription = wanted.queue, wanted.subscription
    address = instance.routes.reader(queue.broker_name, wanted.broker_id)
    sys_flag = wanted.more_flags
    if wanted.suspend > 0:
        sys_flag |= PULL_FLAG_SUSPEND
    if wanted.send_subscription:
        sys_flag |= PULL_FLAG_SUBSCRIPTION
    if wanted.commit_offset is not None and wanted.broker_id == MASTER_ID:
        sys_flag |= PULL_FLAG_COMMIT
    ext: Ext = {
        "consumerGroup": wanted.group, "topic": queue.topic, "queueId": str(queue.queue_id),
        "queueOffset": str(wanted.offset), "maxMsgNums": str(wanted.count_max),
        "sysFlag": str(sys_flag), "commitOffset": str(wanted.commit_offset or 0),
        "suspendTimeoutMillis": str(round(wanted.suspend * 1000)),
        "subscription": subscription.expression if wanted.send_subscription else None,
        "subVersion": str(subscription.version_ms), "expressionType": subscription.expression_type,
        "bname": queue.broker_name,
    }
    answer = await instance.pool.invoke(
        address, client_request(RequestCode.PULL_MESSAGE, ext), timeout=wanted.timeout,
        close_on_timeout=False,
    )
    status = _STATUS.get(answer.code)
    if status is None:
        raise broker_error(answer.code, answer.remark, address, topic=queue.topic)
    result = PullResult[M](
        status, _number(answer, "nextBeginOffset", address), _number(answer, "minOffset", address),
        _number(answer, "maxOffset", address), _number(answer, "suggestWhichBrokerId", address),
    )
    if status is PullStatus.FOUND:
        try:
            result.messages = cut(answer.body, kind, shown, subscription.tags, result.min_offset,
                                  result.max_offset)
        except RecordError as error:
            raise ClientError(f"pull from {queue}: {error}", broker=address) from error
    return result


def restore_topic(message: ReceivedMessage) -> str:
    """The topic that a message of a retry topic was sent to, as brokers know it."""
    return message.properties.get(RETRY_TOPIC) or message.topic


def _number(answer: Command, name: str, address: str) -> int:
    text = (answer.ext or {}).get(name)
    number = whole_number(text or "")
    if number is None:
        raise ClientError(f"{address} answered {name}={text!r}: expected a number")
    return number


# -- offsets --------------------------------------------------------------------------------------


async def committed_offset(
    instance: ClientInstance, group: str, queue: MessageQueue
) -> int | None:
    """The committed offset of a group in a queue; None: there is none. Raises RocketMQError.

    A broker that refuses to say is none that has nothing: a group that then begins at a queue's end
    would skip what it has not read. Java's client does (client.md 4.17).
    """
    ext: Ext = {
        "consumerGroup": group, "topic": queue.topic, "queueId": str(queue.queue_id),
        "bname": queue.broker_name,
    }
    address = instance.routes.reader(queue.broker_name, MASTER_ID)
    answer = await instance.pool.invoke(
        address, client_request(RequestCode.QUERY_CONSUMER_OFFSET, ext),
        timeout=OFFSET_TIMEOUT_S,
    )
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    if answer.code != ResponseCode.SUCCESS:
        raise broker_error(answer.code, answer.remark, address, topic=queue.topic)
    offset = _number(answer, "offset", address)
    return offset if offset >= 0 else None


async def commit_offset(
    instance: ClientInstance, group: str, queue: MessageQueue, offset: int, *,
    wait: bool = False,
) -> None:
    """Commit an offset: one-way as all clients do, or with `wait` until the broker has it.

    Raises RemotingError; with `wait` BrokerError too.
    """
    ext: Ext = {
        "consumerGroup": group, "topic": queue.topic, "queueId": str(queue.queue_id),
        "commitOffset": str(offset), "bname": queue.broker_name,
    }
    address = instance.routes.reader(queue.broker_name, MASTER_ID)
    command = client_request(RequestCode.UPDATE_CONSUMER_OFFSET, ext)
    if wait:
        await instance.call(address, command, timeout=OFFSET_TIMEOUT_S)
    else:
        await instance.pool.send_oneway(address, command, timeout=OFFSET_TIMEOUT_S)


async def _queue_number(
    instance: ClientInstance, code: RequestCode, queue: MessageQueue, more: Ext | None = None
) -> int:
    ext: Ext = {
        "topic": queue.topic, "queueId": str(queue.queue_id), "bname": queue.broker_name,
        **(more or {}),
    }
    address = instance.routes.master(queue.broker_name)
    answer = await instance.call(
        address, client_request(code, ext), timeout=SEARCH_TIMEOUT_S
    )
    return _number(answer, "offset", address)


async def max_offset(instance: ClientInstance, queue: MessageQueue) -> int:
    """The offset that the next message of a queue gets. Raises RocketMQError."""
    return await _queue_number(instance, RequestCode.GET_MAX_OFFSET, queue)


async def min_offset(instance: ClientInstance, queue: MessageQueue) -> int:
    """The smallest offset that still can be read. Raises RocketMQError."""
    return await _queue_number(instance, RequestCode.GET_MIN_OFFSET, queue)


async def offset_at(instance: ClientInstance, queue: MessageQueue, timestamp_ms: int) -> int:
    """The offset of what was stored around a time (epoch ms). Raises RocketMQError."""
    more: Ext = {"timestamp": str(timestamp_ms)}
    return await _queue_number(instance, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, queue, more)
