"""`mqcore cluster` and `mqcore client`."""
from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from mqcore.admin.nouns.definitions import Definitions, changes_between, read_file, to_toml
from mqcore.client import AsyncAdmin, MessageQueue, Producer, RocketMQError
from mqcore.client.admin import SendTime
from tests.command.conftest import Cluster
from tests.support.waiting import wait_until


def test_show_has_each_broker_with_its_state(cluster: Cluster) -> None:
    (row,) = cluster.json("cluster", "show")["brokers"]

    assert set(row) == {
        "cluster", "broker", "id", "address", "version", "started", "upSeconds", "putPerSecond",
        "getPerSecond", "putToday", "getToday", "oldestMessage", "oldestSeconds", "diskRatio"}
    assert (row["broker"], row["id"], row["address"]) == (cluster.broker_name, 0, cluster.broker)
    assert row["version"] == cluster.version
    assert 0 <= row["diskRatio"] <= 1


def test_a_test_sends_to_each_broker_and_ends_with_10_when_one_fails(
        cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.run("topic", "create", "L-test", "--queues", 1)

    (row,) = cluster.json("cluster", "test", "-t", "L-test", "--count", 3)["brokers"]
    assert (row["broker"], row["sends"], row["failed"], row["error"]) == (
        cluster.broker_name, 3, 0, None)
    assert 0 < row["p50Seconds"] <= row["maxSeconds"]

    async def refused(*args: object, **options: object) -> tuple[SendTime, ...]:
        queue = MessageQueue("L-test", cluster.broker_name, 0)
        return (SendTime(queue, 0.1, RocketMQError("disk full", 14)),)

    monkeypatch.setattr(AsyncAdmin, "send_times", refused)
    done = cluster.run("cluster", "test", "-t", "L-test", "--json")
    assert done.returncode == 10
    assert json.loads(done.stdout)["brokers"] == [{
        "broker": cluster.broker_name, "sends": 1, "failed": 1, "p50Seconds": None,
        "maxSeconds": None, "error": "disk full"}]


def test_an_export_has_no_differences_until_something_changes(
        cluster: Cluster, tmp_path: Path) -> None:
    cluster.run("topic", "create", "L-first", "--queues", 2)
    cluster.run("group", "create", "L-group", "--retries", 7)
    file = tmp_path / "cluster.toml"
    file.write_text(cluster.text("cluster", "export"))
    document = tomllib.loads(file.read_text())
    assert document["topics"]["L-first"] == {
        "read_queues": 2, "write_queues": 2, "permission": "rw"}
    assert document["groups"]["L-group"]["retry_max_times"] == 7
    assert cluster.json("cluster", "diff", file, "--prune")["changes"] == []

    file.write_text(file.read_text().replace("retry_max_times = 7", "retry_max_times = 8")
                    + '\n[topics.L-second]\npermission = "r"\n')
    cluster.run("topic", "create", "L-third")
    done = cluster.run("cluster", "diff", file, "--prune")
    assert done.returncode == 10
    assert [line.split()[:3] for line in done.stdout.splitlines()[1:]] == [
        ["+", "topic", "L-second"], ["-", "topic", "L-third"], ["~", "group", "L-group"]]

    tried = cluster.json("cluster", "apply", file, "--dry-run")
    assert [row["sign"] for row in tried["changes"]] == ["+", "~"]
    cluster.text("cluster", "apply", file, "--prune", "--yes")
    assert cluster.json("cluster", "diff", file, "--prune")["changes"] == []
    names = cluster.text("topic", "ls", "-q").splitlines()
    assert "L-second" in names
    assert "L-third" not in names


@pytest.mark.parametrize(("text", "said"), [
    ("topics = ", "not a TOML file"), ("[x]", "unknown section 'x'"),
    ("topics = 1", "topics: expected sections"), ("topics.a = 1", 'topics."a": expected a section'),
    ("[topics.a]\nqueues = 1", "unknown key 'queues'"),
    ("[topics.a]\nread_queues = true", "read_queues: expected a whole number"),
    ("[topics.a]\nread_queues = -1", "read_queues: expected 0 to 65535, found -1"),
    ("[topics.a]\npermission = 6", "permission: expected one of rw, r, w, none"),
    ("[groups.a]\nconsume_enable = 1", "consume_enable: expected true or false"),
    ('[topics."a/b"]', "topic 'a/b': expected"), ('[groups."x y"]', "group 'x y': expected"),
])
def test_a_bad_file_is_one_line_that_names_the_key(
        cluster: Cluster, tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(text)

    status, line = cluster.refused("cluster", "diff", file)
    assert status == 1
    assert said in line


def test_names_of_any_letters_survive_a_file(tmp_path: Path) -> None:
    groups = {name: {"retry_max_times": 3, "consume_enable": False,
                     "consume_broadcast_enable": True, "retry_queue_count": 1}
              for name in ('a"b', "back\\slash", "\U0001f600", "dotted.name", "\u4e2d\u6587")}
    found = Definitions({}, groups)
    file = tmp_path / "cluster.toml"
    file.write_text(to_toml(found))

    assert tomllib.loads(file.read_text())["groups"] == groups
    assert changes_between(found, read_file(file), prune=True) == []


def test_clients_are_listed_with_their_kind_and_version(cluster: Cluster) -> None:
    with Producer("L-producers", namesrv=cluster.namesrv) as producer:
        cluster.run("topic", "create", "L-clients", "--queues", 1)
        producer.send("L-clients", "one")

        def listed() -> bool:
            rows = cluster.json("client", "ls", "--producers", "-g", "L-producers")["clients"]
            return [(row["kind"], row["language"]) for row in rows] == [("producer", "PYTHON")]
        wait_until(listed, "the producer")
        (row,) = cluster.json("client", "ls", "-g", "L-producers")["clients"]
    assert set(row) == {"kind", "group", "clientId", "address", "language", "version",
                        "versionText", "silentSeconds"}
    assert row["versionText"].startswith("V4_")
    assert cluster.json("client", "ls", "--consumers", "-g", "L-producers")["clients"] == []
