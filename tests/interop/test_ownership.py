"""
A store changes hands: stock 4.9.7 to mqcore and back; a killed mqcore to the stock store classes.

Messages, delayed ones that are still pending, consumer offsets and topics go with it: nothing is
lost, nothing comes twice.
"""
from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.interop.ask import ends_of, settled_offsets
from tests.interop.conftest import STOCK_PROPERTIES
from tests.interop.messages import Message, assert_same, assorted, message, mids, plain
from tests.interop.runner import Line, Programs
from tests.interop.test_neighbours import (
    QUEUES,
    _java,
    _read_store,
)
from tests.support import stock
from tests.support.mqcore_process import mqcore_up

__all__ = ["_java"]            # fixture
pytestmark = pytest.mark.timeout(300)
# Levels that are due at once, while the second owner has the store, and while the third one has it.
LEVELS = "1s 12s 26s 38s"
OURS: dict[str, object] = {"broker.message_delay_levels": LEVELS}
CONFIG = ("topics.json", "consumerOffset.json", "subscriptionGroup.json", "delayOffset.json")


def delayed(owner: str) -> list[Message]:
    """Three messages at each level."""
    return [message(f"{owner}-level-{level}-{number}", f"due at level {level}", delayLevel=level)
            for level in (1, 2, 3, 4) for number in range(3)]


class Owners:
    """The brokers that own one store in turn, and what one consumer group got from all of them."""

    def __init__(self, folder: Path, programs: Programs, namesrv: str) -> None:
        self.folder, self.programs, self.namesrv = folder, programs, namesrv
        self.store = folder / "stock" / "store"
        self.sent: list[Message] = []
        self.seen: list[Line] = []

    def own(self, name: str, namesrv: str, broker_addr: str, *, wait_for: int) -> None:
        """Send at once and delayed; the group gets `wait_for` messages, and commits."""
        sent = [*assorted("java", name), *delayed(name)]
        self.programs.produce("java", namesrv, "moved", sent).finish()
        self.sent += sent
        lines = self.programs.consume("java", namesrv, "moved", "readers", wait_for,
                                      linger_ms=500).finish()
        # what was delivered and not committed before the client ended comes again, and counts then
        committed = settled_offsets(broker_addr, "readers", "moved", range(QUEUES), ends_of(lines))
        self.seen += [line for line in lines if line["offset"] < committed[line["queueId"]]]

    def stock(self, name: str, *, wait_for: int) -> None:
        broker = stock.start_broker(self.folder / "stock", self.namesrv, {
            **STOCK_PROPERTIES, "messageDelayLevel": LEVELS, "brokerName": "mqcore-a",
        })
        try:
            self.own(name, self.namesrv, broker.addr, wait_for=wait_for)
        finally:
            broker.stop()

    def ours(self, name: str, *, wait_for: int) -> None:
        with mqcore_up(self.folder / "mqcore", {**OURS, "store.path": self.store}) as broker:
            self.own(name, broker.namesrv_addr, broker.broker_addr, wait_for=wait_for)

    def config(self, name: str) -> Any:
        return json.loads((self.store / "config" / name).read_text().replace("\t", ""))


def topic_names(owners: Owners) -> set[str]:
    return set(owners.config("topics.json")["topicConfigTable"])


@pytest.mark.slow
def test_a_store_goes_from_stock_to_us_and_back_with_all_that_is_pending(
    tmp_path: Path, programs: Programs, name_server: str,
) -> None:
    at_once = len(assorted("java", "x"))
    owners = Owners(tmp_path, programs, name_server)
    owners.stock("first", wait_for=at_once + 3)                 # and those of level 1
    before = topic_names(owners)
    pending = len(owners.sent) - len(owners.seen)
    assert pending >= 9
    owners.ours("second", wait_for=at_once + 3 + 3)             # level 2 of before as well
    assert topic_names(owners) >= before
    left = len(owners.sent) - len(owners.seen) + len(assorted("java", "x")) + 12
    owners.stock("third", wait_for=left)                        # all that there is

    counts = Counter(mids(owners.seen))
    assert {mid: count for mid, count in counts.items() if count != 1} == {}
    assert_same(owners.sent, owners.seen, "moved")
    assert all((owners.store / "config" / name).exists() for name in CONFIG)


def test_the_stock_store_classes_read_all_of_a_store_whose_broker_was_killed(
    tmp_path: Path, programs: Programs,
) -> None:
    sent = assorted("java", "stored")
    with mqcore_up(tmp_path / "mqcore") as broker:
        programs.produce("java", broker.namesrv_addr, "stored", sent).finish()
        store = broker.store
        broker.kill()
    copy = shutil.copytree(store, tmp_path / "copy", symlinks=True)
    assert (copy / "abort").exists()

    lines = _read_store(programs, copy, find="stored=stored-unicode;stored=second-3")

    assert_same(sent, [line for line in lines if line.get("queueTopic") == "stored"], "stored")
    by_key = {line["foundByKey"]: line["properties"]["mid"]
              for line in lines if "foundByKey" in line}
    assert by_key == {"stored-unicode": "stored-unicode", "second-3": "stored-long-text"}


@pytest.mark.slow
def test_killed_and_clean_stores_hold_the_same_for_the_stock_classes_and_for_us(
    tmp_path: Path, programs: Programs,
) -> None:
    """What the stock classes found after a kill, our own next start serves too."""
    sent = plain(f"same-{number}" for number in range(40))
    with mqcore_up(tmp_path / "mqcore") as broker:
        programs.produce("java", broker.namesrv_addr, "same", sent).finish()
        store = broker.store
        broker.kill()
    copy = shutil.copytree(store, tmp_path / "copy", symlinks=True)
    theirs = [line for line in _read_store(programs, copy, find="")
              if line.get("queueTopic") == "same"]
    with mqcore_up(tmp_path / "mqcore") as broker:
        ours = programs.consume("java", broker.namesrv_addr, "same", "late", len(sent)).finish()

    assert_same(sent, ours, "same")
    assert {(line["queueId"], line["offset"]): line["body"] for line in theirs} == {
        (line["queueId"], line["offset"]): line["body"] for line in ours}
