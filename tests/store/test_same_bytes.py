"""What a stock broker stored, stored by us from the same inputs: equal but for clock and hosts."""
from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from mqcore.wire import command as wire
from mqcore.wire.codes import RequestCode
from tests.store import golden
from tests.store.harness import ENTRY, Run, log_records
from tests.support.mqcore_process import mqcore_up
from tests.workers.load import Asker, send_request

CLOCK_AND_HOSTS = ((48, 72),)            # born host, store time, store host; the born time is sent
INDEX_HEADER, INDEX_ENTRY = struct.Struct(">qqqqii"), struct.Struct(">iqii")
TURN_MS = 1000
SENDS_AT_ONCE = 50


def read(name: str, folder: Path) -> tuple[dict[str, Any], Run]:
    """The stock store with its manifest."""
    manifest = golden.manifest(name)
    sizes = manifest["settings"]
    return manifest, Run(golden.unpack(name, folder), sizes["mappedFileSizeCommitLog"],
                         sizes["mappedFileSizeConsumeQueue"] // ENTRY.size,
                         sizes["maxHashSlotNum"], sizes["maxIndexNum"])


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run, int]:
    """The stock store, ours from its messages in their order, and where both logs end."""
    manifest, theirs = read("basic", tmp_path_factory.mktemp("stock"))
    end = manifest["afterRecovery"]["maxPhyOffset"]
    ours = Run(tmp_path_factory.mktemp("ours") / "store", theirs.segment_size,
               theirs.file_entries, theirs.index_slots, theirs.index_entries)
    loop, probe = ours.writer("async", 0), ours.probe()
    sent = 0
    for record in log_records(theirs.log_folder, theirs.segment_size, end):
        if record.get("blank"):
            continue
        assert probe.send(record["topic"], record["queueId"], [record["body"]], opaque=sent,
                          properties=record["properties"], sys_flag=record["sysFlag"],
                          flag=record["flag"], born_ms=record["bornTimestamp"])
        sent += 1
        if sent % SENDS_AT_ONCE == 0:
            loop.run(TURN_MS)
            assert all(status == 0 for _, status, *_ in probe.take())
    loop.run(TURN_MS)
    loop.finish()
    assert sent == len(manifest["messages"])
    assert ours.segment.log_state()["published"] == end
    ours.dispatch_all(end)
    return theirs, ours, end


def masked_log(run: Run, end: int) -> dict[str, bytes]:
    files = {path.name: bytearray(path.read_bytes()) for path in run.log_folder.iterdir()}
    for record in log_records(run.log_folder, run.segment_size, end):
        position = record["physicalOffset"]
        data = files[f"{position // run.segment_size * run.segment_size:020d}"]
        at = position % run.segment_size
        for low, high in CLOCK_AND_HOSTS if not record.get("blank") else ():
            data[at + low:at + high] = bytes(high - low)
    return {name: bytes(data) for name, data in files.items()}


def test_the_commit_log_is_the_same_but_for_clock_and_hosts(stores: tuple[Run, Run, int]) -> None:
    theirs, ours, end = stores
    wanted, found = masked_log(theirs, end), masked_log(ours, end)
    assert sorted(found) == sorted(wanted)
    for name, data in wanted.items():
        differing = next((at for at in range(len(data)) if found[name][at] != data[at]), None)
        assert differing is None, f"{name} differs from byte {differing} on"


def test_the_consume_queues_are_the_same(stores: tuple[Run, Run, int]) -> None:
    theirs, ours, _ = stores
    wanted = {str(path.relative_to(theirs.queue_folder)): path.read_bytes()
              for path in theirs.queue_folder.rglob("*") if path.is_file()}
    found = {str(path.relative_to(ours.queue_folder)): path.read_bytes()
             for path in ours.queue_folder.rglob("*") if path.is_file()}
    assert sorted(found) == sorted(wanted)
    assert {name for name in wanted if found[name] != wanted[name]} == set()


def index_content(path: Path, slots: int) -> tuple[Any, ...]:
    """Positions and counts of the header, slots, entries without their times."""
    raw = path.read_bytes()
    _, _, begin, end, used, next_entry = INDEX_HEADER.unpack_from(raw)
    table = raw[INDEX_HEADER.size:INDEX_HEADER.size + 4 * slots]
    entries = [INDEX_ENTRY.unpack_from(raw, INDEX_HEADER.size + 4 * slots + number * 20)
               for number in range(next_entry)]
    return (len(raw), begin, end, used, next_entry, table,
            [(key, position, previous) for key, position, _, previous in entries])


def test_the_index_has_the_same_slots_chains_and_positions(stores: tuple[Run, Run, int]) -> None:
    theirs, ours, _ = stores
    wanted, found = ([index_content(path, run.index_slots)
                      for path in sorted(run.index_folder.iterdir())] for run in (theirs, ours))
    assert len(found) == len(wanted) == 3
    assert found == wanted


def keys_of(table: dict[str, Any]) -> set[str]:
    """The names of the fields that the entries of a config table have."""
    return {key for entry in table.values() for key in entry}


def test_the_settings_files_have_the_stock_brokers_fields(tmp_path: Path) -> None:
    with mqcore_up(tmp_path) as broker, Asker(broker.broker_addr) as asker:
        made = asker.ask(wire.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {},
                                      b'{"groupName":"made"}'))
        assert (made.code, asker.ask(send_request("new", (0, 0), 1)).code) == (0, 0)
        folder = broker.store / "config"
    wanted = golden.manifest("basic")["config"]
    for name, table in (("topics", "topicConfigTable"),
                        ("subscriptionGroup", "subscriptionGroupTable")):
        found = json.loads((folder / f"{name}.json").read_text())
        assert set(found) == set(wanted[name]), name
        assert set(found["dataVersion"]) == set(wanted[name]["dataVersion"]), name
        assert keys_of(found[table]) == keys_of(wanted[name][table]), name
