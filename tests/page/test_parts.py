"""Parts of the page by themselves: words, files, history, tables, decoders, the waterfall."""
from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import json
import subprocess
import sys
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import lz4.frame
import msgpack
import pytest
import zstandard
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st

import mqcore.page
from mqcore.admin.shell.view import Column, Table
from mqcore.page import decoders, words
from mqcore.page.decoders import Schema, decode
from mqcore.page.decoding import decoded, schemas_of
from mqcore.page.history import SERIES_MAX, History, Ring
from mqcore.page.listing import listed
from mqcore.page.pages.groups import compared
from mqcore.page.pages.store import heat_map
from mqcore.page.pages.traces import waterfall
from mqcore.page.words_zh import CHINESE
from tests.page.words_used import texts

HERE = Path(mqcore.page.__file__).parent
# Of the files in the packages htmx.org 4.0.1 and uplot 1.6.32.
VENDORED = {
    "htmx-4.0.1.js": "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130",
    "hx-sse-4.0.1.js": "18ef2761356ec1fe0bb6d92612315b37517a7c1e9856b661c5ae81fef239d103",
    "uplot-1.6.32.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uplot-1.6.32.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
}


def test_chinese_lacks_no_word() -> None:
    assert sorted(text for text in texts() if text.lower() not in CHINESE) == []


def test_languages_come_from_choice_and_browser() -> None:
    assert words.chosen("zh", "en") == "zh"
    assert words.chosen("", "fr, zh-TW;q=0.8, en;q=0.1") == "zh"
    assert words.chosen("xx", "fr") == "en"
    assert words.chosen("", "," * 10_000) == "en"


def test_other_peoples_files_are_unchanged() -> None:
    folder = HERE / "static" / "vendor"
    found = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}
    assert found == VENDORED
    notice = (HERE.parents[1] / "NOTICE").read_text()
    assert "htmx 4.0.1" in notice
    assert "uPlot 1.6.32" in notice


# -- history --------------------------------------------------------------------------------------

def test_a_ring_keeps_the_last_values_and_shows_gaps() -> None:
    ring = Ring(5, 1)
    for at, value in ((100.2, 1.0), (101.0, 2.0), (103.9, 4.0)):
        ring.put(at, value)
    assert ring.points(104.0, 5) == [(100, 1.0), (101, 2.0), (102, None), (103, 4.0), (104, None)]
    ring.put(200.0, 9.0)
    assert ring.points(200.0, 5) == [(196, None), (197, None), (198, None), (199, None), (200, 9.0)]


def test_a_clock_that_is_put_back_leaves_no_future() -> None:
    ring = Ring(5, 1)
    ring.put(1_000.0, 1.0)
    ring.put(990.0, 2.0)
    assert ring.points(990.0, 3) == [(988, None), (989, None), (990, 2.0)]
    assert ring.points(1_000.0, 1) == [(1_000, None)]


def test_a_minute_is_the_mean_of_its_seconds() -> None:
    history = History()
    for second in range(60):
        history.put(6_000.0 + second, {"in": float(second)})
    found = history.chart(["in", "absent"], 6_059.0, 86_400)
    assert found["values"]["in"][-1] == 29.5
    assert set(found["values"]["absent"]) == {None}
    assert len(found["times"]) == 1_440 - 1_440 + len(found["values"]["in"])


def test_a_history_is_bounded_and_makes_room() -> None:
    history = History()
    history.put(1_000.0, {f"lag {number}": 1.0 for number in range(SERIES_MAX + 50)})
    assert len(history) == 400
    history.put(2_000.0, {"new": 1.0})
    assert len(history) == 400
    assert history.chart(["new"], 2_000.0, 900)["values"]["new"][-1] == 1.0


# -- tables ---------------------------------------------------------------------------------------

COLUMNS = (Column("NAME", "name"), Column("LAG", "lag", right=True))
ROWS = [{"name": f"group-{number:05}", "lag": None if number % 10 == 0 else number}
        for number in range(10_000)]


def test_a_table_is_shown_a_hundred_rows_at_a_time() -> None:
    first = listed(Table(COLUMNS, ROWS))
    assert (len(first.rows), first.count, first.pages, first.first) == (100, 10_000, 100, 1)
    last = listed(Table(COLUMNS, ROWS), page=1_000)
    assert (last.page, last.rows[-1]["name"]) == (100, "group-09999")
    assert listed(Table(COLUMNS, [])).pages == 1


def test_unknown_numbers_are_last_in_either_order() -> None:
    up = listed(Table(COLUMNS, ROWS), sort="lag")
    down = listed(Table(COLUMNS, ROWS), sort="-lag")
    assert [up.rows[0]["lag"], down.rows[0]["lag"]] == [1, 9_999]
    assert listed(Table(COLUMNS, ROWS), sort="-lag", page=100).rows[-1]["lag"] is None
    assert listed(Table(COLUMNS, ROWS), sort="no-such-column").rows[0]["name"] == "group-00000"


