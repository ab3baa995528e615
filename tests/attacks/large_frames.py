"""Heartbeats of 12 MiB without end, on more connections than there are places for such frames."""
from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator

from mqcore.wire.codes import RequestCode
from tests.wire_live.peer import Closed, Peer

CONNECTIONS = 6
BODY_BYTES = 12 << 20


def send_on(broker_addr: str, body: bytes, over: threading.Event) -> None:
    """One connection: the next frame as soon as the last one is answered."""
    with contextlib.suppress(Closed, OSError, TimeoutError), Peer(broker_addr) as peer:
        while not over.is_set():
            peer.ask(RequestCode.HEART_BEAT, None, body)


@contextlib.contextmanager
def sent_without_end(broker_addr: str, rng: random.Random) -> Iterator[list[threading.Thread]]:
    """For the length of the block, by these threads."""
    filler = rng.choice([b" " * BODY_BYTES, b"[" * BODY_BYTES, b"x" * BODY_BYTES])
    body = b'{"clientID":"c","consumerDataSet":[]' + filler
    over = threading.Event()
    threads = [threading.Thread(target=send_on, args=(broker_addr, body, over), daemon=True)
               for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    try:
        yield threads
    finally:
        over.set()
        for thread in threads:
            thread.join(60)


def run(broker_addr: str, namesrv_addr: str, seconds: float, rng: random.Random) -> None:
    end = time.monotonic() + seconds
    with sent_without_end(broker_addr, rng) as threads:
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
