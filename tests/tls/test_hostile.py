"""Peers that use TLS itself against a server: certificates, hellos, sessions, odd ends."""
from __future__ import annotations

import contextlib
import os
import shutil
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mqcore.net.transport.tls_context import DAY_S
from mqcore.tls.contexts import server_context
from mqcore.tls.settings import TlsServerSettings, expanded
from mqcore.wire.codes import RequestCode
from mqcore.wire.command import encode, request
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.tls.certificates import Authority, careless, openssl
from tests.tls.pieces import Pieces
from tests.wire_live.peer import Closed, Peer
from tests.workers.processes import pid_of

Says = Callable[[MqcoreProcess, str], None]
SERVERS = {"broker": "pull-serving-0", "name server": "namesrv"}
BOTH = pytest.mark.parametrize("server", SERVERS)
VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
ANSWERED = (0, 3, 17)
CHAIN = 100
LARGE_BYTES = 200_000
SERVER_NAME, PROTOCOLS = 0, 16                # extensions of a hello


@pytest.fixture(scope="module")
def broker(authority: Authority, served: dict[str, object],
           tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    """Clients may show a certificate, which is verified."""
    with mqcore_up(tmp_path_factory.mktemp("broker"), {
            **served, "tls.client_auth": "optional", "tls.trust": authority.certificate,
            "tls.handshake_ms_max": 15_000, "processes.serving_count": 1}) as running:
        yield running


def address_of(broker: MqcoreProcess, server: str) -> str:
    return broker.broker_addr if server == "broker" else broker.namesrv_addr


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), 10)


def route() -> bytes:
    return encode(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "nowhere"}))


def ask(address: str, context: ssl.SSLContext) -> int:
    with Peer(address, tls=context) as peer:
        return peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "nowhere"}).code


# -- sessions --------------------------------------------------------------------------------------


def resumed(address: str, context: ssl.SSLContext, session: ssl.SSLSession | None,
            ) -> tuple[bool, ssl.SSLSession | None]:
    """Whether a connection goes on with a session; and one to go on with later."""
    with connect(address) as plain, context.wrap_socket(
            plain, server_hostname="127.0.0.1", session=session) as made:
        made.sendall(route())
        assert made.recv(1 << 16)                  # a session of 1.3 comes behind the handshake
        return bool(made.session_reused), made.session


def in_memory(server: ssl.SSLContext, client: ssl.SSLContext,
              session: ssl.SSLSession | None) -> ssl.SSLObject:
    """A handshake without a network; the client's end."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1", session=session)
    for end in (theirs, ours, theirs, ours, theirs):
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    ours.write(b"behind it")
    assert theirs.read() == b"behind it"               # a session of 1.3 comes with it
    return theirs


@VERSIONS
def test_a_client_that_showed_a_certificate_shows_it_each_time(
    broker: MqcoreProcess, authority: Authority, version: ssl.TLSVersion,
) -> None:
    """A session would let him in when the certificate's time is over."""
    context = authority.client(authority.sign("shown"))
    context.maximum_version = version
    _, session = resumed(broker.broker_addr, context, None)
    again, _ = resumed(broker.broker_addr, context, session)
    assert not again


@VERSIONS
def test_a_name_server_looks_whether_a_sessions_certificate_has_expired(
    authority: Authority, version: ssl.TLSVersion, monkeypatch: pytest.MonkeyPatch,
) -> None:
    certificate, key = authority.sign("names")
    server = server_context(expanded(TlsServerSettings(
        certificate=str(certificate), key=str(key), trust=str(authority.certificate),
        client_auth="require")))
    assert server is not None
    context = authority.client(authority.sign("shown"))
    context.maximum_version = version
    made = in_memory(server, context, None)
    assert in_memory(server, context, made.session).session_reused
    later = time.time() + 3 * DAY_S                    # it is valid for two days
    monkeypatch.setattr("mqcore.tls.bounded.time.time", lambda: later)
    with pytest.raises(ssl.SSLCertVerificationError, match="its time is over"):
        in_memory(server, context, made.session)


@BOTH
@VERSIONS
def test_a_session_of_another_server_is_no_session(
    broker: MqcoreProcess, served: dict[str, object], client: ssl.SSLContext,
    authority: Authority, tmp_path: Path, server: str, version: ssl.TLSVersion,
) -> None:
    """Nor one of an earlier run; its client comes in as one without."""
    context = authority.client()
    context.maximum_version = version
    with mqcore_up(tmp_path, served) as other:
        _, session = resumed(address_of(other, server), context, None)
    assert session is not None
    again, _ = resumed(address_of(broker, server), context, session)
    assert not again


# -- certificates ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crowded(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate with CHAIN above it, each signed by the next one, the last by nobody."""
    folder = tmp_path_factory.mktemp("crowded")
    key, above = folder / "key.pem", folder / "0.pem"
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-subj", "/CN=0", "-keyout", key, "-out", above)
    chain = [above.read_text()]
    for number in range(1, CHAIN):
        own = folder / f"{number}.pem"
        openssl("req", "-x509", "-new", "-key", key, "-CA", above, "-CAkey", key, "-subj",
                f"/CN={number}", "-out", own)
        chain.insert(0, own.read_text())
        above = own
    file = folder / "chain.pem"
    file.write_text("".join(chain) + key.read_text())
    return file


