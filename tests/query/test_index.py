"""The key index answers what a stock broker's answers (store.md 4.4)."""
from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import pytest

from mqcore.store.index.query import IndexReader
from tests.store.golden import manifest, unpack
from tests.store.harness import Run

EVER = (1 << 63) - 1
HEADER = struct.Struct(">qqqqii")
INDEXED = ["basic", "crashed", "delay_retry_dlq", "filter_ext", "ipv6", "lmq", "transactions"]


def reader_of(root: Path, settings: dict[str, Any]) -> IndexReader:
    return IndexReader(str(root / "index"), int(settings["maxHashSlotNum"]),
                       int(settings["maxIndexNum"]))


@pytest.mark.parametrize("name", INDEXED)
def test_keys_are_found_where_a_stock_broker_finds_them(name: str, tmp_path: Path) -> None:
    golden = manifest(name)
    reader = reader_of(unpack(name, tmp_path), golden["settings"])
    assert golden["indexQueries"]

    for query in golden["indexQueries"]:
        found = reader.find(query["topic"], query["key"], 1024, 0, EVER)
        assert sorted(found.positions) == sorted(set(query["offsets"])), query
        assert list(found.positions) == sorted(found.positions, reverse=True)


def test_every_key_of_every_message_is_found(tmp_path: Path) -> None:
    golden = manifest("basic")
    reader = reader_of(unpack("basic", tmp_path), golden["settings"])
    looked_up = 0

    for message in golden["messages"]:
        properties = message["properties"]
        for key in [*properties.get("KEYS", "").split(" "), properties.get("UNIQ_KEY", "")]:
            if key:
                looked_up += 1
                found = reader.find(message["topic"], key, 1024, 0, EVER)
                assert message["physicalOffset"] in found.positions
    assert looked_up >= golden["indexKeysChecked"]


def test_a_limit_keeps_the_newest_and_the_time_of_the_last_is_known(tmp_path: Path) -> None:
    golden = manifest("basic")
    reader = reader_of(unpack("basic", tmp_path), golden["settings"])
    query = max(golden["indexQueries"], key=lambda query: len(query["offsets"]))
    newest_first = sorted(query["offsets"], reverse=True)
    times = {m["physicalOffset"]: m["storeTimestamp"] for m in golden["messages"]}

    for count in range(1, len(newest_first) + 1):
        found = reader.find(query["topic"], query["key"], count, 0, EVER)
        assert list(found.positions) == newest_first[:count]
        assert abs(found.oldest_ms - times[newest_first[count - 1]]) < 3000


def test_a_time_range_leaves_out_what_lies_outside(tmp_path: Path) -> None:
    golden = manifest("basic")
    reader = reader_of(unpack("basic", tmp_path), golden["settings"])
    times = {m["physicalOffset"]: m["storeTimestamp"] for m in golden["messages"]}
    newest = max(times.values())

    for query in golden["indexQueries"]:
        wanted = [times[position] for position in query["offsets"]]
        if not wanted:                            # a key that nobody has
            continue
        middle = sorted(wanted)[len(wanted) // 2]
        found = reader.find(query["topic"], query["key"], 1024, middle - 3000, middle + 3000)
        inside = {position for position in query["offsets"] if abs(times[position] - middle) == 0}
        assert inside <= set(found.positions) <= set(query["offsets"])
        later = reader.find(query["topic"], query["key"], 1024, newest + 10_000, EVER)
        earlier = reader.find(query["topic"], query["key"], 1024, 0, min(times.values()) - 10_000)
        assert (later.positions, earlier.positions) == ((), ())


def test_the_newest_entry_of_all_is_named_with_what_was_found(tmp_path: Path) -> None:
    golden = manifest("basic")
    root = unpack("basic", tmp_path)
    reader = reader_of(root, golden["settings"])
    newest = max(os.listdir(root / "index"))
    _, end_ms, _, end_position, _, _ = HEADER.unpack(
        (root / "index" / newest).read_bytes()[:HEADER.size])
    query = golden["indexQueries"][0]

    found = reader.find(query["topic"], query["key"], 1, 0, EVER)
    assert (found.last_time_ms, found.last_position) == (end_ms, end_position)


def test_what_the_dispatcher_has_written_is_found_at_once(tmp_path: Path) -> None:
    run = Run(tmp_path / "store", index_slots=7, index_entries=50)     # long chains, several files
    loop, probe = run.writer("async", 0), run.probe()
    dispatcher = run.dispatcher()
    reader = IndexReader(str(run.index_folder), 7, 50)
    positions: dict[str, list[int]] = {}
    for number in range(200):
        key = f"key-{number % 9}"
        assert probe.send("topic", 0, [b"x"], opaque=number, properties=b"KEYS\x01" + key.encode())
        loop.run(1000)
        assert dispatcher.run(1000) == 0
        (_, _, _, position, _), = probe.take()
        positions.setdefault(key, []).insert(0, position)
        assert list(reader.find("topic", key, 1024, 0, EVER).positions) == positions[key]
    assert len(reader.files()) == 5


def test_a_long_chain_is_walked_in_steps(tmp_path: Path) -> None:
    run = Run(tmp_path / "store", index_slots=1, index_entries=1_000)
    loop, probe = run.writer("async", 0), run.probe()
    for number in range(600):
        assert probe.send("topic", 0, [b"x"], opaque=number, properties=b"KEYS\x01mine")
    loop.run(1000)
    assert run.dispatcher().run(1000) == 0
    look_up = IndexReader(str(run.index_folder), 1, 1_000).look_up("topic", "other", 8, 0, EVER)
    assert [look_up.step() for _ in range(4)] == [False, False, True, True]     # of 256 entries
    assert look_up.matches().positions == ()


def test_a_store_without_index_finds_nothing(tmp_path: Path) -> None:
    found = IndexReader(str(tmp_path / "missing"), 7, 50).find("topic", "key", 10, 0, EVER)

    assert (found.positions, found.last_time_ms, found.last_position) == ((), 0, 0)


@pytest.mark.parametrize("damage", ["entries", "slots", "short"])
def test_a_damaged_file_ends_a_search_and_nothing_else(tmp_path: Path, damage: str) -> None:
    golden = manifest("basic")
    root = unpack("basic", tmp_path)
    settings = golden["settings"]
    slots, entries = int(settings["maxHashSlotNum"]), int(settings["maxIndexNum"])
    for name in os.listdir(root / "index"):
        path = root / "index" / name
        raw = bytearray(path.read_bytes())
        if damage == "entries":            # chains that lead to themselves and further on
            for number in range(entries):
                at = 40 + 4 * slots + 20 * number
                raw[at + 16:at + 20] = (number if number % 2 else number + 1).to_bytes(4, "big")
        elif damage == "slots":
            raw[40:40 + 4 * slots] = b"\x7f\xff\xff\xff" * slots
        else:
            del raw[100:]
        path.write_bytes(raw)

    for query in golden["indexQueries"]:
        found = reader_of(root, settings).find(query["topic"], query["key"], 1024, 0, EVER)
        assert set(found.positions) <= set(query["offsets"])
