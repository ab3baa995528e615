"""A stock broker that is in use is moved to ours, and Java consumers go on there."""
from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from mqcore.client import Message, Producer
from mqcore.client.admin import Admin
from mqcore.client.errors import NoRouteError, RocketMQError
from mqcore.client.message import MessageQueue
from tests.interop.members import Members, keys_of, places_of
from tests.support.ci import unavailable
from tests.support.mqcore_process import mqcore_up
from tests.support.relay import Relay
from tests.support.stock import StockError, have_stock, stock_cluster
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.slow]

LEVELS = "1s 5s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s"
STOCK = {"mappedFileSizeCommitLog": 64 << 20, "mappedFileSizeConsumeQueue": 20_000 * 20,
         "maxHashSlotNum": 50_000, "maxIndexNum": 200_000, "messageDelayLevel": LEVELS}
OURS: dict[str, object] = {"broker.name": "new-a", "broker.message_delay_levels": LEVELS}
ORDERS, POISON, QUEUES = "orders", "poison", 4
FIRST = 2_000                       # messages that are there before anything moves


class Load:
    """Sends keys one after the other, to the old cluster as long as it takes them, then on."""

    def __init__(self, old: str) -> None:
        self._old = old
        self._new = ""
        self._numbers = itertools.count()
        self._switched = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.refused = threading.Event()            # the old cluster takes no more
        self.sent: list[str] = []
        self.trouble: list[BaseException] = []
        self._thread.start()

    def resume(self, new: str) -> None:
        self._new = new
        self._switched.set()

    def end(self) -> None:
        self._ended.set()
        self._switched.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._send_to(self._old)
            self.refused.set()
            self._switched.wait(240)
            if not self._ended.is_set():
                self._send_to(self._new)
        except BaseException as error:
            self.trouble.append(error)

    def _send_to(self, namesrv: str) -> None:
        with Producer("load", namesrv=namesrv, route_interval=0.3, retry_count=0) as producer:
            while not self._ended.wait(0.02):
                key = f"k{next(self._numbers)}"
                try:
                    producer.send(Message(ORDERS, key.ljust(200), keys=[key]))
                except NoRouteError:                # of no queue that can be written
                    return
                except RocketMQError:               # it may be there: this key does not count
                    continue
                self.sent.append(key)


@contextmanager
def clusters(folder: Path) -> Iterator[tuple[Any, Any]]:
    if not have_stock():
        unavailable("needs java, and mvn or an earlier download of the stock broker")
    try:
        with stock_cluster(folder / "old", STOCK) as old, mqcore_up(folder / "new", OURS) as new:
            yield old, new
    except StockError as error:
        unavailable(str(error))


def test_a_stock_broker_in_use_is_moved_and_its_java_consumers_go_on(
        spark: Any, tmp_path: Path) -> None:
    from mqcore.spark.jobs.migrate import Migration

    with ExitStack() as stack:
        old, new = stack.enter_context(clusters(tmp_path))
        relay = stack.enter_context(Relay(old.namesrv_addr))
        before, after = (stack.enter_context(Admin(namesrv=one.namesrv_addr))
                         for one in (old, new))
        for topic in (ORDERS, POISON):
            before.create_topic(topic, queues=QUEUES)
        for queue in range(QUEUES):
            before.set_offset("sleepers", MessageQueue(ORDERS, "stock-a", queue), 40)
        with Producer("first", namesrv=old.namesrv_addr) as producer:
            early = [f"e{number}" for number in range(FIRST)]
            producer.send_many([Message(ORDERS, key.ljust(200), keys=[key], tags="early")
                                for key in early])
            producer.send(Message(ORDERS, "later", keys=["delayed"], delay_level=2))
            producer.send_many([Message(POISON, "x", keys=[f"p{number}"]) for number in range(3)])
        members = Members("java", tmp_path / "members", relay.address,
                          ("-Drocketmq.client.rebalance.waitInterval=500",))
        stack.callback(members.stop)
        members.push("reader", ORDERS, "readers")
        members.push("bad", POISON, "refusers", fails=-1, maxReconsume=1)
        load = Load(old.namesrv_addr)
        stack.callback(load.end)
        wait_until(lambda: "%DLQ%refusers" in before.topics(), "a message is refused for good")
        moving = Migration({"nameServer": old.namesrv_addr}, {"nameServer": new.namesrv_addr},
                           tmp_path / "state")

        copied = moving.copy(spark, open_dead_letters=True)
        over = moving.cutover(spark, stop_writes=True, drain=["readers", "refusers"],
                              quiet_s=2, wait_s=150)
        assert load.refused.wait(30)
        relay.switch(new.namesrv_addr)
        load.resume(new.namesrv_addr)
        count = len(load.sent)
        wait_until(lambda: len(load.sent) > count + 100, "the load goes on")
        load.end()
        seen = members.wait_for(ORDERS, {*early, *load.sent, "delayed"}, "reader", 60)
        members.push("sleeper", ORDERS, "sleepers")
        members.wait_for(ORDERS, {"delayed"}, "sleeper", 60)
        verified = moving.verify(spark)
        before.add_write_perm("stock-a")
        after.create_topic("back", queues=1)
        with Producer("back", namesrv=new.namesrv_addr) as producer:
            producer.send_many([Message("back", f"{number}") for number in range(50)])
        returning = Migration({"nameServer": new.namesrv_addr}, {"nameServer": old.namesrv_addr},
                              tmp_path / "back", topics="back|%RETRY%refusers", groups="refusers")
        returned = returning.copy(spark)
        proved = returning.verify(spark)

        assert load.trouble == []
        assert copied.figures["copied"] > FIRST
        assert (over.status, over.figures["waiting"], over.figures["drained"]) == (
            0, {"delayed": 0, "half": 0}, True), over.figures
        assert [key for key, times in Counter(keys_of(seen)).items() if times > 1] == []
        assert verified.status == 0, verified.figures
        assert verified.figures["right"] >= FIRST + count + 3
        assert after.max_offset(MessageQueue("%DLQ%refusers", "new-a", 0)) == 3
        assert (returned.status, returned.figures["copied"], proved.status) == (0, 53, 0)
        assert (min(offset for _, offset in places_of(members.deliveries(ORDERS, "sleeper")))
                == 40)
