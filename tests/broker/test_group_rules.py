"""What a group's configuration does to its members (broker.md 7.2, 7.3, 9.5)."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mqcore.broker.tables.groups import GroupConfig
from mqcore.wire import fastjson
from tests.broker.fakes import NOW_MS, Bench, make_bench, settings_in

RETRY = "%RETRY%G"
UNIT_SUBSCRIBED = 2


def beat(bench: Bench, *, connection: int = 1, **entry: Any) -> int:
    """A heartbeat of a member of G with one topic; its code."""
    answer = bench.ask(34, None, {"clientID": f"c{connection}", "consumerDataSet": [{
        "groupName": "G", "subscriptionDataSet": [{"topic": "T", "subString": "*"}], **entry}],
    }, connection=connection)
    return int(answer.code)


def configure(bench: Bench, **changes: Any) -> None:
    bench.broker.core.groups.update(GroupConfig("G", **changes), NOW_MS)


# -- the retry topic -------------------------------------------------------------------------------


@pytest.mark.parametrize(("unit_mode", "flag"), [(True, UNIT_SUBSCRIBED), (False, 0)])
def test_the_retry_topic_of_a_consumer_in_unit_mode_says_so(
    bench: Bench, unit_mode: bool, flag: int
) -> None:
    assert beat(bench, unitMode=unit_mode) == 0

    assert bench.tables.topics[RETRY].sys_flag == flag


def test_a_broadcasting_group_has_a_retry_topic_too(bench: Bench) -> None:
    assert beat(bench, messageModel="BROADCASTING") == 0

    assert RETRY in bench.tables.topics


def test_a_retry_topic_that_is_there_keeps_its_queues(bench: Bench) -> None:
    configure(bench, retry_queue_count=2)
    beat(bench)
    configure(bench, retry_queue_count=5)
    beat(bench)

    assert bench.tables.topics[RETRY].read_queue_count == 2


def test_a_member_of_a_group_that_may_not_be_made_is_one_without_retry_topic(
    tmp_path: Path
) -> None:
    bench = make_bench(settings_in(tmp_path, "broker.auto_create_group=false"))

    assert beat(bench) == 0
    assert bench.connections.told() == [(1, "G")]
    assert bench.broker.core.clients.members("G") == [1]
    assert RETRY not in bench.tables.topics
    assert bench.broker.core.groups.get("G") is None


# -- notices ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("how", ["leaves", "closes", "falls silent", "is lost", "subscribes"])
def test_the_switch_of_a_group_silences_every_change_but_the_end_of_a_connection(
    bench: Bench, how: str, enabled: bool
) -> None:
    stays, goes = 1, 1 << 48 | 2
    configure(bench, notify_consumers_enable=enabled)
    beat(bench, connection=goes)
    bench.now_ms += 60_000
    beat(bench, connection=stays)
    bench.connections.told()

    if how == "leaves":
        bench.ask(35, {"clientID": "c", "consumerGroup": "G"}, connection=goes)
    elif how == "closes":
        bench.broker.connection_closed(goes)
    elif how == "falls silent":
        bench.broker.tick(NOW_MS + 130_000)
    elif how == "is lost":
        bench.broker.connection_closed(goes)
    else:
        beat(bench, connection=stays, subscriptionDataSet=[{"topic": "T"}, {"topic": "U"}])
    told = bench.connections.told()

    ended = how in ("closes", "falls silent", "is lost")      # only the broker's switch counts
    assert (stays, "G") in told if enabled or ended else told == []
    assert bench.broker.core.clients.members("G") == (
        [goes, stays] if how == "subscribes" else [stays])


# -- what heartbeats overwrite ---------------------------------------------------------------------


def test_the_last_heartbeat_says_how_the_group_consumes(bench: Bench) -> None:
    beat(bench, consumeType="CONSUME_PASSIVELY", messageModel="CLUSTERING",
         consumeFromWhere="CONSUME_FROM_LAST_OFFSET")
    beat(bench, connection=2, consumeType="CONSUME_ACTIVELY", messageModel="BROADCASTING",
         consumeFromWhere="CONSUME_FROM_FIRST_OFFSET")
    shown = fastjson.loads(bench.ask(203, {"consumerGroup": "G"}).body)

    assert {name: shown[name] for name in ("consumeType", "messageModel", "consumeFromWhere")} == {
        "consumeType": "CONSUME_ACTIVELY", "messageModel": "BROADCASTING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}
