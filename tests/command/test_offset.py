"""`mqcore offset`: what it prints, the keys of its documents, its exit statuses."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command.conftest import Cluster
from tests.wire_live.state import State


def filled(cluster: Cluster, name: str, consumed: int = 2) -> tuple[str, str]:
    """A topic with five messages in one queue, and a group that consumed some."""
    cluster.run("topic", "create", f"T-{name}", "--queues", 1)
    cluster.send(f"T-{name}", *"abcde")
    cluster.commit(f"G-{name}", f"T-{name}", consumed)
    return f"G-{name}", f"T-{name}"


def offsets(cluster: Cluster, group: str) -> list[int]:
    """The committed offsets of a group."""
    return [row["consumerOffset"] for row in cluster.json("offset", "show", group)["queues"]]


def test_show_has_each_queue(cluster: Cluster) -> None:
    group, topic = filled(cluster, "shown")

    assert cluster.json("offset", "show", group) == {
        "group": group, "lag": 3, "queues": [{
            "topic": topic, "broker": cluster.broker_name, "queueId": 0, "consumerOffset": 2,
            "brokerOffset": 5, "lag": 3}], "unreachable": []}


@pytest.mark.parametrize(("aim", "after"), [("begin", 0), ("end", 5), ("4", 4), ("99", 5),
                                            ("1h ago", 0)])
def test_a_reset_moves_to_a_time_or_an_offset_and_a_dry_run_does_not(
        cluster: Cluster, aim: str, after: int) -> None:
    group, topic = filled(cluster, f"reset-{aim.replace(' ', '')}")

    tried = cluster.json("offset", "reset", group, topic, "--to", aim, "--dry-run")
    assert tried["queues"] == [{
        "topic": topic, "broker": cluster.broker_name, "queueId": 0, "before": 2, "after": after,
        "change": after - 2}]
    assert offsets(cluster, group) == [2]
    done = cluster.json("offset", "reset", group, topic, "--to", aim, "--yes")
    assert done["queues"] == tried["queues"]
    assert offsets(cluster, group) == [after]


def test_a_reset_backward_only_moves_nothing_forward(cluster: Cluster) -> None:
    group, topic = filled(cluster, "backward")

    for aim, after in (("end", 2), ("begin", 0)):
        cluster.json("offset", "reset", group, topic, "--to", aim, "--backward-only", "--yes")
        assert offsets(cluster, group) == [after]


def test_a_reset_backward_only_of_a_connected_group_moves_nothing_forward(
        cluster: Cluster) -> None:
    group, topic = filled(cluster, "connected")

    with State(cluster.broker) as member:            # it commits nothing by itself
        member.consumer(group, topic)
        for aim, moved in (("end", 2), ("begin", 0)):
            done = cluster.json("offset", "reset", group, topic, "--to", aim, "--backward-only",
                                "--yes")
            assert done["online"] is True
            assert [row["after"] for row in done["queues"]] == [moved]
            # RocketMQ 5 commits for its members; before it, they do
            assert offsets(cluster, group) == [moved if cluster.kind == "stock5" else 2]


def test_offsets_are_copied_to_another_group(cluster: Cluster) -> None:
    group, topic = filled(cluster, "source")

    tried = cluster.json("offset", "copy", group, "G-target", topic, "--dry-run")
    assert (tried["online"], tried["newGroupOn"]) == (False, [cluster.broker_name])
    assert offsets(cluster, "G-target") == []
    assert "G-target" not in cluster.text("group", "ls", "-q").splitlines()
    cluster.json("offset", "copy", group, "G-target", topic, "--yes")
    assert offsets(cluster, "G-target") == [2]
    assert "G-target" in cluster.text("group", "ls", "-q").splitlines()
    cluster.run("group", "edit", "G-target", "--retries", 3, "--yes")
    done = cluster.json("offset", "copy", group, "G-target", topic, "--yes")
    assert done["newGroupOn"] == []
    assert cluster.json("group", "show", "G-target")["brokers"][0]["retryMaxTimes"] == 3
    assert cluster.refused("offset", "copy", "G-nothing", "G-target", topic)[0] == 3


def test_an_export_is_imported_for_another_group(cluster: Cluster, tmp_path: Path) -> None:
    group, topic = filled(cluster, "exported")
    file = tmp_path / "offsets.json"

    file.write_text(cluster.text("offset", "export", group))
    assert json.loads(file.read_text()) == {"group": group, "offsets": [
        {"topic": topic, "broker": cluster.broker_name, "queueId": 0, "offset": 2}]}
    done = cluster.json("offset", "import", file, "--group", "G-imported", "--yes")
    assert done["newGroupOn"] == [cluster.broker_name]
    assert [row["after"] for row in done["queues"]] == [2]
    assert offsets(cluster, "G-imported") == [2]


@pytest.mark.parametrize(("document", "said"), [
    ("{", "not a JSON document"), ("[]", "group: expected a name"),
    ('{"group": "g"}', "offsets: expected a list"),
    ('{"group": "g", "offsets": [1]}', "offsets[0]: expected an object"),
    ('{"group": "g", "offsets": [{"topic": "t", "broker": "b", "queueId": true, "offset": 1}]}',
     "offsets[0].queueId: expected a whole number"),
    ('{"group": "g", "offsets": [{"topic": "t", "broker": "b", "queueId": 0, "offset": -1}]}',
     "offsets[0].offset: expected a whole number"),
])
def test_a_bad_document_is_one_line_that_names_the_field(
        cluster: Cluster, tmp_path: Path, document: str, said: str) -> None:
    file = tmp_path / "offsets.json"
    file.write_text(document)

    status, line = cluster.refused("offset", "import", file)
    assert status == 1
    assert said in line


def test_an_offset_outside_of_its_queue_is_refused_and_nothing_is_committed(
        cluster: Cluster, tmp_path: Path) -> None:
    group, topic = filled(cluster, "outside")
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"group": group, "offsets": [
        {"topic": topic, "broker": cluster.broker_name, "queueId": 0, "offset": 6}]}))

    status, said = cluster.refused("offset", "import", file)
    assert status == 1
    assert "offset 6 is outside of 0 to 5" in said
    assert offsets(cluster, group) == [2]
