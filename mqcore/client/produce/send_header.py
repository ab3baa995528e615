"""The fields of a send by its short names (remoting.md 4.1: SendMessageRequestHeaderV2)."""
from __future__ import annotations

from mqcore.client.message import MessageQueue
from mqcore.client.network.route import TEMPLATE_QUEUE_COUNT
from mqcore.wire.codes import TEMPLATE_TOPIC
from mqcore.wire.command import Ext


def send_fields(
    group: str, topic: str, queue: MessageQueue, properties: str, *, born_ms: int, flag: int,
    sys_flag: int = 0, template_topic: str = TEMPLATE_TOPIC,
    template_queue_count: int = TEMPLATE_QUEUE_COUNT, is_batch: bool = False,
    unit_mode: bool = False, reconsume_times: str | None = "0",
    reconsume_times_max: str | None = None,
) -> Ext:
    """The header of SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320).

    group, topic   as brokers know them
    queue          its broker and number; the topic that it names does not count
    properties     as text (store.md 2.5)
    born_ms        epoch milliseconds
    """
    return {
        "a": group, "b": topic, "c": template_topic, "d": str(template_queue_count),
        "e": str(queue.queue_id), "f": str(sys_flag), "g": str(born_ms), "h": str(flag),
        "i": properties, "j": reconsume_times, "k": "true" if unit_mode else "false",
        "l": reconsume_times_max, "m": "true" if is_batch else "false", "n": queue.broker_name,
    }
