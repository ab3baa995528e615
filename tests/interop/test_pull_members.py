"""Pull consumers: Java's lite one, its older one and Go's, on both brokers."""
from __future__ import annotations

import pytest

from tests.interop.ask import committed_offset
from tests.interop.conftest import Cluster
from tests.interop.members import QUEUES, Line, Members, first_commit, keys_of, queued
from tests.interop.worlds import Starter
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)
EACH = 10                       # messages of each queue
POLL_MS = 500
BROKER_NAMES = {"mqcore": "mqcore-a", "stock": "stock-a"}


@pytest.fixture
def java(cluster: Cluster, members_of: Starter) -> Members:
    return members_of("java", cluster.namesrv_addr)


def _filled(java: Members, topic: str) -> list[Line]:
    java.create(topic)
    return java.send(topic, [
        {"key": f"{queue}-{number}", "queue": queue, "tags": "TagB" if number % 2 else "TagA"}
        for number in range(EACH) for queue in range(QUEUES)])


def _poll(members: Members, member: str, count: int) -> list[Line]:
    """Polls until `count` messages are there; one empty poll more shows that these are all."""
    found: list[Line] = []

    def enough() -> bool:
        found.extend(members.ask("poll", member, timeout=POLL_MS))
        return len(found) >= count

    wait_until(enough, f"{count} messages")
    return found + list(members.ask("poll", member, timeout=POLL_MS))


# -- lite pull -------------------------------------------------------------------------------------


def test_assigned_queues_are_read_from_where_they_are_sought(
    cluster: Cluster, java: Members,
) -> None:
    topic = f"assigned-{cluster.kind}"
    sent = _filled(java, topic)
    java.pull("assigned", topic, f"{topic}-readers", queues=[0, 2], autoCommit=False)

    lines = _poll(java, "assigned", 2 * EACH)
    assert sorted(keys_of(lines)) == sorted(one["key"] for one in sent if one["queueId"] in (0, 2))
    java.ask("seek", "assigned", queue=0, offset=7)
    assert keys_of(_poll(java, "assigned", 3)) == ["0-7", "0-8", "0-9"]
    java.ask("seek-to-begin", "assigned", queue=2)
    assert keys_of(_poll(java, "assigned", EACH)) == [f"2-{n}" for n in range(EACH)]
    java.ask("seek-to-begin", "assigned", queue=0)
    java.ask("seek-to-end", "assigned", queue=0)
    java.send(topic, queued(["0-after"], queue=0))
    assert keys_of(_poll(java, "assigned", 1))[-1] == "0-after"
    third = next(line for line in lines if line["keys"] == "2-3")
    at = java.ask("offset-at", "assigned", queue=2, timestamp=third["storedAt"])
    assert 0 <= at <= third["offset"]
    java.ask("seek", "assigned", queue=2, offset=at)
    assert keys_of(_poll(java, "assigned", EACH - at)) == [f"2-{n}" for n in range(at, EACH)]
    java.ask("assign", "assigned", queues=[1])
    lines = _poll(java, "assigned", EACH)
    assert sorted(keys_of(lines)) == sorted(f"1-{n}" for n in range(EACH))
    java.ask("stop", "assigned")


def test_assigned_queues_are_read_by_tag(cluster: Cluster, java: Members) -> None:
    topic = f"assigned-tags-{cluster.kind}"
    _filled(java, topic)
    java.pull("by-tag", topic, f"{topic}-readers", queues=[3], expression="TagB", autoCommit=False)

    assert keys_of(_poll(java, "by-tag", 5)) == [f"3-{n}" for n in range(1, EACH, 2)]
    java.ask("stop", "by-tag")


def _committed(cluster: Cluster, topic: str) -> list[int | None]:
    return [committed_offset(cluster.broker_addr, f"{topic}-readers", topic, queue)
            for queue in range(QUEUES)]


def _known_to(java: Members, member: str) -> list[int]:
    """The committed offsets as the client knows them."""
    return [java.ask("committed", member, queue=queue) for queue in range(QUEUES)]


def test_what_was_polled_is_committed_by_itself_and_not_read_again(
    cluster: Cluster, java: Members,
) -> None:
    topic = f"auto-{cluster.kind}"
    group = f"{topic}-readers"
    sent = _filled(java, topic)
    first_commit(cluster.broker_addr, group, topic)
    java.pull("auto", topic, group)
    lines = _poll(java, "auto", len(sent))
    assert sorted(keys_of(lines)) == sorted(one["key"] for one in sent)

    def committed() -> bool:
        assert java.ask("poll", "auto", timeout=POLL_MS) == []      # commits happen in polls
        return _known_to(java, "auto") == [EACH] * QUEUES

    wait_until(committed, "all offsets committed")
    java.ask("stop", "auto")            # tells the broker, as the timer does later
    wait_until(lambda: _committed(cluster, topic) == [EACH] * QUEUES, "all offsets kept")
    java.pull("auto", topic, group)
    wait_until(lambda: len(java.ask("held", "auto")) == QUEUES, "its queues again")
    java.send(topic, queued(["new"]))
    assert keys_of(_poll(java, "auto", 1)) == ["new"]
    java.ask("stop", "auto")


