"""A slave has its master's topics, groups and offsets; a broken answer changes nothing."""
from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mqcore.broker.following import (
    AnswerError,
    begin_delays,
    keep_delays,
    keep_transactions,
    read_delays,
    take_groups,
    take_offsets,
    take_topics,
)
from mqcore.broker.tables import config_file
from mqcore.broker.tables.groups import GroupConfig
from mqcore.broker.tables.own_offsets import OwnOffset, OwnOffsets
from mqcore.turns import finished
from mqcore.wire import fastjson
from mqcore.wire.command import decode
from mqcore.wire.topics import DataVersion, TopicConfig
from mqcore.workers.coordinator.shared_tables import SharedTables
from tests.broker.fakes import Bench, make_bench, settings_in, text_of
from tests.replication.test_slave_rules import SLAVE
from tests.store.harness import new_segment
from tests.support.recorded import exchanges

TOPIC = {"topic": "T", "defaultTopic": "TBW102", "readQueueNums": 3, "writeQueueNums": 2, "perm": 6,
         "topicFilterType": "MULTI_TAG", "topicSysFlag": 0, "order": "false"}


@pytest.fixture
def master(tmp_path: Path) -> Bench:
    return make_bench(settings_in(tmp_path / "master"))


@pytest.fixture
def slave(tmp_path: Path) -> Bench:
    return make_bench(settings_in(tmp_path / "slave", *SLAVE))


def commit(
    bench: Bench, offset: int, queue_id: int = 0, topic: str = "T", group: str = "G"
) -> None:
    assert bench.ask(15, {"consumerGroup": group, "topic": topic, "queueId": queue_id,
                          "commitOffset": offset}).code == 0


def take(slave: Bench, master: Bench, *, is_ours: bool = True) -> list[OwnOffset]:
    """One round of questions; is_ours: the master."""
    core = slave.broker.core
    finished(take_topics(core, text_of(master.ask(21))))
    finished(take_groups(core, text_of(master.ask(201))))
    return finished(take_offsets(core, text_of(master.ask(43)), is_ours=is_ours)).left


def tables(bench: Bench) -> tuple[Any, ...]:
    core = bench.broker.core
    return (core.topics.as_json(), core.groups.as_json(), core.offsets.as_json(),
            bench.tables.topics, bench.tables.groups)


def test_a_slave_has_the_masters_tables_with_their_versions(master: Bench, slave: Bench) -> None:
    master.ask(17, TOPIC)
    master.ask(200, None, {"groupName": "G", "whichBrokerWhenConsumeSlowly": 2})
    commit(master, 7)
    commit(master, 9, 1)

    assert take(slave, master) == []
    assert tables(slave) == tables(master)
    slave.broker.tick(slave.now_ms + 60_000)
    again = make_bench(slave.broker.core.settings)            # and from its files
    assert tables(again) == tables(master)


@pytest.mark.parametrize("removes", ["true", "false"])
def test_what_the_master_deletes_goes(master: Bench, slave: Bench, removes: str) -> None:
    master.ask(17, TOPIC)
    master.ask(200, None, {"groupName": "G"})
    commit(master, 7)
    take(slave, master)
    master.ask(207, {"groupName": "G", "removeOffset": removes})
    take(slave, master)

    assert "G" not in slave.tables.groups
    left = {} if removes == "true" else {0: 7}
    assert slave.broker.core.offsets.of_queues("G", "T") == left
    assert master.broker.core.offsets.of_queues("G", "T") == left


def test_a_former_master_has_the_tables_of_the_next_one(master: Bench, tmp_path: Path) -> None:
    """Behind a cut: removals, groups and offsets that only the former master had are undone."""
    folder = tmp_path / "former"
    former = make_bench(settings_in(folder))
    for bench in (former, master):
        for topic in ("T", "U"):
            bench.ask(17, {**TOPIC, "topic": topic})
        for group in ("G", "H"):
            bench.ask(200, None, {"groupName": group})
            commit(bench, 7, group=group)
    former.ask(207, {"groupName": "G", "removeOffset": "true"})
    former.ask(215, {"topic": "U"})
    former.ask(200, None, {"groupName": "NEW"})
    commit(former, 9, group="NEW")
    commit(former, 50, group="H")
    commit(former, 3, 1, group="H")
    former.broker.close()

    slave = make_bench(settings_in(folder, *SLAVE))
    assert slave.broker.core.offsets.of_queues("H", "T") == {0: 50, 1: 3}
    assert take(slave, master) == []
    core, theirs = slave.broker.core, master.broker.core
    assert core.groups.as_json() == theirs.groups.as_json()
    assert core.topics.as_json() == theirs.topics.as_json()
    assert core.offsets.as_json() == theirs.offsets.as_json()


