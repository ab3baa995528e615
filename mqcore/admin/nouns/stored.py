"""A stored message as commands print it: one document, the same in and out."""
from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

from mqcore.admin.shell import units
from mqcore.admin.shell.view import Column, Facts, Part, Text
from mqcore.client import ReceivedMessage
from mqcore.wire.records import RecordError

PREVIEW_CHARACTERS = 80
BODY_LINES = 200


def document_of(message: ReceivedMessage) -> dict[str, Any]:
    """
    The document of a message.

    `body` has a body of UTF-8, `bodyBase64` another one, `brokenBody` one that cannot be
    decompressed, in the words of the error.
    """
    shown: dict[str, Any] = {
        "topic": message.topic, "messageId": message.message_id,
        "offsetMessageId": message.offset_message_id, "broker": message.queue.broker_name,
        "queueId": message.queue.queue_id, "queueOffset": message.queue_offset,
        "tags": message.tags, "keys": message.keys, "bornTimestamp": message.born_timestamp_ms,
        "storeTimestamp": message.store_timestamp_ms,
        "bornHost": ":".join(map(str, message.born_host)),
        "reconsumeTimes": message.reconsume_times, "properties": dict(message.properties),
    }
    try:
        body = message.body
    except RecordError as error:
        return {**shown, "brokenBody": str(error)}
    try:
        shown["body"] = body.decode()
    except UnicodeDecodeError:
        shown["bodyBase64"] = base64.b64encode(body).decode()
    return shown


def body_of(document: dict[str, Any]) -> str:
    """The body's text for people; what is no text is named with its size."""
    if "body" in document:
        return str(document["body"])
    if "bodyBase64" in document:
        return f"<{units.size(len(base64.b64decode(document['bodyBase64'])))}, no UTF-8>"
    return f"<cannot be decompressed: {document['brokenBody']}>"


def preview(document: dict[str, Any]) -> str:
    """The beginning of the body on one line."""
    text = " ".join(body_of(document).split())
    return text if len(text) <= PREVIEW_CHARACTERS else text[:PREVIEW_CHARACTERS - 3] + "..."


def row_of(document: dict[str, Any]) -> dict[str, Any]:
    """A document with the fields of its row in a table."""
    return {
        **document, "preview": preview(document),
        "place": f"{document['broker']}/{document['queueId']}/{document['queueOffset']}",
        "stored": document["storeTimestamp"] / 1000,
    }


ROWS = (
    Column("STORED", "stored", units.moment), Column("PLACE", "place"), Column("TAG", "tags"),
    Column("KEYS", "keys"), Column("TRIES", "reconsumeTimes", right=True, wide=True),
    Column("ID", "messageId", wide=True), Column("BODY", "preview"),
)


def parts_of(document: dict[str, Any]) -> list[Part]:
    """One message whole: what it is, its properties, its body."""
    facts = [
        ("topic", document["topic"]), ("id", document["messageId"]),
        ("offset id", document["offsetMessageId"]),
        ("place", f"{document['broker']}, queue {document['queueId']}, "
                  f"offset {document['queueOffset']}"),
        ("tag", document["tags"] or "-"), ("keys", ", ".join(document["keys"]) or "-"),
        ("born", f"{moment(document['bornTimestamp'])} at {document['bornHost']}"),
        ("stored", moment(document["storeTimestamp"])),
        ("tries before", document["reconsumeTimes"]),
    ]
    properties = sorted(document["properties"].items())
    lines = body_of(document).splitlines() or [""]
    left = len(lines) - BODY_LINES
    more = [f"... and {left} lines more; --body-to FILE writes all of the body"] if left > 0 else []
    return [Facts(facts), Facts(properties, "properties"), Text(["body", *lines[:BODY_LINES],
                                                                 *more])]


def moment(milliseconds: int) -> str:
    """A time to the millisecond; a sender may give any number."""
    try:
        at = datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone()
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"
    return at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + at.strftime(" %Z")
