"""The settings of a running broker are shown, and those that can change do (broker.md 10.5)."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mqcore.broker import stock_conf
from mqcore.broker.changed_settings import LIVE
from mqcore.broker.config_requests import shown
from mqcore.broker.settings import SECTIONS, load
from mqcore.wire import fastjson
from tests.broker.fakes import NOW_MS, Bench, settings_in


def change(bench: Bench, text: str) -> Any:
    return bench.ask(25, None, text.encode())


def lines(bench: Bench) -> dict[str, str]:
    return dict(line.split("=", 1) for line in bench.ask(26).body.decode().splitlines())


def test_settings_are_shown_under_their_stock_names_and_values(bench: Bench) -> None:
    found = lines(bench)

    assert (found["brokerName"], found["listenPort"], found["brokerPermission"]) == (
        "broker-a", "40911", "6")
    assert (found["deleteWhen"], found["mappedFileSizeConsumeQueue"]) == ("04", "6000000")
    assert (found["flushDiskType"], found["transientStorePoolEnable"]) == ("ASYNC_FLUSH", "false")
    assert (found["brokerRole"], found["aclEnable"]) == ("ASYNC_MASTER", "false")
    assert found["serverChannelMaxIdleTimeSeconds"] == "120"
    assert found["processes.serving_count"] == "0"


def test_what_is_shown_makes_the_same_settings_again(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, "store.flush=transient-pool", "broker.trace_on=false",
                           "store.delete_when_hours=3,17", "broker.namesrv_addrs=a:1,b:2")
    stock = {key: text for key, text in shown(settings).items() if "." not in key}
    own = [f"{key}={text}" for key, text in shown(settings).items() if "." in key]
    file = tmp_path / "broker.conf"
    file.write_text("".join(f"{key}={text}\n" for key, text in stock.items()))

    again = load(file, {}, own)
    assert {name: getattr(again, name) for name in SECTIONS} == {
        name: getattr(settings, name) for name in SECTIONS}
    assert again.stock.unknown == ()


def test_the_version_of_the_settings_counts_changes(bench: Bench) -> None:
    first = fastjson.loads(bench.ask(26).ext["version"])
    assert first == {"counter": 0, "timestamp": NOW_MS}
    bench.now_ms += 5
    assert change(bench, "autoCreateTopicEnable=false\n").code == 0
    assert fastjson.loads(bench.ask(26).ext["version"]) == {
        "counter": 1, "timestamp": NOW_MS + 5}
    assert change(bench, "").code == 0
    assert fastjson.loads(bench.ask(26).ext["version"])["counter"] == 1


def test_switches_take_effect_at_once(bench: Bench) -> None:
    core = bench.broker.core
    assert change(bench, "autoCreateTopicEnable=false\nautoCreateSubscriptionGroup=false\n"
                         "broker.queue_lock_expiry_ms=7000\n").code == 0

    assert core.topics.create_from_template("T", "TBW102", 4, False, NOW_MS) is None
    assert core.groups.find_or_create("G", NOW_MS) is None
    assert core.locks.expiry_ms == 7000
    assert lines(bench)["autoCreateTopicEnable"] == "false"


def test_a_new_permission_reaches_serving_processes_and_name_servers(bench: Bench) -> None:
    before = bench.broker.core.topics.version.counter
    assert change(bench, "brokerPermission=4").code == 0

    assert bench.tables.permission == (True, False)
    assert bench.broker.core.topics.version.counter == before + 1
    registration, _ = bench.registrar.registered[-1]
    table = fastjson.loads(registration.body)["topicConfigSerializeWrapper"]["topicConfigTable"]
    assert {topic["perm"] for topic in table.values()} == {4}


@pytest.mark.parametrize(("text", "code", "reason"), [
    ("brokerConfigPath=/x", 16, "brokerConfigPath cannot be changed"),
    ("deleteWhen=05", 1, "set store.delete_when_hours in the settings file and restart"),
    ("store.flush=sync", 1, "store.flush is read at a start only"),
    ("flushDiskType=SYNC_FLUSH", 1, "flushDiskType is read at a start only"),
    ("sendMessageThreadPoolNums=4", 1, "has no effect on this broker"),
    ("nonsense=1", 1, "nonsense is not a setting of this broker"),
    ("brokerPermission=5", 1, "2 (write), 4 (read) or 6 (both)"),
    ("autoCreateTopicEnable=perhaps", 1, "autoCreateTopicEnable"),
])
def test_what_cannot_be_changed_is_refused_by_name_and_nothing_changes(
    bench: Bench, text: str, code: int, reason: str
) -> None:
    before = lines(bench)
    answer = change(bench, f"notifyConsumerIdsChangedEnable=false\n{text}")

    assert (answer.code, reason in answer.remark) == (code, True), answer.remark
    assert lines(bench) == before


def test_the_live_settings_are_settings() -> None:
    known = {f"{section}.{key}" for section, kind in SECTIONS.items()
             for key in kind.__struct_fields__}

    assert known >= LIVE
    assert not LIVE & {target for target, _ in stock_conf.CONVERTED.values()}
