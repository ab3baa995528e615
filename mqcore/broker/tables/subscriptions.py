"""
What heartbeats say: the clients' groups and what they subscribe to (HeartbeatData).

broker.md 7.2, remoting.md 5.2 to 5.4 (RocketMQ 4.9.8: HeartbeatData, ConsumerData, FilterAPI).
Peers differ: enums as names or ordinals, versions as text, empty sets as null or not at all.
"""
from __future__ import annotations

import sys
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from mqcore.broker.request import (
    I32_MAX,
    I32_MIN,
    I64_MAX,
    I64_MIN,
    ROWS_A_TURN,
    FieldError,
)
from mqcore.wire.fastjson import dismantled
from mqcore.wire.numbers import whole_number
from mqcore.wire.tags import EXPRESSION_TAG, SUBSCRIBE_ALL, Subscription, parse_subscription

CLUSTERING, BROADCASTING = "CLUSTERING", "BROADCASTING"
CONSUME_TYPES = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY")
MESSAGE_MODELS = (BROADCASTING, CLUSTERING)
FROM_WHERES = (
    "CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET", "CONSUME_FROM_MAX_OFFSET", "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)
GROUP_COUNT_MAX = 4_096            # in one heartbeat
ENTRY_COUNT_MAX = 65_536           # topics in one group, queues in one lock
TAG_COUNT_MAX = 4_096              # tags in one subscription
EXPRESSION_LENGTH_MAX = 128 << 10  # characters of an expression, or of all tags of a subscription
CLIENT_ID_LENGTH_MAX = 4_096
HEARTBEAT_NAME_MAX = 255           # of a group (as the clients' rule), a broker, a type
CODES_A_TURN = 1_024               # that are read between two pauses ...
CHARACTERS_A_TURN = 16 << 10       # ... or hashed
SUBSCRIPTION_BYTES = 300           # of memory, beside its texts and sets
CODE_BYTES = 32                    # of a number in a set


@dataclass(slots=True, frozen=True)
class ConsumerEntry:
    """One consumer group of a client."""

    group: str
    consume_type: str | None
    message_model: str
    from_where: str | None
    unit_mode: bool
    subscriptions: dict[str, Subscription]


@dataclass(slots=True, frozen=True)
class Heartbeat:
    client_id: str
    producers: tuple[str, ...]
    consumers: tuple[ConsumerEntry, ...]


def parse_heartbeat(body: dict[str, Any]) -> Generator[None, None, Heartbeat]:
    """Read HeartbeatData, with pauses. Raises FieldError naming the member that is wrong."""
    client_id = body.get("clientID")
    if not isinstance(client_id, str) or not client_id:
        raise FieldError("body: clientID is missing: expected text")
    check_length("clientID", client_id, CLIENT_ID_LENGTH_MAX)
    producers = tuple(
        _name(entry, "producerDataSet") for entry in _objects(body, "producerDataSet")
    )
    consumers = []
    for entry in _objects(body, "consumerDataSet"):
        consumers.append((yield from _consumer(entry)))
    return Heartbeat(client_id, producers, tuple(consumers))


def parse_subscription_data(value: dict[str, Any]) -> Subscription:
    """
    Read SubscriptionData. The client's tag codes are kept as they are (stock compares those); when
    it sends none they follow from the expression.
    """
    topic = value.get("topic")
    if not isinstance(topic, str) or not topic:
        raise FieldError("body: subscriptionData.topic is missing: expected text")
    expression = value.get("subString")
    expression = expression if isinstance(expression, str) and expression else SUBSCRIBE_ALL
    kind = value.get("expressionType")
    kind = kind if isinstance(kind, str) and kind else EXPRESSION_TAG
    check_length("subString", expression, EXPRESSION_LENGTH_MAX)
    check_length("expressionType", kind, HEARTBEAT_NAME_MAX)
    version = _whole(value.get("subVersion"), "subVersion", I64_MIN, I64_MAX)
    if kind != EXPRESSION_TAG:
        text = value.get("subString")
        return Subscription(topic, text if isinstance(text, str) else "", version_ms=version,
                            expression_type=kind)
    codes = _list(value, "codeSet")
    if expression == SUBSCRIBE_ALL or not codes:
        return _from_expression(topic, expression, version)
    tags = [str(tag) for tag in _list(value, "tagsSet")]
    if sum(map(len, tags)) > EXPRESSION_LENGTH_MAX:
        raise FieldError(
            f"body: tagsSet: expected at most {EXPRESSION_LENGTH_MAX} characters in all")
    return Subscription(
        topic, expression,
        frozenset(tags),
        frozenset(_whole(code, "codeSet", I32_MIN, I32_MAX) for code in codes),
        version,
    )


def check_length(name: str, text: str, length_max: int) -> None:
    """Raises FieldError for a text that no table is to remember."""
    if len(text) > length_max:
        raise FieldError(
            f"body: {name} has {len(text)} characters: expected at most {length_max}")


def bytes_of(subscription: Subscription) -> int:
    """What a subscription takes of memory, about."""
    size = (SUBSCRIPTION_BYTES + sys.getsizeof(subscription.topic)
            + sys.getsizeof(subscription.expression) + sys.getsizeof(subscription.expression_type))
    if subscription.tags or subscription.codes:
        size += (sys.getsizeof(subscription.tags) + sum(map(sys.getsizeof, subscription.tags))
                 + sys.getsizeof(subscription.codes) + CODE_BYTES * len(subscription.codes))
    return size


def _from_expression(topic: str, expression: str, version_ms: int) -> Subscription:
    if expression.count("||") >= TAG_COUNT_MAX:
        raise FieldError(f"body: subString: expected at most {TAG_COUNT_MAX} tags")
    try:
        return parse_subscription(topic, expression, version_ms)
    except ValueError:
        # Separators alone: stock keeps such a subscription, and no tag ever matches it.
        return Subscription(topic, expression, frozenset(("",)), frozenset((0,)), version_ms)


def _consumer(value: dict[str, Any]) -> Generator[None, None, ConsumerEntry]:
    yield
    subscriptions: dict[str, Subscription] = {}
    turn = 0.0
    for item in _objects(value, "subscriptionDataSet"):
        try:
            subscription = parse_subscription_data(item)
        except FieldError:
            yield from dismantled(subscriptions)
            raise
        subscriptions[subscription.topic] = subscription
        turn += (1 / ROWS_A_TURN + len(subscription.codes) / CODES_A_TURN
                 + len(subscription.expression) / CHARACTERS_A_TURN)
        if turn >= 1:
            turn = 0.0
            yield
    return ConsumerEntry(
        group=_name(value, "consumerDataSet"),
        consume_type=_choice(value.get("consumeType"), CONSUME_TYPES),
        message_model=_choice(value.get("messageModel"), MESSAGE_MODELS) or CLUSTERING,
        from_where=_choice(value.get("consumeFromWhere"), FROM_WHERES),
        unit_mode=value.get("unitMode") in (True, "true"),
        subscriptions=subscriptions,
    )


def _name(value: dict[str, Any], where: str) -> str:
    name = value.get("groupName")
    if not isinstance(name, str) or not name:
        raise FieldError(f"body: {where}: groupName is missing: expected text")
    if where == "producerDataSet":     # those of consumers are folders: requests have them checked
        check_length(f"{where}: groupName", name, HEARTBEAT_NAME_MAX)
    return name


def _objects(value: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """An array of objects; null and absent count as empty."""
    found = value.get(name)
    items = [] if found is None else found
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise FieldError(f"body: {name}: expected an array of objects")
    most = ENTRY_COUNT_MAX if name == "subscriptionDataSet" else GROUP_COUNT_MAX
    if len(items) > most:
        raise FieldError(f"body: {name}: {len(items)} entries, expected at most {most}")
    return items


def _list(value: dict[str, Any], name: str) -> list[Any]:
    found = value.get(name)
    items = [] if found is None else found
    if not isinstance(items, list):
        raise FieldError(f"body: subscriptionData.{name}: expected an array")
    if len(items) > TAG_COUNT_MAX:
        raise FieldError(f"body: {name}: {len(items)} entries, expected at most {TAG_COUNT_MAX}")
    return items


def _choice(value: Any, choices: tuple[str, ...]) -> str | None:
    """An enum by name in any letter case or by ordinal; None for others (remoting.md 5.2)."""
    if isinstance(value, str):
        if value.upper() in choices:
            return value.upper()
        value = whole_number(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(choices):
        return choices[value]
    return None


def _whole(value: Any, name: str, low: int, high: int) -> int:
    number: int | None = None
    if isinstance(value, str):
        number = whole_number(value) if value else 0
    elif value is None or isinstance(value, int):
        number = value or 0
    elif isinstance(value, float) and value.is_integer():
        number = int(value)
    if number is None or not low <= number <= high:
        raise FieldError(
            f"body: {name} is {value!r:.40}: expected a whole number from {low} to {high}"
        )
    return number
