"""A stock broker's waiting messages are delivered by ours, and ours by a stock broker."""
from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mqcore.broker.settings.delay_levels import parse_delay_levels
from mqcore.broker.settings.model import BrokerSettings
from mqcore.wire.properties import decode_properties
from mqcore.workers.scheduling.scheduler import DelayOffsets
from tests.schedule.desk import SCHEDULE_TOPIC, Desk, now_ms
from tests.schedule.ledger import read_ledger
from tests.schedule.test_live import SHORT, SHORT_MS, flood, ledger, wait_settled
from tests.store.golden import manifest, unpack
from tests.support.mqcore_process import SMALL_STORE, MqcoreProcess, mqcore_up
from tests.support.stock import free_broker_port, require_stock, start_broker
from tests.support.waiting import wait_until

STORE = "delay_retry_dlq"
DEFAULT_DELAYS_MS = parse_delay_levels(BrokerSettings().message_delay_levels)
GOLDEN_SIZES: dict[str, Any] = {
    "segment_size": 65_536, "file_entries": 100, "index_slots": 500, "index_entries": 1_000,
    "queues": 128}
STOCK_PROPERTIES: dict[str, object] = {
    "brokerName": "mqcore-a", "messageDelayLevel": SHORT["broker.message_delay_levels"],
    "mappedFileSizeCommitLog": SMALL_STORE["store.segment_size_bytes"],
    "mappedFileSizeConsumeQueue": 20 * int(str(SMALL_STORE["store.queue_file_entry_count"])),
    "maxHashSlotNum": SMALL_STORE["store.index_slot_count"],
    "maxIndexNum": SMALL_STORE["store.index_entry_count"],
}


def names(desk: Desk, *, delayed: bool) -> Counter[tuple[str, str, bytes]]:
    """Delayed messages of a store, or deliveries: (topic that they belong to, level, body)."""
    found: Counter[tuple[str, str, bytes]] = Counter()
    for record in desk.records():
        properties = decode_properties(record["properties"])
        place = SCHEDULE_TOPIC if delayed else properties.get("REAL_TOPIC")
        if "REAL_TOPIC" in properties and record["topic"] == place:    # dead letters keep it, too
            found[properties["REAL_TOPIC"], properties["DELAY"], record["body"]] += 1
    return found


def test_what_waits_in_a_stock_store_is_delivered_once(tmp_path: Path) -> None:
    root = unpack(STORE, tmp_path)
    offsets, position, ahead = DelayOffsets(root / "config" / "delayOffset.json").load()
    assert {str(level): offset for level, offset in offsets.items()} == (
        manifest(STORE)["config"]["delayOffset"]["offsetTable"])
    assert (position, ahead) == (-1, [])
    desk = Desk(root, delays_ms=DEFAULT_DELAYS_MS, load=False, **GOLDEN_SIZES)
    desk.scheduler.load(offsets, position, ahead)
    before = names(desk, delayed=False)
    wanted = names(desk, delayed=True)
    assert before < wanted

    desk.settle(now_ms())                      # all of it was due long ago
    assert names(desk, delayed=False) == wanted
    assert desk.scheduler.notes() == ([], 0)
    ends = {queue + 1: most for (topic, queue), (_, most) in desk.run.queue_ranges().items()
            if topic == SCHEDULE_TOPIC}
    assert desk.offsets() == ends


@pytest.mark.slow
@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_a_stock_broker_delivers_what_waits_in_our_store_and_we_go_on_after_it(
    tmp_path: Path, end: str
) -> None:
    require_stock()
    settings = {**SHORT, "broker.delay_offsets_persist_interval_ms": 200}
    with mqcore_up(tmp_path, settings) as broker:
        flood(broker, 300, level=1)
        wait_settled(broker, 300)
        flood(broker, 200, level=3)
        if end == "killed":
            wait_until(lambda: said(broker.store).get("offsetTable") == {"1": 300},
                       "the offsets are saved")
            broker.kill()
    if end == "killed":
        assert "logPosition" in said(broker.store)
    with mqcore_up(tmp_path / "names", {}) as name_server:
        stock = start_broker(tmp_path / "stock", name_server.namesrv_addr, {
            **STOCK_PROPERTIES, "storePathRootDir": broker.store}, port=free_broker_port())
        try:
            wait_until(lambda: not pending(broker), "the stock broker has delivered it", 20.0)
        finally:
            stock.stop()
    assert said(broker.store) == {"offsetTable": {"1": 300, "3": 200}}
    with mqcore_up(tmp_path, settings) as broker:
        flood(broker, 100, level=2)
        wait_settled(broker, 600)
    ledger(broker).check()


def pending(broker: MqcoreProcess) -> set[str]:
    return read_ledger(broker.store / "commitlog", SHORT_MS).pending()


def said(store: Path) -> dict[str, object]:
    """delayOffset.json; its keys are bare numbers."""
    text = (store / "config" / "delayOffset.json").read_text()
    found: dict[str, object] = json.loads(re.sub(r"([{,]\s*)(\d+):", r'\1"\2":', text))
    return found
