"""Many sockets at once, without a thread for each."""
from __future__ import annotations

import contextlib
import resource
import socket
from collections.abc import Iterator

ROOM_FOR_OTHERS = 200


@contextlib.contextmanager
def crowd(address: str, count: int) -> Iterator[list[socket.socket]]:
    """`count` open connections; raises the limit of descriptors when that is needed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + ROOM_FOR_OTHERS
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    host, _, port = address.rpartition(":")
    with contextlib.ExitStack() as opened:
        sockets = []
        for _ in range(count):
            one = socket.create_connection((host, int(port)), 5)
            opened.callback(one.close)
            sockets.append(one)
        yield sockets


def push(connection: socket.socket, data: bytes, patience_s: float = 1.0) -> int:
    """Send `data` again and again until the other side takes no more; returns how much it took."""
    connection.settimeout(patience_s)
    sent = 0
    with contextlib.suppress(TimeoutError, ConnectionError):
        while True:
            sent += connection.send(data)
    return sent
