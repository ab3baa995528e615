"""Frames of 16 MiB that are declared and come a byte at a time, on many connections."""
from __future__ import annotations

import contextlib
import random
import struct
import threading
import time

from mqcore.layout import FRAME_LENGTH_MAX
from tests.hostile.crowd import crowd

COUNT = 300


def run(broker_addr: str, namesrv_addr: str, seconds: float, rng: random.Random) -> None:
    end, pause = time.monotonic() + seconds, threading.Event()
    with crowd(rng.choice([broker_addr, namesrv_addr]), COUNT) as sockets:
        for one in sockets:
            one.setblocking(False)
            one.send(struct.pack(">I", FRAME_LENGTH_MAX))
        while time.monotonic() < end:
            for one in rng.sample(sockets, COUNT // 10):
                with contextlib.suppress(OSError):          # the broker may have enough of it
                    one.send(b"{")
            pause.wait(0.02)
