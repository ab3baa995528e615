"""A message that is sent back is stored as a stock broker stores it (broker.md 3, 4.2)."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from mqcore.broker.ports import AppendStatus
from mqcore.broker.tables.groups import GroupConfig
from mqcore.replication.role import Role
from mqcore.wire import fastjson
from mqcore.wire.records import Record, decode_record, encode_record
from mqcore.wire.topics import TopicConfig
from tests.broker.fakes import NOW_MS, Bench, make_bench, settings_in
from tests.store.golden import manifest, unpack

RETRY, DLQ, SCHEDULE = "%RETRY%G", "%DLQ%G", "SCHEDULE_TOPIC_XXXX"
POSITION = 4_096
VERSION_WITHOUT_OWN_LIMIT, VERSION_WITH_OWN_LIMIT = 120, 121


def put(bench: Bench, *, reconsume_times: int = 0, **properties: str) -> Record:
    """A stored message at POSITION."""
    record = Record(
        topic="T", queue_id=2, queue_offset=7, physical_offset=POSITION, flag=5, sys_flag=3,
        body_crc=0, born_timestamp_ms=11, born_host=("10.0.0.1", 81), store_timestamp_ms=12,
        store_host=("10.0.0.2", 82), reconsume_times=reconsume_times,
        prepared_transaction_offset=0, body=b"body", properties={"KEYS": "k", **properties}, size=0)
    bench.store.records[POSITION] = encode_record(record)
    return record


def back(bench: Bench, *, version: int = 409, **changes: object) -> Any:
    fields = {"offset": POSITION, "group": "G", "delayLevel": 0} | changes
    return bench.ask(36, fields, version=version)


def answer(bench: Bench) -> tuple[int, str | None]:
    (_, command), = bench.connections.sent
    return command.code, command.remark


def test_the_copy_waits_in_the_delay_topic_for_its_groups_retry_topic(bench: Bench) -> None:
    record = put(bench)

    assert back(bench) is None
    assert bench.appender.appended == [(SCHEDULE, 2, b"body", {
        "KEYS": "k", "RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": record.offset_message_id,
        "WAIT": "false", "DELAY": "3", "REAL_TOPIC": RETRY, "REAL_QID": "0"})]
    assert bench.appender.details == [{
        "born_ms": 11, "flag": 5, "sys_flag": 3, "reconsume_times": 1,
        "born_host": ("10.0.0.1", 81), "store_host": ("10.0.0.2", 82), "waits": True}]
    assert bench.tables.topics[RETRY] == TopicConfig(RETRY, 1, 1)
    assert RETRY in bench.registrar.topics()[-1]


def test_the_answer_comes_when_the_copy_is_stored(bench: Bench) -> None:
    put(bench)
    back(bench)
    assert bench.connections.sent == []

    bench.appender.finish()
    assert answer(bench) == (0, None)


@pytest.mark.parametrize("status", [
    AppendStatus.FLUSH_DISK_TIMEOUT, AppendStatus.FLUSH_SLAVE_TIMEOUT,
    AppendStatus.SLAVE_NOT_AVAILABLE, AppendStatus.DISK_FAILED])
def test_what_the_mode_does_not_promise_is_answered_by_its_name(bench: Bench, status) -> None:
    put(bench)
    back(bench)
    bench.appender.finish(status)
    assert answer(bench) == (1, status.name)


@pytest.mark.parametrize(("role", "stored"), [("sync-master", 0), ("async-master", 1)])
def test_a_sync_master_without_slaves_stores_no_copy_that_its_consumer_would_send_again(
        bench: Bench, role: str, stored: int) -> None:
    put(bench)
    core = bench.broker.core
    core.settings = structs.replace(core.settings, replication=structs.replace(
        core.settings.replication, role=Role(role)))
    core.ports.queues.alone = True
    found = back(bench)
    assert len(bench.appender.appended) == stored
    assert stored or (found.code, found.remark) == (1, "SLAVE_NOT_AVAILABLE")


def test_the_answer_waits_for_a_topic_that_no_file_has_yet(bench: Bench) -> None:
    bench.ask(17, {"topic": "Other", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
                   "topicFilterType": "SINGLE_TAG"})
    bench.connections.sent.clear()
    bench.broker.tick(bench.now_ms)             # a file is written; the next one waits a moment
    put(bench, reconsume_times=16)
    bench.broker.core.topics.create_on_demand(RETRY, 1, bench.now_ms)
    bench.broker.tick(bench.now_ms)
    back(bench)
    bench.appender.finish()
    assert bench.connections.sent == []

    bench.broker.tick(bench.now_ms + 1000)
    assert answer(bench) == (0, None)


def times_counted(bench: Bench, key: str) -> int:
    answer = bench.ask(315, {"statsName": "SNDBCK_PUT_NUMS", "statsKey": key})
    return int(fastjson.loads(answer.body)["statsMinute"]["sum"]) if answer.code == 0 else 0


def test_what_is_sent_back_and_stored_is_counted_by_the_topic_that_it_came_from(
    bench: Bench
) -> None:
    for properties in ({}, {"RETRY_TOPIC": "First"}, {"RETRY_TOPIC": "First"}):
        put(bench, **properties)
        back(bench)
        bench.appender.finish()
    put(bench, reconsume_times=16, RETRY_TOPIC="First")          # a dead letter
    back(bench)
    bench.appender.finish()
    put(bench)
    back(bench)
    bench.appender.finish(AppendStatus.SERVICE_NOT_AVAILABLE)
    bench.broker.tick(NOW_MS + 10_000)

    assert times_counted(bench, "T@G") == 1
    assert times_counted(bench, "First@G") == 3
    assert times_counted(bench, "%RETRY%G@G") == 0


@pytest.mark.parametrize(("status", "wanted"), [
    (AppendStatus.SERVICE_NOT_AVAILABLE, (1, "SERVICE_NOT_AVAILABLE")),
    (AppendStatus.WRITER_RESTARTED, (1, "WRITER_RESTARTED")),
])
def test_a_copy_that_is_not_stored_is_refused_with_the_puts_status(
    bench: Bench, status: AppendStatus, wanted: tuple[int, str | None]
) -> None:
    put(bench)
    back(bench)
    bench.appender.finish(status)

    assert answer(bench) == wanted


@pytest.mark.parametrize(("asked", "tried", "level"), [
    (0, 0, 3), (0, 1, 4), (0, 14, 17), (0, 15, 18), (2, 7, 2), (99, 0, 18),
])
def test_each_try_comes_later_unless_the_consumer_says_when(
    bench: Bench, asked: int, tried: int, level: int
) -> None:
    put(bench, reconsume_times=tried)
    back(bench, delayLevel=asked)

    (topic, queue_id, _, properties), = bench.appender.appended
    assert (topic, queue_id, properties["DELAY"]) == (SCHEDULE, level - 1, str(level))


def test_the_last_level_is_that_of_the_setting(tmp_path: Path) -> None:
    bench = make_bench(settings_in(tmp_path, "broker.message_delay_levels=1s 5s"))
    put(bench)
    back(bench)

    (topic, queue_id, _, properties), = bench.appender.appended
    assert (topic, queue_id, properties["DELAY"]) == (SCHEDULE, 1, "2")


@pytest.mark.parametrize(("tried", "changes", "version"), [
    (16, {}, 409),                                              # the group's own limit
    (16, {"maxReconsumeTimes": 20}, VERSION_WITHOUT_OWN_LIMIT),
    (2, {"maxReconsumeTimes": 2}, VERSION_WITH_OWN_LIMIT),
    (0, {"maxReconsumeTimes": 0}, 409),
    (0, {"maxReconsumeTimes": -1}, 409),
    (0, {"delayLevel": -1}, 409),
])
def test_a_message_tried_often_enough_or_given_up_is_a_dead_letter(
    bench: Bench, tried: int, changes: dict[str, object], version: int
) -> None:
    record = put(bench, reconsume_times=tried)
    back(bench, version=version, **changes)

    assert bench.appender.appended == [(DLQ, 0, b"body", {
        "KEYS": "k", "RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": record.offset_message_id,
        "WAIT": "false", "DELAY": "0"})]
    assert bench.appender.details[0]["reconsume_times"] == tried + 1
    assert bench.tables.topics[DLQ] == TopicConfig(DLQ, 1, 1)


@pytest.mark.parametrize(("tried", "changes", "version"), [
    (2, {"maxReconsumeTimes": 2}, VERSION_WITHOUT_OWN_LIMIT),
    (15, {}, 409),
    (16, {"maxReconsumeTimes": 17}, VERSION_WITH_OWN_LIMIT),
])
def test_a_message_below_its_limit_is_tried_again(
    bench: Bench, tried: int, changes: dict[str, object], version: int
) -> None:
    put(bench, reconsume_times=tried)
    back(bench, version=version, **changes)

    assert bench.appender.appended[0][0] == SCHEDULE


def test_the_first_topic_and_id_stay_over_many_tries(bench: Bench) -> None:
    put(bench, RETRY_TOPIC="first", ORIGIN_MESSAGE_ID="AB", REAL_TOPIC="x", REAL_QID="9", DELAY="7",
        WAIT="true")
    back(bench)

    assert bench.appender.appended[0][3] == {
        "KEYS": "k", "RETRY_TOPIC": "first", "ORIGIN_MESSAGE_ID": "AB", "WAIT": "false",
        "DELAY": "3", "REAL_TOPIC": RETRY, "REAL_QID": "0"}


def test_a_group_without_retry_queues_does_without_the_message(bench: Bench) -> None:
    bench.broker.core.groups.update(GroupConfig("G", retry_queue_count=0), NOW_MS)
    put(bench)

    assert back(bench).code == 0
    assert bench.appender.appended == []
    assert RETRY not in bench.tables.topics


def test_retries_are_spread_over_the_groups_queues(bench: Bench) -> None:
    bench.broker.core.groups.update(GroupConfig("G", retry_queue_count=3), NOW_MS)
    put(bench)
    for _ in range(200):
        back(bench)

    assert {properties["REAL_QID"] for _, _, _, properties in bench.appender.appended} == {
        "0", "1", "2"}
    assert bench.tables.topics[RETRY] == TopicConfig(RETRY, 3, 3)


def test_unit_mode_marks_the_new_retry_topic(bench: Bench) -> None:
    put(bench)
    back(bench, unitMode="true")

    assert bench.tables.topics[RETRY].sys_flag == 2


def test_an_unknown_group_is_refused_where_groups_are_not_made(tmp_path: Path) -> None:
    bench = make_bench(settings_in(tmp_path, "broker.auto_create_group=false"))
    put(bench)

    assert back(bench).code == 26


def test_a_broker_or_a_retry_topic_without_write_permission_refuses(tmp_path: Path) -> None:
    closed = make_bench(settings_in(tmp_path / "a", "broker.permission=4"))
    assert back(closed).code == 16

    bench = make_bench(settings_in(tmp_path / "b"))
    bench.broker.core.topics.update(TopicConfig(RETRY, 1, 1, perm=4), NOW_MS)
    put(bench)
    assert back(bench).code == 16


@pytest.mark.parametrize("position", [POSITION + 1, -1])
def test_a_position_without_a_message_is_refused(bench: Bench, position: int) -> None:
    put(bench)

    refusal = back(bench, offset=position)
    assert (refusal.code, str(position) in refusal.remark) == (1, True)


@pytest.mark.parametrize("group", ["../../x", "a/b", "G" * 121, "..", "a\0b"])
def test_a_group_that_gives_no_legal_topic_is_refused(bench: Bench, group: str) -> None:
    put(bench)

    assert back(bench, group=group).code == 1
    assert bench.appender.appended == []


def test_a_missing_field_is_named(bench: Bench) -> None:
    assert "offset is missing" in bench.ask(36, {"group": "G", "delayLevel": 0}).remark


# -- what a stock broker made of messages that were sent back --------------------------------------


def _stock_records(folder: Path) -> dict[int, Record]:
    """Every message of a stock store that was sent back once or more, by its position."""
    root = unpack("delay_retry_dlq", folder)
    log = b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))
    return {
        message["physicalOffset"]: decode_record(log, message["physicalOffset"])
        for message in manifest("delay_retry_dlq")["messages"]
    }


def test_copies_are_those_of_a_stock_broker(bench: Bench, tmp_path: Path) -> None:
    records = _stock_records(tmp_path)
    copies = [record for record in records.values()
              if record.reconsume_times > 0 and record.properties.get("REAL_TOPIC", "") != (
                  record.topic)]
    compared = 0
    for copy in copies:
        before = [record for record in records.values()
                  if record.topic != SCHEDULE and record.physical_offset < copy.physical_offset
                  and record.properties["UNIQ_KEY"] == copy.properties["UNIQ_KEY"]
                  and record.reconsume_times == copy.reconsume_times - 1]
        if not before:
            continue
        original = before[-1]
        bench.store.records = {original.physical_offset: encode_record(original)}
        dead = copy.topic.startswith("%DLQ%")
        level = -1 if dead else int(copy.properties["DELAY"])
        bench.appender.appended.clear()
        bench.appender.details.clear()
        bench.ask(36, {"offset": original.physical_offset, "delayLevel": level,
                       "group": "cg_golden_retry"})

        wanted = (copy.topic, copy.queue_id, copy.body, copy.properties)
        assert bench.appender.appended == [wanted]
        assert bench.appender.details == [{
            "born_ms": copy.born_timestamp_ms, "flag": copy.flag, "sys_flag": copy.sys_flag,
            "reconsume_times": copy.reconsume_times, "born_host": copy.born_host,
            "store_host": copy.store_host, "waits": True}]
        compared += 1
    assert compared >= 40
