"""
What a pull selects by: the subscription that it brings, or that of its group's heartbeats.

broker.md 6.1 steps 5 to 7 (RocketMQ 4.9.8: PullMessageProcessor, FilterAPI,
ConsumerFilterManager).
Expressions that a serving process cannot read by itself are put into shared memory here, and the
pull may run then.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from mqcore.broker.tables.config_table import TablesFull
from mqcore.broker.tables.filters import compiled
from mqcore.broker.tables.subscriptions import BROADCASTING
from mqcore.layout import REQUEST_TEXT_MAX, SUBSCRIPTION_CODE_COUNT_MAX
from mqcore.wire.codes import ResponseCode
from mqcore.wire.sql92_tokens import SqlLimit
from mqcore.wire.tags import EXPRESSION_TAG, parse_subscription

if TYPE_CHECKING:
    from mqcore.broker.core import Core
    from mqcore.broker.requests.pull_header import PullHeader
    from mqcore.broker.tables.groups import GroupConfig

CODES_READ_MAX = SUBSCRIPTION_CODE_COUNT_MAX      # tags that serving takes from an expression ...
TEXT_READ_MAX = 9_000           # ... of so many characters, whatever the bytes of each

Refusal = tuple[ResponseCode, str]


def given_expression(core: Core, header: PullHeader, now_ms: int) -> Refusal | None:
    """The pull brings its own subscription (step 5)."""
    if header.expression_type == EXPRESSION_TAG:
        return _given_tags(core, header, now_ms)
    expression = header.expression or ""
    if not expression:
        return ResponseCode.SUBSCRIPTION_PARSE_FAILED, (
            f"header field subscription is empty: expected an expression of type"
            f" {header.expression_type:.40}"
        )
    if not core.settings.broker.property_filter_enable:
        return not_enabled(header.expression_type)
    try:
        program = compiled(expression, header.expression_type).program
    except SqlLimit as error:
        return ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)
    except ValueError:
        program = None                 # as in stock, such an expression lets everything pass
    return _show(core, header, now_ms, program=program)


def known_expression(core: Core, header: PullHeader, group: GroupConfig) -> Refusal | None:
    """The subscription is the one of the group's heartbeats (step 6)."""
    online = core.clients.consumers.get(header.group)
    if online is None:
        return (ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"consumer group {header.group} has sent no heartbeat")
    if online.message_model == BROADCASTING and not group.consume_broadcast_enable:
        return ResponseCode.NO_PERMISSION, f"consumer group {header.group} may not broadcast"
    subscription = online.subscriptions.get(header.topic)
    if subscription is None:
        return (ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"consumer group {header.group} does not subscribe topic {header.topic}")
    if subscription.version_ms < header.version_ms:
        return (ResponseCode.SUBSCRIPTION_NOT_LATEST,
                "the consumer's subscription not latest")
    if subscription.expression_type == EXPRESSION_TAG:
        return None
    data = core.filters.get(header.group, header.topic)
    if data is None:
        return (ResponseCode.FILTER_DATA_NOT_EXIST,
                f"consumer group {header.group} has no filter for topic {header.topic}: its"
                f" expression does not compile")
    if data.version_ms < header.version_ms:
        return (ResponseCode.FILTER_DATA_NOT_LATEST,
                f"the filter of consumer group {header.group} for topic {header.topic} is older"
                f" than the pull's subscription")
    if not core.settings.broker.property_filter_enable:
        return not_enabled(subscription.expression_type)
    return None


def _given_tags(core: Core, header: PullHeader, now_ms: int) -> Refusal | None:
    try:
        subscription = parse_subscription(header.topic, header.expression)
    except ValueError as error:
        return ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)
    parts = (header.expression or "").count("||") + 1
    if parts <= CODES_READ_MAX and len(header.expression or "") <= TEXT_READ_MAX:
        return None
    return _show(core, header, now_ms, codes=subscription.codes)


def _show(
    core: Core, header: PullHeader, now_ms: int, program: bytes | None = None,
    codes: frozenset[int] | None = None,
) -> Refusal | None:
    text = header.expression or ""
    length = len(header.expression_type.encode("utf-8", "replace")) + 1 + len(
        text.encode("utf-8", "replace"))
    if length > REQUEST_TEXT_MAX:
        return ResponseCode.SUBSCRIPTION_PARSE_FAILED, (
            f"header field subscription: type and expression have {length} bytes, expected at"
            f" most {REQUEST_TEXT_MAX}"
        )
    try:
        core.ports.tables.publish_request(
            header.expression_type, text, now_ms, program=program, codes=codes)
    except TablesFull as error:
        return ResponseCode.SYSTEM_BUSY, f"[OVERLOAD]{error}, try again later"
    return None


def not_enabled(expression_type: str) -> Refusal:
    return ResponseCode.SYSTEM_ERROR, (
        f"filter expressions of type {expression_type:.40} are not enabled on this broker"
        " (broker.property_filter_enable)"
    )
