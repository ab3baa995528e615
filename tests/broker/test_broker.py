"""The broker as a whole: queries, tables for slaves, registration, trouble with the disk."""
from __future__ import annotations

import json
import shutil
import zlib
from pathlib import Path

import pytest

from mqcore.broker.request import Answer, Request, answer_frame
from mqcore.broker.tables import config_file
from mqcore.broker.tables.config_file import ConfigFileError
from mqcore.turns import finished
from mqcore.wire import fastjson
from mqcore.wire.command import Command, decode
from mqcore.wire.topics import TopicConfig
from tests.broker.fakes import NOW_MS, Bench, make_bench, settings_in

GOLDEN = Path(__file__).parents[1] / "golden" / "config"
QUEUE = {"topic": "T", "queueId": 0}


def test_the_bounds_of_a_queue_are_answered(bench: Bench) -> None:
    assert bench.ask(30, QUEUE).ext == {"offset": "0"}
    assert bench.ask(31, QUEUE).ext == {"offset": "0"}
    assert bench.ask(32, QUEUE).ext == {"timestamp": "-1"}

    bench.store.queues["T", 0] = (10, 50)
    bench.store.store_times["T", 0, 10] = NOW_MS - 5
    bench.store.by_time["T", 0, NOW_MS] = 33
    assert bench.ask(30, QUEUE).ext == {"offset": "50"}
    assert bench.ask(31, QUEUE).ext == {"offset": "10"}
    assert bench.ask(32, QUEUE).ext == {"timestamp": str(NOW_MS - 5)}
    assert bench.ask(29, {**QUEUE, "timestamp": NOW_MS}).ext == {"offset": "33"}


def test_a_message_is_answered_by_its_position_as_it_is_stored(bench: Bench) -> None:
    bench.store.records[100] = b"the record"

    found = bench.ask(33, {"offset": 100})
    assert (found.code, found.ext, found.body) == (0, None, b"the record")
    assert bench.ask(33, {"offset": 101}).code == 1
    assert bench.ask(33, {"offset": -1}).code == 1
    assert bench.ask(33).remark == "header field offset is missing: expected a whole number"


@pytest.mark.parametrize("code", [13, 22, 105, 360, 9999, -1])
def test_an_unknown_code_is_answered_as_stock_does(bench: Bench, code: int) -> None:
    answer = bench.ask(code)

    assert (answer.code, answer.remark, answer.ext) == (
        3, f" request type {code} not supported", None
    )


def test_slaves_get_the_whole_tables(bench: Bench) -> None:
    bench.broker.commit_offset("G", "T", 3, 9)

    topics = json.loads(bench.ask(21).body)
    assert topics["topicConfigTable"]["TBW102"] == {
        "order": False, "perm": 7, "readQueueNums": 8, "topicFilterType": "SINGLE_TAG",
        "topicName": "TBW102", "topicSysFlag": 0, "writeQueueNums": 8,
    }
    assert topics["dataVersion"] == {"counter": 0, "timestamp": NOW_MS}
    assert bench.ask(43).body == b'{"offsetTable":{"T@G":{3:9}}}'
    groups = json.loads(bench.ask(201).body)["subscriptionGroupTable"]
    assert groups["TOOLS_CONSUMER"]["retryMaxTimes"] == 16


def test_the_runtime_figures_are_those_that_are_known(bench: Bench) -> None:
    bench.figures.figures["putTps"] = "1.5 1.0 0.5"
    bench.now_ms = NOW_MS + 90_061_000
    table = json.loads(bench.ask(28).body)["table"]

    assert table["brokerVersionDesc"] == "V4_9_8"
    assert table["brokerVersion"] == "409"
    assert table["bootTimestamp"] == str(NOW_MS)
    assert table["runtime"] == "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"
    assert table["earliestMessageTimeStamp"] == "-1"
    assert table["putTps"] == "1.5 1.0 0.5"
    assert 0.0 <= float(table["commitLogDiskRatio"]) <= 1.0


def test_a_registration_names_the_broker_and_all_topics(bench: Bench) -> None:
    found = finished(bench.broker.core.registration())

    assert found.ext == {
        "brokerName": "broker-a", "brokerAddr": "127.0.0.2:40911", "brokerId": "0",
        "clusterName": "DefaultCluster", "haServerAddr": "127.0.0.2:40912",
        "compressed": "false", "bodyCrc32": str(zlib.crc32(found.body) & 0x7FFFFFFF),
    }
    body = json.loads(found.body)
    assert body["filterServerList"] == []
    wrapper = body["topicConfigSerializeWrapper"]
    assert len(wrapper["topicConfigTable"]) == len(bench.broker.core.topics.all())
    assert wrapper["dataVersion"] == {"counter": 0, "timestamp": NOW_MS}