@pytest.fixture(scope="module")
def huge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate with hundreds of thousands of bytes in it."""
    folder = tmp_path_factory.mktemp("huge")
    key, own, settings = folder / "key.pem", folder / "own.pem", folder / "settings"
    names = "".join(f"DNS.{number} = {'n' * 60}{number}.example\n"
                    for number in range(LARGE_BYTES // 70))
    settings.write_text(f"[req]\ndistinguished_name=dn\n[dn]\n[ext]\nsubjectAltName=@names\n"
                        f"[names]\n{names}")
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-subj", "/CN=huge", "-config", settings, "-extensions", "ext", "-keyout", key,
            "-out", own)
    file = folder / "huge.pem"
    file.write_text(own.read_text() + key.read_text())
    return file


@BOTH
@VERSIONS
@pytest.mark.parametrize("shown", ["crowded", "huge"])
def test_a_certificate_that_is_too_much_is_refused_with_a_line(
    broker: MqcoreProcess, client: ssl.SSLContext, says: Says, server: str,
    version: ssl.TLSVersion, shown: str, request: pytest.FixtureRequest,
) -> None:
    context = careless()
    context.load_cert_chain(request.getfixturevalue(shown))
    context.maximum_version = version
    with contextlib.suppress(OSError, Closed):
        assert ask(address_of(broker, server), context) not in ANSWERED
    says(broker, "TLS failed: ")
    assert ask(address_of(broker, server), client) in ANSWERED


@BOTH
def test_a_key_of_another_certificate_changes_nothing(
    authority: Authority, client: ssl.SSLContext, tmp_path: Path, says: Says, server: str,
) -> None:
    certificate, key = tmp_path / "served.pem", tmp_path / "served.key"
    first, second = authority.sign("pair"), authority.sign("other")
    shutil.copy(first[0], certificate)
    shutil.copy(first[1], key)
    with mqcore_up(tmp_path / "broker", {
            "tls.certificate": certificate, "tls.key": key, "tls.poll_ms": 50}) as running:
        beside = tmp_path / "beside.key"
        shutil.copy(second[1], beside)
        os.replace(beside, key)
        says(running, "TLS keeps the files that it has: ")
        assert ask(address_of(running, server), client) in ANSWERED


# -- hellos ----------------------------------------------------------------------------------------


def hello(kind: int, content: bytes) -> bytes:
    """A ClientHello whose one extension is this one, in as many records as it needs."""
    extension = struct.pack(">HH", kind, len(content)) + content
    body = (b"\x03\x03" + bytes(32) + b"\x00" + b"\x00\x04\x13\x01\xc0\x2b" + b"\x01\x00"
            + struct.pack(">H", len(extension)) + extension)
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    return b"".join(b"\x16\x03\x01" + struct.pack(">H", len(part)) + part
                    for at in range(0, len(message), 16_000)
                    if (part := message[at:at + 16_000]))


@BOTH
@pytest.mark.parametrize("sent", [
    hello(SERVER_NAME, struct.pack(">HBH", 60_003, 0, 60_000) + b"n" * 60_000),
    hello(PROTOCOLS, struct.pack(">H", 65_000) + b"\xff" * 65_000),
    hello(SERVER_NAME, b"\xff" * 10),
    hello(PROTOCOLS, struct.pack(">H", 2) + b"\x00\x00"),
], ids=["a name of 60,000 bytes", "protocols of 65,000 bytes", "no name", "empty protocols"])
def test_a_hello_with_a_wrong_extension_is_refused_with_a_line(
    broker: MqcoreProcess, client: ssl.SSLContext, says: Says, server: str, sent: bytes,
) -> None:
    with connect(address_of(broker, server)) as wild:
        wild.sendall(sent)
        with contextlib.suppress(ConnectionError):
            while wild.recv(1 << 16):
                continue
    says(broker, "TLS failed: ")
    assert ask(address_of(broker, server), client) in ANSWERED


# -- ends ------------------------------------------------------------------------------------------


@BOTH
def test_ends_at_every_moment_leave_no_connection_behind(
    broker: MqcoreProcess, client: ssl.SSLContext, server: str,
) -> None:
    """close_notify, the end of one direction, and both, at each place of a connection's bytes."""
    address, pid = address_of(broker, server), pid_of(broker, SERVERS[server])
    assert ask(address, client) in ANSWERED
    before = len(os.listdir(f"/proc/{pid}/fd"))
    notify = b"\x15\x03\x03\x00\x02\x01\x00"                    # in the clear
    held = []
    for moment in range(8):
        for half in (True, False):
            pieces = Pieces(address, careless())
            held.append(pieces.socket)
            if moment < 3:
                pieces.socket.sendall((b"", pieces.hello()[:50], pieces.hello())[moment])
                pieces.socket.sendall(notify)
            else:
                pieces.shake()
                said = pieces.record(route())
                pieces.socket.sendall((b"", said[:3], said[:-1], said, said * 2)[moment - 3])
                with contextlib.suppress(ssl.SSLError):
                    pieces.socket.sendall(pieces.end())
            with contextlib.suppress(OSError):
                pieces.socket.shutdown(socket.SHUT_WR if half else socket.SHUT_RDWR)
    wait_until(lambda: len(os.listdir(f"/proc/{pid}/fd")) <= before,
               "the server has closed them all", 20)
    for one in held:
        one.close()
    assert ask(address, client) in ANSWERED
