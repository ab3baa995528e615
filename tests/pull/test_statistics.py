"""What pulls and sends count, asked for as tools do (broker.md 11; remoting.md 4.4)."""
from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from mqcore.participants import SERVING
from mqcore.shm.segment import Segment
from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode as Code
from tests.pull.puller import HAS_SUBSCRIPTION, SUSPENDS, Puller, offsets
from tests.support.mqcore_process import MqcoreProcess, mqcore_up
from tests.support.waiting import wait_until

COUNT, BATCH = 40, 32
HOLD_S = 0.5
SAMPLE_S = 35                       # until the sample after next, on a busy machine
PAUSE_S = 0.2
ANSWER_S = 10.0

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqcoreProcess]:
    with mqcore_up(tmp_path_factory.mktemp("statistics"), {"processes.serving_count": 1}) as live:
        yield live


def item(puller: Puller, name: str, key: str) -> dict[str, Any]:
    """The last minute of an item; nothing when it is unknown."""
    answer = puller.ask(Code.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": key})
    if answer.code != 0:
        return {"sum": 0, "avgpt": 0.0}
    return dict(fastjson.loads(answer.body)["statsMinute"])


def wait_for_sum(puller: Puller, name: str, key: str, wanted: int) -> None:
    def reached() -> bool:
        return item(puller, name, key)["sum"] >= wanted or not puller.silent_for(PAUSE_S)

    wait_until(reached, f"{wanted} counted of {name} {key}", SAMPLE_S)


def serving_pid(live: MqcoreProcess) -> int:
    return int(Segment.attach(live.segment_name()).slot(SERVING.slot)["pid"])


def pulled_again(live: MqcoreProcess, topic: str, offset: int) -> bool:
    """One pull, if there is somebody to answer it."""
    try:
        with Puller(live.broker_addr) as puller:
            return bool(offsets(puller.pull(topic, queueOffset=offset)))
    except OSError:
        return False


def test_what_a_group_was_given_is_counted_and_held_time_is_not(counted: MqcoreProcess) -> None:
    with Puller(counted.broker_addr) as puller, Puller(counted.broker_addr) as waiting:
        puller.topic("Counted", 1)
        opaque = waiting.ask_to_pull("Counted", **{
            "sysFlag": HAS_SUBSCRIPTION | SUSPENDS, "suspendTimeoutMillis": 15_000})
        assert waiting.silent_for(HOLD_S)
        puller.batch("Counted", [{"TAGS": "a"}])
        held = waiting.answer_to(opaque, ANSWER_S)
        puller.batch("Counted", [{"TAGS": "a"}] * (COUNT - 1))
        answers = [puller.pull("Counted", queueOffset=at, maxMsgNums=BATCH) for at in (0, BATCH)]
        bodies = [held.body, *(answer.body for answer in answers)]
        assert [len(offsets(answer)) for answer in (held, *answers)] == [1, BATCH, COUNT - BATCH]
        wait_for_sum(puller, "GROUP_GET_NUMS", "Counted@G", COUNT + 1)

        got, size = (item(puller, f"GROUP_GET_{what}", "Counted@G") for what in ("NUMS", "SIZE"))
        assert (got["sum"], got["avgpt"]) == (COUNT + 1, pytest.approx((COUNT + 1) / 3))
        assert size["sum"] == sum(map(len, bodies))
        assert item(puller, "GROUP_GET_LATENCY", "0@Counted@G")["sum"] < HOLD_S * 1000
        wait_for_sum(puller, "TOPIC_PUT_NUMS", "Counted", COUNT)
        put, stored = (item(puller, f"TOPIC_PUT_{what}", "Counted") for what in ("NUMS", "SIZE"))
        assert (put["sum"], put["avgpt"]) == (COUNT, 1.0)
        assert stored["sum"] == sum(len(answer.body) for answer in answers)


def test_how_far_behind_a_pull_was_is_told_at_once(counted: MqcoreProcess) -> None:
    with Puller(counted.broker_addr) as puller:
        puller.topic("Behind", 1)
        puller.batch("Behind", [{}] * 10, b"x" * 1000)
        first = puller.pull("Behind", maxMsgNums=1)
        ends = [fastjson.loads(puller.ask(Code.VIEW_BROKER_STATS_DATA, {
            "statsName": "GROUP_GET_FALL_SIZE", "statsKey": "0@Behind@G"}).body)["statsMinute"]]
        rest = puller.pull("Behind", queueOffset=1, maxMsgNums=BATCH)
        ends.append(item(puller, "GROUP_GET_FALL_SIZE", "0@Behind@G"))
        age = item(puller, "GROUP_GET_FALL_TIME", "0@Behind@G")["sum"]

    size = len(first.body)
    assert len(rest.body) == 9 * size
    assert [end["sum"] for end in ends] == [10 * size, size]
    assert 0 <= age < SAMPLE_S * 1000


def test_a_serving_process_that_dies_takes_no_count_with_it(counted: MqcoreProcess) -> None:
    with Puller(counted.broker_addr) as puller:
        puller.topic("Survives", 1)
        puller.batch("Survives", [{}] * 10)
        puller.pull("Survives")
    pid = serving_pid(counted)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: pulled_again(counted, "Survives", 4), "a new serving process", SAMPLE_S)
    assert serving_pid(counted) != pid
    with Puller(counted.broker_addr) as puller:
        wait_for_sum(puller, "GROUP_GET_NUMS", "Survives@G", 16)
        assert item(puller, "GROUP_GET_NUMS", "Survives@G")["sum"] == 16
