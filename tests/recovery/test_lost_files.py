"""Stores of a stock broker that lost a file or a folder: a broker starts and makes it good."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from mqcore.broker.handlers import Broker
from mqcore.store.index import files as index_files
from mqcore.store.verify.store import DELAY_LEVELS_MS, verify
from tests.broker.fakes import NOW_MS, FakeTables, make_bench, settings_in
from tests.broker.test_topics import shape, table
from tests.store import golden
from tests.store.test_recovery import open_run, recover
from tests.support.mqcore_process import mqcore_up
from tests.verify.stores import OWN_SETTINGS, load

CONFIG = ["topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json",
          "consumerFilter.json"]
STORES = ["basic", "basic_lost_cq", "crashed", "crashed_lost_cq", "crashed_lost_all",
          "crashed_torn", "delay_retry_dlq", "ipv6", "transactions"]


@pytest.mark.parametrize("name", STORES)
def test_a_start_mends_a_stock_store_that_lost_its_queues(name: str, tmp_path: Path) -> None:
    manifest, run = open_run(name, tmp_path)
    found = recover(manifest, run)
    below = index_files.mend(run.index_folder, found.end)
    run.segment.set_dispatched(min(found.dispatch_from, below), found.last_store_time_ms)
    run.segment.publish_for_test(found.end)
    run.dispatch_all(found.end, delay_levels_ms=list(DELAY_LEVELS_MS))
    for unclean in ("abort", "checkpoint"):           # the end of a run takes or writes them
        (run.root / unclean).unlink(missing_ok=True)

    report = verify(run.root, index_slots=run.index_slots)

    assert [finding.line() for finding in report.findings if finding.severity != "note"] == [
        "mend: checkpoint: missing, expected 4096 bytes"]
    assert report.figures["end"] == manifest["afterRecovery"]["maxPhyOffset"]


def loaded(config: Path, queues: dict[tuple[str, int], int]) -> Broker:
    """The rules over a store's config folder, as the coordinator loads them."""
    return make_bench(settings_in(config.parent), queues).broker


@pytest.mark.parametrize("name", ["basic", "delay_retry_dlq", "transactions"])
@pytest.mark.parametrize("backups", [True, False], ids=["with-backup", "without-backup"])
@pytest.mark.parametrize("lost", CONFIG)
def test_a_stock_store_opens_without_any_one_config_file(
    lost: str, backups: bool, name: str, tmp_path: Path,
) -> None:
    root = golden.unpack(name, tmp_path).rename(tmp_path / "store")
    queues = {(queue["topic"], queue["queueId"]): queue["max"]
              for queue in golden.manifest(name)["consumeQueues"]}
    whole = loaded(root / "config", queues).core
    (root / "config" / lost).unlink(missing_ok=True)
    if not backups:
        (root / "config" / f"{lost}.bak").unlink(missing_ok=True)

    core = loaded(root / "config", queues).core

    for topic, queue_id in queues:
        found = core.topics.get(topic)
        if whole.topics.get(topic) is not None:           # stock keeps some internal ones out
            assert found is not None, topic
            assert found.read_queue_count > queue_id, topic
    if lost != "consumerOffset.json":
        assert core.offsets.as_json() == whole.offsets.as_json()


def test_topics_are_made_again_from_their_queues(tmp_path: Path) -> None:
    tables = FakeTables()
    topics = table(tmp_path, tables=tables)
    assert topics.lost

    made = topics.rebuild([("orders", 0, 5), ("orders", 3, 1), ("%RETRY%g", 0, 2),
                           ("%LMQ%light", 0, 9), ("SELF_TEST_TOPIC", 7, 1)], NOW_MS)

    assert made == ["%RETRY%g", "orders"]
    assert shape(topics)["orders"] == (4, 6)
    assert topics.dirty
    topics.persist()
    assert not table(tmp_path).lost
    assert "orders" in json.dumps(topics.as_json())


def test_a_topic_that_was_deleted_is_not_made_again_while_the_file_is_there(
    tmp_path: Path,
) -> None:
    topics = table(tmp_path)
    topics.persist()
    assert not topics.lost
    assert settings_in(tmp_path).broker is not None


@pytest.mark.slow
def test_what_came_while_the_index_was_off_is_indexed_when_it_is_on_again(tmp_path: Path) -> None:
    """And once: later starts take the ends that the last run left."""
    for run, kept in enumerate((True, False, True, True)):
        settings = {**OWN_SETTINGS, "store.index_enable": kept}
        with mqcore_up(tmp_path, settings) as broker:
            load(broker, 20)
        figures = verify(broker.store).figures
        assert figures["keys_matched"] == 2 * 20 * (1 if not kept else run + 1)
