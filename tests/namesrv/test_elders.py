"""Room for the brokers that were here before, whatever others register."""
from __future__ import annotations

import random

import pytest

from mqcore.namesrv.routes import BrokerIdentity, RouteTables, TableFull
from mqcore.turns import finished
from mqcore.wire import fastjson
from mqcore.wire.topics import DataVersion, TopicConfig, TopicTable
from tests.support.dice import times

LIMIT, SHARE = 1024, 4              # a share is a 256th
HOUR_MS = 3_600_000
FRAME_BYTES_MAX = 16 << 20


class Tables:
    """One name server, whose brokers have a connection each."""

    def __init__(self, **limits: int) -> None:
        self.routes = RouteTables(**limits)
        self.version = 0
        self.now_ms = 1_000

    def says(self, name: str, *topics: str, cluster: str = "C", broker_id: int = 0) -> str:
        """A registration; returns why it is refused, or ''."""
        self.version += 1
        who = BrokerIdentity(cluster, name, f"{name}:{broker_id}", broker_id)
        table = TopicTable(DataVersion(self.version, 1), {one: TopicConfig(one) for one in topics})
        try:
            finished(self.routes.register(who, "", table, self.connection(name), self.now_ms))
        except TableFull as error:
            return str(error)
        return ""

    def connection(self, name: str) -> int:
        return hash(name)

    def ends(self, name: str) -> None:
        finished(self.routes.connection_closed(self.connection(name)))

    def passes(self, ms: int) -> None:
        self.now_ms += ms
        finished(self.routes.expire(self.now_ms, 10 * HOUR_MS))

    def topics(self) -> set[str]:
        return set(self.routes.topic_names())


def junk(count: int, label: str = "junk") -> list[str]:
    return [f"{label}-{number}" for number in range(count)]


def test_a_stranger_that_fills_the_topics_leaves_a_share_to_every_older_name() -> None:
    tables = Tables(topic_count_max=LIMIT)
    for name in ("a", "b"):
        assert tables.says(name, f"{name}-known") == ""
    assert "2 topics" not in tables.says("stranger", *junk(5000))
    assert len(tables.topics()) == LIMIT - 2 * SHARE
    for number in range(40):
        assert tables.says(f"more-{number}", f"new-{number}") != ""
    assert tables.says("b", "b-known", *junk(SHARE, "b")) == ""
    assert "namesrv.topic_count_max" in tables.says("b", "b-known", *junk(SHARE + 1, "b"))
    assert tables.says("a", "a-known", *junk(SHARE, "a")) == ""
    assert len(tables.topics()) == LIMIT


def test_a_broker_that_was_here_gets_its_topics_back_after_a_restart() -> None:
    tables = Tables(topic_count_max=LIMIT)
    mine = junk(300, "mine")
    assert tables.says("a", *mine) == ""
    assert tables.says("stranger", *junk(2)) == ""
    tables.ends("a")
    tables.passes(HOUR_MS // 2)
    assert tables.says("stranger", *junk(5000)) != ""
    assert tables.says("a", *mine, "one-more") == ""
    assert {*mine, "one-more"} <= tables.topics()


def test_places_are_kept_for_an_hour() -> None:
    tables = Tables(topic_count_max=LIMIT)
    assert tables.says("a", *junk(300, "mine")) == ""
    tables.ends("a")
    tables.passes(0)
    assert tables.says("stranger", *junk(5000)) != ""
    assert len(tables.topics()) == LIMIT - 300 - SHARE
    tables.passes(HOUR_MS + 1)
    assert tables.says("stranger", *junk(5000)) != ""
    assert len(tables.topics()) == LIMIT


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_brokers_of_the_same_topics_come_back_in_any_order(order: tuple[str, str]) -> None:
    tables = Tables(topic_count_max=LIMIT, route_count_max=2 * LIMIT)
    mine = junk(1000, "mine")
    for name in ("a", "b"):
        assert tables.says(name, *mine) == ""
    for name in order:
        tables.ends(name)
    for name in order:
        assert tables.says(name, *mine) == ""
    assert tables.topics() == set(mine)


def test_a_name_has_four_clusters() -> None:
    tables = Tables()
    for number in range(4):
        assert tables.says("a", cluster=f"C{number}") == ""
    assert tables.says("a", cluster="C4") == (
        "brokerName a is in 4 clusters: expected no more")
    assert tables.says("a", "T", cluster="C3") == ""
    assert tables.topics() == {"T"}


def test_lists_that_everybody_asks_for_fit_into_a_frame() -> None:
    """With the longest names, of more brokers and topics than there may be."""
    tables = Tables()
    assert tables.says("known", "T") == ""
    long, number = "é" * 120, 0
    while not tables.says(f"{long}{number}", cluster=f"{long}c{number}"):
        number += 1
    for one in range(8):
        tables.says(f"s{one}", *(f"{one}-{number}-{long}" for number in range(20_000)))
    info = finished(fastjson.dumps_in_turns(tables.routes.cluster_info()))
    names = fastjson.dumps({"brokerAddr": None, "topicList": tables.routes.topic_names()})
    assert 1 << 20 < len(info) < FRAME_BYTES_MAX
    assert 1 << 20 < len(names) < FRAME_BYTES_MAX
    assert tables.says("known", "T", "U", cluster="another") == ""
    assert "256 bytes: expected at most 255" in tables.says("known", "T", "é" * 128)


def test_counts_are_right_after_any_life() -> None:
    chance = random.Random(5)
    for _ in range(times(40)):
        tables = Tables(topic_count_max=LIMIT, route_count_max=LIMIT)
        for _ in range(80):
            name = chance.choice("abcdef")
            if chance.random() < 0.3:
                tables.ends(name)
            elif chance.random() < 0.1:
                tables.passes(chance.choice((0, HOUR_MS // 3, HOUR_MS + 1)))
            else:
                tables.says(name, *chance.sample(junk(1500), chance.randrange(400)))
            found = tables.topics()
            kept = set(tables.routes._elders._topics)
            assert not found & kept
            assert len(found) + len(kept) <= LIMIT
            assert tables.routes._topic_bytes == sum(map(len, (*found, *kept)))
            assert set(tables.routes._member_sizes) == set(tables.routes._brokers)
        for name in "abcdef":
            tables.ends(name)
        tables.passes(0)
        tables.passes(HOUR_MS + 1)
        assert (tables.routes._topic_bytes, tables.routes._elders.kept) == (0, 0)
        assert tables.routes._member_bytes == 0
        assert tables.says("fresh", *junk(LIMIT)) == ""
