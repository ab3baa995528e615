"""Certificates that are not to be believed: expired, of nobody, for another host, revoked."""
from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import shutil
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from mqcore.client.config import ClientConfig
from mqcore.client.errors import ConfigError, ConnectError
from mqcore.client.network.connection import Connection
from mqcore.client.network.pool import ConnectionPool
from mqcore.client.network.registration import Registration
from mqcore.net.secured import native_context
from mqcore.net.transport.tls_context import self_signed
from mqcore.tls.contexts import TlsFileError, client_context, server_context
from mqcore.tls.renewed import Renewed
from mqcore.tls.settings import CLIENT_FILES, TlsServerSettings, TlsSettings, trouble
from mqcore.wire.codes import RequestCode
from mqcore.workers.replication.following import Following
from tests.broker import fakes
from tests.namesrv.harness import Clock, name_server, registration, settings_in
from tests.support.command import mqcore
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.tls.certificates import Authority
from tests.wire_live.peer import Peer

EXPIRED, REVOKED = "certificate has expired", "certificate revoked"
SELF_SIGNED = "self-signed certificate"                # "self signed" before OpenSSL 3
DEADLINE_S = 60.0
Pair = tuple[Path, Path]


def in_one_file(folder: Path, name: str) -> Pair:
    """A certificate that signs itself, and its key."""
    file = folder / f"{name}.pem"
    file.write_bytes(self_signed(name))
    return file, file


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="module")
def shown(own: Authority) -> dict[str, Pair]:
    """Certificates by what is wrong with them."""
    return {"good": own.sign("good"), "later": own.sign("later"),
            EXPIRED: own.sign_expired("expired"), REVOKED: own.sign("revoked"),
            "elsewhere": own.sign("elsewhere", "DNS:elsewhere.example"),
            SELF_SIGNED: in_one_file(own.folder, "alone")}


@pytest.fixture(scope="module")
def crl(own: Authority, shown: dict[str, Pair]) -> Path:
    return own.revoke(shown[REVOKED][0])


# -- of clients, at broker and name server ---------------------------------------------------------


@pytest.fixture(scope="module")
def broker(own: Authority, shown: dict[str, Pair], crl: Path,
           tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    folder = tmp_path_factory.mktemp("broker")
    shutil.copy(crl, folder / "crl.pem")
    certificate, key = shown["good"]
    with mqcore_up(folder, {
            "tls.certificate": certificate, "tls.key": key, "tls.client_auth": "require",
            "tls.trust": own.certificate, "tls.crl": folder / "crl.pem", "tls.poll_ms": 50,
            "processes.serving_count": 1}) as running:
        yield running


def is_let_in(own: Authority, address: str, pair: Pair) -> bool:
    try:
        with Peer(address, tls=own.client(pair)) as peer:
            return peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "x"}).code in (3, 17)
    except (OSError, AssertionError):
        return False


@pytest.mark.parametrize("server", ["broker", "namesrv"])
@pytest.mark.parametrize("wrong", [EXPIRED, SELF_SIGNED, REVOKED])
def test_a_client_is_refused_with_one_line(
        own: Authority, shown: dict[str, Pair], broker: MqcoreProcess, server: str, wrong: str):
    address = getattr(broker, f"{server}_addr")
    begin = len(broker.output.read_text())
    assert is_let_in(own, address, shown["good"])
    assert not is_let_in(own, address, shown[wrong])
    words = wrong.replace("-", "[ -]")
    who = "connection from" if server == "broker" else "connection"
    line = re.compile(rf"{who} 127\.0\.0\.1:\d+ closed: "
                      rf"TLS failed: certificate verify failed: {words} event=[a-z-]+$", re.M)
    wait_until(lambda: len(line.findall(broker.output.read_text(), begin)) == 1, "a line", 20)
    assert "Traceback" not in broker.output.read_text()


def test_a_url_names_the_certificate_to_show_and_commands_take_it(
        own: Authority, shown: dict[str, Pair], broker: MqcoreProcess, tmp_path: Path):
    url = f"rocketmq://{broker.namesrv_addr}?tls=verify&ca={own.certificate}"
    locked, key = own.sign("locked", password="geheim")
    password = tmp_path / "password"
    password.write_text("geheim\n")
    both = tmp_path / "both.pem"
    both.write_text("".join(file.read_text() for file in shown["good"]))
    for shows in (f"&cert={both}", f"&cert={locked}&key={key}&key_password_file={password}"):
        sent = mqcore("message", "send", "-n", url + shows, "-t", "shown", "-p", "x")
        assert (sent.returncode, '"SEND_OK"' in sent.stdout) == (0, True), sent.stderr
    refused = mqcore("message", "send", "-n", url, "-t", "shown", "-p", "x")
    assert (refused.returncode, "certificate required" in refused.stderr) == (4, True)


@pytest.mark.parametrize("wrong", [
    "key=absent", "key_password_file=absent", "cert=absent", "cert={good}&key={other}",
    "cert={good}&key={locked}", "cert={good}&key={locked}&key_password_file=absent"])
