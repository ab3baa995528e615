"""The alert rules and the board: written from their table, of metrics that exist, and that work."""
from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from docs import alerts
from mqcore.http.metrics import METRICS
from mqcore.wire.codes import RequestCode
from tests.http.prometheus import Prometheus, program, scraping
from tests.replication.pairs import pair
from tests.support.stock import free_port
from tests.support.waiting import wait_until
from tests.wire_live.peer import pull_fields, send_fields, topic_fields
from tests.wire_live.state import State

BROKER = 'cluster="c",node_id="n"'


def slow(name: str, process: str, bounds: tuple[str, str]) -> dict[str, str]:
    """Buckets of a histogram whose times are all between two bounds."""
    return {f'mqcore_{name}_seconds_bucket{{{BROKER},process="{process}",le="{bound}"}}': values
            for bound, values in ((bounds[0], "0x9"), (bounds[1], "0+9x9"), ("+Inf", "0+9x9"))}


# The series that make each alert fire, as promtool writes values: first, step and count.
FIRES = {
    "Down": {'up{job="mqcore"}': "0x9"},
    "NotReady": {f"mqcore_ready{{{BROKER}}}": "0x9"},
    "WritesRefused": {f'mqcore_writes_refused{{{BROKER},reason="disk full"}}': "1x9"},
    "ProcessHangs": {f'mqcore_process_beat_age_seconds{{{BROKER},process="writer"}}': "11x9"},
    "ProcessRestarts": {f'mqcore_process_starts_total{{{BROKER},process="writer"}}': "1+1x9"},
    "LagOld": {f'rocketmq_consumer_lag_latency{{{BROKER},consumer_group="g"}}': "300001x9"},
    "DeadLetters": {f'rocketmq_send_to_dlq_messages_total{{{BROKER},consumer_group="g"}}': "0 1x8"},
    "TransactionOld": {f"mqcore_transaction_oldest_seconds{{{BROKER}}}": "601x9"},
    "DiskFills": {f'mqcore_disk_free_bytes{{{BROKER},folder="/s"}}': "1000-50x19"},
    "FlushSlow": slow("flush", "writer", ("0.524288", "1.048576")),
    "SlaveWaitSlow": slow("slave_wait", "writer", ("0.524288", "1.048576")),
    "CoordinatorSlow": slow("client_request", "coordinator", ("1.048576", "2.097152")),
    "DispatchBehind": {f"rocketmq_storage_dispatch_behind_bytes{{{BROKER}}}": "67108865x9"},
    "NameServerGone": {f"mqcore_registered_namesrvs{{{BROKER}}}": "0x9"},
    "SlaveBehind": {f"mqcore_slave_lag_seconds{{{BROKER}}}": "61x9"},
    "SeriesFolded": {f'mqcore_metrics_folded{{{BROKER},of="topics"}}': "1x90"},
}
# The same of a broker that is well: none fires.
WELL = {
    'up{job="mqcore"}': "1x90", f"mqcore_ready{{{BROKER}}}": "1x90",
    f'mqcore_writes_refused{{{BROKER},reason="disk full"}}': "0x90",
    f'mqcore_process_beat_age_seconds{{{BROKER},process="writer"}}': "10x90",
    f'mqcore_process_starts_total{{{BROKER},process="writer"}}': "1x40 2x49",
    f'rocketmq_consumer_lag_latency{{{BROKER},consumer_group="g"}}': "300000x90",
    f'rocketmq_send_to_dlq_messages_total{{{BROKER},consumer_group="g"}}': "7x90",
    f"mqcore_transaction_oldest_seconds{{{BROKER}}}": "600x90",
    f'mqcore_disk_free_bytes{{{BROKER},folder="/s"}}': "100000-1x90",
    **{f'mqcore_{name}_seconds_bucket{{{BROKER},process="p",le="{bound}"}}': "0+9x90"
       for name in ("flush", "slave_wait", "client_request") for bound in ("0.262144", "+Inf")},
    f"rocketmq_storage_dispatch_behind_bytes{{{BROKER}}}": "67108864x90",
    f"mqcore_registered_namesrvs{{{BROKER}}}": "1x90",
    f"mqcore_slave_lag_seconds{{{BROKER}}}": "60x90",
    f'mqcore_metrics_folded{{{BROKER},of="topics"}}': "0x90",
}
END = re.compile(r"_(bucket|sum|count)$")


