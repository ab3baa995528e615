"""Key-values for a name server: as large, as many and as often as one peer can send them."""
from __future__ import annotations

import random
import time

from mqcore.wire.codes import RequestCode
from mqcore.wire.command import encode, request
from tests.wire_live.peer import Closed, Peer


def put(namesrv_addr: str, namespace: str, key: str, value: str) -> tuple[int, str]:
    with Peer(namesrv_addr) as peer:
        answer = peer.ask(RequestCode.PUT_KV_CONFIG, {
            "namespace": namespace, "key": key, "value": value})
    return answer.code, answer.remark or ""


def flood(namesrv_addr: str, start: int, count: int, value: str) -> None:
    """Put many in one stroke, without waiting for answers; the last is waited for."""
    with Peer(namesrv_addr) as peer:
        peer.send(b"".join(
            encode(request(RequestCode.PUT_KV_CONFIG, {
                "namespace": f"invented{number % 50}", "key": str(number), "value": value},
                oneway=True))
            for number in range(start, start + count)))
        peer.ask(RequestCode.GET_KV_CONFIG, {"namespace": "n", "key": "k"})


def run(broker_addr: str, namesrv_addr: str, seconds: float, rng: random.Random) -> None:
    """Large values and many small ones, for so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            put(namesrv_addr, "invented", str(rng.randrange(100)), "x" * rng.randrange(1 << 23))
            flood(namesrv_addr, rng.randrange(1 << 30), 20, "y" * rng.randrange(1_000))
        except (Closed, TimeoutError):
            continue
