"""
TLS with what stock has: Java clients, a broker and a name server, each at the other side's ports.

The Go client 2.1.2 and the C++ client's Python package have no TLS.
"""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.wire.codes import RequestCode
from tests.interop.messages import mids, plain
from tests.interop.runner import Programs
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.stock import require_stock, start_broker, start_namesrv
from tests.support.waiting import wait_until
from tests.tls.certificates import Authority
from tests.tls.conftest import authority, served
from tests.wire_live.peer import Peer

__all__ = ["authority", "served"]
pytestmark = pytest.mark.interop


def trusting(authority: Authority) -> dict[str, object]:
    """System properties of a stock program that goes to others by TLS, and verifies them."""
    return {"tls.test.mode.enable": "false", "tls.enable": "true", "tls.client.authServer": "true",
            "tls.client.trustCertPath": authority.certificate}


@pytest.fixture(scope="module")
def enforcing(
    served: dict[str, object], tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[MqcoreProcess]:
    """Broker and name server that speak nothing but TLS."""
    with mqcore_up(tmp_path_factory.mktemp("enforcing"), {
            **served, "tls.mode": "enforcing", "broker.auto_create_topic": True}) as running:
        yield running


def test_java_clients_send_and_consume_by_tls_alone(
    enforcing: MqcoreProcess, authority: Authority, programs: Programs,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = [f"-D{name}={value}" for name, value in trusting(authority).items()]
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", " ".join(options))
    messages = plain([f"tls-{number}" for number in range(20)])
    sending = programs.produce("java", enforcing.namesrv_addr, "JavaTls", messages)
    assert len(sending.finish()) == len(messages)
    reading = programs.consume("java", enforcing.namesrv_addr, "JavaTls", "java-tls",
                               len(messages))
    assert sorted(mids(reading.finish())) == sorted(mids(messages))


def test_a_stock_broker_registers_at_our_name_server_by_tls(
    enforcing: MqcoreProcess, authority: Authority, tmp_path: Path,
) -> None:
    require_stock()
    stock = start_broker(tmp_path / "stock", enforcing.namesrv_addr, system={
        **trusting(authority), "tls.server.mode": "disabled"}, names_tls=authority.client())
    try:
        with Peer(enforcing.namesrv_addr, tls=authority.client()) as peer:
            body = peer.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body
        assert b'"stock-a"' in body
        assert stock.addr.encode() in body
    finally:
        stock.stop()


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
            wait_until(lambda: "CERTIFICATE_VERIFY_FAILED" in careful.tail(), "the refusal")
            with Peer(names.addr) as peer:
                assert b'"careful"' not in peer.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body
    finally:
        names.stop()
