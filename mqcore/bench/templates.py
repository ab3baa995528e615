"""
The request frames of the load generator, with the places that it changes from message to message.

A frame is encoded once by mqcore.wire with values that occur nowhere else in it; a place is where
such a value stands. The native engines then copy the frame and write over the places.
"""
from __future__ import annotations

import secrets
import struct

from mqcore.wire.codes import FLAG_ONEWAY, RequestCode
from mqcore.wire.command import Codec, Command, encode

OPAQUE = 1_000_000_000              # mqcore.bench.frames.OPAQUE_FIRST: ten digits, for ever
BORN_MS = "1111111111111"           # as many digits as the epoch has in ms until 2286
UNIQUE = "FEDCBA98"                 # the counted part of UNIQ_KEY
KEYS = "89ABCDEF"                   # the counted part of KEYS
OFFSET = "7777777777"               # a pull's queueOffset
PULL_SUSPEND = 0x2                  # sysFlag bits (remoting.md 4.2.1)
FLAG_SUBSCRIPTION = 0x4
BODY_STAMP_SIZE = 16                # e2e: run id i64, due time i64

Template = tuple[bytes, dict[str, int]]


def _place(frame: bytes, value: bytes) -> int:
    """Where `value` stands; it must stand there once."""
    at = frame.find(value)
    if at < 0 or frame.find(value, at + 1) >= 0:
        raise ValueError(f"{value!r}: expected once in the frame, found {frame.count(value)} times")
    return at


def _opaque_place(frame: bytes, codec: Codec) -> int:
    return _place(frame, str(OPAQUE).encode() if codec == Codec.JSON else struct.pack(">i", OPAQUE))


def send_template(
    topic: str, queue_id: int, body: bytes, *, group: str = "mqcore_bench",
    tags: str | None = "TagA", keys: bool = False, oneway: bool = False,
    codec: Codec = Codec.JSON, wait: bool = True, default_queues: int = 4,
    transactional: bool = False, delay_level: int = 0,
) -> Template:
    """
    A SEND_MESSAGE_V2 like a Java producer's (remoting.md 4.1.2) for one queue.

    keys: also give each message a KEYS property of its own, which brokers index.
    transactional: a half message, which `commit_template` ends.
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
        "f": "4" if transactional else "0", "g": BORN_MS, "h": "0", "i": "\x02".join(properties),
        "j": "0", "k": "false", "m": "false",
    }
    frame = encode(Command(
        code=RequestCode.SEND_MESSAGE_V2, opaque=OPAQUE, flag=FLAG_ONEWAY if oneway else 0,
        ext=ext, body=body, codec=codec))
    head = frame[:len(frame) - len(body)]
    places = {
        "opaque_at": _opaque_place(head, codec), "born_at": _place(head, BORN_MS.encode()),
        "unique_at": _place(head, UNIQUE.encode()), "body_at": len(head) if body else -1,
    }
    if keys:
        places["keys_at"] = _place(head, KEYS.encode())
    return frame, places


def commit_template(group: str = "mqcore_bench") -> tuple[bytes, int, int]:
    """END_TRANSACTION (37, one-way), and where its queue offset and its log position stand."""
    half_offset, position = "1" * 19, "2" * 19
    frame = encode(Command(
        code=RequestCode.END_TRANSACTION, opaque=OPAQUE, flag=FLAG_ONEWAY, ext={
            "producerGroup": group, "tranStateTableOffset": half_offset,
            "commitLogOffset": position, "commitOrRollback": "8", "fromTransactionCheck": "false",
            "msgId": UNIQUE}))
    return frame, _place(frame, half_offset.encode()), _place(frame, position.encode())


def pull_template(
    topic: str, queue_id: int, *, group: str, batch: int, suspend_ms: int = 0, version_ms: int = 0,
    codec: Codec = Codec.JSON,
) -> Template:
    """
    A PULL_MESSAGE (remoting.md 4.2.1) with its subscription in it: it needs no heartbeat.

    suspend_ms: how long the broker may hold it when there is nothing; 0 for an answer at once.
    """
    flags = FLAG_SUBSCRIPTION | (PULL_SUSPEND if suspend_ms else 0)
    ext: dict[str, str | None] = {
        "commitOffset": "0", "consumerGroup": group, "expressionType": "TAG",
        "maxMsgNums": str(batch), "queueId": str(queue_id), "queueOffset": OFFSET,
        "subVersion": str(version_ms), "subscription": "*", "suspendTimeoutMillis": str(suspend_ms),
        "sysFlag": str(flags), "topic": topic,
    }
    frame = encode(Command(code=RequestCode.PULL_MESSAGE, opaque=OPAQUE, ext=ext, codec=codec))
    places = {
        "opaque_at": _opaque_place(frame, codec), "offset_at": _place(frame, OFFSET.encode()),
        "offset_width": len(OFFSET),
    }
    if codec == Codec.ROCKETMQ:
        places["ext_length_at"] = 8 + 17            # words, fixed part, no remark
    return frame, places
