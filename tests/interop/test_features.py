"""Delays, redelivery, SQL92, keys, prompt routes: a case of each, for every client that has it."""
from __future__ import annotations

import time
from functools import partial

import pytest

from mqcore.wire.codes import ResponseCode
from tests.interop.ask import has_route, send
from tests.interop.conftest import Cluster
from tests.interop.messages import (
    CLIENTS,
    Line,
    accepted,
    assert_same,
    message,
    mids,
    plain,
)
from tests.interop.runner import Programs, Run
from tests.interop.toolchain import SetupError, command_of, require_client
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)
DELAY_LEVEL, DELAY_MS = 2, 2_000                # of STOCK_PROPERTIES in conftest.py
SELECTING = ("java", "go", "node")              # the C++ client knows tags alone


def _available(clients: tuple[str, ...]) -> list[str]:
    return [one for one in clients if not isinstance(command_of(one), SetupError)]


def _create(programs: Programs, cluster: Cluster, topic: str) -> None:
    require_client("java")
    programs.java("create-topic", namesrv=cluster.namesrv_addr, topic=topic, queues=4)


def _end(runs: list[Run]) -> None:
    for run in runs:
        run.end()


# -- delayed delivery ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
def test_a_delayed_message_comes_after_its_delay_and_not_before(
    programs: Programs, cluster: Cluster, client: str,
) -> None:
    require_client("java")
    require_client(client)
    topic = f"delayed-{cluster.kind}-{client}"
    _create(programs, cluster, topic)
    delayed = message("delayed", "later", delayLevel=DELAY_LEVEL)
    sent = [delayed, message("now", "at once")]
    reader = programs.consume("java", cluster.namesrv_addr, topic, f"{topic}-readers", 2)
    programs.produce(client, cluster.namesrv_addr, topic, sent).finish()

    lines = reader.finish()

    assert_same(sent, lines, topic)
    waited_ms = {line["properties"]["mid"]: line["storedAt"] - line["bornAt"] for line in lines}
    assert waited_ms["delayed"] >= DELAY_MS         # delivery stores it a second time
    assert waited_ms["now"] < DELAY_MS


# -- redelivery ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rejecting_readers(cluster: Cluster, lasting_programs: Programs) -> dict[str, Run]:
    topic = f"rejected-{cluster.kind}"
    _create(lasting_programs, cluster, topic)
    sent = plain(f"rejected-{index}" for index in range(4))
    lasting_programs.produce("java", cluster.namesrv_addr, topic, sent).finish()
    runs = {one: lasting_programs.consume(one, cluster.namesrv_addr, topic, f"{topic}-{one}",
                                          len(sent), timeout_s=75, reject_once=True)
            for one in _available(CLIENTS)}
    _end(list(runs.values()))
    return runs


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
def test_a_rejected_message_comes_again_once(
    rejecting_readers: dict[str, Run], cluster: Cluster, client: str,
) -> None:
    require_client(client)
    run = rejecting_readers[client]

    assert run.process.returncode == 0, run.tail()
    sent = plain(f"rejected-{index}" for index in range(4))
    again = accepted(run.lines)
    assert_same(sent, again, f"rejected-{cluster.kind}")
    assert [line["reconsumeTimes"] for line in again] == [1] * len(sent)
    assert sorted(mids(run.lines)) == sorted(mids(sent) * 2)


# -- SQL92 and keys --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("client", SELECTING)
def test_an_sql_expression_selects_by_properties(
    programs: Programs, cluster: Cluster, client: str,
) -> None:
    require_client("java")
    require_client(client)
    topic = f"sql-{cluster.kind}-{client}"
    _create(programs, cluster, topic)
    sent = [message(f"sql-{index}", "x", properties={"number": str(index)}) for index in range(8)]
    programs.produce("java", cluster.namesrv_addr, topic, sent).finish()

    lines = programs.consume(client, cluster.namesrv_addr, topic, f"{topic}-readers", 3,
                             sql="number > 4 AND number < 8").finish()

    assert_same(sent[5:], lines, topic)


def test_messages_are_found_by_their_key(programs: Programs, cluster: Cluster) -> None:
    require_client("java")
    topic = f"keys-{cluster.kind}"
    sent = [message("wanted", "x", keys="alpha beta"), message("other", "y", keys="gamma")]
    programs.produce("java", cluster.namesrv_addr, topic, sent).finish()

    found: list[Line] = programs.java("query", namesrv=cluster.namesrv_addr, topic=topic,
                                      key="beta")

    assert_same(sent[:1], found, topic)


# -- prompt routes ---------------------------------------------------------------------------------

ROUTE_DELAY_S_MAX = 0.1         # 3 to 14 ms with the stock broker


def test_a_name_server_knows_a_topic_as_soon_as_its_first_message_is_acknowledged(
    cluster: Cluster,
) -> None:
    delays = []
    for index in range(8):
        topic = f"prompt-{cluster.kind}-{index}"
        assert send(cluster.broker_addr, topic, b"first").code == ResponseCode.SUCCESS
        acknowledged = time.monotonic()
        wait_until(partial(has_route, cluster.namesrv_addr, topic), f"a route of {topic}")
        delays.append(time.monotonic() - acknowledged)

    assert max(delays) < ROUTE_DELAY_S_MAX
