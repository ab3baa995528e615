"""Decodes bodies in a process of its own: one that costs too much is shown as bytes."""
from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from mqcore.admin.shell.limited import Limited, LimitedError
from mqcore.page.decoders import BYTES_MAX, Decoded, Schema, hexed

WORK: Final = "mqcore.page.decoders:work"
SECONDS: Final = 0.5                   # of processor time


def schemas_of(lines: Sequence[str]) -> Mapping[str, Schema]:
    """Topic -> its schema, of lines TOPIC=FILE:MESSAGE."""
    found = {}
    for line in lines:
        topic, _, place = line.partition("=")
        file, _, name = place.rpartition(":")
        found[topic] = Schema(file, name)
    return found


async def decoded(body: bytes, wanted: str = "", schema: Schema | None = None) -> Decoded:
    """`decode` within bounds of processor time and memory."""
    head = json.dumps([wanted, *([schema.file, schema.name] if schema else [])]).encode()
    try:
        async with Limited(WORK, "decoding", SECONDS) as child:
            # a byte more, so that a body is known to be cut
            answer = await child.ask(head + b"\n" + body[:BYTES_MAX + 1])
    except LimitedError as error:
        return Decoded("hex", hexed(body), error.message)
    return Decoded(**json.loads(answer))
