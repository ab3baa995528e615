"""
What one client sends, every client receives, byte for byte; and it goes on where it stopped.

Each client sends to a topic of its own. The broker makes it when the first message arrives, except
for the Node client, which refuses to send to a topic without a route: the Java client makes that
one before. Then one push consumer of each client reads all these topics at once. Then each of
them is started anew while a second lot is sent. The programs run side by side; the tests look at
what they saw.
"""
from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from mqcore.layout import SYS_FLAG_COMPRESSED
from tests.interop.ask import ends_of, settled_offsets
from tests.interop.conftest import Cluster
from tests.interop.messages import (
    CLIENTS,
    Line,
    Message,
    assert_no_queue_twice,
    assert_same,
    assorted,
    mids,
    plain,
    property_names,
)
from tests.interop.runner import Programs, Run
from tests.interop.toolchain import SetupError, command_of, require_client

FIRST_READ_S = 90
SECOND_READ_S = 90
# FIRST_COMMITS_MAY_BE_LOST: when the first commits of a group for two queues of a topic meet in a
# stock broker, one may be lost: it looks for the topic's offsets and then stores new ones without
# a lock (RocketMQ 4.9.7: ConsumerOffsetManager.commitOffset). So a stock broker may repeat a queue.
pytestmark = pytest.mark.timeout(400)


@dataclass
class Exchange:
    """The programs of one exchange and, once they ended, what they saw."""

    topics: dict[str, str]                          # by sending client
    sent: dict[str, list[Message]]                  # by sending client
    producers: dict[str, Run] = field(default_factory=dict)
    consumers: dict[str, Run] = field(default_factory=dict)

    def seen(self, consumer: str, producer: str) -> list[Line]:
        """What `consumer` got from the topic of `producer`."""
        topic = self.topics[producer]
        return [line for line in self.consumers[consumer].lines if line["topic"] == topic]

    def explain(self, client: str) -> str:
        run = self.consumers[client]
        return f"{run.name}: {len(run.lines)} lines, exit {run.process.returncode}\n{run.tail()}"


def _available() -> list[str]:
    found = [client for client in CLIENTS if not isinstance(command_of(client), SetupError)]
    return found if "java" in found else [client for client in found if client != "node"]


def _require(client: str) -> None:
    require_client(client)
    if client == "node":
        require_client("java")          # which makes its topic


def _topic(cluster: Cluster, client: str) -> str:
    return f"interop-{cluster.kind}-{client}"


def _exchange(
    programs: Programs, cluster: Cluster, name: str, sent: Callable[[str], list[Message]],
    *, consumers_first: bool, timeout_s: int, group: str,
) -> Exchange:
    clients = _available()
    exchange = Exchange({one: _topic(cluster, one) for one in clients},
                        {one: sent(one) for one in clients})
    everything = list(itertools.chain.from_iterable(exchange.sent.values()))

    def start_producers() -> None:
        for one in clients:
            exchange.producers[one] = programs.produce(
                one, cluster.namesrv_addr, exchange.topics[one], exchange.sent[one],
                group=f"producers-{name}-{one}")

    def start_consumers() -> None:
        for one in clients:
            exchange.consumers[one] = programs.consume(
                one, cluster.namesrv_addr, ",".join(exchange.topics.values()), f"{group}-{one}",
                len(everything), timeout_s, properties=property_names(everything), linger_ms=2000)

    if consumers_first:
        start_consumers()
        start_producers()
        for run in exchange.producers.values():
            run.end()
    else:
        start_producers()
        for run in exchange.producers.values():
            run.end()
        start_consumers()
    for run in exchange.consumers.values():
        run.end()
    return exchange


@pytest.fixture(scope="module")
def first(cluster: Cluster, lasting_programs: Programs) -> Exchange:
    """Messages of every kind to topics that do not exist yet, consumed afterwards."""
    if "node" in _available():
        lasting_programs.java("create-topic", namesrv=cluster.namesrv_addr,
                              topic=_topic(cluster, "node"), queues=4)
    return _exchange(lasting_programs, cluster, "first", lambda one: assorted(one, one),
                     consumers_first=False, timeout_s=FIRST_READ_S, group="readers")


@pytest.fixture(scope="module")
def second(first: Exchange, cluster: Cluster, lasting_programs: Programs) -> Exchange:
    """The same groups once more, started before the messages are sent."""
    for consumer, producer in itertools.product(first.consumers, first.producers):
        ends = ends_of(first.seen(consumer, producer))
        settled_offsets(cluster.broker_addr, f"readers-{consumer}", first.topics[producer], ends,
                        ends)
    return _exchange(lasting_programs, cluster, "second",
                     lambda one: plain(f"{one}-again-{index}" for index in range(8)),
                     consumers_first=True, timeout_s=SECOND_READ_S, group="readers")


@pytest.mark.parametrize("producer", CLIENTS)
def test_every_message_is_acknowledged_to_its_producer(first: Exchange, producer: str) -> None:
    _require(producer)
    run = first.producers[producer]

    assert run.process.returncode == 0, run.tail()
    acknowledged = [line["id"] for line in run.lines if not line["id"].startswith("batch")]
    assert acknowledged == [one["properties"]["mid"] for one in first.sent[producer]
                            if one["mode"] not in ("oneway", "batch")]


@pytest.mark.parametrize("producer", CLIENTS)
@pytest.mark.parametrize("consumer", CLIENTS)
def test_what_one_client_sends_another_gets_once_and_byte_for_byte(
    first: Exchange, producer: str, consumer: str,
) -> None:
    _require(producer)
    _require(consumer)
    lines = first.seen(consumer, producer)

    assert lines, first.explain(consumer)
    assert_same(first.sent[producer], lines, first.topics[producer])
    assert_no_queue_twice(lines)


@pytest.mark.parametrize("producer", CLIENTS)
def test_bodies_over_4096_bytes_travel_and_are_stored_compressed(
    first: Exchange, producer: str,
) -> None:
    _require(producer)
    require_client("java")
    lines = {line["properties"]["mid"]: line for line in first.seen("java", producer)}

    long_text = lines[f"{producer}-long-text"]
    assert long_text["sysFlag"] & SYS_FLAG_COMPRESSED
    assert long_text["storeSize"] < 2000        # of 30,000 bytes of text
    assert lines[f"{producer}-at-4095"]["sysFlag"] & SYS_FLAG_COMPRESSED == 0


@pytest.mark.parametrize("producer", CLIENTS)
@pytest.mark.parametrize("consumer", CLIENTS)
def test_a_restarted_consumer_gets_what_is_new_and_nothing_again(
    second: Exchange, cluster: Cluster, producer: str, consumer: str,
) -> None:
    _require(producer)
    _require(consumer)
    lines = second.seen(consumer, producer)

    assert lines, second.explain(consumer)
    if cluster.kind == "stock":         # see FIRST_COMMITS_MAY_BE_LOST
        new = set(mids(second.sent[producer]))
        lines = [line for line in lines if line["properties"]["mid"] in new]
    assert_same(second.sent[producer], lines, second.topics[producer])
