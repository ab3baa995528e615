"""Settings changed by request outlive the process, and go when taken back (broker.md 10.5)."""
from __future__ import annotations

import logging
from pathlib import Path

import pytest

from mqcore.broker.settings.changed import FILE_NAME, KEPT, ChangedSettings
from mqcore.broker.settings.live import value_of
from mqcore.store import files
from mqcore.wire import fastjson
from tests.broker.fakes import Bench, make_bench, settings_in


def change(bench: Bench, text: str) -> int:
    return int(bench.ask(25, None, text.encode()).code)


def shown(bench: Bench, key: str) -> str:
    return dict(line.split("=", 1) for line in bench.ask(26).body.decode().splitlines())[key]


def file_in(folder: Path) -> Path:
    return folder / "config" / FILE_NAME


def kept(folder: Path) -> object:
    return fastjson.loads(file_in(folder).read_bytes())


def write(folder: Path, content: str) -> None:
    file_in(folder).parent.mkdir(parents=True, exist_ok=True)
    file_in(folder).write_text(content)


def test_a_change_holds_for_the_next_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = make_bench(settings_in(tmp_path))
    assert change(first, "brokerPermission=4\nautoCreateTopicEnable=false\n") == 0
    assert change(first, "broker.queue_lock_expiry_ms=7000") == 0
    with caplog.at_level(logging.WARNING):
        again = make_bench(settings_in(tmp_path))

    assert (shown(again, "brokerPermission"), shown(again, "autoCreateTopicEnable")) == (
        "4", "false")
    assert again.broker.core.locks.expiry_ms == 7000
    assert again.tables.permission == (True, False)
    assert not again.broker.core.writable
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("3 settings changed by request: ")
    assert "broker.permission = 4 instead of 6" in line
    assert str(file_in(tmp_path)) in line


def test_a_change_wins_over_every_other_place(tmp_path: Path) -> None:
    change(make_bench(settings_in(tmp_path)), "brokerPermission=2")

    again = make_bench(settings_in(tmp_path, "broker.permission=4"))
    assert shown(again, "brokerPermission") == "2"


def test_what_is_set_back_is_no_change_any_more(tmp_path: Path) -> None:
    bench = make_bench(settings_in(tmp_path))
    change(bench, "brokerPermission=4\nautoCreateTopicEnable=false")
    assert kept(tmp_path) == {
        "settings": {"broker.auto_create_topic": "false", "broker.permission": "4"}}
    change(bench, "brokerPermission=6")
    assert kept(tmp_path) == {"settings": {"broker.auto_create_topic": "false"}}
    change(bench, "autoCreateTopicEnable=true")

    assert kept(tmp_path) == {"settings": {}}
    again = make_bench(settings_in(tmp_path, "broker.permission=2"))
    assert shown(again, "brokerPermission") == "2"


def test_without_the_file_the_settings_are_as_they_were(tmp_path: Path) -> None:
    bench = make_bench(settings_in(tmp_path))
    change(bench, "brokerPermission=4")
    change(bench, "brokerPermission=2")
    file_in(tmp_path).unlink()

    assert shown(make_bench(settings_in(tmp_path)), "brokerPermission") == "6"


def test_a_broker_whose_settings_nobody_changed_has_no_such_file(tmp_path: Path) -> None:
    bench = make_bench(settings_in(tmp_path))
    assert change(bench, "") == 0
    assert change(bench, "brokerPermission=6") == 0
    assert change(bench, "brokerPermission=5") == 1

    assert not file_in(tmp_path).exists()


def test_a_change_that_cannot_be_kept_is_refused_and_has_no_effect(tmp_path: Path) -> None:
    bench = make_bench(settings_in(tmp_path))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with files.replaced(sync=full):
        answer = bench.ask(25, None, b"brokerPermission=4")
    assert (answer.code, "cannot be kept" in answer.remark) == (1, True)
    assert "No space left" in answer.remark
    assert shown(bench, "brokerPermission") == "6"


@pytest.mark.parametrize(("entry", "reason"), [
    ('"broker.permission":"5"', "broker.permission = 5: expected 2 (write), 4 (read) or 6 (both)"),
    ('"broker.permission":"many"', 'broker.permission = "many": expected a whole number'),
    ('"broker.permission":null', "broker.permission"),
    ('"broker.permission":{}', "broker.permission"),
    ('"store.query_count_max":"5000"', "store.query_count_max"),
    ('"store.path":"/etc"', "store.path: expected a setting that requests can change"),
    ('"store.segment_size_bytes":"8192"', "expected a setting that requests can change"),
    ('"broker.gone":"1"', "broker.gone: expected a setting that requests can change"),
    ('"":""', "expected a setting that requests can change"),
])
def test_what_no_longer_fits_is_reported_by_name_and_the_rest_is_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, entry: str, reason: str
) -> None:
    write(tmp_path, '{"settings":{' + entry + ',"broker.auto_create_topic":"false"}}')
    with caplog.at_level(logging.WARNING):
        bench = make_bench(settings_in(tmp_path))

    assert (shown(bench, "brokerPermission"), shown(bench, "autoCreateTopicEnable")) == (
        "6", "false")
    ignored, taken = [record.getMessage() for record in caplog.records]
    assert ignored.startswith("a setting changed by request is ignored: ")
    assert reason in ignored
    assert taken.startswith("1 settings changed by request: broker.auto_create_topic = false")


