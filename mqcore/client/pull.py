"""Pulling messages and asking for offsets: what consumers are built on (client.md 4.7 to 4.9)."""
from __future__ import annotations

from mqcore.client.errors import ClientError, broker_error
from mqcore.client.instance import ClientInstance
from mqcore.client.message import MessageQueue, PullResult, PullStatus, ReceivedMessage
from mqcore.client.pool import client_request
from mqcore.wire.codes import MASTER_ID, RequestCode, ResponseCode
from mqcore.wire.command import Command, Ext
from mqcore.wire.numbers import whole_number
from mqcore.wire.properties import MAX_OFFSET, MIN_OFFSET
from mqcore.wire.records import RecordError, decode_records
from mqcore.wire.tags import Subscription

SUSPEND_S = 15.0
PULL_TIMEOUT_S = 30.0
OFFSET_TIMEOUT_S = 5.0
SEARCH_TIMEOUT_S = 6.0

_SYS_FLAG_COMMIT = 0x1
_SYS_FLAG_SUSPEND = 0x2
_SYS_FLAG_SUBSCRIPTION = 0x4
_STATUS = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MESSAGE,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MESSAGE,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


async def pull(
    instance: ClientInstance, group: str, queue: MessageQueue, subscription: Subscription,
    offset: int, *, count_max: int = 32, suspend: float = SUSPEND_S,
    commit_offset: int | None = None, send_subscription: bool = False, broker_id: int = MASTER_ID,
    timeout: float = PULL_TIMEOUT_S,
) -> PullResult:
    """One pull from `offset` of a queue.

    suspend            seconds that the broker may hold it when there is nothing new; 0 = not at all
    commit_offset      an offset to commit with it (masters only); None = none
    send_subscription  filter by `subscription` itself, not by what heartbeats registered

    Messages whose tag only has an equal hash are left out. Raises RemotingError,
    BrokerError, ClientError for an answer that cannot be read.
    """
    address = instance.routes.reader(queue.broker_name, broker_id)
    sys_flag = _SYS_FLAG_SUSPEND if suspend > 0 else 0
    sys_flag |= _SYS_FLAG_SUBSCRIPTION if send_subscription else 0
    if commit_offset is not None and broker_id == MASTER_ID:
        sys_flag |= _SYS_FLAG_COMMIT
    ext: Ext = {
        "consumerGroup": group, "topic": queue.topic, "queueId": str(queue.queue_id),
        "queueOffset": str(offset), "maxMsgNums": str(count_max), "sysFlag": str(sys_flag),
        "commitOffset": str(commit_offset or 0), "suspendTimeoutMillis": str(round(suspend * 1000)),
        "subscription": subscription.expression if send_subscription else None,
        "subVersion": str(subscription.version_ms), "expressionType": subscription.expression_type,
        "bname": queue.broker_name,
    }
    answer = await instance.pool.invoke(
        address, client_request(RequestCode.PULL_MESSAGE, ext), timeout=timeout,
        close_on_timeout=False,
    )
    if answer.code not in _STATUS:
        raise broker_error(answer.code, answer.remark, address)
    result = _result(_STATUS[ResponseCode(answer.code)], answer, address)
    if result.status is PullStatus.FOUND:
        result.messages = _messages(answer, queue, subscription, result)
    return result


def _result(status: PullStatus, answer: Command, address: str) -> PullResult:
    return PullResult(
        status, _number(answer, "nextBeginOffset", address), _number(answer, "minOffset", address),
        _number(answer, "maxOffset", address), _number(answer, "suggestWhichBrokerId", address),
    )


def _number(answer: Command, name: str, address: str) -> int:
    text = (answer.ext or {}).get(name)
    number = whole_number(text or "")
    if number is None:
        raise ClientError(f"{address} answered {name}={text!r}: expected a number")
    return number


def _messages(
    answer: Command, queue: MessageQueue, subscription: Subscription, result: PullResult
) -> list[ReceivedMessage]:
    try:
        received = [
            ReceivedMessage.from_record(record, queue) for record in decode_records(answer.body)
            if subscription.matches(record.tags)
        ]
    except RecordError as error:
        raise ClientError(f"pull from {queue}: {error}") from error
    for message in received:
        message.properties[MIN_OFFSET] = str(result.min_offset)
        message.properties[MAX_OFFSET] = str(result.max_offset)
    return received


# -- offsets --------------------------------------------------------------------------------------


async def committed_offset(
    instance: ClientInstance, group: str, queue: MessageQueue
) -> int | None:
    """What a group committed for a queue; None when nothing. Raises RocketMQError."""
    ext: Ext = {
        "consumerGroup": group, "topic": queue.topic, "queueId": str(queue.queue_id),
        "bname": queue.broker_name,
    }
    address = instance.routes.reader(queue.broker_name, MASTER_ID)
    answer = await instance.pool.invoke(
        address, client_request(RequestCode.QUERY_CONSUMER_OFFSET, ext),
        timeout=OFFSET_TIMEOUT_S,
    )
    if answer.code != ResponseCode.SUCCESS:
        return None
    return _number(answer, "offset", address)


async def commit_offset(
    instance: ClientInstance, group: str, queue: MessageQueue, offset: int
) -> None:
    """Commit an offset, one-way as all clients do; raises RemotingError before the write."""
    ext: Ext = {
        "consumerGroup": group, "topic": queue.topic, "queueId": str(queue.queue_id),
        "commitOffset": str(offset), "bname": queue.broker_name,
    }
    address = instance.routes.reader(queue.broker_name, MASTER_ID)
    await instance.pool.send_oneway(
        address, client_request(RequestCode.UPDATE_CONSUMER_OFFSET, ext),
        timeout=OFFSET_TIMEOUT_S,
    )


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
