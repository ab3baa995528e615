"""`mqcore group`: what it prints, the keys of its documents, its exit statuses."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mqcore.client import PushConsumer, ReceivedMessage
from tests.command.conftest import Cluster
from tests.support.waiting import wait_until


@contextmanager
def member(cluster: Cluster, group: str, topic: str, tags: str = "*") -> Iterator[PushConsumer]:
    """A connected member that has its queues."""
    def listen(message: ReceivedMessage) -> None:
        pass

    with PushConsumer(group, topic, listen, filter=tags, namesrv=cluster.namesrv) as consumer:
        wait_until(lambda: _has_its_queues(cluster, group), "the member's queues")
        yield consumer


def _has_its_queues(cluster: Cluster, group: str) -> bool:
    """Whether the retry topic's queue is shared out as well, the last one to be."""
    shown = cluster.json("group", "show", group)
    return bool(shown["members"]) and not any("no member has" in one for one in shown["problems"])


def test_a_group_is_created_edited_paused_resumed_and_removed(cluster: Cluster) -> None:
    created = cluster.json("group", "create", "G-life", "--retries", 3)
    assert created == {"name": "G-life", "retryMaxTimes": 3, "brokers": [cluster.broker_name],
                       "unreachable": []}
    edited = cluster.json("group", "edit", "G-life", "--retries", 5, "--no-broadcast", "--yes")
    assert edited["brokers"] == [{
        "broker": cluster.broker_name, "retryMaxTimes": 5, "retryMaxTimesBefore": 3,
        "consumeBroadcastEnable": False, "consumeBroadcastEnableBefore": True}]
    cluster.run("group", "pause", "G-life", "--yes")
    (settings,) = cluster.json("group", "show", "G-life")["brokers"]
    assert (settings["consumeEnable"], settings["retryMaxTimes"]) == (False, 5)
    cluster.run("group", "resume", "G-life", "--yes")
    (settings,) = cluster.json("group", "show", "G-life")["brokers"]
    assert settings["consumeEnable"] is True

    removed = cluster.json("group", "rm", "G-life", "--yes")
    assert removed == {
        "name": "G-life", "brokers": [cluster.broker_name], "members": 0, "lag": 0,
        "deadLetters": 0, "keepOffsets": False, "unreachable": []}
    assert "G-life" not in cluster.text("group", "ls", "-q").splitlines()


def test_the_list_has_the_lag_of_each_group(cluster: Cluster) -> None:
    cluster.run("topic", "create", "T-lag", "--queues", 1)
    cluster.send("T-lag", *"abcde")
    cluster.commit("G-lag", "T-lag", 2)

    rows = {row["name"]: row for row in cluster.json("group", "ls")["groups"]}
    row = rows["G-lag"]
    assert row.pop("behindSeconds") >= 0
    assert row == {"name": "G-lag", "lag": 3, "retrying": 0, "topics": ["T-lag"],
                   "paused": False, "retryMaxTimes": 16, "brokers": [cluster.broker_name]}
    assert "members" in cluster.json("group", "ls", "--members")["groups"][0]


def test_show_has_members_owners_and_lag_in_messages_and_seconds(cluster: Cluster) -> None:
    cluster.run("topic", "create", "T-show", "--queues", 1)
    cluster.send("T-show", "one", "two")
    cluster.commit("G-show", "T-show", 1)

    away = cluster.json("group", "show", "G-show")
    assert set(away) == {
        "name", "lag", "messagesPerSecond", "consumeType", "messageModel", "consumeFrom",
        "problems", "brokers", "members", "queues", "unreachable"}
    assert away["members"] == []
    (queue,) = [row for row in away["queues"] if row["topic"] == "T-show"]
    assert queue["behindSeconds"] > 0
    assert (queue["consumerOffset"], queue["brokerOffset"], queue["lag"], queue["owner"]) == (
        1, 2, 1, None)

    with member(cluster, "G-show", "T-show"):
        shown = cluster.json("group", "show", "G-show")
        (row,) = shown["members"]
        assert row["language"] == "PYTHON"
        assert "T-show *" in row["subscriptions"]
        (queue,) = [row for row in shown["queues"] if row["topic"] == "T-show"]
        assert queue["owner"] == row["clientId"]
        # the retry topic may have come after the member's first queues
        wait_until(lambda: cluster.json("group", "show", "G-show")["problems"] == [],
                   "an owner for each queue")
        stack = cluster.json("group", "stack", "G-show")
        assert [one["clientId"] for one in stack["members"]] == [row["clientId"]]
        assert stack["members"][0]["stack"]
        assert cluster.refused("group", "stack", "G-show", "another")[0] == 3


def test_members_that_subscribe_to_different_things_are_a_problem(cluster: Cluster) -> None:
    cluster.run("topic", "create", "T-differ", "--queues", 2)
    with member(cluster, "G-differ", "T-differ", "a"), member(cluster, "G-differ", "T-differ", "b"):
        def told() -> bool:
            problems = cluster.json("group", "show", "G-differ")["problems"]
            return any("subscri" in problem for problem in problems)
        wait_until(told, "the difference")


def test_what_is_not_there_is_status_3_with_the_nearest_name(cluster: Cluster) -> None:
    cluster.run("group", "create", "billing")

    for verb, *options in (["show"], ["rm", "--yes"], ["edit", "--retries", "3"], ["pause"]):
        status, said = cluster.refused("group", verb, "biling", *options)
        assert status == 3
        assert "did you mean 'billing'" in said
    assert cluster.refused("group", "stack", "billing")[0] == 3


def test_plan_says_who_would_get_what(cluster: Cluster) -> None:
    cluster.run("topic", "create", "T-plan", "--queues", 4)

    rows = cluster.json("group", "plan", "T-plan", "--members", 3)["members"]
    assert [row["count"] for row in rows] == [2, 1, 1]
    assert "1 of 5 members would have no queue" in cluster.text(
        "group", "plan", "T-plan", "--members", 5)