def test_a_filter_takes_any_case_and_any_signs() -> None:
    assert listed(Table(COLUMNS, ROWS), text="GROUP-0999").count == 10
    assert listed(Table(COLUMNS, ROWS), text="[.*").count == 0


# -- groups, traces, latencies --------------------------------------------------------------------

def members(*subscriptions: list[str]) -> list[dict[str, object]]:
    return [{"clientId": f"c{number}", "subscriptions": one}
            for number, one in enumerate(subscriptions)]


def test_subscriptions_that_differ_are_compared() -> None:
    assert compared(members(["orders *"], ["orders *"])) == []
    assert compared(members(["orders *", "bills *"], ["orders paid || sent", "bills *"])) == [
        {"topic": "orders", "expression": "*", "members": ["c0"]},
        {"topic": "orders", "expression": "paid || sent", "members": ["c1"]}]
    assert compared(members(["orders *"], [])) == [
        {"topic": "orders", "expression": "*", "members": ["c0"]},
        {"topic": "orders", "expression": None, "members": ["c1"]}]


def test_a_trace_stands_on_one_line_of_time() -> None:
    def at(seconds: float) -> str:
        return f"2026-01-31T12:00:{seconds:06.3f}Z"

    found = waterfall({
        "sends": [{"group": "p", "topic": "t", "at": at(1), "seconds": 1.0, "success": True}],
        "consumes": [{"group": "g", "retries": 0, "at": at(2), "seconds": 2.0, "success": False},
                     {"group": "g", "retries": 1, "at": None, "seconds": 0.0, "success": None}]})
    send, consume = found["bars"]
    assert (found["span"], consume["failed"], send["failed"]) == (3.0, True, False)
    assert consume["x"] - send["x"] == pytest.approx(send["width"], abs=0.2)
    assert consume["width"] == pytest.approx(2 * send["width"], abs=0.2)
    assert waterfall({"sends": [], "consumes": []})["bars"] == []


def test_latencies_are_shaded_by_the_logarithm() -> None:
    found = heat_map([{"name": "send", "buckets": [
        {"fromSeconds": 1e-6, "count": 1_000_000}, {"fromSeconds": 4e-6, "count": 1},
        {"fromSeconds": 5e-6, "count": 0}]}])
    assert list(found["rows"][0]["cells"]) == [(1_000_000, 5), (0, 0), (1, 1)]
    assert found["heads"] == [1e-6, 2e-6, 4e-6]
    assert heat_map([])["heads"] == []


# -- decoders -------------------------------------------------------------------------------------

def avro(schema: object, records: list[object], **options: Any) -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, schema, records, sync_marker=bytes(16), **options)
    return file.getvalue()


ORDER = {"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"}, {"name": "note", "type": "bytes"}]}
# An array of 2**60 nulls, which take no bytes.
ENDLESS = avro({"type": "array", "items": "null"}, [[]]).replace(
    b"\x02\x02\x00" + bytes(16), b"\x02\x14" + b"\x80" * 8 + b"\x20\x00" + bytes(16))


def bodies() -> Iterator[tuple[bytes, str, str]]:
    """Body, decoder, and a part of its text."""
    yield b"", "empty", ""
    yield b'{"id": 9007199254740993, "price": 1.10}', "json", '"id": 9007199254740993'
    yield b'{"id": 9007199254740993, "price": 1.10}', "json", '"price": 1.10'
    yield b"[" + b"9" * 60 + b"]", "json", "9" * 60
    yield "Grüße, 北京".encode(), "text", "北京"
    yield gzip.compress(b'{"a": 1}', mtime=0), "gzip, json", '"a": 1'
    yield zlib.compress(zlib.compress(b"within")), "zlib, zlib, text", "within"
    yield b"\x28\xb5\x2f\xfd" + b"\xff" * 9, "hex", "28 b5 2f fd"
    yield zstandard.compress(b'{"a": 1}'), "zstd, json", '"a": 1'
    yield lz4.frame.compress(zstandard.compress(b"within")), "lz4, zstd, text", "within"
    yield avro(ORDER, [{"id": 1 << 60, "note": b"\xff"}]), "avro", '"id": 1152921504606846976'
    yield avro(ORDER, [{"id": 7, "note": b""}], codec="deflate"), "avro", '"id": 7'
    yield msgpack.packb({"a": [1, b"\xff"]}), "msgpack", '"a"'
    yield b"\xac\xed\x00\x05sr", "java", "ac ed 00 05"
    yield b"Obj\x01\x04", "avro", "4f 62 6a 01"
    yield b"\x08\x96\x01\x12\x03abc", "protobuf", '2: "abc"'
    yield b"\x12\x05\x08\x96\x01\x10\x01", "protobuf", "2: {\n  1: 150 (varint)\n  2: 1 (varint)"
    yield b"\xff\xfe\xfd", "hex", "ff fe fd"