def test_offsets_of_a_deleted_topic_go_and_those_of_others_stay(
    master: Bench, slave: Bench
) -> None:
    for topic in ("T", "U"):
        master.ask(17, {**TOPIC, "topic": topic})
        commit(master, 7, topic=topic)
        commit(master, 8, topic=topic, group="H")
    commit(master, 9, topic="%LMQ%L")
    take(slave, master)
    commit(slave, 11, group="OWN")             # while the master was away
    master.ask(215, {"topic": "T"})
    assert take(slave, master) == [OwnOffset("OWN", "T", 0, 11)]

    assert "T" not in slave.tables.topics
    for bench in (master, slave):
        offsets = bench.broker.core.offsets
        assert [offsets.of_queues(group, topic) for topic, group in (
            ("T", "G"), ("T", "H"), ("U", "G"), ("U", "H"), ("%LMQ%L", "G"))] == [
                {}, {}, {0: 7}, {0: 8}, {0: 9}]
    assert slave.broker.core.offsets.of_queues("OWN", "T") == {0: 11}


@pytest.mark.parametrize(("is_ours", "left"), [(True, {}), (False, {0: 7})])
def test_offsets_that_a_master_of_ours_has_no_more_go_and_those_of_a_stock_one_stay(
    master: Bench, slave: Bench, is_ours: bool, left: dict[int, int]
) -> None:
    master.ask(17, TOPIC)
    master.ask(200, None, {"groupName": "G"})
    commit(master, 7)
    take(slave, master, is_ours=is_ours)
    master.broker.core.offsets.remove_group("G")
    take(slave, master, is_ours=is_ours)
    assert slave.broker.core.offsets.of_queues("G", "T") == left


@pytest.mark.parametrize("again", [{}, {0: 0}], ids=["made again", "and consumed again"])
@pytest.mark.parametrize("what", ["topic", "group"])
def test_offsets_of_what_is_deleted_and_made_again_between_two_looks_go(
    master: Bench, slave: Bench, what: str, again: dict[int, int]
) -> None:
    master.ask(17, TOPIC)
    master.ask(200, None, {"groupName": "G"})
    commit(master, 7)
    commit(master, 8, 1)
    take(slave, master)
    commit(slave, 5, 2)                                       # while the master was away
    if what == "topic":
        master.ask(215, {"topic": "T"})
        master.ask(17, TOPIC)
    else:
        master.ask(207, {"groupName": "G", "removeOffset": "true"})
        master.ask(200, None, {"groupName": "G"})
    for queue_id, offset in again.items():
        commit(master, offset, queue_id)
    take(slave, master)
    assert slave.broker.core.offsets.of_queues("G", "T") == {**again, 2: 5}


def test_offsets_of_a_group_that_is_gone_stay_while_the_master_lacks_what_was_committed_here(
    master: Bench, slave: Bench
) -> None:
    master.ask(17, TOPIC)
    commit(master, 7)
    take(slave, master)
    commit(slave, 9)
    master.broker.core.offsets.remove_group("G")
    assert take(slave, master) == [OwnOffset("G", "T", 0, 9)]
    assert slave.broker.core.offsets.of_queues("G", "T") == {0: 9}


def test_offsets_go_back_with_the_masters(master: Bench, slave: Bench) -> None:
    commit(master, 7)
    take(slave, master)
    commit(master, 3)
    take(slave, master)

    assert slave.broker.core.offsets.of_queues("G", "T") == {0: 3}


def test_what_was_committed_at_the_slave_stays_until_the_master_has_it(
    master: Bench, slave: Bench
) -> None:
    commit(master, 7)
    commit(master, 7, 1)
    take(slave, master)
    commit(slave, 12)                                         # the master is away
    commit(slave, 5, 1)                                       # behind: the master's counts

    left = take(slave, master)
    assert left == [OwnOffset("G", "T", 0, 12)]
    assert slave.broker.core.offsets.of_queues("G", "T") == {0: 12, 1: 7}
    commit(master, 12)                                        # it was brought there
    assert take(slave, master) == []
    commit(master, 4)
    take(slave, master)
    assert slave.broker.core.offsets.of_queues("G", "T") == {0: 4, 1: 7}


