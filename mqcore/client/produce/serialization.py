"""Bodies that are no bytes: what a producer makes of `send("orders", {"id": 7})`."""
from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, TypedDict

from mqcore.client.core.options import check_known
from mqcore.client.errors import ConfigError
from mqcore.client.message import Message, MessageQueue

Serializer = Callable[[Any], bytes | str]
Selector = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue]

NO_BODY: Final = object()


def to_json(value: object) -> str:
    """JSON in UTF-8, without blanks; raises TypeError and ValueError for what has none."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class MessageFields(TypedDict, total=False):
    """Fields of a message beside topic and body; `Message` says what the fields mean.

    key   one key; `keys` are several
    """

    key: str
    keys: str | Iterable[str]
    tags: str
    properties: Mapping[str, str]
    delay_level: int
    delay: float | timedelta
    deliver_at: datetime
    flag: int
    wait_store: bool


class SendOptions(TypedDict, total=False):
    """How a message is sent; `AsyncProducer.send` says what the options mean."""

    timeout: float | None
    queue: MessageQueue | None
    shard: object
    selector: Selector | None
    arg: object


class SendFields(SendOptions, MessageFields, total=False):
    """The keywords of a send whose message is made on the way."""


def message_of(
    serializer: Serializer, message: Message | str, body: object, fields: Mapping[str, Any],
) -> Message:
    """The message of a send: itself, or one with topic, body and fields; raises ConfigError.

    A body of bytes or str stays unchanged, any other goes through `serializer`.
    """
    if not isinstance(message, str):
        if body is not NO_BODY or fields:
            raise ConfigError("message: expected a topic where a body or fields follow, not"
                              f" {type(message).__name__}")
        return message
    if body is NO_BODY:
        raise ConfigError(f"message: expected a Message, or a topic and a body, not {message!r}")
    check_known(fields, MessageFields.__annotations__, "field")
    given = dict(fields)
    if "key" in given:
        if "keys" in given:
            raise ConfigError("key and keys: expected only one")
        given["keys"] = [given.pop("key")]
    if not isinstance(body, bytes | str | bytearray | memoryview):
        try:
            body = serializer(body)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"body: the serializer does not take it: {error}",
                              topic=message) from error
    return Message(message, body, **given)
