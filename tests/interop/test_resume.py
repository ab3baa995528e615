"""
Groups that are set back, and groups whose broker or one of whose processes dies: they go on where
they should, and nothing is lost.
"""
from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.interop.ask import committed_offset, group_members
from tests.interop.conftest import (
    BROKERS,
    MQCORE_SETTINGS,
    STOCK_PROPERTIES,
    Cluster,
)
from tests.interop.members import QUEUES, Line, Members, keys_of, places_of, queued
from tests.interop.worlds import Starter
from tests.support.ci import unavailable
from tests.support.mqcore_process import MqcoreProcess, mqcore_namesrv, mqcore_up
from tests.support.stock import (
    StockError,
    free_broker_port,
    have_stock,
    start_broker,
    start_namesrv,
)
from tests.support.waiting import wait_until
from tests.workers.processes import ROLES, by_role, pid_of

pytestmark = pytest.mark.timeout(300)
CLIENTS = ("java", "go")
ROLES_THAT_SERVE = [role for role in ROLES if role != "namesrv"]
EACH = 5                        # messages of each queue, before and after a time
GAP_MS = 20                     # between them
INTERVAL_MS = 5
HEARTBEAT_MS = 1_000            # 30,000 by default: so long may a consumer wait after a restart
CARRY_ON_S = 40                 # the Go client's heartbeats come each 30 s


# -- set back by time ------------------------------------------------------------------------------


def _fill(java: Members, topic: str) -> int:
    """Two lots of messages; a time, in ms, that is between them."""
    java.create(topic)
    java.send(topic, queued(f"old-{number}" for number in range(EACH * QUEUES)))
    begin = time.time()
    wait_until(lambda: time.time() > begin + 2 * GAP_MS / 1_000, "a gap")
    between = int(begin * 1_000) + GAP_MS
    java.send(topic, queued(f"young-{number}" for number in range(EACH * QUEUES)))
    return between


def _keys_twice(members: Members, topic: str) -> set[str]:
    keys = keys_of(members.deliveries(topic))
    return {key for key in keys if keys.count(key) > 1}


def _came_twice(members: Members, topic: str) -> bool:
    return _keys_twice(members, topic) >= YOUNG


YOUNG = {f"young-{number}" for number in range(EACH * QUEUES)}
OLD = {f"old-{number}" for number in range(EACH * QUEUES)}


def _offsets(cluster: Cluster, topic: str) -> list[int | None]:
    return [committed_offset(cluster.broker_addr, f"{topic}-readers", topic, queue)
            for queue in range(QUEUES)]


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
def test_an_offline_group_that_is_set_back_to_a_time_goes_on_from_there(
    cluster: Cluster, members_of: Starter, client: str,
) -> None:
    java = members_of("java", cluster.namesrv_addr)
    members = members_of(client, cluster.namesrv_addr)
    topic = f"offline-{cluster.kind}-{client}"
    group = f"{topic}-readers"
    between = _fill(java, topic)
    members.push(topic, topic, group)
    members.wait_for(topic, OLD | YOUNG)
    members.ask("stop", topic)
    wait_until(lambda: not group_members(cluster.broker_addr, group), "nobody is there")

    assert java.ask("reset", topic=topic, group=group, timestamp=between) == "offsets"
    members.push(topic, topic, group)
    wait_until(partial(_came_twice, members, topic), "the younger ones again")
    java.send(topic, queued([f"last-{queue}" for queue in range(QUEUES)]))
    members.wait_for(topic, [f"last-{queue}" for queue in range(QUEUES)])
    members.ask("stop", topic)
    # Offset by time is that of the last message up to it: one old message of each queue may come.
    again = _keys_twice(members, topic)
    assert again >= YOUNG
    assert len(again & OLD) <= QUEUES
    assert again & OLD <= {f"old-{number}" for number in range((EACH - 1) * QUEUES, EACH * QUEUES)}


def _await_commits(cluster: Cluster, java: Members, topic: str) -> None:
    """
    Until the broker has an offset of each queue, without which it sets nobody back: the pull after
    a message's brings it, the clients' timers only after 10 s.
    """
    rounds = itertools.count()

    def committed() -> bool:
        number = next(rounds)
        java.send(topic, queued(f"nudge-{number}-{queue}" for queue in range(QUEUES)))
        return all(_offsets(cluster, topic))

    wait_until(committed, f"offsets of {topic}")


@pytest.mark.slow
def test_groups_that_are_online_are_set_back_to_a_time_and_go_on_from_there(
    cluster: Cluster, members_of: Starter,
) -> None:
    java = members_of("java", cluster.namesrv_addr)
    homes = {client: members_of(client, cluster.namesrv_addr) for client in CLIENTS}
    topics = {client: f"online-{cluster.kind}-{client}" for client in CLIENTS}
    between = {client: _fill(java, topic) for client, topic in topics.items()}
    for client, topic in topics.items():
        homes[client].push(topic, topic, f"{topic}-readers")
    for client, topic in topics.items():
        homes[client].wait_for(topic, OLD | YOUNG)
        _await_commits(cluster, java, topic)
    for client, topic in topics.items():
        told = java.ask("reset", topic=topic, group=f"{topic}-readers", timestamp=between[client])
        assert told == "members"

    for client, topic in topics.items():        # clients rest for 10 s first
        wait_until(partial(_came_twice, homes[client], topic), f"the younger ones with {client}")
        assert len(_keys_twice(homes[client], topic) & OLD) <= QUEUES
        homes[client].ask("stop", topic)