def test_a_restricted_broker_registers_every_topic_with_its_own_permission(
    tmp_path: Path
) -> None:
    bench = make_bench(settings_in(tmp_path, "broker.permission=4"))
    bench.broker.core.topics.update(
        TopicConfig("T", 2, 3, 6, "MULTI_TAG", 1, True), NOW_MS
    )
    bench.broker.tick(NOW_MS + 1_000)
    body = finished(bench.broker.core.registration()).body
    wrapper = json.loads(body)["topicConfigSerializeWrapper"]

    assert wrapper["topicConfigTable"]["T"] == TopicConfig("T", 2, 3, 4).as_json()
    assert {topic["perm"] for topic in wrapper["topicConfigTable"].values()} == {4}


def test_a_restart_finds_topics_groups_and_offsets(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    first = make_bench(settings)
    first.heartbeat("G", {"T": 1})
    first.broker.commit_offset("G", "T", 0, 5)
    first.broker.close()

    second = make_bench(settings)
    assert "%RETRY%G" in second.tables.topics
    assert "G" in second.tables.groups
    assert second.broker.core.offsets.committed("G", "T", 0) == 5
    assert second.broker.core.topics.version == first.broker.core.topics.version


def test_the_tables_of_a_stock_store_are_kept_as_they_are(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, "broker.name=golden-a", "broker.cluster=GoldenCluster")
    settings.config_dir.mkdir(parents=True)
    stock = {}
    for name in ("topics.json", "subscriptionGroup.json", "consumerOffset.json"):
        shutil.copy(GOLDEN / name, settings.config_dir)
        stock[name] = config_file.load(GOLDEN / name)
    core = make_bench(settings).broker.core

    assert {
        "topics.json": core.topics.as_json(), "subscriptionGroup.json": core.groups.as_json(),
        "consumerOffset.json": core.offsets.as_json(),
    } == stock


def test_a_config_file_that_is_no_use_stops_the_start(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    settings.config_dir.mkdir(parents=True)
    (settings.config_dir / "topics.json").write_text("{broken")

    with pytest.raises(ConfigFileError, match=r"topics\.json: not JSON"):
        make_bench(settings)


def test_a_disk_that_refuses_loses_nothing_and_is_asked_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(path: Path, value: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(config_file, "save_bytes", full)
        assert bench.heartbeat("G", {"T": 1}).code == 0
        created = bench.ask(17, {
            "topic": "T", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
            "topicFilterType": "SINGLE_TAG",
        })
        assert created.code == 1
        assert "No space left on device" in created.remark
        bench.broker.tick(NOW_MS + 1_000)
    assert caplog.text.count("cannot be saved") == 2           # topics and groups

    bench.broker.tick(NOW_MS + 5_000)
    stored = config_file.load(bench.broker.core.settings.config_dir / "topics.json")
    assert stored is not None
    assert "%RETRY%G" not in stored["topicConfigTable"]        # nothing is stored for it
    assert bench.heartbeat("G", {"T": 1}).code == 0
    bench.broker.tick(NOW_MS + 6_000)
    assert "%RETRY%G" in bench.tables.topics
    groups = config_file.load(bench.broker.core.settings.config_dir / "subscriptionGroup.json")
    assert groups is not None
    assert "G" in groups["subscriptionGroupTable"]


def test_a_clock_that_is_set_back_stops_no_timer(bench: Bench) -> None:
    bench.broker.tick(NOW_MS + 20_000)
    bench.broker.commit_offset("G", "T", 0, 5)
    bench.broker.tick(NOW_MS - 3_600_000)

    path = bench.broker.core.settings.config_dir / "consumerOffset.json"
    assert config_file.load(path) == {"offsetTable": {"T@G": {0: 5}}}


def test_an_answer_becomes_a_frame_and_none_for_a_one_way_request() -> None:
    asked = Request(1, "10.0.0.1:4000", Command(30, opaque=9), NOW_MS)
    frame = answer_frame(asked, Answer(0, "r", {"offset": "5"}, b"body"))
    assert frame is not None
    answer = decode(frame[4:])
    assert (answer.code, answer.opaque, answer.remark, answer.ext, answer.body) == (
        0, 9, "r", {"offset": "5"}, b"body"
    )

    asked.command.flag = 2
    assert answer_frame(asked, Answer(0)) is None


def test_an_answer_that_is_too_large_becomes_a_refusal() -> None:
    asked = Request(1, "10.0.0.1:4000", Command(21, opaque=9), NOW_MS)
    frame = answer_frame(asked, Answer(0, body=bytes(1 << 24)))

    assert frame is not None
    answer = decode(frame[4:])
    assert (answer.code, answer.opaque, answer.body) == (1, 9, b"")
    assert "the answer cannot be sent: frame length" in (answer.remark or "")


def test_every_answer_body_is_text_that_java_reads(bench: Bench) -> None:
    for code in (21, 28, 43, 201):
        assert isinstance(fastjson.loads(bench.ask(code).body), dict)
