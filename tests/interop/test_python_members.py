"""Our consumers in one group with Java's and Go's: shares, locks, offsets, on both brokers."""
from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from mqcore.client import AsyncAdmin, AsyncLitePullConsumer, AsyncPushConsumer, ReceivedMessage
from tests.interop.ask import client_offsets, committed_offset
from tests.interop.conftest import Cluster
from tests.interop.consuming import QUEUES, Notes, fresh, names, run, send
from tests.interop.members import LAST, Members, first_commit, keys_of
from tests.interop.worlds import Starter
from tests.support.waiting import wait_until_async

pytestmark = pytest.mark.timeout(300)
CLIENTS = pytest.mark.parametrize("client", ["java", "go"])


def own_queues(consumer: AsyncPushConsumer | AsyncLitePullConsumer, topic: str) -> set[int]:
    queues = consumer.assignment
    return {queue.queue_id for queue in (queues() if callable(queues) else queues)
            if queue.topic == topic}


async def ask(theirs: Members, do: str, member: str, **fields: object) -> object:
    return await asyncio.to_thread(theirs.ask, do, member, **fields)


async def halves(
    held: Callable[[], Awaitable[set[int]]], ours: AsyncPushConsumer | AsyncLitePullConsumer,
    topic: str,
) -> tuple[set[int], set[int]]:
    """The other member's queues and ours, once each has half of them."""
    theirs: set[int] = set()
    mine: set[int] = set()
    for _ in range(600):
        theirs, mine = await held(), own_queues(ours, topic)
        if len(theirs) == len(mine) == QUEUES // 2 and not theirs & mine:
            break
        await asyncio.sleep(0.05)
    assert theirs | mine == set(range(QUEUES))
    assert not theirs & mine
    return theirs, mine


async def told(cluster: Cluster, group: str, ours: str, topic: str) -> set[int]:
    """The queues of the members beside ours, as they say to a broker that asks (307)."""
    queues: set[int] = set()
    async with AsyncAdmin(cluster.namesrv_addr) as admin:
        for member in (await admin.members(group)).members:
            if member.client_id != ours:
                info = await admin.running_info(group, member.client_id)
                queues |= {one.queue.queue_id for one in info.queues if one.queue.topic == topic}
    return queues


@CLIENTS
def test_another_push_member_and_ours_share_the_queues(
    client: str, cluster: Cluster, members_of: Starter,
) -> None:
    others = members_of(client, cluster.namesrv_addr)
    topic, group = fresh(cluster, f"mixed-{client}")
    first_commit(cluster.broker_addr, group, topic)
    notes = Notes()

    async def scenario() -> None:
        await asyncio.to_thread(others.push, topic, topic, group)
        async with AsyncPushConsumer(group, topic, notes.listen, start="earliest",
                                     namesrv=cluster.namesrv_addr) as ours:
            theirs, mine = await halves(
                lambda: told(cluster, group, ours.client_id, topic), ours, topic)
            await send(cluster, topic, names("k", 40))
            await wait_until_async(lambda: len(notes.keys) == 20, "our half")
            await asyncio.to_thread(
                others.wait_for, topic, set(names("k", 40)) - set(notes.keys), topic)
            lines = others.deliveries(topic, topic)
            assert {message.queue.queue_id for message in notes.messages} == mine
            assert {line["queueId"] for line in lines} == theirs
            assert sorted([*keys_of(lines), *notes.keys]) == sorted(names("k", 40))
            await ask(others, "stop", topic)
            await wait_until_async(lambda: own_queues(ours, topic) == set(range(QUEUES)),
                                   "all queues")

    run(scenario())


def test_a_java_lite_pull_member_and_ours_share_the_queues(
    cluster: Cluster, members_of: Starter,
) -> None:
    java = members_of("java", cluster.namesrv_addr)
    topic, group = fresh(cluster, "lite-mixed")
    first_commit(cluster.broker_addr, group, topic)

    async def held() -> set[int]:
        queues = await ask(java, "held", topic, topic=topic)
        assert isinstance(queues, list)
        return set(queues)

    async def scenario() -> None:
        await asyncio.to_thread(java.pull, topic, topic, group)
        ours = AsyncLitePullConsumer(group, start="earliest", namesrv=cluster.namesrv_addr)
        ours.subscribe(topic)
        async with ours:
            theirs, mine = await halves(held, ours, topic)
            await send(cluster, topic, names("k", 40))
            found: list[ReceivedMessage] = []
            while len(found) < 20:
                found += await ours.poll(timeout=20.0)
            lines: list[dict[str, object]] = []
            while len(lines) < 20:
                some = await ask(java, "poll", topic, timeout=5_000)
                assert isinstance(some, list)
                lines += some
        assert {message.queue.queue_id for message in found} == mine
        assert {line["queueId"] for line in lines} == theirs
        assert sorted([message.keys[0] for message in found] + keys_of(lines)) == sorted(
            names("k", 40))
        await ask(java, "stop", topic)

    run(scenario())


