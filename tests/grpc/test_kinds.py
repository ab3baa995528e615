"""Topics that say their kind of messages, and what RocketMQ 5 says of groups."""
from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mqcore.client import Admin, Producer
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.grpc import SHAPES
from tests.grpc.caller import Caller, calling
from tests.grpc.frames import DATA, END_HEADERS, HEADERS, Frames, call_fields, frame
from tests.grpc.world import GrpcBroker, RestartedBroker
from tests.wire_live.peer import topic_fields
from tests.wire_live.state import State

KINDS = ("NORMAL", "FIFO", "DELAY", "TRANSACTION")
SYSTEM: dict[str, dict[str, Any]] = {
    "NORMAL": {"message_type": 1}, "FIFO": {"message_type": 2, "message_group": "group"},
    "DELAY": {"message_type": 3, "delivery_timestamp": {"seconds": 1}},
    "TRANSACTION": {"message_type": 4}}


@pytest.fixture
def state(live: GrpcBroker) -> Iterator[State]:
    with State(live.process.broker_addr) as one:
        yield one


def put_topic(state: State, name: str, attributes: str | None) -> tuple[int, str]:
    answer = state.ask(Code.UPDATE_AND_CREATE_TOPIC,
                       topic_fields(name, 2) | {"attributes": attributes})
    return answer.code, answer.remark or ""


def attributes_of(state: State, name: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(
        state.ask(Code.GET_TOPIC_CONFIG, {"topic": name}).body)["attributes"]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_takes_its_own_kind_only(
        live: GrpcBroker, caller: Caller, kind: str) -> None:
    topic = f"Only-{kind}"
    with Admin([live.process.namesrv_addr]) as admin:
        admin.create_topic(topic, queues=2, message_type=kind)
    for other in KINDS:
        status = caller.send(topic, b"body", **SYSTEM[other])["status"]
        if other == kind:
            assert status["code"] == 20000
        else:
            assert (status["code"], status["message"]) == (
                40014, "TopicMessageType validate failed, the expected type is "
                f"{kind}, but actual type is {other}")
    route = caller.unary("QueryRoute", "QueryRouteRequest", {"topic": {"name": topic}},
                         "QueryRouteResponse")
    assert {tuple(one["accept_message_types"]) for one in route["message_queues"]} == {
        (KINDS.index(kind) + 1,)}


def test_the_properties_say_the_kind_and_not_the_type(live: GrpcBroker, caller: Caller) -> None:
    with Admin([live.process.namesrv_addr]) as admin:
        admin.create_topic("Said", queues=2, message_type="NORMAL")
    assert caller.send("Said", b"body", message_type=3)["status"]["code"] == 20000
    status = caller.send("Said", b"body", message_type=1, message_group="g")["status"]
    assert status["code"] == 40014


def test_clients_of_4x_send_what_they_like(live: GrpcBroker, state: State) -> None:
    assert put_topic(state, "Ordered", "+message.type=FIFO")[0] == 0
    with Producer("Old", namesrv=live.process.namesrv_addr) as producer:
        producer.send("Ordered", b"plain")


@pytest.mark.parametrize("kind", [None, "+message.type=MIXED"])
def test_a_topic_without_a_kind_takes_all(
        state: State, caller: Caller, kind: str | None) -> None:
    topic = "Mixed" if kind else "Plain"
    assert put_topic(state, topic, kind)[0] == 0
    assert [caller.send(topic, b"body", **SYSTEM[one])["status"]["code"] for one in KINDS] == [
        20000] * 4


def test_attributes_change_by_name_and_stay_otherwise(state: State) -> None:
    assert put_topic(state, "Changing", "+message.type=FIFO,+cleanup.policy=DELETE")[0] == 0
    assert put_topic(state, "Changing", None)[0] == 0        # as a tool of 4.x says it
    assert attributes_of(state, "Changing") == {"message.type": "FIFO", "cleanup.policy": "DELETE"}
    assert put_topic(state, "Changing", "+message.type=DELAY,-cleanup.policy")[0] == 0
    assert attributes_of(state, "Changing") == {"message.type": "DELAY"}
    assert put_topic(state, "Changing", "-message.type")[0] == 0
    assert attributes_of(state, "Changing") == {}


@pytest.mark.parametrize("said", [
    "message.type=FIFO", "+message.type", "-message.type=FIFO", "+message.type=fifo",
    "+message.type=", "+unknown=1", "-unknown", "+message.type=FIFO,", "+cleanup.policy=COMPACTION",
    "+queue.type=BatchCQ"])
def test_attributes_that_are_refused(state: State, said: str) -> None:
    code, remark = put_topic(state, "Refused", said)
    assert code == 1
    assert "attributes" in remark
    assert state.ask(Code.GET_TOPIC_CONFIG, {"topic": "Refused"}).code == 17


# -- groups ----------------------------------------------------------------------------------------

EXPONENTIAL = {"type": "EXPONENTIAL",
               "exponentialRetryPolicy": {"initial": 2000, "max": 60_000, "multiplier": 3}}
STEPS = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1500, 3000]}}


