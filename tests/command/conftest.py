"""
The clusters that commands are tried on: ours, the stock broker 5.3, and with MQCORE_TEST_STOCK=1
the stock broker 4.9, too.
"""
from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from mqcore.client import Admin, BrokerError, Message, Producer
from tests.support.ci import unavailable
from tests.support.command import Done, mqcore
from tests.support.mqcore_process import mqcore_up
from tests.support.stock import (
    SMALL_STOCK,
    STOCK5_VERSION,
    STOCK_VERSION,
    have_stock,
    stock_cluster,
)
from tests.support.waiting import wait_until

_CHOICE = os.environ.get("MQCORE_TEST_STOCK", "")
VERSIONS = {"stock": STOCK_VERSION, "stock5": STOCK5_VERSION}
# 5.3 does not take back messages by default
STOCK = {**SMALL_STOCK, "recallMessageEnable": True}
BROKERS = {"": ["mqcore", "stock5"], "1": ["mqcore", "stock", "stock5"],
           "only": ["stock", "stock5"]}[_CHOICE]


@dataclass(frozen=True)
class Cluster:
    """A name server with one broker, and commands that ask it."""

    kind: str                   # of BROKERS
    namesrv: str
    broker: str                 # host:port
    broker_name: str

    @property
    def version(self) -> str:
        """As a broker says it."""
        return "V" + VERSIONS.get(self.kind, "4.9.8").replace(".", "_")

    def run(self, *arguments: object) -> Done:
        """`mqcore arguments -n ...` to its end."""
        return mqcore(*arguments, "-n", self.namesrv)

    def text(self, *arguments: object) -> str:
        """The output of a command that must succeed."""
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self, *arguments: object) -> Any:
        """The document that a command prints with `--json`; it must succeed."""
        return json.loads(self.text(*arguments, "--json"))

    def refused(self, *arguments: object) -> tuple[int, str]:
        """The exit status, and the one line on standard error, of a command that fails."""
        done = self.run(*arguments)
        assert done.returncode != 0
        assert done.stderr.count("\n") == 1, done.stderr
        return done.returncode, done.stderr.removeprefix("Error: ").rstrip("\n")

    def send(self, topic: str, *bodies: str, **options: Any) -> list[str]:
        """Store messages, which are in their queues then; their ids."""
        with Producer("command-tests", namesrv=self.namesrv) as producer:
            sent = [producer.send(Message(topic, body, **options)) for body in bodies]
        with Admin(self.namesrv) as admin:
            for one in sent:
                wait_until(lambda one=one: admin.max_offset(one.queue) > one.queue_offset,
                           "the message in its queue")
        return [one.message_id for one in sent]

    def commit(self, group: str, topic: str, consumed: int) -> None:
        """A group that has consumed so many messages of each queue."""
        with Admin(self.namesrv) as admin:
            admin.create_group(group)
            for one in admin.topic_stats(topic).queues:
                admin.set_offset(group, one.queue, min(one.min_offset + consumed, one.max_offset))


@pytest.fixture(scope="package")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Our broker, for what does not depend on whose it is."""
    with mqcore_up(tmp_path_factory.mktemp("mqcore-command")) as broker:
        yield _cluster("mqcore", broker.namesrv_addr, broker.broker_addr)


@pytest.fixture(scope="package", params=BROKERS)
def cluster(request: pytest.FixtureRequest, ours: Cluster,
            tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The broker under test, shared by these tests, which use topics and groups of their own."""
    if request.param == "mqcore":
        yield ours
        return
    version = VERSIONS[request.param]
    if not have_stock(version):
        unavailable("needs java, and mvn or an earlier download of the stock broker")
    with stock_cluster(tmp_path_factory.mktemp(f"{request.param}-command"), STOCK, is_kept=False,
                       version=version) as stock:
        yield _cluster(request.param, stock.namesrv_addr, stock.broker_addr)


def _cluster(kind: str, namesrv: str, broker: str) -> Cluster:
    with Admin(namesrv) as admin:
        (found,) = admin.clusters()

        def tells() -> bool:
            # a stock broker refuses code 28 until its first second is over: it has no rates yet
            try:
                return bool(admin.cluster_status())
            except BrokerError:
                return False
        wait_until(tells, "the state of the broker")
    return Cluster(kind, namesrv, broker, found.brokers[0].broker_name)


@pytest.fixture(autouse=True)
def _own_contexts(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads the contexts or variables of who runs it."""
    monkeypatch.setenv("MQCORE_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("NAMESRV_ADDR", "MQCORE_CONTEXT", "MQCORE_ACCESS_KEY", "MQCORE_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)
