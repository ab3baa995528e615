"""Messages that hold what looks like the log itself: zeros of a tear, records in a body."""
from __future__ import annotations

import random
import struct
import time

from mqcore.wire.records import decode_records
from tests.attacks.after_a_kill import make_topic, raw_messages, send
from tests.wire_live.peer import Peer

TOPIC = "forged-bytes"
ZEROS = "attack\x01" + "\0" * 2000 + "\x02"
FORGED_COUNT = 20
POSITION_AT, BODY_AT = 28, 88            # of a record with IPv4 hosts (docs/formats.md)


def forged(record: bytes, position: int) -> bytes:
    """Copies of a record as they would lie in the body of one at `position`."""
    copies = b""
    for _ in range(FORGED_COUNT):
        one = bytearray(record)
        struct.pack_into(">q", one, POSITION_AT, position + BODY_AT + len(copies))
        copies += one
    return copies


def run(broker_addr: str, namesrv_addr: str, seconds: float, rng: random.Random) -> None:
    """For the soak: one after the other, each where the next record may begin."""
    end = time.monotonic() + seconds
    with Peer(broker_addr) as peer:
        make_topic(peer, TOPIC)
        send(peer, TOPIC, b"a message to copy")
        record = raw_messages(broker_addr, TOPIC, 1)
        first = next(iter(decode_records(record)))
        record = record[:first.size]
        position = first.physical_offset
        while time.monotonic() < end:
            position += rng.randrange(4_096)
            send(peer, TOPIC, forged(record, position), ZEROS if rng.random() < 0.5 else "")
