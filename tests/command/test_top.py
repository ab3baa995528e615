"""`mqcore top`."""
from __future__ import annotations

import json

import pytest

from mqcore.admin.nouns.top import Sample, _number, group_rows
from tests.command.conftest import Cluster


def test_once_shows_brokers_and_the_groups_with_the_largest_lag(cluster: Cluster) -> None:
    cluster.run("topic", "create", "T-top", "--queues", 1)
    cluster.send("T-top", "a", "b", "c")
    cluster.commit("T-slow", "T-top", 1)
    cluster.commit("T-quick", "T-top", 2)

    found = json.loads(cluster.text("top", "--once", "--json", "--rows", 10_000))

    assert set(found) == {"brokers", "groups", "groupsInAll", "unreachable"}
    (broker,) = found["brokers"]
    assert set(broker) == {
        "broker", "id", "address", "putPerSecond", "getPerSecond", "putP99Seconds",
        "dispatchBehindBytes", "diskRatio", "upSeconds"}
    assert (broker["broker"], broker["dispatchBehindBytes"]) == (cluster.broker_name, 0)
    ours = [row for row in found["groups"] if row["topic"] == "T-top"]
    assert ours == [
        {"group": group, "topic": "T-top", "lag": lag, "putPerSecond": 0.0,
         "consumedPerSecond": 0.0, "doneSeconds": None}
        for group, lag in (("T-slow", 2), ("T-quick", 1))]
    assert len(found["groups"]) == found["groupsInAll"]


def test_rows_and_names_can_be_chosen(cluster: Cluster) -> None:
    cluster.run("topic", "create", "T-many", "--queues", 1)
    cluster.send("T-many", "a")
    for number in range(3):
        cluster.commit(f"T-many-{number}", "T-many", 0)
    assert len(cluster.json("top", "--once", "--rows", 2)["groups"]) == 2
    assert "T-many-2" in cluster.text("top", "--once", "-q", "--rows", 10_000).splitlines()
    text = cluster.text("top", "--once")
    assert text.startswith("BROKER")
    assert "DONE IN" in text


def test_rates_are_differences_of_two_looks() -> None:
    pair, new = ("g", "T"), ("g", "U")
    before = Sample(10.0, {pair: 100}, {pair: 10})
    now = Sample(12.0, {pair: 120, new: 5}, {pair: 70, new: 0})
    assert group_rows(before, now) == [
        {"group": "g", "topic": "T", "lag": 50, "putPerSecond": 10.0, "consumedPerSecond": 30.0,
         "doneSeconds": 2.5},
        {"group": "g", "topic": "U", "lag": 5, "putPerSecond": None, "consumedPerSecond": None,
         "doneSeconds": None}]


@pytest.mark.parametrize(("text", "value"), [
    ("1.50", 0.0015), ("0", 0.0), (None, None), ("", None), ("fast", None), ("nan", None),
    ("inf", None), ("-1", None)])
def test_what_is_no_number_is_unknown(text: str | None, value: float | None) -> None:
    assert _number(text, 1000) == value
