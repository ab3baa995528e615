"""Tags, order, shared groups, broadcast, lookups by id: each client's ways of consuming."""
from __future__ import annotations

import itertools

import pytest

from tests.interop.ask import client_offsets, group_members, settled_offsets
from tests.interop.conftest import Cluster
from tests.interop.messages import (
    CLIENTS,
    Line,
    Message,
    assert_no_queue_twice,
    assert_same,
    message,
    mids,
    plain,
)
from tests.interop.runner import Programs, Run
from tests.interop.toolchain import SetupError, command_of, require_client
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)
QUEUES = 4
ORDERLY = ("java", "go", "cpp")             # ali-ons has no orderly consumer
BROADCAST = ("java", "go", "node")          # the C++ client starts at the end of each queue


def _available(clients: tuple[str, ...]) -> list[str]:
    return [one for one in clients if not isinstance(command_of(one), SetupError)]


def _create(programs: Programs, cluster: Cluster, topic: str) -> None:
    require_client("java")
    programs.java("create-topic", namesrv=cluster.namesrv_addr, topic=topic, queues=QUEUES)


# -- tags ------------------------------------------------------------------------------------------

TAGGED = [
    message(f"{tag}-{index}", f"{tag} {index}", tags=tag)
    for tag, index in itertools.product(("TagA", "TagB", "TagC", "标签", None), range(5))
]
# The Go client hashes the UTF-8 bytes of a tag instead of its UTF-16 units: no broker can match it.
WANTED_TAGS = {client: ("TagA", "TagC" if client == "go" else "标签") for client in CLIENTS}


def _wanted(client: str) -> list[Message]:
    return [one for one in TAGGED if one.get("tags") in WANTED_TAGS[client]]


@pytest.fixture(scope="module")
def tag_readers(cluster: Cluster, lasting_programs: Programs) -> dict[str, Run]:
    topic = f"tags-{cluster.kind}"
    _create(lasting_programs, cluster, topic)
    lasting_programs.produce("java", cluster.namesrv_addr, topic, TAGGED).finish()
    runs = {
        one: lasting_programs.consume(
            one, cluster.namesrv_addr, topic, f"{topic}-{one}", len(_wanted(one)),
            expression=" || ".join(WANTED_TAGS[one]))
        for one in _available(CLIENTS)
    }
    for run in runs.values():
        run.end()
    return runs


@pytest.mark.parametrize("client", CLIENTS)
def test_a_tag_expression_selects_the_messages_that_arrive(
    tag_readers: dict[str, Run], cluster: Cluster, client: str,
) -> None:
    require_client(client)
    run = tag_readers[client]

    assert run.process.returncode == 0, run.tail()
    assert_same(_wanted(client), run.lines, f"tags-{cluster.kind}")


# -- order -----------------------------------------------------------------------------------------

STEPS = 6


def _ordered(producer: str) -> list[Message]:
    return [
        message(f"{producer}-{shard}-{step}", "x", shard=shard)
        for step, shard in itertools.product(range(STEPS), range(QUEUES))
    ]


@pytest.fixture(scope="module")
def order_readers(cluster: Cluster, lasting_programs: Programs) -> dict[str, Run]:
    topic = f"order-{cluster.kind}"
    _create(lasting_programs, cluster, topic)
    sent = [_ordered(one) for one in _available(ORDERLY)]
    runs = [lasting_programs.produce(one, cluster.namesrv_addr, topic, lot)
            for one, lot in zip(_available(ORDERLY), sent, strict=True)]
    for run in runs:
        run.finish()
    readers = {
        one: lasting_programs.consume(one, cluster.namesrv_addr, topic, f"{topic}-{one}",
                                      sum(map(len, sent)), orderly=True)
        for one in _available(ORDERLY)
    }
    for run in readers.values():
        run.end()
    return readers


@pytest.mark.parametrize("client", ORDERLY)
def test_an_orderly_consumer_gets_each_queue_in_the_order_of_its_offsets(
    order_readers: dict[str, Run], client: str,
) -> None:
    require_client(client)
    run = order_readers[client]

    assert run.process.returncode == 0, run.tail()
    by_queue: dict[int, list[int]] = {}
    for line in run.lines:
        by_queue.setdefault(line["queueId"], []).append(line["offset"])
    assert by_queue == {queue: list(range(len(_available(ORDERLY)) * STEPS))
                        for queue in range(QUEUES)}


@pytest.mark.parametrize("producer", ORDERLY)
def test_messages_sent_to_one_queue_in_turn_are_stored_in_that_order(
    order_readers: dict[str, Run], producer: str,
) -> None:
    require_client("java")
    require_client(producer)
    lines = order_readers["java"].lines

    for shard in range(QUEUES):
        ours = [line for line in lines if line["properties"]["mid"].startswith(
            f"{producer}-{shard}-")]
        assert len({line["queueId"] for line in ours}) == 1
        assert mids(ours) == [f"{producer}-{shard}-{step}" for step in range(STEPS)]


# -- groups ----------------------------------------------------------------------------------------


