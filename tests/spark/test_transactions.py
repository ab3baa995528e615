"""The job `transactions` tells what became of each transactional message."""
from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mqcore.client.admin import Admin
from tests.store.golden import manifest, unpack
from tests.support.mqcore_process import mqcore_up
from tests.support.stock import require_stock, stock_cluster
from tests.transactions.producer import COMMIT, ROLLBACK, Producer

pytestmark = [pytest.mark.spark]

HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"
FAST: dict[str, object] = {
    "broker.transaction_timeout_ms": 200, "broker.transaction_check_interval_ms": 200,
    "broker.transaction_check_max": 3, "broker.offsets_persist_interval_ms": 200,
}
STOCK_FAST: dict[str, object] = {
    "transactionTimeOut": 200, "transactionCheckInterval": 200, "transactionCheckMax": 3,
    "flushConsumerOffsetInterval": 200, "mappedFileSizeCommitLog": 64 << 20,
    "mappedFileSizeConsumeQueue": 20_000 * 20, "maxHashSlotNum": 50_000, "maxIndexNum": 200_000,
}
Fate = tuple[str, str, int, int, int | None]


def fates(frame: Any) -> dict[str, Fate]:
    """Of each transaction's id: state, topic, questions, copies, milliseconds until its end."""
    rows = frame.selectExpr(
        "transactionId", "state", "topic", "checks", "copies",
        "IF(decidedAt IS NULL, NULL, openMs) AS tookMs").collect()
    return {row[0]: tuple(row[1:]) for row in rows}


def told_by_the_manifest(name: str) -> dict[str, Fate]:
    """The same, from what a stock broker reads back."""
    messages = manifest(name)["messages"]
    numbers = {hashlib.sha256(b"%d" % n).hexdigest(): n for n in range(1_000)}
    ops = {numbers[one["bodySha256"]]: one for one in messages if one["topic"] == OP}
    finals = {one["preparedTransactionOffset"]: one for one in messages if one["sysFlag"] & 12 == 8}
    lost = {one["properties"]["UNIQ_KEY"]: one for one in messages if one["topic"] == GIVEN_UP}
    copies: dict[str, list[dict[str, Any]]] = {}
    for one in messages:
        if one["topic"] == HALF:
            copies.setdefault(one["properties"]["UNIQ_KEY"], []).append(one)
    found = {}
    for key, halves in copies.items():
        last = halves[-1]
        ended = finals.get(last["physicalOffset"]) or ops.get(last["queueOffset"]) or lost.get(key)
        state = ("committed" if last["physicalOffset"] in finals
                 else "rolled back" if last["queueOffset"] in ops
                 else "given up" if key in lost else "open")
        found[key] = (state, "golden_tx",
                      int(last["properties"].get("TRANSACTION_CHECK_TIMES", 0)), len(halves),
                      ended["storeTimestamp"] - halves[0]["storeTimestamp"] if ended else None)
    return found


def test_a_stock_store_says_what_was_decided(spark: Any, tmp_path: Path) -> None:
    from mqcore.spark.jobs.transactions import transactions

    root = unpack("transactions", tmp_path)
    expected = told_by_the_manifest("transactions")

    outcome = transactions(spark, store=root, list_count=3, open_max_s=1.0,
                           output=str(tmp_path / "all"))

    assert fates(spark.read.parquet(str(tmp_path / "all"))) == expected

    counts = Counter(state for state, *_ in expected.values())
    said = outcome.figures
    assert outcome.status == 1                      # some were given up
    assert (said["committed"], said["rolledBack"], said["open"], said["givenUp"]) == tuple(
        counts[state] for state in ("committed", "rolled back", "open", "given up"))
    assert (said["conflicts"], said["opsWithoutHalf"], said["commitsWithoutHalf"]) == (0, 0, 0)
    assert said["openTooLong"] == counts["open"]
    (group,) = said["byTopic"]
    assert (group["producerGroup"], group["topic"]) == ("pg_golden_tx", "golden_tx")
    assert [one["host"] for one in said["byHost"]] == ["127.0.0.1"]
    assert len(said["givenUpOldest"]) == 3


def decide(producer: Producer, admin: Admin, broker_address: str, topic: str) -> dict[str, str]:
    """Transactions of each fate; unique key -> state."""
    def key(record: Any) -> str:
        return str(record.properties["UNIQ_KEY"])

    known = {}
    for decision, state in ((COMMIT, "committed"), (ROLLBACK, "rolled back")):
        half = producer.prepare(topic, state.encode())
        assert producer.end(half, decision).code == 0
        known[key(half)] = state
        asked_about = producer.prepare(topic, b"ask: " + state.encode())
        (asked,) = producer.wait_asked(body=asked_about.body)
        assert producer.end(asked, decision).code == 0
        known[key(asked_about)] = state
    never = producer.prepare(topic, b"never")
    producer.until(lambda: producer.end_of(GIVEN_UP) == 1, "one is given up")
    known[key(never)] = "given up"
    admin.update_broker_config({"transactionTimeOut": "3600000"}, broker=broker_address)
    twice, both, fresh = (producer.prepare(topic, body) for body in (b"twice", b"both", b"open"))
    for half, decision in ((twice, COMMIT), (twice, COMMIT), (both, COMMIT), (both, ROLLBACK)):
        assert producer.end(half, decision).code == 0
    return {**known, key(twice): "committed", key(both): "committed", key(fresh): "open"}


@contextmanager
def cluster_of(kind: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Addresses of a name server and its broker."""
    if kind == "mqcore":
        with mqcore_up(folder, FAST) as broker:
            yield broker.namesrv_addr, broker.broker_addr
        return
    require_stock()
    with stock_cluster(folder, STOCK_FAST) as stock:
        yield stock.namesrv_addr, stock.broker_addr


@pytest.mark.parametrize("kind", ["mqcore", pytest.param("stock", marks=pytest.mark.interop)])
def test_a_live_broker_and_its_store_say_the_same(
        kind: str, spark: Any, tmp_path: Path) -> None:
    from mqcore.spark.jobs.transactions import Live, join

    with cluster_of(kind, tmp_path) as (namesrv, address), Admin(namesrv=namesrv) as admin:
        cluster = {"nameServer": namesrv}
        assert Live(spark, cluster, None).halves().isEmpty()        # nobody has sent any
        with Producer(address, "PG") as producer:
            known = decide(producer, admin, address, producer.topic(1))
        joined = join(spark, cluster=cluster)
        live = fates(joined.frame)
        assert {key: fate[0] for key, fate in live.items()} == known
        figures = joined.figures(10)
        joined.close()

    assert {(one["state"], one["conflict"]) for one in figures["conflictsOldest"]} == {
        ("committed", "committed more than once"), ("committed", "committed and rolled back")}
    assert [one["transactionId"] for one in figures["openOldest"]] == [
        key for key, state in known.items() if state == "open"]
    assert {key: fate[2] for key, fate in live.items() if known[key] == "given up"} == {
        key: 3 for key, state in known.items() if state == "given up"}
    if kind == "mqcore":
        at_rest = join(spark, store=tmp_path / "store")
        assert fates(at_rest.frame) == live
        at_rest.close()
