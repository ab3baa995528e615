"""
TLS with what stock has: a Java client, a broker and a name server, each at the other side's ports.

Clients that send and consume by TLS: test_tls_accounts.py.
"""
from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
from pathlib import Path

import pytest

from mqcore.net.transport.tls_context import self_signed
from mqcore.wire.codes import RequestCode
from tests.interop.mqadmin import Mqadmin
from tests.support.mqcore_process import mqcore_namesrv, mqcore_up
from tests.support.stock import require_stock, start_broker, start_namesrv
from tests.support.waiting import wait_until
from tests.tls.certificates import Authority, careless
from tests.tls.conftest import authority, served
from tests.wire_live.peer import Peer

__all__ = ["authority", "served"]
pytestmark = pytest.mark.interop


def trusting(authority: Authority) -> dict[str, object]:
    """System properties of a stock program that goes to others by TLS, and verifies them."""
    return {"tls.test.mode.enable": "false", "tls.enable": "true", "tls.client.authServer": "true",
            "tls.client.trustCertPath": authority.certificate}


@pytest.mark.slow
def test_a_stock_broker_registers_at_our_name_server_by_tls(
    served: dict[str, object], authority: Authority, tmp_path: Path,
) -> None:
    """One that speaks TLS alone, and asks for accounts: a stock broker signs nothing."""
    require_stock()
    (tmp_path / "plain_acl.yml").write_text(
        "globalWhiteRemoteAddresses: [127.0.0.1]\n"
        "accounts: [{accessKey: somebody, secretKey: some-secret}]\n")
    with contextlib.ExitStack() as stack:
        names = stack.enter_context(mqcore_namesrv(tmp_path / "names", {
            **served, "tls.mode": "enforcing", "acl.enable": True, "acl.folder": tmp_path}))
        stock = start_broker(tmp_path / "stock", names.namesrv_addr, system={
            **trusting(authority), "tls.server.mode": "disabled"}, names_tls=authority.client())
        stack.callback(stock.process.kill)
        with Peer(names.namesrv_addr, tls=authority.client()) as peer:
            body = peer.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body
        assert b'"stock-a"' in body
        assert stock.addr.encode() in body


@pytest.mark.slow
def test_our_broker_registers_at_a_stock_name_server_by_tls(
    authority: Authority, served: dict[str, object], tmp_path: Path,
) -> None:
    require_stock()
    names = start_namesrv(tmp_path / "names", system={
        "tls.test.mode.enable": "false", "tls.server.mode": "permissive",
        "tls.server.certPath": served["tls.certificate"], "tls.server.keyPath": served["tls.key"]})
    try:
        with mqcore_up(tmp_path / "ours", {
                "tls.client_enable": True, "tls.client_trust": authority.certificate},
                namesrv_addr=names.addr) as ours, Peer(names.addr) as peer:
            wait_until(lambda: ours.broker_addr.encode() in peer.ask(
                RequestCode.GET_BROKER_CLUSTER_INFO).body, "the registration")
        stranger = Authority(tmp_path, "stranger")
        with mqcore_up(tmp_path / "careful", {
                "broker.name": "careful", "tls.client_enable": True,
                "tls.client_trust": stranger.certificate}, namesrv_addr=names.addr) as careful:
            wait_until(lambda: "its certificate is not believed" in careful.tail(), "the refusal")
            with Peer(names.addr) as peer:
                assert b'"careful"' not in peer.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body
    finally:
        names.stop()


def served_certificate(address: str) -> bytes:
    """What a broker shows to a new connection."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 10) as plain, careless().wrap_socket(
            plain) as secured:
        return secured.getpeercert(binary_form=True) or b""


@pytest.mark.slow
def test_a_java_client_believes_our_certificates_as_it_does_those_of_a_stock_broker(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One certificate after the other, in the files that both brokers look at."""
    require_stock()
    good, wrong_host = authority.sign("good"), authority.sign("other", "DNS:other.example")
    foreign = Authority(tmp_path / "foreign").sign("foreign")
    expired = authority.sign("expired", days=-1)
    alone = tmp_path / "alone.pem"
    alone.write_bytes(self_signed("alone"))
    # the client looks at who signed, and at no host (client.md 7.3)
    cases = {"good": (good, True), "wrong host": (wrong_host, True), "foreign": (foreign, False),
             "self-signed": ((alone, alone), False), "good again": (good, True)}
    shown = tmp_path / "shown.pem", tmp_path / "shown.key"

    def show(pair: tuple[Path, Path]) -> bytes:
        for source, target in zip(pair, shown, strict=True):
            shutil.copy(source, target)
        return ssl.PEM_cert_to_DER_cert(pair[0].read_text().partition("-----BEGIN PRIVATE")[0])

    show(good)
    options = [f"-D{name}={value}" for name, value in trusting(authority).items()]
    with contextlib.ExitStack() as stack:
        names = start_namesrv(tmp_path / "names")
        stack.callback(names.process.kill)
        stock = start_broker(tmp_path / "stock", names.addr, system={
            "tls.test.mode.enable": "false", "tls.server.mode": "permissive",
            "tls.server.certPath": shown[0], "tls.server.keyPath": shown[1]})
        stack.callback(stock.process.kill)
        ours = stack.enter_context(mqcore_up(tmp_path / "ours", {
            "tls.certificate": shown[0], "tls.key": shown[1], "tls.poll_ms": 50}))
        with monkeypatch.context() as patch:
            patch.setenv("JAVA_TOOL_OPTIONS", " ".join(options))
            mqadmin = Mqadmin(tmp_path / "mqadmin", ours.namesrv_addr)
        stack.callback(mqadmin.stop)
        for name, (pair, believed) in cases.items():
            wanted = show(pair)
            for address in (ours.broker_addr, stock.addr):
                wait_until(lambda address=address, wanted=wanted:                 # type: ignore[misc]
                           served_certificate(address) == wanted, f"{name} at {address}")
                text = mqadmin.run("brokerStatus", "-b", address)
                assert ("bootTimestamp" in text) is believed, (name, address, text)
        show(expired)                               # ours goes on with the one before it
        wait_until(lambda: "expected a certificate that has not expired" in ours.output.read_text(),
                   "the refusal of the expired file")
        wait_until(lambda: served_certificate(stock.addr) != wanted, "the expired one at stock")
        assert served_certificate(ours.broker_addr) == wanted
        assert "bootTimestamp" not in mqadmin.run("brokerStatus", "-b", stock.addr)
        assert "bootTimestamp" in mqadmin.run("brokerStatus", "-b", ours.broker_addr)
