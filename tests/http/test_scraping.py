"""A real Prometheus beside a broker whose topics come and go; SOAK_SECONDS makes it longer."""
from __future__ import annotations

import os
import time
from itertools import pairwise
from pathlib import Path

import pytest

from mqcore.wire.codes import RequestCode
from tests.http.asking import families, values
from tests.http.prometheus import Prometheus, scraping
from tests.support.mqcore_process import MQCORE, mqcore_up
from tests.support.stock import free_port
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, pull_fields, send_fields, topic_fields
from tests.workers.processes import pid_of

SECONDS = int(os.environ.get("SOAK_SECONDS", "12"))
PRESENT = 40                     # topics at a time ...
OWN = 20                         # ... half of which have series of their own
SENDS = 5                        # to each topic
ROUNDS_A_SECOND = 4
GROWTH_BYTES = 2 << 20           # that is no leak: of caches of a young process ...
TOPIC_BYTES = 1024               # ... and of a topic that was ever made: its name and its numbers
IDLE_BYTES = 256 << 10           # while none are made
COUNTERS = '{__name__=~"(rocketmq|mqcore)_.*_total|.*_bucket|.*_count"}'


def resident(pid: int) -> int:
    """Private memory of a process, bytes."""
    rows = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return 1024 * sum(int(row.split()[1]) for row in rows
                      if row.startswith(("Private_Clean", "Private_Dirty")))


class Topics:
    """Makes a topic, fills and reads it, and deletes the oldest one; `sent` messages in all."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.made = self.sent = 0

    def round(self) -> None:
        topic, self.made = f"topic-{self.made}", self.made + 1
        assert self._peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(topic, 1)).code == 0
        for _ in range(SENDS):
            assert self._peer.ask(
                RequestCode.SEND_MESSAGE_V2, send_fields(topic), b"body").code == 0
            self.sent += 1
        wait_until(lambda: self._peer.ask(RequestCode.PULL_MESSAGE, pull_fields(
            topic, group=f"group-{self.made % PRESENT}")).code == 0, "the messages in their queue")
        if self.made > PRESENT:
            assert self._peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {
                "topic": f"topic-{self.made - PRESENT - 1}"}).code == 0


def number(prometheus: Prometheus, expr: str) -> float:
    (one,) = prometheus.query(expr)
    return float(one["value"][1])


@pytest.mark.slow
@pytest.mark.timeout(300 + 2 * SECONDS)
def test_scrapes_beside_topics_that_come_and_go(tmp_path: Path) -> None:
    """No gap, no counter that falls, bounded series, and no memory that grows."""
    port = free_port()
    settings = {"http.enable": True, "http.listen": f"127.0.0.1:{port}",
                "http.metrics_topics_max": OWN, "http.metrics_groups_max": OWN,
                "broker.offsets_persist_interval_ms": 500}
    with mqcore_up(tmp_path / "broker", settings, program=MQCORE) as broker, \
            Peer(broker.broker_addr) as peer, scraping(tmp_path, port) as prometheus:
        topics = Topics(peer)
        while topics.made < PRESENT + OWN:              # full tables
            topics.round()
        wait_until(lambda: prometheus.has_data("mqcore_ready"), "the first scrape")
        pid = pid_of(broker, "http")
        began, sent = time.monotonic(), topics.sent
        before = resident(pid)
        due = began
        while (now := time.monotonic()) < began + SECONDS:
            if now >= due:
                topics.round()
                due += 1 / ROUNDS_A_SECOND
            else:
                wait_until(lambda due=due: time.monotonic() >= due, "the next round")
        assert pid_of(broker, "http") == pid, broker.tail()
        after, made = resident(pid), topics.made
        grown = after - before
        idle_until = time.monotonic() + SECONDS / 4
        wait_until(lambda: time.monotonic() >= idle_until, "scrapes without new topics",
                   timeout_s=SECONDS + 60)
        assert resident(pid) - after <= IDLE_BYTES
        took = int(time.monotonic() - began)
        wait_until(lambda: number(prometheus, "sum(rocketmq_messages_in_total)") == sum(
            values(families(port), "rocketmq_messages_in_total")), "the last scrape")

        whole = f"[{took}s]"
        (up,) = prometheus.query(f"up{whole}")
        times = [float(at) for at, _ in up["values"]]
        assert {value for _, value in up["values"]} == {"1"}
        gap = max(after - one for one, after in pairwise(times))
        fallen = prometheus.query(f"resets({COUNTERS}{whole}) > 0")
        assert [one["metric"] for one in fallen] == []
        for name, most in (("rocketmq_messages_in_total", OWN + 1),
                           ("rocketmq_messages_out_total", OWN + 1),
                           ("rocketmq_consumer_lag_messages", OWN + 1)):
            found = prometheus.query(f"max_over_time((count({name}))[{took}s:1s])")
            assert all(float(one["value"][1]) <= most for one in found), name
        # what a rate makes of topics that changed places: no message twice
        gained = number(prometheus, f"sum(increase(rocketmq_messages_in_total{whole}))")
        assert gained <= (topics.sent - sent) * 1.2 + SENDS * OWN, (gained, topics.sent - sent)
        assert grown <= GROWTH_BYTES + TOPIC_BYTES * made, (grown, made)
        print(f"{took} s: {len(times)} scrapes, longest gap {gap:.2f} s, {topics.made} topics, "
              f"{topics.sent - sent} messages, {gained:.0f} by increase(), http process grew by "
              f"{grown} bytes to {before + grown}")
