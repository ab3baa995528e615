"""Push consumers: where they start, their tags, batches and ways of sharing, on both brokers."""
from __future__ import annotations

import itertools
import time
from datetime import datetime
from functools import partial

import pytest

from tests.interop.ask import client_offsets, ends_of
from tests.interop.conftest import Cluster
from tests.interop.members import (
    FIRST,
    LAST,
    QUEUES,
    TIMESTAMP,
    Line,
    Members,
    keys_of,
    places_of,
    queued,
)
from tests.interop.worlds import Short, Starter
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)
CLIENTS = ("java", "go")


def _pair(members_of: Starter, client: str, namesrv_addr: str) -> tuple[Members, Members]:
    """The Java process, which creates and sends, and the one whose consumers are looked at."""
    java = members_of("java", namesrv_addr)
    return java, members_of(client, namesrv_addr)


# -- where a new group starts ----------------------------------------------------------------------


def _at_a_new_second() -> str:
    """
    consumeTimestamp of a second that has just begun: it counts whole ones. All of the second before
    lies between it and what was stored: store times may be some milliseconds ahead.
    """
    before = int(time.time()) + 1
    wait_until(lambda: int(time.time()) > before, "the second after the next")
    return datetime.now().strftime("%Y%m%d%H%M%S")


def _assert_without_gap(lines: list[Line], sent: list[Line]) -> None:
    """From the first message of each queue to the last one that was sent, once each."""
    end = {queue: max(one["offset"] for one in sent if one["queueId"] == queue)
           for queue in range(QUEUES)}
    begin = {queue: min(line["offset"] for line in lines if line["queueId"] == queue)
             for queue in range(QUEUES)}
    assert sorted(places_of(lines)) == [
        (queue, offset) for queue in range(QUEUES)
        for offset in range(begin[queue], end[queue] + 1)]


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
def test_a_new_group_starts_at_the_first_or_last_message_or_at_a_time(
    short_cluster: Short, members_of: Starter, client: str,
) -> None:
    java, members = _pair(members_of, client, short_cluster.namesrv_addr)
    topic = f"starts-{client}"
    java.create(topic)
    early = keys_of_sent(sent := java.send(topic, queued(f"early-{n}" for n in range(8))))
    timestamp = _at_a_new_second()
    sent += java.send(topic, queued(f"late-{n}" for n in range(8)))
    late = keys_of_sent(sent) - early
    models = list(itertools.product((FIRST, LAST, TIMESTAMP), (False, True)))
    names = {f"{topic}-{start}-{broadcast}": start for start, broadcast in models}
    for start, broadcast in models:
        name = f"{topic}-{start}-{broadcast}"
        members.push(name, topic, name, broadcast=broadcast, timestamp=timestamp,
                     **{"from": start})

    rounds = itertools.count()

    def all_began() -> bool:
        sent.extend(java.send(topic, queued(
            f"probe-{number}-{queue}" for number in (next(rounds),) for queue in range(QUEUES))))
        return all(
            {line["queueId"] for line in members.deliveries(topic, name)
             if str(line["keys"]).startswith("probe")} == set(range(QUEUES)) for name in names)

    wait_until(all_began, "each member has something of each queue")
    last = keys_of_sent(sent[-QUEUES:])
    for name, start in names.items():
        lines = members.wait_for(topic, last, member=name)
        _assert_without_gap(lines, sent)
        got = set(keys_of(lines))
        assert got & early == (early if start == FIRST else set()), name
        assert got & late == (set() if start == LAST else late), name
        members.ask("stop", name)


def keys_of_sent(sent: list[Line]) -> set[str]:
    return {one["key"] for one in sent}


def test_a_new_group_starts_at_the_beginning_of_a_young_topic_whatever_it_asks_for(
    cluster: Cluster, members_of: Starter,
) -> None:
    java = members_of("java", cluster.namesrv_addr)
    topic = f"young-{cluster.kind}"
    java.create(topic)
    sent = keys_of_sent(java.send(topic, queued(f"young-{n}" for n in range(8))))
    timestamp = _at_a_new_second()
    for start in (LAST, TIMESTAMP):
        java.push(f"young-{start}", topic, f"young-{start}", timestamp=timestamp,
                  **{"from": start})

    for start in (LAST, TIMESTAMP):
        lines = java.wait_for(topic, sent, member=f"young-{start}")
        assert sorted(keys_of(lines)) == sorted(sent)
        java.ask("stop", f"young-{start}")


