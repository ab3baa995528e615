"""Failing consumers, dead letters, replies and moved offsets, with the Java client (issue 5)."""
from __future__ import annotations

from functools import partial

import pytest

from mqcore.wire.records import Record, decode_records
from tests.interop.ask import ask, committed_offset, group_members
from tests.interop.conftest import Cluster
from tests.interop.messages import assert_same, mids, plain
from tests.interop.runner import Programs
from tests.interop.toolchain import require_client
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)
FIRST_RETRY_S = 1               # of delay level 3 in conftest.py
ROUTE_REFRESH_S = 1             # of Consume.java: so late may it hear of the new retry topic
LATE_S_MAX = 30                 # of a machine that does much else
QUEUES = 4


def _create(programs: Programs, cluster: Cluster, topic: str) -> None:
    require_client("java")
    programs.java("create-topic", namesrv=cluster.namesrv_addr, topic=topic, queues=QUEUES)


def _queue(cluster: Cluster, topic: str, queue_id: int = 0) -> list[Record]:
    """The messages of a queue."""
    answer = ask(cluster.broker_addr, 11, {
        "consumerGroup": "LOOKER", "topic": topic, "queueId": str(queue_id), "queueOffset": "0",
        "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subscription": "*", "subVersion": "0", "expressionType": "TAG"})
    return decode_records(answer.body) if answer.code == 0 else []


@pytest.mark.slow
def test_a_message_that_fails_always_comes_again_on_schedule_and_then_is_a_dead_letter(
    programs: Programs, cluster: Cluster,
) -> None:
    topic = f"failing-{cluster.kind}"
    group = f"{topic}-readers"
    _create(programs, cluster, topic)
    sent = plain(f"failing-{index}" for index in range(3))
    programs.produce("java", cluster.namesrv_addr, topic, sent).finish()
    reader = programs.consume("java", cluster.namesrv_addr, topic, group, 1, timeout_s=90,
                              reject_always=True, max_reconsume=1)
    dead = f"%DLQ%{group}"
    wait_until(lambda: len(_queue(cluster, dead)) == len(sent), "dead letters", timeout_s=80)
    lines = reader.read_lines()
    reader.stop()

    assert sorted(mids(lines)) == sorted(mids(sent) * 2)
    for mid in mids(sent):
        first, again = (line for line in lines if line["properties"]["mid"] == mid)
        assert (first["reconsumeTimes"], again["reconsumeTimes"]) == (0, 1)
        assert (first["topic"], again["topic"]) == (topic, topic)
        waited_s = (again["seenAt"] - first["seenAt"]) / 1000
        assert FIRST_RETRY_S <= waited_s <= FIRST_RETRY_S + ROUTE_REFRESH_S + LATE_S_MAX
    letters = _queue(cluster, dead)
    assert sorted(letter.properties["mid"] for letter in letters) == sorted(mids(sent))
    assert {letter.reconsume_times for letter in letters} == {2}
    assert {letter.properties["RETRY_TOPIC"] for letter in letters} == {topic}


@pytest.mark.slow
@pytest.mark.parametrize("extra_bytes", [0, 1 << 20, (4 << 20) - (1 << 14)])
def test_requests_get_their_replies_also_large_ones(
    programs: Programs, cluster: Cluster, extra_bytes: int,
) -> None:
    topic = f"requests-{extra_bytes}-{cluster.kind}"
    _create(programs, cluster, topic)

    lines = programs.java("request", namesrv=cluster.namesrv_addr, topic=topic,
                          group=f"{topic}-repliers", count=3, extra_bytes=extra_bytes)

    assert [(line["reply"], line["extraIsWhole"]) for line in lines] == [
        (f"request {index}"[::-1], True) for index in range(3)]


@pytest.mark.slow
def test_a_connected_group_goes_on_where_it_is_told_to(
    programs: Programs, cluster: Cluster,
) -> None:
    topic = f"moved-{cluster.kind}"
    group = f"{topic}-readers"
    _create(programs, cluster, topic)
    sent = plain(f"moved-{index}" for index in range(8))
    programs.produce("java", cluster.namesrv_addr, topic, sent).finish()
    reader = programs.consume("java", cluster.namesrv_addr, topic, group, 2 * len(sent),
                              timeout_s=90)
    wait_until(partial(_has_committed, cluster, group, topic, len(sent)), "commits", timeout_s=40)
    assert len(group_members(cluster.broker_addr, group)) == 1
    answer = ask(cluster.broker_addr, 222, {
        "topic": topic, "group": group, "timestamp": "0", "isForce": "true"})
    assert answer.code == 0, answer.remark

    assert_same(sent * 2, reader.finish(), topic)
    wait_until(partial(_has_committed, cluster, group, topic, len(sent)), "the last commits")


def _has_committed(cluster: Cluster, group: str, topic: str, count: int) -> bool:
    offsets = [committed_offset(cluster.broker_addr, group, topic, queue_id)
               for queue_id in range(QUEUES)]
    return None not in offsets and sum(offset or 0 for offset in offsets) == count
