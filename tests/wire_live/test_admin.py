"""Recorded questions of tools on a live broker: topics, groups, members, queues, settings."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mqcore.wire import fastjson
from mqcore.wire.codes import TRANSACTION_KEYS
from mqcore.wire.command import Command, Ext, encode
from mqcore.wire.ids import offset_message_id
from tests.support.mqcore_process import MqcoreProcess
from tests.support.recorded import Exchange
from tests.support.waiting import wait_until
from tests.wire_live import differences
from tests.wire_live.peer import Peer
from tests.wire_live.replay import Replay, parameters
from tests.wire_live.state import State
from tests.wire_live.test_clients_and_offsets import ask, assert_alike, body_of

QUEUES = 8


def in_order(value: Any) -> Any:
    """Lists sorted by their text: stock writes sets in any order."""
    if isinstance(value, dict):
        return {key: in_order(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted((in_order(item) for item in value), key=str)
    return value


def without_times(value: Any) -> Any:
    """The same with clock values as signs."""
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_times(item) for item in value]
    return "TIME" if isinstance(value, int) and value > 1_600_000_000_000 else value


def assert_same_body(replay: Replay, found: Command) -> None:
    """The bodies are equal but for clock values and the order of lists."""
    theirs, ours = (in_order(without_times(body_of(side))) for side in (replay.expected, found))
    assert ours == theirs


def fill(state: State, table: dict[Any, dict[str, int]], end: str) -> None:
    """The topics of a recorded table, with as many messages in each queue as it says."""
    for topic in sorted({dict(queue)["topic"] for queue in table}):
        state.topic(topic, sum(dict(queue)["topic"] == topic for queue in table))
    for queue, row in table.items():
        state.fill(dict(queue)["topic"], dict(queue)["queueId"], row[end])


@pytest.mark.parametrize("exchange", parameters("broker-admin", 202))
def test_bounds_of_a_topics_queues_are_told_alike(
    live: MqcoreProcess, state: State, exchange: Exchange
) -> None:
    replay = Replay(exchange)
    fill(state, body_of(replay.expected)["offsetTable"], "maxOffset")
    found = ask(live, replay)

    assert_alike(replay, found)
    assert_same_body(replay, found)


@pytest.mark.parametrize("exchange", parameters("broker-admin", 208))
def test_the_progress_of_a_group_is_told_alike(
    live: MqcoreProcess, state: State, exchange: Exchange
) -> None:
    replay = Replay(exchange)
    table = body_of(replay.expected)["offsetTable"]
    fill(state, table, "brokerOffset")
    for queue, row in table.items():
        state.ask(15, {
            "consumerGroup": replay.fields["consumerGroup"], "topic": dict(queue)["topic"],
            "queueId": str(dict(queue)["queueId"]), "commitOffset": str(row["consumerOffset"])})
    found = ask(live, replay)

    assert_alike(replay, found)
    theirs, ours = body_of(replay.expected), body_of(found)
    assert isinstance(ours["consumeTps"], float)
    assert without_times(ours["offsetTable"]) == without_times(theirs["offsetTable"])


@pytest.mark.parametrize("exchange", parameters("broker-admin", 317))
def test_the_progress_of_all_groups_has_the_recorded_form(
    live: MqcoreProcess, state: State, exchange: Exchange
) -> None:
    state.topic("ProgressOfAll", 2)
    state.fill("ProgressOfAll", 1, 3)
    state.consumer("ProgressGroup", "ProgressOfAll")
    state.ask(15, {"consumerGroup": "ProgressGroup", "topic": "ProgressOfAll", "queueId": "1",
                   "commitOffset": "1"})
    replay = Replay(exchange)
    found = ask(live, replay)

    assert_alike(replay, found)
    theirs, ours = body_of(replay.expected), body_of(found)
    assert set(ours) == set(theirs)
    (parts,) = (entry["ProgressGroup"] for entry in ours["consumeStatsList"]
                if "ProgressGroup" in entry)
    rows = {dict(queue)["queueId"]: row for queue, row in parts[0]["offsetTable"].items()}
    assert {key: rows[1][key] for key in ("brokerOffset", "consumerOffset")} == {
        "brokerOffset": 3, "consumerOffset": 1}
    assert (rows[0], ours["totalDiff"] >= 2) == (
        {"brokerOffset": 0, "consumerOffset": 0, "lastTimestamp": 0}, True)


@pytest.mark.parametrize("exchange", parameters("broker-admin", 203))
def test_members_of_consumer_groups_are_shown_alike(
    live: MqcoreProcess, exchange: Exchange
) -> None:
    replay = Replay(exchange)
    wanted = body_of(replay.expected)
    with Peer(live.broker_addr) as member:
        if wanted is not None:
            member.ask(34, None, fastjson.dumps({
                "clientID": wanted["connectionSet"][0]["clientId"], "consumerDataSet": [{
                    "groupName": replay.fields["consumerGroup"],
                    "consumeType": wanted["consumeType"], "messageModel": wanted["messageModel"],
                    "consumeFromWhere": wanted["consumeFromWhere"],
                    "subscriptionDataSet": list(wanted["subscriptionTable"].values())}]}))
        found = ask(live, replay)
    assert_alike(replay, found)
    if wanted is not None:
        ours = body_of(found)
        theirs, = wanted.pop("connectionSet")
        connection, = ours.pop("connectionSet")
        assert set(connection) == set(theirs)
        assert connection["clientId"] == theirs["clientId"]
        assert ours == wanted


@pytest.mark.parametrize("exchange", parameters("broker-admin", 204, 328))
def test_producers_are_shown_alike(live: MqcoreProcess, exchange: Exchange) -> None:
    replay = Replay(exchange)
    wanted = body_of(replay.expected)
    groups = list((wanted or {}).get("data", {})) or [replay.fields.get("producerGroup", "")]
    with Peer(live.broker_addr) as member:
        if wanted is not None:
            member.ask(34, None, fastjson.dumps({"clientID": "c", "producerDataSet": [
                {"groupName": group} for group in groups]}))
        found = ask(live, replay)
    assert_alike(replay, found)
    ours = body_of(found)
    if exchange.code == 328:
        assert {group: [set(item) for item in ours["data"][group]][:1] for group in groups} == {
            group: [set(item) for item in wanted["data"][group]][:1] for group in groups}
    elif wanted is not None:
        assert [set(item) for item in ours["connectionSet"]] == [
            set(item) for item in wanted["connectionSet"]]


@pytest.mark.parametrize("exchange", parameters("broker-admin", 300))
def test_the_groups_of_a_topic_are_listed_alike(
    live: MqcoreProcess, state: State, exchange: Exchange
) -> None:
    replay = Replay(exchange)
    wanted = body_of(replay.expected)["groupList"]
    topic = replay.fields["topic"]
    for group in wanted:
        state.ask(15, {"consumerGroup": group, "topic": topic, "queueId": "0",
                       "commitOffset": "0"})
    found = ask(live, replay)

    assert_alike(replay, found)
    assert set(body_of(found)["groupList"]) >= set(wanted)


@pytest.mark.parametrize("exchange", parameters("broker-admin", 303))
def test_the_times_of_a_groups_place_are_told_alike(
    live: MqcoreProcess, state: State, exchange: Exchange
) -> None:
    replay = Replay(exchange)
    asked, spans = replay.fields, body_of(replay.expected)["consumeTimeSpanSet"]
    state.topic(asked["topic"], len(spans))
    for span in spans:
        queue_id = span["messageQueue"]["queueId"]
        state.fill(asked["topic"], queue_id, 2)
        state.ask(15, {"consumerGroup": asked["group"], "topic": asked["topic"],
                       "queueId": str(queue_id),
                       "commitOffset": "1" if span["delayTime"] else "2"})
    late = sum(span["delayTime"] > 0 for span in spans)
    wait_until(lambda: late == sum(span["delayTime"] > 0 for span in body_of(ask(live, replay))[
        "consumeTimeSpanSet"]), "a millisecond after the last message")
    found = ask(live, replay)

    assert_alike(replay, found)
    ours = {span["messageQueue"]["queueId"]: span for span in body_of(found)["consumeTimeSpanSet"]}
    for theirs in spans:
        mine = ours[theirs["messageQueue"]["queueId"]]
        assert set(mine) == set(theirs)
        assert (mine["delayTime"] > 0) == (theirs["delayTime"] > 0)
        assert mine["minTimeStamp"] <= mine["consumeTimeStamp"] <= mine["maxTimeStamp"]
        assert len(mine["consumeTimeStampStr"]) == len(theirs["consumeTimeStampStr"])


@pytest.mark.parametrize("exchange", parameters("query", 321))
def test_rows_of_a_queue_are_shown_alike(
    live: MqcoreProcess, state: State, exchange: Exchange
) -> None:
    replay = Replay(exchange)
    wanted, topic = body_of(replay.expected), replay.fields["topic"]
    state.topic(topic, QUEUES)
    if int(replay.fields["queueId"]) < QUEUES:
        state.fill(topic, int(replay.fields["queueId"]), wanted["maxQueueIndex"] if wanted else 1)
    found = ask(live, replay)

    assert_alike(replay, found)
    ours = body_of(found)
    assert (ours is None) == (wanted is None)
    if wanted is not None:
        rows, theirs = ours.pop("queueData"), wanted.pop("queueData")
        assert [set(row) for row in rows] == [set(row) for row in theirs]
        positions = [row["physicOffset"] for row in rows]
        assert positions == sorted(set(positions))
        assert ours == wanted


@pytest.mark.parametrize("exchange", parameters("broker-admin", 315))
def test_statistics_that_are_not_kept_are_refused_alike(
    live: MqcoreProcess, exchange: Exchange
) -> None:
    replay = Replay(exchange)
    assert replay.expected is not None
    if replay.expected.code == 0:
        replay.request.ext = {**replay.fields, "statsName": "GROUP_GET_FROM_DISK_NUMS"}
        replay.frame = encode(replay.request)
        assert ask(live, replay).code == 1
    else:
        assert_alike(replay, ask(live, replay))


@pytest.mark.parametrize("exchange", parameters("route", 305))
def test_the_system_topics_are_the_same(live: MqcoreProcess, exchange: Exchange) -> None:
    replay = Replay(exchange)
    found = ask(live, replay)

    assert_alike(replay, found)
    assert_same_body(replay, found)


@pytest.mark.parametrize("exchange", parameters("slave-sync", 45))
def test_delay_offsets_have_the_recorded_form(live: MqcoreProcess, exchange: Exchange) -> None:
    replay = Replay(exchange)
    found = ask(live, replay)

    assert_alike(replay, found)
    assert set(body_of(found)) == {"offsetTable"}
    assert all(isinstance(level, int) for level in body_of(found)["offsetTable"])


@pytest.mark.parametrize("exchange", parameters("broker-admin", 25))
def test_settings_are_changed_alike(live: MqcoreProcess, exchange: Exchange) -> None:
    replay = Replay(exchange)
    found = ask(live, replay)

    if replay.request.body.startswith(b"brokerConfigPath"):
        differences.assert_known("fixed setting of the broker", replay.expected, found)
    else:
        assert_alike(replay, found)


@pytest.mark.parametrize("exchange", parameters("broker-admin", 26))
def test_settings_are_shown_under_stock_names(live: MqcoreProcess, exchange: Exchange) -> None:
    replay = Replay(exchange)
    found = ask(live, replay)

    assert_alike(replay, found, free=("version",))
    assert replay.expected is not None
    theirs, ours = (dict(line.split("=", 1) for line in side.body.decode().splitlines())
                    for side in (replay.expected, found))
    assert ours["brokerName"] == theirs["brokerName"] == "broker-a"
    own = {key for key in ours if "." in key}
    assert {key for key in set(ours) - own if ours[key]} <= set(theirs)
    assert len(set(ours) - own) >= 50


@pytest.mark.parametrize("exchange", parameters("broker-admin", 28))
def test_runtime_figures_have_their_recorded_names(
    live: MqcoreProcess, exchange: Exchange
) -> None:
    replay = Replay(exchange)
    found = ask(live, replay)

    assert_alike(replay, found)
    theirs, ours = body_of(replay.expected)["table"], body_of(found)["table"]
    of_a_level_or_path = {name for name in ours if name.startswith(
        ("scheduleMessageOffset_", "commitLogDiskRatio_"))}
    of_transactions = set(TRANSACTION_KEYS.values())
    assert not of_transactions & set(theirs)
    assert set(ours) - of_a_level_or_path - of_transactions <= set(theirs) | {
        "brokerActive", "getTransferredTps"}                                    # of 5.x
    assert all(isinstance(value, str) for value in ours.values())


ACCOUNT = {"AccessKey", "Signature", "OnsChannel"}       # the C++ client sends it in answers, too


def without_account(ext: Ext | None) -> Ext | None:
    return ext and {name: value for name, value in ext.items() if name not in ACCOUNT}


@pytest.mark.parametrize("exchange", parameters("to-client", 307, 309))
def test_a_consumer_is_asked_and_its_answer_passed_on(
    live: MqcoreProcess, state: State, exchange: Exchange
) -> None:
    replay = Replay(exchange)
    asked, wanted = replay.fields, replay.expected
    assert wanted is not None
    replay.expected = replace(wanted, ext=without_account(wanted.ext))
    state.topic("Directly", 1)
    position = int((state.message("Directly").ext or {})["msgId"][16:], 16)  # type: ignore[index]
    if "msgId" in asked:
        host, port = live.broker_addr.split(":")
        asked["msgId"] = offset_message_id(host, int(port), position)
        replay.request.ext = dict(asked)
        replay.frame = encode(replay.request)
    if asked["clientId"] == "nobody":
        assert_alike(replay, ask(live, replay))
        return
    with Peer(live.broker_addr) as tool, State(live.broker_addr) as member:
        member.consumer(asked["consumerGroup"], "Directly", client_id=asked["clientId"])
        tool.send(replay.frame)
        question = member.receive()
        assert question.code == exchange.code
        assert (question.ext or {}).items() >= (without_account(asked) or {}).items()
        assert not (question.ext or {}).keys() & ACCOUNT
        assert (question.body != b"") == (exchange.code == 309)
        member.send(encode(replace(wanted, opaque=question.opaque)))
        found = tool.answer_to(replay.request.opaque)
    assert_alike(replay, found)
    assert found.body == wanted.body
