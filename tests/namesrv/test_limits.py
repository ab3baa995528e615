"""A name server's tables have limits that are refused at the request, and its files are read."""
from __future__ import annotations

import asyncio
import errno
import json
from pathlib import Path

import pytest

from mqcore.client import Credentials
from mqcore.client.core.signature import sign
from mqcore.namesrv import kv
from mqcore.namesrv.handlers import Handlers
from mqcore.namesrv.kv import KeyValueError, KeyValues
from mqcore.namesrv.routes import BrokerIdentity, RouteTables, TableFull
from mqcore.namesrv.runtime import RuntimeConfig
from mqcore.namesrv.settings import NamesrvAclSettings, NamesrvSettings
from mqcore.turns import finished
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import request
from mqcore.wire.topics import (
    DataVersion,
    TopicConfig,
    TopicTable,
    decode_registration,
    encode_registration,
)
from tests.namesrv.harness import Clock, Peer, name_server, registration, settings_in
from tests.namesrv.test_access import ADMIN, RULES


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
def test_a_registration_is_read_up_to_the_limit_of_topics(compressed: bool) -> None:
    names = [f"T{number:02}" for number in range(11)]
    body = encode_registration(topics(*names), compressed=compressed)

    for limit, left_out in ((10, 1), (11, 0), (3, 8)):
        table = decode_registration(body, compressed=compressed, topic_count_max=limit)
        assert (list(table.topics), table.left_out) == (names[:limit], left_out)


@pytest.mark.parametrize("compressed", [True, False])
def test_a_broker_with_too_many_topics_is_known_with_those_that_have_a_place(
    compressed: bool, tmp_path: Path,
) -> None:
    tables = RouteTables(topic_count_max=10)
    served = Handlers(tables, KeyValues(tmp_path / "kv.json"),
                      RuntimeConfig(settings_in(tmp_path)))
    names = [f"T{number:02}" for number in range(13)]

    for _ in range(2):
        answer = served.handle(registration(names, compressed=compressed), 1, 0)
        assert answer.code == 1
        assert "3 of 13 topics of broker-a are left out: more than 10 topics (setting " in (
            answer.remark or "")
    assert tables.topic_names() == names[:10]
    assert list(tables.cluster_info()["brokerAddrTable"]) == ["broker-a"]


def test_one_network_leaves_room_for_the_key_values_of_others(tmp_path: Path) -> None:
    table = KeyValues(tmp_path / "kv.json", entry_count_max=16)
    table.put("N", "own", "v")                       # no share is asked for here

    def fill(network: str) -> None:
        for number in range(17):
            table.put("N", f"{network}-{number}", "v", network)

    def taken(network: str) -> int:
        """How many keys it adds before it is refused."""
        before = len(table.namespace("N") or ())
        with pytest.raises(KeyValueError, match="half of the room that others leave"):
            fill(network)
        return len(table.namespace("N") or ()) - before

    assert [taken("a"), taken("b"), taken("a"), taken("c")] == [7, 4, 0, 2]
    table.put("N", "a-0", "w", "b")                  # of the same length: it takes no room
    assert [taken("a"), taken("b")] == [0, 0]
    table.delete("N", "a-1")
    assert taken("a") == 0, "the room that others leave has become less"
    table.delete("N", "a-2")
    table.delete("N", "a-3")
    table.delete("N", "a-4")
    assert taken("a") == 1
    assert KeyValues(tmp_path / "kv.json", entry_count_max=16).get("N", "own") == "v"


def test_bytes_that_a_network_adds_to_keys_of_others_are_its_own(tmp_path: Path) -> None:
    table = KeyValues(tmp_path / "kv.json", bytes_max=4_000)
    table.put("N", "found", "v" * 100)
    table.put("N", "theirs", "v" * 500, "a")

    table.put("N", "found", "v" * 1_000, "b")
    with pytest.raises(KeyValueError, match="bytes: expected at most"):
        table.put("N", "theirs", "v" * 1_000, "b")
    assert len(table.get("N", "theirs") or "") == 500
    table.put("N", "theirs", "v" * 2_000)            # an administrator may have all


def test_the_room_of_a_peer_s_network_is_asked_for_without_accounts_only(tmp_path: Path) -> None:
    async def taken(port: int, account: Credentials | None) -> int:
        peer, count = await Peer.connect(port), 0
        while count < 20:
            asked = request(Code.PUT_KV_CONFIG,
                            {"namespace": "n", "key": f"k{count}", "value": "v"})
            if account is not None:
                sign(asked, account)
            if (await peer.ask(asked)).code:
                break
            count += 1
        await peer.close()
        return count

    async def both() -> tuple[int, int]:
        async with name_server(settings_in(tmp_path, kv_entry_count_max=10), Clock()) as port:
            without = await taken(port, None)
        (tmp_path / "kvConfig.json").unlink()
        (tmp_path / "plain_acl.yml").write_text(RULES)
        asking = NamesrvAclSettings(enable=True, folder=str(tmp_path))
        async with name_server(
                settings_in(tmp_path, kv_entry_count_max=10, acl=asking), Clock()) as port:
            return without, await taken(port, ADMIN)

    assert asyncio.run(both()) == (5, 10)
