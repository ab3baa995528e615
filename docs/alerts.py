"""
Alerts and a board for the metrics of mqcore/http/metrics.py: one table of each.

Run as a program it writes docs/monitoring/mqcore.rules.yml (Prometheus), mqcore.json (Grafana) and
the table of docs/alerts.md.
"""
from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mqcore.figures import LATENCIES

DOCS = Path(__file__).parent
RULES, BOARD = DOCS / "monitoring" / "mqcore.rules.yml", DOCS / "monitoring" / "mqcore.json"
DOCUMENT = DOCS / "alerts.md"
HEAD = "| alert | means | do |\n|---|---|---|\n"
WIDTH, HEIGHT, IN_ROW = 12, 8, 2       # of a panel, in Grafana's units; panels side by side


@dataclass(frozen=True)
class Alert:
    """
    One alert.

    name      without the `Mqcore` in front
    fires     in PromQL
    after     how long that has to hold, as Prometheus writes it
    severity  critical: clients notice; warning: they will
    means     one sentence
    do        the next step
    """

    name: str
    fires: str
    after: str
    severity: str
    means: str
    do: str

    @property
    def section(self) -> str:
        """Its section of the run-book, as a link from docs/."""
        return f"runbook.md#mqcore{self.name.lower()}"


def _slow(name: str, seconds: float) -> str:
    """That the slowest in a hundred of a histogram take longer."""
    return ("histogram_quantile(0.99, sum by (cluster, node_id, le) "
            f"(rate(mqcore_{name}_seconds_bucket[5m]))) > {seconds}")


ALERTS = (
    Alert("Down", 'up{job="mqcore"} == 0', "1m", "critical",
          "Prometheus gets no answer from the broker's http process.",
          "`mqcore status` on its machine; if it runs, look at `http.listen`"),
    Alert("NotReady", "mqcore_ready == 0", "1m", "critical",
          "The broker does not serve clients.", "`curl HOST:10980/readyz` names the failed check"),
    Alert("WritesRefused", "mqcore_writes_refused == 1", "0m", "critical",
          "Sends are refused, for the reason in the label.",
          "`mqcore status`; the line `writes are refused` of the log says more"),
    Alert("ProcessHangs", "mqcore_process_beat_age_seconds > 10", "30s", "critical",
          "A process has not turned for 10 s.",
          "`curl HOST:10980/healthz` has its state: D waits for a disk; else "
          "`py-spy dump --native --pid PID`"),
    Alert("ProcessRestarts", "increase(mqcore_process_starts_total[10m]) > 1", "0m", "warning",
          "A process died more than once in ten minutes.", "the lines `... ended with` of the log"),
    Alert("LagOld", "rocketmq_consumer_lag_latency > 300000", "5m", "warning",
          "A group has not consumed messages that are five minutes old.",
          "`mqcore group show GROUP`: members, owners of queues, subscriptions"),
    Alert("DeadLetters", "increase(rocketmq_send_to_dlq_messages_total[10m]) > 0", "0m", "warning",
          "Messages of a group went to its dead letters.", "`mqcore dlq show GROUP`"),
    Alert("TransactionOld", "mqcore_transaction_oldest_seconds > 600", "1m", "warning",
          "A transaction is undecided for ten minutes.", "`mqcore transaction ls`"),
    Alert("DiskFills", "predict_linear(mqcore_disk_free_bytes[1h], 4 * 3600) < 0", "10m",
          "warning", "At the rate of the last hour the disk is full within four hours.",
          "[retention.md](retention.md); `mqcore broker gc -b BROKER` deletes expired files now"),
    Alert("FlushSlow", _slow("flush", 0.5), "5m", "warning",
          "One sync of the log in a hundred takes more than half a second.",
          "the disk: `iostat -x 1`; other programs on it"),
    Alert("SlaveWaitSlow", _slow("slave_wait", 0.5), "5m", "warning",
          "One send in a hundred waits for slaves for more than half a second.",
          "`mqcore replication status BROKER`; disk and network of the slave"),
    Alert("CoordinatorSlow", _slow("client_request", 1), "5m", "warning",
          "One heartbeat, lock or offset in a hundred takes the coordinator more than a second.",
          "`mqcore debug slow --over 100ms`; which clients ask for much: `mqcore client ls`"),
    Alert("DispatchBehind", "rocketmq_storage_dispatch_behind_bytes > 67108864", "1m", "critical",
          "Consumers do not see the last 64 MiB that were stored.",
          "`mqcore status`; the lines of the dispatcher in the log"),
    Alert("NameServerGone", "mqcore_registered_namesrvs == 0", "2m", "critical",
          "No name server took the broker's last registration: clients lose its route.",
          "`mqcore check ready`; `broker.namesrv_addrs`"),
    Alert("SlaveBehind", "mqcore_slave_lag_seconds > 60", "1m", "warning",
          "A slave lacks what was stored a minute ago.", "`mqcore replication status BROKER`"),
    Alert("SeriesFolded", "mqcore_metrics_folded > 0", "1h", "warning",
          "Topics or groups have no series of their own.",
          "raise `http.metrics_topics_max` or `http.metrics_groups_max`"),
)


