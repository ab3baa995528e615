"""Hellos of TLS 1.3 that make a server ask again, or that send data before they are answered."""
from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.tls.test_hostile import ANSWERED, BOTH, SERVERS, address_of, ask, connect
from tests.workers.processes import pid_of

AES_128, AES_256 = 0x1301, 0x1302
X25519, P384 = 0x001D, 0x0018
ASKED_AGAIN = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
HELLO, ALERT, DATA = 0x16, 0x15, 0x17           # kinds of records
CHANGE_CIPHER_SPEC = b"\x14\x03\x03\x00\x01\x01"     # behind the question, for old machines between
SILENT = 200
EARLY_BYTES = 4 << 20
RECORD_BYTES = 16_000
GROWTH_KIB_MAX = 8 << 10


@pytest.fixture(scope="module")
def broker(served: dict[str, object], tmp_path_factory: pytest.TempPathFactory,
           ) -> Iterator[MqcoreProcess]:
    with mqcore_up(tmp_path_factory.mktemp("broker"), {
            **served, "tls.handshake_ms_max": 15_000, "processes.serving_count": 1}) as running:
        yield running


def extension(kind: int, content: bytes) -> bytes:
    return struct.pack(">HH", kind, len(content)) + content


def listed(content: bytes, size: str = ">H") -> bytes:
    return struct.pack(size, len(content)) + content


def hello(shares: Sequence[tuple[int, bytes]], groups: Sequence[int] = (X25519,),
          ciphers: Sequence[int] = (AES_128,), *, early: bool = False) -> bytes:
    """
    A ClientHello of 1.3 alone, as one record. shares: (group, public key). early: it names a ticket
    that nobody has given out, and says that data follows at once.
    """
    extensions = [
        extension(43, listed(b"\x03\x04", ">B")),
        extension(10, listed(b"".join(struct.pack(">H", one) for one in groups))),
        extension(13, listed(b"\x04\x03\x08\x04\x04\x01")),
        extension(51, listed(b"".join(struct.pack(">H", group) + listed(key)
                                      for group, key in shares))),
        extension(45, listed(b"\x01", ">B")),
    ]
    if early:
        extensions += [
            extension(42, b""),
            extension(41, listed(listed(os.urandom(200)) + bytes(4))
                      + listed(listed(os.urandom(32), ">B")))]
    body = (b"\x03\x03" + bytes(32) + b"\x00"
            + listed(b"".join(struct.pack(">H", one) for one in ciphers)) + b"\x01\x00"
            + listed(b"".join(extensions)))
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + listed(message)


def share(group: int = X25519) -> tuple[int, bytes]:
    """A public key of X25519, as any 32 bytes are one, whatever group is said."""
    return group, os.urandom(32)


def record(link: socket.socket) -> tuple[int, bytes]:
    """What the server says next; raises ConnectionError at the end."""
    def exactly(count: int) -> bytes:
        found = b""
        while len(found) < count:
            part = link.recv(count - len(found))
            if not part:
                raise ConnectionError("end of stream")
            found += part
        return found

    kind, _, size = struct.unpack(">BHH", exactly(5))
    return kind, exactly(size)


def asked_again(link: socket.socket, groups: Sequence[int] = (X25519,)) -> None:
    link.sendall(hello([], groups))
    kind, content = record(link)
    assert (kind, content[0], content[6:38]) == (HELLO, 2, ASKED_AGAIN)


def ends(link: socket.socket) -> bytes:
    """What is left to read, up to the end."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while part := link.recv(1 << 16):
            found += part
    return found


def memory_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise AssertionError(f"{pid} has no memory")


@BOTH
def test_a_client_that_is_asked_again_is_answered(broker: MqcoreProcess, server: str) -> None:
    with connect(address_of(broker, server)) as link:
        asked_again(link)
        link.sendall(hello([share()]))
        said = []
        while not said or said[-1] not in (ALERT, DATA):
            said.append(record(link)[0])
        assert said[-1] == DATA                       # its certificate and what else is encrypted


@BOTH
@pytest.mark.parametrize("second", [
    hello([]), hello([share(P384)]), hello([share()], ciphers=(AES_256,)),
    hello([share(), share()]),
    hello([(X25519, bytes(32))]), hello([(X25519, b"short")]), hello([share()], early=True),
], ids=["no share", "of another group", "another cipher", "two shares",
        "a share of zeros", "a short share", "early data"])
def test_a_second_hello_that_does_not_follow_is_refused(
    broker: MqcoreProcess, client: ssl.SSLContext, server: str, second: bytes,
) -> None:
    """What may not change has changed, or the share is none."""
    with connect(address_of(broker, server)) as link:
        asked_again(link)
        link.sendall(second)
        link.shutdown(socket.SHUT_WR)
        said = ends(link)
    assert said[:7] == CHANGE_CIPHER_SPEC + bytes([ALERT])
    assert ask(address_of(broker, server), client) in ANSWERED


@BOTH
def test_clients_that_are_asked_again_and_stay_silent_keep_nobody_waiting(
    broker: MqcoreProcess, client: ssl.SSLContext, server: str,
) -> None:
    pid = pid_of(broker, SERVERS[server])
    before = len(os.listdir(f"/proc/{pid}/fd"))
    with contextlib.ExitStack() as opened:
        for _ in range(SILENT):
            asked_again(opened.enter_context(connect(address_of(broker, server))))
        assert ask(address_of(broker, server), client) in ANSWERED
    wait_until(lambda: len(os.listdir(f"/proc/{pid}/fd")) <= before, "all are closed", 20)


@BOTH
@pytest.mark.parametrize("again", [False, True], ids=["at once", "after it was asked again"])
def test_early_data_without_end_is_neither_kept_nor_read_for_long(
    broker: MqcoreProcess, client: ssl.SSLContext, server: str, again: bool,
) -> None:
    """Of a ticket that is none: the server passes over some of it, and then has had enough."""
    pid = pid_of(broker, SERVERS[server])
    assert ask(address_of(broker, server), client) in ANSWERED
    before = memory_kib(pid)
    data = b"\x17\x03\x03" + struct.pack(">H", RECORD_BYTES) + os.urandom(RECORD_BYTES)
    sent = 0
    with connect(address_of(broker, server)) as link:
        link.sendall(hello([] if again else [share()], early=True))
        with contextlib.suppress(ConnectionError):
            while sent < EARLY_BYTES:
                link.sendall(data)
                sent += len(data)
        ends(link)
    assert sent < EARLY_BYTES
    assert memory_kib(pid) - before < GROWTH_KIB_MAX
    assert ask(address_of(broker, server), client) in ANSWERED
