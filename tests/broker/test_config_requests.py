"""The settings of a running broker are shown, and those that can change do (broker.md 10.5)."""
from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mqcore.broker.requests.config import shown, take_said
from mqcore.broker.settings import stock_conf
from mqcore.broker.settings.changed import FILE_NAME
from mqcore.broker.settings.delay_levels import TEXT_LENGTH_MAX
from mqcore.broker.settings.live import (
    AT_START,
    FILE_SIZES,
    LIVE,
    PATHS,
    ROLE,
    applied,
    lines,
    live_part,
    with_values,
)
from mqcore.broker.settings.load import load
from mqcore.broker.settings.model import SECTIONS
from mqcore.broker.settings.validation import HOURS_MAX, LABELS
from mqcore.broker.settings.values import Values
from mqcore.shm.segment import Segment
from mqcore.shm.text_board import SettingsBoard
from mqcore.turns import finished
from mqcore.wire import fastjson
from tests.broker.fakes import NOW_MS, Bench, settings_in
from tests.shm.test_segment import SMALL


def change(bench: Bench, text: str) -> Any:
    return bench.ask(25, None, text.encode())


def table(bench: Bench) -> dict[str, str]:
    return dict(line.split("=", 1) for line in bench.ask(26).body.decode().splitlines())


def test_settings_are_shown_under_their_stock_names_and_values(bench: Bench) -> None:
    found = table(bench)

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
    assert table(bench)["autoCreateTopicEnable"] == "false"


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
    ("rocketmqHome=/x", 16, "rocketmqHome cannot be changed"),
    ("storePathRootDir=/x", 16, "storePathRootDir is a path"),
    ("store.path=/x", 16, "store.path is a path"),
    ("storePathCommitLog=/x", 16, "storePathCommitLog is a path"),
    ("readOnlyCommitLogStorePaths=/x", 16, "readOnlyCommitLogStorePaths is a path"),
    ("storePathDLedgerCommitLog=/x", 16, "storePathDLedgerCommitLog is a path"),
    ("messageStorePlugIn=x.Y", 16, "messageStorePlugIn is a path"),
    ("log.file=/x", 16, "log.file is a path"),
    ("mappedFileSizeCommitLog=8192", 16, "the size of files that this store has"),
    ("maxIndexNum=100", 16, "the size of files that this store has"),
    ("processes.serving_count=2", 1, "processes.serving_count is read at a start only"),
    ("nonsense=1", 1, "nonsense is not a setting of this broker"),
    ("deleteWhen=25", 1, "deleteWhen"),
    ("deleteWhen=1_0", 1, "expected a whole number"),
    ("fileReservedTime=-1", 1, "fileReservedTime"),
    ("flushIntervalCommitLog=0", 1, "flushIntervalCommitLog"),
    ("messageDelayLevel=1s 2x", 1, "level 2"),
    ("messageDelayLevel=1s" + "\\u3000" * 2048 + "2s", 1, "at most 2048 characters, not 2052"),
    ("deleteWhen=" + "4;" * 25, 1, "at most 24 hours"),
    ("regionId=" + "x" * 5000, 1, "5000 characters, expected at most 4096"),
    ("log.level=loud", 1, "log.level"),
    ("brokerPermission=5", 1, "2 (write), 4 (read) or 6 (both)"),
    ("autoCreateTopicEnable=perhaps", 1, "autoCreateTopicEnable"),
])
def test_what_cannot_be_changed_is_refused_by_name_and_nothing_changes(
    bench: Bench, text: str, code: int, reason: str
) -> None:
    before = table(bench)
    answer = change(bench, f"notifyConsumerIdsChangedEnable=false\n{text}")

    assert (answer.code, reason in answer.remark) == (code, True), answer.remark
    assert table(bench) == before


def test_the_live_settings_are_settings() -> None:
    known = {f"{section}.{key}" for section, kind in SECTIONS.items()
             for key in kind.__struct_fields__}

    assert known >= LIVE
    assert known >= AT_START | PATHS | FILE_SIZES | ROLE
    stock = {*stock_conf.RENAMED.values(), *(target for target, _ in stock_conf.CONVERTED.values())}
    assert stock <= LIVE | AT_START | PATHS | FILE_SIZES | ROLE


def longest(key: str) -> str:
    """As long a text of a live setting as is taken."""
    section, _, name = key.partition(".")
    texts = {"broker.region_id": LABELS["region_id"] * "r",
             "broker.message_delay_levels": "1s" + (TEXT_LENGTH_MAX - 4) * "\u3000" + "2s",
             "store.delete_when_hours": ";".join(HOURS_MAX * ["23"])}
    field = next(one for one in msgspec.inspect.type_info(SECTIONS[section]).fields
                 if one.name == name)
    match field.type:
        case msgspec.inspect.IntType(le=int(most)):
            return str(most)
        case msgspec.inspect.BoolType():
            return "true" if field.default is False else "false"
        case msgspec.inspect.LiteralType(values=values):
            return max(map(str, values), key=len)
    return texts[key]