# -- deaths ----------------------------------------------------------------------------------------


class Reading:
    """A flow of messages and consumers of some clients that share it."""

    def __init__(
        self, start: Starter, namesrv_addr: str, topic: str, clients: tuple[str, ...],
    ) -> None:
        self.topic = topic
        running = {client: start(client, namesrv_addr) for client in {"java", *clients}}
        self.java = running["java"]
        self.java.create(topic)
        self.homes = {f"{topic}-{number}-{client}": running[client]
                      for number, client in enumerate(clients)}
        for name in self.homes:
            self.start(name)
        self.java.ask("flow", topic, topic=topic, queues=QUEUES, interval=INTERVAL_MS)

    def start(self, name: str) -> None:
        """Start one of the consumers, again if it was stopped."""
        self.homes[name].push(name, self.topic, f"{self.topic}-readers", heartbeats=HEARTBEAT_MS)

    def _lines(self, name: str) -> list[Line]:
        return self.homes[name].deliveries(self.topic, name)

    def await_news(self, what: str) -> float:
        """Until all consumers have something that was sent from now on; s that it took."""
        begin = time.time()

        def all_have() -> bool:
            return all(any(line["bornAt"] > begin * 1_000 for line in self._lines(name))
                       for name in self.homes)

        wait_until(all_have, f"all consumers go on after {what}", CARRY_ON_S)
        return time.time() - begin

    def finish(self) -> tuple[int, int]:
        """End the flow; nothing acknowledged is missing. How many there are, how many twice."""
        acknowledged = set(self.java.ask("end-flow", self.topic))

        def missing() -> set[str]:
            return acknowledged - {
                key for name in self.homes for key in keys_of(self._lines(name))}

        wait_until(lambda: not missing(), "all acknowledged messages", CARRY_ON_S)
        places = [place for name in self.homes for place in places_of(self._lines(name))]
        for name, home in self.homes.items():
            home.ask("stop", name)
        return len(acknowledged), len(places) - len(set(places))


@pytest.mark.slow
def test_consumers_go_on_after_the_death_of_any_process_of_the_broker(
    tmp_path: Path, start_members: Starter,
) -> None:
    if "mqcore" not in BROKERS:
        pytest.skip("the stock broker is one process")
    with mqcore_up(tmp_path / "mqcore", MQCORE_SETTINGS) as broker:
        reading = Reading(start_members, broker.namesrv_addr, "deaths", ("java", "java"))
        reading.await_news("the start")
        for role in ROLES_THAT_SERVE:
            pid = pid_of(broker, role)
            os.kill(pid, signal.SIGKILL)
            wait_until(partial(_is_replaced, broker, role, pid), f"a new {role}")
            print(f"{role}: news after {reading.await_news(role):.1f} s")
        count, doubled = reading.finish()
        print(f"{count} messages, {doubled} came twice")


def _is_replaced(broker: MqcoreProcess, role: str, pid: int) -> bool:
    return by_role(broker).get(role, pid) != pid


@dataclass
class Restartable:
    """A name server, and the broker behind it whenever it is told."""

    kind: str
    folder: Path
    namesrv_addr: str
    port: int

    @contextmanager
    def broker(self) -> Iterator[None]:
        """The broker on the same store, until the end of the block; a clean stop."""
        if self.kind == "mqcore":
            settings = {**MQCORE_SETTINGS, "broker.listen_port": self.port}
            with mqcore_up(self.folder / "mqcore", settings, namesrv_addr=self.namesrv_addr):
                yield
            return
        started = start_broker(self.folder / "stock", self.namesrv_addr, STOCK_PROPERTIES,
                               port=self.port)
        try:
            yield
        finally:
            started.stop()


@pytest.fixture(params=BROKERS)
def restartable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Restartable]:
    port = free_broker_port()
    if request.param == "mqcore":
        with mqcore_namesrv(tmp_path / "namesrv") as namesrv:
            yield Restartable("mqcore", tmp_path, namesrv.namesrv_addr, port)
        return
    if not have_stock():
        unavailable("needs java, and mvn or an earlier download of the stock broker")
    try:
        stock = start_namesrv(tmp_path / "namesrv")
    except StockError as error:
        unavailable(str(error))
    yield Restartable("stock", tmp_path, stock.addr, port)
    stock.stop()


@pytest.mark.slow
def test_consumers_go_on_after_a_restart_of_the_broker_and_of_themselves(
    restartable: Restartable, start_members: Starter,
) -> None:
    with restartable.broker():
        reading = Reading(start_members, restartable.namesrv_addr, "restarted", CLIENTS)
        reading.await_news("the start")
    with restartable.broker():
        print(f"{restartable.kind}: news {reading.await_news('a restart'):.1f} s after the start")
        for name, home in reading.homes.items():
            home.ask("stop", name)
            reading.start(name)
        reading.await_news("restarts of the consumers")
        count, doubled = reading.finish()
        print(f"{restartable.kind}: {count} messages, {doubled} came twice")
