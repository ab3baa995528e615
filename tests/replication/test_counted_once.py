"""A slave that comes again while its master still holds its old connection is one slave."""
from __future__ import annotations

import contextlib
import logging
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from mqcore.workers.replication.ha_master import HaMaster
from tests.replication.elected import send
from tests.replication.pairs import NAME, slave_up
from tests.replication.test_promotion import same_log
from tests.support.mqcore_process import mqcore_namesrv, mqcore_up
from tests.support.relay import PIECE_BYTES, Relay
from tests.support.waiting import wait_until
from tests.workers.processes import kill

ALONE = [11]                         # SLAVE_NOT_AVAILABLE


class Twins:
    def twins(self) -> list[tuple[int, str, str]]:
        return [(7, "10.0.0.1:1", "10.0.0.2:1")]


def test_slaves_of_one_id_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    worker: Any = HaMaster.__new__(HaMaster)
    worker._loop, worker._twins = Twins(), set()
    with caplog.at_level(logging.WARNING):
        worker._say_twins()
        worker._say_twins()
    assert [one.getMessage() for one in caplog.records] == [
        "the slaves 10.0.0.1:1 and 10.0.0.2:1 have the same broker.id, 7, and count as one: "
        "expected another one in each"]


@pytest.mark.slow
def test_a_copy_of_a_slave_is_no_second_slave(tmp_path: Path) -> None:
    """Both follow, the master says so, and two slaves are there only with another id."""
    with (
        mqcore_namesrv(tmp_path / "names") as names,
        mqcore_up(tmp_path / "master", {
            "broker.name": NAME, "replication.role": "sync-master", "replication.listen": True,
            "replication.min_in_sync": 2, "replication.slave_timeout_ms": 10_000,
        }, namesrv_addr=names.namesrv_addr) as master,
    ):
        with slave_up(tmp_path / "one", names.namesrv_addr) as one:
            wait_until(lambda: master.tail().count("follows from") == 1, "a slave")
            assert send(master.broker_addr, b"one slave") == ALONE
            wait_until(lambda: same_log(master, one), "the same log")
        shutil.copytree(one.store, tmp_path / "copy" / "store")
        with (slave_up(tmp_path / "one", names.namesrv_addr) as one,
              slave_up(tmp_path / "copy", names.namesrv_addr) as copy):
            wait_until(lambda: "have the same broker.id, 1, and count as one" in master.tail(),
                       "a line")
            assert send(master.broker_addr, b"one slave, and its copy") == ALONE
            wait_until(lambda: same_log(master, one) and same_log(master, copy), "the same log")
            with slave_up(tmp_path / "two", names.namesrv_addr, {"broker.id": 2}):
                wait_until(lambda: send(master.broker_addr, b"two slaves") == [0],
                           "both have it")


class Mute(Relay):
    """Neither side hears of the end of the other: its host is gone, or the network between them."""

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(PIECE_BYTES):
                sink.sendall(piece)


def test_old_and_new_link_of_a_slave_are_one_slave(tmp_path: Path) -> None:
    with (
        mqcore_namesrv(tmp_path / "names") as names,
        mqcore_up(tmp_path / "master", {
            "broker.name": NAME, "replication.role": "sync-master", "replication.listen": True,
            "replication.min_in_sync": 2, "replication.slave_timeout_ms": 10_000,
            "replication.housekeeping_interval_ms": 600_000,
        }, namesrv_addr=names.namesrv_addr) as master,
    ):
        host, _, port = master.broker_addr.rpartition(":")
        with Mute(f"{host}:{int(port) + 1}") as way:
            settings = {"replication.master_address": way.address}
            with slave_up(tmp_path / "one", names.namesrv_addr, settings) as slave:
                wait_until(lambda: master.tail().count("follows from") == 1, "a slave")
                assert send(master.broker_addr, b"one slave") == ALONE
                kill(slave, "ha-slave")
                wait_until(lambda: master.tail().count("follows from") == 2, "its second link")
                assert "has left" not in master.tail()
                assert send(master.broker_addr, b"one slave, two links") == ALONE
                with slave_up(tmp_path / "two", names.namesrv_addr,
                              {**settings, "broker.id": 2}):
                    wait_until(lambda: send(master.broker_addr, b"two slaves") == [0],
                               "both have it")
