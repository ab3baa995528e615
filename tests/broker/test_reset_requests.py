"""Offsets of connected and absent consumers are moved, copied and compared (broker.md 10.3)."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mqcore.wire import fastjson
from mqcore.wire.command import Command, response
from mqcore.wire.topics import TopicConfig
from tests.broker.fakes import NOW_MS, Bench, make_bench, settings_in

TIME_MS = 1_700_000_000_000
ADMIN = 9
OLD_VERSION = 27


@pytest.fixture
def moved(bench: Bench) -> Bench:
    """Topic T with two queues of 100 messages; group G stands at 40 and 60; half are older."""
    bench.broker.core.topics.update(TopicConfig("T", 2, 2), NOW_MS)
    for queue_id, offset in ((0, 40), (1, 60)):
        bench.store.queues["T", queue_id] = (0, 100)
        bench.store.by_time["T", queue_id, TIME_MS] = 50
        bench.broker.commit_offset("G", "T", queue_id, offset)
    return bench


def join(bench: Bench, *connections: int, version: int = 409) -> None:
    for connection in connections:
        bench.ask(34, None, {"clientID": f"client-{connection}", "consumerDataSet": [{
            "groupName": "G", "messageModel": "CLUSTERING", "subscriptionDataSet": [
                {"topic": "T", "subString": "*", "subVersion": 1}]}]},
            connection=connection, version=version)
    bench.connections.sent.clear()


def reset(bench: Bench, timestamp_ms: int = TIME_MS, *, force: bool = True, **changes: Any) -> Any:
    fields = {"topic": "T", "group": "G", "timestamp": timestamp_ms,
              "isForce": str(force).lower()} | changes
    return bench.ask(222, fields, connection=ADMIN)


def by_queue(body: bytes) -> dict[int, int]:
    table = fastjson.loads(body)["offsetTable"]
    pairs = [(key.as_dict(), offset) for key, offset in table.items()]
    assert {(key["topic"], key["brokerName"]) for key, _ in pairs} == {("T", "broker-a")}
    return {key["queueId"]: offset for key, offset in pairs}


@pytest.mark.parametrize(("timestamp_ms", "force", "wanted"), [
    (TIME_MS, True, {0: 50, 1: 50}),
    (TIME_MS, False, {0: 40, 1: 50}),               # back alone
    (-1, True, {0: 100, 1: 100}),                   # to the end
    (0, True, {0: 0, 1: 0}),
])
def test_every_consumer_of_the_group_is_told_where_to_go_on(
    moved: Bench, timestamp_ms: int, force: bool, wanted: dict[int, int]
) -> None:
    join(moved, 1, 2)
    answer = reset(moved, timestamp_ms, force=force)

    assert (answer.code, answer.remark) == (0, "not set any response code")
    assert by_queue(answer.body) == wanted
    assert [connection for connection, _ in moved.connections.sent] == [1, 2]
    for _, command in moved.connections.sent:
        assert (command.code, command.is_oneway, by_queue(command.body)) == (220, True, wanted)
        assert command.ext == {
            "topic": "T", "group": "G", "timestamp": str(timestamp_ms), "isForce": "false"}
    assert moved.broker.core.offsets.of_queues("G", "T") == {0: 40, 1: 60}


def test_no_offset_lies_beyond_the_data(moved: Bench) -> None:
    moved.store.by_time["T", 0, TIME_MS] = 200
    moved.store.by_time["T", 1, TIME_MS] = -5
    join(moved, 1)

    assert by_queue(reset(moved).body) == {0: 100, 1: 0}


@pytest.mark.parametrize("target", [39, 40, 41])
def test_without_force_no_queue_moves_forward_by_a_single_message(
    moved: Bench, target: int
) -> None:
    moved.store.by_time["T", 0, TIME_MS] = target
    join(moved, 1)

    assert by_queue(reset(moved, force=False).body)[0] == min(target, 40)


def test_a_group_that_is_not_connected_is_left_to_the_tool(moved: Bench) -> None:
    answer = reset(moved)

    assert answer.code == 206
    assert moved.ask(15, {"consumerGroup": "G", "topic": "T", "queueId": 0,
                          "commitOffset": 50}).code == 0
    assert moved.ask(14, {"consumerGroup": "G", "topic": "T", "queueId": 0}).ext == {"offset": "50"}


def test_a_reset_that_cannot_be_done_tells_nobody(moved: Bench) -> None:
    join(moved, 1)
    join(moved, 2, version=OLD_VERSION)

    assert "has version" in reset(moved).remark
    assert "topic U does not exist" in reset(moved, topic="U").remark
    assert "timestamp is missing" in moved.ask(222, {"topic": "T", "group": "G"}).remark
    moved.broker.core.topics.update(TopicConfig("T", 3, 3), NOW_MS)
    refusal = reset(moved)
    assert (refusal.code, refusal.remark) == (1, "THe consumer group <G> not exist")
    assert moved.connections.sent == []


# -- what consumers have in memory -----------------------------------------------------------------


def ask_status(bench: Bench, client: str = "") -> Any:
    return bench.ask(223, {"topic": "T", "group": "G", "clientAddr": client}, connection=ADMIN)


def told(bench: Bench) -> list[tuple[int, Command]]:
    return [each for each in bench.connections.sent if each[1].code == 221]


def status_answer(command: Command, offset: int) -> Command:
    key = fastjson.ObjectKey.of(brokerName="broker-a", queueId=0, topic="T")
    body = fastjson.dumps({"consumerTable": {}, "messageQueueTable": {key: offset}})
    return response(command, 0, body=body)


def final(bench: Bench) -> dict[str, dict[int, int]]:
    (_, command), = [each for each in bench.connections.sent if each[0] == ADMIN]
    assert command.code == 0
    table = fastjson.loads(command.body)["consumerTable"]
    return {client: {dict(key)["queueId"]: offset for key, offset in queues.items()}
            for client, queues in table.items()}


def test_the_offsets_of_all_members_come_when_the_last_has_answered(moved: Bench) -> None:
    join(moved, 1, 2)
    assert ask_status(moved) is None
    (_, first), (_, second) = told(moved)
    assert first.ext == {"topic": "T", "group": "G"}

    moved.broker.handle_response(2, status_answer(second, 7))
    assert [connection for connection, _ in moved.connections.sent] == [1, 2]
    moved.broker.handle_response(1, status_answer(first, 8))
    assert final(moved) == {"client-1": {0: 8}, "client-2": {0: 7}}


def test_members_that_fall_silent_leave_or_talk_nonsense_are_left_out(moved: Bench) -> None:
    join(moved, 1, 2, 3, 4, 5)
    ask_status(moved)
    commands = dict(told(moved))
    moved.broker.handle_response(1, status_answer(commands[1], 8))
    moved.broker.handle_response(2, response(commands[2], 1, "unknown group"))
    moved.broker.handle_response(3, response(commands[3], 0, body=b"{{"))
    moved.broker.connection_closed(4)
    moved.broker.tick(NOW_MS + 5_000)

    assert final(moved) == {"client-1": {0: 8}}


def test_one_client_alone_is_asked_if_named(moved: Bench) -> None:
    join(moved, 1, 2)
    ask_status(moved, "client-2")

    assert [connection for connection, _ in told(moved)] == [2]
    moved.connections.sent.clear()
    ask_status(moved, "nobody")
    assert final(moved) == {}


def test_a_group_without_members_has_no_status(moved: Bench) -> None:
    assert ask_status(moved).code == 1
    join(moved, 1, version=OLD_VERSION)
    assert ask_status(moved).code == 1


# -- whole tables ----------------------------------------------------------------------------------


def smallest(bench: Bench, left_out: str = "") -> dict[int, int]:
    answer = bench.ask(308, {"topic": "T", "compareGroup": "G", "filterGroups": left_out})
    table: dict[int, int] = fastjson.loads(answer.body)["correctionOffsets"]
    return table


def test_the_smallest_offset_of_all_groups_is_found_per_queue(moved: Bench) -> None:
    moved.broker.commit_offset("H", "T", 0, 70)
    moved.broker.commit_offset("H", "T", 1, 30)
    moved.broker.commit_offset("H", "other", 1, 1)
    assert smallest(moved) == {0: 40, 1: 30}

    assert smallest(moved, "H,X") == {0: 40, 1: 60}
    assert smallest(moved) == {0: 40, 1: 30}        # nothing was forgotten
    moved.store.queues["T", 1] = (35, 100)
    assert smallest(moved) == {0: 40, 1: 60}        # below the data does not count


def test_a_group_gets_anothers_offsets(moved: Bench) -> None:
    offsets = moved.broker.core.offsets
    moved.broker.core.topics.update(TopicConfig("U", 1, 1), NOW_MS)
    moved.broker.commit_offset("G", "U", 0, 3)
    moved.broker.commit_offset("G", "gone", 0, 3)
    moved.broker.commit_offset("new", "T", 5, 1)

    clone = {"srcGroup": "G", "destGroup": "new", "topic": "T", "offline": "true"}
    assert moved.ask(314, clone).code == 0
    assert offsets.of_queues("new", "T") == {0: 40, 1: 60}
    assert offsets.topics_of("new") == ["T"]
    moved.broker.commit_offset("new", "T", 0, 41)
    assert offsets.of_queues("G", "T") == {0: 40, 1: 60}
    moved.ask(314, clone | {"topic": ""})
    assert offsets.topics_of("new") == ["T", "U"]     # not X, which has no config


def test_topics_that_a_connected_group_does_not_read_are_cloned_only_as_if_it_were_not(
    moved: Bench
) -> None:
    moved.broker.core.topics.update(TopicConfig("U", 1, 1), NOW_MS)
    moved.broker.commit_offset("G", "U", 0, 3)
    join(moved, 1)
    clone = {"srcGroup": "G", "destGroup": "new", "topic": ""}
    moved.ask(314, clone)
    assert moved.broker.core.offsets.topics_of("new") == ["T"]

    moved.ask(314, clone | {"offline": "true"})
    assert moved.broker.core.offsets.topics_of("new") == ["T", "U"]


def test_a_full_table_takes_no_clone(moved: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moved.broker.core.offsets, "_bytes_max", 1)
    answer = moved.ask(314, {"srcGroup": "G", "destGroup": "new", "topic": "T"})

    assert (answer.code, "broker.consumer_offsets_bytes_max" in answer.remark) == (1, True)


def test_offsets_beyond_the_data_are_taken_back_at_the_start(tmp_path: Path) -> None:
    before = make_bench(settings_in(tmp_path))
    for queue_id, offset in ((0, 40), (1, 60), (2, 80)):
        before.broker.commit_offset("G", "T", queue_id, offset)
    before.broker.commit_offset("H", "T", 1, 50)
    before.broker.close()

    after = make_bench(settings_in(tmp_path), queues={("T", 0): 41, ("T", 1): 55})
    offsets = after.broker.core.offsets
    assert offsets.of_queues("G", "T") == {0: 40, 1: 55, 2: 80}
    assert offsets.of_queues("H", "T") == {1: 50}
    assert offsets.dirty
