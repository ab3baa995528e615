"""Consumer groups, offsets and queue locks keep their rules (broker.md 7.4, 7.5, 9.5)."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mqcore.broker.tables import config_file
from mqcore.broker.tables.groups import BUILT_IN, GroupConfig, GroupTable
from mqcore.broker.tables.locks import LockTable, Queue
from mqcore.broker.tables.offsets import OFFSET_BYTES, PAIR_BYTES, OffsetTable
from tests.broker.fakes import NOW_MS, Bench, FakeStore, FakeTables, settings_in


def groups(tmp_path: Path, *overrides: str, tables: FakeTables | None = None) -> GroupTable:
    tables = tables or FakeTables()
    table = GroupTable(
        settings_in(tmp_path, *overrides).broker, tmp_path / "subscriptionGroup.json",
        tables.publish_group, tables.remove_group,
    )
    table.load(NOW_MS)
    return table


def test_a_new_broker_has_the_built_in_groups(tmp_path: Path) -> None:
    tables = FakeTables()
    found = groups(tmp_path, tables=tables)

    assert {group.name for group in found.all()} == set(BUILT_IN) == set(tables.groups)


def test_an_unknown_group_is_made_with_defaults_once(tmp_path: Path) -> None:
    table = groups(tmp_path)

    assert table.find_or_create("G", NOW_MS) == GroupConfig("G")
    assert table.find_or_create("G", NOW_MS) is table.get("G")
    assert table.version.counter == 1


def test_without_auto_creation_only_system_groups_are_made(tmp_path: Path) -> None:
    table = groups(tmp_path, "broker.auto_create_group=false")

    assert table.find_or_create("G", NOW_MS) is None
    assert table.find_or_create("CID_RMQ_SYS_X", NOW_MS) == GroupConfig("CID_RMQ_SYS_X")


@pytest.mark.parametrize("name", ["", "x" * 256])
def test_a_name_that_fits_nowhere_makes_no_group(tmp_path: Path, name: str) -> None:
    assert groups(tmp_path).find_or_create(name, NOW_MS) is None


def test_groups_survive_a_restart(tmp_path: Path) -> None:
    table = groups(tmp_path)
    changed = GroupConfig("G", consume_enable=False, retry_queue_count=3, retry_times_max=2)
    table.update(changed, NOW_MS)
    table.persist()

    again = groups(tmp_path)
    assert again.get("G") == changed
    assert again.version == table.version
    assert again.delete("G", NOW_MS)
    assert not again.delete("G", NOW_MS)


def test_a_commit_is_returned_and_may_go_backwards(tmp_path: Path) -> None:
    offsets = OffsetTable(tmp_path / "consumerOffset.json")
    offsets.commit("G", "T", 0, 9)
    offsets.commit("G", "T", 0, 4)

    assert offsets.query("G", "T", 0, FakeStore()) == 4


def test_offsets_survive_a_restart_as_stock_text(tmp_path: Path) -> None:
    path = tmp_path / "consumerOffset.json"
    offsets = OffsetTable(path)
    offsets.commit("G", "T", 0, 9)
    offsets.commit("G", "T", 1, 7)
    offsets.persist()
    assert path.read_text() == '{\n\t"offsetTable":{\n\t\t"T@G":{0:9,1:7\n\t\t}\n\t}\n}'

    again = OffsetTable(path)
    again.load()
    assert again.committed("G", "T", 1) == 7
    assert not again.dirty


def test_quoted_queue_ids_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "o.json").write_text('{"offsetTable":{"T@G":{"0":5}}}')
    offsets = OffsetTable(tmp_path / "o.json")
    offsets.load()

    assert offsets.committed("G", "T", 0) == 5


@pytest.mark.parametrize(("bounds", "in_memory_from", "offset"), [
    (None, 0, 0),                    # no queue at all
    ((0, 0), 0, 0),                  # an empty one
    ((0, 50), 0, 0),                 # young: the first message is in memory
    ((0, 50), 1, None),              # its first message is only on the disk
    ((10, 50), 0, None),             # its first messages are gone
])
def test_a_new_group_starts_at_0_only_on_a_young_queue(
    tmp_path: Path, bounds: tuple[int, int] | None, in_memory_from: int, offset: int | None
) -> None:
    store = FakeStore(in_memory_from=in_memory_from)
    if bounds is not None:
        store.queues["T", 0] = bounds

    assert OffsetTable(tmp_path / "o.json").query("G", "T", 0, store) == offset


@pytest.mark.parametrize(("bounds", "in_memory_from"), [((0, 50), 1), ((10, 50), 0)])
def test_a_commit_of_0_is_an_offset_on_an_old_queue_too(
    tmp_path: Path, bounds: tuple[int, int], in_memory_from: int
) -> None:
    store = FakeStore(in_memory_from=in_memory_from)
    store.queues["T", 0] = bounds
    offsets = OffsetTable(tmp_path / "o.json")
    offsets.commit("G", "T", 0, 0)

    assert offsets.query("G", "T", 0, store) == 0


def test_offsets_beyond_the_end_of_a_queue_are_taken_back_to_it(tmp_path: Path) -> None:
    offsets = OffsetTable(tmp_path / "o.json")
    for queue_id, offset in enumerate((9, 10, 11, 5_000)):
        offsets.commit("G", "T", queue_id, offset)

    assert offsets.cut([("T", queue_id, 10) for queue_id in range(5)]) == 2
    assert offsets.of_queues("G", "T") == {0: 9, 1: 10, 2: 10, 3: 10}


def test_the_offsets_of_one_group_are_removed_alone(tmp_path: Path) -> None:
    offsets = OffsetTable(tmp_path / "o.json")
    offsets.commit("G", "T", 0, 1)
    offsets.commit("xG", "T", 0, 2)
    offsets.remove_group("G")

    assert offsets.committed("G", "T", 0) is None
    assert offsets.committed("xG", "T", 0) == 2


def test_a_full_offset_table_takes_known_queues_only(tmp_path: Path) -> None:
    offsets = OffsetTable(tmp_path / "o.json", PAIR_BYTES + OFFSET_BYTES + 8)

    assert offsets.commit("G", "T", 0, 1)
    assert not offsets.commit("H", "T", 0, 1)
    assert not offsets.commit("G", "T", 1, 1)
    assert offsets.commit("G", "T", 0, 2)
    offsets.remove_group("G")
    assert offsets.commit("H", "T", 0, 1)


def test_one_address_gets_half_of_the_room_that_it_finds(tmp_path: Path) -> None:
    offsets = OffsetTable(tmp_path / "o.json", 1 << 20)
    taken = [next(count for count in range(10_000)
                  if not offsets.commit(f"{source}{count}", "T", 0, 1, source))
             for source in ("10.0.0.1", "10.0.0.2", "10.0.0.3")]

    assert 1_000 < taken[0] < 1_200
    assert abs(taken[0] - 2 * taken[1]) < 9
    assert abs(taken[1] - 2 * taken[2]) < 9
    assert offsets.commit("10.0.0.10", "T", 0, 2, "10.0.0.1")
    assert offsets.commit("own", "T", 0, 1)


def test_offsets_are_asked_and_committed_by_request(bench: Bench) -> None:
    queue = {"consumerGroup": "G", "topic": "T", "queueId": 1}
    bench.store.queues["T", 1] = (10, 50)
    missing = bench.ask(14, queue)
    assert (missing.code, missing.ext) == (22, {})

    assert bench.ask(15, {**queue, "commitOffset": 30}).code == 0
    assert bench.ask(14, queue).ext == {"offset": "30"}
    assert bench.ask(15, queue).remark == (
        "header field commitOffset is missing: expected a whole number"
    )


def test_dirty_offsets_are_written_by_the_clock(bench: Bench) -> None:
    path = bench.broker.core.settings.config_dir / "consumerOffset.json"
    bench.broker.commit_offset("G", "T", 0, 5)
    bench.broker.tick(NOW_MS + 4_999)
    assert not path.exists()

    bench.broker.tick(NOW_MS + 5_000)
    assert config_file.load(path) == {"offsetTable": {"T@G": {0: 5}}}
    bench.broker.commit_offset("G", "T", 0, 6)
    bench.broker.tick(NOW_MS + 9_999)
    assert config_file.load(path) == {"offsetTable": {"T@G": {0: 5}}}
    bench.broker.tick(NOW_MS + 10_000)
    assert config_file.load(path) == {"offsetTable": {"T@G": {0: 6}}}


Q0, Q1 = Queue("T", "broker-a", 0), Queue("T", "broker-a", 1)


def test_a_lock_is_held_until_it_is_released_or_expires() -> None:
    locks = LockTable(60_000)
    assert locks.lock(1, "G", "a", [Q0, Q1], 0) == [Q0, Q1]
    assert locks.lock(1, "G", "b", [Q0, Q1], 1) == []
    assert locks.lock(1, "H", "b", [Q0], 1) == [Q0]

    locks.unlock("G", "b", [Q0])
    assert locks.lock(1, "G", "b", [Q0], 2) == []
    locks.unlock("G", "a", [Q0])
    assert locks.lock(1, "G", "b", [Q0, Q1], 3) == [Q0]

    assert locks.lock(1, "G", "b", [Q1], 60_000) == []
    assert locks.lock(1, "G", "b", [Q1], 60_001) == [Q1]


def test_a_renewed_lock_lives_on() -> None:
    locks = LockTable(60_000)
    locks.lock(1, "G", "a", [Q0], 0)
    locks.lock(1, "G", "a", [Q0], 50_000)

    assert locks.lock(1, "G", "b", [Q0], 110_000) == []
    locks.expire(110_001)
    assert locks.lock(1, "G", "b", [Q0], 110_001) == [Q0]


def test_a_clock_that_is_set_back_makes_no_lock_eternal() -> None:
    locks = LockTable(60_000)
    locks.lock(1, "G", "dead", [Q0], 10_000_000)

    assert locks.lock(1, "G", "b", [Q0], 9_950_000) == []
    assert locks.lock(1, "G", "b", [Q0], 1_000_000) == [Q0]


def test_a_connection_has_half_of_the_memory_for_locks_that_it_finds(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqcore.broker.tables.locks.LOCKS_BYTES_MAX", 100_000)
    locks = LockTable(60_000)
    many = [Queue("T", "broker-a", number) for number in range(200)]
    mine = locks.lock(1, "G", "a", many, 0)
    assert 50 < len(mine) < 100
    assert locks.lock(1, "G", "a", many, 1) == mine
    others = locks.lock(2, "H", "b", many, 1)
    assert len(mine) / 3 < len(others) < len(mine)

    locks.unlock("G", "a", many)
    locks.unlock("H", "b", many)
    assert locks.lock(2, "G", "b", many, 2) == mine
    assert locks.lock(1, "G", "a", many, 60_003) == mine       # those of 2 have expired


def test_locks_expire_behind_an_older_one_that_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqcore.broker.tables.locks.LOCKS_BYTES_MAX", 100_000)
    locks = LockTable(60_000)
    many = [Queue("T", "broker-a", number) for number in range(200)]
    locks.lock(1, "H", "a", [Q0], 0)
    held = locks.lock(2, "G", "b", many, 1)
    locks.lock(1, "H", "a", [Q0], 60_000)

    assert locks.lock(3, "K", "c", many, 60_002) == held
    assert locks.lock(4, "H", "d", [Q0], 60_002) == []


@pytest.mark.parametrize(("members", "remark"), [
    ({"clientId": "c" * 5_000}, "clientId has 5000 characters: expected at most 4096"),
    ({"brokerName": "b" * 256}, "brokerName has 256 characters: expected at most 255"),
    ({"queueId": 1 << 31}, "queueId: expected a number from"),
    ({"topic": "t" * 300}, "no topic may be called"),
])
def test_locks_with_names_that_no_table_should_remember_are_refused(
    bench: Bench, members: dict[str, Any], remark: str
) -> None:
    body: dict[str, Any] = {"consumerGroup": "G", "clientId": "c", "mqSet": [
        {"topic": "T", "brokerName": "b", "queueId": 0}]}
    (body if "clientId" in members else body["mqSet"][0]).update(members)
    answer = bench.ask(41, None, body)
    assert answer.code == 1
    assert remark in answer.remark


def test_the_queues_of_a_dead_client_go_to_another_after_the_stock_time(bench: Bench) -> None:
    queue = {"brokerName": "broker-a", "queueId": 0, "topic": "T"}
    body = {"consumerGroup": "G", "clientId": "dead", "mqSet": [queue]}
    bench.heartbeat("G", {"T": 1}, connection=1, client_id="dead")
    assert b'"queueId":0' in bench.ask(41, None, body, connection=1).body
    bench.broker.connection_closed(1)            # gone without a word: its lock stays

    other = {**body, "clientId": "alive"}
    bench.now_ms = NOW_MS + 60_000
    assert bench.ask(41, None, other, connection=2).body == b'{"lockOKMQSet":[]}'
    bench.now_ms += 1
    assert b'"queueId":0' in bench.ask(41, None, other, connection=2).body
    bench.ask(42, None, body, connection=2)      # the dead one's word counts no more
    assert b'"queueId":0' in bench.ask(41, None, other, connection=2).body
    assert bench.ask(41, None, body, connection=3).body == b'{"lockOKMQSet":[]}'


def test_locks_are_taken_and_released_by_request(bench: Bench) -> None:
    queue = {"brokerName": "broker-a", "queueId": 0, "topic": "T"}
    body = {"consumerGroup": "G", "clientId": "a", "mqSet": [queue]}
    granted = bench.ask(41, None, body)
    assert granted.body == b'{"lockOKMQSet":[{"brokerName":"broker-a","queueId":0,"topic":"T"}]}'

    other = {**body, "clientId": "b"}
    assert bench.ask(41, None, other).body == b'{"lockOKMQSet":[]}'
    assert bench.ask(42, None, body).code == 0
    assert bench.ask(41, None, other).body == granted.body
    refused = bench.ask(41, None, {**body, "mqSet": [{"topic": "T"}]})
    assert "expected topic, brokerName and queueId" in refused.remark
