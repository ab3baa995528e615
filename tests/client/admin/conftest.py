"""Administration against our broker and the stock one: one of each, shared by the session."""
from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mqcore.client import MessageQueue, PushConsumer, ReceivedMessage, SendResult
from mqcore.client.admin import Admin
from mqcore.wire.codes import RequestCode
from tests.interop.mqadmin import Mqadmin
from tests.support.ci import unavailable
from tests.support.mqcore_process import mqcore_up
from tests.support.stock import StockError, have_stock, stock_cluster
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer

BROKER_NAME = "admin-a"
CLUSTER_NAME = "DefaultCluster"
SEND_BACK = 36
_numbers = itertools.count(1)
_OUR_SETTINGS: dict[str, object] = {
    "broker.name": BROKER_NAME, "broker.cluster": CLUSTER_NAME, "broker.trace_topic_enable": True,
}
_STOCK_SETTINGS: dict[str, object] = {
    "brokerName": BROKER_NAME, "brokerClusterName": CLUSTER_NAME,
    "mappedFileSizeCommitLog": 64 << 20, "mappedFileSizeConsumeQueue": 400_000,
    "maxHashSlotNum": 50_000, "maxIndexNum": 200_000, "traceTopicEnable": True,
}


@dataclass(frozen=True)
class Place:
    """A name server with one broker."""

    kind: str                   # "mqcore" or "stock"
    namesrv_addr: str
    broker_addr: str
    folder: Path


class Places:
    """
    Both kinds of place, each begun when it is first asked for, and there until the session ends:
    tests of the two kinds take turns. With it administration, and mqadmin 4.9.8 beside it.
    """

    def __init__(self, life: contextlib.ExitStack, folders: pytest.TempPathFactory) -> None:
        self._life = life
        self._folders = folders
        self.place = functools.cache(self._place)
        self.admin = functools.cache(self._admin)
        self.mqadmin = functools.cache(self._mqadmin)

    def _place(self, kind: str) -> Place:
        folder = self._folders.mktemp(f"{kind}-admin")
        if kind == "mqcore":
            ours = self._life.enter_context(mqcore_up(folder / "broker", _OUR_SETTINGS))
            return Place(kind, ours.namesrv_addr, ours.broker_addr, folder)
        if not have_stock():
            unavailable("needs java, and mvn or an earlier download of the stock broker")
        try:
            stock = self._life.enter_context(stock_cluster(
                folder, _STOCK_SETTINGS, is_kept=False))
        except StockError as error:
            unavailable(str(error))
        wait_until(lambda: _counts(stock.broker_addr), "the first figures of its second")
        return Place(kind, stock.namesrv_addr, stock.broker_addr, folder)

    def _admin(self, kind: str) -> Admin:
        return self._life.enter_context(Admin(self.place(kind).namesrv_addr))

    def _mqadmin(self, kind: str) -> Mqadmin:
        place = self.place(kind)
        started = Mqadmin(place.folder / "mqadmin", place.namesrv_addr)
        self._life.callback(started.stop)
        return started


@pytest.fixture(scope="package")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    with contextlib.ExitStack() as life:
        yield Places(life, tmp_path_factory)


@pytest.fixture(scope="package", params=["mqcore", "stock"])
def place(request: pytest.FixtureRequest, places: Places) -> Place:
    return places.place(request.param)


def _counts(broker_addr: str) -> bool:
    """Whether a stock broker has measured a second yet: before that, 28 is an error of its own."""
    with Peer(broker_addr) as peer:
        return peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO).code == 0


@pytest.fixture(scope="package")
def admin(place: Place, places: Places) -> Admin:
    """Administration of the place, blocking; all of it goes through AsyncAdmin."""
    return places.admin(place.kind)


@pytest.fixture(scope="package")
def mqadmin(place: Place, places: Places) -> Mqadmin:
    """mqadmin 4.9.8 beside the same broker; its JVM starts with the first test that asks it."""
    return places.mqadmin(place.kind)


def queue(topic: str, queue_id: int = 0) -> MessageQueue:
    """A queue of a topic at the place's broker."""
    return MessageQueue(topic, BROKER_NAME, queue_id)


def store(admin: Admin, topic: str, *bodies: str, queue_id: int = 0, **given: Any,
          ) -> list[SendResult]:
    """Send messages to one queue; returns when its end shows them."""
    sent = [admin.send(topic, body, queue=queue(topic, queue_id), **given) for body in bodies]
    end = sent[-1].queue_offset + 1
    wait_until(lambda: admin.max_offset(queue(topic, queue_id)) >= end, f"{end} in {topic}")
    return sent


def unique(prefix: str) -> str:
    """A name that no other test has."""
    return f"{prefix}-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def topic(admin: Admin) -> str:
    """A new topic with two queues."""
    name = unique("Topic")
    admin.create_topic(name, queues=2)
    return name


Member = Callable[[str, str], contextlib.AbstractContextManager[PushConsumer]]


@pytest.fixture
def member(place: Place, admin: Admin) -> Member:
    """Makes a member of a group that consumes all of a topic, and is online when it is given."""

    @contextlib.contextmanager
    def run(group: str, topic: str) -> Iterator[PushConsumer]:
        def listen(message: ReceivedMessage) -> None:
            """Takes everything."""

        with PushConsumer(group, topic, listen, namesrv=place.namesrv_addr, start="earliest",
                          persist_interval=0.2) as made:
            wait_until(lambda: admin.members(group).members, f"a member of {group}")
            yield made

    return run


def pytest_itemcollected(item: pytest.Item) -> None:        # of those in this folder
    names = getattr(item, "fixturenames", ())
    params = getattr(getattr(item, "callspec", None), "params", {})
    if "mqadmin" in names or params.get("place") == "stock":
        item.add_marker(pytest.mark.interop)
