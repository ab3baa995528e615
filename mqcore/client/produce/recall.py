"""Takes a message back before its time of delivery (timer.md 3)."""
from __future__ import annotations

from mqcore.client.errors import ConfigError, broker_error
from mqcore.client.message import RecallResult, SendResult
from mqcore.client.network.pool import client_request
from mqcore.client.roles.instance import ClientInstance
from mqcore.wire.codes import RequestCode, ResponseCode
from mqcore.wire.recall_handle import OUTCOME, HandleError, RecallHandle, RecallOutcome

KNOWN = frozenset(outcome.value for outcome in RecallOutcome) - {RecallOutcome.UNKNOWN.value}


async def recall(
    instance: ClientInstance, group: str, sent: SendResult | str, timeout: float,
) -> RecallResult:
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
    address = instance.routes.master(handle.broker_name)
    answer = await instance.pool.invoke(
        address, client_request(RequestCode.RECALL_MESSAGE, {
            "producerGroup": group, "topic": handle.topic, "recallHandle": text,
            "bname": handle.broker_name}), timeout=timeout)
    ext = answer.ext or {}
    outcome = ext.get(OUTCOME)
    if answer.code != ResponseCode.SUCCESS and outcome not in KNOWN:
        raise broker_error(answer.code, answer.remark, address)
    return RecallResult(ext.get("msgId") or handle.message_id,
                        RecallOutcome(outcome) if outcome in KNOWN else RecallOutcome.UNKNOWN)
