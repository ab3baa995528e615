"""`mqcore debug bundle`."""
from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import NoReturn

import posix_ipc
import pytest

from mqcore.admin.nouns import debug
from mqcore.admin.nouns.debug import without_secrets
from tests.command.conftest import Cluster
from tests.support.command import mqcore
from tests.support.stock import free_port


def contents(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as opened:
        found = {}
        for entry in opened.getmembers():
            assert entry.isfile()
            assert not entry.name.startswith("/")
            assert ".." not in entry.name
            top, _, name = entry.name.partition("/")
            assert top == file.name.removesuffix(".tar.gz")
            raw = opened.extractfile(entry)
            assert raw is not None
            found[name] = raw.read()
        return found


def test_a_bundle_has_what_explains_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    cluster.run("topic", "create", "D-bundle", "--queues", 3)
    cluster.send("D-bundle", "a")
    log, file = tmp_path / "a.log", tmp_path / "b.tar.gz"
    log.write_text("first\n" + "x" * 100 + "\nlast\n")

    said = cluster.json("debug", "bundle", "-f", file, "--log", log, "--log-bytes", 50)

    found = contents(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert {one["name"] for one in said["files"]} == set(found)
    assert json.loads(found["versions.json"])["mqcore"]
    topics = json.loads(found["cluster/topics.json"])
    (topic,) = [one for one in topics if one["config"]["name"] == "D-bundle"]
    assert topic["config"]["read_queue_count"] == 3
    name = f"brokers/{cluster.broker_name}-0"
    assert "putTps" in json.loads(found[f"{name}-status.json"])
    assert "brokerName" in json.loads(found[f"{name}-settings.json"])
    assert found["logs/0-a.log"] == b"x" * 44 + b"\nlast\n"
    assert {"cluster/clusters.json", "cluster/groups.json", "cluster/backlogs.json"} <= set(found)
    assert json.loads(found["errors.json"]) == said["errors"]


def test_what_does_not_answer_is_named_and_the_rest_is_there(tmp_path: Path) -> None:
    file = tmp_path / "b.tar.gz"
    done = mqcore("debug", "bundle", "-f", file, "-n", f"127.0.0.1:{free_port()}")
    assert done.returncode == 0, done.stderr
    found = contents(file)
    missing = {one["what"] for one in json.loads(found["errors.json"])}
    assert {"clusters", "status of brokers", "topics", "groups", "backlogs"} <= missing
    assert "versions.json" in found


def test_a_file_that_is_there_stays(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "b.tar.gz"
    file.write_text("mine")
    status, said = cluster.refused("debug", "bundle", "-f", file)
    assert (status, file.read_text()) == (1, "mine")
    assert "File exists" in said


def test_secrets_are_left_out() -> None:
    assert without_secrets({
        "listenPort": "1", "tls.keyPassword": "p", "secretKey": "s", "token": "", "a": "b"}) == {
        "listenPort": "1", "tls.keyPassword": "(not in the bundle)",
        "secretKey": "(not in the bundle)", "token": "", "a": "b"}


def test_a_run_that_ends_while_it_is_looked_at_is_left_out(
        cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debug, "stale_segments", lambda _prefix: ["/mqcore-gone-1"])

    def describe(_name: str) -> NoReturn:
        raise posix_ipc.ExistentialError

    monkeypatch.setattr(debug, "describe", describe)
    said = cluster.json("debug", "bundle", "-f", tmp_path / "bundle.tar.gz")
    assert "/mqcore-gone-1" not in str(said)
