"""A restored store leads nobody who may have more: others of its broker's name are asked."""
from __future__ import annotations

from pathlib import Path

import pytest

from mqcore.backup.make import to_folder
from mqcore.backup.restore import restore
from mqcore.broker.standing import StandingError, check_alone
from mqcore.store import restored
from tests.backup.stores import copied
from tests.broker.fakes import settings_in
from tests.replication.pairs import NAME, addresses
from tests.replication.test_promotion import send
from tests.replication.test_slave_rules import SLAVE
from tests.support.mqcore_process import mqcore_namesrv, mqcore_up

LEADS: dict[str, object] = {"broker.name": NAME, "replication.listen": True}


def test_a_restored_master_takes_nothing_beside_a_living_one(tmp_path: Path) -> None:
    with mqcore_namesrv(tmp_path / "names") as names:
        with mqcore_up(tmp_path / "living", LEADS, namesrv_addr=names.namesrv_addr) as living:
            assert send(living.broker_addr, b"enough to be shown" * 500) == [0]
            to_folder(living.store, tmp_path / "backups")
            restore(tmp_path / "backups", tmp_path / "again" / "store")
            with mqcore_up(tmp_path / "again", LEADS, namesrv_addr=names.namesrv_addr) as again:
                assert f"answers at {living.broker_addr}" in again.tail()
                assert send(again.broker_addr, b"refused") == [14]
            assert restored.is_marked(tmp_path / "again" / "store")
            copied(living.store, tmp_path / "copy" / "store")
            with mqcore_up(tmp_path / "copy", LEADS, namesrv_addr=names.namesrv_addr) as copy:
                assert f"at {living.broker_addr} leads" in copy.tail()
                assert send(copy.broker_addr, b"refused") == [14]
            assert addresses(names) == {"0": living.broker_addr}

        with mqcore_up(tmp_path / "again", LEADS, namesrv_addr=names.namesrv_addr) as again:
            assert addresses(names) == {"0": again.broker_addr}
            assert not restored.is_marked(again.store)


def test_whoever_answers_may_have_more_and_a_slave_asks_nobody(tmp_path: Path) -> None:
    leads, follows = settings_in(tmp_path), settings_in(tmp_path, *SLAVE)

    with pytest.raises(StandingError, match=r"10\.0\.0\.1:10911, 10\.0\.0\.2:10911"):
        check_alone(leads, {"10.0.0.2:10911", "10.0.0.1:10911"})
    check_alone(leads, set())
    check_alone(follows, {"10.0.0.1:10911"})