def test_all_that_a_request_can_change_has_room_in_shared_memory(bench: Bench) -> None:
    """A coordinator that cannot tell the others of a change that is kept never starts again."""
    started = bench.broker.core.settings
    values = Values(SECTIONS)
    for key in LIVE:
        section, _, name = key.partition(".")
        values.put(section, name, longest(key), "test", as_text=True)
    told = lines(with_values(started, values), started)
    assert told.count(b"\n") == len(LIVE - {"broker.permission"})      # which has the most
    segment = Segment.create(f"/mqcore-test-settings-{os.getpid()}", **SMALL, kind="memfd")
    assert len(told) <= SettingsBoard(segment).room


@pytest.mark.parametrize(("value", "address"), [
    ("10.0.0.7", "10.0.0.7:40911"), ("broker.example", "broker.example:40911"),
])
def test_the_advertised_address_may_be_a_name(bench: Bench, value: str, address: str) -> None:
    assert change(bench, "brokerIP1=first.example").code == 0
    answer = change(bench, f"brokerIP1={value}")

    assert (answer.code, answer.remark) == (0, "kept for the next start: brokerIP1")
    assert bench.broker.core.changes.wanted.advertised_addr == address
    assert table(bench)["brokerIP1"] == value


def test_what_is_honoured_at_once_is_told_to_every_process(bench: Bench) -> None:
    assert change(bench, "deleteWhen=05;17\nfileReservedTime=48\nmaxMessageSize=4096\n").code == 0

    told = bench.tables.settings
    assert told is not None
    assert (told.store.delete_when_hours, told.store.reserved_hours) == ((5, 17), 48)
    assert told.store.message_size_max_bytes == 4096


def test_more_than_the_rings_were_made_for_waits_for_the_next_start(bench: Bench) -> None:
    assert change(bench, "maxMessageSize=4096").remark is None
    answer = change(bench, f"maxMessageSize={8 << 20}")

    assert (answer.code, answer.remark) == (0, "kept for the next start: maxMessageSize")
    core = bench.broker.core
    assert core.settings.store.message_size_max_bytes == 4096
    assert core.changes.wanted.store.message_size_max_bytes == 8 << 20
    assert table(bench)["maxMessageSize"] == str(8 << 20)
    assert change(bench, f"maxMessageSize={4 << 20}").remark is None       # what it began with
    assert core.settings.store.message_size_max_bytes == 4 << 20


def test_known_keys_without_effect_are_taken_and_the_remark_says_so(bench: Bench) -> None:
    answer = change(bench, "sendMessageThreadPoolNums=4\nfileReservedTime=24\n"
                           "duplicationEnable=false\nlistenPort=40912\n")

    assert (answer.code, answer.remark) == (
        0, "kept for the next start: listenPort; without effect on this broker: "
           "sendMessageThreadPoolNums, duplicationEnable")


def test_what_one_process_tells_makes_the_same_settings_in_another(tmp_path: Path) -> None:
    started = settings_in(tmp_path)
    now = settings_in(
        tmp_path, "broker.region_id=a=b c=d", "store.delete_when_hours=1,2", "log.level=debug",
        "broker.message_delay_levels=1s  5s", "store.flush_interval_ms=7",
        "broker.listen_port=40912")
    again = applied(started, lines(now, started))

    assert again == live_part(started, now)
    assert again.broker.region_id == "a=b c=d"
    assert again.broker.message_delay_levels == "1s  5s"
    assert (again.log.level, again.broker.listen_port) == ("debug", 40911)
    assert lines(started, started) == b""


def test_a_file_that_is_read_again_lies_below_what_requests_changed(
        bench: Bench, tmp_path: Path) -> None:
    def take(*overrides: str) -> dict[str, str]:
        said = settings_in(Path(bench.broker.core.settings.store.path), *overrides)
        finished(take_said(bench.broker.core, lines(said, None), bench.now_ms))
        return table(bench)

    assert change(bench, "fileReservedTime=48\ndeleteWhen=05\n").code == 0
    found = take("store.reserved_hours=24", "broker.auto_create_topic=false")
    assert (found["fileReservedTime"], found["deleteWhen"], found["autoCreateTopicEnable"]) == (
        "48", "05", "false")
    assert bench.tables.settings is not None
    assert not bench.tables.settings.broker.auto_create_topic
    assert bench.tables.settings.store.reserved_hours == 48

    assert take()["autoCreateTopicEnable"] == "true"          # the key went from the file again
    assert take("store.delete_when_hours=5")["deleteWhen"] == "05"
    assert change(bench, "fileReservedTime=72\n").code == 0     # as the file: no change any more
    kept = (Path(bench.broker.core.settings.store.path) / "config" / FILE_NAME).read_text()
    assert fastjson.loads(kept.encode()) == {"settings": {}}


def test_what_cannot_be_beside_what_runs_changes_nothing(
        bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    before = table(bench)
    finished(take_said(bench.broker.core, b'store.reserved_hours="some"\n', bench.now_ms))
    assert table(bench) == before
    assert "those before stay" in caplog.text
