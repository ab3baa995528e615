"""
An attacker: sends what Mutator makes, from one process, until it is told to stop.

    python -m tests.hostile.attack HOST:PORT broker|namesrv SEED SECONDS

It reads some of the answers, closes some connections itself and opens a new one whenever the server
closes one. Its last line is a JSON object of counts.
"""
from __future__ import annotations

import contextlib
import json
import socket
import sys
import time
from collections import Counter

from tests.hostile.mutate import Mutator

PIECES_PER_CONNECTION = 50
SEND_TIMEOUT_S = 0.5
READ_BYTES = 1 << 16


def attack(address: str, peer: str, seed: int, seconds: float) -> Counter[str]:
    """Returns how much was sent and how it ended: connections, pieces, bytes, closed, stuck."""
    host, _, port = address.rpartition(":")
    mutator = Mutator(seed, peer)
    counts: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        counts["connections"] += 1
        with contextlib.closing(socket.create_connection((host, int(port)), 5)) as connection:
            connection.settimeout(SEND_TIMEOUT_S)
            _talk(connection, mutator, counts, end)
    return counts


def _talk(connection: socket.socket, mutator: Mutator, counts: Counter[str], end: float) -> None:
    for number in range(PIECES_PER_CONNECTION):
        if time.monotonic() > end:
            return
        piece = mutator.bytes()
        try:
            connection.sendall(piece)
            counts["pieces"] += 1
            counts["bytes"] += len(piece)
            if number % 4 == 0:
                connection.settimeout(0.002)
                if not connection.recv(READ_BYTES):
                    counts["closed"] += 1
                    return
        except TimeoutError:
            counts["silent"] += 1
        except ConnectionError:
            counts["closed"] += 1
            return
        connection.settimeout(SEND_TIMEOUT_S)


if __name__ == "__main__":
    print(json.dumps(attack(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))))
