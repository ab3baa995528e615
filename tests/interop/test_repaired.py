"""
Stores that `mqcore store repair` has bridged, in stock hands: the store classes of 4.9.8 read
all that was whole, and a stock broker builds the queues again and carries on.
"""
from __future__ import annotations

from pathlib import Path

import pytest

from mqcore.admin.store import records
from mqcore.store.repair.store import repair
from mqcore.store.verify.store import verify
from tests.interop.conftest import MQCORE_SETTINGS
from tests.interop.messages import Message, assert_same, mids, plain
from tests.interop.runner import Programs
from tests.interop.test_neighbours import _java as _java
from tests.interop.test_neighbours import _mqcore_store, _read_store, _stock_broker
from tests.support.mqcore_process import mqcore_up

pytestmark = pytest.mark.timeout(300)
COUNT = 60


def damaged_and_repaired(store: Path) -> set[str]:
    """Spoil messages in the first segment, repair; returns the mids of those that are lost."""
    found = list(records(store, topic="repaired"))
    spoiled = [found[7], found[20], found[21], found[40]]
    with (store / "commitlog" / f"{0:020d}").open("r+b") as log:
        for one in spoiled:
            log.seek(one.physical_offset + 4)
            log.write(b"\xee" * 60)
    assert verify(store).status == 1

    assert repair(store, store.parent / "found", dry=False).status in (0, 3)

    return {one.properties["mid"] for one in spoiled}


def assert_all_but(sent: list[Message], lost: set[str], seen: list[Message]) -> None:
    """What was whole was read, and for each lost message a placeholder, which says so."""
    kept = [one for one in sent if one["properties"]["mid"] not in lost]
    placeholders = [one for one in seen if "MQCORE_LOST" in one["properties"]]
    assert len(placeholders) == len(lost)
    assert_same(kept, [one for one in seen if one not in placeholders], "repaired")


@pytest.mark.slow
def test_the_stock_store_classes_read_every_message_that_was_whole(
    tmp_path: Path, programs: Programs,
) -> None:
    sent = plain(f"m-{index}" for index in range(COUNT))
    store = _mqcore_store(tmp_path / "mqcore", programs, sent, "repaired")
    lost = damaged_and_repaired(store)
    with mqcore_up(tmp_path / "mqcore", MQCORE_SETTINGS):
        pass                                   # the queues that were taken away are written again
    assert verify(store).status == 0

    lines = _read_store(programs, store, find="repaired=m-0")

    assert_all_but(sent, lost, [line for line in lines if line.get("queueTopic") == "repaired"])


@pytest.mark.slow
def test_a_stock_broker_starts_on_a_repaired_store_and_delivers_all_that_was_whole(
    tmp_path: Path, programs: Programs, name_server: str,
) -> None:
    sent, after = plain(f"m-{index}" for index in range(COUNT)), plain(["after"])
    store = _mqcore_store(tmp_path / "mqcore", programs, sent, "repaired")
    lost = damaged_and_repaired(store)
    broker = _stock_broker(tmp_path / "stock", name_server, storePathRootDir=store,
                           brokerName="mqcore-a")
    try:
        late = programs.consume("java", name_server, "repaired", "late", COUNT).finish()
        programs.produce("java", name_server, "repaired", after).finish()
        early = programs.consume("java", name_server, "repaired", "early", 1).finish()
    finally:
        broker.kill()

    assert_all_but(sent, lost, late)
    assert mids(early) == ["after"]            # the numbers are those that the group has committed
