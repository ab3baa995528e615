"""
Light queues (%LMQ%...) with the Java client 4.9.8: one message sent, many queues to pull it from.

The same expectations hold for a stock broker with enableLmq and enableMultiDispatch; and each of
the two carries on with a store that the other one wrote.
"""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.ask import ask
from tests.interop.conftest import BROKERS, MQCORE_SETTINGS, STOCK_PROPERTIES, Cluster
from tests.interop.messages import Line, message
from tests.interop.runner import Programs
from tests.interop.toolchain import require_client
from tests.support import stock
from tests.support.ci import unavailable
from tests.support.mqcore_process import mqcore_up

pytestmark = pytest.mark.timeout(300)
PARENT = "light-parent"
LIGHT_SETTINGS = {**MQCORE_SETTINGS, "store.multi_dispatch_enable": True,
                  "store.light_queues_enable": True}
LIGHT_PROPERTIES = {**STOCK_PROPERTIES, "enableMultiDispatch": True, "enableLmq": True}
MAX_OFFSET = 30
NAMES = "INNER_MULTI_DISPATCH"


@pytest.fixture(autouse=True)
def _java() -> None:
    require_client("java")


@pytest.fixture(scope="module", params=BROKERS)
def light(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory,
          ) -> Iterator[Cluster]:
    """A broker with light queues."""
    folder = tmp_path_factory.mktemp(f"light-{request.param}")
    if request.param == "mqcore":
        with mqcore_up(folder, LIGHT_SETTINGS) as broker:
            yield Cluster("mqcore", broker.namesrv_addr, broker.broker_addr)
        return
    if not stock.have_stock():
        unavailable("needs java, and mvn or an earlier download of the stock broker")
    with stock.stock_cluster(folder, LIGHT_PROPERTIES) as running:
        yield Cluster("stock", running.namesrv_addr, running.broker_addr)


def listed(mid: str, *names: str) -> Line:
    return message(mid, f"body of {mid}", tags="TagA", properties={NAMES: ",".join(names)})


def pulled(programs: Programs, namesrv: str, count: int, *names: str,
           group: str = "%LMQ%group") -> dict[str, list[str]]:
    """The ids of `count` messages of each light queue, in their order."""
    lines = programs.java("pull-queue", namesrv=namesrv, parent=PARENT, topic=",".join(names),
                          group=group, count=count)
    assert [line["committed"] for line in lines if "committed" in line] == list(names)
    return {name: [line["properties"]["mid"] for line in lines if line.get("pulledFrom") == name]
            for name in names}


def max_offset(cluster_addr: str, topic: str) -> int:
    answer = ask(cluster_addr, MAX_OFFSET, {"topic": topic, "queueId": "0"})
    return int((answer.ext or {})["offset"] or 0)


@pytest.mark.slow
def test_every_light_queue_gives_its_messages_in_order_and_keeps_its_offset(
    light: Cluster, programs: Programs,
) -> None:
    sent = [listed(f"m{index}", "%LMQ%each", f"%LMQ%{'odd' if index % 2 else 'even'}")
            for index in range(20)]
    programs.produce("java", light.namesrv_addr, PARENT, sent).finish()

    seen = pulled(programs, light.namesrv_addr, 10, "%LMQ%even", "%LMQ%odd")
    assert seen == {"%LMQ%even": [f"m{index}" for index in range(0, 20, 2)],
                    "%LMQ%odd": [f"m{index}" for index in range(1, 20, 2)]}
    assert pulled(programs, light.namesrv_addr, 20, "%LMQ%each", group="plain-group") == {
        "%LMQ%each": [f"m{index}" for index in range(20)]}

    programs.produce("java", light.namesrv_addr, PARENT, [listed("later", "%LMQ%even")]).finish()
    assert pulled(programs, light.namesrv_addr, 1, "%LMQ%even") == {"%LMQ%even": ["later"]}
    assert max_offset(light.broker_addr, "%LMQ%even") == 11


def test_a_pull_that_waits_for_a_light_queue_is_woken(light: Cluster, programs: Programs) -> None:
    programs.produce("java", light.namesrv_addr, PARENT, [message("route", "makes the topic")],
                     ).finish()
    waiting = programs.start_java("pull-queue", namesrv=light.namesrv_addr, parent=PARENT,
                                  topic="%LMQ%wait", group="%LMQ%group", count=1)
    programs.produce("java", light.namesrv_addr, PARENT, [listed("woken", "%LMQ%wait")]).finish()
    lines = waiting.finish()
    assert [line["properties"]["mid"] for line in lines if "pulledFrom" in line] == ["woken"]


# -- each other's stores ---------------------------------------------------------------------------


@pytest.mark.slow
def test_a_stock_broker_carries_on_with_our_light_queues_and_we_with_its(
    tmp_path: Path, programs: Programs, name_server: str,
) -> None:
    def lot(prefix: str) -> list[Line]:
        return [listed(f"{prefix}{index}", "%LMQ%moved", "side") for index in range(5)]

    with mqcore_up(tmp_path / "mqcore", LIGHT_SETTINGS) as broker:
        programs.produce("java", broker.namesrv_addr, PARENT, lot("first")).finish()
        pulled(programs, broker.namesrv_addr, 3, "%LMQ%moved")       # a pull takes all five
    running = stock.start_broker(
        tmp_path / "stock", name_server,
        {**LIGHT_PROPERTIES, "storePathRootDir": broker.store, "brokerName": "mqcore-a"})
    try:
        programs.produce("java", name_server, PARENT, lot("second")).finish()
        assert pulled(programs, name_server, 5, "%LMQ%moved") == {
            "%LMQ%moved": [f"second{index}" for index in range(5)]}
        assert pulled(programs, name_server, 10, "%LMQ%moved", group="%LMQ%all") == {
            "%LMQ%moved": [f"{lot}{index}" for lot in ("first", "second") for index in range(5)]}
    finally:
        running.stop()
    with mqcore_up(tmp_path / "again", {**LIGHT_SETTINGS, "store.path": broker.store}) as again:
        programs.produce("java", again.namesrv_addr, PARENT, lot("third")).finish()
        assert pulled(programs, again.namesrv_addr, 5, "%LMQ%moved") == {
            "%LMQ%moved": [f"third{index}" for index in range(5)]}
        assert pulled(programs, again.namesrv_addr, 15, "%LMQ%moved", group="%LMQ%three") == {
            "%LMQ%moved": [f"{lot}{index}" for lot in ("first", "second", "third")
                           for index in range(5)]}
