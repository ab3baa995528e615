"""
Old messages are read from the disk by a thread beside the loop (serving/cold.pxd): who pulls
them waits, and nobody else.
"""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pull.puller import HAS_SUBSCRIPTION, Puller, next_offset, offsets, records
from tests.support.cold_files import make_cold
from tests.support.mqcore_process import MqcoreProcess, mqcore_up

COUNT, BODY_BYTES = 1_500, 80_000
LOG_BYTES = COUNT * BODY_BYTES
SETTINGS: dict[str, object] = {
    "processes.serving_count": 1, "broker.property_filter_enable": True,
    "store.segment_size_bytes": 16 << 20,
}


def serving(broker: MqcoreProcess) -> int:
    (pid,) = (pid for pid in broker.family()
              if b"pull-serving" in Path(f"/proc/{pid}/cmdline").read_bytes())
    return pid


def disk_reads(pid: int) -> tuple[int, int]:
    """Bytes read from the disk by the loop's thread, and by the process's other threads."""
    loop = others = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        fields = dict(line.split(": ") for line in (task / "io").read_text().splitlines())
        if task.name == str(pid):
            loop = int(fields["read_bytes"])
        else:
            others += int(fields["read_bytes"])
    return loop, others


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a broker that has stopped, with COUNT messages in topic Old and one in New."""
    folder = tmp_path_factory.mktemp("cold")
    with mqcore_up(folder, SETTINGS) as broker, Puller(broker.broker_addr) as puller:
        puller.topic("New", 1)
        puller.topic("Old", 1)
        puller.batch("Old", [{"n": str(number)} for number in range(COUNT)], b"x" * BODY_BYTES)
        puller.batch("New", [{"n": "1"}])
    return folder


@pytest.fixture
def broker(store: Path) -> Iterator[MqcoreProcess]:
    """It runs again, and nothing of its old messages is in memory."""
    with mqcore_up(store, SETTINGS) as running:
        make_cold(store / "store")
        yield running


@pytest.mark.parametrize("expression", [None, "n >= 0", "n = 77 OR n = 1400"])
def test_old_messages_are_read_beside_the_loop_and_all_arrive(
    broker: MqcoreProcess, expression: str | None
) -> None:
    kind = {} if expression is None else {"subscription": expression, "expressionType": "SQL92"}
    found: list[int] = []
    with Puller(broker.broker_addr) as puller:
        before = disk_reads(serving(broker))
        at = 0
        while at < COUNT:
            answer = puller.pull("Old", queueOffset=at, **kind)
            assert answer.code in (0, 20), answer.remark
            for record in records(answer):
                assert len(record.body) == BODY_BYTES
            found += offsets(answer)
            assert next_offset(answer) > at
            at = next_offset(answer)
        loop, others = (
            now - then for now, then in zip(disk_reads(serving(broker)), before, strict=True))

    assert found == ([77, 1400] if expression and "OR" in expression else list(range(COUNT)))
    if others == 0 and loop == 0:
        pytest.skip("this machine's disk does not say who read, or kept everything in memory")
    assert others > LOG_BYTES / 4
    assert loop < LOG_BYTES / 100


def test_the_loop_does_not_read_on_where_another_reader_of_the_files_stopped(
    broker: MqcoreProcess, store: Path
) -> None:
    """The kernel marks a page ahead of a reader; who touches it there begins the next reading."""
    for segment in sorted((store / "store" / "commitlog").iterdir())[:-2]:
        with segment.open("rb", buffering=0) as file:
            for _ in range(32):
                file.read(64 << 10)
    with Puller(broker.broker_addr) as puller:
        before = disk_reads(serving(broker))
        at = 0
        while at < COUNT:
            at = next_offset(puller.pull("Old", queueOffset=at))
        loop, others = (
            now - then for now, then in zip(disk_reads(serving(broker)), before, strict=True))
    if others == 0 and loop == 0:
        pytest.skip("this machine's disk does not say who read, or kept everything in memory")
    assert loop < LOG_BYTES / 100


def test_a_pull_of_new_messages_passes_those_that_wait_for_the_disk(broker: MqcoreProcess) -> None:
    with Puller(broker.broker_addr) as old, Puller(broker.broker_addr) as new:
        assert offsets(new.pull("New")) == [0]
        opaques = {old.ask_to_pull("Old", queueOffset=offset): offset
                   for offset in range(0, COUNT - 600, 20)}
        assert offsets(new.pull("New")) == [0]
        while opaques:
            answer = old.receive()
            first = opaques.pop(answer.opaque)
            assert offsets(answer)[0] == first


def test_a_connection_that_closes_while_its_pulls_wait_for_the_disk_leaves_nothing(
    broker: MqcoreProcess
) -> None:
    with Puller(broker.broker_addr) as other:
        for _ in range(3):
            with Puller(broker.broker_addr) as old:
                for offset in range(0, COUNT - 600, 3):
                    old.ask_to_pull("Old", queueOffset=offset, sysFlag=HAS_SUBSCRIPTION)
            assert offsets(other.pull("Old", queueOffset=COUNT - 1)) == [COUNT - 1]
        assert offsets(other.pull("Old", queueOffset=3, maxMsgNums=2)) == [3, 4]