def test_a_later_commit_is_not_settled_with_an_earlier_one(tmp_path: Path) -> None:
    own = OwnOffsets(tmp_path / "own.json")
    own.note("G", "T", 0, 5)
    (first,) = own.all()
    own.note("G", "T", 0, 6)
    own.remove(first)

    assert own.all() == [OwnOffset("G", "T", 0, 6)]


def test_commits_at_a_slave_are_noted_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqcore.broker.tables.own_offsets.OWN_COUNT_MAX", 2)
    own = OwnOffsets(tmp_path / "own.json")
    for queue_id in range(4):
        own.note("G", "T", queue_id, 1)
    own.note("G", "T", 0, 9)

    assert [(one.queue_id, one.offset) for one in own.all()] == [(0, 9), (1, 1)]


def test_a_slave_that_begins_anew_still_knows_what_is_its_own(master: Bench, slave: Bench) -> None:
    commit(master, 7)
    take(slave, master)
    commit(slave, 12)
    slave.broker.tick(slave.now_ms + 60_000)                  # saved; then it is killed
    again = make_bench(slave.broker.core.settings)

    assert take(again, master) == [OwnOffset("G", "T", 0, 12)]
    again.broker.core.own_offsets.remove(OwnOffset("G", "T", 0, 12))
    again.broker.close()
    assert len(make_bench(slave.broker.core.settings).broker.core.own_offsets) == 0


def test_a_file_of_its_own_that_cannot_be_used_stops_no_start(slave: Bench) -> None:
    folder = slave.broker.core.settings.config_dir
    folder.mkdir(exist_ok=True)
    for text in ("", "{", '{"offsetTable":{"T@G":7}}', '{"offsetTable":{"T@G":{0:9}}}'):
        (folder / "ownOffsets.json").write_text(text)
        again = make_bench(slave.broker.core.settings)
        assert len(again.broker.core.own_offsets) == ("9" in text)


def test_a_master_forgets_what_was_committed_to_it_as_a_slave(slave: Bench, tmp_path: Path) -> None:
    commit(slave, 12)
    slave.broker.close()
    folder = slave.broker.core.settings.config_dir
    assert (folder / "ownOffsets.json").exists()
    promoted = make_bench(settings_in(tmp_path / "slave"))

    assert not list(folder.glob("ownOffsets*"))
    assert promoted.broker.core.offsets.of_queues("G", "T") == {0: 12}


def test_a_master_of_ours_says_in_a_word_that_nothing_changed(master: Bench) -> None:
    for code in (21, 201):
        table = master.broker.core.topics if code == 21 else master.broker.core.groups
        known = master.ask(code, {"knownVersion": table.version.text})
        other = master.ask(code, {"knownVersion": "0@0"})

        assert (known.ext, text_of(known)) == ({"versionIsKnown": "true"}, b"")
        assert other.ext == {"versionIsKnown": "false"}
        assert text_of(other) == text_of(master.ask(code))


def test_offsets_have_a_version_for_slaves_of_ours(master: Bench) -> None:
    first = master.ask(43, {"knownVersion": ""}).ext
    commit(master, 7)
    changed = master.ask(43, {"knownVersion": first["tableVersion"]})
    same = master.ask(43, {"knownVersion": changed.ext["tableVersion"]})

    assert (changed.ext["versionIsKnown"], same.ext["versionIsKnown"]) == ("false", "true")
    assert text_of(changed) == text_of(master.ask(43))
    assert (text_of(same), master.ask(43).ext) == (b"", None)


def test_a_table_of_the_same_version_is_left_alone(master: Bench, slave: Bench) -> None:
    take(slave, master)
    body = master.broker.core.topics.as_json()
    body["topicConfigTable"]["X"] = TopicConfig("X").as_json()

    assert finished(take_topics(slave.broker.core, fastjson.dumps(body))) is False
    assert "X" not in slave.tables.topics


def table_of(**entries: Any) -> bytes:
    return fastjson.dumps({"dataVersion": {"counter": 99, "timestamp": 1},
                           "topicConfigTable": entries})


