"""Recorded heartbeats, members, locks, offsets, look-ups and tables on a live broker."""
from __future__ import annotations

from typing import Any

import pytest

from mqcore.wire import fastjson
from mqcore.wire.command import Command, encode
from mqcore.wire.records import decode_record
from tests.support.mqcore_process import MqcoreProcess
from tests.support.recorded import Exchange
from tests.support.waiting import wait_until
from tests.wire_live import differences
from tests.wire_live.peer import Peer
from tests.wire_live.replay import Replay, mismatches, parameters
from tests.wire_live.state import State

QUEUES = 8
OFFSET_CODES = (14, 29, 30, 31, 32)
STOCK_TOPICS = (
    "TBW102", "SELF_TEST_TOPIC", "BenchmarkTest", "DefaultCluster", "broker-a",
    "OFFSET_MOVED_EVENT", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRACE_TOPIC",
    "DefaultCluster_REPLY_TOPIC",
)
STOCK_GROUPS = ("TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONSAPI_OWNER",
                "CID_ONSAPI_PERMISSION", "CID_ONSAPI_PULL", "CID_ONS-HTTP-PROXY")


def ask(live: MqcoreProcess, replay: Replay) -> Command:
    """Send a recorded request on a connection of its own to the port it was recorded at."""
    with Peer(live.broker_addr) as peer:
        peer.send(replay.frame)
        return peer.answer_to(replay.request.opaque)


def assert_alike(replay: Replay, found: Command, free: tuple[str, ...] = ()) -> None:
    assert replay.expected is not None
    assert mismatches(replay.expected, found, free) == {}


def body_of(command: Command | None) -> Any:
    assert command is not None
    return fastjson.loads(command.body) if command.body else None


@pytest.mark.parametrize("exchange", parameters("consumer", 34))
def test_a_recorded_heartbeat_makes_members_that_are_listed(
    live: MqcoreProcess, state: State, exchange: Exchange
) -> None:
    replay = Replay(exchange)
    with Peer(live.broker_addr) as client:
        client.send(replay.frame)
        found = client.answer_to(replay.request.opaque)
        assert_alike(replay, found)
        assert found.body == b""
        body = body_of(replay.request)
        for entry in body.get("consumerDataSet") or []:
            listed = state.ask(38, {"consumerGroup": entry["groupName"]})
            assert body_of(listed) == {"consumerIdList": [body["clientID"]]}


@pytest.mark.parametrize("exchange", parameters("consumer", 35))
def test_a_recorded_leave_takes_the_member_off_the_list(
    live: MqcoreProcess, state: State, exchange: Exchange
) -> None:
    replay = Replay(exchange)
    group = replay.fields.get("consumerGroup")
    with Peer(live.broker_addr) as client:
        if group:
            body = {"clientID": replay.fields["clientID"], "consumerDataSet": [
                {"groupName": group, "messageModel": "CLUSTERING", "subscriptionDataSet": []}]}
            client.ask(34, None, fastjson.dumps(body))
        client.send(replay.frame)
        assert_alike(replay, client.answer_to(replay.request.opaque))
        if group:
            assert state.ask(38, {"consumerGroup": group}).code == 1


@pytest.mark.parametrize("exchange", parameters("consumer", 38))
def test_members_are_listed_alike(
    live: MqcoreProcess, state: State, exchange: Exchange
) -> None:
    replay = Replay(exchange)
    members = (body_of(replay.expected) or {"consumerIdList": []})["consumerIdList"]
    for member in members:
        state.consumer(replay.fields["consumerGroup"], "TBW102", client_id=member)
    found = ask(live, replay)

    assert_alike(replay, found)
    assert body_of(found) == body_of(replay.expected)


def by_queue(queue: dict[str, Any]) -> tuple[str, int]:
    return queue["topic"], queue["queueId"]


@pytest.mark.parametrize("exchange", parameters("consumer", 41))
def test_queues_are_locked_alike(live: MqcoreProcess, state: State, exchange: Exchange) -> None:
    replay = Replay(exchange)
    body, granted = body_of(replay.request), body_of(replay.expected)["lockOKMQSet"]
    held = [queue for queue in body["mqSet"] if queue not in granted]
    state.ask(41, None, fastjson.dumps({**body, "clientId": "another", "mqSet": held}))
    found = ask(live, replay)

    assert_alike(replay, found)
    assert sorted(body_of(found)["lockOKMQSet"], key=by_queue) == sorted(granted, key=by_queue)


@pytest.mark.parametrize("exchange", parameters("consumer", 42))
def test_queues_are_unlocked_alike(live: MqcoreProcess, state: State, exchange: Exchange) -> None:
    replay = Replay(exchange)
    body = body_of(replay.request)
    state.ask(41, None, fastjson.dumps(body))
    found = ask(live, replay)
    other = state.ask(41, None, fastjson.dumps({**body, "clientId": "another"}))

    assert_alike(replay, found)
    granted = body_of(other)["lockOKMQSet"]
    assert sorted(granted, key=by_queue) == sorted(body["mqSet"], key=by_queue)


@pytest.mark.parametrize("exchange", parameters("consumer", 46))
def test_an_sql_expression_is_checked_alike(
    live: MqcoreProcess, exchange: Exchange
) -> None:
    replay = Replay(exchange)

    assert mismatches(replay.expected, ask(live, replay)) == {}


