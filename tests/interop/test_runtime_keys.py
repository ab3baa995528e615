"""Code 28 answers every key that a stock broker answers: programs read them without a look."""
from __future__ import annotations

import re
from pathlib import Path

import pytest

from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode as Code
from tests.support.ci import unavailable
from tests.support.mqcore_process import mqcore_up
from tests.support.stock import SMALL_STOCK, StockError, require_stock, stock_cluster
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer

OF_5 = {"brokerActive", "getTransferredTps"}


def runtime(address: str) -> dict[str, str]:
    with Peer(address) as peer:
        wait_until(lambda: peer.ask(Code.GET_BROKER_RUNTIME_INFO).body, "runtime info")
        return dict(fastjson.loads(peer.ask(Code.GET_BROKER_RUNTIME_INFO).body)["table"])


def subject(key: str) -> str:
    """A key without the folder that it is about."""
    return re.sub(r"^(commitLogDiskRatio)_.*", r"\1_", key)


@pytest.mark.slow
def test_every_key_of_stock_is_answered(tmp_path: Path) -> None:
    require_stock()
    try:
        with stock_cluster(tmp_path / "stock", SMALL_STOCK, is_kept=False) as stock:
            theirs = runtime(stock.broker_addr)
    except StockError as error:
        unavailable(str(error))
    with mqcore_up(tmp_path / "ours", {}) as ours:
        found = runtime(ours.broker_addr)

    assert len(theirs) > 40
    assert {subject(key) for key in theirs} - {subject(key) for key in found} == set()
    assert set(found) >= OF_5
    for key, value in theirs.items():
        if re.fullmatch(r"-?[0-9]+", value):
            assert re.fullmatch(r"-?[0-9]+", found.get(key, "0")), key
