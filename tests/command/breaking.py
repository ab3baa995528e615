"""A broker that breaks in the middle of a command."""
from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Gate:
    """
    Hands requests on to `target`, until it breaks.

    left      how many more requests it hands on; None = all
    hangs     it answers no more; else it cuts the connection
    broke     whether a request came after that
    renamed   bytes to replace in answers, by others of the same length
    """

    def __init__(self, target: str, renamed: tuple[bytes, bytes] = (b"", b"")) -> None:
        self._target = target
        self._renamed = renamed
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.reset(None)
        threading.Thread(target=self._accept, daemon=True).start()

    def reset(self, left: int | None, *, hangs: bool = False) -> None:
        with self._lock:
            self.left, self.hangs, self.broke = left, hangs, False

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        host, port = self._target.rsplit(":", 1)
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection((host, int(port)))
                with self._lock:
                    self._open |= {near, far}
                for pump, pair in ((self._requests, (near, far)), (self._answers, (far, near))):
                    threading.Thread(target=self._pumped, args=(pump, *pair), daemon=True).start()

    def _pumped(self, pump: object, source: socket.socket, sink: socket.socket) -> None:
        assert callable(pump)
        with contextlib.suppress(OSError):
            pump(source, sink)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        source.close()

    def _requests(self, near: socket.socket, far: socket.socket) -> None:
        for frame in _frames(near):
            with self._lock:
                breaks = self.left == 0
                self.broke |= breaks
                if self.left:
                    self.left -= 1
            if not breaks:
                far.sendall(frame)
            elif not self.hangs:
                return

    def _answers(self, far: socket.socket, near: socket.socket) -> None:
        for frame in _frames(far):
            near.sendall(frame.replace(*self._renamed))


def _frames(source: socket.socket) -> Iterator[bytes]:
    with source.makefile("rb") as stream:
        while len(head := stream.read(4)) == 4:
            (size,) = struct.unpack(">i", head)
            yield head + stream.read(size)


@contextmanager
def breaking(namesrv: str, broker: str) -> Iterator[tuple[Gate, Gate]]:
    """Gates before a name server and before its broker, at which clients find it."""
    to_broker = Gate(broker)
    assert len(to_broker.address) == len(broker)
    to_names = Gate(namesrv, (broker.encode(), to_broker.address.encode()))
    try:
        yield to_names, to_broker
    finally:
        to_names.close()
        to_broker.close()