def test_two_clients_of_one_group_share_the_queues_between_them(
    programs: Programs, cluster: Cluster,
) -> None:
    require_client("java")
    require_client("go")
    topic, group = f"shared-{cluster.kind}", f"sharers-{cluster.kind}"
    _create(programs, cluster, topic)
    sent = plain(f"shared-{index}" for index in range(40))
    share = len(sent) // 2              # the producer takes the queues in turn
    readers = [programs.consume(client, cluster.namesrv_addr, topic, group, share)
               for client in ("java", "go")]

    def shared() -> bool:
        held = list(map(set, client_offsets(cluster.broker_addr, group, topic).values()))
        return [len(one) for one in held] == [QUEUES // 2] * 2 and not held[0] & held[1]

    wait_until(shared, "two members with half of the queues each", timeout_s=60)

    programs.produce("java", cluster.namesrv_addr, topic, sent).finish()
    lines = [reader.finish() for reader in readers]

    assert_same(sent, [*lines[0], *lines[1]], topic)
    queues = [{line["queueId"] for line in part} for part in lines]
    assert [len(part) for part in queues] == [QUEUES // 2, QUEUES // 2]
    assert not queues[0] & queues[1]


@pytest.mark.slow
def test_the_members_left_over_take_the_queues_of_one_that_leaves(
    programs: Programs, cluster: Cluster,
) -> None:
    require_client("java")
    require_client("go")
    topic, group = f"leaving-{cluster.kind}", f"leavers-{cluster.kind}"
    _create(programs, cluster, topic)
    stays = programs.consume("java", cluster.namesrv_addr, topic, group, 8, timeout_s=100)
    wait_until(lambda: len(group_members(cluster.broker_addr, group)) == 1, "the one that stays")
    leaves = programs.consume("go", cluster.namesrv_addr, topic, group, 1, timeout_s=10)
    wait_until(lambda: len(group_members(cluster.broker_addr, group)) == 2,
               "two members of the group")
    leaves.end()
    wait_until(lambda: len(group_members(cluster.broker_addr, group)) == 1, "one member left")

    sent = plain(f"left-{index}" for index in range(8))
    programs.produce("java", cluster.namesrv_addr, topic, sent).finish()

    assert_same(sent, stays.finish(), topic)


def test_offsets_are_committed_up_to_the_end_when_a_consumer_stops(
    programs: Programs, cluster: Cluster,
) -> None:
    require_client("java")
    topic, group = f"commits-{cluster.kind}", f"committers-{cluster.kind}"
    _create(programs, cluster, topic)
    sent = [message(f"commit-{index}", "x", shard=index % QUEUES) for index in range(12)]
    programs.produce("java", cluster.namesrv_addr, topic, sent).finish()

    programs.consume("java", cluster.namesrv_addr, topic, group, 12).finish()

    offsets = set(settled_offsets(cluster.broker_addr, group, topic, range(QUEUES),
                                  dict.fromkeys(range(QUEUES), 3)).values())
    # the stock broker may lose one: FIRST_COMMITS_MAY_BE_LOST in test_send_and_consume.py
    assert offsets == {3} or (cluster.kind == "stock" and offsets == {3, 0})


# -- broadcast -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def broadcast_readers(cluster: Cluster, lasting_programs: Programs) -> list[Run]:
    """Two consumers of each client in one group that broadcasts."""
    topic = f"broadcast-{cluster.kind}"
    _create(lasting_programs, cluster, topic)
    sent = plain(f"broadcast-{index}" for index in range(8))
    lasting_programs.produce("java", cluster.namesrv_addr, topic, sent).finish()
    runs = [
        lasting_programs.consume(one, cluster.namesrv_addr, topic, f"broadcast-{one}", len(sent),
                                 broadcast=True)
        for one in _available(BROADCAST) for _ in range(2)
    ]
    for run in runs:
        run.end()
    return runs


@pytest.mark.parametrize("client", BROADCAST)
def test_every_consumer_of_a_broadcasting_group_gets_every_message(
    broadcast_readers: list[Run], client: str,
) -> None:
    require_client(client)
    expected = sorted(f"broadcast-{index}" for index in range(8))

    seen = [sorted(mids(run.lines)) for run in broadcast_readers if run.name.startswith(client)]

    assert seen == [expected, expected]


# -- looking up ------------------------------------------------------------------------------------


def test_a_message_is_found_by_the_offset_id_that_its_producer_was_given(
    programs: Programs, cluster: Cluster,
) -> None:
    require_client("java")
    topic = f"lookup-{cluster.kind}"
    sent = [message("by-id", "a body with ☃", tags="TagA", keys="key-1")]
    acknowledged = programs.produce("java", cluster.namesrv_addr, topic, sent).finish()

    found = programs.java("query", namesrv=cluster.namesrv_addr, topic=topic,
                          msgid=acknowledged[0]["offsetMsgId"])

    assert_same(sent, found, topic)
    assert found[0]["offset"] == acknowledged[0]["offset"]


def test_a_consumer_that_was_killed_gets_what_it_had_not_committed_and_what_is_new(
    programs: Programs, cluster: Cluster,
) -> None:
    require_client("java")
    topic, group = f"killed-{cluster.kind}", f"killed-readers-{cluster.kind}"
    sent = plain(f"killed-{index}" for index in range(12))
    programs.produce("java", cluster.namesrv_addr, topic, sent).finish()
    first = programs.consume("java", cluster.namesrv_addr, topic, group, 1000)
    wait_until(lambda: len(first.read_lines()) == 12, "twelve messages")
    first.stop()                # SIGKILL: the first commit by timer comes ten seconds after start
    wait_until(lambda: not group_members(cluster.broker_addr, group), "the broker noticed")
    first.end()
    committed = settled_offsets(cluster.broker_addr, group, topic, range(QUEUES))
    repeated = set(mids(line for line in first.lines
                        if line["offset"] >= committed[line["queueId"]]))
    new = plain(f"new-{index}" for index in range(4))
    programs.produce("java", cluster.namesrv_addr, topic, new).finish()
    expected = [one for one in [*sent, *new] if one in new or one["properties"]["mid"] in repeated]

    again: list[Line] = programs.consume("java", cluster.namesrv_addr, topic, group,
                                         len(expected)).finish()

    assert_same(expected, again, topic)
    assert_no_queue_twice(again)