@pytest.mark.parametrize(("body", "name", "part"), list(bodies()))
def test_a_body_is_decoded_by_the_first_that_fits(body: bytes, name: str, part: str) -> None:
    found = decode(body)
    assert found.name == name
    assert part in found.text


@pytest.mark.parametrize("wanted", decoders.DECODERS)
def test_a_chosen_decoder_that_does_not_fit_says_why(wanted: str) -> None:
    found = decode(b"\xff\xfe\xfd", wanted)
    assert found.name == "hex"
    assert found.note.startswith(f"not {wanted}: ") == (wanted != "hex")


@pytest.mark.parametrize("body", [
    b"[" * 100_000, b'{"a":' * 50_000, b"\x81" * 100_000, b"\xdf\xff\xff\xff\xff",
    zlib.compress(bytes(50 << 20)), zstandard.compress(bytes(50 << 20)),
    lz4.frame.compress(bytes(50 << 20)), b"\x0b" * 100_000,
    b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x12\x02" * 400_000, b"[" + b"9" * 900_000 + b"]", b"\xc9\xff\xff\xff\xff",
    b"\x1f\x8b" + bytes(100), b"x" * (5 << 20),
], ids=lambda body: f"{body[:2].hex()}-{len(body)}")
def test_a_body_that_is_made_to_cost_much_costs_little(body: bytes) -> None:
    found = decode(body)
    assert len(found.text) <= 256 << 10


@given(st.binary(max_size=200), st.sampled_from(["", *decoders.DECODERS]))
def test_any_bytes_are_shown(body: bytes, wanted: str) -> None:
    found = decode(body, wanted)
    assert found.name
    json.dumps(found.text)


# -- in a process of its own ----------------------------------------------------------------------

def test_a_body_is_decoded_in_a_process_of_its_own() -> None:
    async def run() -> None:
        assert await decoded(b'{"a": 1}') == decode(b'{"a": 1}')
        large = await decoded(b"x" * (3 << 20))
        assert (large.name, "only the first 1,048,576 bytes" in large.note) == ("text", True)
        assert (await decoded(b"\xff\xfe", "json")).note.startswith("not json: ")
        endless = await decoded(ENDLESS)
        assert endless.text.startswith("00000000  ")
        assert "0.5 s of processor time" in endless.note or "MemoryError" in endless.note

    asyncio.run(run())
    assert "fastavro" not in subprocess.run(
        [sys.executable, "-c", "import sys, mqcore.page.app, mqcore.page.pages.messages\n"
                               "print(*sys.modules)"],
        capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize("module", ["zstandard", "lz4.frame", "fastavro"])
def test_without_a_library_the_body_is_named(
        monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    bodies = {"zstandard": zstandard.compress(b"a"), "lz4.frame": lz4.frame.compress(b"a"),
              "fastavro": avro(ORDER, [])}
    monkeypatch.setitem(sys.modules, module, None)
    found = decode(bodies[module])
    assert found.text.startswith("00000000  ")
    assert "is not installed: pip install mqcore[decoders]" in found.note


@pytest.fixture
def schema(tmp_path: Path) -> Schema:
    """Of orders: what protoc writes for `message Order { int64 id = 1; string note = 2; }`."""
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="shop.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate((("id", 3), ("note", 9)), 1):
        order.field.add(name=name, number=number, type=kind, label=1)
    (tmp_path / "shop.desc").write_bytes(files.SerializeToString())
    return Schema(str(tmp_path / "shop.desc"), "shop.Order")


def test_protobuf_is_read_by_a_file_of_descriptors(schema: Schema) -> None:
    body = b"\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x12\x03abc"
    found = decode(body, "", schema)
    assert (found.name, found.note) == ("protobuf", "shop.Order")
    assert '"id": "72057594037927935"' in found.text
    assert '"note": "abc"' in found.text
    assert decode(gzip.compress(body), "", schema).name == "gzip, protobuf"
    assert decode(b'{"a": 1}', "", schema).name == "json"
    assert "not protobuf: shop.Order of" in decode(b"\xff", "protobuf", schema).note
    for wrong in (replace(schema, name="shop.None"), replace(schema, file="/no/such/file")):
        assert "not protobuf: shop." in decode(body, "protobuf", wrong).note
    assert schemas_of([f"a=b:c={schema.file}:shop.Order"])["a"].name == "shop.Order"
