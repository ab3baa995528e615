"""Transactions that one kind of broker left undecided in its store are finished by the other."""
from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.mqcore_process import SMALL_STORE, MqcoreProcess, mqcore_up
from tests.support.stock import free_broker_port, require_stock, start_broker
from tests.transactions.producer import (
    COMMIT,
    HALF_TOPIC,
    OP_TOPIC,
    ROLLBACK,
    Asked,
    Producer,
    settled,
)

CHECK_MAX = 10_000                              # rounds go on while a broker stops
ROUND_MS = 1_000                                # an answer is there before the next question
SETTINGS: dict[str, object] = {
    "broker.transaction_timeout_ms": 300, "broker.transaction_check_interval_ms": ROUND_MS,
    "broker.transaction_check_max": CHECK_MAX, "broker.offsets_persist_interval_ms": 500,
}
STOCK_PROPERTIES: dict[str, object] = {
    "brokerName": "mqcore-a", "transactionTimeOut": 300, "transactionCheckInterval": ROUND_MS,
    "transactionCheckMax": CHECK_MAX, "flushConsumerOffsetInterval": 500,
    "mappedFileSizeCommitLog": SMALL_STORE["store.segment_size_bytes"],
    "mappedFileSizeConsumeQueue": 20 * int(str(SMALL_STORE["store.queue_file_entry_count"])),
    "maxHashSlotNum": SMALL_STORE["store.index_slot_count"],
    "maxIndexNum": SMALL_STORE["store.index_entry_count"],
}
GROUP, TOPIC = "PG", "Accounts"
PATIENCE_S = 2                                  # CHECK_IMMUNITY_TIME_IN_SECONDS of one of them


@contextmanager
def stock_on(store: Path, folder: Path) -> Iterator[str]:
    """The address of a stock broker over a store that it is given; stopped in order."""
    with mqcore_up(folder / "names", {}) as name_server:
        stock = start_broker(folder / "stock", name_server.namesrv_addr, {
            **STOCK_PROPERTIES, "storePathRootDir": store}, port=free_broker_port())
        try:
            yield stock.addr
        finally:
            stock.stop()


@contextmanager
def ours_on(folder: Path) -> Iterator[MqcoreProcess]:
    with mqcore_up(folder, SETTINGS) as broker:
        yield broker


def leave_undecided(address: str) -> None:
    """One committed, one rolled back, and three open: one was asked about, one is immune."""
    with Producer(address, GROUP) as producer:
        producer.topic_named(TOPIC, 1)
        producer.end(producer.prepare(TOPIC, b"committed"), COMMIT)
        producer.end(producer.prepare(TOPIC, b"rolled back"), ROLLBACK)
        producer.prepare(TOPIC, b"asked about")
        producer.wait_asked(body=b"asked about")
        producer.prepare(TOPIC, b"patient", CHECK_IMMUNITY_TIME_IN_SECONDS=str(PATIENCE_S))
        producer.prepare(TOPIC, b"open")
        producer.until(lambda: producer.stored(TOPIC) == [b"committed"], "the committed message")


def finish(address: str) -> list[Asked]:
    """Answer what is asked: two commits, one rollback, and nothing is asked any more."""
    with Producer(address, GROUP) as producer:
        asked = []
        for body, decision in ((b"asked about", COMMIT), (b"open", ROLLBACK), (b"patient", COMMIT)):
            one = producer.wait_asked(body=body)[-1]            # of the last copy
            assert producer.end(one, decision).code == 0
            asked.append(one)
        stored = [b"asked about", b"committed", b"patient"]
        producer.until(lambda: sorted(producer.stored(TOPIC)) == stored, "both are delivered")
        settled(producer)
        producer.asked.clear()            # on a slow machine it is asked again before the answer

        producer.prepare(TOPIC, b"later")
        later = producer.wait_asked(body=b"later")[-1]
        assert producer.asked == []
        assert producer.end(later, ROLLBACK).code == 0
        settled(producer)
        assert sorted(producer.stored(TOPIC)) == stored
    return asked


