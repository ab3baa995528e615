"""The times of puts and gets in GET_BROKER_RUNTIME_INFO (28), in stock's words."""
from __future__ import annotations

from pathlib import Path

import pytest

from mqcore.participants import SERVING
from mqcore.shm.latencies import Latencies
from mqcore.shm.latency import LatencySlots
from mqcore.shm.segment import Segment
from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode
from mqcore.workers.coordinator.latency_figures import LatencyFigures
from tests.store.harness import new_segment
from tests.support.mqcore_process import mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer, send_fields, topic_fields

SEND, PULL = 0, 1
NOTHING = ("[<=0ms]:0 [0~10ms]:0 [10~50ms]:0 [50~100ms]:0 [100~200ms]:0 [200~500ms]:0 "
           "[500ms~1s]:0 [1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:0")


@pytest.fixture
def segment() -> Segment:
    return new_segment()


def of(segment: Segment) -> LatencyFigures:
    return LatencyFigures(0.0, Latencies(segment).total)


def test_before_the_first_message_all_are_zeros(segment: Segment) -> None:
    assert of(segment).keys() == {
        "putMessageEntireTimeMax": "0", "getMessageEntireTimeMax": "0", "putLatency99": "0.00",
        "putLatency999": "0.00", "putMessageDistributeTime": NOTHING}


def test_each_put_is_in_the_bucket_of_its_time(segment: Segment) -> None:
    figures = of(segment)
    for ms, count in ((0.06, 7), (3, 6), (20, 5), (300, 4), (1500, 3), (7000, 2), (40_000, 1)):
        LatencySlots(segment).add(SERVING.slot, SEND, int(1000 * ms), count)
    said = figures.keys()
    assert said["putMessageDistributeTime"] == (
        "[<=0ms]:7 [0~10ms]:6 [10~50ms]:5 [50~100ms]:0 [100~200ms]:0 [200~500ms]:4 "
        "[500ms~1s]:0 [1~2s]:3 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:2 [10s~]:1")
    assert said["putMessageEntireTimeMax"] == "33554"
    assert said["getMessageEntireTimeMax"] == "0"


def test_quantiles_are_of_the_last_whole_minute(segment: Segment) -> None:
    figures = of(segment)
    LatencySlots(segment).add(SERVING.slot, SEND, 100, 1000)
    assert figures.keys()["putLatency99"] == "0.11"         # the bucket of 96 to 111 us
    LatencySlots(segment).add(SERVING.slot, SEND, 9000, 20)
    assert figures.keys()["putLatency99"] == "10.24"        # of 8,192 to 10,239 us
    figures.sample(60.0)
    LatencySlots(segment).add(SERVING.slot, SEND, 100, 1)
    figures.sample(119.0)
    assert figures.keys()["putLatency99"] == "10.24"
    figures.sample(120.0)
    assert figures.keys()["putLatency999"] == "0.11"
    assert figures.keys()["putMessageDistributeTime"].startswith("[<=0ms]:1 [0~10ms]:0 ")
    assert figures.keys()["putMessageEntireTimeMax"] == "8"


def test_gets_have_a_maximum_too(segment: Segment) -> None:
    LatencySlots(segment).add(SERVING.slot, PULL, 5000)
    assert of(segment).keys()["getMessageEntireTimeMax"] == "4"


def test_a_broker_tells_how_long_its_sends_took(tmp_path: Path) -> None:
    with mqcore_up(tmp_path) as broker, Peer(broker.broker_addr) as peer:
        def table() -> dict[str, str]:
            return dict(fastjson.loads(peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"])

        def put() -> int:
            return sum(int(item.rpartition(":")[2])
                       for item in table()["putMessageDistributeTime"].split(" "))

        assert peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("T", 1)).code == 0
        for _ in range(3):
            assert peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"body").code == 0
        wait_until(lambda: put() == 3, "three sends in the distribution")
        assert 0 < float(table()["putLatency99"]) <= float(table()["putLatency999"])
        assert int(table()["pageCacheLockTimeMills"]) >= 0
