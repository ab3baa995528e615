"""
RocketMQ's own clients of the 5.x protocol, unmodified: every kind of message and consumer that each
has, while the process of the gRPC port is killed and the broker restarts. One process a client.
"""
from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqcore.client import Admin
from mqcore.wire.codes import RequestCode
from tests.grpc.desk import CLIENTS, ClientDesk, command_of
from tests.grpc.world import RestartedBroker
from tests.support.mqcore_process import MqcoreProcess
from tests.support.waiting import wait_until
from tests.wire_live.state import State

KINDS = ("NORMAL", "FIFO", "DELAY", "TRANSACTION")
DELAY_S = 2


def topic(client: str, kind: str) -> str:
    return f"{client}-{kind}".replace(".", "_")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestartedBroker]:
    one = RestartedBroker(tmp_path_factory.mktemp("official"))
    yield one
    one.stop()


def make_topics(broker: MqcoreProcess, client: str) -> None:
    """The client of Node knows no other policy of retries than the exponential one."""
    with Admin([broker.namesrv_addr]) as admin, State(broker.broker_addr) as state:
        for kind in KINDS:
            admin.create_topic(topic(client, kind), queues=2, message_type=kind)
        policy = {"groupRetryPolicy": {"type": "EXPONENTIAL"}} if client == "node" else {}
        group = {"groupName": f"{client}-fifo".replace(".", "_"), "consumeMessageOrderly": True}
        state.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None,
                  json.dumps(group | policy).encode())


def has_push(client: str) -> bool:
    return client != "rust"


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client(broker: RestartedBroker, client: str, tmp_path: Path) -> None:
    command_of(client, tmp_path)                     # or skip
    make_topics(broker.now.process, client)
    desk = ClientDesk(client, tmp_path / "client", broker.now.address)
    try:
        name = client.replace(".", "_")
        desk.order("producer", topics=[topic(client, kind) for kind in KINDS])
        if has_push(client):
            desk.order("push", group=f"{name}-push", topic=topic(client, "NORMAL"), tag="*")
            desk.order("push", group=f"{name}-fifo", topic=topic(client, "FIFO"), tag="*")
        check_normal(desk, name, topic(client, "NORMAL"), pushes=has_push(client))
        check_fifo(desk, name, topic(client, "FIFO"), pushes=has_push(client))
        check_delay(desk, name, topic(client, "DELAY"))
        check_transactions(desk, name, topic(client, "TRANSACTION"))
        check_restarts(desk, name, topic(client, "NORMAL"), broker, pushes=has_push(client))
    finally:
        desk.close()


def check_normal(desk: ClientDesk, name: str, normal: str, *, pushes: bool) -> None:
    first = desk.send(normal, "first", tag="a", key="key", property="value")
    desk.send(normal, "again")
    desk.send(normal, "other", tag="b")
    desk.order("simple", group=f"{name}-simple", topic=normal, tag="a")
    assert desk.receive(f"{name}-simple", 1) == [{
        "id": first, "body": "first", "tag": "a", "keys": ["key"], "property": "value",
        "attempt": 1}]
    if pushes:
        wait_until(lambda: len(desk.got(f"{name}-push")) == 4, "the push consumer's messages")
        assert sorted((body, attempt) for body, attempt, _ in desk.got(f"{name}-push")) == [
            ("again", 1), ("again", 2), ("first", 1), ("other", 1)]


def check_fifo(desk: ClientDesk, name: str, fifo: str, *, pushes: bool) -> None:
    """A message that fails keeps those behind it waiting."""
    bodies = ["0", "1", "again 2", "3", "4"]
    for body in bodies:
        desk.send(fifo, body, order="group")
    if pushes:
        wait_until(lambda: len(desk.got(f"{name}-fifo")) == 6, "the messages in order")
        seen = desk.bodies(f"{name}-fifo")
        assert list(dict.fromkeys(seen)) == bodies
        assert seen.count("again 2") == 2
        if name != "go":                   # it takes the rest of the batch first
            assert seen == ["0", "1", "again 2", "again 2", "3", "4"]
    else:
        desk.order("simple", group=f"{name}-ordered", topic=fifo, tag="*")
        assert [one["body"] for one in desk.receive(f"{name}-ordered", 5)] == bodies


def check_delay(desk: ClientDesk, name: str, delay: str) -> None:
    due_ms = (int(time.time()) + DELAY_S) * 1000     # clients of Python and Rust say whole seconds
    desk.send(delay, "later", deliver_ms=due_ms)
    desk.order("simple", group=f"{name}-later", topic=delay, tag="*")
    assert [one["body"] for one in desk.receive(f"{name}-later", 1)] == ["later"]
    assert time.time() * 1000 >= due_ms


def check_transactions(desk: ClientDesk, name: str, topic_name: str) -> None:
    """A transaction that its producer leaves open is asked about."""
    for body, end in (("commit", "commit"), ("rollback", "rollback"), ("left, commit", ""),
                      ("left, rollback", "")):
        desk.order("transact", topic=topic_name, body=body, end=end)
    desk.order("simple", group=f"{name}-ended", topic=topic_name, tag="*")
    assert sorted(one["body"] for one in desk.receive(f"{name}-ended", 2)) == [
        "commit", "left, commit"]


def check_restarts(
    desk: ClientDesk, name: str, normal: str, broker: RestartedBroker, *, pushes: bool
) -> None:
    """Everything that a send was told is stored arrives, whatever ends under the client."""
    os.kill(broker.now.serving_pid(), signal.SIGKILL)
    desk.send_at_last(normal, "after a kill")
    broker.restart()
    desk.send_at_last(normal, "after a restart")
    wanted = {"first", "again", "other", "after a kill", "after a restart"}
    if pushes:
        wait_until(lambda: set(desk.bodies(f"{name}-push")) >= wanted, "what came meanwhile")
    desk.order("simple", group=f"{name}-all", topic=normal, tag="*")
    seen: set[str] = set()
    while seen != wanted:
        seen |= {one["body"] for one in desk.receive(f"{name}-all", 1)}
