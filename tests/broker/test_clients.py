"""Clients come by heartbeat, leave by request, silence or a closed connection (broker.md 7)."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mqcore.broker.tables.config_table import TablesFull
from mqcore.broker.tables.groups import GroupConfig
from mqcore.wire.topics import TopicConfig
from tests.broker.fakes import NOW_MS, Bench, make_bench, settings_in


def test_a_first_heartbeat_makes_the_group_and_its_retry_topic(bench: Bench) -> None:
    assert bench.heartbeat("G", {"T": 1}).code == 0

    assert bench.tables.groups["G"] == GroupConfig("G")
    assert bench.tables.topics["%RETRY%G"] == TopicConfig("%RETRY%G", 1, 1)
    assert bench.registrar.topics()[-1].count("%RETRY%G") == 1
    assert bench.registrar.registered[-1][1] is True


def test_members_are_told_when_one_joins_and_nobody_when_nothing_changed(bench: Bench) -> None:
    bench.heartbeat("G", {"T": 1}, connection=1)
    assert bench.connections.told() == [(1, "G")]
    bench.heartbeat("G", {"T": 1}, connection=1)
    assert bench.connections.told() == []

    bench.heartbeat("G", {"T": 1}, connection=2)
    assert bench.connections.told() == [(1, "G"), (2, "G")]


def test_a_topic_more_or_less_is_a_change_and_a_newer_version_is_none(bench: Bench) -> None:
    bench.heartbeat("G", {"T": 1})
    bench.connections.told()

    bench.heartbeat("G", {"T": 2})
    assert bench.connections.told() == []
    assert bench.tables.subscriptions["G", "T"][0].version_ms == 2
    bench.heartbeat("G", {"T": 1})
    assert bench.tables.subscriptions["G", "T"][0].version_ms == 2

    bench.heartbeat("G", {"T": 2, "U": 1})
    assert bench.connections.told() == [(1, "G")]
    bench.heartbeat("G", {"U": 1})
    assert bench.connections.told() == [(1, "G")]
    assert set(bench.tables.subscriptions) == {("G", "U")}


def test_every_heartbeat_overwrites_the_message_model_of_the_group(bench: Bench) -> None:
    bench.heartbeat("G", {"T": 1})
    assert bench.tables.subscriptions["G", "T"][1] == "CLUSTERING"

    bench.heartbeat("G", {"T": 1}, model=0)
    assert bench.tables.subscriptions["G", "T"][1] == "BROADCASTING"


def test_switches_of_broker_and_group_silence_the_notice(tmp_path: Path) -> None:
    silent = make_bench(settings_in(tmp_path / "a", "broker.notify_consumers_enable=false"))
    silent.heartbeat("G", {"T": 1})
    assert silent.connections.told() == []

    bench = make_bench(settings_in(tmp_path / "b"))
    bench.broker.core.groups.update(GroupConfig("G", notify_consumers_enable=False), NOW_MS)
    bench.heartbeat("G", {"T": 1})
    bench.heartbeat("H", {"T": 1})
    assert bench.connections.told() == [(1, "H")]


def test_the_members_of_a_group_are_listed(bench: Bench) -> None:
    nobody = bench.ask(38, {"consumerGroup": "G"})
    assert (nobody.code, nobody.ext) == (1, {})
    assert nobody.remark == "no consumer for this group, G"

    bench.heartbeat("G", {"T": 1}, connection=1, client_id="a")
    bench.heartbeat("G", {"T": 1}, connection=2, client_id="b")
    assert bench.ask(38, {"consumerGroup": "G"}).body == b'{"consumerIdList":["a","b"]}'


def test_who_leaves_is_forgotten_and_the_others_are_told(bench: Bench) -> None:
    bench.heartbeat("G", {"T": 1}, connection=1, client_id="a")
    bench.heartbeat("G", {"T": 1}, connection=2, client_id="b")
    bench.connections.told()

    left = bench.ask(35, {"clientID": "a", "consumerGroup": "G", "producerGroup": ""})
    assert (left.code, left.ext) == (0, {})
    assert bench.connections.told() == [(2, "G")]
    bench.broker.connection_closed(2)
    assert bench.connections.told() == []
    assert bench.ask(38, {"consumerGroup": "G"}).code == 1
    assert bench.tables.subscriptions == {}
    bench.broker.connection_closed(1)
    assert bench.connections.told() == []


def test_a_silent_client_is_dropped_after_120_seconds(bench: Bench) -> None:
    bench.heartbeat("G", {"T": 1}, connection=1)
    bench.now_ms = NOW_MS + 60_000
    bench.heartbeat("G", {"T": 1}, connection=2)
    bench.connections.told()

    bench.broker.tick(NOW_MS + 120_000)
    assert bench.connections.closed == []
    bench.broker.tick(NOW_MS + 130_000)
    assert bench.connections.closed == [1]
    assert bench.connections.told() == [(2, "G")]
    assert bench.broker.core.clients.members("G") == [2]


def test_all_clients_that_are_known_are_those_that_can_be_lost(bench: Bench) -> None:
    lost = [(1 << 48) | 5, (1 << 48) | 6]
    for connection in [*lost, 7]:
        bench.heartbeat("G", {"T": 1}, connection=connection)
    bench.connections.told()

    assert bench.broker.connections() == {*lost, 7}
    for connection in lost:
        bench.broker.connection_closed(connection)
    assert bench.broker.connections() == {7}
    assert bench.broker.core.clients.members("G") == [7]


def producer(bench: Bench, group: str, connection: int = 1) -> Any:
    return bench.ask(
        34, None, {"clientID": "p", "producerDataSet": [{"groupName": group}]},
        connection=connection,
    )


def test_a_producer_group_empties_with_its_connection_and_ends_with_unregister(
    bench: Bench
) -> None:
    producer(bench, "P")
    assert list(bench.broker.core.clients.producers["P"]) == [1]
    bench.broker.connection_closed(1)
    assert bench.broker.core.clients.producers == {"P": {}}

    producer(bench, "P", connection=2)
    bench.ask(35, {"clientID": "p", "producerGroup": "P"}, connection=2)
    assert bench.broker.core.clients.producers == {}


def test_one_connection_has_a_limit_of_groups(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqcore.broker.tables.clients.GROUPS_OF_A_CONNECTION_MAX", 2)
    assert [producer(bench, name).code for name in ("P", "Q", "R", "P")] == [0, 0, 1, 0]


def test_a_connection_has_half_of_the_places_for_subscriptions_that_it_finds(
    tmp_path: Path,
) -> None:
    bench = make_bench(settings_in(tmp_path, "processes.subscription_count_max=64"))

    def says(group: str, count: int, version: int, connection: int = 1) -> str | None:
        answer = bench.heartbeat(group, {f"T{n}": version for n in range(count)},
                                 connection=connection)
        assert answer.code == (0 if answer.remark is None else 1)
        return answer.remark

    assert "for the subscriptions of group G: 33 more" in (says("G", 33, 1) or "")
    assert says("G", 20, 1) is None
    assert says("H", 12, 1) is None
    assert says("H", 12, 2) is None                     # no more than before
    assert "group H: 1 more" in (says("H", 13, 3) or "")
    assert says("I", 16, 1, connection=2) is None       # half of what is left
    assert says("I", 17, 2, connection=2) is not None
    assert says("G", 10, 4) is None
    assert says("H", 14, 4) is None                     # what it gave back
    assert says("H", 15, 5) is not None
    assert says("G", 11, 5, connection=3) is None       # of another's group: in its own share
    bench.broker.connection_closed(1)
    assert says("G", 24, 6, connection=3) is None       # of the 48 that the second does not have
    assert says("G", 25, 7, connection=3) is not None


@pytest.mark.parametrize(("body", "remark"), [
    (b"", "body: expected HeartbeatData as a JSON object"),
    (b"{]", "body: "),
    (b"[]", "expected HeartbeatData as a JSON object"),
    (b"{}", "clientID is missing"),
    (b'{"clientID":"a","consumerDataSet":{}}', "consumerDataSet: expected an array of objects"),
    (b'{"clientID":"a","consumerDataSet":[{}]}', "groupName is missing"),
    (b'{"clientID":"a","consumerDataSet":[{"groupName":"G","subscriptionDataSet":[{}]}]}',
     "subscriptionData.topic is missing"),
    (b'{"clientID":"a","consumerDataSet":[{"groupName":"G","subscriptionDataSet":'
     b'[{"topic":"T","subVersion":"x"}]}]}', "subVersion is 'x'"),
])
def test_a_heartbeat_that_cannot_be_used_is_refused_with_the_reason(
    bench: Bench, body: bytes, remark: str
) -> None:
    answer = bench.ask(34, None, body)

    assert answer.code == 1
    assert remark in answer.remark


@pytest.mark.parametrize("sets", [
    '"consumerDataSet":null,"producerDataSet":null', '"producerDataSet":[]', '"x":1',
])
def test_null_and_absent_sets_are_empty(bench: Bench, sets: str) -> None:
    assert bench.ask(34, None, f'{{"clientID":"a",{sets}}}'.encode()).code == 0


def test_tag_codes_are_the_clients_own_or_follow_from_the_expression(bench: Bench) -> None:
    bench.heartbeat("G", {"T": 1}, expression="TagA || TagB")
    assert bench.tables.subscriptions["G", "T"][0].codes == {2598919, 2598920}

    bench.ask(34, None, {"clientID": "a", "consumerDataSet": [{
        "groupName": "H", "subscriptionDataSet": [
            {"topic": "T", "subString": "TagA", "codeSet": ["7"], "tagsSet": ["TagA"],
             "subVersion": "3"},
        ],
    }]}, connection=2)
    subscription = bench.tables.subscriptions["H", "T"][0]
    assert (subscription.codes, subscription.version_ms) == ({7}, 3)


def test_only_tag_expressions_pass_the_client_check_where_others_are_off(tmp_path: Path) -> None:
    bench = make_bench(settings_in(tmp_path, "broker.property_filter_enable=false"))
    body = {"clientId": "a", "group": "G", "subscriptionData": {
        "topic": "T", "subString": "a > 1", "expressionType": "SQL92"}}
    assert bench.ask(46, None, body).code == 1

    body["subscriptionData"] = {"topic": "T", "subString": "a", "expressionType": "TAG"}
    assert bench.ask(46, None, body).code == 0


LONG = "x" * 300_000


@pytest.mark.parametrize(("members", "remark"), [
    ({"clientID": LONG}, "clientID has 300000 characters: expected at most 4096"),
    ({"producerDataSet": [{"groupName": "p" * 256}]}, "has 256 characters: expected at most 255"),
    ({"subString": LONG}, "subString has 300000 characters: expected at most 131072"),
    ({"expressionType": LONG}, "expressionType has 300000 characters: expected at most 255"),
    ({"tagsSet": [LONG], "codeSet": [1], "subString": "x"}, "expected at most 131072 characters"),
])
def test_names_that_no_table_should_remember_are_refused(
    bench: Bench, members: dict[str, Any], remark: str
) -> None:
    beat: dict[str, Any] = {
        "clientID": "c", "producerDataSet": [{"groupName": "p" * 255}], "consumerDataSet": [{
            "groupName": "G", "subscriptionDataSet": [{"topic": "T", "subString": "*"}]}]}
    assert bench.ask(34, None, beat, connection=9).code == 0
    heartbeat = members.keys() & {"clientID", "producerDataSet"}
    (beat if heartbeat else beat["consumerDataSet"][0]["subscriptionDataSet"][0]).update(members)

    answer = bench.ask(34, None, beat)
    assert (answer.code, bench.broker.core.clients.members("G")) == (1, [9])
    assert remark in answer.remark


@pytest.fixture
def small_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """640 kB for what heartbeats say."""
    monkeypatch.setattr("mqcore.broker.tables.clients.CLIENTS_BYTES_MIN", 640_000)
    monkeypatch.setattr("mqcore.broker.tables.clients.BYTES_PER_SUBSCRIPTION", 0)
    return make_bench(settings_in(tmp_path / "store"))


def wide(bench: Bench, group: str, connection: int, topics: int) -> int:
    """The code of a heartbeat of some 10 kB for each topic."""
    return int(bench.heartbeat(
        group, {f"T{n}": 1 for n in range(topics)}, connection=connection,
        expression=" " * 9_500 + "x").code)


def test_a_connection_has_half_of_the_memory_for_heartbeats_that_it_finds(
    small_room: Bench
) -> None:
    for connection in range(1, 6):             # what was given back can be taken again
        assert wide(small_room, "G", connection, 25) == 0
        assert wide(small_room, "H", connection, 20) == 1
        assert wide(small_room, "G", connection, 25) == 0          # known ones go on
        assert wide(small_room, "H", connection + 100, 10) == 0    # and others have room
        assert wide(small_room, "I", connection + 100, 20) == 1
        small_room.broker.connection_closed(connection)
        small_room.ask(
            35, {"clientID": "", "consumerGroup": "H"}, connection=connection + 100)
    assert small_room.tables.subscriptions == {}


def test_a_groups_subscriptions_are_counted_once_and_for_a_member(small_room: Bench) -> None:
    for connection in range(1, 21):
        assert wide(small_room, "G", connection, 25) == 0
    small_room.broker.connection_closed(1)
    assert wide(small_room, "H", 1, 15) == 0
    small_room.broker.connection_closed(1)
    for connection in range(2, 21):
        assert small_room.broker.core.clients.members("G")[0] == connection
        small_room.broker.connection_closed(connection)
    assert wide(small_room, "H", 1, 25) == 0


def test_empty_producer_groups_have_a_limit_of_bytes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqcore.broker.tables.clients.EMPTY_GROUPS_BYTES_MAX", 1_000)
    for number in range(10):
        producer(bench, f"P{number}", connection=number)
        bench.broker.connection_closed(number)
    assert list(bench.broker.core.clients.producers) == ["P0", "P1", "P2"]

    producer(bench, "P1", connection=1)            # it is not empty: there is room for another
    producer(bench, "P9", connection=2)
    bench.broker.connection_closed(2)
    assert list(bench.broker.core.clients.producers) == ["P0", "P1", "P2", "P9"]


def test_a_producer_that_takes_another_client_id_is_not_found_by_the_old_one(
    bench: Bench
) -> None:
    for name in ("a", "b"):
        bench.ask(34, None, {"clientID": name, "producerDataSet": [{"groupName": "P"}]})
    clients = bench.broker.core.clients
    assert (clients.producer_connection("a"), clients.producer_connection("b")) == (None, 1)


def test_what_the_shared_tables_have_no_room_for_is_asked_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.heartbeat("G", {"T": 1, "U": 1})
    publish = bench.tables.publish_subscription

    def full(group: str, topic: str, *rest: Any) -> None:
        if topic in ("U", "V"):
            raise TablesFull("no room")
        publish(group, topic, *rest)

    monkeypatch.setattr(bench.broker.core.clients, "_publish", full)
    refused = bench.heartbeat("G", {"T": 2, "U": 2, "V": 2})
    assert (refused.code, refused.remark) == (1, "no room")
    clients = bench.broker.core.clients
    assert [getattr(clients.subscription("G", topic), "version_ms", None)
            for topic in "TUV"] == [2, 1, None]

    monkeypatch.setattr(clients, "_publish", publish)
    assert bench.heartbeat("G", {"T": 2, "U": 2, "V": 2}).code == 0
    assert {topic: one.version_ms for (_, topic), (one, _) in bench.tables.subscriptions.items()
            } == {"T": 2, "U": 2, "V": 2}
