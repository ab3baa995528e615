"""Takes a message back before its time of delivery (timer.md 3)."""
from __future__ import annotations

from mqcore.client.errors import ConfigError
from mqcore.client.message import SendResult
from mqcore.client.network.pool import client_request
from mqcore.client.roles.instance import ClientInstance
from mqcore.wire.codes import RequestCode
from mqcore.wire.recall_handle import HandleError, RecallHandle


async def recall(
    instance: ClientInstance, group: str, sent: SendResult | str, timeout: float,
) -> str:
    """What `AsyncProducer.recall` says."""
    text = sent.recall_handle if isinstance(sent, SendResult) else sent
    if not isinstance(text, str) or not text:
        raise ConfigError("sent: expected the result of a send with a time of delivery, or its"
                          f" recall_handle, not {sent!r}")
    try:
        handle = RecallHandle.read(text)
    except HandleError as error:
        raise ConfigError(f"recall_handle {text[:40]!r}: {error}") from None
    await instance.routes.queues_to_publish(handle.topic, timeout=timeout)
    answer = await instance.call(
        instance.routes.master(handle.broker_name), client_request(RequestCode.RECALL_MESSAGE, {
            "producerGroup": group, "topic": handle.topic, "recallHandle": text,
            "bname": handle.broker_name}), timeout=timeout)
    return (answer.ext or {}).get("msgId") or handle.message_id
