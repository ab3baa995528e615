"""`mqcore check`: findings, levels, exit statuses, the line for Nagios."""
from __future__ import annotations

import json
from asyncio import to_thread
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from mqcore.admin.nouns import check
from tests.command.conftest import Cluster


def test_ready_asks_each_broker(cluster: Cluster) -> None:
    shown = cluster.json("check", "ready")

    assert (shown["check"], shown["level"]) == ("ready", "ok")
    (finding,) = shown["findings"]
    assert finding["level"] == "ok"
    assert cluster.broker in finding["name"]


@pytest.mark.parametrize(("options", "level", "status"), [
    ((), "ok", 0), (("--warn", 3), "warning", 10), (("--warn", 1, "--crit", 3), "critical", 10),
    (("--warn", 4), "ok", 0)])
def test_lag_is_held_against_thresholds(
        cluster: Cluster, options: tuple[object, ...], level: str, status: int) -> None:
    cluster.run("topic", "create", "K-lag", "--queues", 1)
    if not cluster.json("topic", "show", "K-lag")["messages"]:
        cluster.send("K-lag", *"abcde")
        cluster.commit("K-group", "K-lag", 2)

    done = cluster.run("check", "lag", "-g", "K-group", *options)
    assert done.returncode == status
    assert done.stdout.split()[-4:] == [level, "K-group", "3", "messages"]
    nagios = cluster.run("check", "lag", "-g", "K-group", *options, "--nagios")
    assert nagios.returncode == {"ok": 0, "warning": 1, "critical": 2}[level]
    assert nagios.stdout.startswith(f"MQCORE LAG {level.upper()} - ")
    assert nagios.stdout.count("\n") == 1


def test_disk_and_dead_letters_are_looked_at(cluster: Cluster) -> None:
    assert cluster.json("check", "dlq", "-g", "K-none")["findings"] == []
    (finding,) = cluster.json("check", "disk", "--warn", 100, "--crit", 100)["findings"]
    assert 0 <= finding["value"] < 100
    assert cluster.run("check", "disk", "--warn", 0, "--crit", 0).returncode == 10


def test_nagios_hears_of_a_cluster_that_is_away_as_unknown() -> None:
    away = Cluster("none", "127.0.0.1:1", "", "")

    done = away.run("check", "lag", "--nagios")
    assert done.returncode == 3
    assert done.stdout.startswith("MQCORE LAG UNKNOWN - ")
    assert away.run("check", "lag").returncode == 4


def test_a_group_that_commits_nothing_while_messages_wait_is_stalled(cluster: Cluster) -> None:
    cluster.run("topic", "create", "K-still", "--queues", 1)
    cluster.send("K-still", *"abc")
    cluster.commit("K-standing", "K-still", 1)
    watch = ("check", "stalled", "-g", "K-standing", "--for", "0.5s")

    done = cluster.run(*watch, "--json")
    assert done.returncode == 10
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["level"], finding["value"]) == ("warning", 2)
    assert finding["name"] == f"K-standing K-still {cluster.broker_name}/0"

    with between_looks(lambda: cluster.send("K-still", "d")):
        done = cluster.run(*watch, "--json")
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["level"], finding["value"]) == ("critical", 3)
    assert "3 messages, 1 more than" in finding["text"]

    with between_looks(lambda: cluster.commit("K-standing", "K-still", 2)):
        assert cluster.run(*watch).returncode == 0
    cluster.commit("K-standing", "K-still", 4)
    assert cluster.run(*watch).returncode == 0


@contextmanager
def between_looks(work: Callable[[], object]) -> Iterator[None]:
    """Do something in the pause of `check stalled`, which is as long as that takes."""
    async def pause(_seconds: float) -> None:
        await to_thread(work)

    with patch.object(check, "pause", pause):
        yield
