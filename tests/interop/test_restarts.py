"""mqcore stops or is killed under its clients, starts again on its store: nothing is missing."""
from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.ask import ask, stored_count
from tests.interop.conftest import MQCORE_SETTINGS
from tests.interop.messages import accepted, assert_same, assorted, mids, plain
from tests.interop.runner import Programs
from tests.interop.toolchain import require_client
from tests.support.mqcore_process import MqcoreProcess, mqcore_namesrv, mqcore_up
from tests.support.stock import free_broker_port
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)
MANY = 3_000
QUEUES = 4
RUNTIME_INFO = 28


@pytest.fixture(autouse=True)
def _java() -> None:
    require_client("java")


@pytest.fixture
def namesrv(tmp_path: Path) -> Iterator[MqcoreProcess]:
    """A name server that outlives the broker, as in a cluster."""
    with mqcore_namesrv(tmp_path / "namesrv") as started:
        yield started


def test_acknowledged_messages_survive_a_kill_of_all_processes(
    tmp_path: Path, programs: Programs, namesrv: MqcoreProcess,
) -> None:
    settings = {**MQCORE_SETTINGS, "broker.listen_port": free_broker_port(),
                "processes.shared_memory": "named"}
    sent = [*assorted("java", "kept"), *plain(f"more-{index}" for index in range(MANY))]
    with mqcore_up(tmp_path / "mqcore", settings, namesrv_addr=namesrv.namesrv_addr) as broker:
        producer = programs.produce("java", namesrv.namesrv_addr, "killed", sent, apart=True)
        wait_until(lambda: _lines(producer.out) > MANY // 10, "a tenth acknowledged")
        shared = broker.shared_memory()
        assert len(shared) == 1
        broker.kill()
    producer.stop()
    producer.end()
    acknowledged = {line["id"] for line in producer.lines}
    assert MANY // 10 < len(acknowledged) < len(sent)
    with mqcore_up(tmp_path / "mqcore", settings, namesrv_addr=namesrv.namesrv_addr) as broker:
        assert not [path for path in shared if Path(path).exists()]
        wait_until(lambda: _behind(broker) == 0, "all messages in their queues")
        stored = stored_count(broker.broker_addr, "killed", range(QUEUES))
        reader = programs.consume("java", namesrv.namesrv_addr, "killed", "readers", stored)
        seen = mids(reader.finish())

    assert sorted(acknowledged - set(seen) - {"batch of 3"}) == []
    assert len(seen) == len(set(seen))
    arrived = [one for one in sent if one["properties"]["mid"] in set(seen)]
    assert_same(arrived, reader.lines, "killed")


@pytest.mark.slow
def test_clients_that_stay_carry_on_when_the_broker_comes_back(
    tmp_path: Path, programs: Programs, namesrv: MqcoreProcess,
) -> None:
    settings = {**MQCORE_SETTINGS, "broker.listen_port": free_broker_port()}
    addr = namesrv.namesrv_addr
    before, after = plain(["before-1", "before-2"]), plain(["after-1", "after-2"])
    with mqcore_up(tmp_path / "mqcore", settings, namesrv_addr=addr):
        programs.produce("java", addr, "staying", before).finish()
        reader = programs.consume("java", addr, "staying", "readers", 4, timeout_s=120)
        wait_until(lambda: _lines(reader.out) == 2, "two messages before the stop")
    with mqcore_up(tmp_path / "mqcore", settings, namesrv_addr=addr):
        programs.produce("java", addr, "staying", after).finish()
        lines = accepted(reader.finish())

    assert_same([*before, *after], lines, "staying")


def _behind(broker: MqcoreProcess) -> int:
    """Bytes of the log that are not in their queues yet."""
    table = json.loads(ask(broker.broker_addr, RUNTIME_INFO, {}).body)["table"]
    return int(table["dispatchBehindBytes"])


def _lines(file: Path) -> int:
    return len(file.read_bytes().splitlines()) if file.exists() else 0
