"""The load of peers that finish their handshakes (mqcore/bench/handshakes.pyx)."""
from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mqcore.bench.handshakes import HandshakeLoad
from tests.tls.certificates import Authority

COUNT, RATE, SPAN_MS, SPANS_MAX = 20, 500, 20, 1_000
SOURCE = "127.0.0.9"
KEYS = {"p-256": ("ec", "-pkeyopt", "ec_paramgen_curve:P-256"), "rsa-2048": ("rsa:2048",)}


@contextlib.contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Its address; `answer` is called with each of COUNT connections, one after the other."""
    listener = socket.create_server(("127.0.0.1", 0))
    host, port = listener.getsockname()

    def serve() -> None:
        for _ in range(COUNT):
            with listener.accept()[0] as connection:
                answer(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"{host}:{port}"
    thread.join()
    listener.close()


def work_until(load: HandshakeLoad, is_done: Callable[[], bool]) -> None:
    for _ in range(SPANS_MAX):
        load.work(SPAN_MS)
        if is_done():
            return
    raise AssertionError(f"{load.begun} begun, {load.answered} answered, {load.failed} failed")


@pytest.mark.parametrize("key", KEYS)
def test_its_handshakes_are_whole_for_another_tls(tmp_path: Path, key: str) -> None:
    """Python's `ssl` is done only when the client's last message was the right one."""
    certificate, private = Authority(tmp_path).sign("server", key=KEYS[key])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, private)
    context.num_tickets = 0              # they are sent to who has gone
    done: list[tuple[str | None, str]] = []

    def shake(connection: socket.socket) -> None:
        source = connection.getpeername()[0]
        with context.wrap_socket(connection, server_side=True) as shaken:
            done.append((shaken.version(), source))

    with server(shake) as address:
        load = HandshakeLoad(address, RATE, SOURCE)
        work_until(load, lambda: len(done) == COUNT)
        load.close()
    assert done == [("TLSv1.3", SOURCE)] * COUNT
    assert load.answered >= COUNT


@pytest.mark.parametrize("said", [
    b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x16\x03\x03\x00\x04\x02\x00\x00\x00", b""])
def test_an_answer_that_is_none_is_a_failed_one(said: bytes) -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(said)

    with server(answer) as address:
        load = HandshakeLoad(address, RATE)
        work_until(load, lambda: load.failed >= COUNT)
        load.close()
    assert load.answered == 0


def test_a_closed_load_does_not_work_on() -> None:
    load = HandshakeLoad("127.0.0.1:1", RATE)
    load.close()
    with pytest.raises(ValueError, match="the load is closed"):
        load.work(SPAN_MS)
