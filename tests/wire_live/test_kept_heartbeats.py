"""Members of groups outlive the coordinator, and those that left stay away (N22)."""
from __future__ import annotations

from collections.abc import Iterator

import pytest

from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode as Code
from tests.attacks.test_forgotten_ends import members
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until
from tests.wire_live.peer import Peer
from tests.wire_live.test_as_stock import heartbeat
from tests.workers.processes import kill


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    with mqcore_up(tmp_path_factory.mktemp("kept"), {"processes.serving_count": 1}) as running:
        yield running


def of_groups(*groups: str) -> bytes:
    """One heartbeat of several consumers, as a client sends it for all of a process."""
    beats = [fastjson.loads(heartbeat(group, 1)) for group in groups]
    return fastjson.dumps({**beats[0], "consumerDataSet": [
        beat["consumerDataSet"][0] for beat in beats]})


@pytest.mark.parametrize("topics", [1, 1_000, 5_000])
def test_a_member_is_there_again_before_its_next_heartbeat(
    broker: MqcoreProcess, topics: int
) -> None:
    group = f"Kept-{topics}"
    with Peer(broker.broker_addr) as peer:
        assert peer.ask(Code.HEART_BEAT, None, heartbeat(group, topics)).code == 0
        kill(broker, "coordinator")
        wait_until(lambda: members(broker.broker_addr, group) == ["member"], "it is a member again")
        listed = peer.ask(Code.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group})
        assert len(fastjson.loads(listed.body)["subscriptionTable"]) == topics


def test_a_consumer_that_was_shut_down_is_no_member_when_the_coordinator_is_back(
    broker: MqcoreProcess,
) -> None:
    with Peer(broker.broker_addr) as peer:
        assert peer.ask(Code.HEART_BEAT, None, of_groups("Goes", "Stays")).code == 0
        assert peer.ask(Code.UNREGISTER_CLIENT, {
            "clientID": "member", "consumerGroup": "Goes"}).code == 0
        kill(broker, "coordinator")
        wait_until(lambda: members(broker.broker_addr, "Stays") == ["member"], "the other is back")
        wait_until(lambda: members(broker.broker_addr, "Goes") == [], "it is no member")
