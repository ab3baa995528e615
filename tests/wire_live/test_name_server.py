"""Recorded requests to the name server, on the live embedded one and on `mqcore namesrv run`."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mqcore.wire import fastjson
from mqcore.wire.command import Command
from mqcore.wire.topics import DataVersion, TopicTable, encode_registration
from tests.support.mqcore_process import MqcoreProcess, mqcore_namesrv
from tests.support.recorded import Exchange
from tests.wire_live import differences
from tests.wire_live.peer import Peer
from tests.wire_live.replay import Replay, mismatches, parameters
from tests.wire_live.state import State

RECORDED_BROKER = "127.0.0.2:40911"
ORDER = "ORDER_TOPIC_CONFIG"


@pytest.fixture
def names(tmp_path: Path) -> Iterator[MqcoreProcess]:
    """A name server alone that knows nothing, for registrations of brokers that are not there."""
    with mqcore_namesrv(tmp_path) as running:
        yield running


def register(peer: Peer, broker_id: int, address: str, table: TopicTable) -> Command:
    return peer.ask(103, {
        "brokerName": "broker-a", "brokerAddr": address, "clusterName": "DefaultCluster",
        "brokerId": str(broker_id), "haServerAddr": "127.0.0.2:40912"}, encode_registration(table))


def put(peer: Peer, namespace: str, key: str, value: str) -> None:
    assert peer.ask(100, {"namespace": namespace, "key": key, "value": value}).code == 0


@pytest.mark.parametrize("exchange", parameters("registration", 103, 104, 322))
def test_a_recorded_registration_is_answered_alike(
    names: MqcoreProcess, exchange: Exchange
) -> None:
    replay = Replay(exchange, rename=False)
    wanted = replay.expected
    with Peer(names.namesrv_addr) as broker, Peer(names.namesrv_addr) as other:
        register(other, 0, RECORDED_BROKER, TopicTable(DataVersion(1, 1)))
        if exchange.code == 103 and wanted is not None and wanted.body:
            for key, value in fastjson.loads(wanted.body)["table"].items():
                put(other, ORDER, key, value)
        if exchange.code == 322:
            assert wanted is not None
            version = DataVersion.from_json(fastjson.loads(wanted.body))
            register(other, 1, replay.fields["brokerAddr"], TopicTable(version))
        broker.send(replay.frame)
        if wanted is None:
            assert broker.silent_for(0.05)
            return
        found = broker.answer_to(replay.request.opaque)

    assert mismatches(wanted, found) == {}
    theirs, ours = fastjson.loads(wanted.body or b"null"), fastjson.loads(found.body or b"null")
    assert ours == theirs


def prepare(live: MqcoreProcess, state: State, replay: Replay, code: int) -> None:
    fields = replay.fields
    with Peer(live.namesrv_addr) as peer:
        if code == 101 and fields["namespace"] == ORDER:
            put(peer, ORDER, fields["key"], "broker-a:4")
        elif code == 219 and replay.expected is not None and replay.expected.code == 0:
            for key, value in fastjson.loads(replay.expected.body)["table"].items():
                put(peer, ORDER, key, value)
    if code == 105 and replay.expected is not None and replay.expected.code == 0:
        topic = fields["topic"]
        if topic != "TBW102":
            state.topic(topic, 1)


def forget_order(live: MqcoreProcess, replay: Replay) -> None:
    with Peer(live.namesrv_addr) as peer:
        listed = peer.ask(219, {"namespace": ORDER})
        if listed.code == 0:
            for key in fastjson.loads(listed.body)["table"]:
                peer.ask(102, {"namespace": ORDER, "key": key})


@pytest.mark.parametrize("exchange", [
    *parameters("route", 105, 106, 206, 216, 219, 224, 304, 311, 312, 313),
    *parameters("namesrv-admin", 100, 101, 102, 205, 318, 319, 327),
])
def test_a_recorded_request_to_the_name_server_is_answered_alike(
    live: MqcoreProcess, state: State, exchange: Exchange
) -> None:
    replay = Replay(exchange)
    prepare(live, state, replay, exchange.code)
    try:
        with Peer(live.namesrv_addr) as peer:
            peer.send(replay.frame)
            found = peer.answer_to(replay.request.opaque)
    finally:
        forget_order(live, replay)

    assert replay.expected is not None
    different = mismatches(replay.expected, found, free=("wipeTopicCount", "addTopicCount"))
    subject = REMARKS.get((exchange.code, replay.expected.code))
    if subject is not None:
        differences.assert_known(subject, replay.expected, found)
        del different["remark"]
    assert different == {}
    compare_bodies(exchange.code, replay.expected.body, found.body, live.broker_addr)


REMARKS = {(105, 17): "no route", (318, 16): "fixed setting of the name server"}


def compare_bodies(code: int, theirs: bytes, ours: bytes, address: str) -> None:
    theirs = theirs.replace(RECORDED_BROKER.encode(), address.encode())
    if code == 319:
        missing = properties(theirs) - properties(ours)
        assert missing == differences.NAMESRV_SETTINGS_LEFT_OUT
    elif code == 304:
        assert set(fastjson.loads(ours)["topicList"]) == {"broker-a", "DefaultCluster"}
        assert set(fastjson.loads(ours)) == set(fastjson.loads(theirs))
    elif code in (206, 224):
        assert shape(fastjson.loads(ours)) == shape(fastjson.loads(theirs))
    elif code == 219 and theirs:
        assert fastjson.loads(ours) == fastjson.loads(theirs)
    else:
        assert ours == theirs


def properties(text: bytes) -> set[str]:
    return {line.partition("=")[0] for line in text.decode().splitlines()}


def shape(value: Any) -> Any:
    """Names and kinds of a JSON value: lists of names depend on the run."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted({str(shape(item)) for item in value})
    return type(value).__name__