@pytest.mark.parametrize("body", [
    b"", b"{", b"[]", b"null", b"\xff", b'{"dataVersion":7}', table_of(),
    b'{"dataVersion":{"counter":9,"timestamp":9}}',
    b'{"dataVersion":{"counter":9},"topicConfigTable":[1]}',
    b'{"dataVersion":{"counter":"x"},"topicConfigTable":{"T":{}}}',
    table_of(T={}, U=7), table_of(T={}, U={"readQueueNums": -1}),
    table_of(T={}, U={"readQueueNums": 1 << 40}), table_of(T={}, U={"perm": []}),
    table_of(**{f"T{number}": {} for number in range(65)}),
])
def test_an_answer_that_cannot_be_used_changes_nothing(tmp_path: Path, body: bytes) -> None:
    slave = make_bench(settings_in(tmp_path, *SLAVE, "processes.topic_count_max=64"))
    before = tables(slave)
    with pytest.raises(AnswerError):
        finished(take_topics(slave.broker.core, body))

    assert tables(slave) == before


@pytest.mark.parametrize("body", [
    b"", b"[]", b'{"offsetTable":[]}', b'{"offsetTable":{"T@G":{"0":1},"U@G":7}}',
    b'{"offsetTable":{"T@G":{0:1},"U@G":{0:"x"}}}', b'{"offsetTable":{"T@G":{99999999999:1}}}',
    b'{"offsetTable":{"T@G":{0:1},"U@G":{0:99999999999999999999999}}}',
    b'{"offsetTable":{"T@G":{0:1},"' + b"x" * 300 + b'@G":{0:1}}}',
    b'{"offsetTable":{"T@G":{0:1}},"lmqOffsetTable":7}',
])
def test_offsets_that_cannot_be_used_change_nothing(slave: Bench, body: bytes) -> None:
    before = tables(slave)
    with pytest.raises(AnswerError):
        finished(take_offsets(slave.broker.core, body, is_ours=True))

    assert tables(slave) == before


@pytest.mark.parametrize("body", [
    b"", b"7", b'{"subscriptionGroupTable":{}}',
    b'{"dataVersion":{"counter":9},"subscriptionGroupTable":{"G":{"retryQueueNums":"x"}}}',
    b'{"dataVersion":{"counter":9},"subscriptionGroupTable":{"G":{"brokerId":1e99}}}',
    b'{"dataVersion":{"counter":9},"subscriptionGroupTable":{"G":7}}',
])
def test_groups_that_cannot_be_used_change_nothing(slave: Bench, body: bytes) -> None:
    before = tables(slave)
    with pytest.raises(AnswerError):
        finished(take_groups(slave.broker.core, body))

    assert tables(slave) == before


def test_a_name_that_no_folder_can_have_is_left_out(slave: Bench) -> None:
    finished(take_topics(slave.broker.core, table_of(**{"T": {}, "a/b": {}, "x" * 300: {}})))

    assert [topic.name for topic in slave.broker.core.topics.all()] == ["T"]
    assert slave.broker.core.topics.version == DataVersion(99, 1)


def test_groups_that_nobody_can_name_are_kept_and_not_shown(slave: Bench) -> None:
    finished(take_groups(slave.broker.core, fastjson.dumps({
        "dataVersion": {"counter": 9, "timestamp": 1},
        "subscriptionGroupTable": {"": {}, "x" * 300: {}, "G": {}}})))

    assert {group.name for group in slave.broker.core.groups.all()} == {"", "x" * 300, "G"}
    assert list(slave.tables.groups) == ["G"]


def delays(bench: Bench) -> Any:
    return config_file.load(bench.broker.core.settings.config_dir / "delayOffset.json")


SINCE = 700                      # a position of the slave's log, before it asked


def take_delays(slave: Bench, body: bytes) -> None:
    keep_delays(slave.broker.core, finished(read_delays(body, SINCE)))


