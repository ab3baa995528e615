"""`mqcore topic`: what it prints, the keys of its documents, its exit statuses."""
from __future__ import annotations

import json

import pytest

from tests.command.conftest import Cluster


def test_a_topic_is_created_listed_shown_edited_and_removed(cluster: Cluster) -> None:
    created = cluster.json("topic", "create", "T-life", "--queues", 3)
    assert created == {
        "name": "T-life", "queues": 3, "permission": "rw", "ordered": False,
        "brokers": [cluster.broker_name], "unreachable": []}
    rows = {row["name"]: row for row in cluster.json("topic", "ls")["topics"]}
    assert rows["T-life"] == {
        "name": "T-life", "kind": "user", "readQueues": 3, "writeQueues": 3, "permission": "rw",
        "ordered": False, "brokers": [cluster.broker_name]}

    cluster.send("T-life", "one", "two")
    shown = cluster.json("topic", "show", "T-life")
    assert set(shown) == {
        "name", "clusters", "messages", "groups", "brokers", "queues", "unreachable"}
    assert shown["messages"] == 2
    assert shown["brokers"] == [{
        "broker": cluster.broker_name, "address": cluster.broker, "readQueues": 3,
        "writeQueues": 3, "permission": "rw", "ordered": False}]
    assert len(shown["queues"]) == 3
    assert set(shown["queues"][0]) == {
        "broker", "queueId", "minOffset", "maxOffset", "messages", "lastMessage",
        "lastMessageAgeSeconds"}
    assert sum(queue["messages"] for queue in shown["queues"]) == 2

    edited = cluster.json("topic", "edit", "T-life", "--queues", 4, "--perm", "r", "--yes")
    assert edited["brokers"] == [{
        "broker": cluster.broker_name, "readQueues": 4, "readQueuesBefore": 3, "writeQueues": 4,
        "writeQueuesBefore": 3, "permission": "r", "permissionBefore": "rw"}]
    assert cluster.json("topic", "show", "T-life")["brokers"][0]["permission"] == "r"

    removed = cluster.json("topic", "rm", "T-life", "--yes")
    assert removed == {"name": "T-life", "brokers": [cluster.broker_name], "messages": 2,
                       "groups": [], "unreachable": []}
    assert "T-life" not in cluster.text("topic", "ls", "-q").splitlines()


def test_a_dry_run_says_what_would_go_and_changes_nothing(cluster: Cluster) -> None:
    cluster.run("topic", "create", "T-stays")
    cluster.send("T-stays", "one")

    tried = cluster.json("topic", "rm", "T-stays", "--dry-run")
    assert tried["dryRun"] is True
    assert tried["messages"] == 1
    assert "delete topic T-stays with 1 messages" in cluster.text(
        "topic", "rm", "T-stays", "--dry-run")
    assert "create topic T-none with 5 queues" in cluster.text(
        "topic", "create", "T-none", "--queues", 5, "--dry-run")
    names = cluster.text("topic", "ls", "-q").splitlines()
    assert "T-stays" in names
    assert "T-none" not in names


def test_what_is_not_there_is_status_3_with_the_nearest_name(cluster: Cluster) -> None:
    cluster.run("topic", "create", "orders")

    for command in (["show"], ["rm", "--yes"], ["edit", "--perm", "r"]):
        verb, *options = command
        status, said = cluster.refused("topic", verb, "ordres", *options)
        assert status == 3
        assert "ordres" in said
        assert "did you mean 'orders'" in said


@pytest.mark.parametrize("arguments", [
    ("create", "a b"), ("create", "T", "--queues", 0), ("create", "T", "--perm", "x"),
    ("edit", "T"), ("ls", "--json", "--ndjson"), ("queue", "T", -1, "-b", "x"),
])
def test_what_cannot_be_is_status_2(cluster: Cluster, arguments: tuple[object, ...]) -> None:
    assert cluster.run("topic", *arguments).returncode == 2


def test_no_name_server_is_status_4_and_one_sentence(cluster: Cluster) -> None:
    away = Cluster("none", "127.0.0.1:1", "", "")

    status, said = away.refused("topic", "ls")
    assert status == 4
    assert "127.0.0.1:1" in said


def test_list_forms(cluster: Cluster) -> None:
    cluster.run("topic", "create", "T-forms")

    lines = cluster.text("topic", "ls", "--ndjson").splitlines()
    assert "T-forms" in [json.loads(line)["name"] for line in lines]
    assert "system" in cluster.text("topic", "ls", "--all")
    head = cluster.text("topic", "ls", "-o", "wide").splitlines()[0]
    assert head.split() == ["TOPIC", "KIND", "READ", "WRITE", "PERM", "ORDERED", "BROKERS"]


def test_groups_of_topics_are_listed(cluster: Cluster) -> None:
    cluster.run("topic", "create", "T-groups")
    cluster.send("T-groups", "one")
    cluster.commit("G-of-topic", "T-groups", 1)

    rows = {row["name"]: row for row in cluster.json("topic", "ls", "--groups")["topics"]}
    assert rows["T-groups"]["groups"] == ["G-of-topic"]


def test_queue_entries_are_shown(cluster: Cluster) -> None:
    cluster.run("topic", "create", "T-entries", "--queues", 1)
    cluster.send("T-entries", *map(str, range(12)), tags="a")

    last = cluster.json("topic", "queue", "T-entries", 0, "-b", cluster.broker_name)
    assert (last["minOffset"], last["maxOffset"]) == (0, 12)
    assert [row["offset"] for row in last["entries"]] == list(range(2, 12))
    first = cluster.json("topic", "queue", "T-entries", 0, "-b", cluster.broker_name,
                         "--from", 0, "--count", 3)
    assert [row["offset"] for row in first["entries"]] == [0, 1, 2]
    assert {row["tagCode"] for row in first["entries"]} == {97}
    assert all(row["bytes"] > 90 for row in first["entries"])


def test_a_topic_says_its_type_and_a_group_its_order(cluster: Cluster) -> None:
    if cluster.kind == "stock":
        pytest.skip("a broker of 4.x knows neither")
    assert cluster.json("topic", "create", "T-fifo", "--type", "FIFO")["messageType"] == "FIFO"
    (shown,) = cluster.json("topic", "show", "T-fifo")["brokers"]
    assert shown["messageType"] == "FIFO"
    cluster.json("group", "create", "g-fifo", "--fifo")
    (shown,) = cluster.json("group", "show", "g-fifo")["brokers"]
    assert shown["consumeMessageOrderly"] is True
    cluster.json("group", "edit", "g-fifo", "--retries", 3, "--yes")
    (shown,) = cluster.json("group", "show", "g-fifo")["brokers"]
    assert shown["consumeMessageOrderly"] is True
