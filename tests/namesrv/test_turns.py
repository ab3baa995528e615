"""
No request, and no broker that goes, holds a name server for long because its tables are full; nor
does the search for garbage in circles, which has little to walk there.
"""
from __future__ import annotations

import gc
import time
import zlib
from collections.abc import Callable, Generator, Iterator

import pytest

from mqcore.namesrv.handlers import Caller, Handlers
from mqcore.namesrv.kv import KeyValues
from mqcore.namesrv.routes import BrokerIdentity, RouteTables
from mqcore.namesrv.runtime import RuntimeConfig
from mqcore.turns import finished
from mqcore.wire.codes import RequestCode as Code
from mqcore.wire.command import Command, request
from mqcore.wire.topics import DataVersion, TopicConfig, TopicTable
from tests.namesrv.harness import registration, settings_in
from tests.support.units import longest_step, unit

BROKERS, TOPICS = 6_000, 40_000
FRAME_BYTES = (16 << 20) - 1_000
UNITS_MAX = 3.0
FIELDS = {
    "topic": "one-topic", "cluster": "C", "clusterName": "C", "brokerName": "large",
    "brokerAddr": "10.0.0.1:10911", "brokerId": "0", "namespace": "N", "key": "k", "value": "v"}
CHANGING = (Code.DELETE_TOPIC_IN_NAMESRV, Code.UNREGISTER_BROKER)
LARGE = BrokerIdentity("C", "large", "10.0.0.1:10911", 0)


def topics_of(count: int) -> TopicTable:
    """With one that all brokers have."""
    names = ("one-topic", *(f"T-{number}" for number in range(count - 1)))
    return TopicTable(DataVersion(1, 5), {name: TopicConfig(name, 4, 4) for name in names})


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Handlers]:
    """Very many brokers, of one topic. The last test ends them."""
    routes = RouteTables()
    few = topics_of(1)
    for number in range(BROKERS):
        who = BrokerIdentity("C", f"b-{number}", f"10.1.0.1:{number}", 0)
        finished(routes.register(who, "", few, 2, 0))
    settings = settings_in(tmp_path_factory.mktemp("full"))
    gc.collect()
    gc.disable()
    yield Handlers(routes, KeyValues(
        settings.kv_file, entry_count_max=settings.kv_entry_count_max,
        value_bytes_max=settings.kv_value_bytes_max, bytes_max=settings.kv_bytes_max,
    ), RuntimeConfig(settings))
    gc.enable()


@pytest.fixture
def routes(full: Handlers) -> RouteTables:
    """With one broker more, which has very many topics."""
    finished(full.routes.register(LARGE, "", topics_of(TOPICS), 1, 0))
    return full.routes


def longest_turn(handlers: Handlers, command: Command) -> float:
    began = time.thread_time()
    outcome = handlers.begin(command, Caller(3), 0)
    longest = time.thread_time() - began
    return max(longest, longest_step(outcome)) if isinstance(outcome, Generator) else longest


def sized(length: int) -> bytes:
    """Before a part of a compressed registration."""
    return length.to_bytes(4, "big")


def asked(code: int) -> Command:
    if code == Code.REGISTER_BROKER:
        return registration([*topics_of(TOPICS).topics], name="other", address="10.0.0.2:10911")
    return request(code, dict(FIELDS))


def test_no_request_takes_long_turns_over_full_tables(full: Handlers, routes: RouteTables) -> None:
    codes = [code for code in Code if full.knows(code) and code not in CHANGING]
    assert len(codes) > 15
    one = unit()
    taken = {Code(code).name: longest_turn(full, asked(code)) / one for code in (*codes, *CHANGING)}
    assert {name: units for name, units in taken.items() if units > UNITS_MAX} == {}
    route = finished(routes.route("T-1"))
    assert route is not None
    assert [broker.broker_name for broker in route.brokers] == ["other"]


@pytest.mark.parametrize("made", [
    lambda: b"[" + b"[]," * 900_000 + b"[]]", lambda: b" " * FRAME_BYTES,
    lambda: b"a" * FRAME_BYTES, lambda: b"a=b\n" * (FRAME_BYTES // 4),
    lambda: b"a\\\n" * (FRAME_BYTES // 3),
], ids=["lists", "spaces", "a word", "lines", "one long line"])
def test_neither_do_bodies_as_long_as_a_frame(full: Handlers, made: Callable[[], bytes]) -> None:
    body, one = made(), unit()
    taken = {code.name: longest_turn(full, request(code, dict(FIELDS), body)) / one
             for code in (Code.REGISTER_BROKER, Code.QUERY_DATA_VERSION,
                          Code.UPDATE_NAMESRV_CONFIG, Code.GET_ROUTEINFO_BY_TOPIC)}
    assert {name: units for name, units in taken.items() if units > UNITS_MAX} == {}


@pytest.mark.parametrize(("made", "expected"), [
    (lambda: bytes(63 << 20), "dataVersion"), (lambda: bytes(80 << 20), "over 67108864 bytes"),
    (lambda: sized(20 << 20) + b"{" + b" " * (20 << 20), "length 20971520"),
    (lambda: sized(2) + b"{}" + sized(1) + sized(20 << 20) + b" " * (20 << 20), "length 20971520"),
], ids=["zeros", "too many zeros", "a version", "a topic"])
def test_neither_do_small_bodies_that_become_large(
    full: Handlers, made: Callable[[], bytes], expected: str,
) -> None:
    asks = request(Code.REGISTER_BROKER, {**FIELDS, "compressed": "true"}, zlib.compress(made()))
    assert len(asks.body) < 1 << 17
    assert longest_turn(full, asks) / unit() <= UNITS_MAX
    assert expected in (full.handle(asks, 3, 0).remark or "")


def test_neither_does_the_end_of_a_connection(routes: RouteTables) -> None:
    assert longest_step(routes.connection_closed(1)) / unit() <= UNITS_MAX
    assert "large" not in routes.cluster_info()["brokerAddrTable"]


def test_neither_does_the_silence_of_all_brokers(routes: RouteTables) -> None:
    assert longest_step(routes.expire(120_001, 120_000)) / unit() <= UNITS_MAX
    assert routes.topic_names() == []


def test_routes_are_nothing_that_the_search_for_circles_looks_at() -> None:
    routes = RouteTables()
    before = len(gc.get_objects())
    finished(routes.register(LARGE, "", topics_of(5_000), 1, 0))
    assert len(gc.get_objects()) - before < 100
