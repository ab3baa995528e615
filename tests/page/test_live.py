"""The page in the http process of a broker, by itself, and beside brokers in trouble."""
from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from mqcore.client import AsyncAdmin
from mqcore.page import asking
from mqcore.page.asking import Cluster
from mqcore.page.audit import Trail
from mqcore.page.context import Site
from mqcore.page.users import Users, line_of
from mqcore.wire.codes import RequestCode
from mqcore.wire.topics import DataVersion, TopicTable, encode_registration
from tests.http.asking import checks, get, raw, values
from tests.http.asking import families as metrics
from tests.page.conftest import World, client
from tests.page.html import Page
from tests.support.mqcore_process import MQCORE, MqcoreError, MqcoreProcess, mqcore_up
from tests.support.stock import free_port
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer
from tests.workers.processes import pid_of

ROOT = Path(__file__).parents[2]
LIMIT_S = 60


@dataclass
class Served:
    """A broker with the page in its http process."""

    broker: MqcoreProcess
    port: int


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    port = free_port()
    with mqcore_up(tmp_path_factory.mktemp("served"), {
            "http.enable": True, "http.listen": f"127.0.0.1:{port}"}) as broker:
        yield Served(broker, port)


def test_a_broker_serves_the_page_beside_its_metrics(served: Served) -> None:
    answer, text = get(served.port, "/")
    page = Page(text)
    assert answer.status == 200
    assert page.faults == []
    assert "All is well" in page.text
    assert checks(served.port, "/readyz") == (200, {})
    store = json.loads(get(served.port, "/store?format=json")[1])
    found = {one["name"]: one for one in store["broker"]["processes"]}
    assert found["writer"]["state"] == "running"
    assert found["http"]["pid"] == pid_of(served.broker, "http")
    assert {one["name"] for one in store["broker"]["latencies"]} >= {"send", "flush", "delivery"}


def test_one_connection_gets_both(served: Served) -> None:
    connection = HTTPConnection("127.0.0.1", served.port, timeout=LIMIT_S)
    try:
        for path, part in (("/healthz", b'"ok"'), ("/audit", b"<!doctype html>"),
                           ("/audit", b"<!doctype html>")):
            connection.request("GET", path)
            assert part in connection.getresponse().read()
    finally:
        connection.close()


def test_a_connection_of_the_page_stays_open(served: Served) -> None:
    """Over rounds, a second each, in which the process ends what has its last answer."""
    connection = HTTPConnection("127.0.0.1", served.port, timeout=LIMIT_S)
    try:
        connection.connect()
        opened, end = connection.sock, time.monotonic() + 3
        while time.monotonic() < end:
            connection.request("GET", "/audit")
            assert connection.getresponse().read()
            assert connection.sock is opened
    finally:
        connection.close()


def test_a_request_in_two_pieces_and_two_in_one_are_answered(served: Served) -> None:
    head = b"GET /audit HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    assert raw(served.port, head + head.replace(
        b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")).count(b"200 OK") == 2
    with socket.create_connection(("127.0.0.1", served.port), LIMIT_S) as peer:
        peer.sendall(b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\n"
                     b"Origin: http://127.0.0.1\r\n\r\nab")
        peer.sendall(b"cd")
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += peer.recv(65_536)
        assert b"303 See Other" in answer


def test_a_foreign_host_gets_neither(served: Served) -> None:
    for path in ("/", "/metrics", "/no-such-page"):
        assert get(served.port, path, {"Host": "attacker.example"})[0].status == 400


@pytest.mark.parametrize("request_bytes", [
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"BREW /pot HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /%ff%fe HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    b"GET /topics HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    b"GET /topics HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\r\n\r\n",
    b"POST /change HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
])
def test_nonsense_ends_a_connection_and_nothing_else(
        served: Served, request_bytes: bytes) -> None:
    pid = pid_of(served.broker, "http")
    raw(served.port, request_bytes)
    assert get(served.port, "/audit")[0].status == 200
    assert pid_of(served.broker, "http") == pid


