"""
The request frames of the load generator, with the places that it changes from message to message.

A frame is encoded once by mqcore.wire with values that occur nowhere else in it; a place is where
such a value stands. The native engines then copy the frame, write over the places, and sign it.
"""
from __future__ import annotations

import secrets
import struct
import time
from collections.abc import Sequence
from typing import NamedTuple

from mqcore.bench.signing import Signing
from mqcore.client import Credentials
from mqcore.client.core.signature import SIGNATURE, named, sign, signed_text
from mqcore.wire.codes import FLAG_ONEWAY, PULL_FLAG_SUBSCRIPTION, PULL_FLAG_SUSPEND, RequestCode
from mqcore.wire.command import Codec, Command, encode

OPAQUE = 1_000_000_000              # mqcore.bench.frames.OPAQUE_FIRST: ten digits, for ever
BORN_MS = "1111111111111"           # as many digits as the epoch has in ms until 2286
UNIQUE = "FEDCBA98"                 # the counted part of UNIQ_KEY
KEYS = "89ABCDEF"                   # the counted part of KEYS
OFFSET = "7777777777"               # a pull's queueOffset
BODY_STAMP_SIZE = 16                # e2e: run id i64, due time i64

HALF_OFFSET, POSITION = "1" * 19, "2" * 19          # of a commit
SIGNED = "SIGNATURE+" * 2 + "of/28ch="

# What stands at the places that change from request to request and are signed, beside the body.
_VALUES = {"born_at": BORN_MS, "unique_at": UNIQUE, "keys_at": KEYS, "offset_at": OFFSET,
           "half_at": HALF_OFFSET, "position_at": POSITION}


class Template(NamedTuple):
    """A whole frame, where what changes stands in it, and how it is signed; None: it is not."""

    frame: bytes
    places: dict[str, int]
    signing: Signing | None = None


def _place(frame: bytes, value: bytes) -> int:
    """Where `value` stands; it must stand there once."""
    at = frame.find(value)
    if at < 0 or frame.find(value, at + 1) >= 0:
        raise ValueError(f"{value!r}: expected once in the frame, found {frame.count(value)} times")
    return at


def _opaque_place(frame: bytes, codec: Codec) -> int:
    return _place(frame, str(OPAQUE).encode() if codec == Codec.JSON else struct.pack(">i", OPAQUE))


def _template(
    command: Command, changing: Sequence[str], credentials: Credentials | None,
) -> Template:
    """changing: names of the places that change."""
    values = {name: _VALUES[name].encode() for name in changing}
    if credentials is not None:
        fields = named(command.ext, credentials)
        text = signed_text(fields)
        command.ext = {**fields, SIGNATURE: SIGNED}
    frame = encode(command)
    head = frame[:len(frame) - len(command.body)]
    places = {name: _place(head, value) for name, value in values.items()}
    places["opaque_at"] = _opaque_place(head, command.codec)
    if credentials is None:
        return Template(frame, places)
    parts, done = [], 0
    for at, name in sorted((_place(text, values[name]), name) for name in values):
        parts.append((text[done:at], places[name], len(values[name])))
        done = at + len(values[name])
    parts.append((text[done:], len(head), len(command.body)))
    return Template(frame, places, Signing(
        credentials.secret_key.encode(), parts, _place(head, SIGNED.encode())))


def send_template(
    topic: str, queue_id: int, body: bytes, *, group: str = "mqcore_bench",
    tags: str | None = "TagA", keys: bool = False, oneway: bool = False,
    codec: Codec = Codec.JSON, wait: bool = True, default_queues: int = 4,
    transactional: bool = False, delay_level: int = 0, credentials: Credentials | None = None,
    beforehand: bool = False,
) -> Template:
    """
    A SEND_MESSAGE_V2 like a Java producer's (remoting.md 4.1.2) for one queue.

    keys: also give each message a KEYS property of its own, which brokers index.
    transactional: a half message, which `commit_template` ends. beforehand: all messages say that
    they were born now and have the same UNIQ_KEY, so that the frame is signed once.
    """
    properties = []
    if keys:
        properties.append(f"KEYS\x01order-{KEYS}")
    properties.append(f"UNIQ_KEY\x01{secrets.token_hex(12).upper()}{UNIQUE}")
    properties.append(f"WAIT\x01{'true' if wait else 'false'}")
    if tags:
        properties.append(f"TAGS\x01{tags}")
    if delay_level:
        properties.append(f"DELAY\x01{delay_level}")
    if transactional:
        properties += ["TRAN_MSG\x01true", f"PGROUP\x01{group}"]
    ext: dict[str, str | None] = {
        "a": group, "b": topic, "c": "TBW102", "d": str(default_queues), "e": str(queue_id),
        "f": "4" if transactional else "0",
        "g": str(int(1000 * time.time())) if beforehand else BORN_MS, "h": "0",
        "i": "\x02".join(properties),
        "j": "0", "k": "false", "m": "false",
    }
    command = Command(
        code=RequestCode.SEND_MESSAGE_V2, opaque=OPAQUE, flag=FLAG_ONEWAY if oneway else 0,
        ext=ext, body=body, codec=codec)
    if beforehand:
        if credentials is not None:
            sign(command, credentials)
        made = _template(command, (), None)
    else:
        made = _template(command, ("born_at", "unique_at", *["keys_at"] * keys), credentials)
    made.places["body_at"] = len(made.frame) - len(body) if body else -1
    return made


def commit_template(
    group: str = "mqcore_bench", credentials: Credentials | None = None,
) -> Template:
    """END_TRANSACTION (37, one-way) of a half message."""
    return _template(Command(
        code=RequestCode.END_TRANSACTION, opaque=OPAQUE, flag=FLAG_ONEWAY, ext={
            "producerGroup": group, "tranStateTableOffset": HALF_OFFSET,
            "commitLogOffset": POSITION, "commitOrRollback": "8", "fromTransactionCheck": "false",
            "msgId": UNIQUE}), ("half_at", "position_at"), credentials)


def pull_template(
    topic: str, queue_id: int, *, group: str, batch: int, suspend_ms: int = 0, version_ms: int = 0,
    codec: Codec = Codec.JSON, credentials: Credentials | None = None,
) -> Template:
    """
    A PULL_MESSAGE (remoting.md 4.2.1) with its subscription in it: it needs no heartbeat.

    suspend_ms: how long the broker may hold it when there is nothing; 0 for an answer at once.
    """
    flags = PULL_FLAG_SUBSCRIPTION | (PULL_FLAG_SUSPEND if suspend_ms else 0)
    ext: dict[str, str | None] = {
        "commitOffset": "0", "consumerGroup": group, "expressionType": "TAG",
        "maxMsgNums": str(batch), "queueId": str(queue_id), "queueOffset": OFFSET,
        "subVersion": str(version_ms), "subscription": "*", "suspendTimeoutMillis": str(suspend_ms),
        "sysFlag": str(flags), "topic": topic,
    }
    made = _template(
        Command(code=RequestCode.PULL_MESSAGE, opaque=OPAQUE, ext=ext, codec=codec),
        ("offset_at",), credentials)
    made.places["offset_width"] = len(OFFSET)
    if codec == Codec.ROCKETMQ:
        made.places["ext_length_at"] = 8 + 17       # words, fixed part, no remark
    return made
