"""Crowds that ask for what is looked up and go at once, again and again."""
from __future__ import annotations

import random
import time

from mqcore.wire.codes import RequestCode
from mqcore.wire.command import encode, request
from tests.wire_live.peer import Peer

CROWD = 50


def ask_and_go(address: str, count: int = CROWD) -> None:
    look = encode(request(RequestCode.GET_BROKER_RUNTIME_INFO))
    peers = [Peer(address) for _ in range(count)]
    for peer in peers:
        peer.send(look)
    for peer in peers:
        peer.close()


def run(broker_addr: str, namesrv_addr: str, seconds: float, rng: random.Random) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ask_and_go(broker_addr)