def test_events_are_pushed_and_end_with_the_process(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), LIMIT_S) as peer:
        peer.sendall(b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        read = b""
        while read.count(b"event: sample") < 2:
            read += peer.recv(65_536)
        assert b"hx-partial" in read
        assert b"text/event-stream" in read
        samples = [json.loads(one) for one in re.findall(rb"event: sample\ndata: (.+)\n", read)]
        assert samples[0]["at"] <= samples[1]["at"]
        # a scrape is answered while pages are open
        assert values(metrics(served.port), "mqcore_ready") == [1]


def test_nothing_of_the_page_is_loaded_before_it_is_asked_for() -> None:
    program = ("import sys, workers.http\n"
               "print(*sorted({name.partition('.')[0] for name in sys.modules}))\n"
               "print([name for name in sys.modules if name.startswith('mqcore.page')])")
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True,
                          text=True, check=True).stdout.splitlines()
    assert {"starlette", "uvicorn", "jinja2", "h11"} & set(done[0].split()) == set()
    assert done[1] == "[]"


def test_without_the_page_there_are_metrics_only(tmp_path: Path) -> None:
    port = free_port()
    with mqcore_up(tmp_path, {"http.enable": True, "http.listen": f"127.0.0.1:{port}",
                              "http.page": False}):
        assert get(port, "/")[1].split() == ["/metrics", "/metrics/queues", "/healthz", "/readyz"]
        assert get(port, "/topics")[0].status == 404


def test_other_hosts_need_users(tmp_path: Path) -> None:
    port = free_port()
    settings = {"http.enable": True, "http.listen": f"0.0.0.0:{port}"}
    with pytest.raises(MqcoreError, match="would ask other hosts for no account"), \
            mqcore_up(tmp_path / "a", settings):
        pass
    with mqcore_up(tmp_path / "b", {**settings, "http.users": [line_of("ann", "correct horse")]}):
        answer, _ = get(port, "/topics")
        assert (answer.status, answer.getheader("location")) == (303, "/login?then=%2Ftopics")
        assert get(port, "/metrics")[0].status == 200


# -- the page by itself ---------------------------------------------------------------------------

def test_the_command_serves_a_cluster_under_other_addresses(world: World, tmp_path: Path) -> None:
    port = free_port()
    old, new = "127.0.0.1:1", world.broker.broker_addr
    with mqcore_up(tmp_path, {"broker.advertised_ip": "192.0.2.1"}) as other:
        real = other.broker_addr.rpartition(":")[2]
        line = [*MQCORE, "dashboard", "-n", other.namesrv_addr, "--listen", f"127.0.0.1:{port}",
                "--map", f"192.0.2.1:{real}=127.0.0.1:{real}", "--map", f"{old}={new}"]
        with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                assert f"http://127.0.0.1:{port}/" in process.stdout.readline()
                store = json.loads(get(port, "/store?format=json")[1])
                brokers = store["answer"]["brokers"]
                assert [one["address"] for one in brokers] == [f"192.0.2.1:{real}"]
                assert store["answer"]["unreachable"] == []
                assert store["broker"]["processes"]
            finally:
                process.send_signal(signal.SIGINT)
                process.wait(LIMIT_S)


def test_several_clusters_have_a_page_each(world: World) -> None:
    of = Site([Cluster(world.namesrv, name=name, base=f"/{name}") for name in ("north", "south")],
              Users(time.monotonic), Trail())
    with client(of) as browser:
        assert browser.get("/").headers["location"] == "/north/"
        page = Page(browser.get("/south/topics").text)
        assert page.faults == []
        assert "/south/groups" in page.links
        assert "/north/" in page.links
        assert browser.get("/topics").status_code == 404


# -- brokers in trouble ---------------------------------------------------------------------------

