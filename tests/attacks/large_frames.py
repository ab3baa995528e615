"""Heartbeats of 12 MiB without end, on more connections than there are places for such frames."""
from __future__ import annotations

import contextlib
import random
import threading
import time

from mqcore.wire.codes import RequestCode
from tests.wire_live.peer import Closed, Peer

CONNECTIONS = 6
BODY_BYTES = 12 << 20


def send_on(broker_addr: str, body: bytes, end: float) -> None:
    """One connection: the next frame as soon as the last one is answered."""
    with contextlib.suppress(Closed, OSError, TimeoutError), Peer(broker_addr) as peer:
        while time.monotonic() < end:
            peer.ask(RequestCode.HEART_BEAT, None, body)


def run(broker_addr: str, namesrv_addr: str, seconds: float, rng: random.Random) -> None:
    filler = rng.choice([b" " * BODY_BYTES, b"[" * BODY_BYTES, b"x" * BODY_BYTES])
    body = b'{"clientID":"c","consumerDataSet":[]' + filler
    end = time.monotonic() + seconds
    threads = [threading.Thread(target=send_on, args=(broker_addr, body, end), daemon=True)
               for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 60)
