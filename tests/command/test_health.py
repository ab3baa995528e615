"""`mqcore cluster health`: findings about name servers, masters, slaves and disks."""
from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from mqcore.admin.nouns import health
from mqcore.admin.nouns.check import Level
from mqcore.client import Admin
from mqcore.client.admin import Cluster as KnownCluster
from mqcore.wire.topics import BrokerData
from tests.command.breaking import breaking
from tests.command.conftest import Cluster
from tests.support.command import mqcore
from tests.support.mqcore_process import mqcore_up
from tests.support.stock import free_port


@pytest.fixture(autouse=True)
def any_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """How full the disk of this machine is decides nothing here."""
    monkeypatch.setattr(health, "DISK_WARN", 101.0)
    monkeypatch.setattr(health, "DISK_CRITICAL", 101.0)


def test_a_cluster_that_is_well_has_a_finding_for_each_part(cluster: Cluster) -> None:
    shown = cluster.json("cluster", "health")

    assert shown["level"] == "ok"
    assert [one["name"] for one in shown["findings"]] == [
        f"name server {cluster.namesrv}", f"broker {cluster.broker_name} id 0",
        f"disk of {cluster.broker_name} id 0"]
    assert cluster.text("cluster", "health", "--nagios") == "MQCORE HEALTH OK - 3 looked at\n"


def test_a_name_server_that_is_away_is_named(cluster: Cluster) -> None:
    away = f"127.0.0.1:{free_port()}"
    done = mqcore("cluster", "health", "--json", "-n", f"{cluster.namesrv};{away}")

    assert done.returncode == 10
    bad = [one for one in json.loads(done.stdout)["findings"] if one["level"] != "ok"]
    assert [(one["name"], one["level"]) for one in bad] == [(f"name server {away}", "critical")]


def test_name_servers_that_differ_are_named(cluster: Cluster, tmp_path: Path) -> None:
    with mqcore_up(tmp_path, {"broker.name": "another"}) as other:
        both = f"{cluster.namesrv};{other.namesrv_addr}"
        done = mqcore("cluster", "health", "--json", "-n", both)

    assert done.returncode == 10
    texts = {one["name"]: one["text"] for one in json.loads(done.stdout)["findings"]}
    assert "broker another" in texts[f"name server {cluster.namesrv}"]
    assert f"broker {cluster.broker_name}" in texts[f"name server {other.namesrv_addr}"]


def test_a_broker_that_does_not_answer_is_a_finding_and_is_waited_for(
        cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with Admin(cluster.namesrv) as admin:
        good = list(admin.cluster_status())
    looks = iter([0, 0, 1])

    async def statuses(_admin: object, _clusters: object) -> tuple[object, object]:
        silent = SimpleNamespace(name="b", address="10.0.0.9:1", error="timed out")
        return (good, ()) if next(looks) else (good, (silent,))

    monkeypatch.setattr(health, "_statuses", statuses)
    monkeypatch.setattr(health, "AGAIN_S", 0.0)
    done = cluster.run("cluster", "health")
    assert done.returncode == 10
    assert done.stdout.splitlines()[-1].split(maxsplit=4) == [
        "critical", "broker", "b", "10.0.0.9:1", "no answer: timed out"]
    assert cluster.run("cluster", "health", "--wait", "60s").returncode == 0


def test_the_only_broker_that_hangs_up_is_a_finding(cluster: Cluster) -> None:
    with breaking(cluster.namesrv, cluster.broker) as (names, broker):
        broker.reset(0)
        done = mqcore("cluster", "health", "--json", "-n", names.address)

    assert done.returncode == 10, done
    bad = [one for one in json.loads(done.stdout)["findings"] if one["level"] != "ok"]
    assert [(one["name"], one["level"]) for one in bad] == [
        (f"broker {cluster.broker_name} {broker.address}", "critical")]


def test_waiting_for_a_cluster_that_stays_away_ends() -> None:
    began = time.monotonic()
    done = mqcore("cluster", "health", "--wait", "0.5s", "-n", f"127.0.0.1:{free_port()}")

    assert done.returncode == 4
    assert done.stderr.count("\n") == 1
    assert time.monotonic() - began > 0.5


def test_brokers_without_a_master_and_slaves_that_are_behind_are_found() -> None:
    brokers = (BrokerData("c", "a", {0: "h:1", 1: "h:2"}), BrokerData("c", "b", {1: "h:3"}))
    (found,) = health._masters([KnownCluster("c", brokers)])
    assert (found.name, found.level) == ("broker b", Level.CRITICAL)
    (found,) = health._masters([])
    assert found.level == Level.CRITICAL

    def status(broker_id: int, end: str) -> SimpleNamespace:
        return SimpleNamespace(broker_name="a", broker_id=broker_id,
                               values={"commitLogMaxOffset": end})

    ends = [status(0, str(300 << 20)), status(1, str(300 << 20)), status(2, str(44 << 20)),
            status(3, "?"), status(4, str(301 << 20))]
    assert [(one.name, one.level.name) for one in health._slaves(ends)] == [
        ("slave a id 1", "OK"), ("slave a id 2", "WARNING"), ("slave a id 4", "OK")]
