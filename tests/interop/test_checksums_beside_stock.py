"""
A stock broker opens our store, with the checksums beside its log, writes on, and ends cleanly or
not; we start again: nothing of it is cut for want of a checksum, nothing of ours is taken for
damage, and from then on there are checksums again.
"""
from __future__ import annotations

from pathlib import Path

import pytest

from mqcore.store.log import owner
from mqcore.store.verify.store import verify
from tests.attacks.after_a_kill import make_topic, messages, send_honest
from tests.interop.conftest import MQCORE_SETTINGS, STOCK_PROPERTIES
from tests.support import stock
from tests.support.mqcore_process import mqcore_up
from tests.wire_live.peer import Peer

pytestmark = pytest.mark.timeout(300)
TOPIC = "moved"
COUNT = 40


@pytest.mark.slow
@pytest.mark.parametrize("ours_killed", [False, True], ids=["we-stopped", "we-were-killed"])
@pytest.mark.parametrize("stock_killed", [False, True], ids=["it-stopped", "it-was-killed"])
def test_a_stock_broker_between_two_runs_of_ours_costs_no_message(
    tmp_path: Path, name_server: str, ours_killed: bool, stock_killed: bool
) -> None:
    folder = tmp_path / "mqcore"
    with mqcore_up(folder, MQCORE_SETTINGS) as broker, Peer(broker.broker_addr) as peer:
        make_topic(peer, TOPIC)
        promised = send_honest(peer, TOPIC, COUNT)
        store = broker.store
        assert owner.alone(store / "lock")
        if ours_killed:
            broker.kill()
    between = stock.start_broker(tmp_path / "stock", name_server, {
        **STOCK_PROPERTIES, "storePathRootDir": store, "brokerName": "mqcore-a"})
    try:
        with Peer(between.addr) as peer:
            promised |= send_honest(peer, TOPIC, COUNT)
            assert len(messages(between.addr, TOPIC, 2 * COUNT)) == 2 * COUNT
        if stock_killed:
            between.kill()
    finally:
        between.stop()
    assert not owner.alone(store / "lock")

    with mqcore_up(folder, MQCORE_SETTINGS) as broker, Peer(broker.broker_addr) as peer:
        assert owner.alone(store / "lock")
        promised |= send_honest(peer, TOPIC, COUNT)
        assert messages(broker.broker_addr, TOPIC, 3 * COUNT) == promised
        broker.kill()
    with mqcore_up(folder, MQCORE_SETTINGS) as broker:
        assert messages(broker.broker_addr, TOPIC, 3 * COUNT) == promised
        assert "it is cut there" not in broker.tail()
    assert verify(store).status == 0