# -- tags ------------------------------------------------------------------------------------------

COLLIDING = ("AaAa", "BBBB", "AaBB")        # one hash code
SENT_TAGS = (*COLLIDING, "TagA", "TagB", None)
KINDS = {                                   # orderly, broadcasting, members
    "concurrent": (False, False, 1), "orderly": (True, False, 1),
    "concurrent-broadcasting": (False, True, 2), "orderly-broadcasting": (True, True, 1),
}


@pytest.mark.parametrize("client", CLIENTS)
def test_every_kind_of_consumer_gets_its_tags_and_none_of_the_same_hash(
    cluster: Cluster, members_of: Starter, client: str,
) -> None:
    java, members = _pair(members_of, client, cluster.namesrv_addr)
    topic = f"kinds-{cluster.kind}-{client}"
    java.create(topic)
    tagged: list[Line] = [
        {"key": f"{tag}-{queue}-{step}", "tags": tag, "queue": queue}
        for step, tag, queue in itertools.product(range(3), SENT_TAGS, range(QUEUES))]
    java.send(topic, tagged)
    names = {f"{topic}-{kind}-{number}": kind
             for kind, (_, _, count) in KINDS.items() for number in range(count)}
    for name, kind in names.items():
        orderly, broadcast, _ = KINDS[kind]
        members.push(name, topic, f"{topic}-{kind}", expression="AaAa || TagA", orderly=orderly,
                     broadcast=broadcast)
    ends = java.send(topic, queued((f"end-{queue}" for queue in range(QUEUES)), tags="TagA"))
    wanted = [one["key"] for one in tagged if one["tags"] in ("AaAa", "TagA")]
    wanted += [one["key"] for one in ends]

    for name, kind in names.items():
        lines = members.wait_for(topic, wanted, member=name)
        assert sorted(keys_of(lines)) == sorted(wanted), name
        if KINDS[kind][0]:
            assert_in_order(lines)
        members.ask("stop", name)


def assert_in_order(lines: list[Line]) -> None:
    """Each queue's offsets only grow."""
    for queue in range(QUEUES):
        offsets = [line["offset"] for line in lines if line["queueId"] == queue]
        assert offsets == sorted(offsets)


def test_a_running_consumer_follows_its_new_tags(cluster: Cluster, members_of: Starter) -> None:
    java = members_of("java", cluster.namesrv_addr)
    topic = f"resubscribed-{cluster.kind}"
    java.create(topic)
    # The client leaves a heartbeat out while another one is under way: the next one repairs that.
    java.push("changing", topic, f"{topic}-readers", expression="TagA", heartbeats=1_000)
    for number, tag in enumerate(("TagA", "TagB", "TagC", "TagA")):
        java.ask("subscribe", "changing", topic=topic, expression=tag)
        _await_tag(java, topic, tag, f"probe-{number}")
        others = [other for other in ("TagA", "TagB", "TagC") if other != tag]
        for sent_tag in (*others, tag):         # the wanted ones last: all are looked at then
            keys = [f"{number}-{sent_tag}-{queue}" for queue in range(QUEUES)]
            java.send(topic, queued(keys, tags=sent_tag))
        lines = java.wait_for(topic, keys)
        assert sorted(key for key in keys_of(lines) if key.startswith(f"{number}-")) == keys
    java.ask("stop", "changing")


def _await_tag(java: Members, topic: str, tag: str, prefix: str) -> None:
    """
    Until each queue is pulled with the new tag. The client judges the answer of a pull by the tags
    that it had when it asked: what the last pull before the change brings may be dropped.
    """
    rounds = itertools.count()

    def all_came() -> bool:
        number = next(rounds)
        for sent_tag in ("TagA", "TagB", "TagC"):       # one of them wakes the pull
            java.send(topic, queued((f"{prefix}-{sent_tag}-{queue}-{number}"
                                     for queue in range(QUEUES)), tags=sent_tag))
        lines = java.deliveries(topic)
        return {line["queueId"] for line in lines
                if str(line["keys"]).startswith(f"{prefix}-{tag}-")} == set(range(QUEUES))

    wait_until(all_came, f"{tag} in each queue")


