"""
The addresses of a host by its name, in a bounded time: who resolves names waits as long as it
likes, and has no clock of ours. So a thread asks, and who gives it up asks that one again later.
"""
from __future__ import annotations

import socket
import threading

Place = tuple[int, tuple[object, ...]]           # family and address, as sockets take them

_asking: dict[tuple[str, int], _Question] = {}


class _Question(threading.Thread):
    """One name, until it is answered."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(name=f"look up {host}", daemon=True)
        self._place = host, port
        self.found: list[Place] = []
        self.error: OSError | UnicodeError | None = None

    def run(self) -> None:
        try:
            self.found = [(family, address) for family, _, _, _, address in socket.getaddrinfo(
                *self._place, type=socket.SOCK_STREAM)]
        except (OSError, UnicodeError) as error:
            self.error = error


def look_up(host: str, port: int, timeout_s: float) -> list[Place]:
    """Raises OSError, TimeoutError when nobody has said it by then, and UnicodeError."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        return [(family, address) for family, _, _, _, address in found]
    except socket.gaierror:
        pass                                     # it is a name
    question = _asking.get((host, port))
    if question is None:
        question = _asking[host, port] = _Question(host, port)
        question.start()
    question.join(timeout_s)
    if question.is_alive():
        raise TimeoutError(f"{host}: its address is not known in time")
    del _asking[host, port]
    if question.error is not None:
        raise question.error
    return question.found