def test_values_that_a_person_wrote_as_json_are_taken(tmp_path: Path) -> None:
    write(tmp_path, '{"settings":{"broker.permission":4,"broker.auto_create_topic":false}}')
    bench = make_bench(settings_in(tmp_path))

    assert (shown(bench, "brokerPermission"), shown(bench, "autoCreateTopicEnable")) == (
        "4", "false")


@pytest.mark.parametrize("content", ["", "{", "[]", "7", '{"settings":7}', "{}", "\xff\x00"])
def test_a_file_that_cannot_be_used_is_reported_and_stops_no_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    write(tmp_path, content)
    with caplog.at_level(logging.WARNING):
        bench = make_bench(settings_in(tmp_path))

    assert shown(bench, "brokerPermission") == "6"
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("settings changed by request are ignored: ")
    assert str(file_in(tmp_path)) in line
    assert change(bench, "brokerPermission=4") == 0
    assert kept(tmp_path) == {"settings": {"broker.permission": "4"}}


def test_every_setting_that_can_change_is_kept(tmp_path: Path) -> None:
    bench = make_bench(settings_in(tmp_path))
    before = {key: value_of(bench.broker.core.settings, key) for key in KEPT}
    for key, value in before.items():
        assert change(bench, f"{key}={OTHERS.get(key) or other(value)}") == 0, key
    changed = {key: value_of(bench.broker.core.changes.wanted, key) for key in KEPT}
    again = make_bench(settings_in(tmp_path))

    assert [key for key in KEPT if changed[key] == before[key]] == []
    assert {key: value_of(again.broker.core.settings, key) for key in KEPT} == changed


OTHERS = {
    "broker.region_id": "Elsewhere", "broker.message_delay_levels": "1s 2s", "log.level": "debug",
    "broker.name": "broker-b", "broker.cluster": "Other", "broker.advertised_ip": "127.0.0.9",
    "broker.advertised_host": "elsewhere",
    "broker.namesrv_addrs": "a:1;b:2", "broker.trace_topic_name": "Traces", "store.flush": "sync",
    "broker.accept_sends_from_ms": "5", "broker.timer_messages": "at_once",
    "broker.timer_max_delay_s": "60",
    "replication.advertised_host": "elsewhere", "replication.master_address": "a:1",
    "replication.min_in_sync": "2",
}


def other(value: str) -> str:
    """Another value that is allowed wherever this one is."""
    switches = {"true": "false", "false": "true", "6": "4"}
    return switches.get(value) or str(max(int(value) // 2, 1))


def test_what_needs_a_start_is_kept_and_shown_but_not_running_yet(tmp_path: Path) -> None:
    bench = make_bench(settings_in(tmp_path))
    answer = bench.ask(25, None, b"flushDiskType=SYNC_FLUSH\nlistenPort=40999\ntraceOn=false")

    assert (answer.code, answer.remark) == (
        0, "kept for the next start: flushDiskType, listenPort")
    assert (shown(bench, "flushDiskType"), shown(bench, "listenPort")) == ("SYNC_FLUSH", "40999")
    running = bench.broker.core.settings
    assert (running.store.flush, running.broker.listen_port, running.broker.trace_on) == (
        "async", 40911, False)
    after = make_bench(settings_in(tmp_path)).broker.core.settings
    assert (after.store.flush, after.broker.listen_port) == ("sync", 40999)


def test_a_coordinator_that_begins_anew_takes_only_what_is_honoured_at_once(
    tmp_path: Path
) -> None:
    started = settings_in(tmp_path)
    bench = make_bench(started)
    assert change(bench, "listenPort=40999\ndeleteWhen=05") == 0

    again = make_bench(started, changes=ChangedSettings(started)).broker.core
    assert (again.settings.broker.listen_port, again.settings.store.delete_when_hours) == (
        40911, (5,))
    assert again.changes.wanted.broker.listen_port == 40999


def test_the_two_halves_of_the_flush_mode_come_in_any_order(tmp_path: Path) -> None:
    bench = make_bench(settings_in(tmp_path))
    for change_text, mode in (("transientStorePoolEnable=true", "transient-pool"),
                              ("flushDiskType=SYNC_FLUSH", "sync"),
                              ("flushDiskType=ASYNC_FLUSH", "async")):
        assert change(bench, change_text) == 0
        assert value_of(bench.broker.core.changes.wanted, "store.flush") == mode
