"""Connections from more addresses than the table of [limits] has places for, some of them held."""
from __future__ import annotations

import contextlib
import random
import socket
import time
from collections import deque

from mqcore.wire.codes import RequestCode
from mqcore.wire.command import encode, request

HELD = 500


def address(number: int) -> str:
    """One of the 16 million of this machine; not those that others use."""
    return f"127.{1 + number // 65_536 % 254}.{number // 256 % 256}.{number % 256}"


def connect(broker_addr: str, source: str) -> socket.socket:
    host, _, port = broker_addr.rpartition(":")
    return socket.create_connection((host, int(port)), 10, (source, 0))


def run(broker_addr: str, namesrv_addr: str, seconds: float, rng: random.Random) -> None:
    end = time.monotonic() + seconds
    asked = encode(request(RequestCode.GET_MAX_OFFSET, {"topic": "nowhere", "queueId": "0"}))
    first = rng.randrange(1 << 24)
    held: deque[socket.socket] = deque()
    while time.monotonic() < end:
        one = connect(broker_addr, address(first + rng.randrange(1 << 20)))
        one.sendall(asked)
        held.append(one)
        if len(held) > HELD:
            held.popleft().close()
    for one in held:
        with contextlib.suppress(OSError):
            one.close()
