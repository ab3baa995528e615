"""
mqcore beside stock programs: name servers, brokers in one cluster, and one another's stores.

Everything here needs Java: the stock name server and broker 4.9.7, and the client and store classes
of 4.9.8. Each test runs its own brokers.
"""
from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.ask import ends_of, settled_offsets
from tests.interop.conftest import MQCORE_SETTINGS, STOCK_PROPERTIES
from tests.interop.messages import Message, assert_same, assorted, mids, plain
from tests.interop.runner import Programs
from tests.interop.toolchain import require_client
from tests.support import stock
from tests.support.ci import unavailable
from tests.support.mqcore_process import SMALL_STORE, MqcoreProcess, mqcore_namesrv, mqcore_up

pytestmark = pytest.mark.timeout(300)
QUEUES = 4


@pytest.fixture(autouse=True)
def _java() -> None:
    require_client("java")
    if not stock.have_stock():
        unavailable("needs java, and mvn or an earlier download of the stock broker")


def _stock_broker(
    folder: Path, namesrv_addr: str, **properties: object,
) -> stock.StockProcess:
    return stock.start_broker(folder, namesrv_addr, {**STOCK_PROPERTIES, **properties})


def _mqcore_store(folder: Path, programs: Programs, sent: list[Message], topic: str) -> Path:
    """A store that mqcore wrote and closed: `sent` in `topic`, consumed by the group `early`."""
    with mqcore_up(folder, MQCORE_SETTINGS) as broker:
        programs.produce("java", broker.namesrv_addr, topic, sent).finish()
        seen = programs.consume("java", broker.namesrv_addr, topic, "early", len(sent)).finish()
        ends = ends_of(seen)
        assert settled_offsets(broker.broker_addr, "early", topic, ends, ends) == ends
    return broker.store


# -- stores ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_stock_store_classes_read_every_message_of_a_store_that_we_closed(
    tmp_path: Path, programs: Programs,
) -> None:
    sent = assorted("java", "stored")
    store = _mqcore_store(tmp_path / "mqcore", programs, sent, "stored")
    copy = shutil.copytree(store, tmp_path / "copy", symlinks=True)

    lines = _read_store(programs, copy, find="stored=stored-unicode;stored=second-3")

    assert_same(sent, [line for line in lines if line.get("queueTopic") == "stored"], "stored")
    by_key = {line["foundByKey"]: line["properties"]["mid"]
              for line in lines if "foundByKey" in line}
    assert by_key == {"stored-unicode": "stored-unicode", "second-3": "stored-long-text"}


@pytest.mark.slow
def test_the_store_reader_reads_a_stock_store_in_the_same_way(
    tmp_path: Path, programs: Programs, name_server: str,
) -> None:
    sent = assorted("java", "stored")
    broker = _stock_broker(tmp_path / "stock", name_server)
    try:
        programs.produce("java", name_server, "stored", sent).finish()
    finally:
        broker.stop()

    lines = _read_store(programs, tmp_path / "stock" / "store", find="stored=stored-unicode")

    assert_same(sent, [line for line in lines if line.get("queueTopic") == "stored"], "stored")
    assert [line["properties"]["mid"] for line in lines if "foundByKey" in line] == [
        "stored-unicode"]


def _read_store(programs: Programs, store: Path, find: str) -> list[Message]:
    sizes = {key.partition(".")[2]: int(str(value)) for key, value in SMALL_STORE.items()}
    return programs.java(
        "read-store", store=store, find=find, segment_size=sizes["segment_size_bytes"],
        queue_file_size=20 * sizes["queue_file_entry_count"],
        index_slots=sizes["index_slot_count"], index_entries=sizes["index_entry_count"])


@pytest.mark.slow
def test_a_stock_broker_carries_on_with_our_store(
    tmp_path: Path, programs: Programs, name_server: str,
) -> None:
    before, after = assorted("java", "before"), plain(f"after-{index}" for index in range(8))
    store = _mqcore_store(tmp_path / "mqcore", programs, before, "moved")
    broker = _stock_broker(tmp_path / "stock", name_server, storePathRootDir=store,
                           brokerName="mqcore-a")
    try:
        late = programs.consume("java", name_server, "moved", "late", len(before)).finish()
        programs.produce("java", name_server, "moved", after).finish()
        early = programs.consume("java", name_server, "moved", "early", len(after)).finish()
    finally:
        broker.kill()

    assert_same(before, late, "moved")
    assert_same(after, early, "moved")


