"""A name server's tables have limits that are refused at the request, and its files are read."""
from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from mqcore.namesrv import kv
from mqcore.namesrv.kv import KeyValueError, KeyValues
from mqcore.namesrv.routes import BrokerIdentity, RouteTables, TableFull
from mqcore.namesrv.runtime import RuntimeConfig
from mqcore.namesrv.settings import NamesrvSettings
from mqcore.turns import finished
from mqcore.wire.topics import (
    BodyError,
    DataVersion,
    TopicConfig,
    TopicTable,
    decode_registration,
    encode_registration,
)


def topics(*names: str, counter: int = 1) -> TopicTable:
    return TopicTable(DataVersion(counter, 1), {name: TopicConfig(name) for name in names})


@pytest.mark.parametrize(("arguments", "expected"), [
    (("N", "k", "v" * 101), "101 bytes: expected at most 100 .setting namesrv.kv_value_bytes_max"),
    (("N", "k" * 1025, "v"), "the key has more than 1024 bytes"),
    (("n" * 1025, "k", "v"), "the namespace has more than 1024 bytes"),
    (("N", "\x01" * 1024, "v"), "expected at most 4096 with this value .setting namesrv.kv_bytes"),
])
def test_a_value_that_does_not_fit_is_refused_and_the_setting_named(
    tmp_path: Path, arguments: tuple[str, str, str], expected: str
) -> None:
    table = KeyValues(tmp_path / "kv.json", value_bytes_max=100, bytes_max=4096)

    with pytest.raises(KeyValueError, match=expected):
        table.put(*arguments)
    assert not (tmp_path / "kv.json").exists()


def test_a_full_table_is_read_back_and_still_takes_what_is_smaller(tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    table = KeyValues(path, bytes_max=65_536)
    taken = 0

    def fill() -> None:
        nonlocal taken
        while True:
            table.put(f"N{taken % 7}", f"\x01{taken}", "v\n" * 40)
            taken += 1

    with pytest.raises(KeyValueError, match="kv_bytes_max"):
        fill()
    assert path.stat().st_size <= 65_536 + 64
    table.put("N0", "\x010", "")

    again = KeyValues(path, bytes_max=65_536)
    assert sum(len(again.namespace(f"N{number}") or ()) for number in range(7)) == taken
    assert again.get("N0", "\x010") == ""


def test_a_file_beyond_the_limits_is_read_and_may_only_shrink(tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    path.write_text(json.dumps({"configTable": {"N": {"a": "x" * (17 << 20), "b": "y"}}}))
    table = KeyValues(path)

    with pytest.raises(KeyValueError, match="kv_bytes_max"):
        table.put("N", "c", "z")
    table.delete("N", "a")
    table.put("N", "c", "z")
    assert KeyValues(path).namespace("N") == {"b": "y", "c": "z"}


def test_a_refusing_disk_leaves_the_table_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = KeyValues(tmp_path / "kv.json")
    table.put("N", "a", "1")

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(kv, "write_atomically", refuse)
    for change in (lambda: table.put("N", "a", "2"), lambda: table.put("N", "b", "2"),
                   lambda: table.put("M", "b", "2"), lambda: table.delete("N", "a")):
        with pytest.raises(OSError, match="No space"):
            change()
    monkeypatch.undo()

    assert (table.namespace("N"), table.namespace("M")) == ({"a": "1"}, None)
    table.put("N", "c", "3")
    assert KeyValues(tmp_path / "kv.json").namespace("N") == {"a": "1", "c": "3"}


def test_members_that_we_do_not_know_survive_a_change(tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    path.write_text('{"configTable":{"N":{"a":"1"}},"zone":{"x":[1,2]}}')
    KeyValues(path).put("N", "b", "2")

    assert json.loads(path.read_text()) == {
        "configTable": {"N": {"a": "1", "b": "2"}}, "zone": {"x": [1, 2]}}


@pytest.mark.parametrize("content", [
    b'{"configTable":{"N":{"a":"1"', b"[1]", b'{"configTable":[]}', b'{"configTable":{"N":1}}',
    b"\xff\xfe\x00", b"[" * 5_000, b'{"x":' + b"[" * 100 + b"]" * 100 + b"}",
])
def test_a_file_that_cannot_be_used_is_named_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    settings = NamesrvSettings(runtime_config_path=str(path))
    for make in (lambda: KeyValues(path), lambda: RuntimeConfig(settings)):
        with pytest.raises(ValueError, match=r"x\.json") as raised:
            make()
        assert "\n" not in str(raised.value)


def test_a_folder_in_place_of_a_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(KeyValueError, match="Is a directory"):
        KeyValues(tmp_path)


def test_one_address_cannot_name_brokers_without_end() -> None:
    tables = RouteTables(broker_count_max=3)
    for number in range(3):
        finished(tables.register(BrokerIdentity("c", f"b{number}", "h:1", 0), "", topics(), 1, 1))

    for who in (BrokerIdentity("c", "b4", "h:1", 0), BrokerIdentity("c", "b1", "h:2", 7)):
        with pytest.raises(TableFull, match=r"namesrv\.broker_count_max"):
            finished(tables.register(who, "", topics(), 1, 1))
    finished(tables.register(BrokerIdentity("c", "b1", "h:1", 0), "", topics(counter=2), 1, 1))


def test_topics_of_all_brokers_together_are_bounded() -> None:
    tables = RouteTables(route_count_max=4)
    names = [f"T{number}" for number in range(3)]
    finished(tables.register(BrokerIdentity("c", "a", "h:1", 0), "", topics(*names), 1, 1))

    with pytest.raises(TableFull, match=r"namesrv\.route_count_max"):
        finished(tables.register(BrokerIdentity("c", "b", "h:2", 0), "", topics(*names), 1, 1))
    finished(tables.register(
        BrokerIdentity("c", "a", "h:1", 0), "", topics(*names, counter=2), 1, 1))
    finished(tables.register(BrokerIdentity("c", "b", "h:2", 0), "", topics("T0"), 1, 1))
    assert tables.route("T1") is not None


@pytest.mark.parametrize("compressed", [True, False])
def test_a_registration_of_too_many_topics_is_refused_before_they_are_made(
    compressed: bool,
) -> None:
    body = encode_registration(topics(*(f"T{number}" for number in range(11))),
                               compressed=compressed)

    with pytest.raises(BodyError):
        decode_registration(body, compressed=compressed, topic_count_max=10)
    assert len(decode_registration(body, compressed=compressed, topic_count_max=11).topics) == 11