def test_a_url_with_a_certificate_that_cannot_be_shown_is_refused(
        own: Authority, shown: dict[str, Pair], wrong: str):
    """An encrypted key without a password among them: nobody is asked for it."""
    files = {"good": shown["good"][0], "other": shown["later"][1],
             "locked": own.sign("locked", password="geheim")[1]}
    name = wrong.rpartition("&")[2].partition("=")[0]
    with pytest.raises(ConfigError, match=f"^namesrv: .*{name}='.*expected ") as error:
        ClientConfig(namesrv=f"rocketmq://h:1?{wrong.format(**files)}")
    assert "\n" not in str(error.value)


def test_a_new_revocation_list_counts_and_a_bad_one_does_not(
        own: Authority, shown: dict[str, Pair], broker: MqcoreProcess):
    file, pair = broker.folder / "crl.pem", shown["later"]
    addresses = (broker.broker_addr, broker.namesrv_addr)
    with Peer(addresses[0], tls=own.client(pair)) as before:
        file.write_text("no list")
        expected = f"TLS keeps the files that it has: {file}: "
        wait_until(lambda: broker.output.read_text().count(expected) == 3,
                   "broker, name server and the supervisor, which keeps copies, tell", 20)
        assert all(is_let_in(own, one, pair) for one in addresses)
        shutil.copy(own.revoke(pair[0]), file.with_suffix(".new"))
        os.replace(file.with_suffix(".new"), file)
        for one in addresses:
            wait_until(lambda at=one: not is_let_in(own, at, pair),  # type: ignore[misc]
                       "it is revoked", 20)
            assert is_let_in(own, one, shown["good"])
        assert before.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "x"}).code in (3, 17)


def test_status_counts_connections_and_handshakes(
        own: Authority, shown: dict[str, Pair], broker: MqcoreProcess):
    def figures() -> dict[str, int]:
        said = mqcore("status", "--json").stdout
        (run,) = (one for name, one in json.loads(said).items() if name.endswith(f"-{broker.pid}"))
        return run["tls"]              # type: ignore[no-any-return]

    def namesrv_has(connections: int) -> bool:
        return figures()["namesrv_connections"] == connections

    wait_until(lambda: namesrv_has(0), "nobody is there", 20)
    with Peer(broker.namesrv_addr, tls=own.client(shown["good"])):
        wait_until(lambda: namesrv_has(1), "who came before is counted, too", 20)
        before = figures()
        with (Peer(broker.broker_addr, tls=own.client(shown["good"])),
              Peer(broker.namesrv_addr, tls=own.client(shown["good"]))):
            for one in (broker.broker_addr, broker.namesrv_addr):
                assert not is_let_in(own, one, shown[SELF_SIGNED])
            expected = {f"{prefix}{name}": before[f"{prefix}{name}"] + 1
                        for prefix in ("", "namesrv_")
                        for name in ("connections", "handshakes", "failed_handshakes")}
            wait_until(lambda: figures() == expected, "all is counted", 20)
    wait_until(lambda: figures()["connections"] == before["connections"], "one has gone", 20)
    said = mqcore("status").stdout
    assert re.search(r"^  tls +connections \d+  handshakes \d+  failed_handshakes \d+  "
                     r"namesrv_connections \d+ ", said, re.M)


@pytest.mark.parametrize("content", ["nothing", "authority", "absent"])
def test_a_file_that_is_no_revocation_list_is_named(
        own: Authority, shown: dict[str, Pair], crl: Path, tmp_path: Path, content: str):
    """A certificate in it would be trusted."""
    file = tmp_path / "crl.pem"
    if content != "absent":
        file.write_text("" if content == "nothing" else
                        crl.read_text() + own.certificate.read_text())
    certificate, key = map(str, shown["good"])
    tls = TlsServerSettings(certificate=certificate, key=key, trust=str(own.certificate),
                            client_auth="require", crl=str(file))
    for make in (server_context, native_context):
        with pytest.raises(TlsFileError, match=rf"^{file}: .*expected the revocation lists"):
            make(tls)
    with pytest.raises(ConfigError, match="crl="):
        ClientConfig(namesrv=f"rocketmq://h:1?ca={own.certificate}&crl={file}")


def test_a_revocation_list_that_nobody_would_look_at_is_refused():
    assert (trouble(TlsServerSettings(certificate="c", crl="x")) or ("",))[0] == "crl"
    assert (trouble(TlsServerSettings(
        certificate="c", crl="x", trust="t", client_auth="require")) or ("",))[0] == ""
    assert (trouble(TlsSettings(client_crl="x")) or ("",))[0] == "client_crl"


@pytest.mark.parametrize("name", [
    "key", "key_password", "key_password_file",
    "client_key", "client_key_password", "client_key_password_file"])