@pytest.mark.slow
def test_we_carry_on_with_the_store_of_a_stock_broker(
    tmp_path: Path, programs: Programs, name_server: str,
) -> None:
    before, after = assorted("java", "before"), plain(f"after-{index}" for index in range(8))
    store = tmp_path / "stock" / "store"
    broker = _stock_broker(tmp_path / "stock", name_server, brokerName="mqcore-a")
    try:
        programs.produce("java", name_server, "moved", before).finish()
        first = programs.consume("java", name_server, "moved", "early", len(before)).finish()
        committed = settled_offsets(broker.addr, "early", "moved", range(QUEUES), ends_of(first))
    finally:
        broker.stop()
    # the stock broker may have lost one: FIRST_COMMITS_MAY_BE_LOST in test_send_and_consume.py
    lost = set(mids(line for line in first if line["offset"] >= committed[line["queueId"]]))
    expected = [*(one for one in before if one["properties"]["mid"] in lost), *after]
    with mqcore_up(tmp_path / "mqcore", {**MQCORE_SETTINGS, "store.path": store}) as ours:
        late = programs.consume("java", ours.namesrv_addr, "moved", "late", len(before)).finish()
        programs.produce("java", ours.namesrv_addr, "moved", after).finish()
        early = programs.consume("java", ours.namesrv_addr, "moved", "early",
                                 len(expected)).finish()

    assert len(lost) < len(before)
    assert_same(before, late, "moved")
    assert_same(expected, early, "moved")


# -- name servers and clusters ---------------------------------------------------------------------


@pytest.fixture
def stock_namesrv(tmp_path: Path) -> Iterator[str]:
    started = stock.start_namesrv(tmp_path / "stock-namesrv")
    yield started.addr
    started.stop()


@pytest.mark.slow
def test_our_broker_serves_clients_through_a_stock_name_server(
    tmp_path: Path, programs: Programs, stock_namesrv: str,
) -> None:
    sent = assorted("java", "through")
    with mqcore_up(tmp_path / "mqcore", MQCORE_SETTINGS, namesrv_addr=stock_namesrv) as broker:
        assert stock.registered_brokers(stock_namesrv) == {"mqcore-a"}
        seen = _exchange(programs, stock_namesrv, sent)
        assert broker.namesrv_addr == stock_namesrv

    assert_same(sent, seen, "through")
    assert stock.registered_brokers(stock_namesrv) == set()         # it said goodbye


@pytest.mark.slow
def test_a_stock_broker_serves_clients_through_our_name_server(
    tmp_path: Path, programs: Programs,
) -> None:
    sent = assorted("java", "through")
    with mqcore_namesrv(tmp_path / "namesrv") as namesrv:
        broker = _stock_broker(tmp_path / "stock", namesrv.namesrv_addr)
        try:
            seen = _exchange(programs, namesrv.namesrv_addr, sent)
        finally:
            broker.stop()
        assert stock.registered_brokers(namesrv.namesrv_addr) == set()

    assert_same(sent, seen, "through")


def _exchange(programs: Programs, namesrv_addr: str, sent: list[Message]) -> list[Message]:
    programs.java("create-topic", namesrv=namesrv_addr, topic="through", queues=QUEUES)
    programs.produce("java", namesrv_addr, "through", sent).finish()
    return programs.consume("java", namesrv_addr, "through", "readers", len(sent)).finish()


@pytest.mark.slow
def test_our_broker_and_a_stock_one_form_a_cluster(tmp_path: Path, programs: Programs) -> None:
    sent = plain(f"both-{index}" for index in range(4 * QUEUES))
    with mqcore_namesrv(tmp_path / "namesrv") as namesrv:
        addr = namesrv.namesrv_addr
        broker = _stock_broker(tmp_path / "stock", addr)
        try:
            with mqcore_up(tmp_path / "mqcore", MQCORE_SETTINGS, namesrv_addr=addr) as ours:
                programs.java("create-topic", namesrv=addr, topic="both", queues=QUEUES)
                acknowledged = programs.produce("java", addr, "both", sent).finish()
                seen = programs.consume("java", addr, "both", "readers", len(sent)).finish()
                ports = _ports(ours, broker)
        finally:
            broker.kill()

    assert_same(sent, seen, "both")
    stored_at = [int(line["offsetMsgId"][8:16], 16) for line in acknowledged]
    assert {port: stored_at.count(port) for port in ports} == dict.fromkeys(ports, len(sent) // 2)


def _ports(ours: MqcoreProcess, theirs: stock.StockProcess) -> list[int]:
    return [int(addr.rsplit(":", 1)[1]) for addr in (ours.broker_addr, theirs.addr)]
