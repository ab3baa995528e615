"""Metrics and health of a real broker, in all of its trouble, as others ask for them."""
from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection

import pytest

from mqcore.wire.codes import RequestCode
from tests.http.asking import OPEN, checks, families, get, raw, values
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.stock import free_port
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, pull_fields, send_fields, topic_fields
from tests.workers.processes import pid_of

HOSTILE = 'a "group" \\ with\nlines {x="y"} # EOF \N{SNOWMAN}\x1b[2J'
SENDS = 7


@dataclass
class Asked:
    """A broker that took some messages, and the port of its http process."""

    broker: MqcoreProcess
    port: int


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    port = free_port()
    settings = {"http.enable": True, "http.listen": f"127.0.0.1:{port}", "http.page": False,
                "broker.offsets_persist_interval_ms": 50}
    with mqcore_up(tmp_path_factory.mktemp("http"), settings) as broker, \
            Peer(broker.broker_addr) as peer:
        for topic in ("orders", "%DLQ%billing"):
            assert peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(topic, 4)).code == 0
        for number in range(SENDS):
            assert peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields(
                "orders", queue_id=number % 4), b"body").code == 0
        assert peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields("%DLQ%billing"), b"x").code == 0
        wait_until(lambda: peer.ask(RequestCode.PULL_MESSAGE, pull_fields(
            "orders", group="billing")).code == 0, "messages in the queue")
        for group, offset in (("billing", 1), (HOSTILE, 0)):
            assert peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {
                "consumerGroup": group, "topic": "orders", "queueId": "0",
                "commitOffset": str(offset)}).code == 0
        yield Asked(broker, port)


def test_a_healthy_broker_says_so(asked: Asked) -> None:
    assert checks(asked.port, "/healthz") == (200, {})
    assert checks(asked.port, "/readyz") == (200, {})


@pytest.mark.parametrize("newer", [False, True])
def test_messages_are_counted_by_topic_and_group(asked: Asked, newer: bool) -> None:
    found = families(asked.port, newer=newer)
    assert values(found, "rocketmq_messages_in_total", topic="orders", cluster="DefaultCluster",
                  node_type="broker", node_id="mqcore-a", is_system="false") == [SENDS]
    assert values(found, "rocketmq_messages_out_total", topic="orders",
                  consumer_group="billing", is_retry="false")[0] >= 1
    assert values(found, "rocketmq_send_to_dlq_messages_total", consumer_group="billing") == [1]
    assert values(found, "mqcore_sends_total") == [SENDS + 1]
    assert values(found, "mqcore_ready") == [1]
    assert values(found, "mqcore_metrics_folded") == [0, 0]
    assert set(values(found, "mqcore_process_up")) == {1}
    assert len({family.name for family in found}) == len(found)


def test_times_are_histograms_of_each_process(asked: Asked) -> None:
    found = families(asked.port, newer=True)
    counts = {name: sum(values(found, f"mqcore_{name}_seconds_count"))
              for name in ("send", "pull", "delivery", "dispatch")}
    assert counts["send"] == SENDS + 1
    assert counts["delivery"] >= counts["pull"] >= 1
    assert counts["dispatch"] >= SENDS + 1
    for name, process, count in (("send", "pull-serving-0", 20), ("delivery", "pull-serving-0", 16),
                                 ("dispatch", "dispatcher", 20)):
        below = values(found, f"mqcore_{name}_seconds_bucket", process=process)
        assert len(below) == count + 1
        assert below == sorted(below)
        assert below[-1] == counts[name]
        assert 0 < values(found, f"mqcore_{name}_seconds_sum", process=process)[0] < 3600
    assert values(found, "mqcore_send_seconds_bucket", le="33.554432") == [SENDS + 1]
    wait_until(lambda: sum(values(families(asked.port), "mqcore_flush_seconds_count")) >= 1,
               "a flush")


def test_lag_is_shown_of_groups_that_are_away_whatever_they_are_called(asked: Asked) -> None:
    def lags() -> dict[str, float]:
        return {group: value for group in ("billing", HOSTILE) for value in values(
            families(asked.port, newer=True), "rocketmq_consumer_lag_messages",
            consumer_group=group, topic="orders")}

    wait_until(lambda: lags() == {"billing": 1, HOSTILE: 2}, "the offsets in the files")
    found = families(asked.port)
    for group in ("billing", HOSTILE):
        (age_ms,) = values(found, "rocketmq_consumer_lag_latency", consumer_group=group)
        assert 0 <= age_ms < 3_600_000


