"""A TLS client whose bytes are in the test's hands: it decides when and how many of them travel."""
from __future__ import annotations

import contextlib
import socket
import ssl

DEADLINE_S = 60.0


class Pieces:
    """
    One connection; a context of the client's side; source: an address of this machine; session: of
    an earlier connection.
    """

    def __init__(self, address: str, context: ssl.SSLContext, *, source: str = "",
                 session: ssl.SSLSession | None = None) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), DEADLINE_S, (source, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host,
                                     session=session)

    @property
    def session(self) -> ssl.SSLSession | None:
        return self._tls.session

    @property
    def is_resumed(self) -> bool:
        """Whether its handshake resumed the session."""
        return self._tls.session_reused is True

    def hello(self) -> bytes:
        """What the handshake begins with, not sent."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        return self._outgoing.read()

    def shake(self, piece_bytes: int = 1 << 20, data: bytes = b"") -> None:
        """The whole handshake, in pieces of so many bytes; data: to go with its last ones."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self.send_pieces(self._outgoing.read(), piece_bytes)
                self._incoming.write(self._read())
                continue
            if data:
                self._tls.write(data)
            self.send_pieces(self._outgoing.read(), piece_bytes)
            return

    def record(self, data: bytes) -> bytes:
        """Data as records, not sent."""
        self._tls.write(data)
        return self._outgoing.read()

    def end(self) -> bytes:
        """That nothing more comes (close_notify), not sent."""
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        return self._outgoing.read()

    def send_pieces(self, data: bytes, piece_bytes: int) -> None:
        for at in range(0, len(data), piece_bytes):
            self.socket.sendall(data[at:at + piece_bytes])

    def read(self) -> bytes:
        """What the server says next."""
        while True:
            try:
                return self._tls.read(1 << 18)
            except ssl.SSLWantReadError:
                self._incoming.write(self._read())

    def _read(self) -> bytes:
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionError("end of stream")
        return data
