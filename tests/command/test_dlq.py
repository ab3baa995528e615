"""`mqcore dlq`: dead letters are listed, exported, sent again once, deleted."""
from __future__ import annotations

import json

import pytest

from mqcore.client import PushConsumer, ReceivedMessage, Reject
from tests.command.conftest import Cluster
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def dead(cluster: Cluster) -> str:
    """A group that has rejected three messages."""
    cluster.run("topic", "create", "D-origin", "--queues", 1)
    cluster.send("D-origin", "first", "second", "third", keys="k", tags="t")

    def listen(message: ReceivedMessage) -> None:
        raise Reject

    with PushConsumer("D-group", "D-origin", listen, namesrv=cluster.namesrv, start="earliest"):
        wait_until(lambda: _count(cluster) == 3, "three dead letters")
    return "D-group"


def _count(cluster: Cluster) -> int:
    rows = {row["name"]: row for row in cluster.json("dlq", "ls")["groups"]}
    return int(rows["D-group"]["messages"]) if "D-group" in rows else 0


def test_dead_letters_are_listed_shown_and_exported(cluster: Cluster, dead: str) -> None:
    (row,) = [row for row in cluster.json("dlq", "ls")["groups"] if row["name"] == dead]
    assert row["newestSeconds"] >= 0
    shown = cluster.json("dlq", "show", dead)
    assert sorted(one["body"] for one in shown["messages"]) == ["first", "second", "third"]
    assert {one["originTopic"] for one in shown["messages"]} == {"D-origin"}
    assert len(cluster.json("dlq", "show", dead, "--limit", 1)["messages"]) == 1
    assert [one["body"] for one in cluster.json("dlq", "show", dead, "--grep", "^sec")["messages"]
            ] == ["second"]
    assert cluster.json("dlq", "show", dead, "--key", "other")["messages"] == []
    lines = cluster.text("dlq", "export", dead, "--ndjson").splitlines()
    assert sorted(json.loads(line)["body"] for line in lines) == ["first", "second", "third"]


def test_each_is_sent_again_once(cluster: Cluster, dead: str) -> None:
    tried = cluster.json("dlq", "redrive", dead, "--to", "topic", "--dry-run")
    assert (tried["letters"], tried["skipped"], tried["topics"]) == (3, 0, ["D-origin"])
    done = cluster.json("dlq", "redrive", dead, "--to", "topic", "--grep", "first", "--yes")
    assert [row["error"] for row in done["sent"]] == [None]

    def known() -> bool:                       # a stock broker's index is behind a little
        again = cluster.json("dlq", "redrive", dead, "--to", "topic", "--dry-run")
        return bool(again["letters"] == 2 and again["skipped"] == 1)
    wait_until(known, "the copy that was sent")
    done = cluster.json("dlq", "redrive", dead, "--to", "topic", "--yes", "--rate", 1000)
    assert len(done["sent"]) == 2
    found = cluster.json("message", "find", "-t", "D-origin")["messages"]
    copies = [one for one in found if "REDRIVE_FROM" in one["properties"]]
    assert sorted(one["body"] for one in copies) == ["first", "second", "third"]
    assert {(one["tags"], *one["keys"]) for one in copies} == {("t", "k")}
    assert cluster.json("dlq", "redrive", dead, "--to", "topic", "--again", "--dry-run")[
        "letters"] == 3


def test_a_group_without_dead_letters_is_status_3(cluster: Cluster) -> None:
    assert cluster.refused("dlq", "redrive", "D-none", "--yes")[0] == 3
    assert cluster.refused("dlq", "purge", "D-none", "--yes")[0] == 3
    assert cluster.text("dlq", "show", "D-none") == "no dead letters\n"


def test_purge_deletes_them(cluster: Cluster, dead: str) -> None:
    done = cluster.json("dlq", "purge", dead, "--yes")
    assert done["messages"] == 3
    assert cluster.json("dlq", "show", dead)["messages"] == []
