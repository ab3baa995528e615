"""Listeners that fail or hang: redelivery on schedule, dead letters, on both brokers."""
from __future__ import annotations

import itertools

import pytest

from mqcore.wire.records import Record, decode_records
from tests.interop.ask import ask, committed_offset, has_route
from tests.interop.conftest import DELAY_LEVELS, Cluster
from tests.interop.members import QUEUES, Line, Members, first_commit, keys_of, queued
from tests.interop.worlds import Starter
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)
CLIENTS = ("java", "go")
DELAYS_MS = [1_000 * int(level.rstrip("s")) for level in DELAY_LEVELS.split()]
FIRST_LEVEL = 3                 # of a message that failed for the first time
TRIES_OF_2_RECONSUMPTIONS = {"java": 3, "go": 4}        # the Go client counts one more
LATE_MS_MAX = 3_000             # of a client's next pull and of a busy machine


def delay_ms(level: int) -> int:
    return DELAYS_MS[level - 1]


def _group_with_retry_route(
    cluster: Cluster, members: Members, java: Members, topic: str,
) -> str:
    """
    A group whose retry topic has a route before the test begins: a broker makes it at the first
    heartbeat, and clients look for new routes each 30 s.
    """
    group = f"{topic}-readers"
    java.create(topic)
    first_commit(cluster.broker_addr, group, topic)
    members.push(f"{topic}-early", topic, group)
    wait_until(lambda: has_route(cluster.namesrv_addr, f"%RETRY%{group}"), "a retry topic")
    members.ask("stop", f"{topic}-early")
    return group


def _dead_letters(cluster: Cluster, group: str) -> list[Record]:
    answer = ask(cluster.broker_addr, 11, {
        "consumerGroup": "LOOKER", "topic": f"%DLQ%{group}", "queueId": "0", "queueOffset": "0",
        "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subscription": "*", "subVersion": "0", "expressionType": "TAG"})
    return decode_records(answer.body) if answer.code == 0 else []


def _by_key(lines: list[Line]) -> dict[str, list[Line]]:
    found: dict[str, list[Line]] = {}
    for line in lines:
        found.setdefault(str(line["keys"]), []).append(line)
    return found


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("asked", [None, 2])
def test_a_failing_listener_gets_its_message_again_and_again_on_schedule(
    cluster: Cluster, members_of: Starter, client: str, asked: int | None,
) -> None:
    java = members_of("java", cluster.namesrv_addr)
    members = members_of(client, cluster.namesrv_addr)
    topic = f"schedule-{cluster.kind}-{client}-{asked}"
    group = _group_with_retry_route(cluster, members, java, topic)
    fails = 3 if asked is None else 1
    members.push(topic, topic, group, fails=fails, delayLevel=asked)
    keys = [f"failing-{number}" for number in range(QUEUES)]
    java.send(topic, queued(keys))

    wait_until(lambda: sum(line["accepted"] for line in members.deliveries(topic)) == len(keys),
               "all accepted in the end")
    for lines in _by_key(members.deliveries(topic)).values():
        assert [line["reconsumeTimes"] for line in lines] == list(range(fails + 1))
        assert [line["accepted"] for line in lines] == [False] * fails + [True]
        for times, (before, after) in enumerate(itertools.pairwise(lines)):
            due_ms = delay_ms(FIRST_LEVEL + times if asked is None else asked)
            waited_ms = after["seenAt"] - before["seenAt"]
            assert due_ms <= waited_ms <= due_ms + LATE_MS_MAX
    members.ask("stop", topic)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_listener_may_send_its_message_to_the_dead_letters_at_once(
    cluster: Cluster, members_of: Starter, client: str,
) -> None:
    java = members_of("java", cluster.namesrv_addr)
    members = members_of(client, cluster.namesrv_addr)
    topic = f"condemned-{cluster.kind}-{client}"
    group = _group_with_retry_route(cluster, members, java, topic)
    members.push(topic, topic, group, fails=-1, delayLevel=-1)
    keys = [f"condemned-{number}" for number in range(QUEUES)]
    java.send(topic, queued(keys))

    wait_until(lambda: len(_dead_letters(cluster, group)) == len(keys), "dead letters")
    letters = _dead_letters(cluster, group)
    assert sorted(str(letter.properties["KEYS"]) for letter in letters) == sorted(keys)
    assert {letter.reconsume_times for letter in letters} == {1}
    assert sorted(keys_of(members.deliveries(topic))) == sorted(keys)
    members.ask("stop", topic)


@pytest.mark.parametrize("client", CLIENTS)
def test_an_orderly_listener_that_fails_for_good_loses_its_message_to_the_dead_letters(
    cluster: Cluster, members_of: Starter, client: str,
) -> None:
    java = members_of("java", cluster.namesrv_addr)
    members = members_of(client, cluster.namesrv_addr)
    topic = f"orderly-failing-{cluster.kind}-{client}"
    group = _group_with_retry_route(cluster, members, java, topic)
    members.push(topic, topic, group, orderly=True, fails=-1, maxReconsume=2)
    keys = ["first", "second"]
    java.send(topic, queued(keys, queue=1))

    wait_until(lambda: len(_dead_letters(cluster, group)) == len(keys), "dead letters")
    letters = _dead_letters(cluster, group)
    assert [letter.properties["KEYS"] for letter in letters] == keys
    lines = members.deliveries(topic)
    assert [(line["keys"], line["reconsumeTimes"]) for line in lines] == [
        (key, times) for key in keys for times in range(TRIES_OF_2_RECONSUMPTIONS[client])]
    wait_until(lambda: committed_offset(cluster.broker_addr, group, topic, 1) == len(keys),
               "the queue went on")
    members.ask("stop", topic)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_message_whose_listener_hangs_is_sent_back_after_the_timeout(
    cluster: Cluster, members_of: Starter, client: str,
) -> None:
    java = members_of("java", cluster.namesrv_addr)
    members = members_of(client, cluster.namesrv_addr)
    topic = f"hanging-{cluster.kind}-{client}"
    group = _group_with_retry_route(cluster, members, java, topic)
    # The Java client counts whole minutes and looks as rarely: it is told to look when it hangs.
    # The Go client takes any time.
    members.push(topic, topic, group, hangsOn="stuck", consumeTimeout=1_000)
    java.send(topic, queued(["before", "stuck", "after"], queue=0))
    first = members.wait_for(topic, ["before", "stuck", "after"])
    if client == "java":
        java.ask("expire", topic)

    def came_again() -> bool:
        return keys_of(members.deliveries(topic)).count("stuck") == 2

    wait_until(came_again, "a second delivery while the first one hangs")
    again = _by_key(members.deliveries(topic))["stuck"][-1]
    before = _by_key(first)["stuck"][0]
    assert (before["reconsumeTimes"], again["reconsumeTimes"]) == (0, 1)
    assert again["seenAt"] - before["seenAt"] >= delay_ms(FIRST_LEVEL)
    # What was sent back holds the group up no longer, though its listener still hangs.
    java.send(topic, queued(["last"], queue=0))
    members.wait_for(topic, ["last"])
    wait_until(lambda: committed_offset(cluster.broker_addr, group, topic, 0) == 4,
               "all four are done with")
    members.ask("release", topic)
    members.ask("stop", topic)