def test_the_files_are_those_of_the_table() -> None:
    """`make settings` writes them."""
    assert alerts.RULES.read_text(encoding="utf-8") == alerts.rules()
    assert alerts.BOARD.read_text(encoding="utf-8") == alerts.board()
    text = alerts.DOCUMENT.read_text(encoding="utf-8")
    assert alerts.document(text) == text


def test_rules_and_board_ask_only_for_metrics_that_exist() -> None:
    kinds = {metric.name: metric.kind for metric in METRICS}
    asked = [one.fires for one in alerts.ALERTS]
    asked += [expr for panel in alerts.PANELS for expr, _ in panel.lines]
    for expr in asked:
        found = re.findall(r"\b(?:mqcore|rocketmq)_\w+", expr)
        assert found or expr.startswith("up{"), expr
        for name in found:
            of_histogram = kinds.get(END.sub("", name)) == "histogram" and END.search(name)
            assert of_histogram or kinds.get(name, "histogram") != "histogram", name


def test_each_alert_fires_and_is_silent_when_all_is_well(tmp_path: Path) -> None:
    promtool = program("promtool")
    names = {one.name for one in alerts.ALERTS}
    assert FIRES.keys() == names
    cases = []
    for name, series in FIRES.items():
        minutes = max(int(value.rpartition("x")[2]) for value in series.values())
        (alert,) = [one for one in alerts.ALERTS if one.name == name]
        expected = [{"exp_labels": {"severity": alert.severity, **labels(name, series)},
                     "exp_annotations": {"summary": alert.means, "description": alert.do,
                                         "runbook": f"runbook.md#mqcore{name.lower()}"}}]
        cases.append({
            "interval": "1m", "input_series": rows(series), "alert_rule_test": [{
                "eval_time": f"{minutes}m", "alertname": f"Mqcore{name}",
                "exp_alerts": expected}]})
    cases.append({"interval": "1m", "input_series": rows(WELL), "alert_rule_test": [
        {"eval_time": "80m", "alertname": f"Mqcore{name}", "exp_alerts": []} for name in names]})
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(alerts.RULES)], "tests": cases}))
    for arguments in (("check", "rules", alerts.RULES), ("test", "rules", file)):
        done = subprocess.run([promtool, *map(str, arguments)], capture_output=True, text=True,
                              check=False, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr


def rows(series: dict[str, str]) -> list[dict[str, str]]:
    return [{"series": name, "values": values} for name, values in series.items()]


def labels(name: str, series: dict[str, str]) -> dict[str, str]:
    """Those of the alert: of its series, without what a sum takes away."""
    found = dict(re.findall(r'(\w+)="([^"]*)"', next(iter(series))))
    return {key: found[key] for key in found if "le" not in found or key not in ("process", "le")}


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Prometheus]:
    port = free_port()
    settings = {"http.enable": True, "http.listen": f"127.0.0.1:{port}",
                "broker.offsets_persist_interval_ms": 50, "replication.role": "sync-master"}
    with pair(tmp_path, settings) as both, State(both.master.broker_addr) as peer:
        peer.consumer("billing", "orders")
        wait_until(lambda: peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields(
            "made"), b"body").code == 0, "a slave that has the message")
        for topic in ("orders", "%DLQ%billing"):
            assert peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(topic, 1)).code == 0
            assert peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields(topic), b"body").code == 0
        wait_until(lambda: peer.ask(RequestCode.PULL_MESSAGE, pull_fields(
            "orders", group="billing")).code == 0, "the message in its queue")
        assert peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {
            "consumerGroup": "billing", "topic": "orders", "queueId": "0",
            "commitOffset": "0"}).code == 0
        with scraping(tmp_path, port, [alerts.RULES]) as found:
            yield found


@pytest.mark.slow
def test_a_real_prometheus_gets_data_for_each_panel_and_takes_each_rule(
        prometheus: Prometheus) -> None:
    for panel in alerts.PANELS:
        for expr, _ in panel.lines:
            wait_until(lambda expr=expr: prometheus.has_data(expr), f"data for {expr}")

    def health() -> set[str]:
        found = prometheus.get("rules")
        return {rule["health"] for group in found["groups"] for rule in group["rules"]}

    wait_until(lambda: health() == {"ok"}, "an evaluation of each rule")
    (group,) = prometheus.get("rules")["groups"]
    assert [rule["name"] for rule in group["rules"]] == [
        f"Mqcore{one.name}" for one in alerts.ALERTS]
