"""Groups that read far behind are refused, if the settings say so (broker.md 1.3, 9.5)."""
from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from mqcore.broker.ports import LastPull
from mqcore.broker.requests.protection import PROTECT_INTERVAL_MS
from mqcore.wire.codes import ResponseCode
from tests.broker.fakes import NOW_MS, Bench, make_bench, settings_in

LIMIT = 1_000
TOPIC = "TBW102"


@pytest.fixture
def strict(tmp_path: Path) -> Bench:
    return make_bench(settings_in(
        tmp_path, "broker.disable_consume_if_consumer_read_slowly=true",
        f"broker.consumer_fallbehind_threshold_bytes={LIMIT}"))


def behind(bench: Bench, group: str, size: int, topic: str = TOPIC) -> None:
    """The group is there, and its newest pull of queue 2 was that far behind."""
    bench.broker.core.groups.find_or_create(group, NOW_MS)
    bench.pulls.newest.append(
        LastPull(topic, 2, group, behind_bytes=size, behind_ms=77, at_ms=NOW_MS))


def look(bench: Bench, times: int = 1) -> None:
    bench.broker.tick(NOW_MS + times * PROTECT_INTERVAL_MS)


def enabled(bench: Bench, group: str) -> bool:
    config = bench.broker.core.groups.get(group)
    assert config is not None
    assert bench.tables.groups[group] == config          # what serving processes see
    return config.consume_enable


def test_a_group_further_behind_than_the_limit_may_not_consume(
    strict: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    behind(strict, "Slow", LIMIT + 1)
    behind(strict, "AtTheLimit", LIMIT)
    with caplog.at_level(logging.WARNING):
        look(strict)

    assert not enabled(strict, "Slow")
    assert enabled(strict, "AtTheLimit")
    assert "group Slow reads too slowly" in caplog.text
    assert f"{TOPIC}, queue 2, was {LIMIT + 1} bytes (77 ms) behind" in caplog.text


def test_its_pulls_are_refused_as_those_of_any_disabled_group(strict: Bench) -> None:
    behind(strict, "Slow", LIMIT + 1)
    look(strict)
    answer = strict.ask(11, {
        "consumerGroup": "Slow", "topic": TOPIC, "queueId": 0, "queueOffset": 0, "maxMsgNums": 32,
        "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*",
        "subVersion": 0})

    assert (answer.code, answer.remark) == (
        ResponseCode.NO_PERMISSION, "consumer group Slow may not consume")


def test_the_first_look_is_three_minutes_after_the_start(strict: Bench) -> None:
    behind(strict, "Slow", LIMIT + 1)
    strict.broker.tick(NOW_MS + PROTECT_INTERVAL_MS - 1)
    assert enabled(strict, "Slow")
    look(strict)
    assert not enabled(strict, "Slow")


def test_nothing_is_disabled_unless_the_settings_say_so(bench: Bench) -> None:
    behind(bench, "Slow", 1 << 60)
    look(bench)

    assert enabled(bench, "Slow")


def test_limit_and_switch_can_be_changed_while_the_broker_runs(bench: Bench) -> None:
    behind(bench, "Slow", LIMIT + 1)
    look(bench)
    assert bench.ask(25, None, b"disableConsumeIfConsumerReadSlowly=true").code == 0
    look(bench, 2)
    assert enabled(bench, "Slow")                        # 16 GiB
    assert bench.ask(25, None, b"consumerFallbehindThreshold=1000").code == 0
    look(bench, 3)

    assert not enabled(bench, "Slow")


def test_only_an_update_of_the_group_lets_it_go_on(strict: Bench) -> None:
    behind(strict, "Slow", LIMIT + 1)
    look(strict)
    strict.pulls.newest.clear()
    look(strict, 2)
    assert not enabled(strict, "Slow")
    assert strict.ask(200, None, {"groupName": "Slow", "consumeEnable": True}).code == 0
    look(strict, 3)

    assert enabled(strict, "Slow")


def test_the_file_hears_of_it_with_the_next_update_of_a_group(strict: Bench) -> None:
    behind(strict, "Slow", LIMIT + 1)
    strict.broker.core.groups.persist()
    before = strict.broker.core.groups.version.counter
    path = strict.broker.core.settings.config_dir / "subscriptionGroup.json"
    look(strict)
    assert strict.broker.core.groups.version.counter == before + 1
    assert not strict.broker.core.groups.dirty
    assert json.loads(path.read_text())["subscriptionGroupTable"]["Slow"]["consumeEnable"] is True
    strict.ask(200, None, {"groupName": "Other"})

    assert json.loads(path.read_text())["subscriptionGroupTable"]["Slow"]["consumeEnable"] is False


def test_a_queue_of_a_topic_that_is_gone_counts_for_nobody(strict: Bench) -> None:
    behind(strict, "Slow", LIMIT + 1, topic="Deleted")
    look(strict)

    assert enabled(strict, "Slow")


def test_a_disabled_group_is_told_of_once_with_its_worst_queue(
    strict: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    behind(strict, "Slow", LIMIT + 5)
    behind(strict, "Slow", LIMIT + 9)
    with caplog.at_level(logging.WARNING):
        look(strict)
        look(strict, 2)

    assert caplog.text.count("reads too slowly") == 1
    assert f"was {LIMIT + 9} bytes" in caplog.text