def put_group(state: State, name: str, **members: object) -> tuple[int, str]:
    answer = state.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None,
                       json.dumps({"groupName": name, **members}).encode())
    return answer.code, answer.remark or ""


def settings_of(broker: GrpcBroker, group: str) -> dict[str, Any]:
    """The settings that Telemetry tells a push consumer of the group."""
    asked = SHAPES.encode("TelemetryCommand", {"settings": {
        "client_type": 2, "subscription": {"group": {"name": group}}}})
    with Frames(broker.address) as client:
        client.send(frame(HEADERS, call_fields("Telemetry", x_mq_client_id="c"),
                          flags=END_HEADERS, stream=1)
                    + frame(DATA, b"\0" + len(asked).to_bytes(4, "big") + asked, stream=1))
        answer = client.until(DATA, 1)
    assert answer is not None
    found: dict[str, Any] = SHAPES.decode("TelemetryCommand", answer[5:])["settings"]
    return found


def test_a_groups_policy_is_told_to_its_clients(live: GrpcBroker, state: State) -> None:
    assert put_group(state, "Policy", retryMaxTimes=4, consumeMessageOrderly=True,
                     groupRetryPolicy=EXPONENTIAL) == (0, "")
    said = settings_of(live, "Policy")
    assert said["subscription"]["fifo"] is True
    assert said["backoff_policy"] == {"max_attempts": 5, "exponential_backoff": {
        "initial": {"seconds": 2, "nanos": 0}, "max": {"seconds": 60, "nanos": 0},
        "multiplier": 3.0}}
    assert put_group(state, "Policy", consumeMessageOrderly=False, groupRetryPolicy=STEPS)[0] == 0
    said = settings_of(live, "Policy")
    assert not said["subscription"].get("fifo")
    assert said["backoff_policy"] == {"max_attempts": 17, "customized_backoff": {"next": [
        {"seconds": 1, "nanos": 500_000_000}, {"seconds": 3, "nanos": 0}]}}


def test_members_that_only_5x_knows_outlive_a_change_by_a_tool_of_4x(state: State) -> None:
    given = {"consumeMessageOrderly": True, "consumeTimeoutMinute": 7, "groupSysFlag": 1,
             "attributes": {"one": "two"}, "groupRetryPolicy": STEPS}
    assert put_group(state, "Kept", **given)[0] == 0
    assert put_group(state, "Kept", retryMaxTimes=3)[0] == 0
    table = json.loads(state.ask(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)
    found = table["subscriptionGroupTable"]["Kept"]
    assert {name: found[name] for name in given} == given
    assert found["retryMaxTimes"] == 3


@pytest.mark.parametrize("members", [
    {"consumeMessageOrderly": "yes"}, {"groupRetryPolicy": []},
    {"groupRetryPolicy": {"type": "OTHER"}},
    {"groupRetryPolicy": {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": []}}},
    {"groupRetryPolicy": {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [-1]}}},
    {"groupRetryPolicy": {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"multiplier": 0}}},
    {"attributes": {"x": "y" * 17_000}}])
def test_groups_that_are_refused(state: State, members: dict[str, object]) -> None:
    code, remark = put_group(state, "Unruly", **members)
    assert code == 1
    assert "body: " in remark
    assert state.ask(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body.count(b'"Unruly"') == 0


def test_kinds_and_members_outlive_a_restart(tmp_path: Path) -> None:
    broker = RestartedBroker(tmp_path)
    try:
        with State(broker.now.process.broker_addr) as state:
            assert put_topic(state, "Lasting", "+message.type=FIFO")[0] == 0
            assert put_group(state, "Lasting", consumeMessageOrderly=True)[0] == 0
        broker.restart()
        with calling(broker.now.address) as caller:
            assert caller.send("Lasting", b"body")["status"]["code"] == 40014
        assert settings_of(broker.now, "Lasting")["subscription"]["fifo"] is True
    finally:
        broker.stop()
