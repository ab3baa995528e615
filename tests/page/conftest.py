"""A broker with hostile names and bodies, and the page as an application without a socket."""
from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from starlette.testclient import TestClient

from mqcore.client import Admin, Message, MessageQueue, Producer, PushConsumer, Reject
from mqcore.page.app import application
from mqcore.page.asking import Cluster
from mqcore.page.audit import Trail
from mqcore.page.context import Site
from mqcore.page.users import Users
from mqcore.wire.codes import RequestCode
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer

HOSTILE = ('"><img src=x onerror=alert(1)><script src=a>alert(2)'
           "\n\x1b[2J\u202e &amp;")
BODY = "<script>alert(3)</script> </pre><style>*{display:none}</style>"
ORIGIN = "http://127.0.0.1"
DEAD = 3


def _reject(_message: object) -> None:
    raise Reject("it is to become a dead letter")


@dataclass
class World:
    """A broker, and what was stored in it."""

    broker: MqcoreProcess
    message_id: str
    place: str

    @property
    def namesrv(self) -> str:
        return self.broker.namesrv_addr


@pytest.fixture(scope="package")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with mqcore_up(tmp_path_factory.mktemp("page")) as broker:
        with Admin(broker.namesrv_addr) as admin:
            for topic in ("orders", "bills", "offsets"):
                admin.create_topic(topic, queues=2)
            admin.create_group("billing")
            with Producer("page-tests", namesrv=broker.namesrv_addr) as producer:
                sent = producer.send(Message("orders", BODY, tags="<b>tag</b>", keys="<i>key</i>",
                                             properties={"<u>name</u>": HOSTILE.strip()}))
                for number in range(DEAD):
                    producer.send(Message("bills", f"{BODY} {number}"))
                for number in range(20):
                    producer.send(Message("offsets", f"{number}"))
            wait_until(lambda: admin.topic_stats("offsets").message_count == 20, "the messages")
            with PushConsumer("billing", "bills", _reject, namesrv=broker.namesrv_addr,
                              start="earliest"):
                wait_until(lambda: len(admin.dead_letters("billing")) == DEAD
                           if "%DLQ%billing" in admin.topics() else False, "dead letters")
            for queue in range(2):
                for topic, offset in (("offsets", 4), ("orders", 0)):
                    admin.set_offset("billing", MessageQueue(
                        topic, sent.queue.broker_name, queue), offset)
        with Peer(broker.broker_addr) as peer:
            assert peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {
                "consumerGroup": HOSTILE, "topic": "orders", "queueId": "0",
                "commitOffset": "0"}).code == 0
        queue = sent.queue
        yield World(broker, sent.offset_message_id,
                    f"orders/{queue.broker_name}/{queue.queue_id}/{sent.queue_offset}")


def site(world: World, *, write: bool = False, users: Users | None = None,
         hosts: tuple[str, ...] = ()) -> Site:
    """The page of the broker."""
    return Site([Cluster(world.namesrv)], users or Users(time.monotonic), Trail(), write, hosts)


def client(of: Site, *, origin: str | None = ORIGIN) -> TestClient:
    """A browser; use it with `with`, so that its requests share an event loop."""
    return TestClient(application(of), base_url=ORIGIN, follow_redirects=False,
                      headers={"Origin": origin} if origin else {})


@pytest.fixture(scope="module")
def reader(world: World) -> Iterator[TestClient]:
    """A browser of a page that only shows."""
    with client(site(world)) as browser:
        yield browser