@pytest.mark.parametrize("exchange", parameters("offsets", *OFFSET_CODES))
def test_offsets_are_answered_alike(
    live: MqcoreProcess, state: State, exchange: Exchange
) -> None:
    replay = Replay(exchange)
    topic, queue_id = replay.fields["topic"], int(replay.fields["queueId"])
    state.topic(topic, QUEUES)
    count = int(replay.expected_fields["offset"]) if exchange.code == 30 else 3
    state.fill(topic, queue_id, count)
    found = ask(live, replay)

    assert_alike(replay, found, free=("timestamp",))
    if exchange.code == 32:
        first = state.stored(topic, queue_id)[0]
        assert (found.ext or {})["timestamp"] == str(first.store_timestamp_ms)


@pytest.mark.parametrize("exchange", parameters("offsets", 15))
def test_a_recorded_commit_can_be_read_back(
    live: MqcoreProcess, state: State, exchange: Exchange
) -> None:
    replay = Replay(exchange)
    fields = replay.fields
    state.topic(fields["topic"], QUEUES)
    with Peer(live.broker_addr) as client:
        client.send(replay.frame)
        if replay.request.is_oneway:
            assert client.silent_for(0.05)
        else:
            found = client.answer_to(replay.request.opaque)
            assert found.code == 0
            if replay.expected is not None:      # else its client had gone before the answer
                assert_alike(replay, found)
    wanted = int(fields["commitOffset"])
    wait_until(lambda: state.committed(fields["consumerGroup"], fields["topic"],
                                  int(fields["queueId"])) == wanted, f"offset {wanted} committed")


@pytest.mark.parametrize("exchange", parameters("query", 33))
def test_a_message_is_found_by_its_position_alike(
    live: MqcoreProcess, state: State, exchange: Exchange
) -> None:
    replay = Replay(exchange)
    assert replay.expected is not None
    recorded = decode_record(replay.expected.body)
    state.topic(recorded.topic, QUEUES)
    stored = state.again(recorded, recorded.topic, recorded.queue_id)
    position = int((stored.ext or {})["msgId"][16:], 16)      # type: ignore[index]
    replay.request.ext = {**replay.fields, "offset": str(position)}
    replay.frame = encode(replay.request)
    found = ask(live, replay)

    different = mismatches(replay.expected, found)
    if different.pop("codec", None):
        differences.assert_known("encoding of answers", replay.expected, found)
    assert (different, found.codec) == ({}, replay.request.codec)
    record = decode_record(found.body)
    assert (record.physical_offset, record.size) == (position, len(found.body))
    assert (record.topic, record.queue_id, record.body, record.body_crc, record.sys_flag) == (
        recorded.topic, recorded.queue_id, recorded.body, recorded.body_crc, recorded.sys_flag)
    assert set(record.properties.items()) == set(recorded.properties.items()) - {("WAIT", "true")}


@pytest.mark.parametrize("exchange", parameters("slave-sync", 21))
def test_the_table_of_topics_has_the_recorded_form(
    live: MqcoreProcess, exchange: Exchange
) -> None:
    replay = Replay(exchange)
    found = ask(live, replay)

    assert_alike(replay, found)
    theirs, ours = body_of(replay.expected), body_of(found)
    assert set(ours) == set(theirs)
    assert set(ours["dataVersion"]) == set(theirs["dataVersion"])
    for name in STOCK_TOPICS:
        assert ours["topicConfigTable"][name] == theirs["topicConfigTable"][name], name


@pytest.mark.parametrize("exchange", parameters("slave-sync", 201))
def test_the_table_of_groups_has_the_recorded_form(
    live: MqcoreProcess, exchange: Exchange
) -> None:
    replay = Replay(exchange)
    found = ask(live, replay)

    assert_alike(replay, found)
    theirs, ours = body_of(replay.expected), body_of(found)
    assert set(ours) == set(theirs)
    for name in STOCK_GROUPS:
        assert ours["subscriptionGroupTable"][name] == theirs["subscriptionGroupTable"][name], name


@pytest.mark.parametrize("exchange", parameters("slave-sync", 43))
def test_the_table_of_offsets_has_the_recorded_form(
    live: MqcoreProcess, state: State, exchange: Exchange
) -> None:
    replay = Replay(exchange)
    state.ask(15, {
        "consumerGroup": "TableGroup", "topic": "TBW102", "queueId": "3", "commitOffset": "7"})
    found = ask(live, replay)

    assert_alike(replay, found)
    assert set(body_of(found)) == {"offsetTable"}
    assert b'"TBW102@TableGroup":{3:7}' in found.body


@pytest.mark.parametrize("exchange", parameters("broker-admin", 17))
def test_topics_are_created_alike_and_have_a_route_at_once(
    live: MqcoreProcess, exchange: Exchange
) -> None:
    replay = Replay(exchange)
    found = ask(live, replay)

    assert_alike(replay, found)
    if found.code == 0:
        with Peer(live.namesrv_addr) as names:
            route = names.ask(105, {"topic": replay.fields["topic"]})
        (queues,) = body_of(route)["queueDatas"]
        assert (queues["brokerName"], queues["readQueueNums"], queues["writeQueueNums"]) == (
            "broker-a", int(replay.fields["readQueueNums"]), int(replay.fields["writeQueueNums"]))


@pytest.mark.parametrize("exchange", parameters("pull", 361))
def test_a_pull_of_later_releases_is_served_as_a_pull(
    live: MqcoreProcess, exchange: Exchange
) -> None:
    replay = Replay(exchange)
    with Peer(live.broker_addr) as peer:
        found = peer.ask(361, replay.fields)
        again = peer.ask(11, replay.fields)

    assert (found.code, found.remark, found.ext) == (again.code, again.remark, again.ext)
    assert found.code != 3