@CLIENTS
def test_members_go_on_where_the_other_client_s_committed(
    client: str, cluster: Cluster, members_of: Starter,
) -> None:
    others = members_of(client, cluster.namesrv_addr)
    topic, group = fresh(cluster, f"offsets-{client}")
    first_commit(cluster.broker_addr, group, topic)

    def committed() -> int:
        return sum(committed_offset(cluster.broker_addr, group, topic, queue) or 0
                   for queue in range(QUEUES))

    def counted() -> int:
        """How far the members say that they are."""
        states = client_offsets(cluster.broker_addr, group, topic)
        return sum(sum(queues.values()) for queues in states.values())

    async def ours(count: int) -> list[str]:
        notes = Notes()
        async with AsyncPushConsumer(group, topic, notes.listen, start="earliest",
                                     namesrv=cluster.namesrv_addr):
            await wait_until_async(lambda: len(notes.keys) >= count, "our messages")
        return sorted(notes.keys)

    async def theirs(member: str, keys: list[str]) -> list[str]:
        begin = committed()
        await asyncio.to_thread(others.push, member, topic, group)
        lines = await asyncio.to_thread(others.wait_for, topic, keys, member)
        end = begin + len(lines)
        for _ in range(400):                # it counts a message after its listener has returned
            if await asyncio.to_thread(counted) >= end:
                break
            await asyncio.sleep(0.05)
        await ask(others, "stop", member)
        return sorted(keys_of(lines))

    async def scenario() -> None:
        await send(cluster, topic, names("a", 20))
        assert await theirs(f"{topic}-1", names("a", 20)) == sorted(names("a", 20))
        await wait_until_async(lambda: committed() == 20, "the other client's offsets")
        await send(cluster, topic, names("b", 20))
        assert await ours(20) == sorted(names("b", 20))
        assert committed() == 40
        await send(cluster, topic, names("c", 20))
        assert await theirs(f"{topic}-2", names("c", 20)) == sorted(names("c", 20))

    run(scenario())


@pytest.mark.slow               # the Go client asks for a lock that it did not get after 20 s
@CLIENTS
def test_orderly_members_of_both_clients_lock_and_hand_over(
    client: str, cluster: Cluster, members_of: Starter,
) -> None:
    others = members_of(client, cluster.namesrv_addr)
    topic, group = fresh(cluster, f"locks-{client}")
    first_commit(cluster.broker_addr, group, topic)
    seen: list[tuple[int, str]] = []

    async def listen(message: ReceivedMessage) -> None:
        seen.append((message.queue.queue_id, message.keys[0]))
        await asyncio.sleep(0.002)

    async def scenario() -> None:
        ours = AsyncPushConsumer(group, topic, listen, start="earliest", orderly=True,
                                 namesrv=cluster.namesrv_addr)
        async with ours:
            await wait_until_async(lambda: len(own_queues(ours, topic)) == QUEUES, "all queues")
            await send(cluster, topic, names("a", 40))
            await asyncio.to_thread(others.push, topic, topic, group, orderly=True, dawdle=2,
                                    lockInterval=1_000)
            await send(cluster, topic, names("b", 40))
            await wait_until_async(lambda: len(own_queues(ours, topic)) == 2, "two queues")
            await send(cluster, topic, names("c", 40))
            every = {*names("a", 40), *names("b", 40), *names("c", 40)}
            await wait_until_async(
                lambda: {key for _, key in seen} | set(keys_of(others.deliveries(topic, topic)))
                == every, "all messages")
            assert others.deliveries(topic, topic), "the other member got nothing"
        await send(cluster, topic, names("d", 40))
        await asyncio.to_thread(others.wait_for, topic, names("d", 40), topic)
        await ask(others, "stop", topic)

    run(scenario())
    theirs = [(line["queueId"], str(line["keys"])) for line in others.deliveries(topic, topic)]
    for part in (seen, theirs):
        for queue in range(QUEUES):
            keys = list(dict.fromkeys(key for number, key in part if number == queue))
            assert keys == sorted(keys, key=lambda key: (key[0], int(key[1:])))


@pytest.mark.parametrize("orderly", [False, True], ids=["push", "orderly"])
def test_a_queue_that_was_never_consumed_has_a_place_as_java_s_has(
    orderly: bool, cluster: Cluster, members_of: Starter,
) -> None:
    """So both groups get what is stored while they are away: the table of the broker is asked, for
    code 14 is answered with 0 for a young queue without a place, too."""
    java = members_of("java", cluster.namesrv_addr)
    topic, group = fresh(cluster, "idle-orderly" if orderly else "idle")
    groups = {"java": f"{group}-java", "ours": f"{group}-ours"}

    async def scenario() -> None:
        await asyncio.to_thread(java.push, topic, topic, groups["java"], orderly=orderly,
                                **{"from": LAST})
        async with (
            AsyncAdmin(cluster.namesrv_addr) as admin,
            AsyncPushConsumer(groups["ours"], topic, Notes().listen, orderly=orderly,
                              namesrv=cluster.namesrv_addr) as ours,
        ):
            while True:
                table = await admin.all_offsets(cluster.broker_addr)
                found = {who: {one.queue.queue_id: one.offset for one in table
                               if (one.group, one.queue.topic) == (name, topic)}
                         for who, name in groups.items()}
                if all(len(places) == QUEUES for places in found.values()):
                    break
                await asyncio.sleep(0.2)
            assert found["ours"] == found["java"] == dict.fromkeys(range(QUEUES), 0)
            assert len(own_queues(ours, topic)) == QUEUES
        await ask(java, "stop", topic)

    run(scenario())
