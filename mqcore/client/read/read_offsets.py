"""Where a queue begins, ends, and its offsets at store times."""
from __future__ import annotations

from mqcore.client.consume.pulling import max_offset as max_offset
from mqcore.client.consume.pulling import min_offset as min_offset
from mqcore.client.errors import ClientError, broker_error
from mqcore.client.message import MessageQueue
from mqcore.client.network.pool import client_request
from mqcore.client.roles.instance import ClientInstance
from mqcore.wire.codes import MASTER_ID, PULL_FLAG_SUBSCRIPTION, RequestCode, ResponseCode
from mqcore.wire.command import Ext
from mqcore.wire.numbers import whole_number
from mqcore.wire.records import RecordError, decode_record
from mqcore.wire.tags import EXPRESSION_TAG, SUBSCRIBE_ALL

LOOK_TIMEOUT_S = 6.0
_MOVED = frozenset({ResponseCode.PULL_OFFSET_MOVED, ResponseCode.PULL_RETRY_IMMEDIATELY,
                    ResponseCode.PULL_NOT_FOUND})


async def offset_at_time(
    instance: ClientInstance, group: str, queue: MessageQueue, timestamp_ms: int
) -> int:
    """
    The first offset of a queue that was stored at `timestamp_ms` or later; its end without one.

    By looking at messages: what brokers answer to 29 is the nearest one, which may be earlier.
    Raises RocketMQError.
    """
    low, high = await min_offset(instance, queue), await max_offset(instance, queue)
    while low < high:
        middle = (low + high) // 2
        offset, stored_ms = await _store_time(instance, group, queue, middle)
        if offset >= high:
            high = middle                   # between them nothing is there any more
        elif stored_ms < timestamp_ms:
            low = offset + 1
        else:
            high = middle
    return low


async def _store_time(
    instance: ClientInstance, group: str, queue: MessageQueue, offset: int
) -> tuple[int, int]:
    """The first message at or after an offset: its offset and store time, ms since 1970."""
    address = instance.routes.reader(queue.broker_name, MASTER_ID)
    while True:
        ext: Ext = {
            "consumerGroup": group, "topic": queue.topic, "queueId": str(queue.queue_id),
            "queueOffset": str(offset), "maxMsgNums": "1", "sysFlag": str(PULL_FLAG_SUBSCRIPTION),
            "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": SUBSCRIBE_ALL,
            "subVersion": "0", "expressionType": EXPRESSION_TAG, "bname": queue.broker_name,
        }
        answer = await instance.pool.invoke(
            address, client_request(RequestCode.PULL_MESSAGE, ext), timeout=LOOK_TIMEOUT_S)
        if answer.code == ResponseCode.SUCCESS:
            break
        following = whole_number((answer.ext or {}).get("nextBeginOffset") or "")
        if answer.code not in _MOVED or following is None or following <= offset:
            raise broker_error(answer.code, answer.remark, address, topic=queue.topic)
        offset = following
    try:
        record = decode_record(answer.body)
    except RecordError as error:
        raise ClientError(f"{queue}: {error}", topic=queue.topic) from error
    return record.queue_offset, record.store_timestamp_ms