def test_delay_offsets_are_kept_for_the_day_that_it_is_a_master(slave: Bench) -> None:
    take_delays(slave, b'{"offsetTable":{1:5,18:7}}')
    known = {"offsetTable": {1: 5, 18: 7}, "logPosition": SINCE, "delivered": {}}
    assert delays(slave) == known

    take_delays(slave, b'{"offsetTable":{},"logPosition":9,"timer":{"second":8,"queueOffset":7,'
                       b'"wheel":[1,2],"boot":"b"}}')
    timed = {"offsetTable": {}, "logPosition": 9, "delivered": {},
             "timer": {"second": 8, "queueOffset": 7}}
    assert delays(slave) == timed
    begin_delays(slave.broker.core)
    assert delays(slave) == timed

    take_delays(slave, b'{"offsetTable":{1:5,18:7}}')
    for body in (b"", b'{"offsetTable":{},"timer":{"second":-1,"queueOffset":0}}',
                 b'{"offsetTable":{},"timer":5}', b'{"offsetTable":{0:5}}',
                 b'{"offsetTable":{1:-5}}',
                 b'{"offsetTable":{1:{}}}', b'{"offsetTable":{},"logPosition":"x"}',
                 b'{"offsetTable":{},"logPosition":1,"delivered":{"1":7}}'):
        with pytest.raises(AnswerError):
            take_delays(slave, body)
    assert delays(slave) == known


def test_a_slave_of_ours_learns_from_where_on_the_log_knows_better(
    master: Bench, slave: Bench
) -> None:
    """So that after a promotion nothing is delivered twice that the log has."""
    stored = {"offsetTable": {1: 5}, "logPosition": 900, "delivered": {"1": [7, 8]}}
    config_file.save(master.broker.core.settings.config_dir / "delayOffset.json", stored)
    master.figures.delays = {1: 6}

    assert fastjson.loads(master.ask(45).body) == {"offsetTable": {1: 6}}        # for stock
    take_delays(slave, master.ask(45, {"knownVersion": ""}).body)
    assert delays(slave) == {"offsetTable": {1: 5}, "logPosition": 900,
                             "delivered": {"1": [7, 8]}}


def test_answers_of_a_stock_master_are_taken(slave: Bench) -> None:
    """As they were recorded of 4.9.8."""
    codes = (21, 201, 43, 45)
    bodies = {one.code: decode(one.response.payload).body for one in exchanges("slave-sync")
              if one.code in codes and one.response is not None}

    assert set(bodies) == set(codes)
    core = slave.broker.core
    finished(take_topics(core, bodies[21]))
    finished(take_groups(core, bodies[201]))
    keep_transactions(core, finished(take_offsets(core, bodies[43], is_ours=False)).transactions)
    take_delays(slave, bodies[45])
    for code, table in ((21, core.topics.as_json()), (201, core.groups.as_json()),
                        (43, fastjson.loads(fastjson.dumps(core.offsets.as_json())))):
        known = fastjson.loads(bodies[code])
        assert {name: known[name] for name in table} == table
    assert delays(slave)["offsetTable"] == fastjson.loads(bodies[45])["offsetTable"]


def test_light_offsets_are_taken_where_there_are_light_queues(tmp_path: Path) -> None:
    light = ("store.multi_dispatch_enable=true", "store.light_queues_enable=true")
    master = make_bench(settings_in(tmp_path / "m", *light))
    slave = make_bench(settings_in(tmp_path / "s", *SLAVE, *light))
    commit(master, 7, topic="%LMQ%q", group="%LMQ%g")

    assert finished(take_offsets(slave.broker.core, text_of(master.ask(43)),
                                 is_ours=True)).left == []
    assert slave.broker.core.offsets.committed("%LMQ%g", "%LMQ%q", 0) == 7


def test_a_changed_version_with_the_same_entries_publishes_nothing_anew(
    master: Bench, slave: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(slave, master)
    core = slave.broker.core
    body = core.topics.as_json()
    body["dataVersion"] = replace(core.topics.version, counter=500).as_json()
    published: list[str] = []
    monkeypatch.setattr(core.topics, "_publish", lambda topic: published.append(topic.name))
    finished(take_topics(core, fastjson.dumps(body)))

    assert published == []
    assert core.topics.version.counter == 500


def test_a_group_that_no_table_can_hold_goes_without_a_trace() -> None:
    """It was never shown; a master that deletes it must not end its slave's coordinator."""
    tables = SharedTables(new_segment(), settings_in(Path("unused"), *SLAVE))
    tables.publish_group(GroupConfig("G"))
    for name in ("", "x" * 300, "G", "G"):
        tables.remove_group(name)