@pytest.fixture
def hung(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A registered broker that takes connections and answers nothing."""
    monkeypatch.setattr(asking, "REQUEST_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent, Peer(world.namesrv) as peer:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        fields = {"brokerName": "broker-hung", "brokerAddr": address, "brokerId": "0",
                  "clusterName": "DefaultCluster", "haServerAddr": address}
        assert peer.ask(103, fields, encode_registration(TopicTable(DataVersion(1, 1)))).code == 0
        try:
            yield "broker-hung"
        finally:
            assert peer.ask(104, fields).code == 0


def test_a_broker_that_hangs_is_named_and_the_rest_stands(world: World, hung: str) -> None:
    of = Site([Cluster(world.namesrv)], Users(time.monotonic), Trail())
    with client(of) as browser:
        for path, part in (("/topics", "orders"), ("/groups", "billing"), ("/store", "mqcore-a"),
                           ("/transactions", "no undecided transactions"),
                           ("/clients", "no connected client")):
            text = Page(browser.get(path).text).text
            assert f"No answer from {hung}" in text, path
            assert part in text
        text = Page(browser.get("/").text).text
        assert text.index(hung) < text.index("Messages a second")
        assert "critical" in text
        found = json.loads(browser.get("/topics?format=json").text)
        assert [one["name"] for one in found["unreachable"]] == [hung]


def test_name_servers_that_are_gone_leave_a_page_with_a_sentence() -> None:
    of = Site([Cluster("127.0.0.1:1")], Users(time.monotonic), Trail())
    with client(of) as browser:
        for path in ("/topics", "/groups", "/store", "/settings", "/delayed", "/clients"):
            answer = browser.get(path)
            page = Page(answer.text)
            assert answer.status_code == 502, path
            assert page.faults == []
            assert "cannot connect" in page.text
        assert browser.get("/").status_code == 200
        assert wait_until(lambda: "cannot connect" in browser.get("/").text, "the sampler") >= 0


def test_processes_of_another_broker_are_asked_for(world: World) -> None:
    with client(Site([Cluster(world.namesrv)], Users(time.monotonic), Trail())) as browser:
        found = browser.get("/store?format=json").json()["broker"]
        assert found.get("error") is None
        assert {one["name"] for one in found["processes"]} >= {"writer", "coordinator"}
        assert all(one["residentBytes"] > 0 for one in found["processes"])
        sends = next(one for one in found["latencies"] if one["name"] == "send")
        assert sends["count"] >= 20
        page = Page(browser.get("/store").text)
        assert page.faults == []
        assert "Latencies since the start" in page.text
        assert "mqcore status --broker" in page.text
        odd = Page(browser.get("/store?broker=127.0.0.1:1").text)
        assert "cannot connect" in odd.text
        assert "mqcore-a" in odd.text


@pytest.mark.parametrize("body", [
    b"", b"{}", b"[]", b'{"processes": [{}], "log": {}, "latencies": []}',
    b'{"processes": [], "log": {"first": 1e400}, "latencies": []}',
    b'{"processes": [], "log": {"first": ' + b"9" * 40 + b'}, "latencies": []}',
    b'{"processes": [], "log": {"first": 1}, "latencies": []}',
    b'{"processes": [], "log": {}, "latencies": [{"name": "<b>", "help": "", "count": 1, '
    b'"meanSeconds": null, "p50Seconds": null, "p99Seconds": 1e11, "p999Seconds": null, '
    b'"buckets": [{"fromSeconds": 1e11, "count": -5}, {"fromSeconds": 0, "count": 7}]}]}',
])
def test_a_broker_may_say_anything_of_its_processes(
        world: World, monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    ask = AsyncAdmin._ask

    async def answered(self: AsyncAdmin, address: str, code: int, *args: Any, **more: Any) -> Any:
        answer = await ask(self, address, code, *args, **more)
        if code == RequestCode.GET_STANDING:
            answer.body = body
        return answer

    monkeypatch.setattr(AsyncAdmin, "_ask", answered)
    with client(Site([Cluster(world.namesrv)], Users(time.monotonic), Trail())) as browser:
        answer = browser.get("/store")
        assert answer.status_code == 200
        page = Page(answer.text)
        assert page.faults == []
        assert "mqcore-a" in page.text
