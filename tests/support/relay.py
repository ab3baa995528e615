"""An address that can be pointed to another server, as an operator does with a name or a VIP."""
from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

PIECE_BYTES = 1 << 16


class Relay:
    """Hands connections to `address` on to `target`."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._flows = threading.Event()
        self._flows.set()
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._listener.close()
        self._cut()
        self._flows.set()

    def switch(self, target: str) -> None:
        """From now on to that server; connections to the other one are cut."""
        self._target = target
        self._cut()

    def stall(self) -> None:
        """Nothing more passes, either way; connections stay."""
        self._flows.clear()

    def _cut(self) -> None:
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            self._open.clear()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:             # closed: the end
                return
            host, port = self._target.rsplit(":", 1)
            try:
                far = socket.create_connection((host, int(port)))
            except OSError:
                near.close()
                continue
            with self._lock:
                self._open |= {near, far}
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(PIECE_BYTES):
                self._flows.wait()
                sink.sendall(piece)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
