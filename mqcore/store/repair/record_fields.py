"""Fields of a stored record that no checksum covers, and what a repair may make of them."""
from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from mqcore.layout import RECORD_BORN_HOST, RECORD_QUEUE_ID, RECORD_QUEUE_OFFSET, RECORD_SYS_FLAG
from mqcore.store.verify.findings import Field

KNOWN_FLAGS: Final = 0x7FF
TRANSACTION, COMMIT = 0xC, 0x8
BORN_V6, STORE_V6 = 0x10, 0x20
PORT_MASK: Final = 0xFFFF

Claim = tuple[bytes, int, int]           # topic, queue id, queue offset


class _Places:
    """Where the fields lie that hosts and body move (store.md 2.1)."""

    def __init__(self, raw: bytes | bytearray) -> None:
        flags = struct.unpack_from(">i", raw, RECORD_SYS_FLAG)[0]
        self.kind = flags & TRANSACTION
        at = RECORD_BORN_HOST + (20 if flags & BORN_V6 else 8)
        self.born_port = at - 4
        self.store_time = at
        at += 8 + (20 if flags & STORE_V6 else 8)
        self.store_port = at - 4
        self.reconsume = at
        body = at + 16
        self.topic_length = body + struct.unpack_from(">i", raw, at + 12)[0]
        self.topic = self.topic_length + 1
        self.properties = self.topic + raw[self.topic_length] + 2


def claim_of(raw: bytes) -> Claim:
    """What a whole record says of its queue."""
    places = _Places(raw)
    queue_id, _, offset = struct.unpack_from(">iiq", raw, RECORD_QUEUE_ID)
    return raw[places.topic:places.topic + raw[places.topic_length]], queue_id, offset


def patched(raw: bytes, field: int, claims: Sequence[Claim], time_ms: int) -> bytes | None:
    """
    A whole record with one field put right; None: nothing says how.

    field: FIELD_*; claims: what queue entries say of the place; time_ms: store time of a neighbour.
    """
    if not raw:
        return None
    made = bytearray(raw)
    places = _Places(raw)
    if field in (Field.FIELD_QUEUE_ID, Field.FIELD_QUEUE_OFFSET, Field.FIELD_TOPIC):
        if field == Field.FIELD_QUEUE_OFFSET and places.kind not in (0, COMMIT):
            struct.pack_into(">q", made, RECORD_QUEUE_OFFSET, 0)
        else:
            fitting = [one for one in claims if len(one[0]) == raw[places.topic_length]]
            if len(fitting) != 1:
                return None
            topic, queue_id, offset = fitting[0]
            struct.pack_into(">i", made, RECORD_QUEUE_ID, queue_id)
            struct.pack_into(">q", made, RECORD_QUEUE_OFFSET, offset)
            made[places.topic:places.topic + len(topic)] = topic
    elif field == Field.FIELD_SYS_FLAG:
        flags = struct.unpack_from(">i", raw, RECORD_SYS_FLAG)[0]
        struct.pack_into(">i", made, RECORD_SYS_FLAG, flags & KNOWN_FLAGS)
    elif field == Field.FIELD_STORE_TIME:
        struct.pack_into(">q", made, places.store_time, max(time_ms, 1))
    elif field in (Field.FIELD_BORN_PORT, Field.FIELD_STORE_PORT):
        at = places.born_port if field == Field.FIELD_BORN_PORT else places.store_port
        struct.pack_into(">i", made, at, struct.unpack_from(">i", raw, at)[0] & PORT_MASK)
    elif field == Field.FIELD_RECONSUME_TIMES:
        struct.pack_into(">i", made, places.reconsume, 0)
    elif field == Field.FIELD_MULTI_DISPATCH:                    # it stays in its own queue alone
        kept = bytes(made[places.properties:]).replace(b"INNER_MULTI_", b"OUTER_MULTI_")
        made[places.properties:] = kept
    return bytes(made) if made != raw else None
