"""Frames of HTTP/2 by hand (RFC 9113), fields without compression (RFC 7541, 6.2.2)."""
from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from typing import Self

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
DEADLINE_S = 60.0


def frame(kind: int, payload: bytes = b"", *, flags: int = 0, stream: int = 0) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(
        ">I", stream) + payload


def text(value: bytes) -> bytes:
    """A string of up to 16 KiB, its length in 7 bits and what is above."""
    if len(value) < 127:
        return bytes((len(value),)) + value
    left, out = len(value) - 127, bytearray((127,))
    while left >= 128:
        out.append(left & 127 | 128)
        left >>= 7
    return bytes((*out, left)) + value


def fields(pairs: Iterable[tuple[str, bytes]]) -> bytes:
    return b"".join(b"\0" + text(name.encode()) + text(value) for name, value in pairs)


def call_fields(method: str, **more: str) -> bytes:
    return fields([
        (":method", b"POST"), (":scheme", b"http"), (":authority", b"broker"),
        (":path", f"/apache.rocketmq.v2.MessagingService/{method}".encode()),
        ("content-type", b"application/grpc"), ("te", b"trailers"),
        *((name.replace("_", "-"), value.encode()) for name, value in more.items())])


class Frames:
    """One connection, whose preface and settings are said."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), DEADLINE_S)
        self.send(PREFACE + frame(SETTINGS))

    def send(self, data: bytes) -> bool:
        """False: the other end has closed."""
        try:
            self._socket.sendall(data)
        except OSError:
            return False
        return True

    def next(self) -> tuple[int, int, int, bytes] | None:
        """(kind, flags, stream, payload) of the next frame; None: the end."""
        head = self._read(9)
        if head is None:
            return None
        payload = self._read(int.from_bytes(head[:3], "big"))
        assert payload is not None
        return head[3], head[4], int.from_bytes(head[5:], "big"), payload

    def until(self, kind: int, stream: int = 0) -> bytes | None:
        """The payload of the first frame of that kind and stream; None: the end came first."""
        while True:
            one = self.next()
            if one is None or (one[0], one[2]) == (kind, stream):
                return None if one is None else one[3]

    def _read(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            try:
                part = self._socket.recv(size - len(data))
            except ConnectionError:
                return None
            if not part:
                return None
            data += part
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()
