"""Where a queue begins, and offsets as a file (client.md 4.7, 4.17)."""
from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from mqcore.client.message import MessageQueue
from mqcore.wire import fastjson


class ConsumeFrom(Enum):
    """Where a group begins that has no offset yet."""

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class Ask(Enum):
    """The question to the broker that comes first."""

    MAX_OFFSET = "max"
    OFFSET_AT_TIME = "time"


def start(stored: int | None, consume_from: ConsumeFrom, *, is_retry_topic: bool) -> int | Ask:
    """The offset to begin with, or the question whose answer it is; `stored` None = nothing.

    The group's retry topic begins at 0: its messages are of the group's own; by a timestamp at its
    end, as in Java.
    """
    if stored is not None:
        return stored
    if is_retry_topic:
        return Ask.MAX_OFFSET if consume_from is ConsumeFrom.TIMESTAMP else 0
    if consume_from is ConsumeFrom.FIRST_OFFSET:
        return 0
    is_time = consume_from is ConsumeFrom.TIMESTAMP
    return Ask.OFFSET_AT_TIME if is_time else Ask.MAX_OFFSET


# -- the file of a broadcasting member -------------------------------------------------------------


def format_offsets(offsets: Mapping[MessageQueue, int]) -> str:
    """The text of offsets.json as Java writes it: tabs, and objects as keys."""
    items = [
        "{\n\t\t\t"
        f'"brokerName":{fastjson.quote(queue.broker_name)},\n\t\t\t"queueId":{queue.queue_id},'
        f'\n\t\t\t"topic":{fastjson.quote(queue.topic)}\n\t\t}}:{offset}'
        for queue, offset in sorted(offsets.items())
    ]
    return '{\n\t"offsetTable":{' + ",".join(items) + "\n\t}\n}"


def parse_offsets(text: str | bytes) -> dict[MessageQueue, int]:
    """Read offsets.json; raises ValueError that says what was expected."""
    document = fastjson.loads(text)
    table = document.get("offsetTable") if isinstance(document, dict) else None
    if not isinstance(table, dict):
        raise ValueError("offsets: offsetTable: expected an object")
    found = {}
    for key, offset in table.items():
        fields = key.as_dict() if isinstance(key, fastjson.ObjectKey) else {}
        match fields:
            case {"topic": str(topic), "brokerName": str(broker), "queueId": int(queue_id)}:
                queue = MessageQueue(topic, broker, queue_id)
            case _:
                raise ValueError(f"offsets: key {key!r}: expected topic, brokerName and queueId")
        if isinstance(offset, bool) or not isinstance(offset, int):
            raise ValueError(f"offsets: {queue}: {offset!r}: expected a number")
        found[queue] = offset
    return found
