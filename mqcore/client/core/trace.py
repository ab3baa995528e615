"""The text of trace messages (client.md 7.1): fields end with character 1, records with 2."""
from __future__ import annotations

from collections.abc import Iterable

FIELD_END = "\x01"
RECORD_END = "\x02"


def _record(fields: Iterable[object]) -> str:
    texts = ("null" if field is None else "true" if field is True else "false" if field is False
             else str(field) for field in fields)
    return FIELD_END.join(texts) + RECORD_END


def publish_record(
    *, time_ms: int, region: str, group: str, topic: str, message_id: str, tags: str | None,
    keys: str | None, store_host: str, body_length: int, cost_ms: int, message_type: int,
    offset_message_id: str, success: bool,
) -> str:
    """One try of a send; `cost_ms` is how long it took."""
    return _record(("Pub", time_ms, region, group, topic, message_id, tags, keys, store_host,
                    body_length, cost_ms, message_type, offset_message_id, success))


def before_consume_record(
    *, time_ms: int, region: str, group: str, request_id: str, message_id: str, retry_times: int,
    keys: str | None,
) -> str:
    """One message that a listener is about to get."""
    return _record(("SubBefore", time_ms, region, group, request_id, message_id, retry_times, keys))


def after_consume_record(
    *, request_id: str, message_id: str, cost_ms: int, success: bool, keys: str | None,
    context_code: int, time_ms: int, group: str,
) -> str:
    """One message that a listener got; `cost_ms` is its share of the time."""
    return _record(("SubAfter", request_id, message_id, cost_ms, success, keys, context_code,
                    time_ms, group))


def end_transaction_record(
    *, time_ms: int, region: str, group: str, topic: str, message_id: str, tags: str | None,
    keys: str | None, store_host: str, message_type: int, transaction_id: str, state: str,
    from_check: bool,
) -> str:
    """One decision about a transaction; `state` is its Java name."""
    return _record(("EndTransaction", time_ms, region, group, topic, message_id, tags, keys,
                    store_host, message_type, transaction_id, state, from_check))