def test_queues_have_a_page_of_their_own(asked: Asked) -> None:
    found = families(asked.port, "/metrics/queues")
    assert [values(found, "mqcore_queue_max_offset", topic="orders", queue=str(queue))
            for queue in range(4)] == [[2], [2], [2], [1]]
    assert values(families(asked.port), "mqcore_queue_max_offset") == []


def test_the_format_is_the_one_that_was_accepted(asked: Asked) -> None:
    answer, body = get(asked.port, "/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "# TYPE rocketmq_messages_in_total counter" in body
    answer, body = get(asked.port, "/metrics", OPEN)
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert "# TYPE rocketmq_messages_in counter" in body
    assert body.endswith("# EOF\n")


@pytest.mark.parametrize(("request_text", "status", "said"), [
    (b"GET /other HTTP/1.1\r\n\r\n", 404, b"/metrics/queues"),
    (b"POST /metrics HTTP/1.1\r\n\r\n", 400, b"expected GET or HEAD"),
    (b"GET /metrics\r\n\r\n", 400, b"expected GET PATH HTTP/1.1"),
    (b"GET /metrics HTTP/1.1\r\nno field\r\n\r\n", 400, b"expected NAME: VALUE"),
    (b"GET /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 400, b"without a body"),
    (b"GET /metrics HTTP/1.1\r\nHost: evil.example:1\r\n\r\n", 400, b"as Host"),
    (b"GET /metrics HTTP/1.1\r\nA: " + b"a" * 9000 + b"\r\n\r\n", 431, b"at most 8192 bytes"),
])
def test_what_is_no_request_gets_a_sentence(
    asked: Asked, request_text: bytes, status: int, said: bytes
) -> None:
    answer = raw(asked.port, request_text)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert said in answer
    assert checks(asked.port, "/healthz") == (200, {})


def test_older_clients_and_those_that_want_no_body_are_served(asked: Asked) -> None:
    assert b"# TYPE mqcore_ready gauge" in raw(asked.port, b"GET /metrics HTTP/1.0\r\n\r\n")
    answer, body = get(asked.port, "/metrics", method="HEAD")
    assert (answer.status, body) == (200, "")
    two = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2
    assert raw(asked.port, two).count(b"HTTP/1.1 200 OK") == 2


def test_a_probe_replaces_the_connection_that_has_been_idle_longest(asked: Asked) -> None:
    idle = [HTTPConnection("127.0.0.1", asked.port, timeout=60) for _ in range(16)]

    def ready(connection: HTTPConnection) -> int:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        answer.read()
        return answer.status

    try:
        assert [ready(connection) for connection in idle] == [200] * 16
        assert b"200 OK" in raw(asked.port, b"GET /healthz HTTP/1.0\r\n\r\n")
        assert idle[0].sock.recv(1) == b""
        assert [ready(connection) for connection in idle[1:]] == [200] * 15
    finally:
        for connection in idle:
            connection.close()


def raw_or_none(port: int) -> bytes | None:
    try:
        return raw(port, b"GET /healthz HTTP/1.0\r\n\r\n") or None
    except ConnectionError:
        return None


def test_a_process_that_hangs_is_named_and_figures_are_shown_meanwhile(asked: Asked) -> None:
    pid = pid_of(asked.broker, "coordinator")
    wait_until(lambda: values(families(asked.port), "rocketmq_consumer_lag_messages",
                              consumer_group="billing") == [1], "the offsets in the files")
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: checks(asked.port, "/healthz")[0] == 503, "a failed probe")
        status, failed = checks(asked.port, "/healthz")
        assert (status, list(failed)) == (503, ["coordinator"])
        assert re.fullmatch(rf"process {pid} has not turned for \d\d+ s, its state is T",
                            failed["coordinator"])
        assert "coordinator" in checks(asked.port, "/readyz")[1]["processes"]
        found = families(asked.port)
        assert values(found, "rocketmq_messages_in_total", topic="orders") == [SENDS]
        assert values(found, "rocketmq_consumer_lag_messages", consumer_group="billing") == [1]
        assert values(found, "mqcore_process_beat_age_seconds", process="coordinator")[0] > 10
        assert values(found, "mqcore_ready") == [0]
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: checks(asked.port, "/healthz") == (200, {}), "the coordinator's next turn")


def test_a_killed_http_process_comes_again(asked: Asked) -> None:
    pid = pid_of(asked.broker, "http")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: raw_or_none(asked.port) and pid_of(asked.broker, "http") != pid,
               "another http process")
    assert values(families(asked.port), "mqcore_process_starts_total", process="http") == [2]
