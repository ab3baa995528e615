"""
A broker with a topic, messages, a producer and a consumer group for mqadmin to look at.

What mqadmin prints of it is compared with what it prints of a stock broker in the same state:
`mqadmin_expected.json` holds that, without clocks, addresses, ids and versions. With
MQCORE_TEST_STOCK=only the stock broker is compared with it; MQCORE_RECORD=1 beside it writes it.
"""
from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.interop.ask import ask, committed_offset, has_route
from tests.interop.mqadmin import Mqadmin
from tests.support.mqcore_process import mqcore_up
from tests.support.stock import stock_cluster
from tests.support.waiting import wait_until

EXPECTED = Path(__file__).with_name("mqadmin_expected.json")
BROKER_NAME = "admin-a"
CLUSTER_NAME = "DefaultCluster"
TOPIC, GROUP, PRODUCER = "AdminTopic", "AdminGroup", "AdminProducer"
QUEUES = 4
MESSAGES = 8
COMMIT_OFFSET = 15

_FREE = (
    (r"\d{1,3}(\.\d{1,3}){3}:\d+", "ADDR"), (r"\d{1,3}(\.\d{1,3}){3}", "IP"),
    (r"\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d([,:]\d{3})?", "TIME"), (r"\b1[6-9]\d{11}\b", "MS"),
    (r"\b[0-9A-F]{32}([0-9A-F]{24})?\b", "ID"), (r"V4_9_\d", "VERSION"),
    (r"\b4\.9\.\d\b", "VERSION"), (r"[ \t]+", " "),
)


@dataclass(repr=False)
class World:
    """The broker, the JVM of mqadmin, and the messages that were sent to TOPIC."""

    kind: str
    namesrv_addr: str
    broker_addr: str
    mqadmin: Mqadmin
    sent: list[dict[str, Any]] = field(default_factory=list)

    def check(self, step: str, command: str, *options: object, unordered: bool = False,
              free: str = "", **limits: int) -> str:
        """
        Run a command and compare what it prints with what it prints of a stock broker.

        step       the name of the expectation; unordered: lines may come in any order
        free       a pattern of what else differs from run to run
        """
        text = self.mqadmin.run(command, *options, **limits)
        found = normal(text, free)
        if unordered:
            found.sort()
        if self.kind == "stock" and os.environ.get("MQCORE_RECORD") == "1":
            _record(step, found)
        assert found == json.loads(EXPECTED.read_text())[step], text
        return text

    def topic(self, name: str, queues: int = 1) -> None:
        """Create a topic; returns when the name server knows it."""
        self.mqadmin.run("updateTopic", "-b", self.broker_addr, "-t", name, "-r", queues,
                         "-w", queues)
        wait_until(lambda: has_route(self.namesrv_addr, name), f"a route of {name}")

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """What a consumer of the group would commit; its retry topic makes tools find it."""
        if not has_route(self.namesrv_addr, f"%RETRY%{group}"):
            self.topic(f"%RETRY%{group}")
        assert ask(self.broker_addr, COMMIT_OFFSET, {
            "consumerGroup": group, "topic": topic, "queueId": str(queue_id),
            "commitOffset": str(offset)}).code == 0

    def committed(self, group: str, topic: str, queues: int = 1) -> list[int | None]:
        return [committed_offset(self.broker_addr, group, topic, queue_id)
                for queue_id in range(queues)]

    def client_id(self, group: str) -> str:
        """The client id of the member that the JVM runs for a group."""
        text = self.mqadmin.run("consumerConnection", "-g", group)
        found = re.search(rf"\S+@member-{group}", text)
        assert found is not None, text
        return found[0]


def normal(text: str, free: str = "") -> list[str]:
    """
    Lines that are not empty, without what differs from run to run; blanks count as one. A line that
    is `free` as a whole is left out; of a stack trace its first line stays.
    """
    if free:
        text = re.sub(free, "FREE", text)
    for pattern, name in _FREE:
        text = re.sub(pattern, name, text)
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines
            if line not in ("", "FREE") and not re.match(r"at \S+\(.*\)$", line)]


@contextlib.contextmanager
def running(kind: str, folder: Path) -> Iterator[World]:
    """A World around a new broker of a kind, mqcore or stock."""
    with contextlib.ExitStack() as stack:
        if kind == "mqcore":
            ours = stack.enter_context(mqcore_up(folder / "broker", {
                "broker.name": BROKER_NAME, "broker.cluster": CLUSTER_NAME}))
            addresses = ours.namesrv_addr, ours.broker_addr
        else:
            stock = stack.enter_context(stock_cluster(folder, {
                "brokerName": BROKER_NAME, "brokerClusterName": CLUSTER_NAME,
                "mappedFileSizeCommitLog": 64 << 20, "mappedFileSizeConsumeQueue": 400_000,
                "maxHashSlotNum": 50_000, "maxIndexNum": 200_000, "enablePropertyFilter": True},
                is_kept=False))
            addresses = stock.namesrv_addr, stock.broker_addr
        mqadmin = Mqadmin(folder / "mqadmin", addresses[0])
        stack.callback(mqadmin.stop)
        world = World(kind, *addresses, mqadmin)
        _fill(world)
        yield world


@pytest.fixture(scope="package")
def mqadmin_world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """The world of one kind of broker; parametrised by the conftest."""
    with running(request.param, tmp_path_factory.mktemp(f"{request.param}-mqadmin")) as world:
        yield world


def _fill(world: World) -> None:
    """MESSAGES messages in TOPIC, all consumed and committed by a member that stays."""
    world.topic(TOPIC, QUEUES)
    world.mqadmin.ask("producer", PRODUCER)
    for number in range(MESSAGES):
        world.sent.append(world.mqadmin.send(
            PRODUCER, TOPIC, number % QUEUES, f"key{number}", f"body {number}"))
    text = world.mqadmin.ask("consumer", GROUP, TOPIC)
    assert text == "", text

    def has_consumed() -> bool:
        world.mqadmin.ask("commit", GROUP)
        return world.committed(GROUP, TOPIC, QUEUES) == [MESSAGES // QUEUES] * QUEUES

    def is_known() -> bool:                      # by its first heartbeat, a second after its start
        text = world.mqadmin.run("producer", "-b", world.broker_addr)
        return f"({PRODUCER})" in text and text.count("member-") == 3

    wait_until(has_consumed, "all messages consumed and committed")
    wait_until(is_known, "the producer's heartbeat")


def _record(step: str, lines: list[str]) -> None:
    table = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    table[step] = lines
    EXPECTED.write_text(json.dumps(dict(sorted(table.items())), indent=1, ensure_ascii=False)
                        + "\n")
