"""Metrics and health of a name server: one without a broker, and the one in a broker."""
from __future__ import annotations

import socket
from pathlib import Path

import pytest

from mqcore.namesrv.settings import NamesrvSettingsError, load
from mqcore.wire.codes import RequestCode
from tests.http.asking import OPEN, families, get, raw, values
from tests.support.mqcore_process import MqcoreError, mqcore_namesrv, mqcore_up
from tests.support.stock import free_port
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer


def figure(port: int, name: str) -> list[float]:
    return values(families(port), f"mqcore_namesrv_{name}")


def test_a_name_server_alone_has_metrics_of_its_own(tmp_path: Path) -> None:
    port = free_port()
    with mqcore_namesrv(tmp_path / "names", {"namesrv.http_listen": f"127.0.0.1:{port}"}) as names:
        wait_until(lambda: figure(port, "brokers") == [0], "figures")
        assert get(port, "/healthz")[0].status == get(port, "/readyz")[0].status == 200
        with mqcore_up(tmp_path / "broker", namesrv_addr=names.namesrv_addr):
            wait_until(lambda: figure(port, "brokers") == [1], "the broker")
            assert figure(port, "topics")[0] > 0
            with Peer(names.namesrv_addr) as peer:
                before = figure(port, "unserved_requests_total")
                assert peer.ask(999).code == 3
                wait_until(lambda: figure(port, "unserved_requests_total") == [before[0] + 1],
                           "the unknown request")
                assert figure(port, "connections")[0] >= 2
        found = families(port, newer=True)
        assert values(found, "mqcore_namesrv_requests_total", node_type="nameserver",
                      node_id=names.namesrv_addr)[0] >= 2
        assert get(port, "/metrics", OPEN)[1].endswith("# EOF\n")
        assert b"404 Not Found" in raw(port, b"GET /other HTTP/1.0\r\n\r\n")
        assert b"400 Bad Request" in raw(port, b"GET /metrics HTTP/1.1\r\nHost: a.example\r\n\r\n")


def test_the_name_server_in_a_broker_has_the_same_figures(tmp_path: Path) -> None:
    port = free_port()
    with mqcore_up(tmp_path, {"http.enable": True, "http.listen": f"127.0.0.1:{port}"}) as broker:
        wait_until(lambda: figure(port, "brokers") == [1], "the broker")
        with Peer(broker.namesrv_addr) as peer:
            assert peer.ask(RequestCode.GET_BROKER_CLUSTER_INFO).code == 0
            wait_until(lambda: figure(port, "requests_total")[0] >= 1, "the request")


def test_a_taken_port_is_a_failed_start_with_a_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(MqcoreError, match=r"\(namesrv.http_listen\) cannot be listened on"), \
                mqcore_namesrv(tmp_path, {"namesrv.http_listen": f"127.0.0.1:{port}"}):
            pass


@pytest.mark.parametrize("listen", ["10980", "127.0.0.1:0", ":9000", "127.0.0.1:70000"])
def test_an_address_that_cannot_be_is_refused(tmp_path: Path, listen: str) -> None:
    file = tmp_path / "namesrv.toml"
    file.write_text(f'[namesrv]\nhttp_listen = "{listen}"\n')
    with pytest.raises(NamesrvSettingsError, match=r"http_listen.*expected host:port"):
        load(file)
