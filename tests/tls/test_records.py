"""OpenSSL's sessions, tickets and rest of records: TL2, TL4 and TL5 of transport/tls.pxd."""
from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.net.transport.tls_context import TlsContext, self_signed
from mqcore.wire.codes import RequestCode
from mqcore.wire.command import Command, decode, encode, request
from tests.net.serving import Serving
from tests.tls.certificates import careless
from tests.tls.pieces import Pieces

PERMISSIVE = 1
NEW_SESSION_TICKET = 4               # of a message of TLS's handshake
KIB = 1 << 10
HALF_RECORD = 17 * KIB               # what OpenSSL keeps for it
LARGE_FRAME = 300 * KIB              # more than one read, and forwarded whole
LAST_BYTES = 1_000
TURNS_MAX = 5_000


def asking(size: int) -> bytes:
    return encode(request(RequestCode.GET_MAX_OFFSET, {"topic": "T"}, b"x" * size))


@pytest.fixture
def serving(tmp_path: Path) -> Serving:
    own = tmp_path / "own.pem"
    own.write_bytes(self_signed("localhost"))
    made = Serving(tmp_path / "store")
    made.secure(TlsContext(certificate=str(own), key=str(own)), PERMISSIVE)
    return made


def shaken(serving: Serving, context: ssl.SSLContext,
           session: ssl.SSLSession | None = None) -> tuple[Pieces, int]:
    """A peer whose first request is forwarded, and its connection."""
    made = Pieces(serving.address, context, session=session)
    shaking = threading.Thread(target=made.shake, kwargs={"data": asking(10)})
    shaking.start()
    (item,) = serving.forwarded()
    shaking.join()
    return made, item.connection


@pytest.fixture
def peer(serving: Serving) -> Iterator[Pieces]:
    made, _ = shaken(serving, careless())
    yield made
    made.socket.close()


def until(serving: Serving, bytes_in: int) -> None:
    for _ in range(TURNS_MAX):
        if serving.figure("bytes_in") >= bytes_in:
            return
        serving.turn()
    raise AssertionError(f"{serving.figure('bytes_in')} of {bytes_in} bytes came")


def test_one_ticket_is_sent_to_a_client(serving: Serving) -> None:                  # TL2
    messages = []
    context = careless()
    context._msg_callback = lambda *message: messages.append(message)      # type: ignore[attr-defined]
    peer, connection = shaken(serving, context)
    serving.rings.send(connection, encode(Command(0)))
    serving.turn()
    assert decode(peer.read()[4:]).code == 0                # it has read what came before
    assert sum(direction == "read" and kind == NEW_SESSION_TICKET
               for _, direction, _, _, kind, _ in messages) == 1
    peer.socket.close()


def test_no_session_is_kept_for_a_client_that_takes_no_ticket(serving: Serving) -> None:     # TL2
    context = careless()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_TICKET
    first, _ = shaken(serving, context)
    again, _ = shaken(serving, context, first.session)
    assert not again.is_resumed
    first.socket.close()
    again.socket.close()


def test_half_a_record_counts_as_its_connection_s_memory(                            # TL4
    serving: Serving, peer: Pieces
) -> None:
    idle = serving.memory_bytes
    record = peer.record(asking(8 * KIB))
    peer.socket.sendall(record[:4 * KIB])
    for _ in range(TURNS_MAX):
        serving.turn()
        if serving.memory_bytes != idle:
            break
    assert serving.memory_bytes == idle + HALF_RECORD
    peer.socket.sendall(record[4 * KIB:])
    assert len(serving.forwarded()) == 1
    assert serving.memory_bytes == idle


def test_bytes_that_openssl_still_has_behind_a_read_are_looked_at_again(                   # TL5
    serving: Serving, peer: Pieces
) -> None:
    """A read ends with its frame. The next frame is in the same record, and nothing comes later."""
    before = serving.figure("bytes_in")
    large, small = asking(LARGE_FRAME), asking(10)
    peer.socket.settimeout(0)
    serving.send(peer, peer.record(large[:-LAST_BYTES]))
    until(serving, before + len(large) - LAST_BYTES)
    serving.send(peer, peer.record(large[-LAST_BYTES:] + small))
    assert [len(item.frame) for item in serving.forwarded(2)] == [len(large) - 4, len(small) - 4]
