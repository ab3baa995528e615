"""A slave refuses what its master alone may do, and answers everything else (ha.md 5)."""
from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from mqcore.broker.request import REDO
from mqcore.broker.requests.table import HANDLERS
from tests.broker.fakes import Bench, make_bench, settings_in

SLAVE = ("replication.role=slave", "broker.id=1", "broker.namesrv_addrs=127.0.0.1:1")
REFUSED = {10: 14, 310: 14, 320: 14, 37: 11, 17: 1, 215: 1, 200: 1, 207: 1, 36: 1, 323: 1, 370: 1}
# As on a master: questions, what is said of clients, and what concerns this broker alone.
AS_A_MASTER = set(map(int, HANDLERS)) - set(REFUSED)
SEND = {
    "producerGroup": "P", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
    "queueId": 0, "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "properties": "",
}


@pytest.fixture
def slave(tmp_path: Path) -> Bench:
    return make_bench(settings_in(tmp_path, *SLAVE))


def test_every_code_that_is_refused_is_answered_elsewhere() -> None:
    assert len(AS_A_MASTER) + len(REFUSED) == len(HANDLERS)


@pytest.mark.parametrize("code", sorted(REFUSED))
def test_what_stores_or_changes_a_table_is_refused_whatever_it_says(
    slave: Bench, code: int
) -> None:
    answers = [slave.ask(code, ext) for ext in (None, SEND, {"topic": "T", "groupName": "G"})]

    assert [answer.code for answer in answers] == 3 * [REFUSED[code]]
    assert all(answer.remark for answer in answers)
    assert slave.appender.appended == []
    assert "T" not in slave.tables.topics                     # nor is a topic made for a send


@pytest.mark.parametrize("code", sorted(AS_A_MASTER))
def test_other_requests_are_answered_as_by_a_master(
    slave: Bench, tmp_path: Path, code: int
) -> None:
    master = make_bench(settings_in(tmp_path / "master"))
    ours, theirs = slave.ask(code, {}), master.ask(code, {})

    assert getattr(ours, "code", None) == getattr(theirs, "code", None)
    assert getattr(ours, "remark", None) == getattr(theirs, "remark", None)


def test_the_remark_of_tables_is_stocks(slave: Bench) -> None:
    assert slave.ask(17, {"topic": "T"}).remark == (
        "Can't modify topic or subscription group from slave broker, please execute it from master"
        " broker.")


def test_a_reply_is_pushed_and_not_stored(slave: Bench) -> None:
    answer = slave.ask(324, {**SEND, "topic": "BenchmarkTest"})

    assert answer is None                                     # it goes out through the connection
    assert "push reply message fail" in (slave.connections.sent[0][1].remark or "")
    assert slave.appender.appended == []


def test_clients_make_groups_there_and_no_topics(slave: Bench) -> None:
    before = slave.broker.core.groups.version
    slave.heartbeat("G", {"T": 1})

    assert "G" in slave.tables.groups
    assert "%RETRY%G" not in slave.tables.topics
    assert slave.broker.core.groups.version == before         # the version is the master's


def test_an_offset_outside_the_queue_is_left_to_the_master(slave: Bench) -> None:
    """A serving process says 20 or waits; 21 would make the consumer skip what the master has."""
    topic = slave.broker.core.topics.all()[0].name
    slave.store.queues[topic, 0] = (5, 9)
    pull = {"consumerGroup": "G", "topic": topic, "queueId": 0, "queueOffset": 2, "maxMsgNums": 1,
            "sysFlag": 5, "commitOffset": 3, "suspendTimeoutMillis": 0, "subscription": "*",
            "subVersion": 0, "expressionType": "TAG"}

    assert slave.ask(11, pull) == REDO
    assert slave.appender.appended == []
    assert slave.broker.core.offsets.of_queues("G", topic) == {}


def test_ordered_topics_are_the_masters_word(slave: Bench) -> None:
    topic = slave.broker.core.topics.all()[0].name
    slave.broker.apply_order_table([topic], 5)

    found = slave.broker.core.topics.get(topic)
    assert found is not None
    assert not found.order


def test_offsets_ahead_of_the_log_stay(tmp_path: Path) -> None:
    """The log may still come; a master takes back what lies beyond its data."""
    settings = settings_in(tmp_path, *SLAVE)
    first = make_bench(settings)
    first.ask(15, {"consumerGroup": "G", "topic": "T", "queueId": 0, "commitOffset": 90})
    first.broker.close()

    again = make_bench(settings, {("T", 0): 50})
    assert again.broker.core.offsets.of_queues("G", "T") == {0: 90}
    master = make_bench(settings_in(tmp_path), {("T", 0): 50})
    assert master.broker.core.offsets.of_queues("G", "T") == {0: 50}


def test_a_slave_that_is_elected_takes_over_what_it_has(tmp_path: Path) -> None:
    settings = settings_in(
        tmp_path, "failover.enable=true", "replication.role=sync-master", "replication.listen=true",
        "broker.id=2", "broker.namesrv_addrs=127.0.0.1:1")
    bench = make_bench(replace(settings, follows=True))
    for topic, queue_id, end in (("BenchmarkTest", 0, 7), ("New", 0, 5), ("New", 2, 9),
                                 ("Deleted", 0, 5)):
        bench.queues.queues[topic, queue_id] = end
        bench.store.queues[topic, queue_id] = 0, end          # entry n lies at position 100 n
    assert bench.ask(15, {"consumerGroup": "G", "topic": "BenchmarkTest", "queueId": 0,
                          "commitOffset": 50}).code == 0
    assert bench.ask(17, {"topic": "Own"}).code == 1
    before = bench.broker.core.topics.version

    bench.broker.lead(replace(settings, follows=False), bench.now_ms)
    bench.broker.take_over_topics(500, bench.now_ms)

    core = bench.broker.core
    assert (core.settings.is_slave, core.settings.broker_id) == (False, 0)
    assert core.offsets.committed("G", "BenchmarkTest", 0) == 7
    assert core.topics.version != before
    made = core.topics.get("New")
    assert made is not None
    assert (made.read_queue_count, made.write_queue_count) == (3, 3)
    assert core.topics.get("Deleted") is None     # its messages are older than the table
    assert len(core.own_offsets) == 0
    bench.ask(10, {**SEND, "topic": "Made"})
    assert "Made" in bench.tables.topics