def assert_nothing_is_left(address: str, store_ends: tuple[int, int]) -> None:
    """The offsets of the other kind of broker are believed; only what is new is asked about."""
    with Producer(address, GROUP) as producer:
        assert (producer.end_of(HALF_TOPIC), producer.end_of(OP_TOPIC)) == store_ends
        assert (producer.offset(HALF_TOPIC), producer.offset(OP_TOPIC)) == store_ends
        producer.prepare(TOPIC, b"new")
        asked = producer.wait_asked()[-1]
        assert asked.record.body == b"new"
        assert producer.end(asked, COMMIT).code == 0
        settled(producer)
        stored = [b"asked about", b"committed", b"new", b"patient"]
        producer.until(lambda: sorted(producer.stored(TOPIC)) == stored, "it is delivered, once")


def ends(address: str) -> tuple[int, int]:
    with Producer(address, GROUP) as producer:
        return producer.end_of(HALF_TOPIC), producer.end_of(OP_TOPIC)


@pytest.mark.slow
def test_ours_finishes_what_a_stock_broker_left_undecided_and_stock_goes_on_after_it(
    tmp_path: Path,
) -> None:
    require_stock()
    with stock_on(tmp_path / "store", tmp_path / "first") as address:
        leave_undecided(address)
    with ours_on(tmp_path) as broker:
        asked = finish(broker.broker_addr)
        left = ends(broker.broker_addr)
    assert asked[0].record.properties["TRANSACTION_CHECK_TIMES"] != "1"
    assert offsets_said(tmp_path / "store") == left
    with stock_on(tmp_path / "store", tmp_path / "second") as address:
        assert_nothing_is_left(address, left)


@pytest.mark.slow
def test_a_stock_broker_finishes_what_ours_left_undecided_and_ours_goes_on_after_it(
    tmp_path: Path,
) -> None:
    require_stock()
    with ours_on(tmp_path) as broker:
        leave_undecided(broker.broker_addr)
    with stock_on(tmp_path / "store", tmp_path / "stock") as address:
        asked = finish(address)
        left = ends(address)
    assert asked[0].record.properties["TRANSACTION_CHECK_TIMES"] != "1"
    assert offsets_said(tmp_path / "store") == left
    with ours_on(tmp_path) as broker:
        assert_nothing_is_left(broker.broker_addr, left)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ours", "stock"])
def test_undecided_transactions_of_a_killed_broker_are_finished_by_the_other_kind(
    tmp_path: Path, kind: str,
) -> None:
    require_stock()
    if kind == "ours":
        with ours_on(tmp_path) as broker:
            leave_undecided(broker.broker_addr)
            broker.kill()
        with stock_on(tmp_path / "store", tmp_path / "stock") as address:
            finish_all(address)
        return
    with mqcore_up(tmp_path / "names", {}) as name_server:
        stock = start_broker(tmp_path / "stock", name_server.namesrv_addr, {
            **STOCK_PROPERTIES, "storePathRootDir": tmp_path / "store"}, port=free_broker_port())
        try:
            leave_undecided(stock.addr)
        finally:
            stock.kill()
    with ours_on(tmp_path) as broker:
        finish_all(broker.broker_addr)


def finish_all(address: str) -> None:
    """As `finish`; a message may be asked about in several copies: offsets lag behind a kill."""
    decisions = {b"asked about": COMMIT, b"open": ROLLBACK, b"patient": COMMIT}
    with Producer(address, GROUP) as producer:
        for body in decisions:
            for one in producer.wait_asked(body=body):
                producer.end(one, decisions[body])

        def done() -> bool:
            ours = [producer.offset(topic) >= producer.end_of(topic)
                    for topic in (HALF_TOPIC, OP_TOPIC)]
            for one in producer.asked:
                producer.end(one, decisions[one.record.body])
            producer.asked.clear()
            return all(ours) and b"patient" in producer.stored(TOPIC)

        producer.until(done, "everything settled")
        seen = producer.stored(TOPIC)
        assert set(seen) == {b"asked about", b"committed", b"patient"}
        assert seen.count(b"committed") == 1


def offsets_said(store: Path) -> tuple[int, int]:
    """(half, op) of consumerOffset.json; its inner keys are bare numbers."""
    text = (store / "config" / "consumerOffset.json").read_text()
    found = []
    for topic in (HALF_TOPIC, OP_TOPIC):
        said = re.search(rf'"{topic}@CID_RMQ_SYS_TRANS":{{\s*0:(\d+)', text)
        assert said is not None, text
        found.append(int(said[1]))
    return found[0], found[1]