@dataclass(frozen=True)
class Panel:
    """One diagram: its lines as (PromQL, legend), and Grafana's name of their unit."""

    title: str
    unit: str
    lines: tuple[tuple[str, str], ...]


def _quantiles(name: str) -> tuple[tuple[str, str], ...]:
    return tuple((f"histogram_quantile({share}, sum by (node_id, le) "
                  f"(rate(mqcore_{name}_seconds_bucket[5m])))", f"{{{{node_id}}}} p{share * 100:g}")
                 for share in (0.5, 0.99))


PANELS = (
    Panel("Ready", "bool", (("mqcore_ready", "{{node_id}}"),)),
    Panel("Messages stored", "cps", (
        ("sum by (node_id) (rate(rocketmq_messages_in_total[1m]))", "{{node_id}}"),)),
    Panel("Messages handed out", "cps", (
        ("sum by (node_id) (rate(rocketmq_messages_out_total[1m]))", "{{node_id}}"),)),
    Panel("Bytes in and out", "Bps", (
        ("sum by (node_id) (rate(mqcore_bytes_in_total[1m]))", "{{node_id}} in"),
        ("sum by (node_id) (rate(mqcore_bytes_out_total[1m]))", "{{node_id}} out"))),
    *(Panel(one.title, "s", _quantiles(one.name)) for one in LATENCIES),
    Panel("Topics with most messages", "cps", (
        ("topk(10, rate(rocketmq_messages_in_total[1m]))", "{{topic}}"),)),
    Panel("Lag in messages", "short", (
        ("topk(10, rocketmq_consumer_lag_messages)", "{{consumer_group}} {{topic}}"),)),
    Panel("Lag in time", "ms", (
        ("topk(10, rocketmq_consumer_lag_latency)", "{{consumer_group}} {{topic}}"),)),
    Panel("Dead letters", "short", (
        ("rocketmq_send_to_dlq_messages_total", "{{consumer_group}}"),)),
    Panel("Not on disk, not in queues", "bytes", (
        ("rocketmq_storage_flush_behind_bytes", "{{node_id}} flush"),
        ("rocketmq_storage_dispatch_behind_bytes", "{{node_id}} dispatch"))),
    Panel("Commit log and free disk", "bytes", (
        ("rocketmq_storage_size", "{{node_id}} log"),
        ("mqcore_disk_free_bytes", "{{node_id}} free {{folder}}"))),
    Panel("Processors of processes", "percentunit", (
        ("rate(mqcore_process_cpu_seconds_total[1m])", "{{node_id}} {{process}}"),)),
    Panel("Memory of processes", "bytes", (
        ("mqcore_process_resident_bytes", "{{node_id}} {{process}}"),)),
    Panel("Connections", "short", (
        ("sum by (node_id) (mqcore_connections)", "{{node_id}}"),)),
    Panel("Starts of processes", "short", (
        ("mqcore_process_starts_total", "{{node_id}} {{process}}"),)),
)


def rules() -> str:
    """The file of rules."""
    group = {"name": "mqcore", "rules": [{
        "alert": f"Mqcore{one.name}", "expr": one.fires, "for": one.after,
        "labels": {"severity": one.severity},
        "annotations": {"summary": one.means, "description": one.do, "runbook": one.section},
    } for one in ALERTS]}
    return str(yaml.safe_dump({"groups": [group]}, sort_keys=False, width=100))


def board() -> str:
    """The board: one panel for each row, for a data source that Grafana asks for."""
    panels: list[dict[str, Any]] = [{
        "id": number + 1, "type": "timeseries", "title": one.title,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"w": WIDTH, "h": HEIGHT, "x": number % IN_ROW * WIDTH,
                    "y": number // IN_ROW * HEIGHT},
        "fieldConfig": {"defaults": {"unit": one.unit, "min": 0}, "overrides": []},
        "targets": [{"refId": chr(ord("A") + at), "expr": expr, "legendFormat": legend}
                    for at, (expr, legend) in enumerate(one.lines)],
    } for number, one in enumerate(PANELS)]
    return json.dumps({
        "title": "mqcore", "uid": "mqcore", "schemaVersion": 38, "version": 1, "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"}, "panels": panels,
        "templating": {"list": [{"name": "datasource", "type": "datasource",
                                 "query": "prometheus"}]},
    }, indent=1) + "\n"


def document(text: str) -> str:
    """The document with the current table at its end."""
    return text[:text.index(HEAD)] + HEAD + "".join(
        f"| [`Mqcore{one.name}`]({one.section}) | {one.means} | {one.do} |\n" for one in ALERTS)


if __name__ == "__main__":
    RULES.write_text(rules(), encoding="utf-8")
    BOARD.write_text(board(), encoding="utf-8")
    DOCUMENT.write_text(document(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
