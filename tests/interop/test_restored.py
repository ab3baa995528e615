"""Backups between the two: of a stock broker that runs, and stores of ours in stock hands."""
from __future__ import annotations

from pathlib import Path

import pytest

from mqcore.backup.make import to_folder
from mqcore.backup.restore import restore
from mqcore.store.verify.store import verify
from tests.interop.conftest import MQCORE_SETTINGS
from tests.interop.messages import assert_same, assorted, mids, plain
from tests.interop.runner import Programs
from tests.interop.test_neighbours import _java as _java
from tests.interop.test_neighbours import _mqcore_store, _stock_broker
from tests.support.mqcore_process import mqcore_up

pytestmark = pytest.mark.timeout(300)


@pytest.mark.slow
def test_a_stock_broker_starts_on_a_restored_store_and_goes_on(
    tmp_path: Path, programs: Programs, name_server: str,
) -> None:
    sent, after = assorted("java", "before"), plain(["after"])
    store = _mqcore_store(tmp_path / "mqcore", programs, sent, "restored")
    to_folder(store, tmp_path / "backups")
    restore(tmp_path / "backups", tmp_path / "restored")

    broker = _stock_broker(tmp_path / "stock", name_server, brokerName="mqcore-a",
                           storePathRootDir=tmp_path / "restored")
    try:
        late = programs.consume("java", name_server, "restored", "late", len(sent)).finish()
        programs.produce("java", name_server, "restored", after).finish()
        early = programs.consume("java", name_server, "restored", "early", 1).finish()
    finally:
        broker.kill()

    assert_same(sent, late, "restored")
    assert mids(early) == ["after"]


@pytest.mark.slow
def test_a_backup_of_a_running_stock_broker_is_a_store_of_ours(
    tmp_path: Path, programs: Programs, name_server: str,
) -> None:
    sent = assorted("java", "live")
    broker = _stock_broker(tmp_path / "stock", name_server, brokerName="mqcore-a")
    try:
        programs.produce("java", name_server, "live", sent).finish()
        to_folder(tmp_path / "stock" / "store", tmp_path / "backups")
    finally:
        broker.kill()

    restored = restore(tmp_path / "backups", tmp_path / "restored")

    assert restored.report.status in (0, 3)
    with mqcore_up(tmp_path / "mqcore", {**MQCORE_SETTINGS,
                                         "store.path": tmp_path / "restored"}) as ours:
        late = programs.consume("java", ours.namesrv_addr, "live", "late", len(sent)).finish()
    assert_same(sent, late, "live")
    assert verify(tmp_path / "restored").status == 0