# -- batches ---------------------------------------------------------------------------------------

BATCH = 8


@pytest.mark.parametrize("client", CLIENTS)
def test_a_listener_gets_neighbours_of_one_queue_up_to_its_batch_size(
    cluster: Cluster, members_of: Starter, client: str,
) -> None:
    java, members = _pair(members_of, client, cluster.namesrv_addr)
    topic = f"batches-{cluster.kind}-{client}"
    java.create(topic)
    sent = java.send(topic, queued(f"batch-{n}" for n in range(QUEUES * 40)))
    keys = [one["key"] for one in sent]
    for orderly in (False, True):
        members.push(f"{topic}-{orderly}", topic, f"{topic}-{orderly}", batch=BATCH,
                     orderly=orderly)

    for orderly in (False, True):
        lines = members.wait_for(topic, keys, member=f"{topic}-{orderly}")
        assert sorted(keys_of(lines)) == sorted(keys)
        calls: dict[int, list[Line]] = {}
        for line in lines:
            calls.setdefault(line["call"], []).append(line)
        assert max(map(len, calls.values())) == BATCH
        for call in calls.values():
            assert len({line["queueId"] for line in call}) == 1
            offsets = [line["offset"] for line in call]
            assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
        members.ask("stop", f"{topic}-{orderly}")


# -- going on --------------------------------------------------------------------------------------


def _is_done_with(cluster: Cluster, group: str, topic: str, ends: dict[int, int]) -> bool:
    """Whether the one member's listener has returned for all messages below `ends`."""
    return list(client_offsets(cluster.broker_addr, group, topic).values()) == [ends]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_broadcasting_consumer_goes_on_where_it_stopped(
    cluster: Cluster, members_of: Starter, client: str,
) -> None:
    java, members = _pair(members_of, client, cluster.namesrv_addr)
    topic = f"rebroadcast-{cluster.kind}-{client}"
    group = f"{topic}-readers"
    java.create(topic)
    seen: list[str] = []
    for lot in ("first", "second"):
        keys = [f"{lot}-{number}" for number in range(2 * QUEUES)]
        java.send(topic, queued(keys))
        members.push(topic, topic, group, broadcast=True)
        seen += keys
        lines = members.wait_for(topic, keys)
        assert sorted(keys_of(lines)) == sorted(seen)
        wait_until(partial(_is_done_with, cluster, group, topic, ends_of(lines)), "all done with")
        members.ask("stop", topic)          # it keeps its offsets in a file of its own


def test_a_suspended_consumer_gets_nothing_until_it_is_resumed(
    cluster: Cluster, members_of: Starter,
) -> None:
    java = members_of("java", cluster.namesrv_addr)         # the Go client rests for 30 s
    topic = f"suspended-{cluster.kind}"
    control, suspended = f"{topic}-control", f"{topic}-member"
    java.create(topic)
    for name in (control, suspended):
        java.push(name, topic, f"{name}-readers")
    lots = {lot: [f"{lot}-{queue}" for queue in range(QUEUES)]
            for lot in ("before", "under-way", "waiting")}
    java.send(topic, queued(lots["before"]))
    java.wait_for(topic, lots["before"], member=suspended)
    java.ask("suspend", suspended)
    # Pulls that were under way may bring one answer more for each queue.
    for lot in ("under-way", "waiting"):
        java.send(topic, queued(lots[lot]))
        java.wait_for(topic, lots[lot], member=control)

    assert not set(lots["waiting"]) & set(keys_of(java.deliveries(topic, suspended)))
    java.ask("resume", suspended)
    wanted = [key for keys in lots.values() for key in keys]
    assert sorted(keys_of(java.wait_for(topic, wanted, member=suspended))) == sorted(wanted)
    for name in (control, suspended):
        java.ask("stop", name)
