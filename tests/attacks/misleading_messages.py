"""
Messages that look like damage or like other messages: properties of zeros, bodies of whole log
records. Each is valid, and is taken.
"""
from __future__ import annotations

import random
import struct
import time

from mqcore.layout import MAGIC_BLANK, MAGIC_MESSAGE
from mqcore.wire.codes import RequestCode
from tests.wire_live.peer import Peer, send_fields, topic_fields

TOPIC = "misleading"
BODY_BYTES_MAX = 60_000
HEAD = struct.Struct(">ii")


def run(broker_addr: str, namesrv_addr: str, seconds: float, rng: random.Random) -> None:
    """Send them for so long; each has to be answered with code 0, or refused for a full disk."""
    end = time.monotonic() + seconds
    with Peer(broker_addr) as peer:
        peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(TOPIC, 4))
        while time.monotonic() < end:
            zeros = "\0" * rng.choice([1, 3, 511, 2_000, 20_000])
            fields = send_fields(TOPIC, queue_id=rng.randrange(4), properties=rng.choice(
                [f"zeros\x01{zeros}\x02", zeros, f"a\x01b\x02{zeros}"]))
            body = HEAD.pack(rng.randrange(91, 200), rng.choice([MAGIC_MESSAGE, MAGIC_BLANK]))
            body = (body + rng.randbytes(rng.randrange(200))) * rng.randrange(1, 50)
            answer = peer.ask(RequestCode.SEND_MESSAGE_V2, fields, body[:BODY_BYTES_MAX])
            assert answer.code in (0, 14), (answer.code, answer.remark)
