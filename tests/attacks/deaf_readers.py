"""Connections that ask for messages and never read them, and frames that never end."""
from __future__ import annotations

import contextlib
import random
import struct
import time

from mqcore.wire.command import Codec, encode, request
from tests.hostile.crowd import push
from tests.wire_live.peer import Peer, pull_fields
from tests.wire_live.state import State

FRAME_LENGTH = 16 << 20
CONNECTIONS_MAX = 200


def run(broker_addr: str, namesrv_addr: str, seconds: float, rng: random.Random) -> None:
    end = time.monotonic() + seconds
    topic = f"Deaf{rng.randrange(1 << 32)}"
    with State(broker_addr) as peer:
        peer.topic(topic, 1)
        for _ in range(20):
            peer.message(topic, body=b"y" * 8_000)
    pulls = encode(request(11, pull_fields(topic), codec=Codec.ROCKETMQ)) * 200
    with contextlib.ExitStack() as opened:
        for _ in range(CONNECTIONS_MAX):
            if time.monotonic() > end:
                break
            deaf = opened.enter_context(Peer(broker_addr, receive_buffer_bytes=4_096))
            push(deaf.socket, pulls, patience_s=0.005)
            other = opened.enter_context(Peer(rng.choice([broker_addr, namesrv_addr])))
            with contextlib.suppress(ConnectionError):
                other.socket.sendall(struct.pack(">II", FRAME_LENGTH - 4, 100) + bytes(1 << 20))
