"""Message properties: the string in send headers and records, and its dict (remoting.md 6.1)."""
from __future__ import annotations

from collections.abc import Mapping

NAME_END = "\x01"
ITEM_END = "\x02"
LENGTH_MAX = 32_767         # encoded bytes: the stored length is an i16

KEYS = "KEYS"
TAGS = "TAGS"
WAIT = "WAIT"
DELAY = "DELAY"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_PROPERTIES = (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)     # of 5.x
UNIQ_KEY = "UNIQ_KEY"
RETRY_TOPIC = "RETRY_TOPIC"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
TRANSACTION_PREPARED = "TRAN_MSG"
CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
PRODUCER_GROUP = "PGROUP"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
CLUSTER = "CLUSTER"
INSTANCE_ID = "INSTANCE_ID"
CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TTL = "TTL"
ARRIVE_TIME = "ARRIVE_TIME"
MESSAGE_TYPE = "MSG_TYPE"
REPLY = "reply"                 # the MESSAGE_TYPE of a reply
MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"

# What an application may not set as a property of its own (client.md 2.14).
RESERVED = frozenset((
    "TRACE_ON", "MSG_REGION", "KEYS", "TAGS", "WAIT", "DELAY", "RETRY_TOPIC", "REAL_TOPIC",
    "REAL_QID", "TRAN_MSG", "PGROUP", "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID",
    "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "RECONSUME_TIME",
    "UNIQ_KEY", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "INSTANCE_ID", "CORRELATION_ID",
    "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME", "CLUSTER", "MSG_TYPE",
    "INNER_MULTI_QUEUE_OFFSET", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS",
    "TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "TIMER_DEL_UNIQKEY",
))


def user_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Those that are an application's own."""
    return {name: value for name, value in properties.items() if name not in RESERVED}


def decode_properties(text: str | bytes | memoryview) -> dict[str, str]:
    """Read a properties string; items without a name or a value vanish, the last duplicate wins."""
    if not isinstance(text, str):
        text = str(text, "utf-8", "replace")
    properties = {}
    for item in text.split(ITEM_END):
        name, found, value = item.partition(NAME_END)
        if found and name and value:
            properties[name] = value
    return properties


def encode_properties(properties: Mapping[str, str | None]) -> str:
    """Write a properties string as Java does: null values left out, no separator at the end.

    Raises ValueError when a name or value contains a separator: it would read back differently.
    """
    items = []
    for name, value in properties.items():
        if value is None:
            continue
        if NAME_END in name or ITEM_END in name or ITEM_END in value:
            raise ValueError(f"property {name!r}: expected no characters 1 and 2")
        items.append(f"{name}{NAME_END}{value}")
    return ITEM_END.join(items)
