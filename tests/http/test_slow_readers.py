"""Clients that read an answer slowly, or not at all, keep no probe out."""
from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from mqcore.http import server as http_server
from mqcore.http.server import Answer, Asked, HttpServer

LONG, PROBE = b"GET /long HTTP/1.1\r\n\r\n", b"GET /readyz HTTP/1.1\r\n\r\n"
CONNECTIONS = 16


def answer(asked: Asked) -> Answer:
    def pieces() -> Iterator[str]:
        for _ in range(100_000):
            yield "x" * 65_536

    return Answer(HTTPStatus.OK, "text/plain", pieces() if asked.path == "/long" else ["ready"])


async def probe(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(PROBE)
        return await reader.readuntil(b"ready")
    except (asyncio.IncompleteReadError, OSError):
        return b""
    finally:
        writer.close()


def test_a_probe_is_answered_while_every_connection_sends_to_a_slow_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        monkeypatch.setattr(http_server, "SENDING_S", 3600.0)
        server = HttpServer(answer, own_machine=True)
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        await server.start(listener)
        slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS)]
        try:
            for reader, writer in slow:
                writer.write(LONG)
                await reader.readexactly(100)

            assert await probe(port) == b""                # all are within their time
            monkeypatch.setattr(http_server, "SENDING_S", 0.0)
            for _ in range(3):
                assert b"200 OK" in await probe(port)
            assert sum(not reader.at_eof() for reader, _ in slow) >= CONNECTIONS - 3
        finally:
            for _, writer in slow:
                writer.transport.abort()
            await server.stop()

    asyncio.run(run())