def test_what_belongs_to_a_certificate_is_nothing_without_one(name: str) -> None:
    owner = "client_certificate" if name.startswith("client_") else "certificate"
    assert trouble(TlsSettings(**{name: "x"})) == (
        name, f"nothing, since tls.{owner} is not set")
    assert trouble(TlsSettings(**{name: "x", owner: "y"})) is None


# -- of servers, for the client and a broker -------------------------------------------------------


@contextlib.asynccontextmanager
async def serving(pair: Pair) -> AsyncIterator[int]:
    """A server with a certificate that a server of ours would not start with; its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


WORDS = {EXPIRED: EXPIRED, SELF_SIGNED: "self[ -]signed certificate", REVOKED: REVOKED,
         "elsewhere": "IP address mismatch, certificate is not valid for '127.0.0.1'"}


@pytest.mark.parametrize("wrong", WORDS)
def test_the_client_and_a_broker_say_what_is_wrong_with_a_server(
        own: Authority, shown: dict[str, Pair], crl: Path, wrong: str,
        caplog: pytest.LogCaptureFixture):
    url = f"rocketmq://127.0.0.1:1?ca={own.certificate}&crl={crl}"
    context = ClientConfig(namesrv=url).ssl_context()
    outgoing = client_context(TlsSettings(
        client_enable=True, client_trust=str(own.certificate), client_crl=str(crl)))

    async def run() -> None:
        async with serving(shown["good"]) as port:
            await (await Connection.open("127.0.0.1", port, tls=context)).close()
        async with serving(shown[wrong]) as port:
            address = f"127.0.0.1:{port}"
            expected = (f"cannot connect to {address}: its certificate is not believed: "
                        f"{WORDS[wrong]}")
            with pytest.raises(ConnectError, match=expected) as error:
                await Connection.open("127.0.0.1", port, tls=context)
            assert "\n" not in str(error.value)
            broker = Registration(ConnectionPool(tls=outgoing))
            whole = registration(["a"])
            assert await broker.register([address], whole.ext or {}, whole.body) == []
            await broker.close()
            (line,) = [one.getMessage() for one in caplog.records if one.name == "mqcore.client"]
            assert re.match(f"registering with name server {address} failed: {expected}", line)
            assert "\n" not in line

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    assert not any(one.exc_info for one in caplog.records if one.name.startswith("mqcore"))


def test_outgoing_certificates_and_trust_are_those_of_their_files(
        own: Authority, shown: dict[str, Pair], tmp_path: Path):
    stranger = Authority(tmp_path / "stranger", "stranger")
    trust = tmp_path / "trust.pem"
    certificate, key = tmp_path / "own.pem", tmp_path / "own.key"
    for source, target in zip((stranger.certificate, *stranger.sign("other")),
                              (trust, certificate, key), strict=True):
        shutil.copy(source, target)
    served = TlsServerSettings(
        certificate=str(shown["good"][0]), key=str(shown["good"][1]), client_auth="require",
        trust=str(own.certificate))
    tls = TlsSettings(client_enable=True, client_trust=str(trust), poll_ms=1,
                      client_certificate=str(certificate), client_key=str(key))
    taken: list[ssl.SSLContext | None] = []
    renewed = Renewed(tls, CLIENT_FILES, client_context, taken.append)
    whole = registration(["a"])

    async def run() -> None:
        async with name_server(settings_in(tmp_path, tls=served), Clock()) as port:
            pool = ConnectionPool(tls=lambda _address: taken[-1])
            broker = Registration(pool)

            async def registered() -> int:
                at = [f"127.0.0.1:{port}"]
                return len(await broker.register(at, whole.ext or {}, whole.body))

            assert await registered() == 0
            for source, target in zip((own.certificate, *shown["later"]),
                                      (trust, certificate, key), strict=True):
                shutil.copy(source, target)
            for now_ms in (10, 20):        # two looks that find the same
                assert await registered() == 0
                renewed.look(now_ms)
            assert len(taken) == 2
            assert await registered() == 1
            trust.write_text("no certificate")
            for now_ms in (30, 40):
                renewed.look(now_ms)
            assert len(taken) == 2
            assert await registered() == 1
            await broker.close()

    asyncio.run(run())


def test_a_slaves_way_to_its_master_follows_its_trust(
        own: Authority, shown: dict[str, Pair], tmp_path: Path):
    trust = tmp_path / "trust.pem"
    shutil.copy(Authority(tmp_path / "stranger", "stranger").certificate, trust)
    core = fakes.make_bench(fakes.settings_in(
        tmp_path / "store", "tls.client_enable=true", f"tls.client_trust={trust}",
        "tls.poll_ms=1")).broker.core
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*shown["good"])
    believed = []

    def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        believed.append(True)
        writer.close()

    async def run() -> None:
        async with await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context) as server:
            following = Following(core, lambda _job: None, lambda: 0)
            following.adopt(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
            await following.round()
            assert not believed
            shutil.copy(own.certificate, trust)
            async with asyncio.timeout(DEADLINE_S):
                while not believed:
                    await following.round()
            await following.close()

    asyncio.run(run())
