"""A bit that rots in a master's log stays there: its slave never has it, and the master says so."""
from __future__ import annotations

import re
from pathlib import Path

import pytest

from mqcore.store.verify.store import verify
from tests.replication.pairs import NAME, slave_up
from tests.store.harness import log_records
from tests.support.mqcore_process import MqcoreProcess, mqcore_namesrv, mqcore_up
from tests.support.waiting import wait_until
from tests.verify.stores import OWN_SETTINGS, SEGMENT_BYTES, load
from tests.workers.test_end import segment_of

MASTER: dict[str, object] = {**OWN_SETTINGS, "broker.name": NAME, "replication.listen": True}
MESSAGES = 2000


def end_of(broker: MqcoreProcess) -> int:
    return int(segment_of(broker).log_state()["published"])


def flip(store: Path, position: int) -> None:
    path = store / "commitlog" / f"{position // SEGMENT_BYTES * SEGMENT_BYTES:020d}"
    data = bytearray(path.read_bytes())
    data[position % SEGMENT_BYTES] ^= 1
    path.write_bytes(data)


@pytest.mark.slow
def test_a_rotten_property_reaches_no_slave_until_it_is_mended(tmp_path: Path) -> None:
    with mqcore_up(tmp_path / "master", MASTER) as master:
        load(master, MESSAGES)
        end = end_of(master)
    log = master.store / "commitlog"
    record = next(record for record in log_records(log, SEGMENT_BYTES, end)
                  if record["physicalOffset"] > SEGMENT_BYTES and "size" in record)
    begin, last = record["physicalOffset"], record["physicalOffset"] + record["size"] - 1
    flip(master.store, last)

    with mqcore_namesrv(tmp_path / "names") as names:
        with mqcore_up(tmp_path / "master", MASTER, namesrv_addr=names.namesrv_addr) as master:
            with slave_up(tmp_path / "slave", names.namesrv_addr, OWN_SETTINGS) as slave:
                wait_until(lambda: end_of(slave) == begin, "what is before the damage")
                wait_until(lambda: said(master), "the line")
                wait_until(lambda: master.output.read_text().count("follows from log") > 2,
                           "links that come again")
            assert said(master) == [str(begin)]
        report = verify(slave.store)
        assert (report.status, report.figures["end"]) == (0, begin)
        flip(master.store, last)
        with (mqcore_up(tmp_path / "master", MASTER, namesrv_addr=names.namesrv_addr) as master,
              slave_up(tmp_path / "slave", names.namesrv_addr, OWN_SETTINGS) as slave):
            wait_until(lambda: end_of(slave) == end_of(master), "all of it")
    assert verify(slave.store).status == 0


def said(master: MqcoreProcess) -> list[str]:
    """The positions that the master called damaged, a line each."""
    line = r"the log is damaged at position (\d+): slave .*; mqcore store verify \S+ says"
    return re.findall(line, master.output.read_text())
