"""
The messages that clients send, and how a delivery is compared with what was sent.

A message is a dict as the client programs read it: mode, tags, keys, properties (with `mid`, unique
in its run), body (base64), and if wanted delayLevel and shard.
"""
from __future__ import annotations

import base64
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

Message = dict[str, Any]
Line = dict[str, Any]

COMPRESS_FROM_BYTES = 4096
UNICODE = "snow ☃, 消息队列, Ünïcödé, 😀 and a tab\t."

# Which modes of sending a client has. The C++ client's batch is left out: it marks it in a way that
# a 4.9.8 broker reads as one plain message.
MODES = {
    "java": ("sync", "async", "oneway", "batch"),
    "go": ("sync", "async", "oneway", "batch"),
    "cpp": ("sync", "async", "oneway"),
    "node": ("sync",),
}
CLIENTS = tuple(MODES)

# What clients and brokers of 4.9.8 add; any other property that was not sent is wrong.
SYSTEM_PROPERTIES = frozenset({
    "MIN_OFFSET", "MAX_OFFSET", "UNIQ_KEY", "CLUSTER", "TAGS", "KEYS", "WAIT", "DELAY",
    "REAL_TOPIC", "REAL_QID", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "RECONSUME_TIME",
    "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "MSG_REGION", "TRACE_ON", "PGROUP", "TRAN_MSG",
    "SHARDING_KEY", "txmode", "INSTANCE_ID", "__transactionId__", "TRANSACTION_CHECK_TIMES",
})


def message(
    mid: str, body: bytes | str, mode: str = "sync", *, properties: dict[str, str] | None = None,
    **fields: object,
) -> Message:
    """One message; `fields` may set tags, keys, delayLevel and shard."""
    raw = body.encode() if isinstance(body, str) else body
    properties = {"mid": mid, **(properties or {})}
    text = base64.b64encode(raw).decode()
    return {"mode": mode, "body": text, "properties": properties, **fields}


def plain(mids: Iterable[str], mode: str = "sync") -> list[Message]:
    """Small messages with nothing but an id."""
    return [message(mid, f"body of {mid}", mode) for mid in mids]


def assorted(client: str, prefix: str) -> list[Message]:
    """
    Every kind of message that `client` can send, at least one for each of four queues.

    Bodies: text, Unicode, every byte from 1 to 255 (a C string ends at 0), compressible and random
    ones around and over the 4096 bytes from which clients compress.
    """
    noise = random.Random(prefix)
    long_text = ("all work and no play " * 1500)[:30_000]
    bodies: list[tuple[str, bytes]] = [
        ("text", b"hello"),
        ("unicode", UNICODE.encode()),
        ("bytes", bytes(range(1, 256))),
        ("long-text", long_text.encode()),
        ("long-noise", bytes(noise.randrange(1, 256) for _ in range(9_000))),
        ("at-4095", b"a" * (COMPRESS_FROM_BYTES - 1)),
        ("at-4096", b"b" * COMPRESS_FROM_BYTES),
        ("at-4097", b"c" * (COMPRESS_FROM_BYTES + 1)),
        ("one-byte", b"x"),
    ]
    sent = [
        message(
            f"{prefix}-{name}", body, tags="TagA" if index % 2 else "TagB",
            keys=f"{prefix}-{name} second-{index}",
            properties={"unicode": UNICODE, "spaces": " two  spaces ", "number": str(index)},
        )
        for index, (name, body) in enumerate(bodies)
    ]
    sent.append(message(f"{prefix}-bare", "neither tag nor keys"))
    sent.append(message(f"{prefix}-cjk-tag", "tag of two characters", tags="标签", keys="键-1"))
    for mode in MODES[client]:
        sent += [
            message(f"{prefix}-{mode}-{index}", f"{mode} {index} ☃", mode, tags="TagA",
                    keys=f"{prefix}-{mode}-{index}")
            for index in range(3)
        ]
    return sent


def property_names(messages: Iterable[Message]) -> str:
    """The names of all user properties, for clients that must ask for each by name."""
    return ",".join(sorted({name for sent in messages for name in sent["properties"]}))


def mids(lines: Iterable[Line]) -> list[str]:
    """The ids of messages sent or received, in their order."""
    return [line["properties"].get("mid", "?") for line in lines]


def accepted(lines: Iterable[Line]) -> list[Line]:
    """The deliveries that the consumer did not reject."""
    return [line for line in lines if line.get("accepted", True)]


def assert_same(sent: Sequence[Message], lines: Sequence[Line], topic: str) -> None:
    """
    Every message of `sent` came exactly once, nothing else came, and each is what was sent:
    topic, tags, keys, properties and the bytes of the body.
    """
    expected, seen = Counter(mids(sent)), Counter(mids(lines))
    assert seen == expected, (
        f"missing {sorted((expected - seen).elements())}, "
        f"too many {sorted((seen - expected).elements())}"
    )
    by_mid = {line["properties"]["mid"]: line for line in lines}
    for one in sent:
        mid = one["properties"]["mid"]
        line = by_mid[mid]
        assert line["topic"] == topic, mid
        assert (line.get("tags") or "") == (one.get("tags") or ""), mid
        assert (line.get("keys") or "") == (one.get("keys") or ""), mid
        user = {name: value for name, value in line["properties"].items()
                if name not in SYSTEM_PROPERTIES}
        assert user == one["properties"], mid
        assert base64.b64decode(line["body"]) == base64.b64decode(one["body"]), f"body of {mid}"


def assert_no_queue_twice(lines: Sequence[Line]) -> None:
    """No two deliveries have the same topic, queue and offset."""
    places = Counter((line["topic"], line["queueId"], line["offset"]) for line in lines)
    assert [place for place, count in places.items() if count > 1] == []
