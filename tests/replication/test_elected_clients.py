"""Clients find who was elected, and miss nothing that was acknowledged: ours, and Java's."""
from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from mqcore.client import AsyncConsumer
from mqcore.layout import LEADERSHIP_FOLLOWS
from mqcore.wire.command import encode, request
from mqcore.wire.properties import encode_properties
from tests.interop.members import Members, queued
from tests.interop.toolchain import require_client
from tests.replication.elected import Member, send, two
from tests.replication.test_kills import NAMES, Load, log_of
from tests.support.waiting import wait_until
from tests.wire_live.peer import Closed, Peer, send_fields
from tests.workers.processes import pid_of

QUEUES = 4
FOUND_S_MAX = 10.0               # a second or two on a machine of one's own; routes come after 30 s


async def until_acknowledged(load: Load, codes: tuple[str, ...]) -> None:
    """Wait until somebody takes messages again, whether others have them or not."""
    before = sum(load.outcomes[code] for code in codes)
    try:
        async with asyncio.timeout(FOUND_S_MAX):
            while sum(load.outcomes[code] for code in codes) < before + 20:
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"nobody takes messages: {load.outcomes}") from None


@pytest.mark.parametrize("victim", ["ha-slave", "writer"])
def test_our_clients_go_on_at_the_new_leader_with_all_that_was_acknowledged(
        tmp_path: Path, victim: str) -> None:
    """Under load; of the one that is elected a process dies in the same moment."""
    seen: set[bytes] = set()

    async def consume(consumer: AsyncConsumer) -> None:
        while True:
            for message in await consumer.receive(max=100, timeout=1.0):
                seen.add(NAMES.findall(message.body)[0])
                message.ack()

    async def scenario(names: str, one: Member, other: Member) -> None:
        async with Load(names) as load:
            await load.more(1)
            async with AsyncConsumer("clients", "TopicTest", ack="manual", start="earliest",
                                     namesrv=names) as consumer:
                reading = asyncio.create_task(consume(consumer))
                await load.more(200)
                await asyncio.to_thread(one.broker.kill)
                os.kill(pid_of(other.broker, victim), signal.SIGKILL)
                await asyncio.to_thread(other.elect, 2)
                await until_acknowledged(load, ("SEND_OK", "SLAVE_NOT_AVAILABLE"))
                load.stop()
                async with asyncio.timeout(60):
                    while not load.promised <= seen:
                        await asyncio.sleep(0.02)
                reading.cancel()
        kept = set(NAMES.findall(log_of(other.broker.store)))
        assert load.promised <= kept

    with two(tmp_path) as (names, one, other):
        asyncio.run(scenario(names.namesrv_addr, one, other))


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.timeout(300)
def test_java_consumers_find_the_new_leader(tmp_path: Path) -> None:
    require_client("java")
    first, second = ([f"{part}-{number}" for number in range(8)] for part in "ab")
    with two(tmp_path) as (names, one, other):
        members = Members("java", tmp_path / "members", names.namesrv_addr)
        try:
            members.create("Moving", QUEUES)
            members.push("stays", "Moving", "staying", routes=300, heartbeats=1_000)
            members.send("Moving", queued(first))
            members.wait_for("Moving", first, "stays")
            wait_until(lambda: send(one.address, b"even") == [0], "the other one is even")
            one.wake_election()
            one.broker.stop()            # killed, it leaves Java's pulls to their time-out of 30 s
            other.lead(2)
            with Peer(other.address) as peer:        # a Java producer would ask for routes in 30 s
                for number, key in enumerate(second):
                    fields = send_fields("Moving", queue_id=number % QUEUES,
                                         properties=encode_properties({"KEYS": key}))
                    assert peer.ask(310, fields, b"body").code in (0, 11, 12)
            members.wait_for("Moving", [*first, *second], "stays")
        finally:
            members.stop()


@pytest.mark.slow
def test_who_loses_the_election_answers_before_its_connections_end(tmp_path: Path) -> None:
    """A send that waits, and later requests: for a second, then the run may end."""
    with two(tmp_path, {"replication.slave_timeout_ms": 600_000}) as (_, one, other):
        paused = pid_of(other.broker, "ha-slave")
        os.kill(paused, signal.SIGSTOP)
        try:
            with Peer(one.address) as peer:
                before = one.segment().log_state()["published"]
                waiting = request(310, send_fields("BenchmarkTest"), b"waits")
                peer.send(encode(waiting))
                wait_until(lambda: one.segment().log_state()["published"] > before, "it is stored")
                lost_at = time.monotonic()
                one.say(lambda pen: pen.hold_until(0),
                        lambda pen: pen.request(LEADERSHIP_FOLLOWS, 0))
                try:
                    assert peer.answer_to(waiting.opaque).code == 12
                    assert peer.ask(310, send_fields("BenchmarkTest"), b"refused").code == 14
                    assert peer.ask(36, {
                        "offset": str(before), "group": "G", "delayLevel": "1",
                        "originMsgId": "x", "originTopic": "BenchmarkTest", "unitMode": "false",
                        "maxReconsumeTimes": "16"}).code == 1
                except Closed:
                    assert time.monotonic() - lost_at > 1.0
        finally:
            os.kill(paused, signal.SIGCONT)