def test_only_what_is_committed_by_hand_is_not_read_again(cluster: Cluster, java: Members) -> None:
    topic = f"manual-{cluster.kind}"
    group = f"{topic}-readers"
    sent = _filled(java, topic)
    keys = sorted(one["key"] for one in sent)
    first_commit(cluster.broker_addr, group, topic)
    java.pull("manual", topic, group, autoCommit=False)
    assert sorted(keys_of(_poll(java, "manual", len(sent)))) == keys
    java.ask("stop", "manual")
    assert {offset or 0 for offset in _committed(cluster, topic)} == {0}

    java.pull("manual", topic, group, autoCommit=False)
    assert sorted(keys_of(_poll(java, "manual", len(sent)))) == keys
    java.ask("commit", "manual")
    assert _known_to(java, "manual") == [EACH] * QUEUES
    java.ask("stop", "manual")
    wait_until(lambda: _committed(cluster, topic) == [EACH] * QUEUES, "all offsets kept")


def test_a_paused_queue_waits_and_comes_whole_when_it_is_resumed(
    cluster: Cluster, java: Members,
) -> None:
    topic = f"paused-{cluster.kind}"
    _filled(java, topic)
    java.pull("pausing", topic, f"{topic}-readers")
    _poll(java, "pausing", QUEUES * EACH)
    java.ask("pause", "pausing", queues=[0, 1])
    # Pulls that were under way when it was paused may bring one answer more for each queue.
    java.send(topic, queued(f"under-way-{queue}" for queue in range(QUEUES)))
    under_way = keys_of(_poll(java, "pausing", 2))
    java.send(topic, queued(f"waiting-{queue}" for queue in range(QUEUES)))

    seen = [*under_way, *keys_of(_poll(java, "pausing", 2))]
    assert {"waiting-2", "waiting-3"} <= set(seen)
    assert not {"waiting-0", "waiting-1"} & set(seen)
    java.ask("resume", "pausing", queues=[0, 1])
    wanted = {f"{when}-{queue}" for when in ("under-way", "waiting") for queue in range(QUEUES)}
    seen += keys_of(_poll(java, "pausing", len(wanted) - len(seen)))
    assert sorted(seen) == sorted(wanted)
    java.ask("stop", "pausing")


# -- the older pull consumers ----------------------------------------------------------------------


def _broker_name(cluster: Cluster) -> str:
    return BROKER_NAMES[cluster.kind]


def test_the_older_pull_consumer_fetches_queues_pulls_by_tag_and_updates_offsets(
    cluster: Cluster, java: Members,
) -> None:
    topic = f"older-{cluster.kind}"
    _filled(java, topic)
    java.pull("older", topic, f"{topic}-readers", old=True)

    assert java.ask("queues", "older") == list(range(QUEUES))
    found = java.ask("take", "older", queue=1, expression="TagA", offset=2, count=3)
    assert (found["status"], found["min"], found["max"]) == ("FOUND", 0, EACH)
    assert keys_of(found["messages"]) == ["1-2", "1-4", "1-6"]
    assert found["next"] == 7
    nothing = java.ask("take", "older", queue=1, expression="TagC", offset=0, count=32)
    assert (nothing["status"], nothing["next"]) == ("NO_MATCHED_MSG", EACH)
    end = java.ask("take", "older", queue=1, expression="*", offset=EACH, count=32)
    assert (end["status"], end["next"]) == ("NO_NEW_MSG", EACH)
    beyond = java.ask("take", "older", queue=1, expression="*", offset=EACH + 5, count=32)
    assert (beyond["status"], beyond["next"]) == ("OFFSET_ILLEGAL", EACH)
    assert java.ask("offset-at", "older", queue=1, timestamp=0) == 0
    java.ask("update", "older", queue=1, offset=7)
    wait_until(lambda: java.ask("committed", "older", queue=1) == 7, "the offset is kept")
    java.ask("stop", "older")


def test_the_go_pull_consumer_pulls_from_where_it_is_told(
    cluster: Cluster, java: Members, members_of: Starter,
) -> None:
    go = members_of("go", cluster.namesrv_addr)
    topic = f"go-take-{cluster.kind}"
    group = f"{topic}-readers"
    _filled(java, topic)
    go.pull("taking", topic, group, expression="TagA")
    place = {"queue": 1, "broker": _broker_name(cluster)}

    found = go.ask("take", "taking", offset=2, count=3, **place)
    assert (found["status"], found["next"]) == ("FOUND", 7)
    assert (found["min"], found["max"]) == (0, EACH)
    beyond = go.ask("take", "taking", offset=EACH + 5, count=32, **place)
    assert (beyond["status"], beyond["next"]) == ("OFFSET_ILLEGAL", EACH)
    go.ask("stop", "taking")


def test_the_go_pull_consumer_polls_its_queues_and_goes_on_where_it_stopped(
    cluster: Cluster, java: Members, members_of: Starter,
) -> None:
    go = members_of("go", cluster.namesrv_addr)
    topic = f"go-poll-{cluster.kind}"
    group = f"{topic}-readers"
    sent = _filled(java, topic)
    first_commit(cluster.broker_addr, group, topic)
    go.pull("polling", topic, group)
    assert sorted(keys_of(_poll(go, "polling", len(sent)))) == sorted(one["key"] for one in sent)
    go.ask("stop", "polling")
    wait_until(lambda: _committed(cluster, topic) == [EACH] * QUEUES, "all offsets committed")
    java.send(topic, queued(f"new-{queue}" for queue in range(QUEUES)))
    go.pull("polling-again", topic, group)
    again = keys_of(_poll(go, "polling-again", QUEUES))
    assert sorted(again) == [f"new-{queue}" for queue in range(QUEUES)]
    go.ask("stop", "polling-again")
